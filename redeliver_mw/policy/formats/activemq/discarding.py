# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads ActiveMQ's `discardingDLQBrokerPlugin`, which drops dead and expired messages. Pure.

`dropAll`, by default true, drops all of them; otherwise `dropOnly` names the sources, as regular expressions separated
by spaces. A name, `.*`, and a name followed by `..*` or `\..*` are supported; the other expressions are findings.
Messages of temporary destinations are not consumed here, and `reportInterval` belongs to the plug-in's own log.
"""

from __future__ import annotations

import re

from ....message import DestinationKind
from ...destinations import MapEntry, PolicyMap
from ...expiry import Expiry
from ...model import RedeliveryPolicy
from ..xml import Element
from .options import ReportProblem, read_switch, unknown

NAME = "discardingDLQBrokerPlugin"
DROPPED = RedeliveryPolicy(1, 0.0, None, "discard", expiry=Expiry("discard"))
MOST_NAMES = 1_000  # in all dropOnly attributes of a file
_SWITCHES = ("dropAll", "dropTemporaryQueues", "dropTemporaryTopics")
_KNOWN = (*_SWITCHES, "dropOnly", "reportInterval", "id")
_BEAN = ("class", "name", "scope", "parent", "lazy-init", "init-method", "destroy-method", "depends-on")
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")
_PLAIN = re.compile(r"[^\\*+?()\[\]{}|^$>,]+")  # dots count as dots


def is_discarding(element: Element) -> bool:
    """Return whether an element is the plug-in, as an element of its own or as a bean of Spring's or Blueprint's."""
    bean = element.name == "bean" and element.attributes.get("class", "").endswith(".DiscardingDLQBrokerPlugin")
    return bean or element.name == NAME


def with_discarding(
    plugins: list[Element], endings: list[MapEntry], last: RedeliveryPolicy, report: ReportProblem
) -> tuple[list[MapEntry], RedeliveryPolicy]:
    """Return the endings with what the plug-ins drop in place of any dead-letter queue."""
    given = [_given(element, report) for element in plugins]
    if any(_drops_all(element, properties, report) for element, properties in zip(plugins, given, strict=True)):
        return [], DROPPED
    count = 0
    for element, properties in zip(plugins, given, strict=True):
        expressions = properties.get("dropOnly", "").split()
        count += len(expressions)
        if count > MOST_NAMES:
            report.problems.add(
                f"more than {MOST_NAMES} names in dropOnly",
                where=element.where,
                cure="Use fewer, or dropAll",
                code="policy-too-large",
            )
            return endings, last
        for expression in expressions:
            endings, last = _dropped(expression, endings, last, element, report)
    return endings, last


def _given(element: Element, report: ReportProblem) -> dict[str, str]:
    given = dict(element.attributes)
    if element.name == "bean":
        given = {name: value for name, value in given.items() if name not in _BEAN}
    for each in element.all("property"):
        value = each.first("value")
        given[each.attributes.get("name", "")] = each.attributes.get("value", value.text if value else "")
    for name in given:
        if name not in _KNOWN:
            what, cure = unknown(name, _KNOWN)
            report.doubt(what, where=element.where, cure=cure)
    return given


def _drops_all(element: Element, given: dict[str, str], report: ReportProblem) -> bool:
    switches = {
        name: read_switch(given[name], f"{element.where}, {name}", report) for name in _SWITCHES if name in given
    }
    everything = switches.get("dropAll", True) is not False
    if everything and given.get("dropOnly", "").split():
        report.doubt("dropOnly beside dropAll, which drops everything", where=element.where, cure='Add dropAll="false"')
    if not everything and "dropOnly" not in given:
        report.doubt('dropAll="false" without dropOnly drops nothing here', where=element.where, cure="Name sources")
    return everything


def _dropped(
    expression: str, endings: list[MapEntry], last: RedeliveryPolicy, element: Element, report: ReportProblem
) -> tuple[list[MapEntry], RedeliveryPolicy]:
    if expression in (".*", ".+"):
        return [], DROPPED
    dotted = expression.replace(r"\.", ".")
    stem = next((dotted.removesuffix(end) for end in ("..*", "..+") if dotted.endswith(end)), "")
    name = stem or dotted
    stars = [one for one in endings if stem and "*" in one.pattern.split(".")]
    if not _PLAIN.fullmatch(name) or not all(name.split(".")) or stars:
        report.doubt(
            f"dropOnly {expression!r:.200} cannot be written here, so what is dead there goes to its dead-letter queue",
            where=element.where,
            cure="Write names, or NAME\\..* for all that begin so; or a <policyEntry> with <discarding/>",
        )
        return endings, last
    # ActiveMQ's A.> matches A as well, and the expression does not.
    before = PolicyMap(endings, last)
    own = [MapEntry(name, kind, before.resolve(name, kind) if stem else DROPPED) for kind in _KINDS]
    below = [MapEntry(f"{stem}.>", kind, DROPPED) for kind in _KINDS] if stem else []
    kept = [one for one in endings if one.pattern != name and not (stem and one.pattern.startswith(f"{stem}."))]
    return [*kept, *own, *below], last
