# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The drop-in with a limbo, on RabbitMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.pika.dropins import drive, queues
from tests.brokers import Broker
from tests.dropin.parking import Kept, parking


@pytest.mark.parametrize("kind", ["blocking", "asyncio", "pull"])
def test_what_waits_in_the_limbo_comes_back_and_dies_after_its_last_failure(
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
