# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes policies as Patch Bay's `dynamoMessagingSystem.xml`: one message-sink for each destination that has a name.

Pure.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from ....message import Destination, DestinationKind
from ...decisions import Discard, Target
from ...destinations import PolicyMap
from ...flatten import REST, flattened, leaves_nothing, translated
from ...model import RedeliveryPolicy
from ...patterns import Pattern
from ..format_protocol import Conversion
from ..total_time import one_delay
from ..unsupported import ends_by_time, limit, of_messages, sayable, without_time
from .reader import LANGUAGE, MOST_ATTEMPTS

_KINDS: tuple[DestinationKind, ...] = ("queue", "topic")


def write(policies: PolicyMap) -> Conversion:
    """Return one file, and what is lost, entry by entry: patterns and the default first.

    A native text is returned unchanged.
    """
    if policies.language == LANGUAGE and policies.native:
        return Conversion(policies.native)
    flat = flattened(policies)
    lost = list(flat.lost)
    sinks: list[str] = []
    everywhere = None if leaves_nothing(flat.policies) else policies.default
    own = {(entry.pattern, entry.kind) for entry in flat.entries}
    for entry in flat.entries:
        assert isinstance(entry.given, RedeliveryPolicy)  # flattened() returns such entries
        if entry.pattern == REST[policies.syntax] and entry.kind is None:
            everywhere = entry.given
            continue
        name = translated(entry.pattern, policies.syntax, "activemq")
        if name is None or not _sayable(name) or not Pattern(name, "activemq").literal:
            if _says_something(entry.given):
                lost.append(f"{entry}: only destinations by their names")
            continue
        for kind in _KINDS:
            if entry.kind == kind or (entry.kind is None and (entry.pattern, kind) not in own):
                sinks.append(_sink(Destination(name, kind), entry.given, len(sinks) + 1, lost))
    if everywhere is not None:
        if limit(everywhere) or everywhere.longest_delay or _rules(everywhere):
            lost.append("default: a destination that is not named is tried again at once and for ever")
        lost += [f"default: {what}" for what in of_messages(everywhere, LANGUAGE)]
    inside = "\n".join(sinks)
    text = f"<dynamo-message-system>\n  <patchbay>\n{inside}\n  </patchbay>\n</dynamo-message-system>\n"
    return Conversion(text, tuple(dict.fromkeys(lost)), names_nothing=not sinks)


def _says_something(policy: RedeliveryPolicy) -> bool:
    # More than what happens to a destination that a file does not name.
    longest = policy.longest_delay
    return bool(limit(policy) or longest or _rules(policy) or of_messages(policy, LANGUAGE))


def _sayable(name: str) -> bool:
    return sayable(name) and "$" not in name and "," not in name


def _sink(source: Destination, policy: RedeliveryPolicy, number: int, lost: list[str]) -> str:
    missing = [*_rules(policy), *of_messages(policy, LANGUAGE)]
    redelivery = port = ""
    if limit(policy) is None:
        if policy.longest_delay:
            missing.append(f"delays ({policy.backoff}): without an end there are no delays")
    else:
        name = f"Failed{number}"
        attempts, delay = _attempts(policy, missing), _delay(policy, missing)
        redelivery = (
            f"\n        <redelivery>\n          <max-attempts>{attempts}</max-attempts>"
            f"\n          <delay>{delay}</delay>"
            f"\n          <failure-output-port>{name}</failure-output-port>\n        </redelivery>"
        )
        outputs = "".join(f"\n{_destination('output', to, '        ')}" for to in _targets(source, policy, missing))
        port = f"\n      <redelivery-port>\n        <port-name>{name}</port-name>{outputs}\n      </redelivery-port>"
    lost += [f"{source}: {what}" for what in missing]
    return (
        f"    <message-sink>\n      <nucleus-name>/redeliver/Sink{number}</nucleus-name>\n      <input-port>\n"
        f"{_destination('input', source, '        ', redelivery)}\n      </input-port>{port}\n    </message-sink>"
    )


def _destination(way: str, destination: Destination, indent: str, more: str = "") -> str:
    name = f"<destination-name>{escape(destination.name)}</destination-name>"
    kind = f"<destination-type>{destination.kind.capitalize()}</destination-type>"
    inside = more.replace("\n", "\n  ")
    return f"{indent}<{way}-destination>\n{indent}  {name}\n{indent}  {kind}{inside}\n{indent}</{way}-destination>"


def _attempts(policy: RedeliveryPolicy, missing: list[str]) -> int:
    failures = limit(policy) or MOST_ATTEMPTS
    if failures > MOST_ATTEMPTS:
        missing.append(f"dead after {failures} failures: at most {MOST_ATTEMPTS} can be written")
    return min(failures, MOST_ATTEMPTS)


def _delay(policy: RedeliveryPolicy, missing: list[str]) -> int:
    delay, lost = one_delay(policy, MOST_ATTEMPTS)
    missing += lost
    return delay


def _targets(source: Destination, policy: RedeliveryPolicy, missing: list[str]) -> list[Destination]:
    if policy.on_dead == "discard":
        missing.append("discard: a dead message has to go somewhere, here to DLQ.$")
        return [Target("queue", "DLQ.$").resolve(source)]
    found = [target.resolve(source) for target in policy.targets]
    good = [one for one in found if _sayable(one.name)]
    missing += [f"the target {one}: its name cannot be written" for one in found if one not in good]
    return good or [Target("queue", "DLQ.$").resolve(source)]


def _rules(policy: RedeliveryPolicy) -> list[str]:
    rules = (("retry_on", policy.retry_on), ("fatal", policy.fatal), ("ignore", policy.ignore))
    missing = [f"{name} {rule}: there are no rules by exception" for name, rule in rules if rule is not None]
    if ends_by_time(policy):
        missing.append(without_time(policy))
    if policy.expiry.action == "log" or not isinstance(policy.expired(), Discard):
        missing.append(f"expiry {policy.expiry.action}: what expires is dropped")
    return missing
