# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what begins an outage, what joins it and what ends it, for one process and for several with one state."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection
from typing import Any

import pytest

from redeliver_mw.notifications.grouping import (
    CLAIM_US,
    MOST_ERRORS,
    MOST_OUTAGES,
    MOST_QUEUED,
    MOST_SOURCES,
    STALE_US,
    BlockNews,
    FailureNews,
    GroupingRules,
    NotificationOrigin,
    OutageGroups,
    TroubleNews,
)
from redeliver_mw.notifications.notification import LINE_BYTES, Notification, TroubleKind, one_line

S = 1_000_000
BEGIN = 1_767_225_600 * S  # 2026-01-01
RULES = GroupingRules(quiet_us=300 * S, gather_us=2 * S)


class Process:
    """Is one of several processes that share a text, which stands for their store."""

    def __init__(self, shared: list[str], name: str = "a1") -> None:
        self._shared, self._ids = shared, (f"{name}-{n}" for n in itertools.count(1))
        self._origin = NotificationOrigin(name, "shop", "broker", "host", 1, "store")
        self.groups = OutageGroups.from_json("", RULES, self._origin, self._ids.__next__)
        self.blocked: set[tuple[str, str]] = set()

    def at(self, second: float, *news: FailureNews | BlockNews, **more: Any) -> list[Notification]:
        """Let the process look at a time, with what is new to it."""
        self.groups = OutageGroups.from_json(self._shared[0], RULES, self._origin, self._ids.__next__)
        failures = [one for one in news if isinstance(one, FailureNews)]
        blocks = [one for one in news if isinstance(one, BlockNews)]
        self.blocked |= {(one.kind, one.source) for one in blocks}
        taken = TroubleNews(failures, blocks, self.blocked, **more)
        made = self.groups.take(taken, BEGIN + round(second * S))
        self._shared[0] = self.groups.to_json()
        return made

    def next(self, second: float) -> float | None:
        due = self.groups.next_us(BEGIN + round(second * S))
        return None if due is None else (due - BEGIN) / S


@pytest.fixture
def shared() -> list[str]:
    return [""]


@pytest.fixture
def one(shared: list[str]) -> Process:
    return Process(shared)


def dead(at: float, source: str = "queue:orders", number: int = 1, fingerprint: str = "f1") -> FailureNews:
    us = BEGIN + round(at * S)
    return FailureNews(source, fingerprint, "ValueError", "no stock", number, number, us, us)


def failed(at: float, fingerprint: str = "f1", *, new: bool = False, source: str = "queue:orders") -> FailureNews:
    us = BEGIN + round(at * S)
    return FailureNews(source, fingerprint, "ValueError", "no stock", 1, 0, us, us, new)


def blocked(at: float, kind: TroubleKind = "breaker-open", source: str = "queue:orders") -> BlockNews:
    return BlockNews(kind, source, "the dependency is away", BEGIN + round(at * S))


def types(made: Collection[Notification]) -> list[str]:
    return [notification.type for notification in made]


# -- one process ------------------------------------------------------------------------------------


def test_an_outage_is_one_notification_and_its_end_another(one: Process) -> None:
    assert one.at(0, dead(0, number=3)) == []
    assert one.next(0) == 2.0
    (begun,) = one.at(2, dead(1, "queue:bills", fingerprint="f2"), done=())
    assert begun.type == "dead-letter"
    assert begun.text == "shop: queue:orders, queue:bills: 4 dead letters; ValueError: no stock (fingerprint f1)"
    assert [(source["source"], source["dead_letters"]) for source in begun.data["sources"]] == [
        ("queue:orders", 3),
        ("queue:bills", 1),
    ]
    for second in range(10, 1000, 50):  # a dead letter each 50 s keeps it open
        assert one.at(second, dead(second), done=[begun.id]) == []
    assert one.next(960) == 960 + 300
    assert one.at(1259.9) == []
    (over,) = one.at(1260)
    assert (over.type, over.data["outage_id"]) == ("recovered", begun.data["outage_id"])
    assert (
        over.text == "shop: queue:orders, queue:bills: recovered: 24 failed attempts and 24 dead letters within 16 min"
    )
    assert (over.data["began"], over.data["last"], over.data["ended"]) == (
        "2026-01-01T00:00:00.000Z",
        "2026-01-01T00:16:00.000Z",
        "2026-01-01T00:21:00.000Z",
    )
    one.at(1261, done=[over.id])
    assert one.next(1261) is None
    assert json.loads(one._shared[0]) == {"outages": [], "queued": [], "blocks": {}}


