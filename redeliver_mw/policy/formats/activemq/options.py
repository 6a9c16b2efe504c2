# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the properties of ActiveMQ's RedeliveryPolicy as a policy, however they are written. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...activemq_delays import ActiveMQDelays
from ...decisions import Target
from ...model import RedeliveryPolicy
from ..diagnostics import Diagnostics, nearest
from ..values import without_unit

LANGUAGE = "activemq"
DEAD_LETTER_QUEUE = "ActiveMQ.DLQ"
_TARGET = Target("queue", DEAD_LETTER_QUEUE)
_INT, _LONG, _SHORT = 2**31, 2**63, 2**15
_WHOLE = {
    "maximumRedeliveries": _INT,
    "initialRedeliveryDelay": _LONG,
    "redeliveryDelay": _LONG,
    "maximumRedeliveryDelay": _LONG,
    "collisionAvoidancePercent": _SHORT,
}
_SWITCHES = ("useExponentialBackOff", "useCollisionAvoidance", "preDispatchCheck")
_GROWTH = ("backOffMultiplier", "maximumRedeliveryDelay")  # without meaning for delays that do not grow
_JITTER = ("collisionAvoidancePercent", "collisionAvoidanceFactor")  # without meaning if there is no jitter
_FRACTIONS = ("backOffMultiplier", "collisionAvoidanceFactor")
PROPERTIES = (*_WHOLE, *_SWITCHES, *_FRACTIONS)
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?", re.ASCII)


@dataclass(frozen=True)
class ActiveMQOptions:
    """Holds the properties with ActiveMQ's defaults; delays in milliseconds."""

    maximum_redeliveries: int = 6
    initial_delay: int = 1000
    delay: int = 1000
    maximum_delay: int = -1
    exponential: bool = False
    multiplier: float = 5.0
    collision: bool = False
    factor: float = 15 * 0.01  # as ActiveMQ computes it from the per cent
    pre_dispatch: bool = True

    @property
    def dead_after(self) -> int | None:
        """Return the limit: N redeliveries are N + 1 failures; only -1 is no limit."""
        return None if self.maximum_redeliveries == -1 else max(self.maximum_redeliveries + 1, 1)

    @property
    def backoff(self) -> ActiveMQDelays:
        cap = None if self.maximum_delay == -1 else self.maximum_delay
        growth = self.multiplier if self.exponential else None
        return ActiveMQDelays(self.initial_delay, self.delay, growth, cap, self.factor if self.collision else 0.0)

    def policy(self, native: str) -> RedeliveryPolicy:
        """Return the policy as a client has it.

        Dead letters go to the shared queue, and the limit is checked again when a message arrives.
        """
        return RedeliveryPolicy(
            self.dead_after,
            self.backoff,
            _TARGET,
            act="arrival" if self.pre_dispatch else "failure",
            language=LANGUAGE,
            native=native,
        )


_FIELDS = {
    "maximumRedeliveries": "maximum_redeliveries",
    "initialRedeliveryDelay": "initial_delay",
    "redeliveryDelay": "delay",
    "maximumRedeliveryDelay": "maximum_delay",
    "useExponentialBackOff": "exponential",
    "backOffMultiplier": "multiplier",
    "useCollisionAvoidance": "collision",
    "collisionAvoidancePercent": "factor",
    "collisionAvoidanceFactor": "factor",
    "preDispatchCheck": "pre_dispatch",
}


@dataclass
class ReportProblem:
    """Collects problems; `strict` makes an error of settings that the original accepts against its intention."""

    strict: bool
    problems: Diagnostics = field(default_factory=Diagnostics)

    def doubt(self, what: str, *, where: str = "", cure: str = "") -> None:
        """Report a setting that is valid in the program, and not in its manual or not with this meaning."""
        if self.strict:
            self.problems.add(what, where=where, cure=cure, code="policy-strict")
        else:
            self.problems.warn(f"{where}: {what}. {cure}" if where else f"{what}. {cure}")


