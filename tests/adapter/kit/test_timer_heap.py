# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests timers of a loop: which one is next, and which are called no more."""

from __future__ import annotations

from functools import partial

from redeliver_mw.adapter.kit.timer_heap import LoopTimer, TimerHeap


def run_until(heap: TimerHeap, now: float) -> None:
    while (timer := heap.take(now)) is not None:
        timer.run()


def test_timers_run_at_their_time_the_earliest_first_and_equal_ones_as_they_were_added() -> None:
    heap, ran = TimerHeap(), list[str]()
    for due, name in ((2.0, "c"), (1.0, "a"), (1.0, "b"), (3.0, "d")):
        heap.add(due, LoopTimer(partial(ran.append, name)))
    assert heap.next_due() == 1.0
    run_until(heap, 2.0)
    assert ran == ["a", "b", "c"]
    assert heap.next_due() == 3.0


def test_a_cancelled_timer_is_not_called_and_wakes_nobody() -> None:
    heap, ran = TimerHeap(), list[str]()
    first, second = LoopTimer(lambda: ran.append("first")), LoopTimer(lambda: ran.append("second"))
    heap.add(1.0, first)
    heap.add(2.0, second)
    first.cancel()
    assert heap.next_due() == 2.0
    second.cancel()
    assert heap.next_due() is None
    run_until(heap, 5.0)
    assert ran == []


def test_a_cancelled_timer_is_not_taken_out() -> None:
    heap, ran = TimerHeap(), list[str]()
    first, second = LoopTimer(lambda: ran.append("first")), LoopTimer(lambda: ran.append("second"))
    heap.add(1.0, first)
    heap.add(1.0, second)
    first.cancel()
    assert heap.take(5.0) is second
    assert heap.take(5.0) is None


def test_a_timer_that_is_cancelled_by_one_that_is_due_at_the_same_time_is_not_called() -> None:
    heap, ran = TimerHeap(), list[str]()
    second = LoopTimer(lambda: ran.append("second"))
    heap.add(1.0, LoopTimer(second.cancel))
    heap.add(1.0, second)
    run_until(heap, 1.0)
    assert ran == []


def test_a_timer_runs_once() -> None:
    ran = list[int]()
    timer = LoopTimer(lambda: ran.append(1))
    timer.run()
    timer.run()
    assert (ran, timer.waits) == ([1], False)


def test_what_a_timer_adds_for_now_runs_in_the_same_turn() -> None:
    heap, ran = TimerHeap(), list[str]()

    def first() -> None:
        ran.append("first")
        heap.add(1.0, LoopTimer(lambda: ran.append("second")))

    heap.add(1.0, LoopTimer(first))
    run_until(heap, 1.0)
    assert ran == ["first", "second"]
