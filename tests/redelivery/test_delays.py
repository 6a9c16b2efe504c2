# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.delays import (
    DelayChoice,
    DelayOptions,
    choose_delay,
    delay_options,
    hold_budget,
    hold_limit,
    places_apart,
)

SOURCE = Destination("orders")
LADDER = ScheduleRange((1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
BOTH = frozenset({"accepted", "released"})


def able(**more: Any) -> Capabilities:
    return Capabilities(dialect="rabbitmq+pika", broker_kind="rabbitmq", **more)


def ways(capabilities: Capabilities, **more: Any) -> DelayOptions:
    given = {"option": "auto", "prefetch": 100, "longest": 5.0, "ack_timeout": None} | more
    return delay_options(SOURCE, capabilities, **given)


@pytest.mark.parametrize(("prefetch", "budget"), [(100, 50), (3, 1), (2, 1), (1, 1)])
def test_what_is_held_fills_half_of_the_prefetch_window_at_most(prefetch: int, budget: int) -> None:
    assert hold_budget(prefetch) == budget


@pytest.mark.parametrize(
    ("prefetch", "apart", "beyond"), [(100, 8, 8), (32, 8, 8), (10, 2, 2), (4, 1, 1), (3, 1, 1), (2, 1, 0), (1, 0, 0)]
)
def test_what_cannot_be_copied_has_places_of_its_own_and_healthy_messages_keep_a_quarter_of_the_window(
    prefetch: int, apart: int, beyond: int
) -> None:
    w = ways(able(), prefetch=prefetch, longest=1.0)
    assert (w.apart, w.apart_beyond) == places_apart(prefetch) == (apart, beyond)
    assert prefetch == 1 or prefetch - w.budget - beyond >= prefetch / 4
    assert w.within(prefetch, 0, w.budget) == replace(w, spare=w.budget if prefetch > 1 else 0)


def test_in_a_window_that_nobody_tells_places_apart_are_taken_from_those_that_were_seen_to_be_there() -> None:
    w = ways(able(), longest=1.0)
    found = [w.within(None, seen, 50) for seen in (0, 1, 2, 10, 100)]
    assert [(one.apart, one.apart_beyond) for one in found] == [(0, 0), (0, 0), (1, 0), (5, 0), (8, 0)]


@pytest.mark.parametrize(("ack_timeout", "most"), [(None, None), (1800.0, 900.0)])
def test_what_cannot_be_copied_is_kept_for_half_of_the_ack_timeout(
    ack_timeout: float | None, most: float | None
) -> None:
    assert ways(able(), ack_timeout=ack_timeout).keep_at_most == most


@pytest.mark.parametrize("option", ["auto", "hold", "park"])
def test_a_limbo_keeps_dead_letters_that_cannot_be_copied_whatever_the_way_of_delays(option: str) -> None:
    assert ways(able(), option=option, limbo=True).letters
    assert option == "park" or not ways(able(), option=option).letters


@pytest.mark.parametrize(
    ("prefetch", "ack_timeout", "limit"),
    [(100, None, 10.0), (1, None, 1.0), (100, 1800.0, 10.0), (100, 20.0, 5.0), (1, 2.0, 0.5)],
)
def test_a_hold_lasts_ten_seconds_a_quarter_of_the_ack_timeout_or_one_second_alone(
    prefetch: int, ack_timeout: float | None, limit: float
) -> None:
    assert hold_limit(prefetch, ack_timeout) == limit


def test_a_delay_that_is_longer_than_a_hold_is_refused_at_start_where_nothing_can_schedule() -> None:
    with pytest.raises(PolicyError, match=r"waits up to 60 s.*held for 10 s"):
        ways(able(), longest=60.0)
    with pytest.raises(PolicyError, match="held for 1 s"):
        ways(able(), longest=2.0, prefetch=1)
    with pytest.raises(PolicyError):
        ways(able(schedule=LADDER), longest=60.0, option="hold")
    with pytest.raises(PolicyError):
        ways(able(schedule=LADDER), longest=60.0, helpers=False)
    assert ways(able(), longest=10.0).schedule is None
    assert ways(able(schedule=LADDER), longest=60.0).schedule == LADDER


def test_a_queue_that_the_broker_named_has_no_helper_queues_and_longer_delays_are_refused_with_the_cure() -> None:
    can, gone = able(schedule=LADDER, passing_prefix="amq.gen-"), Destination("amq.gen-x")
    given: dict[str, Any] = {"option": "auto", "prefetch": 100, "ack_timeout": None}
    assert delay_options(gone, can, longest=10.0, **given).schedule is None
    assert delay_options(SOURCE, can, longest=10.0, **given).schedule is not None
    with pytest.raises(PolicyError, match="held for 10 s") as refused:
        delay_options(gone, can, longest=20.0, **given)
    assert "limbo=" in refused.value.cure
    assert "name of its own" in refused.value.cure
    assert delay_options(gone, can, longest=20.0, limbo=True, **given).limbo


def test_only_the_rungs_that_the_policy_can_use_are_asked_for() -> None:
    assert ways(able(schedule=LADDER), longest=5.0).schedule == ScheduleRange((1.0, 2.0, 4.0))
    assert ways(able(schedule=LADDER), longest=0.5).schedule is None
    assert ways(able(schedule=ScheduleRange(smallest=1.0)), longest=5.0).schedule == ScheduleRange(smallest=1.0)


def test_nack_is_refused_where_the_count_would_not_survive_or_the_broker_counts_it() -> None:
    good = able(honours=BOTH, released_uncounted=True)
    assert ways(good, option="nack", exclusive=True).option == "nack"
    with pytest.raises(PolicyError, match="for itself"):
        ways(good, option="nack")
    for bad in (able(honours=BOTH), able(released_uncounted=True)):
        with pytest.raises(PolicyError, match="own limit"):
            ways(bad, option="nack", exclusive=True)


def test_what_cannot_be_had_or_is_no_option_is_refused_with_a_cure() -> None:
    with pytest.raises(PolicyError, match="cannot delay"):
        ways(able(), option="schedule")
    for option in ("park", "sleep"):
        with pytest.raises(ConfigError) as refused:
            ways(able(), option=option)
        assert refused.value.cure


def test_the_largest_rung_not_above_the_delay_is_taken_and_the_remainder_is_held() -> None:
    w = ways(able(schedule=LADDER), longest=60.0)
    assert choose_delay(60.0, w, room=True, nackable=True) == DelayChoice("schedule", 32.0)
    assert choose_delay(28.0, w, room=True, nackable=True) == DelayChoice("schedule", 16.0)
    assert choose_delay(12.0, w, room=True, nackable=True) == DelayChoice("schedule", 8.0)
    assert choose_delay(4.0, w, room=True, nackable=True) == DelayChoice("hold", 4.0)


def test_without_room_it_leaves_by_copy_and_where_that_is_impossible_the_source_pauses() -> None:
    w = ways(able(schedule=LADDER), longest=60.0)
    assert choose_delay(4.0, w, room=False, nackable=True) == DelayChoice("schedule", 4.0)
    assert choose_delay(0.5, w, room=False, nackable=True) == DelayChoice("hold", 0.5, pause=True)
    assert choose_delay(4.0, w, room=False, nackable=True, copyable=False) == DelayChoice("hold", 4.0, pause=True)
    assert choose_delay(4.0, ways(able()), room=False, nackable=True) == DelayChoice("hold", 4.0, pause=True)


def test_what_cannot_be_copied_is_held_again_and_again_each_time_no_longer_than_allowed() -> None:
    w = ways(able(schedule=LADDER), longest=60.0)
    assert choose_delay(60.0, w, room=True, nackable=True, copyable=False) == DelayChoice("hold", 10.0)


def test_nack_is_for_messages_known_by_an_id_that_survives_their_return() -> None:
    w = ways(able(honours=BOTH, released_uncounted=True), option="nack", exclusive=True)
    assert choose_delay(3.0, w, room=True, nackable=True) == DelayChoice("nack", 3.0)
    assert choose_delay(3.0, w, room=True, nackable=False) == DelayChoice("hold", 3.0)


def test_delay_schedule_lets_the_broker_wait_even_for_what_could_be_held() -> None:
    w = ways(able(schedule=LADDER), option="schedule")
    assert choose_delay(4.5, w, room=True, nackable=True) == DelayChoice("schedule", 4.0)
    assert choose_delay(0.5, w, room=True, nackable=True) == DelayChoice("hold", 0.5)


AWAY = ScheduleRange(smallest=0.001)


def test_where_the_broker_keeps_what_is_given_back_no_delay_is_too_long() -> None:
    w = ways(able(delayed_release=AWAY), longest=3600.0)
    assert (w.schedule, w.postpone) == (None, AWAY)
    assert choose_delay(3600.0, w, room=True, nackable=False, postponable=True) == DelayChoice(
        "nack", 3600.0, there=True
    )
    assert choose_delay(4.0, w, room=True, nackable=True, postponable=True) == DelayChoice("hold", 4.0)
    assert choose_delay(4.0, w, room=False, nackable=True, postponable=True) == DelayChoice("nack", 4.0, there=True)


def test_what_cannot_be_given_back_with_a_delay_is_held_again_and_again() -> None:
    w = ways(able(delayed_release=AWAY), longest=3600.0)
    assert choose_delay(3600.0, w, room=True, nackable=True) == DelayChoice("hold", 10.0)
    assert choose_delay(3600.0, w, room=False, nackable=True) == DelayChoice("hold", 10.0, pause=True)


def test_delay_nack_lets_the_broker_wait_where_it_can_whoever_else_consumes_and_delay_hold_never() -> None:
    w = ways(able(delayed_release=AWAY), option="nack", longest=3600.0)
    assert choose_delay(0.5, w, room=True, nackable=False, postponable=True) == DelayChoice("nack", 0.5, there=True)
    assert choose_delay(0.5, w, room=True, nackable=True) == DelayChoice(
        "hold", 0.5
    )  # without our count on it, not given back
    with pytest.raises(PolicyError):
        ways(able(delayed_release=AWAY), option="hold", longest=3600.0)
    with pytest.raises(PolicyError, match="cannot delay a copy"):
        ways(able(delayed_release=AWAY), option="schedule")


def test_a_delay_that_a_source_cannot_do_is_refused_with_the_cure_of_its_dialect() -> None:
    with pytest.raises(PolicyError) as refused:
        ways(able(delay_cure="make orders a quorum queue"), longest=60.0)
    assert "queue:orders" in (refused.value.where or "")
    assert "make orders a quorum queue" in (refused.value.cure or "")
