# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes policies as ActiveMQ's XML: a client's redeliveryPolicyMap, and a broker's dead-letter strategies. Pure.

The map is a client's because a broker's plug-in accepts no delay below a second. ActiveMQ keeps no dead message: a
policy that keeps one is written as one that retries for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....message import DestinationKind
from ...decisions import DeadLetter, Target
from ...destinations import PolicyMap
from ...flatten import Flat, flattened, leaves_nothing, literal, of_kind, translated
from ...model import RedeliveryPolicy
from ..format_protocol import Conversion
from ..unsupported import limit, of_messages, of_redirected, quoted, sayable, unsupported
from .approximation import Fit, fitted
from .options import DEAD_LETTER_QUEUE, LANGUAGE

_CORE = "http://activemq.apache.org/schema/core"
_BEANS = "http://www.springframework.org/schema/beans"
_MOST_REDELIVERIES = 2**31 - 1
_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")


def write(policies: PolicyMap) -> Conversion:
    """Return one XML text for client and broker, and what is lost, entry by entry.

    A native ActiveMQ text is returned unchanged.
    """
    if policies.language == LANGUAGE and policies.native:
        return Conversion(policies.native)
    page, flat = _entries(policies)
    without_default = list(page.lost)
    page.default(policies.default)
    if leaves_nothing(flat.policies):
        page.lost = without_default  # the default is never used
    return Conversion(page.text(), tuple(dict.fromkeys(page.lost)))


def write_one(policies: PolicyMap) -> Conversion:
    """Return the entry of a map that has one: all other destinations keep the settings of client and broker."""
    page, _ = _entries(policies)
    return Conversion(page.text(), tuple(dict.fromkeys(page.lost)), names_nothing=not page.policies)


def _entries(policies: PolicyMap) -> tuple[_Page, Flat]:
    page = _Page()
    flat = flattened(policies)
    page.lost += flat.lost
    own = {(entry.pattern, entry.kind) for entry in flat.entries}
    for entry in flat.entries:
        assert isinstance(entry.given, RedeliveryPolicy)  # flattened() returns such entries
        name = translated(entry.pattern, policies.syntax, "activemq")
        if name is None or not _sayable(name):
            page.lost.append(f"{entry}: a name that cannot be an entry here")
            continue
        fit = fitted(entry.given)
        for kind in _KINDS:
            if entry.kind == kind or (entry.kind is None and (entry.pattern, kind) not in own):
                page.entry(name, kind, entry.given, fit)
    return page, flat


def _sayable(name: str) -> bool:
    return sayable(name) and "," not in name and "://" not in name


@dataclass
class _Page:
    policies: list[str] = field(default_factory=list)
    endings: list[str] = field(default_factory=list)
    last: str = ""
    all: str = ""
    lost: list[str] = field(default_factory=list)
    _taken: set[tuple[str, DestinationKind]] = field(default_factory=set)

    def entry(self, name: str, kind: DestinationKind, policy: RedeliveryPolicy, fit: Fit) -> None:
        where, policy = f" {kind}={quoted(name)}", of_kind(policy, kind, literal(name, "activemq"))
        self._taken.add((name, kind))
        self.policies.append(f"<redeliveryPolicy{where}{_attributes(policy, fit, f'{kind}:{name}', self.lost)}/>")
        self.endings.append(_ending(where, policy, (kind,), f"{kind}:{name}", self.lost))

    def default(self, policy: RedeliveryPolicy) -> None:
        self.last = f"<redeliveryPolicy{_attributes(policy, fitted(policy), 'default', self.lost)}/>"
        if not policy.targets or policy.targets[0].kind != "same" or "$" in policy.targets[0].template:
            self.all = _ending("", policy, _KINDS, "default", self.lost)
            return
        # A default cannot express one queue or topic that depends on the kind of the source.
        for kind in _KINDS:
            if (">", kind) not in self._taken:
                self.endings.append(_ending(f' {kind}=">"', policy, (kind,), "default", self.lost))

    def text(self) -> str:
        entries = _block("redeliveryPolicyEntries", self.policies)
        default = _block("defaultEntry", [self.last] if self.last else [])
        policies = _block("redeliveryPolicyMap", _block("redeliveryPolicyMap", entries + default))
        endings = _block("policyEntries", self.endings) + _block("defaultEntry", [self.all] if self.all else [])
        client = _block(f'connectionFactory xmlns="{_CORE}"', policies)
        broker = _block(f'broker xmlns="{_CORE}"', _block("destinationPolicy", _block("policyMap", endings)))
        return "\n".join(_block(f'beans xmlns="{_BEANS}"', client + broker)) + "\n"


