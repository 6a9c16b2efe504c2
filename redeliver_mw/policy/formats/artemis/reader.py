# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the `address-settings` of Artemis, HornetQ and JBoss Messaging 2.

Grammar (elements by their local names, anywhere in a file)::

    address-setting  match="PATTERN"; inside it, each at most once and each optional:
        redelivery-delay                        milliseconds; 0 or less is none            default 0
        redelivery-delay-multiplier             a number, 0 or more; fractions work        default 1
        redelivery-collision-avoidance-factor   jitter, a number from 0 to 1               default 0
        max-redelivery-delay                    milliseconds                               default 10 x redelivery-delay
        max-delivery-attempts                   failures; 0 or less is never               default 10
        dead-letter-address, expiry-address     a name; an empty one is none               default none
        auto-create-dead-letter-resources, auto-create-expiry-resources   true or false    default false
        dead-letter-queue-prefix, -suffix       default `DLQ.` and empty
        expiry-queue-prefix, -suffix            default `EXP.` and empty
    PATTERN := words with dots between; `*` is one word, `#` at the end is any number of them

All settings whose pattern matches an address count, field by field: the closest pattern that sets a field wins. A
pattern without wildcards comes before one with `*`, and `*` before `#`; of several with `#` the longer text comes
first. If those are equally long, Artemis takes either, by the hash of their texts; here the later one counts, with a
warning. Two settings with the same pattern are not merged: Artemis ignores the later one, HornetQ the earlier one, and
a file with HornetQ's names is treated in the same way. A queue `ADDRESS::QUEUE` has the settings of its address.

WildFly's `standalone.xml` has the fields as attributes of `<address-setting name="PATTERN">`, and the multiplier as
`redelivery-multiplier`; the other subsystems are skipped.

HornetQ and JBoss Messaging write JMS names as `jms.queue.NAME` and `jms.topic.NAME`; that prefix is removed, here and
in the addresses, and narrows a setting to queues or topics.

Worked example: `shop.#` has dead-letter-address DLA, max-delivery-attempts 4, redelivery-delay 2000, multiplier 3,
max-redelivery-delay 9000; `shop.vip` has max-delivery-attempts -1. On the queue `shop.orders`, always failing::

    failure 1   again after 2000 ms
    failure 2   again after 6000 ms
    failure 3   again after 9000 ms: 18000, cut to the maximum; jitter, if there were any, comes before the cut
    failure 4   to the queue `DLA`; the handler was called four times

On `shop.vip` the timeline is the same up to failure 3, and then again after 9000 ms for ever.

Without a dead-letter address a message that has failed too often is dropped, as those brokers do; each such pattern is
a warning. With auto-created resources the broker moves the message through the address to a queue of the source's own,
`DLQ.<source>`; here the message is sent to that queue.

The file that `<xi:include href="FILE">` names counts as written in its place: see `includes`.

`broker.properties` has the same settings, in Java's syntax: `addressSettings.PATTERN.FIELD=VALUE`; see `properties`.

`persist-delivery-count-before-delivery` in the same file is a warning: its counterpart is the application's
`crash_safe`. Everything else in Artemis' own schema is skipped; any other element, and one out of place, is a warning,
or with `strict` an error. A file without an `address-setting` is refused.

The language cannot express: an end by time, a table of delays, several targets, `$` inside a name, rules by exception,
keeping a message, logging an expired one.

`strict` refuses max-delivery-attempts 0 and below -1: the manual knows only -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, combinations, islice, product
from typing import Any, cast

from ....errors import PolicyError, counted
from ....message import DestinationKind
from ...artemis_delays import ArtemisDelays
from ...backoff import Backoff, Constant
from ...decisions import Target
from ...destinations import MapEntry, PolicyMap
from ...expiry import Expiry
from ...model import RedeliveryPolicy
from ...patterns import Pattern, pattern_of, precedence_key
from .. import values
from ..diagnostics import Diagnostics, nearest
from ..schema import XmlSchema, tell
from ..xml import Element, parse
from .includes import Includes, TextOf
from .properties import SETTINGS, read_properties
from .schema import ARTEMIS, COUNTED_BEFORE, DELAYS, FIELDS, FLAGS, HORNETQ, NUMBERS, WILDFLY

