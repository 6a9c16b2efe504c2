# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes policies as `address-settings`. Pure.

Every setting contains all fields that any of them contains, so that nothing is inherited. An address of Artemis 2 has
the name of its queue or topic, and one setting. HornetQ, JBoss Messaging and the server that WildFly embeds put
`jms.queue.` and `jms.topic.` before the names; with those prefixes, queues and topics of the same name can differ. A
policy that keeps a message is written as one that retries for ever: both delay the message and deliver it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from ....message import Destination, DestinationKind
from ...decisions import DeadLetter, Target
from ...destinations import MapEntry, PolicyMap
from ...flatten import REST, apart, flattened, literal, of_kind, translated
from ...model import RedeliveryPolicy
from ...patterns import Pattern
from .. import unsupported, values
from ..format_protocol import Conversion
from .approximation import fitted
from .reader import QUEUE, TOPIC, without_prefix
from .schema import FIELDS

ADDRESS = "DLA"  # the address in front of auto-created queues
_ALWAYS = ("redelivery-delay", "max-redelivery-delay", "max-delivery-attempts")
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")
_PREFIX: dict[DestinationKind, str] = {"queue": QUEUE, "topic": TOPIC}


def write(policies: PolicyMap) -> Conversion:
    """Return the settings of an Artemis 2, and what is lost, entry by entry.

    A native Artemis text is returned unchanged.
    """
    return _written(policies, prefixes=False)


def write_with_prefixes(policies: PolicyMap) -> Conversion:
    """Return the settings with the JMS prefixes of HornetQ before the names."""
    return _written(policies, prefixes=True)


def write_one(policies: PolicyMap) -> Conversion:
    """Return the setting of the only entry of a map: all other addresses keep the broker's own settings."""
    return _written_alone(policies, prefixes=False)


def write_one_with_prefixes(policies: PolicyMap) -> Conversion:
    """Return the setting of the only entry with the JMS prefixes of HornetQ before the name."""
    return _written_alone(policies, prefixes=True)


def _written_alone(policies: PolicyMap, *, prefixes: bool) -> Conversion:
    flat, lost = flattened(policies)
    findings = list(lost)
    return _settings(list(_entries(flat, findings)), prefixes, findings)


def _written(policies: PolicyMap, *, prefixes: bool) -> Conversion:
    if policies.language == "artemis" and policies.native:
        return Conversion(policies.native)
    flat, lost = flattened(policies)
    findings = list(lost)
    entries = list(_entries(flat, findings))
    if not prefixes:
        entries = _addresses([*entries, *_overlaps_of_kinds(entries, flat, findings)], flat, findings)
    if not any(entry.pattern == "#" and (entry.kind is None or not prefixes) for entry in entries):
        entries.insert(0, MapEntry("#", None, flat.default))
    return _settings(_prefixed(entries) if prefixes else entries, prefixes, findings)


def _settings(entries: Iterable[MapEntry], prefixes: bool, findings: list[str]) -> Conversion:
    settings = [_setting(entry, prefixes, findings) for entry in entries]
    used = {name for _, fields in settings for name, value in fields.items() if value != _UNSET[name]}
    lines = []
    for match, fields in settings:
        leaves = [unsupported.leaf(name, fields[name]) for name in FIELDS if name in used or name in _ALWAYS]
        lines += unsupported.block("address-setting", leaves, match=match)
    text = "\n".join(unsupported.block("address-settings", lines)) + "\n"
    return Conversion(text, tuple(dict.fromkeys(findings)), names_nothing=not settings)


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


def _prefixed(entries: Iterable[MapEntry]) -> Iterator[MapEntry]:
    # Each entry is for one kind, except for the one that applies where no other does.
    own = {(entry.pattern, entry.kind) for entry in entries}
    for entry in entries:
        if entry.kind is not None or entry.pattern == "#":
            yield entry
        else:
            # A match that is written twice counts once.
            yield from (replace(entry, kind=kind) for kind in _KINDS if (entry.pattern, kind) not in own)


def _overlaps_of_kinds(entries: list[MapEntry], flat: PolicyMap, lost: list[str]) -> Iterator[MapEntry]:
    """Yield the overlaps of a pattern for queues with one for topics: an address has no kind, so both may match it."""
    patterns = {entry.pattern: MapEntry(entry.pattern, None, entry.given) for entry in entries}
    if len({entry.kind for entry in entries if entry.kind is not None}) < len(_KINDS):
        return
    parts = apart(list(patterns.values()), "artemis")
    if parts is None:
        lost += [f"{entry}: its overlaps with other patterns are too many" for entry in entries]
    for part in parts or ():
        if part.pattern not in patterns:
            yield from (MapEntry(part.pattern, kind, flat.resolve(part.name, kind)) for kind in _KINDS)


