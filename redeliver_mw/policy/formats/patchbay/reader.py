# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads ATG Patch Bay's `dynamoMessagingSystem.xml`: redelivery of the messages of an input destination.

Grammar (elements in any order; other elements of Patch Bay are skipped, and all other elements are warnings, or errors
with `strict`; a file without an input destination is refused)::

    message-sink | message-filter :=
        input-port/input-destination     destination-name, destination-type (Queue | Topic), and perhaps
            redelivery                   max-attempts         1 or more; 99 in the original's tables
                                         delay                milliseconds, the same after every failure
                                         failure-output-port  the port-name of a redelivery-port of this sink
        redelivery-port                  port-name, and one or more of
            output-destination           destination-name, destination-type

Worked example, the sink of `patchbay:/acme/Orders` with max-attempts 4, delay 30000 and a failure port with the
queues `patchbay:/acme/OrderAlarm` and `patchbay:/acme/OrderDead`, the sink always failing::

    failure 1   again after 30000 ms
    failure 2   again after 30000 ms
    failure 3   again after 30000 ms
    failure 4   a new message to OrderAlarm and one to OrderDead; the sink was called four times

Several files along a configuration path are read as one: `layers`. The DOCTYPE of a file is skipped: the DTD that it
names is never read, and entities are refused.

The messages of an input destination without `redelivery`, and of one that the file does not name, are retried at once
and for ever. Names are used as they are written, with `patchbay:/`: write the destination's name on the broker there. A
policy is for a name and kind; if two sinks of one topic have different policies, the file is refused.

There are three differences here. The dead letter has the original's headers and headers of ours, where Patch Bay copies
body and properties only. A dead letter that cannot be published is tried until it can, where Patch Bay gives up after
five tries and leaves the row in its table. A message that expires meanwhile is dropped, where Patch Bay does not check.

A message whose sender set the property DELIVERY_DATE to milliseconds since 1970 is not delivered earlier:
`delay_until_due`. The value of the original's constant of that name is not published; here the constant's own full name
is used.

The language cannot express: patterns, a first delay of its own, growth, jitter, dropping or keeping a message at its
limit, expiry, rules by exception, an end by time, delays without an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ....errors import PolicyError
from ....message import DestinationKind
from ...backoff import LONGEST, Constant
from ...decisions import Target
from ...destinations import MapEntry, PolicyMap
from ...expiry import Expiry
from ...model import RedeliveryPolicy
from .. import values
from ..diagnostics import Diagnostics
from ..schema import tell
from ..xml import Element, parse
from .layers import COMBINE, combined
from .schema import REDELIVERY, SCHEMA

LANGUAGE = "patchbay"
MOST_ATTEMPTS = 99  # the largest number in the column of the original's table
DELIVERY_DATE = "atg.dms.patchbay.MessageLimbo.DELIVERY_DATE"
FOR_EVER = RedeliveryPolicy(None, 0.0, None, expiry=Expiry("discard"), language=LANGUAGE)


@dataclass
class _Sink:
    element: Element
    problems: Diagnostics
    strict: bool
    ports: dict[str, tuple[Target, ...]] = field(default_factory=dict)


def read(text: str, strict: bool = False) -> PolicyMap:
    """Return the policies of a file, one for each input destination.

    Raises one PolicyError that lists everything that is wrong.

    `strict` refuses elements that are unknown or out of place, and more attempts than the original's tables can count.
    """
    root, problems = parse(text, doctype=True), Diagnostics()
    for element in root.all_inside():
        if COMBINE in element.attributes:
            problem = f"{COMBINE} speaks of a file below this one, which was not given"
            problems.warn(f"{element.where}: {problem}. Name both files, the lower one first")
            break
    return _read(root, text, problems, strict)


def read_layers(layers: Sequence[tuple[str, str]], strict: bool = False) -> PolicyMap:
    """Return the policies of several files that override each other: each with its name and its text, the lowest first.

    Errors and `strict` as of `read`.
    """
    return _read(combined(layers), "", Diagnostics(), strict)


