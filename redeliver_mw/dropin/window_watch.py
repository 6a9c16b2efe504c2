# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Warns of a prefetch window that is full, and of which the code has settled nothing for a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from .settlement_scope import CallbackRun, SettlementScope

log = logging.getLogger("redeliver_mw.dropin")

PATIENCE = 60.0  # seconds without any settlement


class WindowWatch:
    """Runs one timer for all consumers of a wrapper on a connection.

    The timer runs only while messages wait for the code's settlement.

    - `scopes`: the live generations, each with its scope.
    - `later`: calls a function on the driver's thread after so many seconds, or never once the connection is closed.
    """

    def __init__(
        self, scopes: Mapping[int, SettlementScope], later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._scopes, self._later = scopes, later
        self._running = False
        self._settled: dict[SettlementScope, int] = {}  # by each scope when the timer was started
        self._warned: set[int] = set()  # generations

    def begin(self) -> None:
        """Start the timer: a callback has returned, and its message waits for the code's own settlement."""
        if not self._running:
            self._running = True
            self._settled = {scope: scope.settled for scope in self._scopes.values()}
            self._later(PATIENCE, self._look)

    def stop(self) -> None:
        """Stop the timer, because the connection is closed."""
        self._running = False

    def _look(self) -> None:
        self._running = False
        waiting = {generation: _waiting(scope, generation) for generation, scope in self._scopes.items()}
        for generation, runs in waiting.items():
            scope = self._scopes[generation]
            if runs and generation not in self._warned and self._settled.get(scope) == scope.settled:
                self._warn(scope, generation, runs)
        if any(runs and generation not in self._warned for generation, runs in waiting.items()):
            self.begin()

    def _warn(self, scope: SettlementScope, generation: int, runs: list[CallbackRun]) -> None:
        unsettled, window = len(scope.unsettled(generation)), scope.window_of(generation)
        if unsettled < (scope.most_unsettled(generation) if window is None else window):
            return
        self._warned.add(generation)
        full = (
            f"its prefetch window of {window} is full" if window is not None else "no more were ever unsettled at once"
        )
        log.warning(
            "%s: for a minute the code has settled none of the %d messages that it was given, and %s. Settle each "
            'message, or wrap with settle="return" if returning from the callback is success',
            runs[0].delivery.destination,
            len(runs),
            full,
        )


def _waiting(scope: SettlementScope, generation: int) -> list[CallbackRun]:
    """Return the runs whose callback is over, and which only the code's own settlement ends."""
    return [t for t in scope.unsettled(generation) if t.in_hand and not t.inside and not t.promised]
