# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests many waits on one timer of the adapter."""

from __future__ import annotations

from collections.abc import Callable

from redeliver_mw.clock import Moment
from redeliver_mw.memory import ManualClock
from redeliver_mw.runtime.command_executor import Timers


class Bench:
    """Runs timers on a clock that is moved by hand; `then` is called with each token that fires."""

    def __init__(self, then: Callable[[int], object] = lambda token: None) -> None:
        self.clock, self.fired, self._then = ManualClock(), list[int](), then
        self.asked: list[float] = []
        self.timers = Timers(self._call_later, self.clock, self._fire)

    def _call_later(self, seconds: float) -> Callable[[], None]:
        self.asked.append(seconds)
        return lambda: None

    def _fire(self, token: int, at: Moment) -> None:
        self.fired.append(token)
        self._then(token)


def test_those_that_are_due_fire_in_their_order_and_the_next_one_is_asked_for() -> None:
    bench = Bench()
    for token, seconds in ((1, 5.0), (2, 1.0), (3, 3.0), (4, 1.0)):
        bench.timers.wait(token, seconds)
    bench.timers.forget(4)
    bench.clock.advance(3.0)
    bench.timers.run_out()
    assert bench.fired == [2, 3]
    assert bench.asked == [5.0, 1.0, 2.0]


def test_a_wait_that_is_set_while_others_fire_is_for_the_next_time_however_short_it_is() -> None:
    bench = Bench(lambda token: bench.timers.wait(token, 0.0))
    bench.timers.wait(1, 1.0)
    bench.clock.advance(1.0)
    for times in (1, 2, 3):
        bench.timers.run_out()
        assert bench.fired == [1] * times


def test_one_that_an_earlier_one_has_forgotten_or_set_anew_does_not_fire() -> None:
    def change(token: int) -> None:
        if token == 1:
            bench.timers.forget(2)
            bench.timers.wait(3, 7.0)

    bench = Bench(change)
    for token in (1, 2, 3):
        bench.timers.wait(token, 1.0)
    bench.clock.advance(1.0)
    bench.timers.run_out()
    assert bench.fired == [1]
    assert bench.asked[-1] == 7.0