ATTEMPTS = 10  # deliveries, if no setting defines a number
QUEUE, TOPIC = "jms.queue.", "jms.topic."
_ANOTHER_NAME = "Did you mean <address-setting>?"
PAIRS = 20_000  # compared pairs of patterns of equal rank, so that a large file is read in bounded time


def read(text: str, strict: bool = False) -> PolicyMap:
    """Return the policies of a text with `address-setting` elements. Raises PolicyError with line and column."""
    return read_with_includes(text, strict, None)


def read_with_includes(text: str, strict: bool, text_of: TextOf | None) -> PolicyMap:
    """Return the policies as `read` does, with the texts of included files."""
    if not text.lstrip().lstrip("\ufeff").lstrip().startswith("<"):
        return _read_properties(text, strict)
    root, problems = parse(text), Diagnostics()
    Includes(text_of, problems).expand(root)
    problems.close()
    settings = [_as_elements(element) for element in root.find("address-setting")]
    schema = _schema_of(root)
    tell(root, schema, problems, strict=strict, holds=bool(settings))
    for element in root.find("address-setting"):
        _unknown_attributes(element, schema, problems, strict)
    _settings_by_another_name(root, problems, strict)
    entries = _entries(settings, problems, strict)
    for element in root.find(COUNTED_BEFORE):
        _counted_before(element, problems)
    problems.close()
    return _policies(entries, text, problems)


def _read_properties(text: str, strict: bool) -> PolicyMap:
    problems = Diagnostics()
    found = read_properties(text, problems, strict=strict)
    if not found.settings:
        cure = f"Write {SETTINGS}.NAME.maxDeliveryAttempts=5, or put dots of the name between quotes"
        problems.add("no address setting of Artemis in it", cure=cure, code="policy-not-recognized")
    entries = _entries(found.settings, problems, strict)
    for element in found.counted_before:
        _counted_before(element, problems)
    problems.close()
    return _policies(entries, text, problems)


def _entries(settings: list[Element], problems: Diagnostics, strict: bool) -> list[MapEntry]:
    jms = any(element.attributes.get("match", "").startswith("jms.") for element in settings)
    entries: dict[tuple[str, DestinationKind | None], MapEntry] = {}
    for element in settings:
        entry = _entry(element, problems, strict)
        if entry is None:
            continue
        key = entry.pattern, entry.kind
        if key in entries:
            # Observed on Artemis 2.44, which logs AMQ222301; HornetQ puts each into a map without logging.
            what = "replaces the earlier" if jms else "is ignored"
            problems.warn(f"{element.where}: {entry} stands there twice; the later one {what}")
        if jms or key not in entries:
            entries.pop(key, None)
            entries[key] = entry
    return list(entries.values())


def _counted_before(element: Element, problems: Diagnostics) -> None:
    if values.flag(element, problems):
        problems.warn(f"{element.where}: counts that survive a crash are the application's: set crash_safe=True")


def _policies(entries: list[MapEntry], text: str, problems: Diagnostics) -> PolicyMap:
    warnings = (*problems.warnings, *_ties(entries), *_drops(entries))
    return PolicyMap(
        entries,
        build({}),
        syntax="artemis",
        match="merge",
        build=build,
        language="artemis",
        native=text,
        warnings=warnings,
    )


def build(fields: Mapping[str, Any]) -> RedeliveryPolicy:
    """Return the policy that merged fields make. Raises PolicyError if they cannot."""
    attempts = fields.get("max-delivery-attempts", ATTEMPTS)
    target = _target(fields, "dead-letter")
    expired = _target(fields, "expiry")
    return RedeliveryPolicy(
        attempts if attempts > 0 else None,
        backoff(fields),
        target,
        "dead-letter" if target else "discard" if attempts > 0 else "keep",
        expiry=Expiry("redirect", expired) if expired else Expiry("discard"),
        language="artemis",
    )


