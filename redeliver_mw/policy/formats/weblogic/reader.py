# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads WebLogic's JMS module: templates, destinations, and what happens to a message that failed or expired.

Grammar (elements by their local names, so any version's namespace)::

    weblogic-jms := { template | queue | topic | uniform-distributed-queue | uniform-distributed-topic
                      | connection-factory }, each with name="..."
    a template or destination holds, each optional:
        template                       of a destination: the name of the template under it
        sub-deployment-name
        delivery-params-overrides:     redelivery-delay   milliseconds; -1: the consumer's
                                       time-to-live       milliseconds; -1: the sender's; 0: for ever
                                       priority           0 to 9; -1: the sender's
                                       delivery-mode      Persistent | Non-Persistent | No-Delivery
        delivery-failure-params:       redelivery-limit   redeliveries; -1: the sender's
                                       error-destination  the name of a destination
                                       expiration-policy  Discard | Log | Redirect, or None
                                       expiration-logging-policy   ITEM, ITEM, ...
    a template also:  group-params, with sub-deployment-name and error-destination
    distributed-queue, distributed-topic, the weighted ones: the names of their members
    a destination also: jndi-name and local-jndi-name, by which its clients know it
    connection-factory/default-delivery-params/default-redelivery-delay   what a consumer has by default
    ITEM := %header% | %properties% | NAME

A destination's own settings override its template's, one by one; a written -1 counts as set.

Worked example: the template Slow has redelivery-delay 7000 and redelivery-limit 2, the queue Work uses it and has
error-destination WorkErr. On Work, the handler always failing::

    failure 1   again after 7000 ms
    failure 2   again after 7000 ms
    failure 3   to WorkErr; the handler was called three times: a limit counts redeliveries

Without an error destination the message is dropped then, which is a warning. Without a limit the sender's own limit
counts, `JMS_BEA_RedeliveryLimit` on the message (see `with_senders_limit`); without that there is no limit. An expired
message is dropped (Discard, None), logged and dropped, or moved to the error destination with all it has; there it
lives for the error destination's own time-to-live, or for ever, and has the priority of the error destination, if that
has one. One edition of the manual couples the limit to Redirect too; as in the other editions, here only expiry needs
Redirect.

A destination has its policy under its name, and under its JNDI names, unless one of those is the name of another; its
dead letters then go to the JNDI name of the error destination, if that has one. A weighted distributed destination
has the policy of its members.

Refused, as in WebLogic: Redirect without an error destination; an error destination of the other kind of
deployment (uniform distributed or not), or, of a distributed one, of another subdeployment.

The language cannot express: patterns and a default for destinations that are not named, growth, jitter, an end by time,
several targets, `$` inside a name, rules by exception, keeping a message at its limit.

An element that is unknown, or out of place, is a warning; everything else in WebLogic's own schema is skipped. A module
with neither a template nor a destination, and no default delay, is refused.

`strict` refuses those elements, and invalid items of the logging policy, such as `%header` without its second per cent
sign.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ....errors import counted
from ....message import DestinationKind
from ...backoff import LONGEST, Constant
from ...decisions import Target
from ...destinations import MapEntry, PolicyMap
from ...expiry import ALL_HEADERS, ALL_PROPERTIES, HIGHEST, Expiry
from ...model import RedeliveryPolicy
from .. import values
from ..diagnostics import Diagnostics, nearest
from ..schema import tell
from ..xml import Element, parse
from .schema import FAILURE, OVERRIDES, PARTS, SCHEMA

SENDERS_LIMIT = "JMS_BEA_RedeliveryLimit"  # the sender's own limit, a property of the message
KINDS: dict[str, DestinationKind] = {
    "queue": "queue",
    "topic": "topic",
    "uniform-distributed-queue": "queue",
    "uniform-distributed-topic": "topic",
}
MODES = ("Persistent", "Non-Persistent", "No-Delivery")  # the last one means the sender's
WEIGHTED: dict[str, DestinationKind] = {"distributed-queue": "queue", "distributed-topic": "topic"}
JNDI_NAMES = ("jndi-name", "local-jndi-name")
POLICIES = ("None", "Discard", "Log", "Redirect")


@dataclass
class _Place:
    """Holds a template or a destination as it is written."""

    element: Element
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    group: str = ""  # its sub-deployment-name
    groups: dict[str, str] = field(default_factory=dict)  # of a template: error destinations by group

    @property
    def kind(self) -> DestinationKind:
        return KINDS[self.element.name]

    @property
    def distributed(self) -> bool:
        return self.element.name.startswith("uniform-")

    def __str__(self) -> str:
        return f"{self.element.where} {self.name}"


def read(text: str, strict: bool = False) -> PolicyMap:
    """Return the policies of a module.

    Raises PolicyError with line and column if it cannot be read, or is not allowed.
    """
    root, problems = parse(text), Diagnostics()
    modules = root.find("weblogic-jms") or [root]
    elements = [root] if root.name in PARTS else [child for module in modules for child in module.children]
    holds = any(element.name in ("template", *KINDS) or _own_delay(element) for element in elements)
    tell(root, SCHEMA, problems, strict=strict, holds=holds)
    templates: dict[str, _Place] = {}
    for place in _places(elements, ("template",), problems, strict):
        if templates.setdefault(place.name, place) is not place:
            problems.add(
                f"a second template {place.name:.200}",
                where=place.element.where,
                cure="Leave one out",
                code="policy-conflict",
            )
    places: dict[tuple[DestinationKind, str], _Place] = {}
    for place in _places(elements, tuple(KINDS), problems, strict):
        if places.setdefault((place.kind, place.name), place) is not place:
            problems.add(
                f"a second {place.kind} {place.name:.200}",
                where=place.element.where,
                cure="Leave one out",
                code="policy-conflict",
            )
    problems.close()
    delay = _consumers_delay(elements, problems)
    settled = [(place, _settled(place, templates, problems)) for place in places.values()]
    overrides = {(place.kind, place.name): fields for place, fields in settled}
    entries = []
    for place, fields in settled:
        target = _error_destination(place, fields, places, problems)
        policy = _policy(place, fields, delay, target, overrides, problems)
        entries.append(MapEntry(place.name, place.kind, policy))
    entries += _weighted(elements, entries, problems)
    entries += _by_jndi_names(elements, entries, problems)
    problems.close()
    if not delay and not any(place.fields or place.groups for place in (*templates.values(), *places.values())):
        problems.warn("nothing about redelivery in it: everything is tried again at once and for ever")
    elif templates and not entries:
        problems.warn(f"no destination in it uses {', '.join(templates):.200}: everything is tried again for ever")
    return PolicyMap(entries, _never(delay), language="weblogic", native=text, warnings=problems.warnings)


def with_senders_limit(policy: RedeliveryPolicy, limit: int) -> RedeliveryPolicy:
    """Return the policy for a message whose sender set JMS_BEA_RedeliveryLimit to `limit` (-1: no limit).

    The destination's own limit takes precedence, and so does a policy of another language.
    """
    if policy.language != "weblogic" or policy.dead_after is not None or limit < 0:
        return policy
    end: Any = "dead-letter" if policy.targets else "discard"
    return policy.replace(dead_after=limit + 1, on_dead=end, language="weblogic")


def _weighted(elements: list[Element], entries: list[MapEntry], problems: Diagnostics) -> Iterator[MapEntry]:
    """Yield the weighted distributed destinations, each with the policy of its members."""
    policies = {(entry.kind, entry.pattern): cast(RedeliveryPolicy, entry.given) for entry in entries}
    for element in elements:
        kind, name = WEIGHTED.get(element.name), _name(element)
        if kind is None or not name or (kind, name) in policies:
            continue
        parts = element.all(f"{element.name}-member")
        members = [_text(member, "physical-destination-name") or _name(member) for member in parts]
        found = {one.version: one for member in members if (one := policies.get((kind, member)))}
        if len(found) > 1:
            problems.warn(f"{element.where} {name}: its members {', '.join(members):.200} differ; the first one counts")
        for one in list(found.values())[:1]:
            yield MapEntry(name, kind, one)


def _by_jndi_names(elements: list[Element], entries: list[MapEntry], problems: Diagnostics) -> list[MapEntry]:
    """Return the destinations under the names that their clients use, and their error destinations likewise."""
    known = {(entry.kind, entry.pattern): cast(RedeliveryPolicy, entry.given) for entry in entries}
    names: dict[tuple[DestinationKind, str], list[str]] = {}
    for element in elements:
        kind = KINDS.get(element.name) or WEIGHTED.get(element.name)
        if kind is not None:
            names[kind, _name(element)] = list(filter(None, (_text(element, name) for name in JNDI_NAMES)))

    def called(target: Target) -> Target:
        there = names.get((cast(DestinationKind, target.kind), target.template))
        return Target(target.kind, there[0]) if there else target

    found: dict[tuple[DestinationKind, str], MapEntry] = {}
    for (kind, name), aliases in names.items():
        for alias in dict.fromkeys(aliases):
            policy = known.get((kind, name))
            if policy is None or (kind, alias) in known or any(mark in alias for mark in "*>,"):
                continue
            entry = MapEntry(alias, kind, policy.with_places(called))
            first = cast(RedeliveryPolicy, found.setdefault((kind, alias), entry).given)
            if first.version != cast(RedeliveryPolicy, entry.given).version:
                problems.warn(f"{kind} {name}: its JNDI name {alias} is another one's too, whose policy counts")
    return list(found.values())


def _never(delay: int) -> RedeliveryPolicy:
    return RedeliveryPolicy(None, _delay(delay), None, expiry=Expiry("discard"), language="weblogic")


def _delay(milliseconds: int) -> Constant:
    return Constant(min(milliseconds / 1000, LONGEST))


def _places(elements: list[Element], names: tuple[str, ...], problems: Diagnostics, strict: bool) -> Iterator[_Place]:
    for element in elements:
        if element.name not in names:
            continue
        name = _name(element)
        if not name or any(mark in name for mark in "*>,"):
            problems.add(
                f"{name!r:.200} is no name",
                where=element.where,
                cure='Write name="...", without * > ,',
                code="policy-value",
            )
            continue
        place = _Place(element, name, group=_text(element, "sub-deployment-name"))
        _fill(place, "delivery-params-overrides", OVERRIDES, problems, strict)
        _fill(place, "delivery-failure-params", FAILURE, problems, strict)
        for group in element.all("group-params"):
            of = group.attributes.get("sub-deployment-name") or _text(group, "sub-deployment-name")
            place.groups[of] = _text(group, "error-destination")
        yield place


def _fill(place: _Place, block: str, names: tuple[str, ...], problems: Diagnostics, strict: bool) -> None:
    for child in (child for found in place.element.all(block) for child in found.children):
        if child.name in names:
            place.fields[child.name] = _value(child, problems, strict)


def _value(child: Element, problems: Diagnostics, strict: bool) -> object:
    match child.name:
        case "redelivery-delay" | "time-to-live":
            return values.whole(child, problems, -1, values.LONG)
        case "priority":
            return values.whole(child, problems, -1, HIGHEST)
        case "delivery-mode":
            return values.word(child, problems, MODES)
        case "redelivery-limit":
            return values.whole(child, problems, -1, values.INT)
        case "error-destination":
            return values.name(child, problems)
        case "expiration-policy":
            return values.word(child, problems, POLICIES) if child.text else "None"
    return _items(child, problems, strict)


def _items(child: Element, problems: Diagnostics, strict: bool) -> str:
    # The two words for all headers or properties are also written directly after each other.
    items = [item.strip() for item in child.text.replace("%%", "%,%").split(",")]
    for item in items:
        if "%" in item and item.lower() not in (ALL_HEADERS, ALL_PROPERTIES):
            near = nearest(item, (ALL_HEADERS, ALL_PROPERTIES))
            what, cure = f"{item!r:.200} names no field of a message", f"Did you mean {near or ALL_HEADERS}?"
            if strict:
                problems.add(what, where=child.where, cure=cure, code="policy-value")
            else:
                problems.warn(f"{child.where}: {what}, so it logs nothing. {cure}")
    return ",".join(item for item in items if item)


def _consumers_delay(elements: list[Element], problems: Diagnostics) -> int:
    found: dict[int, Element] = {}
    for child in (child for element in elements for child in _own_delay(element)):
        delay = values.whole(child, problems, 0, values.LONG)
        found |= {delay: child} if delay is not None else {}
    if len(found) > 1:
        delays = " and ".join(map(str, found))
        problems.warn(f"connection factories differ in default-redelivery-delay: {delays}; 0 is taken")
    return next(iter(found)) if len(found) == 1 else 0


def _own_delay(factory: Element) -> list[Element]:
    if factory.name != "connection-factory":
        return []
    blocks = factory.all("default-delivery-params")
    return [child for params in blocks for child in params.all("default-redelivery-delay")]


def _settled(place: _Place, templates: Mapping[str, _Place], problems: Diagnostics) -> dict[str, Any]:
    name = _text(place.element, "template")
    if not name:
        return place.fields
    if name not in templates:
        near = problems.nearest(name, templates)
        cure = f"Did you mean {near}?" if near else f'Add <template name="{name:.100}">, or leave it out'
        problems.add(f"there is no template {name!r:.200}", where=str(place), cure=cure, code="policy-reference")
        return place.fields
    template = templates[name]
    grouped = {"error-destination": template.groups[place.group]} if place.group in template.groups else {}
    return {**template.fields, **grouped, **place.fields}


def _error_destination(
    place: _Place,
    fields: Mapping[str, Any],
    places: Mapping[tuple[DestinationKind, str], _Place],
    problems: Diagnostics,
) -> Target | None:
    name = fields.get("error-destination", "")
    if not name:
        return None
    there = places.get((place.kind, name)) or places.get(("queue", name)) or places.get(("topic", name))
    if there is None:
        problems.warn(f"{place}: the error destination {name} is not in this module; it is taken for a queue")
        return Target("queue", name)
    if there.distributed != place.distributed:
        kind = "a uniform distributed" if place.distributed else "a standalone"
        problems.add(
            f"the error destination {name} is of another kind",
            where=str(place),
            cure=f"Name {kind} one",
            code="policy-reference",
        )
    elif there.group != place.group and place.distributed:
        problems.add(
            f"the error destination {name} is in another subdeployment",
            where=str(place),
            cure="Use the same",
            code="policy-reference",
        )
    elif there.group != place.group:
        problems.warn(f"{place}: the error destination {name} is in another subdeployment; is it the same JMS server?")
    return Target(there.kind, name)


def _policy(
    place: _Place,
    fields: Mapping[str, Any],
    delay: int,
    target: Target | None,
    overrides: Mapping[tuple[DestinationKind, str], Mapping[str, Any]],
    problems: Diagnostics,
) -> RedeliveryPolicy:
    limit = fields.get("redelivery-limit", -1)
    own = fields.get("redelivery-delay", -1)
    if limit >= 0 and target is None:
        problems.warn(f"{place}: no error-destination, so a message is dropped after {counted(limit + 1, 'failure')}")
    return RedeliveryPolicy(
        None if limit < 0 else limit + 1,
        _delay(delay if own < 0 else own),
        target,
        "dead-letter" if target else "keep" if limit < 0 else "discard",
        expiry=_expiry(place, fields, target, overrides, problems),
        name=place.name,
        language="weblogic",
    )


def _expiry(
    place: _Place,
    fields: Mapping[str, Any],
    target: Target | None,
    overrides: Mapping[tuple[DestinationKind, str], Mapping[str, Any]],
    problems: Diagnostics,
) -> Expiry:
    policy = fields.get("expiration-policy", "None")
    if policy == "Log":
        return Expiry("log", log=fields.get("expiration-logging-policy", ""))
    if policy != "Redirect":
        return Expiry("discard")
    if target is None:
        cure = "Name one, or use Discard or Log"
        problems.add(
            "expiration-policy Redirect without an error-destination",
            where=str(place),
            cure=cure,
            code="policy-key-missing",
        )
        return Expiry("discard")
    kind: DestinationKind = "topic" if target.kind == "topic" else "queue"
    there = overrides.get((kind, target.template), {})
    if there.get("delivery-mode") == "Non-Persistent":
        problems.warn(f"{place}: messages that are redirected to {target} are persistent all the same")
    life, priority = there.get("time-to-live", -1), there.get("priority", -1)
    return Expiry(
        "redirect",
        target,
        time_to_live=min(life / 1000, LONGEST) if life > 0 else None,
        priority=priority if priority >= 0 else None,
    )


def _name(element: Element) -> str:
    return element.attributes.get("name") or _text(element, "name")


def _text(element: Element, name: str) -> str:
    child = element.first(name)
    return child.text if child is not None else ""
