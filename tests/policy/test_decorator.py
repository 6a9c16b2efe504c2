# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""@redeliver marks a handler, and that is all."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest

from redeliver_mw.decorator import policy_on, redeliver
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.policy import PolicyMap, RedeliveryPolicy

TEXT = "3:1000; 6:5000; 8:move(queue:dlq.$)"
POLICY = RedeliveryPolicy.parse(TEXT)


def resolved(handler: object) -> RedeliveryPolicy:
    found = policy_on(handler)
    assert found is not None
    return found.resolve("orders", "queue")


def test_the_function_stays_itself() -> None:
    def handler(delivery: int) -> int:
        return delivery + 1

    marked = redeliver(TEXT)(handler)
    assert marked is handler
    assert marked(1) == 2
    assert resolved(marked) == POLICY


def test_an_async_function_stays_async() -> None:
    @redeliver(POLICY)
    async def handler(delivery: int) -> int:
        return delivery + 1

    assert inspect.iscoroutinefunction(handler)
    assert policy_on(handler) is POLICY


def test_a_map_of_policies_is_taken_as_it_is() -> None:
    policies = PolicyMap({}, default=POLICY)

    @redeliver(policies)
    def handler() -> None: ...

    assert policy_on(handler) is policies


class Shop:
    @redeliver(POLICY)
    def on_order(self, delivery: object, extra: int = 0) -> None: ...


class Handler:
    @redeliver(POLICY)
    def __call__(self, delivery: object) -> None: ...


@pytest.mark.parametrize(
    "handler",
    [
        Shop().on_order,
        functools.partial(Shop().on_order, extra=1),
        functools.partial(functools.partial(Shop.on_order, Shop()), extra=1),
        Handler(),
        functools.partial(Handler()),
    ],
)
def test_the_mark_is_found_through_bound_methods_partials_and_callables(handler: Any) -> None:
    assert policy_on(handler) is POLICY


def test_an_unmarked_handler_has_no_policy() -> None:
    assert policy_on(lambda delivery: None) is None
    assert policy_on(functools.partial(print)) is None
    assert policy_on(5) is None


def test_a_bound_method_cannot_be_marked_and_says_what_can() -> None:
    with pytest.raises(ConfigError, match="cannot be marked") as caught:
        redeliver(POLICY)(Shop().on_order)
    assert "function" in caught.value.cure


def test_a_bad_text_fails_where_it_is_written() -> None:
    with pytest.raises(PolicyError, match="E102 in element 2"):
        redeliver("3:1000; soon")


def test_forgetting_the_brackets_is_reported_as_such() -> None:
    with pytest.raises(ConfigError, match="without a policy"):

        @redeliver
        def handler() -> None: ...