def backoff(fields: Mapping[str, Any]) -> Backoff:
    """Return how long a message is delayed."""
    multiplier, factor = (fields.get(name, default) for name, default in zip(NUMBERS, (1.0, 0.0), strict=True))
    growth = ArtemisDelays(fields.get("redelivery-delay", 0), multiplier, fields.get("max-redelivery-delay"), factor)
    if growth.delay <= 0 or (growth.multiplier == 1 and not growth.factor):
        return Constant(growth.after(1))
    return growth


def without_prefix(name: str) -> tuple[str, DestinationKind | None]:
    """Return a JMS name of HornetQ's as name and kind; any other name unchanged."""
    if name.startswith(QUEUE) and name != QUEUE:
        return name.removeprefix(QUEUE), "queue"
    if name.startswith(TOPIC) and name != TOPIC:
        return name.removeprefix(TOPIC), "topic"
    return name.removeprefix("jms.") if name == "jms.#" else name, None


def _as_elements(setting: Element) -> Element:
    # WildFly writes its fields as attributes.
    if "messaging-activemq" not in setting.namespace:
        return setting
    given = dict(setting.attributes)
    match = given.pop("name", given.pop("match", None))
    if "redelivery-multiplier" in given:
        given["redelivery-delay-multiplier"] = given.pop("redelivery-multiplier")
    children = [Element(name, {}, [], text, setting.line, setting.column) for name, text in given.items()]
    return replace(
        setting, attributes={} if match is None else {"match": match}, children=[*setting.children, *children]
    )


def _unknown_attributes(setting: Element, schema: XmlSchema, problems: Diagnostics, strict: bool) -> None:
    place = schema.places["address-setting"]
    for name in setting.attributes if "messaging-activemq" in setting.namespace else ():
        if name in ("name", "match", "redelivery-multiplier", *place.ours) or name in place.foreign:
            continue
        near = nearest(name, (*place.ours, *place.foreign))
        if strict:
            problems.add(
                f"unknown attribute {name!r:.80}",
                where=setting.where,
                cure=f"Did you mean {near}?",
                code="policy-key-unknown",
            )
        else:
            problems.warn(f"{setting.where}: {name:.80} is passed over" + (f"; did you mean {near}?" if near else ""))


def _settings_by_another_name(root: Element, problems: Diagnostics, strict: bool) -> None:
    for element in root.all_inside():
        if element.name == "address-setting" or "messaging-activemq" not in element.namespace:
            continue
        if fields := [name for name in element.attributes if name in FIELDS]:
            if strict:
                problems.add(
                    f"{fields[0]} is none of its attributes",
                    where=element.where,
                    cure=_ANOTHER_NAME,
                    code="policy-key-unknown",
                )
            else:
                problems.warn(f"{element.where}: passed over with its {fields[0]}. {_ANOTHER_NAME}")


def _schema_of(root: Element) -> XmlSchema:
    if root.name in WILDFLY.roots:
        return WILDFLY
    # HornetQ's configuration has no core element around the settings.
    artemis = root.namespace.startswith("urn:activemq") or root.first("core") is not None
    schema = ARTEMIS if artemis else HORNETQ
    # A single setting of WildFly's has its fields as attributes.
    return replace(schema, elements=()) if "messaging-activemq" in root.namespace else schema


def _entry(element: Element, problems: Diagnostics, strict: bool) -> MapEntry | None:
    if "match" not in element.attributes:
        name = "name" if "messaging-activemq" in element.namespace else "match"
        cure = f'Write {name}="...", a name or # for all'
        problems.add("it does not say for which addresses", where=element.where, cure=cure, code="policy-key-missing")
        return None
    match, colons, _ = element.attributes["match"].partition("::")
    if match and colons:
        problems.warn(f"{element.where}: a match with :: counts for the whole address {match}")
    pattern, kind = without_prefix(match)
    try:
        pattern_of(pattern, "artemis")
    except PolicyError as error:
        problems.take(error, where=f"{element.where}, match")
        return None
    fields: dict[str, Any] = {}
    for child in element.children:
        if child.name in FIELDS:
            fields[child.name] = _value(child, problems, strict)
    return MapEntry(pattern, kind, fields) if None not in fields.values() else None


