# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes policies as a JMS module of WebLogic. Pure.

Each destination contains all of its settings. The language has no default for all other destinations: the default is
written as a template, Default, which an administrator can assign to them. A policy that keeps a message is written as
one that retries for ever: both delay the message and deliver it again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from ....message import Destination, DestinationKind
from ...decisions import DeadLetter, Discard
from ...destinations import MapEntry, PolicyMap
from ...flatten import flattened, leaves_nothing, of_kind, translated
from ...model import RedeliveryPolicy
from .. import delay_table, unsupported, values
from ..format_protocol import Conversion
from ..total_time import one_delay

NAMESPACE = "http://xmlns.oracle.com/weblogic/weblogic-jms"
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")
_Key = tuple[DestinationKind, str]


def write(policies: PolicyMap) -> Conversion:
    """Return the module, and what is lost, entry by entry. WebLogic's own text is returned unchanged."""
    if policies.language == "weblogic" and policies.native:
        return Conversion(policies.native)
    flat, lost = flattened(policies)
    module = _Module(list(lost))
    everywhere = None if leaves_nothing(flat) else flat.default
    for entry in flat.entries:
        assert isinstance(entry.given, RedeliveryPolicy)  # flattened() returns such entries
        name = translated(entry.pattern, flat.syntax, "activemq") or ""
        if name == ">" and entry.kind is None:
            everywhere = entry.given
        elif not unsupported.sayable(name) or any(mark in name for mark in "*>,"):
            if not _like_nothing(entry.given) or unsupported.of_messages(entry.given, "weblogic"):
                module.lost.append(f"{entry}: a module names each destination by itself")
        else:
            module.destination(entry, name, [other.kind for other in flat.entries if other.pattern == entry.pattern])
    if everywhere is not None and not _like_nothing(everywhere):
        module.lost.append("all others: written as the template Default, which has to be put under each destination")
        module.template(everywhere)
    elif everywhere is not None:
        module.lost += [f"all others: {what}" for what in unsupported.of_messages(everywhere, "weblogic")]
    module.check()
    return Conversion(module.text(), tuple(dict.fromkeys(module.lost)), names_nothing=module.is_empty)


def _like_nothing(policy: RedeliveryPolicy) -> bool:
    # A destination that a module does not name retries for ever, at once, and drops expired messages.
    plain = (
        unsupported.limit(policy) is None
        and delay_table.delay_table(policy) == ([], [])
        and not unsupported.unsupported(policy)
    )
    return plain and isinstance(policy.expired(), Discard) and policy.expiry.action != "log"


@dataclass
class _Overrides:
    """Collects the overrides of an error destination, which all messages that are redirected there share."""

    life: float | None = None  # seconds; None: for ever
    priority: int | None = None  # None: the messages' own

    @property
    def lines(self) -> list[str]:
        lines = [unsupported.leaf("time-to-live", round(self.life * 1000))] if self.life else []
        return lines + ([unsupported.leaf("priority", self.priority)] if self.priority is not None else [])


