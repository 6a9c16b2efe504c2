# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Policies as `address-settings`. Pure.

Every setting says all that any of them says, so that nothing is inherited. Where queues and topics differ, names
are written as HornetQ's JMS names, `jms.queue.NAME` and `jms.topic.NAME`: addresses have no other way to tell them
apart. A message that is kept is written as one that is tried for ever: both rest, and come again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....message import Destination, DestinationKind
from ...decisions import DeadLetter, Target
from ...destinations import MapEntry, PolicyMap
from ...flatten import flattened, translated
from ...model import RedeliveryPolicy
from ...patterns import Pattern
from .. import unsupported, values
from ..format_protocol import Conversion
from .approximation import fitted
from .reader import QUEUE, TOPIC
from .schema import FIELDS

ADDRESS = "DLA"  # what auto-created queues stand behind
_ALWAYS = ("redelivery-delay", "max-redelivery-delay", "max-delivery-attempts")
_PREFIX: dict[DestinationKind, str] = {"queue": QUEUE, "topic": TOPIC}


def write(policies: PolicyMap) -> Conversion:
    """The settings, and what is lost, entry by entry. Artemis' own text is given back as it was."""
    if policies.language == "artemis" and policies.native:
        return Conversion(policies.native)
    flat, lost = flattened(policies)
    told = list(lost)
    entries = list(_entries(flat, told))
    if not any(entry.pattern == "#" and entry.kind is None for entry in entries):
        entries.insert(0, MapEntry("#", None, flat.default))
    jms = any(entry.kind is not None for entry in entries)
    own = {(entry.pattern, entry.kind) for entry in entries}
    settings = [(match, _fields(entry, kind, told)) for entry in entries for match, kind in _matches(entry, jms, own)]
    used = {name for _, fields in settings for name, value in fields.items() if value != _UNSET[name]}
    lines = []
    for match, fields in settings:
        leaves = [unsupported.leaf(name, fields[name]) for name in FIELDS if name in used or name in _ALWAYS]
        lines += unsupported.block("address-setting", leaves, match=match)
    return Conversion("\n".join(unsupported.block("address-settings", lines)) + "\n", tuple(dict.fromkeys(told)))


_UNSET: dict[str, object] = {
    "redelivery-delay-multiplier": 1.0,
    "redelivery-collision-avoidance-factor": 0.0,
    "dead-letter-address": "",
    "expiry-address": "",
    "auto-create-dead-letter-resources": "false",
    "auto-create-expiry-resources": "false",
    "dead-letter-queue-prefix": "DLQ.",
    "dead-letter-queue-suffix": "",
    "expiry-queue-prefix": "EXP.",
    "expiry-queue-suffix": "",
    "redelivery-delay": None,
    "max-redelivery-delay": None,
    "max-delivery-attempts": None,
}


def _entries(flat: PolicyMap, lost: list[str]) -> Iterator[MapEntry]:
    for entry in flat.entries:
        pattern = translated(entry.pattern, flat.syntax, "artemis")
        if pattern is None or not unsupported.sayable(pattern) or pattern.startswith("jms.") or "::" in pattern:
            lost.append(f"{entry}: a name that cannot be a match here")
        else:
            yield MapEntry(pattern, entry.kind, entry.given)


def _matches(
    entry: MapEntry, jms: bool, own: set[tuple[str, DestinationKind | None]]
) -> Iterator[tuple[str, DestinationKind | None]]:
    if not jms or (entry.kind is None and entry.pattern == "#"):
        yield entry.pattern, None
        return
    kinds: tuple[DestinationKind, ...] = ("queue", "topic") if entry.kind is None else (entry.kind,)
    for kind in kinds:
        if entry.kind is not None or (entry.pattern, kind) not in own:  # a match that stands twice counts once
            yield _PREFIX[kind] + entry.pattern, kind


def _fields(entry: MapEntry, kind: DestinationKind | None, lost: list[str]) -> dict[str, Any]:
    policy = entry.given
    assert isinstance(policy, RedeliveryPolicy)  # so flattened() has it
    growth, missing = fitted(policy)
    missing += unsupported.unsupported(policy)
    end = unsupported.limit(policy)
    if end is not None and end > values.INT:
        missing.append(f"dead after {end} failures: at most {values.INT} can be said")
        end = values.INT
    fields = dict(_UNSET) | {
        "redelivery-delay": growth.delay,
        "redelivery-delay-multiplier": growth.multiplier,
        "redelivery-collision-avoidance-factor": growth.factor,
        "max-redelivery-delay": growth.cap,
        "max-delivery-attempts": -1 if end is None else end,
    }
    if policy.targets:
        fields |= _address(policy.targets[0], "dead-letter", entry, kind, missing)
    expired = policy.expired()
    if isinstance(expired, DeadLetter):
        fields |= _address(expired.targets[0], "expiry", entry, kind, missing)
    if policy.expiry.action == "log":
        missing.append("expiry log: an expired message is dropped and not logged")
    if policy.expiry.time_to_live is not None:
        missing.append("expiry redirect: there the message never expires")
    lost += [f"{entry}: {what}" for what in missing]
    return fields


def _address(
    target: Target, which: str, entry: MapEntry, kind: DestinationKind | None, missing: list[str]
) -> dict[str, Any]:
    if target.kind == "same" and kind is None:
        missing.append(f"the target {target}: is taken for a queue's")
    ours: DestinationKind = (kind or "queue") if target.kind == "same" else target.kind
    name = target.template
    before, dollar, after = name.partition("$")
    if dollar and ours == "queue" and "$" not in after and _bare(before) and _bare(after):
        auto = {f"{which}-address": ADDRESS, f"auto-create-{which}-resources": "true"}
        return auto | {f"{which}-queue-prefix": before, f"{which}-queue-suffix": after}
    if dollar and Pattern(entry.pattern, "artemis").literal:
        name = target.resolve(Destination(entry.pattern, ours)).name
    if "$" in name or not unsupported.sayable(name):
        name = "".join(part for part in name.replace("$", "").split() if unsupported.sayable(part)) or ADDRESS
        missing.append(f"the target {target}: written as {name}")
    return {f"{which}-address": name if ours == "queue" and not name.startswith("jms.") else _PREFIX[ours] + name}


def _bare(text: str) -> bool:
    return not text or unsupported.sayable(text)
