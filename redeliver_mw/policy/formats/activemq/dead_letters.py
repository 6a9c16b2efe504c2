# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the `deadLetterStrategy` of ActiveMQ's `destinationPolicy`: where dead letters go. Pure.

An ending is a RedeliveryPolicy of which only targets, `on_dead` and expiry count.
"""

from __future__ import annotations

from dataclasses import replace

from ....message import DestinationKind
from ...decisions import Target
from ...destinations import MapEntry
from ...expiry import Expiry
from ...model import RedeliveryPolicy
from ..xml import Element
from .beans import destination_of
from .names import names_of
from .options import DEAD_LETTER_QUEUE, ReportProblem, read_switch, unknown
from .schema import STRATEGIES

_COMMON = (
    "processExpired",
    "processNonPersistent",
    "enableAudit",
    "expiration",
    "maxAuditDepth",
    "maxProducersToAudit",
    "id",
)
_SHARED = ("deadLetterQueue", *_COMMON)
_INDIVIDUAL = (
    "queuePrefix",
    "queueSuffix",
    "topicPrefix",
    "topicSuffix",
    "useQueueForQueueMessages",
    "useQueueForTopicMessages",
    "destinationPerDurableSubscriber",
    *_COMMON,
)
_BEANS = {
    "SharedDeadLetterStrategy": "sharedDeadLetterStrategy",
    "IndividualDeadLetterStrategy": "individualDeadLetterStrategy",
    "DiscardingDeadLetterStrategy": "discarding",
}
_OF_A_BEAN = ("class", "id", "name", "scope", "lazy-init")
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")

SHARED = RedeliveryPolicy(1, 0.0, f"queue:{DEAD_LETTER_QUEUE}")


def read_endings(destination_policies: list[Element], report: ReportProblem) -> tuple[list[MapEntry], RedeliveryPolicy]:
    """Return an entry for every policyEntry, and the ending of all other destinations.

    A policyEntry without a strategy has ActiveMQ's own: the best entry is taken whole.
    """
    entries: list[MapEntry] = []
    default = SHARED
    for policy in destination_policies:
        for element in (each for several in policy.find("policyEntries") for each in several.all("policyEntry")):
            entries += [
                MapEntry(name, kind, _ending(element, kind, report)) for name, kind in names_of(element, report)
            ]
        for element in (each for several in policy.find("defaultEntry") for each in several.all("policyEntry")):
            default = _ending(element, "queue", report)
            entries += _everywhere(element, default, entries, report)
    return entries, default


def with_ending(policy: RedeliveryPolicy, ending: RedeliveryPolicy) -> RedeliveryPolicy:
    """Return the policy with the ending's dead-letter targets. A policy that discards continues to discard."""
    spelled = {"language": policy.language, "native": policy.native}
    if policy.on_dead == "discard":
        redirected = ending.expiry.action == "dead-letter" and ending.targets
        expiry = Expiry("redirect", ending.targets[0]) if redirected else Expiry("discard")
        return policy.replace(expiry=expiry, **spelled)
    return policy.replace(dead_letter=ending.targets or None, on_dead=ending.on_dead, expiry=ending.expiry, **spelled)


def _everywhere(
    element: Element, default: RedeliveryPolicy, entries: list[MapEntry], report: ReportProblem
) -> list[MapEntry]:
    # One default cannot express different names by kind.
    topics = _ending(element, "topic", report)
    if topics == default:
        return []
    taken = {(entry.pattern, entry.kind) for entry in entries}
    endings = dict(zip(_KINDS, (default, topics), strict=True))
    return [MapEntry(">", kind, endings[kind]) for kind in _KINDS if (">", kind) not in taken]


