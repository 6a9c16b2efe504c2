# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tells whether the broker's own limit can act on a message before our policy does (broker-limits). Pure.

A released message is not counted, if the broker supports that. A message that returns in any other way (a lost
connection, a killed process; on some brokers everything that was prefetched with it) is counted, whatever its handler
did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..adapter.capabilities import BrokerLimit, Capabilities, Trust
from ..errors import ConfigError
from ..message import Destination
from ..policy import RedeliveryPolicy
from .delays import DelayOptions


def limit_meant(read: BrokerLimit, declared: int | None) -> BrokerLimit:
    """Return the limit that the broker reports, else the user's.

    `declared` is the counted return that no message survives, 0: no limit.
    """
    if read.trust is not Trust.UNKNOWN or declared is None:
        return read
    return replace(read, returns=declared or None, spelled=f"broker_limit={declared}", trust=Trust.DECLARED, why="")


def check_limit(
    source: Destination, policy: RedeliveryPolicy, ways: DelayOptions, capabilities: Capabilities, limit: BrokerLimit
) -> None:
    """Raise ConfigError if the broker is sure to act first.

    That is the case if the returns that our failures alone cause reach its limit.
    """
    made = _returns_of(policy, ways, capabilities)
    if limit.trust is Trust.UNKNOWN or limit.returns is None or made < limit.returns:
        return
    ours = f"is dead after {int(made) + 1} failures" if made < math.inf else "never gives up"
    raise ConfigError(
        f"with delay='nack' each failure is a counted return, and {_what_it_does(limit)} at the {_nth(limit.returns)} "
        f"({limit.spelled}): before the policy, which {ours}",
        where=str(source),
        cure=f"Raise that limit, let the policy give up after {limit.returns} failures at most, or use delay='auto'",
        code="broker-limit-first",
    )


def limit_warning(
    source: Destination, policy: RedeliveryPolicy, ways: DelayOptions, capabilities: Capabilities, limit: BrokerLimit
) -> str:
    """Return a warning, or an empty text: the broker may act first if connections are lost often enough.

    A limit that deletes is always worth a warning. A limit that dead-letters, or that the user gave, is worth one if a
    message can reach the limit while our policy still redelivers it.
    """
    if limit.trust is Trust.UNKNOWN or limit.returns is None:
        return ""
    spare = limit.returns - 1 - _returns_of(policy, ways, capabilities)
    kept = limit.dead_letter_to or limit.trust is Trust.DECLARED
    most = _most_failures(policy)
    if kept and not policy.goes_on and most is not None and spare >= most:
        return ""
    cure = "Raise the limit, or take it away" + ("" if kept else ", or give the source a dead-letter queue")
    return (
        f"{source}: {_what_it_does(limit)} at its {_nth(limit.returns)} counted return ({limit.spelled}). A lost "
        f"connection or a stop can count, also for what was only prefetched, and our policy is not asked "
        f"then. {cure}"
    )


def unknown(limits: Mapping[Destination, BrokerLimit], *, nack: bool) -> str:
    """Return one warning about all unknown limits, or an empty text."""
    found = {source: limit for source, limit in limits.items() if limit.trust is Trust.UNKNOWN}
    if not found:
        return ""
    names, why = ", ".join(map(str, found)), "; ".join(dict.fromkeys(limit.why for limit in found.values()))
    also = "each failure counts towards it with delay='nack', and " if nack else ""
    return (
        f"whether the broker has a limit of its own for {names} is unknown ({why}). If it has, {also}a lost connection "
        f"counts, also for what was only prefetched; in the end the broker dead-letters or deletes the message, and "
        f"our policy is not asked. If you know it: broker_limit=N, 0 for none"
    )


def unknown_delays(limits: Mapping[Destination, BrokerLimit]) -> str:
    """Return one warning, with delay='nack', about all sources whose own delay of returned messages is unknown."""
    found = [str(source) for source, limit in limits.items() if limit.returned_after is None]
    if not found:
        return ""
    return (
        f"whether the broker itself delays what is given back to {', '.join(found)} is unknown. If it does, "
        f"delay='nack' comes on top of it. If you know it: delayed_retry=SECONDS in the broker's URL, 0 for none"
    )


def _returns_of(policy: RedeliveryPolicy, ways: DelayOptions, capabilities: Capabilities) -> float:
    """Return the minimum number of counted returns that a message's own failures cause before the last failure."""
    counts = not capabilities.released_uncounted or capabilities.trust.get("released") is Trust.UNKNOWN
    if ways.option != "nack" or ways.postpone is not None or not counts:
        return 0
    if policy.goes_on:
        return math.inf
    return max([0, *(arm.policy.dead_after - 1 for arm in policy.apart if arm.policy.dead_after is not None)])


def _most_failures(policy: RedeliveryPolicy) -> int | None:
    """Return the F at which a message of any arm is dead, or None if in one of them only the time ends it."""
    limits = [arm.policy.dead_after for arm in policy.apart]
    return None if None in limits else max(limit for limit in limits if limit is not None)


def _what_it_does(limit: BrokerLimit) -> str:
    if limit.trust is Trust.DECLARED:
        return "the broker dead-letters or deletes a message"
    return (
        f"the broker puts a message into {limit.dead_letter_to}"
        if limit.dead_letter_to
        else "the broker deletes a message"
    )


def _nth(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
