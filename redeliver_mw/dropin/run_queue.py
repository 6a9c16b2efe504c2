# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the callback runs that wait for the user's loop, and starts one at each of its turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..message import Destination
from .settlement_scope import CallbackRun

Later = Callable[[float, Callable[[], None]], object]


class RunQueue:
    """Calls `call` with one run at each turn of the loop, so that the driver gets to its own work in between.

    Runs that are run again come before runs that are new; runs of a halted source wait. `later(seconds, fn)` calls `fn`
    on the driver's thread. Everything happens on that thread.
    """

    def __init__(self, call: Callable[[CallbackRun], None], later: Later) -> None:
        self.halted: set[Destination] = set()
        self._call, self._later = call, later
        self._again: deque[CallbackRun] = deque()
        self._new: deque[CallbackRun] = deque()  # they came while their source was halted
        self._going = False

    def run_again(self, run: CallbackRun) -> None:
        """Run a delivery once more, at one of the loop's next turns."""
        self._again.append(run)
        self.go_on()

    def keep(self, run: CallbackRun) -> None:
        """Keep a new run until its source is resumed."""
        self._new.append(run)

    def go_on(self) -> None:
        """Ask for the next turn of the loop, if anything waits for it."""
        if not self._going and (self._again or self._new):
            self._going = True
            self._later(0, self._work)

    def start_over(self) -> None:
        """Forget halts and the turn that was asked for: the connection was replaced."""
        self.halted.clear()
        self._going = False

    def drop(self, generation: int) -> list[CallbackRun]:
        """Return the runs of a generation that wait, and run none of them."""
        dropped = [run for run in (*self._again, *self._new) if run.delivery.generation == generation]
        self._again = deque(run for run in self._again if run.delivery.generation != generation)
        self._new = deque(run for run in self._new if run.delivery.generation != generation)
        return dropped

    def _work(self) -> None:
        self._going = False
        run = self._next()
        if run is not None:
            try:
                self._call(run)
            finally:
                self.go_on()

    def _next(self) -> CallbackRun | None:
        for queue in (self._again, self._new):
            for run in queue:
                if run.delivery.destination not in self.halted:
                    queue.remove(run)
                    return run
        return None