def _read(root: Element, text: str, problems: Diagnostics, strict: bool) -> PolicyMap:
    if root.name == "redelivery-port":
        raise PolicyError(
            "a port alone says where dead letters go, and not of which destination. It belongs in <message-sink>",
            where=root.where,
            cure="Put it there, or name the file that has the sink before this one",
            code="policy-key-misplaced",
        )
    policies: dict[tuple[str, DestinationKind], RedeliveryPolicy] = {}
    sinks = [_Sink(element, problems, strict) for element in root.find("message-sink", "message-filter")]
    holds = any(sink.element.find("input-destination") for sink in sinks)
    tell(root, SCHEMA, problems, strict=strict, holds=holds)
    for sink in sinks:
        inside = sink.element.find("redelivery-port", "input-destination")
        _read_ports([element for element in inside if element.name == "redelivery-port"], sink)
        for source in (element for element in inside if element.name == "input-destination"):
            named = _destination(source, problems)
            policy = _policy(source, sink)
            if named is not None and policies.setdefault(named, policy) != policy:
                problems.add(
                    f"another redelivery of {named[1]} {named[0]:.200} than before",
                    where=source.where,
                    cure="Make them the same, or write a file for each sink",
                    code="policy-conflict",
                )
    if not root.find("redelivery"):
        problems.warn("no redelivery in it: everything is tried again at once and for ever")
    problems.close()
    entries = [MapEntry(name, kind, policy) for (name, kind), policy in policies.items()]
    return PolicyMap(entries, FOR_EVER, language=LANGUAGE, native=text, warnings=problems.warnings)


def delay_until_due(properties: Mapping[str, object], now: float) -> float:
    """Return for how many more seconds a message must not be delivered; `now` is wall time, seconds since 1970.

    The result is 0 without the property, and if the property is not a whole number, because no consumer would wait for
    that.
    """
    due = properties.get(DELIVERY_DATE)
    if isinstance(due, bool) or not isinstance(due, int):
        return 0.0
    # Compared as integers, because they may be too large for a float.
    return max(min(due - int(now * 1000), int(LONGEST) * 1000), 0) / 1000


def _read_ports(ports: list[Element], sink: _Sink) -> None:
    for port in ports:
        name = port.first("port-name")
        outputs = [_destination(output, sink.problems) for output in port.all("output-destination")]
        if name is None or not name.text:
            sink.problems.add(
                "a port without a name", where=port.where, cure="Write <port-name>", code="policy-key-missing"
            )
            continue
        if not outputs:
            sink.problems.add(
                f"the port {name.text:.200} leads nowhere",
                where=port.where,
                cure="Give it an <output-destination>",
                code="policy-key-missing",
            )
        targets = tuple(dict.fromkeys(Target(one[1], one[0]) for one in outputs if one is not None))
        if sink.ports.setdefault(name.text, targets) != targets:
            sink.problems.add(
                f"a second port {name.text:.200}", where=port.where, cure="Leave one out", code="policy-conflict"
            )


def _destination(element: Element, problems: Diagnostics) -> tuple[str, DestinationKind] | None:
    name, kind = element.first("destination-name"), element.first("destination-type")
    if name is None or kind is None:
        missing = "destination-name" if name is None else "destination-type"
        problems.add(f"{missing} is missing", where=element.where, cure=f"Write <{missing}>", code="policy-key-missing")
        return None
    chosen = values.word(kind, problems, ("Queue", "Topic"))
    text = values.name(name, problems)
    if text is not None and (not text or "," in text or {"*", ">"} & set(text.split("."))):
        problems.add(
            f"{text!r:.200} is no name", where=name.where, cure="Write a name, without * > ,", code="policy-value"
        )
        return None
    return None if text is None or chosen is None else (text, "topic" if chosen == "Topic" else "queue")


def _policy(source: Element, sink: _Sink) -> RedeliveryPolicy:
    redelivery, problems = source.first("redelivery"), sink.problems
    if redelivery is None:
        return FOR_EVER
    given = {name: redelivery.first(name) for name in REDELIVERY}
    for name, element in given.items():
        if element is None:
            problems.add(
                f"{name} is missing", where=redelivery.where, cure=f"Write <{name}>", code="policy-key-missing"
            )
    attempts, delay, port = given.values()
    most = MOST_ATTEMPTS if sink.strict else values.INT
    limit = values.whole(attempts, problems, 1, most) if attempts is not None else None
    delay_ms = values.whole(delay, problems, 0, int(LONGEST) * 1000) if delay is not None else None
    targets = _targets(port, sink) if port is not None else ()
    if limit is None or delay_ms is None or not targets:
        return FOR_EVER  # the problem is reported
    return RedeliveryPolicy(
        limit,
        Constant(delay_ms / 1000),
        targets,
        expiry=Expiry("discard"),
        language=LANGUAGE,
        native=f"max-attempts {limit}, delay {delay_ms}, failure-output-port {port.text if port is not None else ''}",
    )


def _targets(port: Element, sink: _Sink) -> tuple[Target, ...]:
    if port.text in sink.ports:
        return sink.ports[port.text]
    near = sink.problems.nearest(port.text, sink.ports)
    cure = f"Did you mean {near}?" if near else "Add a <redelivery-port> with that <port-name> to this sink"
    sink.problems.add(
        f"there is no redelivery-port {port.text!r:.200}", where=port.where, cure=cure, code="policy-reference"
    )
    return ()
