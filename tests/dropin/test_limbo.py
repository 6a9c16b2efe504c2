# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a drop-in with a limbo: a message that waits there is settled on the broker, and comes back when it is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw import RedeliveryPolicy
from redeliver_mw.dropin import DropinOptions
from redeliver_mw.errors import ConfigError, RedeliverError
from redeliver_mw.limbo import Limbo
from tests.dropin.memory_driver import SOURCE, Consumer
from tests.dropin.test_dropin import Seen, raises
from tests.limbo.messages import sql

HOURS = RedeliveryPolicy(3, [3600.0, 7200.0])


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'limbo.db'}"


@pytest.fixture
def consumers() -> Iterator[list[Consumer]]:
    """Yield a list for consumers, whose limbos are closed at the end."""
    some: list[Consumer] = []
    yield some
    for one in some:
        if one.runner.terms.limbo is not None:
            one.runner.terms.limbo.close()


def parked(url: str) -> int:
    [[count]] = sql(url, "SELECT count(*) FROM dms_limbo_msg")
    return int(count)


@pytest.mark.parametrize("personality", ["rabbitmq-classic", "activemq", "artemis"])
def test_a_delay_of_hours_is_spent_in_the_limbo_and_not_at_the_broker(
    url: str, personality: str, consumers: list[Consumer]
) -> None:
    seen = Seen(raises)
    consumer = Consumer(seen, personality, limbo=url, policy=HOURS, delay="park")
    consumers.append(consumer)
    consumer.put("1")
    assert (seen.calls, consumer.memory.depth(SOURCE), parked(url)) == ([("1", 1)], 0, 1)
    consumer.clock.advance(3600.0 - 1)
    assert len(seen.calls) == 1
    consumer.clock.advance(2.0)
    assert seen.calls == [("1", 1), ("1", 2)]
    consumer.clock.advance(7201.0)
    assert (seen.calls[2:], consumer.dead(), parked(url)) == ([("1", 3)], [("1", "exhausted")], 0)
    assert consumer.left() == 0


def test_what_the_limbo_does_not_take_stays_unsettled_and_is_tried_again(url: str, consumers: list[Consumer]) -> None:
    seen = Seen(raises)
    consumer = Consumer(seen, "activemq", limbo=url, policy=HOURS, delay="park")
    consumers.append(consumer)
    consumer.put("1")
    sql(url, "CREATE TRIGGER full BEFORE INSERT ON dms_limbo_msg BEGIN SELECT RAISE(ABORT, 'full'); END")
    consumer.put("2")
    consumer.clock.advance(10.0)
    sql(url, "DROP TRIGGER full")
    assert parked(url) == 1
    consumer.clock.advance(60.0)
    assert (parked(url), len(seen.calls), consumer.left()) == (2, 2, 0)


def test_the_delay_continues_after_the_consumer_has_gone(url: str, consumers: list[Consumer]) -> None:
    consumer = Consumer(Seen(raises), limbo=url, policy=HOURS, delay="park", app_name="shop")
    consumers.append(consumer)
    consumer.put("1")
    limbo = consumer.runner.terms.limbo
    assert limbo is not None
    limbo.close()
    with Limbo(url, app="shop", broker=consumer.broker, clock=consumer.clock) as other:
        assert other.next_due() == pytest.approx(consumer.clock.now().wall + 3600, abs=1)


def test_a_limbo_that_cannot_be_opened_is_an_error_before_the_callback_runs(tmp_path: Path) -> None:
    seen = Seen()
    consumer = Consumer(seen, limbo=f"sqlite:///{tmp_path / 'nowhere' / 'limbo.db'}", policy=HOURS)
    consumer.memory.send(SOURCE, b"1")
    with pytest.raises(RedeliverError):
        consumer.runner.learn(SOURCE)
    assert seen.calls == []


def test_a_limbo_without_a_publisher_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="needs a connection to publish on"):
        DropinOptions(limbo="sqlite:///limbo.db")
    with pytest.raises(ConfigError, match="needs a limbo"):
        DropinOptions(delay="park", publisher="memory://")


def test_counts_that_survive_a_crash_are_an_apps() -> None:
    with pytest.raises(ConfigError, match="needs an App"):
        DropinOptions(crash_safe=True, limbo="sqlite:///limbo.db", publisher="memory://")
