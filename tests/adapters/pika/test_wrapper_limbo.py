# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in with a limbo, on RabbitMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from tests.adapters.pika.dropins import drive, queues
from tests.brokers import Broker
from tests.dropin.parking import Kept, letters, parking

HEADERS = {f"h{n:02d}": "x" * 4070 for n in range(31)}  # 126 kB: with ours more than one frame takes
OTHERS = {f"other {n}".encode() for n in range(10)}


@pytest.mark.parametrize("kind", ["blocking", "asyncio", "pull"])
def test_a_parked_message_comes_back_and_is_dead_lettered_after_its_last_failure(
    rabbitmq43: Broker, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[bytes, list[int]] = {}
    journal = Kept()

    def fail(_channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        counts.setdefault(body, []).append(properties.headers["JMSXDeliveryCount"])
        if body != b"heals" or len(counts[body]) == 1:
            raise ConnectionError("down")

    with queues(rabbitmq43) as q, parking(tmp_path, rabbitmq43.url, journal, monkeypatch) as options:
        q.put("heals", "dies", headers={"n": 1, "deep": {"list": [1, "two"]}}, correlation_id="c")
        drive(kind, rabbitmq43, q.name, fail, lambda: len(journal.records) == 5, **options)
        assert counts == {b"heals": [1, 2], b"dies": [1, 2, 3]}
        assert sorted(map(str, journal.ways)) == ["None", "None", "park", "park", "park"]
        [(body, headers)] = q.dead()
        assert (body, headers["redeliver_failures"]) == (b"dies", "3")
        assert (headers["n"], headers["deep"]) == (1, {"list": [1, "two"]})
        assert q.left() == []


@pytest.mark.parametrize("queue_kind", ["classic", "quorum"])
@pytest.mark.parametrize("kind", ["blocking", "asyncio", "pull"])
def test_a_message_that_cannot_be_copied_is_retried_and_stays_and_others_go_on(
    rabbitmq43: Broker, kind: str, queue_kind: str
) -> None:
    counts: dict[bytes, list[int]] = {}
    journal = Kept()

    def act(_channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        counts.setdefault(body, []).append(properties.headers["JMSXDeliveryCount"])
        if body == b"big":
            raise ConnectionError("down")

    with queues(rabbitmq43, queue_kind) as q:
        q.put("big", headers=HEADERS)
        q.put(*(body.decode() for body in OTHERS))

        def over() -> bool:
            return counts.keys() > OTHERS and len(journal.records) == 2 + len(OTHERS)

        drive(kind, rabbitmq43, q.name, act, over, policy=RedeliveryPolicy(2, 0.3), journal=journal)
        assert counts == {b"big": [1, 2]} | {body: [1] for body in OTHERS}
        assert [r.outcome for r in journal.records if r.message_id == "big"] == ["redelivered", "kept"]
        assert (q.left(1), q.dead()) == (["big"], [])


@pytest.mark.parametrize("kind", ["blocking", "asyncio", "pull"])
def test_with_a_limbo_a_message_that_cannot_be_copied_becomes_a_dead_letter_there(
    rabbitmq43: Broker, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[bytes, list[int]] = {}
    journal = Kept()

    def act(_channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        counts.setdefault(body, []).append(properties.headers["JMSXDeliveryCount"])
        if body == b"big":
            raise ConnectionError("down")

    with queues(rabbitmq43) as q, parking(tmp_path, rabbitmq43.url, journal, monkeypatch) as options:
        q.put("big", headers=HEADERS)
        q.put(*(body.decode() for body in OTHERS))

        def over() -> bool:
            return counts.keys() > OTHERS and len(journal.records) == 3 + len(OTHERS)

        drive(kind, rabbitmq43, q.name, act, over, **options)
        assert counts == {b"big": [1, 2, 3]} | {body: [1] for body in OTHERS}
        [letter] = letters(tmp_path)
        assert (letter.out.body, letter.reason, letter.source) == (b"big", "exhausted", f"queue:{q.name}")
        assert {name: letter.out.headers[name] for name in HEADERS} == HEADERS
        assert (q.left(), q.dead()) == ([], [])