def _value(element: Element, problems: Diagnostics, strict: bool) -> object:
    # None means that the value cannot be read, and that the problem is reported.
    if element.name in DELAYS:
        return values.whole(element, problems, -values.LONG, values.LONG)
    if element.name in NUMBERS:
        return values.real(element, problems, 0, 1 if element.name.endswith("factor") else float("inf"))
    if element.name in FLAGS:
        return values.flag(element, problems)
    if element.name != "max-delivery-attempts":
        return values.name(element, problems)
    attempts = values.whole(element, problems, -values.INT - 1, values.INT)
    if strict and attempts is not None and (attempts < -1 or attempts == 0):
        problems.add(
            f"{attempts} attempts",
            where=element.where,
            cure="Write -1 for an endless number of them",
            code="policy-value",
        )
        return None
    return attempts


def _target(fields: Mapping[str, Any], which: str) -> Target | None:
    name, kind = without_prefix(fields.get(f"{which}-address", ""))
    if not name:
        return None
    if fields.get(f"auto-create-{which}-resources", False):
        prefix = fields.get(f"{which}-queue-prefix", "DLQ." if which == "dead-letter" else "EXP.")
        return Target("queue", f"{prefix}$" + fields.get(f"{which}-queue-suffix", ""))
    return Target(kind or "queue", name)


def _ties(entries: list[MapEntry]) -> Iterator[str]:
    # Artemis' own rule makes two such patterns equal, and it sorts the content of a hash map.
    for (one, first), (other, second) in islice(_equal_pairs(entries), PAIRS):
        words = zip(one.words, other.words, strict=False)
        if first.kind == second.kind and all(a == b or "*" in a + b for a, b in words):
            both = _fields(first).keys() & _fields(second).keys()
            differing = [name for name in FIELDS if name in both and _fields(first)[name] != _fields(second)[name]]
            if differing:
                fields = ", ".join(differing)
                yield f"{first} and {second} are of equal rank and differ in {fields}: Artemis takes either"


def _equal_pairs(entries: list[MapEntry]) -> Iterator[tuple[tuple[Pattern, MapEntry], tuple[Pattern, MapEntry]]]:
    ranks: dict[int, tuple[list[tuple[Pattern, MapEntry]], list[tuple[Pattern, MapEntry]]]] = {}
    for entry in entries:
        pattern = pattern_of(entry.pattern, "artemis")
        if pattern.rest:
            ranks.setdefault(len(pattern.text), ([], []))["*" in pattern.text].append((pattern, entry))
    for plain, starred in ranks.values():  # two patterns without a star are the same, or never match the same name
        yield from chain(combinations(starred, 2), product(starred, plain))


def _drops(entries: list[MapEntry]) -> list[str]:
    # A message without a dead-letter address is lost, and the owner of the file must learn this.
    found = []
    by_precedence = sorted(
        ((pattern_of(entry.pattern, "artemis"), entry) for entry in entries), key=lambda pair: precedence_key(pair[0])
    )
    awaited, limits = (_Setters(by_precedence, field) for field in ("dead-letter-address", "max-delivery-attempts"))
    for entry in entries:
        attempts = limits.first(entry, ATTEMPTS) if not awaited.first(entry, "") else 0
        if attempts > 0:
            end = counted(attempts, "failure")
            found.append(f"{entry}: no dead-letter-address, so a message is dropped after {end}")
    if not any(entry.pattern == "#" and entry.kind is None for entry in entries):
        found.append(f"an address that no address-setting matches: dropped after {ATTEMPTS} failures")
    return found


class _Setters:
    """Holds the settings that set one field, the closest first."""

    def __init__(self, pairs: list[tuple[Pattern, MapEntry]], field: str) -> None:
        self._field = field
        self._found = [
            (pattern, entry.kind, _fields(entry)[field]) for pattern, entry in pairs if field in _fields(entry)
        ]

    def first(self, asked: MapEntry, default: Any) -> Any:
        """Return the value for a name that only `asked` and wider patterns match."""
        if self._field in _fields(asked):
            return _fields(asked)[self._field]
        name = asked.pattern.replace("*", "\0").replace("#", "\0")
        words = name.split(".")
        for pattern, kind, value in self._found:
            if kind in (None, asked.kind or "queue") and pattern.matches(name, words):
                return value
        return default


def _fields(entry: MapEntry) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], entry.given)
