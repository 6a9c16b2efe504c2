# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a PolicyMap as a native TOML text, which `native.read` reads back into an equal one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import PolicyError
from ...activemq_delays import ActiveMQDelays
from ...artemis_delays import ArtemisDelays
from ...backoff import (
    LONGEST,
    Backoff,
    Chain,
    Clamp,
    Constant,
    Exponential,
    FullJitter,
    Linear,
    Spread,
    Steps,
    Sum,
    Uniform,
)
from ...coercion import backoff_of, condition_of, stop_of, targets_of
from ...conditions import AllOf, Always, AnyOf, Condition, Message, Named, Not, OfType, name_of
from ...decisions import Target
from ...destinations import Given, MapEntry, PolicyMap
from ...expiry import Expiry
from ...flatten import flattened, leaves_nothing
from ...model import RedeliveryPolicy
from ...stops import AfterFailures, AfterSeconds, AllStops, AnyStop, Stop
from .. import toml
from ..delay_table import delay_table
from ..format_protocol import Conversion
from ..unsupported import of_messages
from .values import FLAGS, GROWTH, RECURRENCE

_RULES = ("retry_on", "fatal", "ignore")
Pairs = dict[str, object]
_LEFT_OUT: Pairs = {"expiry": "dead-letter", "act": "failure", "name": "", **dict.fromkeys(_RULES, "none")}


class _Unsaid(Exception):
    """Reports what the language cannot express."""


def write(policies: PolicyMap) -> Conversion:
    """Return the text, and what is lost in it: rules that are functions, and back-offs that are not the model's own."""
    lost: list[str] = []
    if policies.build is not None:  # fields of another language
        policies, missing = flattened(policies)
        lost += missing
    asked = not (policies.match == "best" and leaves_nothing(policies))
    given = [
        *([("default", policies.default)] if asked else []),
        *((str(entry), entry.given) for entry in policies.entries),
    ]
    for where, policy in given:
        if isinstance(policy, RedeliveryPolicy):
            lost += [f"{where}: {what}" for what in of_messages(policy, "native")]
    top: Pairs = {}
    if policies.entries and policies.syntax != "activemq":
        top["syntax"] = policies.syntax
    if policies.entries and policies.match != "best":
        top["match"] = policies.match
    blocks = [list(toml.table((), top))] if top else []
    default = policies.default
    findings = lost if asked else []
    blocks += _tables(("default",), _pairs(default, "default", findings) | _arms(default, "default", findings))
    for entry in policies.entries:
        blocks += _tables(("destinations", str(entry)), _entry(entry, policies, lost))
    return Conversion("\n\n".join("\n".join(block) for block in blocks) + "\n", tuple(lost))


def write_one(policies: PolicyMap) -> Conversion:
    """Return the entry of a map that has one, without its default."""
    lost: list[str] = []
    [entry] = policies.entries
    if isinstance(entry.given, RedeliveryPolicy):
        lost += [f"{entry}: {what}" for what in of_messages(entry.given, "native")]
    blocks = _tables(("destinations", str(entry)), _entry(entry, policies, lost))
    return Conversion("\n\n".join("\n".join(block) for block in blocks) + "\n", tuple(lost))


def _tables(path: toml.Path, pairs: Pairs) -> list[list[str]]:
    """Return the lines of a table, and of one table for each arm."""
    arms = pairs.get("arms")
    if not isinstance(arms, dict):
        return [list(toml.table(path, pairs))]
    own = {name: given for name, given in pairs.items() if name != "arms"}
    inner = [list(toml.table((*path, "arms", name), arm)) for name, arm in arms.items()]
    return [list(toml.table(path, own)), *inner]


def _entry(entry: MapEntry, policies: PolicyMap, lost: list[str]) -> Pairs:
    where = str(entry)
    if not isinstance(entry.given, RedeliveryPolicy):
        return _given(entry.given, where, lost)
    if policies.match == "best":
        return _differing(entry.given, where, lost, policies.default) | _arms(entry.given, where, lost)
    # It sets every field, so that entries behind it do not matter.
    arms = {
        arm.name: {"share": arm.propensity} | _all(arm.policy, f"{where}: arm {arm.name}", lost)
        for arm in entry.given.arms
    }
    return _all(entry.given, where, lost) | {"arms": arms or "none"}


