# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds settings of a policy that are valid and yet may not be what was meant: from its reader, and from their effect.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from ..message import Destination, DestinationKind
from ..redaction import redact
from .destinations import MapEntry, PolicyMap
from .formats.diagnostics import Diagnostics, nearest
from .model import RedeliveryPolicy
from .patterns import Pattern

HOT_LOOP = (
    "a message that always fails is tried again at once for ever, thousands of times a second. Give a limit, or a last "
    "delay above 0"
)
NAMING = ("patchbay", "weblogic")  # languages that name each destination: their default is for none of the written ones
LATE = 10**9  # failures after which no back-off changes any more; above every count that a language can express


def findings_of(policies: RedeliveryPolicy | PolicyMap) -> list[str]:
    """Return the findings of policies, each a sentence with its cure; those of the reader come first."""
    if isinstance(policies, RedeliveryPolicy):
        return list(_of_one(policies, None))
    found = list(policies.warnings)
    for entry in policies.entries:
        if entry.kind is None and (kind := _misspelt_kind(entry.pattern)):
            found.append(f"{entry}: a destination of that name. Did you mean {kind}:{entry.pattern.partition(':')[2]}?")
    for entry in _spoken_for(policies):
        exact = Pattern(entry.pattern, policies.syntax).literal
        for kind in (entry.kind,) if entry.kind else ("queue", "topic"):
            source = Destination(entry.pattern, kind) if exact else None
            policy = policies.resolve(entry.pattern, kind) if exact else entry.given
            if isinstance(policy, RedeliveryPolicy):
                found += [f"{entry}: {text}" for text in _of_one(policy, source)]
    if policies.language not in NAMING:
        found += _of_one(policies.default, None)
    return list(dict.fromkeys(found))


def _spoken_for(policies: PolicyMap) -> Iterator[MapEntry]:
    """Yield the entries, without those of destinations that are named only to take the dead letters of others."""
    letters = {
        target.resolve(Destination(entry.pattern, entry.kind or "queue"))
        for entry in policies.entries
        if isinstance(entry.given, RedeliveryPolicy)
        for target in entry.given.places
    }
    for entry in policies.entries:
        silent = isinstance(entry.given, RedeliveryPolicy) and entry.given.version == policies.default.version
        if not (silent and Destination(entry.pattern, entry.kind or "queue") in letters):
            yield entry


def findings_at(source: Destination, policies: PolicyMap) -> list[str]:
    """Return the findings in policies, and in the policy of one source.

    One possible finding is that no entry is for the source.

    A source called `$` stands for any source, which needs no entry.
    """
    found = [*policies.warnings, *_of_one(policies.resolve(source.name, source.kind), None)]
    if source.name != "$" and (text := no_entry_for(source, policies)):
        found.append(". ".join(filter(None, (text, meant_for(source, policies)))))
    return list(dict.fromkeys(found))


def hot_loops(sources: Iterable[Destination], policies: RedeliveryPolicy | PolicyMap) -> list[str]:
    """Return a sentence for each source at which endless retries end in no delay at all."""
    return [f"{one}: {HOT_LOOP}" for one in sources if is_hot_loop(policies.resolve(one.name, one.kind))]


def doubts(sources: Iterable[Destination], policies: RedeliveryPolicy | PolicyMap) -> list[str]:
    """Return what the reader of policies found, and each source that an entry perhaps should match, but does not."""
    found = [] if isinstance(policies, RedeliveryPolicy) else list(policies.warnings)
    for one in sources:
        if meant := meant_for(one, policies):
            found.append(f"{no_entry_for(one, policies)}. {meant}")
    return found


def refuse(findings: Iterable[str], where: str = "", cure: str = "") -> None:
    """Raise one PolicyError that lists all findings, if there are any; `where` is the file that they are in."""
    problems = Diagnostics()
    for text in findings:
        problems.add(redact(text), where=where, cure=cure, code="policy-strict")
    problems.close()


def no_entry_for(source: Destination, policies: RedeliveryPolicy | PolicyMap) -> str:
    """Return a sentence if only the default applies to a source, though there are entries; otherwise an empty text."""
    if isinstance(policies, RedeliveryPolicy) or not policies.entries or policies.matching(source.name, source.kind):
        return ""
    return f"no entry is for {source}, so the default applies"


def meant_for(source: Destination, policies: RedeliveryPolicy | PolicyMap) -> str:
    """Return which entry was perhaps meant for a source without an entry; empty if none is similar."""
    if isinstance(policies, RedeliveryPolicy) or not no_entry_for(source, policies):
        return ""
    other: DestinationKind = "topic" if source.kind == "queue" else "queue"
    if policies.matching(source.name, other):
        return f"There is one for {other}:{source.name}"
    names = [entry.pattern for entry in policies.entries if entry.kind in (None, source.kind)]
    near = nearest(source.name, names, alike=0.8)
    return f"Did you mean {near}?" if near else ""


def _of_one(policy: RedeliveryPolicy, source: Destination | None) -> Iterator[str]:
    """Yield the findings about one policy; `source` None: for a source of any name."""
    if is_hot_loop(policy):
        yield HOT_LOOP
    for target in policy.places:
        known = source or Destination("$", "queue" if target.kind == "same" else target.kind)
        if kind := _misspelt_kind(target.template):
            yield f"its dead letters go to {target}. Did you mean {kind}:{target.template.partition(':')[2]}?"
        if target.resolve(known) == known:
            yield f"its dead letters go to {target}, where they come from. Name another place for them"


def _misspelt_kind(name: str) -> str | None:
    """Return the kind that is meant before the colon of a name, if it is misspelt; else None."""
    head, colon, rest = name.partition(":")
    return nearest(head, ("queue", "topic", "same"), alike=0.7) if colon and rest and "/" not in head else None


def is_hot_loop(policy: RedeliveryPolicy) -> bool:
    """Return whether a message that always fails is never given up, and is in the end retried without a delay."""
    return any(
        not arm.policy.stop.met(LATE, math.inf) and arm.policy.backoff.span(LATE).high == 0 for arm in policy.apart
    )
