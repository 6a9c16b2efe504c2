# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps copies between `publish` and their answer, so that each is answered once, and none is sent twice in doubt.

::

    add(copy)                       waits for the link            -> unsent, if the link does not come in time
    written(number, copy)           waits for the broker's answer -> silent, if the link is lost before
    unanswered.pop(number)          the broker has answered: the caller tells it

A copy whose confirm does not come might still be stored. So silence closes the link first, and is reported later, when
nothing can confirm the copy any more: only then may the same message be sent again (failed-target).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ..protocol import OnAnswer

CHECK_EVERY = 1.0  # seconds between two looks at what waits


class QueuedCopy(Protocol):
    """Describes one copy on its way. `since` and `waited` are written by the queue."""

    since: float  # when it was added, or written; monotonic seconds
    waited: float  # seconds since then, those left out in which the broker had paused us

    @property
    def generation(self) -> int | None: ...  # of its original
    @property
    def answer(self) -> OnAnswer: ...


AnyCopy = TypeVar("AnyCopy", bound=QueuedCopy)


class PublishQueue(Generic[AnyCopy]):
    """Keeps the copies of one publishing link, in order.

    A copy may wait `patience()` seconds for the link, and as long again for its answer; while `paused()` is true no
    time passes. `silent` has to close the link, whose loss then calls `answer_unanswered`. All methods and callbacks
    run on the adapter's I/O thread.
    """

    def __init__(
        self,
        *,
        call_later: Callable[[float, Callable[[], None]], object],
        patience: Callable[[], float],
        silent: Callable[[], None],
        paused: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unwritten: deque[AnyCopy] = deque()
        self.unanswered: dict[int, AnyCopy] = {}
        self._call_later, self._monotonic = call_later, monotonic
        self._patience, self._silent, self._paused = patience, silent, paused
        self._checking = False
        self._last_check = 0.0

    @property
    def idle(self) -> bool:
        """Return whether every copy has been answered."""
        return not self.unanswered and not self.unwritten

    def add(self, copy: AnyCopy) -> None:
        """Keep a copy that cannot be written yet."""
        copy.since, copy.waited = self._monotonic(), 0.0
        self.unwritten.append(copy)
        self._watch()

    def written(self, number: int, copy: AnyCopy) -> None:
        """Keep a copy that is being written, under the number by which the broker's answer names it."""
        copy.since, copy.waited = self._monotonic(), 0.0
        self.unanswered[number] = copy
        self._watch()

    def forget(self, generation: int) -> None:
        """Answer *unsent* what is not written yet for deliveries of a lost generation: it must not be written."""
        gone = [copy for copy in self.unwritten if copy.generation == generation]
        self.unwritten = deque(copy for copy in self.unwritten if copy.generation != generation)
        for copy in gone:
            copy.answer("unsent", "the original was lost meanwhile")

    def answer_unanswered(self, why: str) -> None:
        """Answer *silent* all that was written: the link is lost, and nothing can confirm it any more."""
        gone, self.unanswered = self.unanswered, {}
        for copy in gone.values():
            copy.answer("silent", why)

    def close(self, why: str) -> None:
        """Answer every copy: those that were written *silent*, the others *unsent*."""
        self.answer_unanswered(why)
        waiting, self.unwritten = self.unwritten, deque()
        for copy in waiting:
            copy.answer("unsent", why)

    def _watch(self) -> None:
        if not self._checking:
            self._checking, self._last_check = True, self._monotonic()
            self._call_later(min(CHECK_EVERY, self._patience() / 2), self._check)

    def _check(self) -> None:
        now = self._monotonic()
        passed, self._last_check = now - self._last_check, now
        self._checking = False
        if self.idle:
            return
        self._watch()
        if self._paused():
            return
        patience = self._patience()
        for copy in [*self.unanswered.values(), *self.unwritten]:
            copy.waited += min(passed, now - copy.since)  # it may have come right before this look
        late = [copy for copy in self.unwritten if copy.waited > patience]
        self.unwritten = deque(copy for copy in self.unwritten if copy.waited <= patience)
        if any(copy.waited > patience for copy in self.unanswered.values()):
            self._silent()  # closed first: `answer_unanswered` tells afterwards
        for copy in late:
            copy.answer("unsent", f"no publishing link within {patience:g} s")
