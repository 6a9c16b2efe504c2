# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A handler that raises a group of exceptions, as `asyncio.TaskGroup` does, fails by what is in the group."""

from __future__ import annotations

import asyncio
from typing import Any

from redeliver_mw import App, Reject, RetryAfter
from redeliver_mw.policy import Accept, DeadLetter, Decision, Redeliver, RedeliveryPolicy
from redeliver_mw.testing import TestApp

DLQ = "queue:dlq"


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", list(errors))


def decided(policy: RedeliveryPolicy, *errors: Exception, failures: int = 1) -> Decision:
    """Return the decision for a group of errors, and check that it is the same for a group of several levels."""
    flat = policy.decide(failures, 0.0, group(*errors))
    nested = policy.decide(failures, 0.0, group(*errors[:-1], group(group(errors[-1]))))
    assert flat == nested
    return flat


def reason(decision: Decision) -> str:
    assert isinstance(decision, DeadLetter)
    return decision.reason


def policy(**rules: Any) -> RedeliveryPolicy:
    return RedeliveryPolicy(3, 1.0, DLQ, **rules)


def test_a_rejection_in_a_group_rejects_the_message() -> None:
    found = policy().decide(1, 0.0, group(TimeoutError(), Reject("no such order")))
    assert isinstance(found, DeadLetter)
    assert (found.reason, found.detail) == ("rejected", "no such order")


def test_one_fatal_error_in_a_group_is_enough() -> None:
    assert reason(decided(policy(fatal=KeyError), TimeoutError(), KeyError("id"))) == "fatal"
    assert isinstance(decided(policy(fatal=KeyError), TimeoutError(), ValueError()), Redeliver)


def test_a_group_is_ignored_if_all_in_it_is() -> None:
    ignoring = policy(ignore=(KeyError, ValueError))
    assert decided(ignoring, KeyError(), ValueError()) == Accept()
    assert isinstance(decided(ignoring, KeyError(), TimeoutError()), Redeliver)
    assert isinstance(decided(ignoring, RetryAfter(5), KeyError()), Redeliver)


def test_what_is_not_to_be_retried_ends_the_message_unless_it_is_ignored() -> None:
    assert reason(decided(policy(retry_on=TimeoutError), TimeoutError(), ValueError())) == "fatal"
    assert isinstance(decided(policy(retry_on=TimeoutError), TimeoutError(), TimeoutError()), Redeliver)
    assert isinstance(
        decided(policy(retry_on=TimeoutError, ignore=ValueError), TimeoutError(), ValueError()), Redeliver
    )


def test_a_rule_may_speak_of_the_group_itself() -> None:
    both = group(ValueError(), KeyError())
    assert reason(policy(fatal=ExceptionGroup).decide(1, 0.0, both)) == "fatal"
    assert isinstance(policy(retry_on=ExceptionGroup).decide(1, 0.0, both), Redeliver)
    assert policy(ignore=ExceptionGroup).decide(1, 0.0, both) == Accept()


def test_the_longest_wish_to_wait_counts() -> None:
    found = decided(policy(), RetryAfter(5), RetryAfter(30), TimeoutError())
    assert isinstance(found, Redeliver)
    assert found.base == 30.0
    assert reason(decided(policy(), RetryAfter(30), TimeoutError(), failures=3)) == "exhausted"
    waiting = decided(policy(), RetryAfter(5, count=False), RetryAfter(7, count=False), failures=3)
    assert isinstance(waiting, Redeliver)
    assert waiting.base == 7.0


def test_a_handler_with_a_task_group_is_rejected_at_its_first_attempt() -> None:
    app = App("memory://", policy=policy())

    async def fails(error: Exception) -> None:
        raise error

    async def both() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fails(TimeoutError("slow")))
            tasks.create_task(fails(Reject("no such order")))

    @app.handler("orders")
    def handle(body: bytes) -> None:
        asyncio.run(both())

    with TestApp(app) as test:
        test.send("orders", b"one")
        (letter,) = test.dead_letters("orders")
    assert letter.headers["redeliver_reason"] == "rejected"
    assert letter.headers["redeliver_failures"] == "1"


def test_a_group_that_only_wants_to_wait_is_no_failure() -> None:
    app = App("memory://", policy=RedeliveryPolicy(2, 1.0, DLQ))
    runs = []

    @app.handler("orders")
    def handle(body: bytes) -> None:
        runs.append(body)
        if len(runs) < 5:
            raise group(RetryAfter(0.5, count=False), RetryAfter(2, count=False))

    with TestApp(app) as test:
        test.send("orders", b"one")
        test.advance(7.9)
        assert len(runs) == 4  # at 0, 2, 4 and 6 s
        test.advance(0.2)
        assert test.dead_letters("orders") == []
    assert len(runs) == 5