def _block(tag: str, lines: Sequence[str]) -> list[str]:
    inner = [f"  {line}" for line in lines]
    return [f"<{tag}>", *inner, f"</{tag.partition(' ')[0]}>"] if lines else []


def _attributes(policy: RedeliveryPolicy, fit: Fit, where: str, lost: list[str]) -> str:
    backoff, missing = fit
    lost += [f"{where}: {what}" for what in [*missing, *unsupported(policy), *of_messages(policy, LANGUAGE)]]
    given: dict[str, object] = {
        "maximumRedeliveries": _limit(policy, where, lost),
        "initialRedeliveryDelay": backoff.initial,
        "redeliveryDelay": backoff.delay,
    }
    if backoff.multiplier is not None:
        given |= {"useExponentialBackOff": "true", "backOffMultiplier": repr(float(backoff.multiplier))}
    if backoff.cap is not None:
        given["maximumRedeliveryDelay"] = backoff.cap
    if backoff.factor:
        percent = min(round(backoff.factor * 100), 2**15 - 1)
        if abs(percent * 0.01 - backoff.factor) > 1e-9:
            lost.append(f"{where}: jitter of {backoff.factor:g}: only whole per cents")
        given |= {"useCollisionAvoidance": "true", "collisionAvoidancePercent": percent}
    if policy.act == "failure":
        given["preDispatchCheck"] = "false"
    return "".join(f" {name}={quoted(str(value))}" for name, value in given.items())


def _limit(policy: RedeliveryPolicy, where: str, lost: list[str]) -> int:
    failures = limit(policy)
    if failures is None:
        return -1
    if failures - 1 > _MOST_REDELIVERIES:
        lost.append(f"{where}: dead after {failures} failures: at most {_MOST_REDELIVERIES + 1} can be written")
    return min(failures - 1, _MOST_REDELIVERIES)


def _ending(where: str, policy: RedeliveryPolicy, kinds: Sequence[DestinationKind], shown: str, lost: list[str]) -> str:
    if len(kinds) == 1:
        policy = of_kind(policy, kinds[0])
    expired = policy.expired()
    process = isinstance(expired, DeadLetter)
    elsewhere = isinstance(expired, DeadLetter) and expired.targets[:1] != policy.targets[:1]
    if policy.expiry.action == "log" or elsewhere:
        lost.append(
            f"{shown}: expiry {policy.expiry.action}: an expired message goes where a dead one goes, or nowhere"
        )
    else:
        lost += [f"{shown}: {what}" for what in of_redirected(policy)]
    if policy.on_dead == "discard":
        strategy = "<discarding/>"
    else:
        target = policy.targets[0] if policy.targets else Target("queue", DEAD_LETTER_QUEUE)
        switches = f' processExpired="{str(process).lower()}" processNonPersistent="true" enableAudit="false"'
        strategy = _strategy(target, kinds, switches, shown, lost)
    return f"<policyEntry{where}><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>"


def _strategy(target: Target, kinds: Sequence[DestinationKind], switches: str, shown: str, lost: list[str]) -> str:
    prefix, dollar, suffix = target.template.partition("$")
    if "$" in suffix or not sayable(prefix + dollar + suffix):
        lost.append(f"{shown}: the target {target}: one $ at most, no blanks around it, and what XML can hold")
        prefix, suffix = (part.replace("$", "") for part in (prefix, suffix))
        if not sayable(prefix + dollar + suffix):
            prefix, dollar = DEAD_LETTER_QUEUE, ""
    if not dollar:
        kind = kinds[0] if target.kind == "same" else target.kind
        queue = f"<deadLetterQueue><{kind} physicalName={quoted(prefix)}/></deadLetterQueue>"
        return f"<sharedDeadLetterStrategy{switches}>{queue}</sharedDeadLetterStrategy>"
    parts = ""
    for kind in kinds:
        to_queue = (kind if target.kind == "same" else target.kind) == "queue"
        parts += f" {kind}Prefix={quoted(prefix)} {kind}Suffix={quoted(suffix)}"
        parts += f' useQueueFor{kind.capitalize()}Messages="{str(to_queue).lower()}"'
    return f"<individualDeadLetterStrategy{parts}{switches}/>"