def _addresses(entries: list[MapEntry], flat: PolicyMap, lost: list[str]) -> list[MapEntry]:
    """Return one entry for each pattern: that of queues, if there is one."""
    by_pattern: dict[str, dict[DestinationKind | None, MapEntry]] = {}
    for entry in entries:
        by_pattern.setdefault(entry.pattern, {})[entry.kind] = entry
    found = []
    for pattern, given in by_pattern.items():
        chosen = given.get("queue") or given.get(None) or given["topic"]
        others: list[DestinationKind] = []
        for kind in _KINDS:
            own = given.get(kind) or given.get(None)
            policy = own.given if own else flat.resolve(_example(pattern, flat), kind)
            if policy == chosen.given:
                continue
            policy = of_kind(cast(RedeliveryPolicy, policy), kind, literal(pattern, "artemis"))
            if not _is_written_alike(replace(chosen, kind=kind, given=policy), chosen):
                others.append(kind)
            elif own or pattern == REST["artemis"]:  # what it loses, or the default loses, is reported all the same
                _fields(replace(own or replace(chosen, given=policy), kind=kind), False, lost)
        only = next((kind for kind in _KINDS if kind not in others), None) if others else None
        chosen = replace(chosen, kind=only)
        lost += [
            f"{kind}:{pattern}: an address has one setting, here that of {chosen}; prefixes would tell them apart"
            for kind in others
        ]
        found.append(chosen)
    return found


def _is_written_alike(entry: MapEntry, chosen: MapEntry) -> bool:
    """Return whether two policies are written in the same way, as far as that makes a difference."""
    mine, other = (_fields(one, False, []) for one in (entry, chosen))
    return _evened(mine, entry.pattern) == _evened(other, entry.pattern)


def _evened(fields: dict[str, Any], pattern: str) -> dict[str, Any]:
    # If there is only one address, a name made of a prefix and a suffix is as good as the full name.
    fields = dict(fields)
    for which in ("dead-letter", "expiry"):
        if fields[f"auto-create-{which}-resources"] == "true" and Pattern(pattern, "artemis").literal:
            before, after = fields[f"{which}-queue-prefix"], fields[f"{which}-queue-suffix"]
            fields[f"{which}-address"] = before + pattern + after
        for part in ("auto-create-{}-resources", "{}-queue-prefix", "{}-queue-suffix"):
            if Pattern(pattern, "artemis").literal:
                fields.pop(part.format(which))
    # A delay that does not grow, or is at its cap from the first failure on, is the same after each failure.
    delay, cap = fields["redelivery-delay"], fields["max-redelivery-delay"]
    multiplier = fields["redelivery-delay-multiplier"]
    if delay > 0 and (fields["redelivery-collision-avoidance-factor"] or not (multiplier == 1 or cap <= delay)):
        return fields
    if delay > 0 and multiplier < 1 and cap > 0:
        return fields
    always = max(min(delay, cap), 0)
    alike = {"redelivery-delay": always, "max-redelivery-delay": always, "redelivery-delay-multiplier": 1.0}
    return fields | alike | {"redelivery-collision-avoidance-factor": 0.0}


def _example(pattern: str, flat: PolicyMap) -> str:
    # A name that no narrower pattern matches: it has words that are in none of them, and more of them.
    words = [word for entry in flat.entries for word in entry.pattern.split(".")]
    spare = "x" * (1 + max(map(len, words)))
    longest = max(entry.pattern.count(".") for entry in flat.entries) + 2
    words_of_name = []
    for word in pattern.split("."):
        words_of_name += [spare] * longest if word == REST["artemis"] else [spare if word == "*" else word]
    return ".".join(words_of_name)


def _setting(entry: MapEntry, prefixes: bool, lost: list[str]) -> tuple[str, dict[str, Any]]:
    prefix = _PREFIX[entry.kind] if prefixes and entry.kind else ""
    return prefix + entry.pattern, _fields(entry, prefixes, lost)


def _fields(entry: MapEntry, prefixes: bool, lost: list[str]) -> dict[str, Any]:
    policy = entry.given
    assert isinstance(policy, RedeliveryPolicy)  # flattened() returns such entries
    growth, missing = fitted(policy)
    missing += [*unsupported.unsupported(policy), *unsupported.of_messages(policy, "artemis")]
    end = unsupported.limit(policy)
    if end is not None and end > values.INT:
        missing.append(f"dead after {end} failures: at most {values.INT} can be written")
        end = values.INT
    fields = dict(_UNSET) | {
        "redelivery-delay": growth.delay,
        "redelivery-delay-multiplier": growth.multiplier,
        "redelivery-collision-avoidance-factor": growth.factor,
        "max-redelivery-delay": growth.cap,
        "max-delivery-attempts": -1 if end is None else end,
    }
    if policy.targets:
        fields |= _address(policy.targets[0], "dead-letter", entry, prefixes, missing)
    expired = policy.expired()
    if isinstance(expired, DeadLetter):
        fields |= _address(expired.targets[0], "expiry", entry, prefixes, missing)
    if policy.expiry.action == "log":
        missing.append("expiry log: an expired message is dropped and not logged")
    missing += unsupported.of_redirected(policy)
    lost += [f"{entry}: {what}" for what in missing]
    return fields


def _address(target: Target, which: str, entry: MapEntry, prefixes: bool, missing: list[str]) -> dict[str, Any]:
    kind = entry.kind
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
    if prefixes:
        return {f"{which}-address": _PREFIX[ours] + name}
    if ours == "topic":
        missing.append(f"the target {target}: an address, which is taken for a queue; prefixes would tell")
    if without_prefix(name) != (name, None):
        missing.append(f"the target {target}: its name is read as one with a prefix")
    return {f"{which}-address": name}


def _bare(text: str) -> bool:
    return not text or unsupported.sayable(text)
