# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests journal_healthy="counts": an attempt that went well at once is counted, all others are told as ever."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.dropin import DropinOptions
from redeliver_mw.errors import ConfigError
from redeliver_mw.journal import Journal, read_healthy_counts, read_segments
from redeliver_mw.journal.consumer_info import ConsumerInfo
from redeliver_mw.journal.healthy_counts import HealthyCounter
from redeliver_mw.journal.recorder import Recorder
from redeliver_mw.journal.records import AttemptRecord, Healthy, OtherKind, count_from_line, from_line, to_line
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.copies import Provenance
from redeliver_mw.redelivery.delays import DelayOptions
from redeliver_mw.redelivery.plan import SourcePlan
from redeliver_mw.testing import TestApp, make_delivery
from tests.dropin.memory_driver import Consumer

ORDERS = Destination("orders")
POLICY = RedeliveryPolicy(3, 1.0, "queue:dead")
SCENE = ConsumerInfo("shop", "host", "broker", "memory")
PLAN = SourcePlan(
    ORDERS, POLICY, DelayOptions("auto", 1, 1.0, None, 1.0), Provenance(ORDERS, "shop", "host", "3:1", "v1")
)


def consume(
    folder: Path, healthy: Healthy, policy: RedeliveryPolicy = POLICY, messages: int = 20
) -> list[AttemptRecord]:
    """Handle messages of which each fifth fails once, and return the records that a hook was told."""
    told: list[AttemptRecord] = []
    app = App("memory://", policy=policy, journal=folder, journal_healthy=healthy)
    app.on_attempt(told.append)

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if delivery.body.endswith(b"failing") and not delivery.failures:
            raise ValueError("not now")

    with TestApp(app) as test:
        for n in range(messages):
            test.send("orders", b"failing" if n % 5 == 0 else b"well" * (n + 1), message_id=f"m-{n}")
        test.advance(60.0)
    return told


def test_messages_that_succeed_at_once_are_counted_and_all_others_recorded(tmp_path: Path) -> None:
    told = consume(tmp_path, "counts")
    counts, attempts = list(read_healthy_counts(tmp_path)), list(read_segments(tmp_path))
    assert sum(count.messages for count in counts) == 16
    assert sum(count.payload_bytes for count in counts) == sum(4 * (n + 1) for n in range(20) if n % 5)
    assert Counter(attempt.outcome for attempt in attempts) == {"redelivered": 4, "accepted": 4}
    assert {attempt.attempts_total for attempt in attempts} == {1, 2}
    assert {(c.destination, c.destination_kind, c.policy_version) for c in counts} == {
        (a.destination, a.destination_kind, a.policy_version) for a in attempts
    }
    assert all(count.since_us <= count.ts_us and count.record_id for count in counts)
    assert len(told) == 24  # a hook hears of every attempt


def test_the_arms_of_counted_messages_are_those_that_they_have_when_recorded(tmp_path: Path) -> None:
    policy = POLICY.replace(arms={"brave": (0.3, {"dead_after": 9}), "patient": (0.3, {"dead_after": 7})})
    consume(tmp_path / "all", "all", policy, messages=200)
    consume(tmp_path / "counts", "counts", policy, messages=200)
    counted, told = Counter[Any](), Counter[Any]()
    for count in read_healthy_counts(tmp_path / "counts"):
        counted[count.policy_arm, count.propensity, count.policy_version, count.policy] += count.messages
    for attempt in read_segments(tmp_path / "all"):
        if attempt.outcome == "accepted" and attempt.attempts_total == 1:
            told[attempt.policy_arm, attempt.propensity, attempt.policy_version, attempt.policy] += 1
    assert counted == told
    assert {arm for arm, *_ in counted} == {"main", "brave", "patient"}


def test_all_messages_are_recorded_by_default(tmp_path: Path) -> None:
    consume(tmp_path, "all")
    assert len(list(read_segments(tmp_path))) == 24
    assert list(read_healthy_counts(tmp_path)) == []


def test_a_line_that_counts_reads_back_and_is_no_attempt() -> None:
    tally = HealthyCounter()
    assert tally.add(make_delivery(b"abc"), SCENE, PLAN, 1_000, 30)
    assert not tally.add(make_delivery(b"d"), SCENE, PLAN, 2_000, 40)
    (count,) = tally.take()
    assert (count.messages, count.handler_us, count.payload_bytes) == (2, 70, 4)
    assert (count.since_us, count.ts_us) == (1_000, 2_000)
    count.record_id = "r1"
    assert count_from_line(to_line(count)) == count
    with pytest.raises(OtherKind):
        from_line(to_line(count))
    assert tally.take() == []


def test_a_journal_that_had_no_room_is_asked_again() -> None:
    tally = HealthyCounter()
    assert tally.add(make_delivery(b""), SCENE, PLAN, 1_000_000, 1)
    assert not tally.add(make_delivery(b""), SCENE, PLAN, 2_000_000, 1)
    assert tally.add(make_delivery(b""), SCENE, PLAN, 2_000_001, 1)
    assert [count.messages for count in tally.take()] == [3]


def test_threads_that_count_at_once_lose_nothing(tmp_path: Path) -> None:
    with_counts = Recorder(Journal(tmp_path, flush_interval=0.001), [], healthy="counts")

    def work() -> None:
        for n in range(2_000):
            with_counts.healthy(make_delivery(b"x"), SCENE, PLAN, n, 2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with_counts.close()
    counts = list(read_healthy_counts(tmp_path))
    assert sum(count.messages for count in counts) == 8_000
    assert sum(count.handler_us for count in counts) == 16_000


@pytest.mark.parametrize("hooks", [[], [lambda record: None]], ids=["journal", "journal and hook"])
def test_a_success_that_its_broker_delivered_before_has_its_own_line(hooks: Any, tmp_path: Path) -> None:
    recorder = Recorder(Journal(tmp_path), hooks, inline=bool(hooks), healthy="counts")
    for redelivered in (True, False):  # it may have failed in a process that has died: the success ends its history
        made = make_delivery(b"x")
        recorder.healthy(Delivery(ORDERS, 0, None, redelivered, made.native, made.reader), SCENE, PLAN, 1_000, 2)
    recorder.close()
    assert [record.broker_redelivered for record in read_segments(tmp_path)] == [True]
    assert [count.messages for count in read_healthy_counts(tmp_path)] == [1]


def test_a_drop_in_counts_as_well(tmp_path: Path) -> None:
    consumer = Consumer(lambda message: None, policy=POLICY, journal=tmp_path, journal_healthy="counts")
    consumer.put(*map(str, range(10)))
    consumer.runner.terms.recorder.close()
    assert sum(count.messages for count in read_healthy_counts(tmp_path)) == 10
    assert list(read_segments(tmp_path)) == []


@pytest.mark.parametrize("make", [App, DropinOptions], ids=["App", "drop-in"])
def test_a_word_that_is_unknown_and_counts_without_a_journal_are_refused(make: Any, tmp_path: Path) -> None:
    place = ("memory://",) if make is App else ()
    with pytest.raises(ConfigError, match=r"journal_healthy='none' is unknown\. Choose one of all, counts"):
        make(*place, journal=tmp_path, journal_healthy="none")
    with pytest.raises(ConfigError, match="journal_healthy='counts' needs a journal"):
        make(*place, journal_healthy="counts")
