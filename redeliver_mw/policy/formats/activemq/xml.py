# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `redeliveryPolicyMap`, `redeliveryPlugin` and `deadLetterStrategy` in ActiveMQ's XML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....errors import PolicyError
from ...destinations import MapEntry, PolicyMap
from ...flatten import apart
from ...model import RedeliveryPolicy
from ..schema import tell
from ..unsupported import quoted
from ..xml import Element, parse
from .beans import OF_A_BEAN, is_policy_bean, without_beans
from .dead_letters import SHARED, read_endings, with_ending
from .discarding import is_discarding, with_discarding
from .names import IDENTITY, names_of
from .options import LANGUAGE, PROPERTIES, ActiveMQOptions, ReportProblem, read_options, read_switch, unknown
from .schema import SCHEMA
from .url import PREFIX, read_url

SHORTEST_MS = 1000  # the plug-in refuses policies with shorter delays
MOST_JOINED = 5_000  # entries, if both maps have some: every overlap is an entry too
_PLUGIN = ("sendToDlqIfMaxRetriesExceeded", "fallbackToDeadLetter", "id")
_IN_A_BEAN = ("property", "description", "meta", "qualifier", "constructor-arg", "argument")


def read_xml(text: str, report: ReportProblem) -> PolicyMap:
    """Return the policies of a broker's or a client's XML; problems are reported to `report`."""
    found = _Found()
    root = without_beans(parse(text))
    _gather(root, found)
    if found.plugins:
        entries, default = _plugin(found, root, report)
    else:
        entries, default = _client(found, report)
    endings, last = read_endings(found.destination_policies, report)
    endings, last = with_discarding(found.discarding, endings, last, report)
    _about_the_order(found, report)
    _about_the_place(root, report)
    entered = any(policy.find("policyEntry") for policy in found.destination_policies)
    holds = bool(found.plugins or found.maps or found.connection or found.urls or found.discarding or entered)
    tell(root, SCHEMA, report.problems, strict=report.strict, holds=holds)
    report.problems.close()
    if endings or last != SHARED:
        entries = _joined(entries, default, endings, last)
        default = with_ending(default, last)
    return PolicyMap(entries, default, language=LANGUAGE, native=text, warnings=report.problems.warnings)


@dataclass
class _Found:
    plugins: list[Element] = field(default_factory=list)
    maps: list[Element] = field(default_factory=list)  # of clients
    connection: list[Element] = field(default_factory=list)  # policies outside any map
    urls: list[tuple[str, str]] = field(default_factory=list)  # with their places
    destination_policies: list[Element] = field(default_factory=list)
    discarding: list[Element] = field(default_factory=list)  # plug-ins that drop dead messages


def _gather(root: Element, found: _Found) -> None:
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if SCHEMA.is_foreign(element, root):  # a policy of Camel's has the same name
            waiting.extend(reversed(element.children))
            continue
        inner = any(child.name == element.name for child in element.children)
        if element.name == "redeliveryPlugin":
            found.plugins.append(element)
        elif is_discarding(element):
            found.discarding.append(element)
        elif element.name == "destinationPolicy":
            found.destination_policies.append(element)
        elif element.name == "redeliveryPolicyMap" and not inner:
            found.maps.append(element)
        elif _is_policy(element) and not inner and not element.first("bean"):
            found.connection.append(element)
        else:
            found.urls += _urls(element)
            waiting.extend(reversed(element.children))


def _about_the_order(found: _Found, report: ReportProblem) -> None:
    # The broker calls the last plug-in first.
    after = [
        one
        for one in found.discarding
        for plugin in found.plugins
        if (plugin.line, plugin.column) < (one.line, one.column)
    ]
    if after:
        report.doubt(
            "a broker drops before a redeliveryPlugin that stands above this retries; here it is retried first",
            where=after[0].where,
            cure="Write it above the redeliveryPlugin",
        )


def _about_the_place(root: Element, report: ReportProblem) -> None:
    """Report elements that are in none of their places, and yet may be in an element of such a name."""
    for element in root.all_inside():
        if SCHEMA.is_foreign(element, root):
            continue
        lost: list[Element] = []
        if element.name == "redeliveryPolicyMap" and element.first("redeliveryPolicyMap"):
            lost = [child for child in element.children if child.name in ("redeliveryPolicyEntries", "defaultEntry")]
            home = "the inner <redeliveryPolicyMap>"
        elif element.name in ("beans", "blueprint", "property"):
            lost = [child for child in element.all("property") if child.attributes.get("name") in PROPERTIES]
            home = "the <bean> of a RedeliveryPolicy"
        for child in lost:
            report.doubt("out of its place, and so passed over", where=child.where, cure=f"It belongs in {home}")


