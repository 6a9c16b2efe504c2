# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks sources and dead-letter targets: whether they exist, and whether they keep what is sent to them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ..adapter.capabilities import Capabilities
from ..adapter.inspection import QueueFacts
from ..message import Destination
from ..policy import RedeliveryPolicy
from .finding import Finding, FindingStatus, not_known, ok, seconds, warning, wrong

Role = Literal["source", "target"]
COPIES = {"source": "retry copies", "target": "dead letters"}


def check_source(facts: QueueFacts) -> Iterator[Finding]:
    """Yield the findings about a queue that is consumed; the caller has refused one that does not exist."""
    subject = str(facts.destination)
    if facts.exists is None:
        yield not_known("source", subject, f"whether it exists is not known: {facts.why}", facts.why_cure)
    else:
        yield ok("source", subject, f"exists{f', {facts.type}' if facts.type else ''}")
    found = [*_kept(facts, "source"), _source_ttl(facts), *_own_dead_letters(facts)]
    yield from _seen(facts, found)


def check_target(facts: QueueFacts, sources: Sequence[Destination], *, made: str) -> Iterator[Finding]:
    """Yield the findings about a queue that dead letters go to. `made`: who makes the queue if it does not exist."""
    subject = str(facts.destination)
    if facts.exists is None:
        yield not_known("dead-letter-target", subject, f"whether it exists is not known: {facts.why}", facts.why_cure)
        return
    if not facts.exists:
        yield warning(
            "dead-letter-target-missing",
            subject,
            f"it does not exist{made}",
            "Declare it, or let an App make it: declare='own', which is the default",
        )
        return
    yield ok("dead-letter-target", subject, f"exists{f', {facts.type}' if facts.type else ''}")
    found = [*_kept(facts, "target"), _target_ttl(facts), _cycle(facts, sources), *_own_dead_letters(facts)]
    yield from _seen(facts, found)


def check_topic(target: Destination, capabilities: Capabilities, refused: str | None) -> Finding:
    """Return whether a topic keeps dead letters. `refused`: the adapter's objection; None: it sees no subscribers."""
    subject = str(target)
    cure = "Name a queue, or subscribe a durable consumer before the first dead letter"
    if refused is None:
        return warning(
            "dead-letter-target-topic", subject, "a topic keeps a dead letter only for durable subscribers", cure
        )
    if refused:
        return wrong("dead-letter-target-topic", subject, refused, cure)
    return ok("dead-letter-target", subject, f"{capabilities.dialect} takes what is sent to this topic")


def check_policy_targets(source: Destination, policy: RedeliveryPolicy) -> Iterator[Finding]:
    """Yield what the policy itself says about the dead letters of a source."""
    subject = str(source)
    targets = [target.resolve(source) for target in policy.places]
    if source in targets:
        yield wrong(
            "dead-letter-loop",
            subject,
            "the policy sends its dead letters to the source itself, and an App refuses to start with that",
            "Give the policy another dead_letter target",
        )
    if not targets:
        ends = {"discard": "discards a dead message", "keep": "keeps a dead message, and tries it for ever"}
        yield ok("dead-letter-target", subject, f"the policy {ends.get(policy.on_dead, 'has no target')}")


def _seen(facts: QueueFacts, found: Sequence[Finding]) -> Iterator[Finding]:
    """Yield what was found; if not all settings are known, only problems: that there is no problem was not seen."""
    if facts.why and facts.exists:
        yield not_known("queue-settings", str(facts.destination), facts.why, facts.why_cure)
    for finding in found:
        if not facts.why or finding.status is not FindingStatus.OK:
            yield finding


def _kept(facts: QueueFacts, role: Role) -> Iterator[Finding]:
    """Yield whether the queue keeps what is sent to it: durable, lasting, unfiltered, unlimited."""
    subject, copies = str(facts.destination), COPIES[role]
    if facts.misses is not None:
        yield wrong(
            "copies-lost", subject, f"{copies} that are sent here are lost: {facts.misses.spelled}", facts.misses.change
        )
    else:
        yield ok("copy-loss", subject, "it takes every message that is sent to it")
    if facts.durable is not None:
        yield wrong(
            "queue-not-durable",
            subject,
            f"a restart of the broker deletes the queue, with all {copies} in it ({facts.durable.spelled})",
            facts.durable.change,
        )
    elif facts.vanishes is not None:
        yield (wrong if role == "target" else warning)(
            "queue-vanishes",
            subject,
            f"the broker deletes the {copies} in it by itself ({facts.vanishes.spelled})",
            facts.vanishes.change,
        )
    else:
        yield ok("durability", subject, "durable, and deleted by nobody but people")
    yield _length(facts, role)