@pytest.mark.parametrize(
    ("trouble", "type_", "text"),
    [
        (dead(0), "dead-letter", "1 dead letter; ValueError: no stock (fingerprint f1)"),
        (failed(0, new=True), "new-failure", "1 new failure; ValueError: no stock (fingerprint f1)"),
        (blocked(0), "breaker-open", "the breaker is open; the dependency is away"),
        (blocked(0, "source-paused"), "source-paused", "the source is paused; the dependency is away"),
        (dead(0, fingerprint=""), "dead-letter", "1 dead letter"),  # it has expired
    ],
)
def test_each_kind_of_trouble_begins_an_outage(
    one: Process, trouble: FailureNews | BlockNews, type_: str, text: str
) -> None:
    one.at(0, trouble)
    (begun,) = one.at(2)
    assert (begun.type, begun.text) == (type_, f"shop: queue:orders: {text}")
    assert begun.data["kinds"] == [type_]


def test_a_known_failure_that_is_retried_is_no_trouble(one: Process) -> None:
    assert one.at(0, failed(0)) == []
    assert one.next(0) is None


def test_an_outage_is_named_after_what_came_first(one: Process) -> None:
    one.at(1, dead(0.9), blocked(0.5), failed(0.2, "f2", new=True))
    (begun,) = one.at(3)
    assert begun.type == "new-failure"
    assert begun.data["kinds"] == ["dead-letter", "new-failure", "breaker-open"]
    assert begun.text.startswith("shop: queue:orders: 1 dead letter, 1 new failure, the breaker is open; ")


def test_an_outage_lasts_as_long_as_a_breaker_is_open(one: Process) -> None:
    one.at(0, blocked(0))
    (begun,) = one.at(2)
    for second in range(30, 7200, 30):
        assert one.at(second, done=[begun.id]) == []
    one.blocked.clear()
    assert one.at(7200) == []
    assert one.next(7200) == 7500
    assert types(one.at(7500)) == ["recovered"]


def test_new_trouble_is_notified_although_another_outage_goes_on(one: Process) -> None:
    one.at(0, failed(0, "f1", new=True))
    (first,) = one.at(2)
    for second in range(100, 3600, 100):
        assert one.at(second, failed(second, "f1")) == []  # it goes on, and is retried with success
    one.at(3600, dead(3600, fingerprint="f9"))
    assert types(one.at(3602, failed(3601, "f1"))) == ["dead-letter"]
    assert one.at(3800, failed(3800, "f1"), dead(3800)) == []
    assert one.at(4000, failed(4000, "f7", new=True), dead(4000)) == []
    (third,) = one.at(4002)
    assert (third.type, third.data["dead_letters"]) == ("new-failure", 0)
    assert len(one.groups.outages) == 3
    assert {outage.outage_id for outage in one.groups.outages} > {first.data["outage_id"]}


def test_other_failures_of_the_source_are_counted_and_do_not_keep_an_outage_open(one: Process) -> None:
    one.at(0, dead(0))
    one.at(2)
    for second in range(10, 300, 10):
        one.at(second, failed(second, "noise"))
    (over,) = one.at(300)
    assert (over.type, over.data["failures"]) == ("recovered", 30)


def test_counts_are_bounded(one: Process) -> None:
    one.at(1, *(dead(0, f"queue:q{n}", fingerprint=f"f{n}") for n in range(3000)))
    (begun,) = one.at(2)
    assert begun.data["dead_letters"] == 3000
    assert (len(begun.data["sources"]), len(begun.data["errors"])) == (20, 10)
    assert begun.data["more_sources"] == 3000 - 20 + 1  # and `other`, in which the most are counted
    assert begun.data["more_errors"] == 3000 - 10
    (outage,) = one.groups.outages
    assert len(outage.sources) == MOST_SOURCES + 1
    assert len(outage.errors) == MOST_ERRORS
    assert len(begun.body()) < 20_000


def test_the_number_of_outages_is_bounded(one: Process) -> None:
    for n in range(50):
        one.at(n * 301, blocked(n * 301, source=f"queue:q{n}"))
        one.at(n * 301 + 2)
    assert len(one.groups.outages) == MOST_OUTAGES
    assert len(one.groups.queued) <= MOST_QUEUED


def test_a_clock_that_was_set_back_does_not_keep_an_outage_open(one: Process) -> None:
    one.at(10_000, dead(10_000))
    assert types(one.at(1)) == []
    assert types(one.at(4)) == ["dead-letter"]
    assert types(one.at(302)) == ["recovered"]