def _urls(element: Element) -> list[tuple[str, str]]:
    texts = [*element.attributes.values(), element.text]
    return [(text, element.where) for text in texts if PREFIX in text]


def _is_policy(element: Element) -> bool:
    return element.name == "redeliveryPolicy" or is_policy_bean(element)


def _client(found: _Found, report: ReportProblem) -> tuple[list[MapEntry], RedeliveryPolicy]:
    policies = [_policy(element, report) for element in found.connection]
    for url, where in found.urls:
        options, native = read_url(url, report, where)
        policies.append(options.policy(native))
    if any(policy != policies[0] for policy in policies):
        report.problems.add(
            "several connections, with policies that differ", cure="Read them one by one", code="policy-not-single"
        )
    default = policies[0] if policies else ActiveMQOptions().policy("")
    entries, own = _maps(found.maps, report)
    return entries, own or default


def _without_retries(found: _Found) -> bool:
    """Return whether each client's policy has the limit 0, as ActiveMQ's manual demands beside a redeliveryPlugin."""
    silent = ReportProblem(strict=False)
    policies = [*found.connection, *(each for one in found.maps for each in one.find("redeliveryPolicy", "bean"))]
    limits = [_policy(each, silent).dead_after for each in policies if _is_policy(each)]
    limits += [read_url(url, silent, where)[0].policy("").dead_after for url, where in found.urls]
    return all(limit == 1 for limit in limits)


def _plugin(found: _Found, root: Element, report: ReportProblem) -> tuple[list[MapEntry], RedeliveryPolicy]:
    plugin = found.plugins[0]
    if len(found.plugins) > 1:
        report.problems.add(
            "a second redeliveryPlugin", where=found.plugins[1].where, cure="Leave one out", code="policy-conflict"
        )
    for name in plugin.attributes:
        if name not in _PLUGIN:
            what, cure = unknown(name, _PLUGIN)
            report.doubt(what, where=plugin.where, cure=cure)
    if (found.maps or found.connection or found.urls) and not _without_retries(found):
        report.problems.warn("the client's own policies are not read beside a redeliveryPlugin: set its limit to 0")
    for broker in root.find("broker"):
        if broker.attributes.get("schedulerSupport", "").strip().lower() != "true":
            report.doubt("the plugin needs a scheduler", where=broker.where, cure='Write schedulerSupport="true"')
    maps = [each for each in plugin.find("redeliveryPolicyMap") if not each.first("redeliveryPolicyMap")]
    if not maps:
        cure = "Write a <redeliveryPolicyMap> with a <redeliveryPolicy> into it"
        report.doubt("there is no policy in it, so a message is not tried again", where=plugin.where, cure=cure)
    entries, own = _maps(maps, report, plugin=True)
    if not _switch(plugin, "sendToDlqIfMaxRetriesExceeded", report):
        entries = [MapEntry(entry.pattern, entry.kind, _discarding(_whole(entry))) for entry in entries]
        own = own and _discarding(own)
    if own is not None:
        return entries, own
    none = SHARED.replace(language=LANGUAGE, native="<redeliveryPlugin> without a policy")
    return entries, none if _switch(plugin, "fallbackToDeadLetter", report) else _discarding(none)


def _discarding(policy: RedeliveryPolicy) -> RedeliveryPolicy:
    # The plug-in does not treat an expired message as a failure.
    return with_ending(policy.replace(on_dead="discard", language=LANGUAGE, native=policy.native), SHARED)


def _switch(plugin: Element, name: str, report: ReportProblem) -> bool:
    text = plugin.attributes.get(name, "true")
    return read_switch(text, f"{plugin.where}, {name}", report) is not False


