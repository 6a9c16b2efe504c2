# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A consumer whose handler sends is killed under load: nothing is lost.

Where the broker has transactions nothing is there twice.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.brokers import Broker
from tests.faults.handling import PREFETCH
from tests.faults.load import kill, lines, start, until
from tests.faults.sites import site_of

MESSAGES = [f"{'heal:2' if n % 10 == 3 else 'fine'}:{n}" for n in range(300)]
KILLS = 6


@pytest.mark.broker
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "fixture"), [("classic", "rabbitmq43"), ("", "activemq63"), ("queue", "artemis244")])
def test_every_message_is_sent_on_by_a_consumer_that_is_killed_again_and_again(
    kind: str, fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(fixture)
    site, queue, log = site_of(broker, kind), f"kills.sending.{kind}", tmp_path / "runs.log"
    site.prepare(queue, MESSAGES)
    consumer = start("sending", broker, queue, log)
    try:
        for _ in range(KILLS):
            wanted = len(lines(log)) + 60
            until(lambda wanted=wanted: len(lines(log)) >= wanted, 60, "the consumer makes no progress")
            kill(consumer)
            consumer = start("sending", broker, queue, log)
        until(lambda: site.count(queue) == 0, 90, "not every message came to its end")
        until(lambda: site.count(f"DLQ.{queue}") >= len(MESSAGES), 30, "not everything was sent")
    finally:
        kill(consumer)
    sent = Counter(letter.body for letter in site.drain(f"DLQ.{queue}"))
    left = [letter.body for letter in site.drain(queue)]
    twice = sum(n - 1 for n in sent.values())
    print(f"\n{broker.describe()}: {len(lines(log))} lines; sent twice: {twice}; left: {len(left)}")
    assert set(MESSAGES) - sent.keys() - set(left) == set(), "lost"
    assert sent.keys() <= set(MESSAGES)
    most = 0 if fixture != "rabbitmq43" else PREFETCH * KILLS
    assert twice <= most