def _length(facts: QueueFacts, role: Role) -> Finding:
    subject, limit = str(facts.destination), facts.length
    if limit is None:
        return ok("length-limit", subject, "no limit")
    if limit.overflow == "drops":
        return wrong(
            "length-limit-drops",
            subject,
            f"when it is full the broker confirms {COPIES[role]} and deletes messages ({limit.spelled})",
            f"Take the limit away, or let a full queue refuse. {limit.change}",
        )
    does = "refuses" if limit.overflow == "refuses" else "blocks"
    if role == "source":
        return ok("length-limit", subject, f"when it is full it {does} retry copies, which then wait ({limit.spelled})")
    return warning(
        "length-limit-refuses",
        subject,
        f"when it is full it {does} dead letters, and the source pauses until there is room ({limit.spelled})",
        f"Take the limit away, or watch how full it is. {limit.change}",
    )


def _source_ttl(facts: QueueFacts) -> Finding:
    subject, ttl = str(facts.destination), facts.ttl
    if ttl is None:
        return ok("time-to-live", subject, "messages wait in it for as long as need be")
    end = f"moves a message ({facts.expires_to})" if facts.expires_to else "deletes a message"
    return warning(
        "source-ttl",
        subject,
        f"the broker {end} that has waited here for {seconds(ttl.value)}, also between two attempts ({ttl.spelled})",
        f"Take the time to live away, or make it longer than the source may stand still. {ttl.change}",
    )


def _target_ttl(facts: QueueFacts) -> Finding:
    subject, ttl = str(facts.destination), facts.ttl
    if ttl is None:
        return ok("time-to-live", subject, "dead letters stay until somebody takes them")
    end = "moves" if facts.expires_to else "deletes"
    return wrong(
        "target-ttl",
        subject,
        f"the broker {end} a dead letter after {seconds(ttl.value)} ({ttl.spelled})",
        f"Take the time to live away. {ttl.change}",
    )


def _cycle(facts: QueueFacts, sources: Sequence[Destination]) -> Finding:
    subject = str(facts.destination)
    names = {source.subscription or source.name: source for source in (*sources, facts.destination)}
    back = next((name for name in facts.onward if name in names), None)
    if back is None:
        return ok("dead-letter-cycle", subject, "the broker moves no dead letter back")
    own = facts.own_dead_letters
    moves = facts.ttl or facts.length or (facts.limit.returns is not None or None)
    return (wrong if moves else warning)(
        "dead-letters-come-back",
        subject,
        f"the broker itself moves a dead letter that expires, or is rejected here, to {names[back]} "
        f"({own.spelled if own is not None else facts.expires_to})",
        f"Let nothing lead from a dead-letter queue back to a source. {own.change if own is not None else ''}".strip(),
    )


def _own_dead_letters(facts: QueueFacts) -> Iterator[Finding]:
    own, subject = facts.own_dead_letters, str(facts.destination)
    if own is None:
        return
    if own.unconfirmed is not None:
        yield wrong(
            "dead-letter-strategy-without-effect",
            subject,
            f"{own.unconfirmed.spelled}: the broker accepts that, and moves its dead letters at most once: one whose "
            "target is away or full at this moment is lost",
            f"Set overflow to reject-publish beside it; a quorum queue needs no limit for that. "
            f"{own.unconfirmed.change}",
        )
    if own.lost:
        yield wrong(
            "broker-dead-letters-lost",
            subject,
            f"what the broker itself dead-letters here is lost: {own.lost} ({own.spelled})",
            f"Make that target, or name another one. {own.change}",
        )
    elif not own.known:
        yield not_known("broker-dead-letters", subject, f"the way behind {own.spelled} cannot be followed")
    else:
        yield ok("broker-dead-letters", subject, f"kept ({own.spelled})")