def read_options(given: Mapping[str, str], where: str, report: ReportProblem) -> ActiveMQOptions:
    """Return the options of known properties; problems are reported to `report`."""
    values: dict[str, Any] = {}
    for name, text in given.items():
        place = f"{where}, {name}"
        if name in _SWITCHES:
            values[_FIELDS[name]] = read_switch(text, place, report)
        elif name in _WHOLE:
            values[_FIELDS[name]] = _whole(text, _WHOLE[name], place, report, is_delay=_WHOLE[name] == _LONG)
        else:
            values[_FIELDS[name]] = _fraction(text, place, report)
        if name == "collisionAvoidancePercent" and values["factor"] is not None:
            values["factor"] *= 0.01
    if "collisionAvoidanceFactor" in given:
        _about_the_factor(given, where, report)
    options = ActiveMQOptions(**{name: value for name, value in values.items() if value is not None})
    _doubts(options, where, report)
    if idle := [name for name in _GROWTH if name in given and not options.exponential]:
        report.problems.warn(
            f"{where}: {' and '.join(idle)} without useExponentialBackOff: the delay does not grow. "
            "Set useExponentialBackOff to true, or leave it out"
        )
    if idle := [name for name in _JITTER if name in given and not options.collision]:
        report.problems.warn(
            f"{where}: {' and '.join(idle)} without useCollisionAvoidance: the delay has no jitter. "
            "Set useCollisionAvoidance to true, or leave it out"
        )
    return options


def read_switch(text: str, where: str, report: ReportProblem) -> bool | None:
    """Return true or false, in any case of letters; otherwise None, with a problem reported."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    _wrong(text, where, "Use true or false", report)
    return None


@lru_cache(1000)  # a misspelt word is often misspelt everywhere
def unknown(name: str, allowed: tuple[str, ...]) -> tuple[str, str]:
    """Return the problem with an unknown word, and the cure."""
    near = nearest(name, allowed)
    meant = f"Did you mean {near}? " if near else ""
    return f"unknown property {name!r:.80}", f"{meant}Known here: {', '.join(allowed)}"


def _whole(text: str, limit: int, where: str, report: ReportProblem, *, is_delay: bool) -> int | None:
    match = _INTEGER.fullmatch(text.strip())
    if match and -limit <= int(match[0]) < limit:
        return int(match[0])
    unit = " of milliseconds" if is_delay else ""
    cure = without_unit(text) if is_delay else None
    _wrong(text, where, cure or f"Give a whole number{unit} from {-limit} to {limit - 1}", report)
    return None


def _fraction(text: str, where: str, report: ReportProblem) -> float | None:
    word = text.strip()
    if len(word) <= 400 and _DECIMAL.fullmatch(word) and math.isfinite(number := float(word.rstrip("dDfF"))):
        return number
    _wrong(text, where, "Give a number like 2 or 1.5", report)
    return None


def _wrong(text: str, where: str, cure: str, report: ReportProblem) -> None:
    if "${" in text:
        cure = "Write the value itself: placeholders are not looked up"
    report.problems.add(f"{text!r:.80} is not possible here", where=where, cure=cure, code="policy-value")


def _about_the_factor(given: Mapping[str, str], where: str, report: ReportProblem) -> None:
    if "collisionAvoidancePercent" in given:
        report.problems.add(
            "collisionAvoidanceFactor and collisionAvoidancePercent say the same",
            where=where,
            cure="Leave one out",
            code="policy-conflict",
        )
    report.doubt(
        "collisionAvoidanceFactor is what ActiveMQ's manual calls it; its program does not know that name",
        where=where,
        cure="Write collisionAvoidancePercent, a whole number of per cent",
    )


def _doubts(options: ActiveMQOptions, where: str, report: ReportProblem) -> None:
    if options.maximum_redeliveries < -1:
        report.doubt("maximumRedeliveries below -1 is no redelivery at all", where=where, cure="-1 is for ever")
    if options.initial_delay < 0 or options.delay < 0:
        report.doubt("a delay below 0 is no delay", where=where, cure="Write 0")
    if options.maximum_delay < -1:
        report.doubt("maximumRedeliveryDelay below -1 is a cap", where=where, cure="-1 is no cap")
