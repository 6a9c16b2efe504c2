# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Says what holds for the messages of one source: policy, delay options, and the provenance of copies. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..message import Delivery, Destination, Past
from ..policy import RedeliveryPolicy
from . import interop
from .copies import Provenance
from .delays import DelayOptions

NO_PAST = Past()  # read only


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Holds what the interceptor knows of one source. Immutable; a renewed policy file leads to another plan."""

    source: Destination
    policy: RedeliveryPolicy
    ways: DelayOptions
    signature: Provenance
    ordered: bool = False  # messages wait for their turn, and have to learn of others'
    _in_arms: dict[str, SourcePlan] = field(default_factory=dict, init=False, compare=False, repr=False)  # as asked for

    def for_message(self, delivery: Delivery, past: Past, key: str) -> SourcePlan:
        """Return the plan of the message with that key: under a policy that it brings along, else in the arm it has."""
        if self.policy.language in interop.OWN_POLICIES:
            alone = self.policy.alone
            own = interop.own_policy(alone, delivery, past.state)
            if own is not alone:
                return self._under(own, policy_version=own.version, arm=None, propensity=None)
        if not self.policy.arms:
            return self
        name, propensity, policy = self.policy.of(key)
        if (plan := self._in_arms.get(name)) is None:
            plan = self._in_arms[name] = self._under(policy, arm=name, propensity=propensity)
        return plan

    def _under(self, policy: RedeliveryPolicy, **signed: Any) -> SourcePlan:
        return replace(self, policy=policy, signature=replace(self.signature, policy_text=policy.text, **signed))


def plan_of_run(delivery: Delivery, plans: Mapping[Destination, SourcePlan]) -> SourcePlan:
    """Return the plan that held for the source when the attempt began; the present one, if that is not known."""
    if delivery.plan is None:
        return plans[delivery.destination]
    assert isinstance(delivery.plan, SourcePlan)
    return delivery.plan


def attempt_plan(delivery: Delivery) -> SourcePlan:
    """Return the plan that held for its source when the delivery's last attempt began. There has been an attempt."""
    assert isinstance(delivery.plan, SourcePlan)
    return delivery.plan
