# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a registered handler, and makes a plan of it, its policy, the App's settings and its broker's capabilities."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ..adapter.capabilities import SourceCapabilities
from ..callables import accepts, check_plain, is_async, is_generator
from ..errors import ConfigError
from ..flow.ordering import Order
from ..message import Destination
from ..policy import PolicyMap, RedeliveryPolicy
from ..policy.policy_file import PolicyFile
from ..redelivery.broker_limits import check_limit
from ..redelivery.copies import Provenance
from ..redelivery.delays import delay_options
from ..redelivery.plan import SourcePlan
from .settings import Settings


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """Holds one registered handler."""

    source: Destination
    fn: Callable[..., Any]
    policy: RedeliveryPolicy | PolicyMap | PolicyFile
    workers: int
    prefetch: int
    decode: Callable[[bytes], Any] | None = None
    selector: str = ""
    order: Order | None = None
    batch: int | None = None  # None: it is called with one delivery at a time

    @property
    def is_async(self) -> bool:
        return is_async(self.fn)


def check_handler(spec: HandlerSpec) -> None:
    """Raise ConfigError for what cannot be called with a delivery, or of which a call runs nothing."""
    name = f"{spec.fn!r:.200}"
    if not callable(spec.fn):
        raise _refused(spec, f"{name} is no function", "Register a function that takes a delivery")
    if is_generator(spec.fn):
        what = f"{name} is a generator function, and a call runs none of its lines"
        raise _refused(spec, what, "Write it without yield")
    if spec.decode is not None:
        check_plain(spec.decode, "decode", where=str(spec.source))
    if spec.batch is not None:
        arguments, given = 1, "one argument, the list of deliveries"
    elif spec.decode is not None:
        arguments, given = 2, "two arguments, the decoded body and the delivery"
    else:
        arguments, given = 1, "one argument, the delivery"
    if not accepts(spec.fn, arguments):
        cure = "Let it take that; of a method, register the bound one"
        raise _refused(spec, f"{name} cannot be called with {given}", cure)


def _refused(spec: HandlerSpec, what: str, cure: str) -> ConfigError:
    return ConfigError(what, where=str(spec.source), cure=cure, code="handler-not-usable")


def build_plan(spec: HandlerSpec, policy: RedeliveryPolicy, settings: Settings, able: SourceCapabilities) -> SourcePlan:
    """Return the plan. Raises ConfigError if the broker cannot do what handler, policy and settings ask for."""
    capabilities = able.capabilities
    if spec.selector and not capabilities.selectors:
        raise ConfigError(
            f"{capabilities.dialect} knows no selectors",
            where=str(spec.source),
            cure="Leave selector out, and let the handler return early",
            code="selector-refused",
        )
    ways = delay_options(
        spec.source,
        capabilities,
        option=settings.delay,
        prefetch=spec.prefetch,
        longest=policy.longest_delay,
        ack_timeout=able.ack_timeout,
        exclusive=settings.delay == "nack",
        helpers=settings.declare != "none",
        limbo=settings.limbo is not None,
        returned_after=able.limit.returned_after or 0.0,
    )
    if spec.order is not None and spec.prefetch > 1:
        ways = replace(ways, hold_in_line=spec.order.longest_hold(able.ack_timeout))
    check_limit(spec.source, policy, ways, capabilities, able.limit)
    if any(target.resolve(spec.source) == spec.source for target in policy.places):
        raise ConfigError(
            f"its dead letters would go to {spec.source}, where they come from",
            where=str(spec.source),
            cure="Give the policy another dead_letter target",
            code="dead-letter-loop",
        )
    who = (settings.app_name, socket.gethostname())
    signature = Provenance(spec.source, *who, policy.text, policy.version, policy.language)
    return SourcePlan(spec.source, policy, ways, signature, spec.order is not None)


def ordered(spec: HandlerSpec, plan: SourcePlan, settings: Settings, able: SourceCapabilities) -> Order:
    """Return the handler's order by key as its source allows it. Raises ConfigError if the source does not allow it."""
    assert spec.order is not None
    parks = plan.ways.limbo and not settings.crash_safe
    return spec.order.at(spec.source, able.capabilities, able.ack_timeout, parks=parks)