def _arms(policy: RedeliveryPolicy, where: str, lost: list[str]) -> Pairs:
    arms = {
        arm.name: {"share": arm.propensity} | _differing(arm.policy, f"{where}: arm {arm.name}", lost, policy)
        for arm in policy.arms
    }
    return {"arms": arms} if arms else {}


def _differing(policy: RedeliveryPolicy, where: str, lost: list[str], base: RedeliveryPolicy) -> Pairs:
    same = _all(base, "", [])
    return {name: value for name, value in _all(policy, where, lost).items() if same.get(name) != value}


def _all(policy: RedeliveryPolicy, where: str, lost: list[str]) -> Pairs:
    return _LEFT_OUT | _pairs(policy, where, lost)


def _pairs(policy: RedeliveryPolicy, where: str, lost: list[str]) -> Pairs:
    pairs: Pairs = {"name": policy.name} if policy.name else {}
    pairs["dead_after"] = _limit(policy, where, lost)
    pairs["backoff"] = _delays(policy, where, lost)
    if policy.on_dead == "dead-letter":
        pairs["dead_letter"] = _targets(policy.targets)
    else:
        pairs["on_dead"] = policy.on_dead
    for name in _RULES:
        rule: Condition | None = getattr(policy, name)
        if rule is not None and (written := _rule(rule, f"{where}: {name}", lost)) is not None:
            pairs[name] = written
    if policy.expiry != Expiry():
        pairs["expiry"] = _expiry(policy.expiry)
    if policy.act != "failure":
        pairs["act"] = policy.act
    return pairs


def _given(fields: Mapping[str, Any], where: str, lost: list[str]) -> Pairs:
    # Keywords of RedeliveryPolicy, in any of the types that it accepts.
    pairs: Pairs = {}
    for name, given in fields.items():
        if name == "dead_after":
            pairs[name] = _stop(stop_of(given))
        elif name == "backoff":
            pairs[name] = _delays(RedeliveryPolicy(None, backoff_of(given)), where, lost)
        elif name == "dead_letter":
            pairs[name] = _targets(targets_of(given))
        elif name in _RULES:
            rule = condition_of(given, name)
            written = "none" if rule is None else _rule(rule, f"{where}: {name}", lost)
            pairs |= {} if written is None else {name: written}
        elif name == "expiry":
            pairs[name] = _expiry(given)
        elif name in ("on_dead", "act", "name"):
            pairs[name] = given
        elif name == "arms":
            arms = {arm: _given_arm(pair, f"{where}: arm {arm}", lost) for arm, pair in (given or {}).items()}
            pairs[name] = arms or "none"
    if pairs.get("on_dead") == "dead-letter" and pairs.get("dead_letter"):
        del pairs["on_dead"]  # implied by the target
    return pairs


def _given_arm(pair: tuple[float, Given], where: str, lost: list[str]) -> Pairs:
    share, given = pair
    fields = _all(given, where, lost) if isinstance(given, RedeliveryPolicy) else _given(given, where, lost)
    return {"share": share} | fields


def _limit(policy: RedeliveryPolicy, where: str, lost: list[str]) -> object:
    try:
        return _stop(policy.stop)
    except _Unsaid as unsaid:
        lost.append(f"{where}: {unsaid}")
        return "never" if policy.dead_after is None else policy.dead_after


def _stop(stop: Stop) -> object:
    match stop:
        case AfterFailures(limit):
            return "never" if limit is None else limit
        case AfterSeconds(limit):
            return {"seconds": limit}
        case AnyStop((AfterFailures(int() as limit), AfterSeconds(seconds))):
            return {"failures": limit, "seconds": seconds}
        case AnyStop(parts):
            return {"any": [_stop(part) for part in parts]} if parts else "never"
        case AllStops(parts):
            return {"all": [_stop(part) for part in parts]} if parts else 1
    raise _Unsaid(f"{stop}")


def _delays(policy: RedeliveryPolicy, where: str, lost: list[str]) -> object:
    try:
        return _backoff(policy.backoff)
    except _Unsaid:
        steps, missing = delay_table(policy)
        lost += [f"{where}: {what}" for what in missing]
        return {"steps": {str(at): seconds for at, seconds in steps}}


