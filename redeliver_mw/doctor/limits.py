# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the broker's own limits and delays with the policy: they must not act before the policy does. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..adapter.capabilities import BrokerLimit, Capabilities, Trust
from ..adapter.inspection import QueueFacts
from ..errors import PolicyError, counted
from ..message import Destination
from ..policy import RedeliveryPolicy
from ..redelivery.delays import ACK_TIMEOUT_SHARE, HOLD_MAX, delay_options
from .finding import Finding, not_known, ok, seconds, warning, wrong

PREFETCH = 100  # the window of an App that names no other
UNKNOWN_LIMIT_CURE = "Tell an App the limit: broker_limit=N, 0 for none"


def check_source_limits(
    source: Destination,
    policy: RedeliveryPolicy | None,
    capabilities: Capabilities,
    limit: BrokerLimit,
    facts: QueueFacts | None,
) -> Iterator[Finding]:
    """Yield what the limits of a source mean for its policy. `facts` is None if the adapter reports none."""
    yield _delivery_limit(source, policy, limit, facts)
    if policy is not None:
        yield _longest_delay(source, policy, capabilities, limit)
        yield _timeout(source, policy, capabilities, facts)
    if facts is None or facts.why or facts.exists is not True:
        return
    if facts.idle_delay is not None:
        yield wrong(
            "broker-delay-without-effect",
            str(source),
            f"{facts.idle_delay.spelled}: the broker accepts that, and delays nothing",
            f"Set the type and the minimum, or neither. {facts.idle_delay.change}",
        )
    elif facts.returned_after is not None:
        yield warning(
            "broker-delays-returns",
            str(source),
            f"the broker delays a returned message by {seconds(facts.returned_after.value)} "
            f"({facts.returned_after.spelled}): what comes back at a stop or with a lost connection waits so long",
            f"Let the policy alone delay. {facts.returned_after.change}",
        )
    else:
        yield ok("broker-delay", str(source), "the broker does not delay returned messages")


def check_target_limit(target: Destination, facts: QueueFacts) -> Iterator[Finding]:
    """Yield whether dead letters that are read again and again are deleted by the broker."""
    limit = facts.limit
    if facts.why or not facts.exists or limit.trust is Trust.UNKNOWN:
        return
    if limit.returns is None or limit.dead_letter_to:
        yield ok("delivery-limit", str(target), "no letter is deleted because it was read")
        return
    yield warning(
        "delivery-limit-on-target",
        str(target),
        f"the broker deletes a dead letter that is returned {limit.returns} times ({limit.spelled}): a look at it that "
        f"ends with a lost connection is one return",
        f"Take the limit of the dead-letter queue away. {facts.limit_change}",
    )


def _delivery_limit(
    source: Destination, policy: RedeliveryPolicy | None, limit: BrokerLimit, facts: QueueFacts | None
) -> Finding:
    subject = str(source)
    if limit.trust is Trust.UNKNOWN:
        cure = (facts.why_cure if facts is not None else "") or UNKNOWN_LIMIT_CURE
        return not_known("delivery-limit", subject, limit.why or "the adapter does not report it", cure)
    if limit.returns is None:
        return ok("delivery-limit", subject, "the broker has no limit of its own")
    ends = f"moves to {limit.dead_letter_to} a message" if limit.dead_letter_to else "deletes a message"
    what = f"the broker {ends} that is returned {counted(limit.returns, 'time')} ({limit.spelled})"
    change = facts.limit_change if facts is not None else ""
    most = _most_failures(policy) if policy is not None else 0
    if policy is not None and limit.returns <= most:
        until = "never gives up" if most == math.inf else f"gives up after {int(most)} failures"
        above = "every number" if most == math.inf else int(most)
        return (warning if limit.dead_letter_to else wrong)(
            "delivery-limit-below-policy",
            subject,
            f"{what}, and the policy {until}: lost connections and crashes count, and the policy is not asked then",
            f"Raise the limit above {above}, or take it away. {change}".strip(),
        )
    if not limit.dead_letter_to:
        return warning(
            "delivery-limit-deletes",
            subject,
            f"{what}: lost connections and crashes count, and the policy is not asked then",
            f"Take the limit away, or give the queue a dead-letter target of the broker's own. {change}".strip(),
        )
    return ok("delivery-limit", subject, f"{what}, after the policy has given up")


def _most_failures(policy: RedeliveryPolicy) -> float:
    """Return the most failures of a message in any arm; infinite if only time, or nothing, ends it."""
    limits = [arm.policy.dead_after for arm in policy.apart]
    if policy.goes_on or None in limits:
        return math.inf
    return max(limit for limit in limits if limit is not None)


def _longest_delay(
    source: Destination, policy: RedeliveryPolicy, capabilities: Capabilities, limit: BrokerLimit
) -> Finding:
    """Return whether the policy's longest delay can be waited out here without a limbo: an App asks the same."""
    subject = str(source)
    try:
        ways = delay_options(
            source,
            capabilities,
            option="auto",
            prefetch=PREFETCH,
            longest=policy.longest_delay,
            ack_timeout=limit.ack_timeout or capabilities.ack_timeout,
        )
    except PolicyError as refused:
        return warning("delay-not-possible", subject, f"{refused.what}, and an App refuses to start", refused.cure)
    where = "held here" if policy.longest_delay <= ways.hold_max else "waits at the broker"
    return ok("longest-delay", subject, f"the longest delay of {seconds(policy.longest_delay)} is {where}")


def _timeout(
    source: Destination, policy: RedeliveryPolicy, capabilities: Capabilities, facts: QueueFacts | None
) -> Finding:
    """Return whether the broker takes a message back while it is held. The handler's own time comes on top."""
    subject, hold = str(source), min(policy.longest_delay, HOLD_MAX)
    if capabilities.ack_timeout is None:
        return ok("consumer-timeout", subject, "the broker leaves a message unsettled for as long as need be")
    if facts is None or facts.ack_timeout is None:
        why = "" if facts is None else facts.why or facts.ack_timeout_why
        cure = (facts.why_cure if facts is not None else "") or (
            f"See to it that it is {seconds(hold / ACK_TIMEOUT_SHARE)} or more, and tell an App another one than "
            f"{seconds(capabilities.ack_timeout)}: ack_timeout=SECONDS"
        )
        return not_known("consumer-timeout", subject, why or "the adapter does not report it", cure)
    timeout = facts.ack_timeout
    if timeout.value <= hold:
        return wrong(
            "consumer-timeout-below-hold",
            subject,
            f"the broker takes a message back after {seconds(timeout.value)} ({timeout.spelled}), and one is held for "
            f"up to {seconds(hold)}",
            f"Raise it to {seconds(hold / ACK_TIMEOUT_SHARE)} or more. {timeout.change}",
        )
    if timeout.value * ACK_TIMEOUT_SHARE < hold:
        return warning(
            "consumer-timeout-short",
            subject,
            f"the broker takes a message back after {seconds(timeout.value)} ({timeout.spelled}): a message that is "
            f"held for {seconds(hold)} leaves its handler little time",
            f"Raise it to {seconds(hold / ACK_TIMEOUT_SHARE)} or more. {timeout.change}",
        )
    return ok("consumer-timeout", subject, f"{seconds(timeout.value)} ({timeout.spelled}), above any hold")