def _ending(entry: Element, kind: DestinationKind, report: ReportProblem) -> RedeliveryPolicy:
    given = entry.first("deadLetterStrategy")
    if given is None:
        return SHARED
    children = [_from_bean(child) if child.name == "bean" else child for child in given.children]
    strategy = next((child for child in children if child.name in STRATEGIES), None)
    if strategy is None:
        report.problems.warn(f"{given.where}: no strategy known here; {', '.join(STRATEGIES)} are. Taken: the shared")
        return SHARED
    if others := [child for child in children if child.name in STRATEGIES and child.name != strategy.name]:
        what = f"a second strategy beside <{strategy.name}>, which counts"
        report.doubt(what, where=others[0].where, cure="Leave one out")
    if strategy.name == "discarding":
        _known(strategy, _COMMON, report)
        return RedeliveryPolicy(1, 0.0, None, "discard", expiry=Expiry("discard"))
    shared = strategy.name == "sharedDeadLetterStrategy"
    _known(strategy, _SHARED if shared else _INDIVIDUAL, report)
    _unsaid(strategy, report)
    target = _shared(strategy, report) if shared else _individual(strategy, kind, report)
    expired = _switch(strategy, "processExpired", True, report)
    return RedeliveryPolicy(1, 0.0, target, expiry=Expiry() if expired else Expiry("discard"))


def _from_bean(bean: Element) -> Element:
    """Return a bean of Spring's or Blueprint's as a strategy element if it is one; otherwise the bean."""
    name = _BEANS.get(bean.attributes.get("class", "").rpartition(".")[2])
    if name is None:
        return bean
    attributes = {key: text for key, text in bean.attributes.items() if key not in _OF_A_BEAN}
    children = []
    for each in bean.all("property"):
        key, value = each.attributes.get("name", ""), each.first("value")
        inside = [one for one in each.children if one.name in ("queue", "topic", "bean")]
        if inside:
            children.append(replace(each, name=key, children=[destination_of(inside[0])]))
        else:
            attributes[key] = each.attributes.get("value", value.text if value else "")
    return replace(bean, name=name, attributes=attributes, children=children)


def _shared(strategy: Element, report: ReportProblem) -> Target:
    child = strategy.first("deadLetterQueue")
    if "deadLetterQueue" in strategy.attributes:
        text = strategy.attributes["deadLetterQueue"]
        kind: DestinationKind = "topic" if text.startswith("topic://") else "queue"
        name = text.removeprefix(f"{kind}://")
    elif child is not None and child.children:
        kind = "topic" if child.children[0].name == "topic" else "queue"
        name = child.children[0].attributes.get("physicalName", "")
    else:
        return Target("queue", DEAD_LETTER_QUEUE)
    return _target(kind, "", name, "", strategy, report)


def _individual(strategy: Element, kind: DestinationKind, report: ReportProblem) -> Target:
    stem = kind.capitalize()
    prefix = strategy.attributes.get(f"{kind}Prefix", f"ActiveMQ.DLQ.{stem}.")
    suffix = strategy.attributes.get(f"{kind}Suffix", "")
    to_queue = _switch(strategy, f"useQueueFor{stem}Messages", True, report)
    return _target("queue" if to_queue else "topic", prefix, "$", suffix, strategy, report)


def _target(
    kind: DestinationKind, prefix: str, name: str, suffix: str, strategy: Element, report: ReportProblem
) -> Target:
    fixed = prefix + suffix + name.removeprefix("$")
    if "$" in fixed or not name:
        what = f"{fixed!r:.200} in the name of a dead-letter queue" if name else "a dead-letter queue without a name"
        report.problems.add(what, where=strategy.where, cure="Give a name, without a $", code="policy-target")
        return Target("queue", DEAD_LETTER_QUEUE)
    return Target(kind, prefix + name + suffix)


def _unsaid(strategy: Element, report: ReportProblem) -> None:
    attributes = strategy.attributes
    if attributes.get("processNonPersistent", "").strip().lower() == "false":
        report.problems.warn(f"{strategy.where}: non-persistent messages are not dropped here when they are dead")
    _switch(strategy, "processNonPersistent", False, report)
    if attributes.get("expiration", "0").strip() not in ("0", ""):
        report.problems.warn(f"{strategy.where}: dead letters do not expire here")
    if _switch(strategy, "destinationPerDurableSubscriber", False, report):
        report.problems.warn(f"{strategy.where}: the subscriber is no part of the dead-letter queue's name here")


def _switch(element: Element, name: str, default: bool, report: ReportProblem) -> bool:
    text = element.attributes.get(name)
    read = None if text is None else read_switch(text, f"{element.where}, {name}", report)
    return default if read is None else read


def _known(strategy: Element, allowed: tuple[str, ...], report: ReportProblem) -> None:
    for name in strategy.attributes:
        if name not in allowed:
            what, cure = unknown(name, allowed)
            report.doubt(what, where=strategy.where, cure=cure)