def _backoff(backoff: Backoff) -> object:
    match backoff:
        case Constant(seconds):
            return seconds
        case Steps(table):
            if table and [at for at, _ in table] == list(range(1, len(table) + 1)):
                return [seconds for _, seconds in table]
            return {"steps": {str(at): seconds for at, seconds in table}}
        case Exponential(initial, multiplier):
            return {"initial": initial, "multiplier": multiplier}
        case Linear(start, increment):
            return {"start": start, "increment": increment}
        case Uniform(low, high):
            return {"between": [low, high]}
        case Sum(parts):
            return {"sum": [_backoff(part) for part in parts]}
        case Chain(parts):
            return {"chain": [_backoff(part) for part in parts]}
        case ActiveMQDelays():
            return {"recurrence": _named(backoff, RECURRENCE)}
        case ArtemisDelays():
            return {"growth": _named(backoff, GROWTH)}
        case Clamp(inner, floor, most):
            bounds: Pairs = {"floor": floor} if floor or most == LONGEST else {}
            return _beside(inner, bounds | ({"cap": most} if most < LONGEST else {}))
        case Spread(inner, factor, first):
            spread: Pairs = {"jitter": factor}
            return _beside(inner, spread if first else spread | {"jitter_first": False})
        case FullJitter(inner, least):
            return _beside(inner, {"full_jitter": least})
    raise _Unsaid(f"{backoff}")


def _named(backoff: Backoff, names: tuple[str, ...]) -> Pairs:
    return {name: value for name in names if (value := getattr(backoff, name)) is not None}


_LATER = {
    "cap": {"cap", "floor", "jitter", "full_jitter"},
    "floor": {"cap", "floor", "jitter", "full_jitter"},
    "jitter": {"jitter", "full_jitter"},
    "full_jitter": {"full_jitter"},
}


def _beside(inner: Backoff, pairs: Pairs) -> object:
    # Beside the source if that is the order in which they are read, otherwise around it.
    written = _backoff(inner)
    if isinstance(written, list):
        written = {"of": written}
    if not isinstance(written, dict):
        written = {"constant": written}
    if _LATER[next(iter(pairs))] & written.keys():
        return {"of": written} | pairs
    return written | pairs


def _targets(targets: tuple[Target, ...]) -> object:
    written = [_target(target) for target in targets]
    return written[0] if len(written) == 1 else written


def _target(target: Target) -> object:
    text = str(target)
    try:
        plain = Target.parse(text) == target
    except PolicyError:
        plain = False
    return text if plain else {"kind": target.kind, "name": target.template}


def _expiry(expiry: Expiry) -> object:
    pairs: Pairs = {"action": expiry.action}
    if expiry.target is not None:
        pairs["target"] = _target(expiry.target)
    if expiry.log and expiry.action == "log":
        pairs["log"] = expiry.log
    if expiry.time_to_live is not None:
        pairs["time_to_live"] = expiry.time_to_live
    if expiry.priority is not None:
        pairs["priority"] = expiry.priority
    return pairs if len(pairs) > 1 else expiry.action


def _rule(rule: Condition, where: str, lost: list[str]) -> object | None:
    try:
        return _condition(rule)
    except _Unsaid as unsaid:
        lost.append(f"{where}: {unsaid} is code, which no text can hold")
        return None


def _condition(rule: Condition) -> object:
    match rule:
        case Always(answer):
            return answer
        case OfType(types):
            names = [_name(kind) for kind in types]
            return names[0] if len(names) == 1 else names
        case Named(names):
            return list(names)
        case Message(text, None):
            return {"message": text}
        case Message(_, pattern) if pattern is not None:
            flags = [name for name, flag in FLAGS.items() if pattern.flags & flag]
            return {"pattern": pattern.pattern} | ({"flags": flags} if flags else {})
        case Not(inner):
            return {"not": _condition(inner)}
        case AnyOf(parts) if parts:
            return {"any": [_condition(part) for part in parts]}
        case AllOf(parts) if parts:
            return {"all": [_condition(part) for part in parts]}
        case AnyOf() | AllOf():
            return isinstance(rule, AllOf)
    raise _Unsaid(f"{rule}")


def _name(kind: type[BaseException]) -> str:
    name = name_of(kind)
    if "<locals>" in name:
        raise _Unsaid(name)
    return name.removeprefix("builtins.")