def _maps(
    maps: Sequence[Element], report: ReportProblem, *, plugin: bool = False
) -> tuple[list[MapEntry], RedeliveryPolicy | None]:
    entries: list[MapEntry] = []
    default: RedeliveryPolicy | None = None
    taken: set[tuple[str, str]] = set()
    for element in maps:
        if not (element.find("redeliveryPolicy") or any(map(_is_policy, element.find("bean")))):
            cure = "Write <redeliveryPolicyEntries> or <defaultEntry> with a <redeliveryPolicy>"
            report.doubt("there is no policy in it", where=element.where, cure=cure)
        for each in (one for several in element.all("redeliveryPolicyEntries") for one in several.children):
            if not _is_policy(each):
                continue
            policy = _policy(each, report, entry=True, plugin=plugin)
            for name, kind in names_of(each, report):
                if (name, kind) in taken:
                    report.problems.add(
                        f"a second entry for {kind} {name}",
                        where=each.where,
                        cure="Leave one out",
                        code="policy-conflict",
                    )
                taken.add((name, kind))
                entries.append(MapEntry(name, kind, policy))
        for each in (one for several in element.all("defaultEntry") for one in several.find("redeliveryPolicy")):
            default = _policy(each, report, plugin=plugin)
    return entries, default


def _policy(element: Element, report: ReportProblem, *, entry: bool = False, plugin: bool = False) -> RedeliveryPolicy:
    given = dict(element.attributes)
    if element.name == "bean":
        given = {name: value for name, value in given.items() if name not in OF_A_BEAN}
    for each in element.all("property"):
        value, name = each.first("value"), each.attributes.get("name", "")
        if name in given:
            report.doubt(
                f"{name:.80} stands there twice, and the last one counts", where=each.where, cure="Leave one out"
            )
        given[name] = each.attributes.get("value", value.text if value else "")
    for each in element.children if element.name == "bean" else ():
        if each.name not in _IN_A_BEAN:
            what = f"<{each.name:.80}> is not known in a bean of this class"
            report.doubt(what, where=each.where, cure='Write <property name="..." value="..."/>')
    known = {name: value for name, value in given.items() if name in PROPERTIES}
    for name in given:
        if name not in PROPERTIES and name not in (IDENTITY if entry else ("id",)):
            what, cure = unknown(name, PROPERTIES)
            report.doubt(what, where=element.where, cure=cure)
    options = read_options(known, element.where, report)
    if plugin:
        _check_plugin(options, element, report)
    policy = options.policy(_spelled(element.name, given))
    # The broker itself acts, at the failure.
    return policy.replace(act="failure", language=LANGUAGE, native=policy.native) if plugin else policy


def _check_plugin(options: ActiveMQOptions, element: Element, report: ReportProblem) -> None:
    delays = {"initialRedeliveryDelay": options.initial_delay, "redeliveryDelay": options.delay}
    for name, delay in delays.items():
        if delay < SHORTEST_MS:
            report.problems.add(
                f"{name} is {delay} ms, and a redeliveryPlugin takes no less than {SHORTEST_MS}",
                where=element.where,
                cure=f"Give at least {SHORTEST_MS} ms, or make it a client's redeliveryPolicyMap",
                code="policy-value",
            )


def _spelled(name: str, given: dict[str, str]) -> str:
    return f"<{name}{''.join(f' {key}={quoted(value)}' for key, value in given.items())}/>"


def _joined(
    entries: list[MapEntry], default: RedeliveryPolicy, endings: list[MapEntry], last: RedeliveryPolicy
) -> list[MapEntry]:
    # There are two maps, each with a best entry of its own; where entries of the two overlap, one entry covers both.
    if not endings:
        return [MapEntry(one.pattern, one.kind, with_ending(_whole(one), last)) for one in entries]
    policies, ends = PolicyMap(entries, default), PolicyMap(endings, last)
    if len(entries) + len(endings) > MOST_JOINED:
        raise PolicyError(
            f"policies and strategies for more than {MOST_JOINED} destinations",
            cure="Use wildcards",
            code="policy-too-large",
        )
    parts = apart([*entries, *endings], "activemq")
    if parts is None:
        raise PolicyError(
            "the patterns of policies and strategies overlap too often",
            cure="Use fewer wildcards",
            code="policy-too-large",
        )
    # Most destinations have an entry of their own, in one map or in both.
    own, ending = ({(one.pattern, one.kind): _whole(one) for one in each} for each in (entries, endings))
    joined = []
    for pattern, kind, name, asked in parts:
        policy = own.get((pattern, kind)) or policies.resolve(name, asked)
        end = ending.get((pattern, kind)) or ends.resolve(name, asked)
        joined.append(MapEntry(pattern, kind, with_ending(policy, end)))
    return joined


def _whole(entry: MapEntry) -> RedeliveryPolicy:
    assert isinstance(entry.given, RedeliveryPolicy)  # an entry of this language never holds mere fields
    return entry.given
