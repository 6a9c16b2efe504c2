# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import UTC, datetime

import pytest

from redeliver_mw.memory.clock import ClockLoop, loop_for
from redeliver_mw.testing import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop(clock: ManualClock) -> ClockLoop:
    return loop_for(clock, "test")


def test_it_starts_at_new_year_2026_and_stands_still(clock: ManualClock) -> None:
    assert datetime.fromtimestamp(clock.now().wall, UTC) == datetime(2026, 1, 1, tzinfo=UTC)
    assert clock.now() == clock.now()


def test_advancing_moves_both_clocks_and_a_wall_step_only_the_one_on_the_wall(clock: ManualClock) -> None:
    before = clock.now()
    clock.advance(2.5)
    clock.wall_step(-3600.0)
    assert clock.now().mono - before.mono == 2.5
    assert clock.now().wall - before.wall == 2.5 - 3600.0


def test_time_does_not_go_backwards(clock: ManualClock) -> None:
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1.0)


def test_timers_run_in_the_order_of_time_each_at_its_own_instant(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[tuple[str, float]] = []
    for name, seconds in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("never", 10.0)):
        loop.call_later(seconds, lambda name=name: seen.append((name, clock.now().mono)))
    clock.advance(5.0)
    assert seen == [("a", 1.0), ("b", 2.0), ("c", 3.0)]
    assert clock.now().mono == 5.0


def test_who_waits_for_an_instant_is_never_woken_before_it(clock: ManualClock, loop: ClockLoop) -> None:
    woken: list[float] = []

    def wake() -> None:
        woken.append(clock.now().mono)
        if woken[-1] < due and len(woken) < 5:
            loop.call_later(due - woken[-1], wake)

    due = 34.5
    clock.advance(34.49999999999997)  # what sums of 0.1 come to
    loop.call_later(due - clock.now().mono, wake)
    clock.run_until_idle()
    assert woken == [due]


def test_timers_of_one_instant_run_in_the_order_of_setting(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[int] = []
    for number in range(5):
        loop.call_later(1.0, lambda number=number: seen.append(number))
    clock.advance(1.0)
    assert seen == [0, 1, 2, 3, 4]


def test_a_timer_set_by_a_timer_runs_within_the_same_advance(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[float] = []
    loop.call_later(1.0, lambda: (loop.call_later(1.5, lambda: seen.append(clock.now().mono)), None)[1])
    clock.advance(3.0)
    assert seen == [2.5]


def test_ten_steps_of_a_tenth_reach_a_timer_of_one_second(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[str] = []
    loop.call_later(1.0, lambda: seen.append("due"))
    for _ in range(10):
        clock.advance(0.1)
    assert seen == ["due"]


def test_a_cancelled_timer_never_runs_and_a_hundred_thousand_of_them_are_not_kept(
    clock: ManualClock, loop: ClockLoop
) -> None:
    seen: list[str] = []
    for _ in range(100_000):
        loop.call_later(30.0, lambda: seen.append("no"))()
    assert len(clock._agenda._timers) < 200
    clock.advance(60.0)
    assert seen == []


def test_nothing_runs_by_itself(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[str] = []
    loop.call_soon(lambda: seen.append("ran"))
    assert seen == []
    assert clock.step()
    assert seen == ["ran"]
    assert not clock.step()


def test_time_that_passes_within_a_callback_makes_other_timers_late(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[float] = []
    loop.call_later(1.0, lambda: clock.advance(5.0))  # a handler that takes five seconds
    loop.call_later(2.0, lambda: seen.append(clock.now().mono))
    clock.advance(3.0)
    clock.advance(0.0)
    assert seen == [6.0]


def test_a_loop_that_never_comes_to_rest_is_reported(clock: ManualClock, loop: ClockLoop) -> None:
    def again() -> None:
        loop.call_soon(again)

    again()
    with pytest.raises(RuntimeError, match="not idle after 50"):
        clock.run_until_idle(limit=50)


def test_an_exception_of_a_callback_comes_out_of_advance(clock: ManualClock, loop: ClockLoop) -> None:
    def fail() -> None:
        raise KeyError("seen")

    loop.call_later(1.0, fail)
    with pytest.raises(KeyError):
        clock.advance(2.0)
    clock.advance(2.0)


def test_a_finished_loop_runs_what_was_ready_and_nothing_afterwards(clock: ManualClock, loop: ClockLoop) -> None:
    seen: list[str] = []
    loop.call_soon(lambda: seen.append("ready"))
    loop.call_later(1.0, lambda: seen.append("later"))
    loop.finish(lambda: seen.append("last"), 1.0)
    loop.call_soon(lambda: seen.append("after"))
    clock.advance(2.0)
    assert seen == ["ready", "last"]
