# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a policy as a redelivery string of JMSJCA: a table of delays in milliseconds, and one end. Pure.

The string acts when the next delivery arrives, and `read` returns such policies; a decision at the failure itself has
the same result, so this is no loss. A policy that keeps a message is written in the same way as one that retries for
ever: both delay the message and deliver it again.
"""

from __future__ import annotations

from typing import cast

from ...destinations import PolicyMap
from ...expiry import Expiry
from ...flatten import REST, flattened, leaves_nothing, literal, of_kind, single
from ...model import RedeliveryPolicy
from .. import delay_table
from ..format_protocol import Conversion
from ..unsupported import ends_by_time, limit, of_messages, of_redirected, without_time
from .reader import LARGEST_COUNT

_SHOWN = 20  # entries of a map that are named one by one


def write(policies: PolicyMap) -> Conversion:
    """Return the string for the default, and what is lost: everything beyond a table of delays, one end and one target.

    A string that was JMSJCA's own is returned unchanged.
    """
    lost: list[str] = []
    policy = _one(policies, lost)
    if policy.language == "jmsjca":  # even if it is empty
        return Conversion(policy.native, tuple(lost))
    text, unsaid = _text_of(policy)
    # An empty string is a policy, but not if it is only what remains of entries that cannot be expressed.
    return Conversion(text, (*lost, *unsaid), names_nothing=not text and bool(lost))


def _text_of(policy: RedeliveryPolicy) -> tuple[str, tuple[str, ...]]:
    lost = _unsaid(policy)
    return "; ".join([*_delays(policy, lost), *_end(policy, lost)]), tuple(lost)


def _one(policies: PolicyMap, lost: list[str]) -> RedeliveryPolicy:
    flat, missing = flattened(policies)
    one = single(flat)
    base, whose = _widest(flat)
    if one is None:
        for entry in flat.entries:
            # A target of the source's kind is known if the entry is for one kind only.
            here = base if entry.kind is None else of_kind(base, entry.kind, literal(entry.pattern, flat.syntax))
            text, unsaid = _text_of(here)
            own, more = _text_of(cast(RedeliveryPolicy, entry.given))
            if own != text:
                missing.append(f"{entry}: one string is for every destination, and has {whose}")
            elif more != unsaid:
                missing += [f"{entry}: {what}" for what in more]
    lost += missing[:_SHOWN]
    if len(missing) > _SHOWN:
        lost.append(f"{len(missing) - _SHOWN} more entries")
    return one or base


def _widest(flat: PolicyMap) -> tuple[RedeliveryPolicy, str]:
    """Return the policy of most destinations: the default, or, if that is never used, the entry for all of them."""
    if leaves_nothing(flat):
        for entry in flat.entries:
            if entry.pattern == REST[flat.syntax] and entry.kind != "topic":
                return cast(RedeliveryPolicy, entry.given), f"that of {entry}"
    return flat.default, "the default"


def _unsaid(policy: RedeliveryPolicy) -> list[str]:
    lost = []
    if ends_by_time(policy):
        lost.append(without_time(policy))
    for name, rule in (("retry_on", policy.retry_on), ("fatal", policy.fatal), ("ignore", policy.ignore)):
        if rule is not None:
            lost.append(f"{name} {rule}: there are no rules by exception")
    endless = limit(policy) is None and policy.on_dead != "keep"
    if endless:
        end = ", ".join(map(str, policy.targets)) or policy.on_dead
        lost.append(f"{end} for rejected and expired messages: a string in which no failure is the last has no end")
    elif policy.expiry.action == "log" or policy.expired() != Expiry().decide(policy.targets):
        lost.append(f"expiry {policy.expiry.action}: an expired message goes where a dead one goes")
    else:
        lost += of_redirected(policy)
    lost += of_messages(policy, "jmsjca")
    if not endless:
        lost += [f"the target {target}: there is one target, {policy.targets[0]}" for target in policy.targets[1:]]
    return lost


def _delays(policy: RedeliveryPolicy, lost: list[str]) -> list[str]:
    table, missing = delay_table.delay_table(policy)
    lost += missing
    inexact = [count for count, seconds in table if not delay_table.whole_milliseconds(seconds)]
    if inexact:
        lost.append(f"fractions of a millisecond, from failure {inexact[0]} on")
    entries, last = [], 0
    for count, seconds in table:
        milliseconds = round(seconds * 1000)
        if milliseconds != last and count <= LARGEST_COUNT:
            entries.append(f"{count}:{milliseconds}")
            last = milliseconds
    return entries


def _end(policy: RedeliveryPolicy, lost: list[str]) -> list[str]:
    count = limit(policy)
    if count is None:
        return []
    if count > LARGEST_COUNT:
        lost.append(f"dead after {count} failures: at most {LARGEST_COUNT} can be written")
        count = LARGEST_COUNT
    if policy.on_dead == "discard":
        return [f"{count}:delete"]
    target = policy.targets[0]
    name = target.template
    if ";" in name:
        lost.append(f"the target {target}: a semicolon ends an entry")
        name = name.replace(";", "_")
    blank = " " if name[:1].isspace() else ""  # the first blank after the colon does not belong to the name
    return [f"{count}:move({target.kind}:{blank}{name})"]