@dataclass
class _Module:
    lost: list[str]
    _elements: dict[_Key, list[str]] = field(default_factory=dict)
    _errors: dict[_Key, _Overrides] = field(default_factory=dict)
    _ways: list[tuple[str, DestinationKind, Destination]] = field(default_factory=list)
    _template: list[str] = field(default_factory=list)

    def destination(self, entry: MapEntry, name: str, own_kinds: list[DestinationKind | None]) -> None:
        """Write an entry as one element, or as two if it is for both kinds and none has an entry of its own."""
        for kind in _KINDS:
            if entry.kind == kind or (entry.kind is None and kind not in own_kinds):
                policy = of_kind(cast(RedeliveryPolicy, entry.given), kind, name)
                self._elements[kind, name] = self._settings(policy, Destination(name, kind), f"{kind}:{name}")

    def template(self, policy: RedeliveryPolicy) -> None:
        self._template = self._settings(policy, None, "all others")

    def check(self) -> None:
        """Check the error destinations, which are looked up by name, the own kind first."""
        named = {*self._elements, *self._errors}
        for where, kind, error in self._ways:
            if kind != error.kind and (kind, error.name) in named:
                self.lost.append(f"{where}: the target {error}: there is a {kind} of that name")

    @property
    def is_empty(self) -> bool:
        """Return whether there is neither a destination nor a template."""
        return not self._elements and not self._template

    def text(self) -> str:
        lines = unsupported.block("template", self._template, name="Default") if self._template else []
        # The schema demands the queues before the topics.
        for kind, name in sorted(dict.fromkeys((*self._elements, *self._errors)), key=lambda key: key[0]):
            overrides = self._errors[kind, name].lines if (kind, name) in self._errors else []
            own = self._elements.get((kind, name), [])
            lines += unsupported.block(kind, _with(own, overrides), name=name)
        return "\n".join(unsupported.block("weblogic-jms", lines, xmlns=NAMESPACE)) + "\n"

    def _settings(self, policy: RedeliveryPolicy, source: Destination | None, where: str) -> list[str]:
        missing = [*unsupported.unsupported(policy), *unsupported.of_messages(policy, "weblogic")]
        end = unsupported.limit(policy)
        if end is not None and end - 1 > values.INT:
            missing.append(f"dead after {end} failures: at most {values.INT + 1} can be written")
            end = values.INT + 1
        failure = [unsupported.leaf("redelivery-limit", -1 if end is None else end - 1)]
        error = self._error(policy, source, missing)
        if error:
            failure.insert(0, unsupported.leaf("error-destination", error.name))
        failure += self._expiry(policy, error, source, missing)
        delay = unsupported.leaf("redelivery-delay", _delay(policy, missing))
        self.lost += [f"{where}: {what}" for what in missing]
        return [
            *unsupported.block("delivery-params-overrides", [delay]),
            *unsupported.block("delivery-failure-params", failure),
        ]

    def _error(self, policy: RedeliveryPolicy, source: Destination | None, missing: list[str]) -> Destination | None:
        if not policy.targets:
            return None
        error = policy.targets[0].resolve(source or Destination("x"))
        if source is None and (policy.targets[0].kind == "same" or "$" in policy.targets[0].template):
            missing.append(f"the target {policy.targets[0]}: left out of the template")
            return None
        if not unsupported.sayable(error.name) or any(mark in error.name for mark in "$*>,"):
            missing.append(f"the target {error}: a name that cannot be written, so a dead message is dropped")
            return None
        # Named here, so that its kind can be looked up.
        self._errors.setdefault((error.kind, error.name), _Overrides())
        self._ways.append((f"{source or 'all others'}", source.kind if source else "queue", error))
        return error

    def _expiry(
        self, policy: RedeliveryPolicy, error: Destination | None, source: Destination | None, missing: list[str]
    ) -> list[str]:
        expired = policy.expired()
        if policy.expiry.action == "log":
            items = unsupported.leaf("expiration-logging-policy", policy.expiry.log)
            return [unsupported.leaf("expiration-policy", "Log"), *([items] if policy.expiry.log else [])]
        if not isinstance(expired, DeadLetter):
            return []
        if error is None or expired.targets[0].resolve(source or Destination("x")) != error:
            missing.append(f"expiry {policy.expiry.action}: only to the error destination; an expired one is dropped")
            return []
        expiry, there = policy.expiry, self._errors[error.kind, error.name]
        if expiry.time_to_live and there.life in (None, expiry.time_to_live):
            there.life = expiry.time_to_live
        elif there.life != expiry.time_to_live:
            missing.append(f"expiry redirect: all messages live as long in {error}")
        if expiry.priority is not None and there.priority in (None, expiry.priority):
            there.priority = expiry.priority
        elif there.priority != expiry.priority:
            missing.append(f"expiry redirect: all messages have the same priority in {error}")
        return [unsupported.leaf("expiration-policy", "Redirect")]


def _with(settings: list[str], overrides: list[str]) -> list[str]:
    # The time to live of an error destination goes into its existing block, if there is one.
    if not overrides:
        return settings
    if not settings:
        return unsupported.block("delivery-params-overrides", overrides)
    return [settings[0], *(f"  {line}" for line in overrides), *settings[1:]]


def _delay(policy: RedeliveryPolicy, missing: list[str]) -> int:
    delay, lost = one_delay(policy)
    missing += lost
    return delay
