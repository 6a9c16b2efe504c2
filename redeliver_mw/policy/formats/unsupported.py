# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists what a language cannot express of another's policy, and writes XML. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from ...errors import counted
from ..model import RedeliveryPolicy
from ..stops import AfterFailures

_OF_MESSAGES = {
    "jmsjca": "the _JMSJCA_ properties: a handler cannot set them, and a dead letter does not carry them",
    "weblogic": "JMS_BEA_RedeliveryLimit: a sender's own limit is not looked at, so a message is tried for ever",
    "patchbay": "DELIVERY_DATE: a sender's delivery date is not looked at, so a message is handled at once",
}
_WALKED = 1000  # failures whose delays are added up one by one
_MOST_FAILURES = 1_000_000  # failures that are checked for an end by time
_PLAIN = re.compile(r"[\w.,:/ -]*")  # text that needs no entity
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def unsupported(policy: RedeliveryPolicy) -> list[str]:
    """Return the losses about rules by exception, an end by time, and all targets except the first."""
    lost = []
    if ends_by_time(policy):
        lost.append(without_time(policy))
    for name, rule in (("retry_on", policy.retry_on), ("fatal", policy.fatal), ("ignore", policy.ignore)):
        if rule is not None:
            lost.append(f"{name} {rule}: there are no rules by exception")
    lost += [f"the target {target}: there is one target, {policy.targets[0]}" for target in policy.targets[1:]]
    return lost


def ends_by_time(policy: RedeliveryPolicy) -> bool:
    """Return whether more than a number of failures ends it.

    A kept message is delivered again, whenever that was decided.
    """
    return policy.on_dead != "keep" and not isinstance(policy.stop, AfterFailures) and not policy.stop.met(1, 0.0)


def without_time(policy: RedeliveryPolicy) -> str:
    """Return the sentence about an end by time, for a language that has none, and about its replacement."""
    number = limit(policy)
    if policy.dead_after is not None:
        nearest = f"; the number alone is kept, {counted(policy.dead_after, 'failure')}"
    elif number is not None:
        nearest = f"; the nearest is {counted(number, 'failure')}, which is when that time is over"
    else:
        nearest = "; without it a message is tried for ever"
    return f"{policy.stop}: only a number of failures can be the end{nearest}"


def of_messages(policy: RedeliveryPolicy, target: str) -> list[str]:
    """Return what a message itself tells the system of the policy, and not the target's system.

    WebLogic reads a sender's limit only if the destination has none.
    """
    if policy.language == target or (policy.language == "weblogic" and policy.dead_after is not None):
        return []
    return [_OF_MESSAGES[policy.language]] if policy.language in _OF_MESSAGES else []


def of_redirected(policy: RedeliveryPolicy) -> list[str]:
    """Return what a redirected message loses in a language that gives it endless life and keeps its priority."""
    expiry, lost = policy.expiry, []
    if expiry.time_to_live is not None:
        lost.append(f"expiry redirect for {expiry.time_to_live:g} s: there the message never expires")
    if expiry.priority is not None:
        lost.append(f"expiry redirect with priority {expiry.priority}: there the message keeps its own")
    return lost


def limit(policy: RedeliveryPolicy) -> int | None:
    """Return the F at which a message goes away; None if it never does, like a message that is kept."""
    return None if policy.on_dead == "keep" else last_failure(policy)


def last_failure(policy: RedeliveryPolicy) -> int | None:
    """Return the F that is followed by no delay, or None.

    For a message that is kept, this is the F that is followed by no delay of its own.

    If only time is an end, this is the F at which the time is over if handlers take no time.
    """
    if policy.dead_after is not None:
        return policy.dead_after
    return _by_time(policy) if ends_by_time(policy) else None


def _by_time(policy: RedeliveryPolicy) -> int | None:
    elapsed = last = 0.0
    for failures in range(1, _WALKED):
        if policy.stop.met(failures, elapsed):
            return failures
        last = policy.backoff.span(failures).base
        elapsed += last
    # From here on, as if all delays were as long as the last one.
    later = range(_WALKED, _MOST_FAILURES)
    found = bisect_left(later, True, key=lambda count: policy.stop.met(count, elapsed + (count - _WALKED) * last))
    return later[found] if found < len(later) else None


def sayable(name: str) -> bool:
    """Return whether XML can hold the name unchanged, for a reader that strips blanks from the ends."""
    return bool(name) and name == name.strip() and not _NO_XML.search(name)


def quoted(text: str) -> str:
    """Return the value of an attribute, in its quotes."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else quoteattr(text)


def block(name: str, lines: Iterable[str], /, **attributes: str) -> list[str]:
    """Return an element with these lines in it, indented."""
    opened = name + "".join(f" {key}={quoted(value)}" for key, value in attributes.items())
    inner = [f"  {line}" for line in lines]
    return [f"<{opened}>", *inner, f"</{name}>"] if inner else [f"<{opened}/>"]


def leaf(name: str, value: object) -> str:
    """Return an element with a text in it."""
    return f"<{name}>{escape(str(value))}</{name}>"
