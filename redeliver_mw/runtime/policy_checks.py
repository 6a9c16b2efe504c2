# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks what plans need of a broker, and of each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..errors import ConfigError, DestinationMissing
from ..message import Destination
from ..policy import RedeliveryPolicy
from ..redelivery.plan import SourcePlan


def targets_of(plans: Iterable[SourcePlan]) -> set[Destination]:
    """Return every destination that a dead letter could go to."""
    return {target.resolve(plan.source) for plan in plans for target in plan.policy.places}


def check_together(plans: Mapping[Destination, SourcePlan]) -> None:
    """Raise ConfigError if a dead letter would come back under the policy that has just given it up."""
    check_policies({source: plan.policy for source, plan in plans.items()})


def check_policies(by_source: Mapping[Destination, RedeliveryPolicy]) -> None:
    """Check policies alone in the same way, whichever process consumes their sources."""
    for source, whole in by_source.items():
        for target, policy in _letters_of(source, whole):
            if target in by_source and policy in _arms_of(by_source[target]):
                raise ConfigError(
                    f"{target} takes the dead letters of {source} and is consumed under the same policy",
                    where=str(target),
                    cure="Give the handler of the dead-letter queue a policy of its own",
                    code="dead-letter-loop",
                )


def _letters_of(source: Destination, whole: RedeliveryPolicy) -> Iterator[tuple[Destination, RedeliveryPolicy]]:
    """Yield where dead letters could go to, and under which policy, that of an arm, they were dead-lettered."""
    for policy in _arms_of(whole):
        for target in policy.places:
            yield target.resolve(source), policy


def _arms_of(policy: RedeliveryPolicy) -> list[RedeliveryPolicy]:
    return [arm.policy for arm in policy.apart]


def ladder_of(plan: SourcePlan) -> float:
    """Return the longest delay in seconds that scheduled copies must support; 0: none are sent."""
    return plan.policy.longest_delay if plan.ways.schedule else 0.0


def target_refused(target: Destination, why: str, broker: str) -> DestinationMissing:
    return DestinationMissing(
        f"the dead-letter target {target} cannot be used: {why}",
        where=broker,
        cure="Declare it, or name another",
        code="dead-letter-target-not-usable",
    )
