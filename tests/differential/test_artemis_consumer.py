# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares an App with Artemis' own redelivery over AMQP: one file, messages that always fail; counts, delays and ends.

The broker redelivers what a plain client of it returns; the App holds its messages, by the policies that it reads from
the broker's file, on addresses that have none there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import proton
import pytest

from redeliver_mw.policy import PolicyMap
from tests.contract.proton_world import Witness
from tests.differential.failing import APART, Life, lives
from tests.differential.ours import Task, app_of
from tests.differential.test_artemis_settings import (
    DEAD,
    EARLY,
    ENDLESS,
    LATE,
    LIMIT,
    PLANS,
    RESTS,
    Plan,
    after_each,
    read,
    setting,
    started,
)
from tests.faults.load import until

pytestmark = pytest.mark.broker

MESSAGES = 5  # to each address
BUSY = LATE + 0.03  # seconds: there are two consumers and the broker on this machine
Lives = dict[str, list[Life]]


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[PolicyMap, Lives, Lives]]:
    """Return the policies, the lives of messages at the broker in two rounds, and in an App between these."""
    with started("".join(setting(match, **fields) for match, fields in RESTS.items())) as own:
        policies = read(own)
        plans = {address: PLANS.get(address, Plan()) for address in RESTS}
        lives(own, plans, DEAD, 1, LIMIT)  # what a fresh Java does for the first time takes its time
        theirs = lives(own, plans, DEAD, MESSAGES, LIMIT)
        with closing(Witness(own)) as witness:
            ours = _ours(own.url, policies, witness)
        again = lives(own, plans, DEAD, MESSAGES, LIMIT)  # the machine may have been busy the first time
        yield policies, {address: [*theirs[address], *again[address]] for address in RESTS}, ours


def _ours(url: str, policies: PolicyMap, witness: Witness) -> Lives:
    lives = {address: [Life() for _ in range(MESSAGES)] for address in RESTS}
    tasks = {}
    for address, some in lives.items():
        witness.create(f"ours.{address}")
        numbered = {f"{address}.{number}": life for number, life in enumerate(some)}
        tasks[f"ours.{address}"] = Task(policies.resolve(address), numbered)
    with app_of(url, tasks):
        for number in range(MESSAGES):
            for address in RESTS:
                witness.send(f"ours.{address}", proton.Message(f"{address}.{number} {ENDLESS - 1}", inferred=True))
                time.sleep(APART)
        limits = {address: policies.resolve(address).dead_after or ENDLESS for address in RESTS}
        until(
            lambda: all(life.deliveries == limits[address] for address, some in lives.items() for life in some),
            LIMIT,
            "some messages have no end",
        )
    for queue in DEAD:
        for letter in witness.take(queue, witness.depth(queue)):
            address, _, number = letter.body.split()[0].rpartition(".")
            lives[address][int(number)].dead_in = queue
    return lives


@pytest.mark.parametrize("address", RESTS)
def test_each_message_is_counted_alike_and_ends_alike(both: tuple[PolicyMap, Lives, Lives], address: str) -> None:
    policies, theirs, ours = both
    limit = policies.resolve(address).dead_after or ENDLESS
    assert [life.counts for life in ours[address]] == [list(range(1, limit + 1))] * MESSAGES
    assert [life.counts for life in theirs[address]] == [life.counts for life in ours[address]] * 2
    assert [life.dead_in for life in theirs[address]] == [life.dead_in for life in ours[address]] * 2


@pytest.mark.parametrize("address", RESTS)
def test_each_message_rests_as_long_after_each_failure(both: tuple[PolicyMap, Lives, Lives], address: str) -> None:
    _, theirs, ours = both
    for (failure, broker), (_, app) in zip(after_each(theirs[address]), after_each(ours[address]), strict=True):
        assert abs(min(broker) - min(app)) < BUSY + EARLY, (failure, broker, app)