def test_a_line_for_people_has_no_secret_no_control_character_and_an_end() -> None:
    assert one_line("password=geheim\nsecond") == "password=***"
    assert one_line("\x1b[31mred") == " [31mred"
    assert len(one_line("ü" * 10_000).encode()) <= LINE_BYTES


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "17", '{"outages":[{"new":1}],"queued":[],"blocks":{}}', '{"outages":[]}']
)
def test_a_state_that_cannot_be_read_is_begun_anew(text: str) -> None:
    one = Process([text])
    one.at(0, dead(0))
    assert types(one.at(2)) == ["dead-letter"]


# -- several processes -------------------------------------------------------------------------------


def test_of_processes_that_share_a_store_one_notifies(shared: list[str]) -> None:
    processes = [Process(shared, name) for name in ("a1", "b2", "c3")]
    made = [note for process in processes for note in process.at(0.5, dead(0, number=10))]
    made += [note for process in processes for note in process.at(2)]
    (begun,) = made
    assert begun.data["dead_letters"] == 30
    made = [note for second in (100, 310, 311) for process in processes for note in process.at(second)]
    assert types(made) == ["recovered"]


def test_a_breaker_that_is_open_in_one_process_keeps_the_outage_of_all_open(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    first.at(0, blocked(0))
    second.at(1, blocked(1))
    (begun,) = first.at(2)
    first.blocked.clear()
    for at in range(10, 1000, 10):
        assert [*first.at(at, done=[begun.id]), *second.at(at)] == []
    second.blocked.clear()
    second.at(1000)
    assert types([*first.at(1300), *second.at(1300)]) == ["recovered"]


def test_a_process_that_was_killed_holds_its_breaker_open_for_a_minute(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    first.at(0, blocked(0))
    assert second.next(0) is None
    (begun,) = second.at(3)
    assert second.at(4, done=[begun.id]) == []
    assert second.next(4) == 60.0
    assert second.at(60) == []
    assert types(second.at(360)) == ["recovered"]


def test_a_notification_whose_process_was_killed_is_sent_by_another(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    first.at(0, dead(0))
    (lost,) = first.at(2)
    assert second.at(61) == []
    assert second.at(2 + CLAIM_US / S) == [lost]
    assert second.at(63) == []
    assert first.at(64) == []
    second.at(65, done=[lost.id])
    assert second.groups.queued == []


def test_a_process_that_ends_leaves_to_others_what_it_could_not_send(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    (begun,) = first.at(0, dead(0), blocked(0), leaving=True)
    assert first.groups.needs_goodbye
    first.at(1, leaving=True)
    assert second.at(1.5) == [begun]
    second.at(2, done=[begun.id])
    assert types(second.at(300)) == ["recovered"]


def test_a_notification_that_nobody_sends_is_dropped_after_an_hour(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    first.at(0, dead(0))
    first.at(2)
    (later,) = second.at(2 + STALE_US / S)
    assert later.type == "recovered"


def test_what_a_process_has_notified_without_the_store_is_taken_over(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    first.at(0, dead(0))
    (begun,) = first.at(2)
    alone = OutageGroups.from_json(shared[0], RULES, first._origin, iter(["x1", "x2"]).__next__)
    known = {outage.outage_id for outage in alone.outages}
    alone.take(TroubleNews([dead(400, number=5)]), BEGIN + 400 * S)
    (mine,) = alone.take(TroubleNews([dead(600, "queue:bills")]), BEGIN + 602 * S)
    assert mine.data["dead_letters"] == 1
    (over,) = second.at(300, done=[begun.id])  # of the outage that the first process still knows
    assert (over.type, second.at(301, done=[over.id])) == ("recovered", [])
    groups = OutageGroups.from_json(shared[0], RULES, first._origin, iter(["y"]).__next__)
    groups.adopt(alone, known)
    assert [outage.outage_id for outage in groups.outages] == [mine.data["outage_id"]]
    assert begun.data["outage_id"] in known
    assert groups.take(TroubleNews([dead(650, "queue:bills")]), BEGIN + 650 * S) == []


def test_an_outage_that_two_have_notified_is_one_again(shared: list[str]) -> None:
    first, second = Process(shared, "a1"), Process(shared, "b2")
    alone = OutageGroups.from_json("", RULES, first._origin, iter(["x1", "x2"]).__next__)
    alone.take(TroubleNews([dead(0, number=5)]), BEGIN)
    assert types(alone.take(TroubleNews(), BEGIN + 2 * S)) == ["dead-letter"]
    second.at(1, dead(0, number=2))
    assert types(second.at(2)) == ["dead-letter"]
    groups = OutageGroups.from_json(shared[0], RULES, first._origin, iter(["y"]).__next__)
    groups.adopt(alone, ())
    (outage,) = groups.outages
    assert outage.sources["queue:orders"].dead_letters == 7
