# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts the places of a source's prefetch window that deliveries take which wait here unsettled. Pure.

Half of the window may be held, so that healthy messages keep the other half (no-head-of-line-blocking). A delivery of
which no copy can be made stays longer than others; it has a place apart, and takes none from those that only wait for
their delay, as long as there is one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..message import Destination
from .delays import DelayOptions
from .plan import SourcePlan

NOBODY = 0  # no delivery's token


class HoldBudget:
    """Knows the deliveries of one source that are held here, by token.

    Not thread-safe; the counts may be read from any thread.

    Methods take `options`, the delay options as they are now, and the token of the delivery that they are about.
    `beside` is the number of further places that are taken: by messages that wait behind one of their key.
    """

    def __init__(self, source: Destination, plans: Mapping[Destination, SourcePlan]) -> None:
        self._source, self._plans = source, plans
        self.held: set[int] = set()
        self.apart: set[int] = set()  # held or stranded, without a copy
        self.beside = 0

    @property
    def options(self) -> DelayOptions:
        """Return the delay options of the source as they are now: a window that the driver opens changes them."""
        return self._plans[self._source].ways

    def taken(self, token: int, options: DelayOptions) -> int:
        """Return how many places of the budget are taken by others than this delivery."""
        apart = len(self.apart) - (token in self.apart)
        beside = self.beside + max(0, apart - options.apart_beyond)
        return len(self.held) - (token in self.held) + beside

    def fits_apart(self, token: int, options: DelayOptions) -> bool:
        """Return whether the delivery has, or can have, a place among those that cannot be copied."""
        others = len(self.apart) - (token in self.apart)
        within = others < options.apart_beyond or self.taken(token, options) < options.budget
        return others < options.apart and within

    def fits(self, token: int, options: DelayOptions, *, copyable: bool) -> bool:
        """Return whether there is a place for a delivery that is not held yet."""
        if not copyable and self.fits_apart(token, options):
            return True
        shared = copyable or options.apart == 0
        return shared and self.taken(token, options) < options.budget

    def counts(self) -> tuple[int, int, int]:
        """Return how many deliveries are held, how many places of the budget are taken, and its size. Any thread."""
        options = self.options
        return len(self.held) + len(self.apart), self.taken(NOBODY, options), options.budget

    def take(self, token: int, *, apart: bool) -> None:
        """Give the delivery a place, or another one than it has."""
        if apart:
            self.held.discard(token)
            self.apart.add(token)
        else:
            self.held.add(token)

    def leave(self, token: int) -> None:
        """Free the place of the delivery, if it has one."""
        self.held.discard(token)
        self.apart.discard(token)
