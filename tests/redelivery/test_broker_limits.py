# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the broker's own limit against the policy: what is refused, what is warned of, and what is fine."""

from __future__ import annotations

import dataclasses
import logging

import pytest

from redeliver_mw import App, Delivery, Destination, RedeliveryPolicy
from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities, Trust
from redeliver_mw.errors import ConfigError
from redeliver_mw.redelivery.broker_limits import check_limit, limit_meant, limit_warning, unknown
from redeliver_mw.redelivery.delays import DelayOptions, Option
from redeliver_mw.testing import TestApp

ORDERS = Destination("orders")
COUNTING = Capabilities(
    dialect="old",
    broker_kind="rabbitmq",
    honours=frozenset({"accepted", "released"}),
    released_uncounted=True,
    trust={"released": Trust.UNKNOWN},
)
UNCOUNTED = dataclasses.replace(COUNTING, trust={})
UNKNOWN = BrokerLimit(trust=Trust.UNKNOWN, why="nobody tells")


def ways(option: Option) -> DelayOptions:
    return DelayOptions(option, 50, 10.0, None, 1.0)


def refused(policy: RedeliveryPolicy, limit: BrokerLimit, capabilities: Capabilities = COUNTING) -> str:
    try:
        check_limit(ORDERS, policy, ways("nack"), capabilities, limit)
    except ConfigError as error:
        return str(error)
    return ""


def warned(policy: RedeliveryPolicy, limit: BrokerLimit, option: Option = "auto") -> str:
    return limit_warning(ORDERS, policy, ways(option), COUNTING, limit)


@pytest.mark.parametrize(
    ("dead_after", "returns", "is_refused"),
    [(4, 4, False), (5, 4, True), (1, 1, False), (2, 1, True), (None, 21, True)],
)
def test_a_policy_that_gives_back_more_often_than_the_broker_takes_is_refused(
    dead_after: int | None, returns: int, is_refused: bool
) -> None:
    said = refused(RedeliveryPolicy(dead_after, 1.0), BrokerLimit(returns=returns, spelled="x-delivery-limit 3"))
    assert bool(said) is is_refused
    if is_refused:
        assert said.startswith("queue:orders: ")
        assert "(x-delivery-limit 3)" in said
        assert f"give up after {returns} failures at most" in said


def test_every_arm_has_to_keep_below_the_brokers_limit() -> None:
    limit = BrokerLimit(returns=4, spelled="x-delivery-limit 3", dead_letter_to="dlq")
    policy = RedeliveryPolicy(3, 1.0)
    assert not refused(policy, limit)
    assert "is dead after 9 failures" in refused(policy.replace(arms={"a": (0.1, {"dead_after": 9})}), limit)
    assert "never gives up" in refused(policy.replace(arms={"a": (0.1, {"on_dead": "keep"})}), limit)
    assert not warned(policy, limit)
    assert warned(policy.replace(arms={"a": (0.1, {"dead_after": 4})}), limit)


def test_nothing_is_sure_where_a_return_is_not_counted_or_the_limit_not_known() -> None:
    policy = RedeliveryPolicy(9, 1.0)
    assert refused(policy, BrokerLimit(returns=2), UNCOUNTED) == ""
    assert refused(policy, UNKNOWN) == ""
    assert refused(policy, BrokerLimit()) == ""
    check_limit(ORDERS, policy, ways("auto"), COUNTING, BrokerLimit(returns=2))  # held here, not given back


def test_a_limit_that_deletes_is_warned_of_whatever_its_number() -> None:
    said = warned(RedeliveryPolicy(3, 1.0), BrokerLimit(returns=21, spelled="delivery-limit 20, the default"))
    assert said.startswith("queue:orders: the broker deletes a message at its 21st counted return (delivery-limit 20")
    assert "our policy is not asked then. Raise the limit" in said


@pytest.mark.parametrize(("returns", "is_warned"), [(4, False), (3, True)])
def test_a_limit_that_dead_letters_is_warned_of_where_our_policy_still_redelivers(
    returns: int, is_warned: bool
) -> None:
    said = warned(RedeliveryPolicy(3, 1.0), BrokerLimit(returns=returns, dead_letter_to="DLQ"))
    assert bool(said) is is_warned
    assert not is_warned or "the broker puts a message into DLQ at its 3rd counted return" in said


def test_what_our_failures_give_back_leaves_less_to_lost_connections() -> None:
    policy, limit = RedeliveryPolicy(3, 1.0), BrokerLimit(returns=5, dead_letter_to="DLQ")
    assert not warned(policy, limit)
    assert warned(policy, limit, "nack")


def test_a_policy_that_never_gives_up_is_warned_of_any_limit() -> None:
    assert warned(RedeliveryPolicy(None, 1.0), BrokerLimit(returns=1000, dead_letter_to="DLQ"))
    assert not warned(RedeliveryPolicy(None, 1.0), BrokerLimit())


def test_a_limit_that_is_read_comes_before_a_declared_one_and_that_before_none() -> None:
    assert limit_meant(BrokerLimit(returns=4), 9) == BrokerLimit(returns=4)
    assert limit_meant(BrokerLimit(), 9) == BrokerLimit()
    assert limit_meant(UNKNOWN, None) == UNKNOWN
    told = limit_meant(UNKNOWN, 9)
    assert (told.returns, told.trust) == (9, Trust.DECLARED)
    assert limit_meant(UNKNOWN, 0).returns is None


def test_limits_that_nobody_knows_are_named_in_one_sentence_with_why() -> None:
    limits = {ORDERS: UNKNOWN, Destination("prices"): UNKNOWN, Destination("known"): BrokerLimit()}
    said = unknown(limits, nack=False)
    assert "queue:orders, queue:prices" in said
    assert said.count("nobody tells") == 1
    assert "known," not in said
    assert "each failure counts" in unknown(limits, nack=True)
    assert unknown({ORDERS: BrokerLimit(returns=3)}, nack=False) == ""


# -- an App ------------------------------------------------------------------------------------------------------


def started(limit: int | None, *, dead_letter: str | None = "", dead_after: int = 3, told: int | None = None) -> None:
    app = App("memory://", policy=RedeliveryPolicy(dead_after, 1.0), broker_limit=told)

    @app.handler("orders")
    def nothing(delivery: Delivery) -> None:
        pass

    test = TestApp(app)
    test.broker.declare("orders", limit=limit, dead_letter=dead_letter)
    test.start().stop()


def test_an_app_warns_of_a_queue_whose_limit_deletes(caplog: pytest.LogCaptureFixture) -> None:
    started(3)
    [said] = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert said.startswith("queue:orders: the broker deletes a message at its 4th counted return (limit=3)")


def test_an_app_says_nothing_of_a_queue_without_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    started(None)
    assert caplog.records == []


def test_a_declared_limit_that_the_broker_contradicts_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    started(9, dead_letter="dead", told=5)
    [said] = [r.getMessage() for r in caplog.records]
    assert said == "queue:orders: broker_limit=5 is not what the broker says: limit=9"
