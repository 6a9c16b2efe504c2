# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests who may publish what is parked, when programs die, sleep and come back. Time is moved by hand."""

from __future__ import annotations

import logging

import pytest

from redeliver_mw.limbo import Limbo
from redeliver_mw.memory.clock import ManualClock
from tests.limbo.messages import count, crash, limbo, parkings, sql

LEASE = 15.0


def watch(store: Limbo, clock: ManualClock, seconds: float) -> None:
    """Let time pass for a program that gives its signs of life."""
    while seconds > 0:
        clock.advance(min(seconds, LEASE / 3))
        store.keep()
        seconds -= LEASE / 3


def test_two_programs_park_in_parts_of_their_own_and_publish_only_these(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as one, limbo(url, clock) as two:
        one.park(parkings([1], clock.now().wall))
        two.park(parkings([2], clock.now().wall))
        assert [row.out.copy_id for row in one.due()] == ["copy-1"]
        assert [row.out.copy_id for row in two.due()] == ["copy-2"]
        names = sql(url, "SELECT limbo_name FROM dms_limbo ORDER BY limbo_id")
        assert names == [("shop@east",), ("shop@east/2",)]


def test_a_dead_programs_messages_are_taken_over_after_its_lease_and_not_before(url: str) -> None:
    clock = ManualClock()
    dead = limbo(url, clock).open()
    dead.park(parkings([1, 2], clock.now().wall))
    crash(dead)
    with limbo(url, clock, host="west") as heir:
        watch(heir, clock, LEASE - 1)
        assert heir.due() == []
        watch(heir, clock, 1)
        rows = heir.due()
        assert [row.out.copy_id for row in rows] == ["copy-1", "copy-2"]
        assert len(heir.done(rows)) == 2
        assert count(url) == 0


def test_a_lease_of_a_program_that_lives_is_never_over(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as busy, limbo(url, clock, host="west") as other:
        busy.park(parkings([1], clock.now().wall))
        for _ in range(20):
            clock.advance(LEASE / 3)
            busy.keep()
            other.keep()
        assert other.due() == []
        assert len(busy.due()) == 1


def test_the_lease_that_counts_is_the_one_its_holder_chose(url: str) -> None:
    clock = ManualClock()
    slow = limbo(url, clock, lease=60.0).open()
    slow.park(parkings([1], clock.now().wall))
    crash(slow)
    with limbo(url, clock, host="west", lease=5.0) as heir:
        watch(heir, clock, 59)
        assert heir.due() == []
        watch(heir, clock, 1)
        assert len(heir.due()) == 1


def test_who_was_taken_over_can_neither_remove_nor_count_nor_publish(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as late, limbo(url, clock, host="west") as heir:
        late.park(parkings([1, 2], clock.now().wall))
        rows = late.due()
        assert late.still_mine(rows) == rows
        watch(heir, clock, LEASE)
        assert late.still_mine(rows) == []
        assert late.done(rows) == []
        assert late.failed(rows, "refused") == []
        assert sql(url, "SELECT DISTINCT delivery_count FROM dms_limbo_msg") == [(1,)]
        assert late.due() == []
        assert count(url) == 2
        assert len(heir.done(heir.due())) == 2


def test_a_program_whose_lease_was_taken_over_logs_once_and_parks_under_a_new_lease(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    with limbo(url, clock) as late, limbo(url, clock, host="west") as heir:
        late.park(parkings([1], clock.now().wall))
        watch(heir, clock, LEASE)
        with caplog.at_level(logging.WARNING, "redeliver_mw.limbo"):
            late.keep()
            late.keep()
        assert len([r for r in caplog.records if "silent for longer than its lease" in r.message]) == 1
        late.park(parkings([2], clock.now().wall))
        assert [row.out.copy_id for row in late.due()] == ["copy-2"]
        assert [row.out.copy_id for row in heir.due()] == ["copy-1"]


def test_parking_goes_on_in_a_new_part_though_the_loss_was_not_noticed_yet(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as late, limbo(url, clock, host="west") as heir:
        late.park(parkings([1], clock.now().wall))
        watch(heir, clock, LEASE)
        late.park(parkings([2, 3], clock.now().wall))
        assert {row.out.copy_id for row in heir.due()} == {"copy-1"}
        assert {row.out.copy_id for row in late.due()} == {"copy-2", "copy-3"}


def test_a_program_that_slept_looks_at_its_lease_before_it_hands_anything_out(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as sleeper:
        sleeper.park(parkings([1], clock.now().wall))
        ((beat,),) = sql(url, "SELECT beat FROM redeliver_limbo_owner")
        clock.advance(LEASE * 4)
        assert len(sleeper.due()) == 1
        assert sql(url, "SELECT beat FROM redeliver_limbo_owner") == [(beat + 1,)]


def test_what_was_closed_in_good_order_is_taken_at_once(url: str) -> None:
    clock = ManualClock()
    with limbo(url, clock) as first:
        first.park(parkings([1], clock.now().wall))
    with limbo(url, clock, host="west") as heir:
        assert len(heir.due()) == 1


def test_a_program_that_starts_again_has_its_old_part(url: str) -> None:
    clock = ManualClock()
    for n in range(3):
        with limbo(url, clock) as store:
            store.park(parkings([n], clock.now().wall))
    assert sql(url, "SELECT limbo_name FROM dms_limbo") == [("shop@east",)]


def test_crash_after_crash_does_not_make_part_after_part(url: str) -> None:
    clock = ManualClock()
    for n in range(4):
        crashing = limbo(url, clock).open()
        crashing.park(parkings([n], clock.now().wall))
        watch(crashing, clock, LEASE + 1)
        crashing.done(crashing.due())
        watch(crashing, clock, 2)
        crash(crashing)
    assert len(sql(url, "SELECT limbo_name FROM dms_limbo")) == 2


def test_a_part_that_was_taken_over_and_is_empty_is_given_back(url: str) -> None:
    clock = ManualClock()
    dead = limbo(url, clock).open()
    dead.park(parkings([1], clock.now().wall))
    crash(dead)
    with limbo(url, clock, host="west") as heir:
        watch(heir, clock, LEASE)
        heir.done(heir.due())
        heir.keep()
        assert sql(url, "SELECT holder FROM redeliver_limbo_owner WHERE limbo_id = 1") == [("",)]


@pytest.mark.parametrize("other", [{"app": "billing"}, {"broker": "mq2:5672"}])
def test_another_app_or_one_on_another_broker_takes_nothing_over(url: str, other: dict[str, str]) -> None:
    clock = ManualClock()
    with limbo(url, clock) as first:
        first.park(parkings([1], clock.now().wall))
    with limbo(url, clock, **other) as stranger:
        watch(stranger, clock, 3 * LEASE)
        assert stranger.due() == []
    with limbo(url, clock) as heir:
        assert len(heir.due()) == 1


def test_of_two_programs_that_take_over_a_lease_one_gets_it(url: str) -> None:
    clock = ManualClock()
    dead = limbo(url, clock).open()
    dead.park(parkings([1, 2, 3], clock.now().wall))
    crash(dead)
    with limbo(url, clock, host="west") as one, limbo(url, clock, host="south") as two:
        for _ in range(8):
            clock.advance(LEASE / 3)
            one.keep()
            two.keep()
        assert sorted([len(one.due()), len(two.due())]) == [0, 3]


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_stepped_wall_clock_takes_nothing_from_anybody(url: str, step: float) -> None:
    clock = ManualClock()
    with limbo(url, clock) as busy, limbo(url, clock, host="west") as other:
        busy.park(parkings([1], clock.now().wall - 7200))
        clock.wall_step(step)
        for _ in range(20):
            clock.advance(LEASE / 3)
            busy.keep()
            other.keep()
        assert other.due() == []
        assert len(busy.due()) == 1


def test_who_could_not_look_does_not_say_that_others_were_silent(url: str) -> None:
    """The database was away for everybody, and this program is the first that reaches it again."""
    clock = ManualClock()
    with limbo(url, clock) as busy, limbo(url, clock, host="west") as other:
        busy.park(parkings([1], clock.now().wall))
        clock.advance(LEASE * 4)
        other.keep()
        assert other.due() == []
        busy.keep()
        assert len(busy.due()) == 1
