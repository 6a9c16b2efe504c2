# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tells which sides of two policies differ when they are played, and which sides a list of losses speaks of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination, DestinationKind
from redeliver_mw.policy import DeadLetter, Decision, Keep, Redeliver, RedeliveryPolicy
from redeliver_mw.policy.formats.unsupported import of_messages
from redeliver_mw.policy.patterns import Pattern

Side = Literal["delays", "end", "expiry", "messages", "rejected", "hardly"]
SIDES: tuple[Side, ...] = ("delays", "end", "expiry", "messages", "rejected", "hardly")
# Need not be listed: a message that its handler rejects, for which no system but ours has a word, and delays that
# differ by less than what is cut from jitter.
LISTED = SIDES[:-2]
FAILURES = (*range(1, 202), 300, 500, 999, 1000, 1001, 2000, 10_000, 10**6)
CUT = 0.001001  # seconds: a system that counts whole milliseconds cuts what jitter adds or takes to one
LONG_AGO = 1e9  # seconds since the first attempt
WORDS: tuple[tuple[str, frozenset[Side]], ...] = (
    (r"the _JMSJCA_ properties|JMS_BEA_RedeliveryLimit|DELIVERY_DATE", frozenset({"messages"})),
    (r"delays |jitter |fractions of a millisecond", frozenset({"delays", "hardly"})),
    (r"expiry |.* for rejected and expired messages", frozenset({"expiry", "rejected"})),
    (r"(?:never )?dead|discard: |[^:]+: only a number of failures can be the end", frozenset({"end"})),
    (r"the target ", frozenset({"end", "expiry", "rejected"})),
    # what has no place at all
    (
        r"a name that |only destinations by |a module names |one string is for |a destination that is not named"
        r"|written as the template|an address has one |\d+ more entries|a star among letters|its overlaps",
        frozenset(SIDES),
    ),
)


class Lost(NamedTuple):
    """Holds one line of a list of losses."""

    line: str
    where: str  # an entry, or nothing
    sides: frozenset[Side]

    def speaks_of(self, name: str, kind: DestinationKind) -> bool:
        if self.where in ("", "default", "all others"):
            return True
        head, colon, pattern = self.where.partition(":")
        if not colon or head not in ("queue", "topic"):
            head, pattern = "", self.where
        return head in ("", kind) and any(_matches(pattern, syntax, name) for syntax in ("activemq", "artemis"))

    @property
    def examples(self) -> tuple[str, ...]:
        """Return names that the line may be about."""
        pattern = self.where.removeprefix("queue:").removeprefix("topic:")
        words = pattern.split(".") if pattern not in ("default", "all others") else ["zz"]
        return tuple(
            ".".join("zz" + (".zz" * more) if word in (">", "#") else "zz" if word == "*" else word for word in words)
            for more in range(5)
        )


def _matches(pattern: str, syntax: Literal["activemq", "artemis"], name: str) -> bool:
    if pattern == name:
        return True
    try:
        return Pattern(pattern, syntax).matches(name)
    except PolicyError:
        return False


def lost_of(line: str) -> Lost:
    """Return what a line says. Raises AssertionError if these tests do not know such a line."""
    for at in [0, *(found.end() for found in re.finditer(r": ", line))]:
        for words, sides in WORDS:
            if re.match(words, line[at:]):
                return Lost(line, line[: max(at - 2, 0)], sides)
    raise AssertionError(f"not known: {line}")


Pairs = dict[tuple[int, int], Side | None]


def differing(
    one: RedeliveryPolicy, other: RedeliveryPolicy, source: Destination, language: str, known: Pairs
) -> Iterator[Side]:
    """Yield the sides that differ for a message of that source. `language` is that of `other`.

    `known` remembers whether the delays of two policies differ, as long as both live.
    """
    pair = id(one), id(other)
    if pair not in known:
        known[pair] = _delays_differ(one, other)
    if (side := known[pair]) is not None:
        yield side
    if _end(one, source) != _end(other, source):
        yield "end"
    if _expired(one, source) != _expired(other, source):
        yield "expiry"
    if of_messages(one, language):
        yield "messages"
    if _told(one.end("rejected"), source) != _told(other.end("rejected"), source):
        yield "rejected"


def _delays_differ(one: RedeliveryPolicy, other: RedeliveryPolicy) -> Side | None:
    if one.backoff == other.backoff and one.stop == other.stop and one.on_dead == other.on_dead:
        return None
    found: Side | None = None
    for failures in FAILURES:
        mine, yours = one.decide(failures), other.decide(failures)
        if not isinstance(mine, Redeliver | Keep) or not isinstance(yours, Redeliver | Keep):
            continue  # that the end differs is another side
        near = abs(mine.base - yours.base) <= 1e-6
        if not near or abs(mine.low - yours.low) > CUT or abs(mine.high - yours.high) > CUT:
            return "delays"
        if (mine.base, mine.low, mine.high) != (yours.base, yours.low, yours.high):
            found = "hardly"
    return found


def _end(policy: RedeliveryPolicy, source: Destination) -> tuple[object, ...]:
    limit = policy.dead_after if policy.on_dead != "keep" else None
    by_time = not isinstance(policy.decide(1, LONG_AGO), Redeliver | Keep) and limit != 1
    how = _told(policy.decide(limit), source) if limit is not None else ()
    return limit, by_time, how


def _expired(policy: RedeliveryPolicy, source: Destination) -> tuple[object, ...]:
    told = _told(policy.expired(), source)
    log = (policy.expiry.action == "log", policy.expiry.log) if told == ("Discard",) else ()
    return *told, policy.expiry.time_to_live, policy.expiry.priority, log


def _told(decision: Decision, source: Destination) -> tuple[object, ...]:
    if isinstance(decision, DeadLetter):
        return "dead-letter", frozenset(target.resolve(source) for target in decision.targets)
    return (type(decision).__name__,)
