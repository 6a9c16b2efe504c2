# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the options that all wrappers share."""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy, redeliver
from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.dropin import CompanionPublisher, DropinOptions
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.message import Destination

SOURCE = Destination("orders")
NO_SCHEDULE = Capabilities(dialect="none", broker_kind="none")
ANY_DELAY = Capabilities(dialect="any", broker_kind="any", schedule=ScheduleRange())


@pytest.mark.parametrize(
    "options",
    [
        {"limbo": "sqlite://"},
        {"crash_safe": True},
        {"delay": "nack"},
        {"delay": "park"},
        {"delay": "soon"},
        {"settle": "never"},
        {"hold_max": 0},
        {"hold_max": True},
        {"hold_max": 1.5},
    ],
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        DropinOptions(**options)


def test_a_policy_that_cannot_be_read_is_refused_at_once() -> None:
    with pytest.raises(PolicyError):
        DropinOptions(policy="3:soon")


def test_the_argument_wins_over_the_mark_and_the_mark_over_the_default() -> None:
    @redeliver(RedeliveryPolicy(dead_after=3, backoff=0.0))
    def marked() -> None: ...

    def dead_after(terms: DropinOptions) -> int | None:
        return terms.plan(SOURCE, ANY_DELAY).policy.dead_after

    given = DropinOptions(policy=RedeliveryPolicy(dead_after=2, backoff=0.0))
    assert (dead_after(given.on(marked)), dead_after(given)) == (2, 2)
    assert dead_after(DropinOptions().on(marked)) == 3
    assert DropinOptions().on(lambda: None).plan(SOURCE, ANY_DELAY).policy == RedeliveryPolicy()


def test_half_of_an_unknown_prefetch_is_hold_max() -> None:
    assert DropinOptions(hold_max=7).plan(SOURCE, ANY_DELAY).ways.budget == 7


def test_a_delay_that_can_neither_be_held_nor_scheduled_is_refused() -> None:
    with pytest.raises(PolicyError):
        DropinOptions(policy=RedeliveryPolicy(backoff=60.0)).plan(SOURCE, NO_SCHEDULE)


def test_dead_letters_to_their_own_source_are_refused() -> None:
    with pytest.raises(ConfigError, match="dead letters"):
        DropinOptions(policy=RedeliveryPolicy(backoff=1.0, dead_letter="queue:$")).plan(SOURCE, NO_SCHEDULE)


def test_a_companion_is_of_the_brokers_kind() -> None:
    with pytest.raises(ConfigError, match="activemq"):
        CompanionPublisher("memory://", "activemq+stomp")
