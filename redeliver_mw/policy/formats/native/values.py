# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the values of the native language into the model: stops, back-offs, targets, conditions, expiry. Pure.

Each function takes a TOML value and returns the model's value. Raises PolicyError, whose `where` is the path of keys
below the value, such as `.cap` or `[2].initial`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

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
from ...conditions import AllOf, Always, AnyOf, Condition, Message, Named, Not
from ...decisions import Target, TargetKind
from ...expiry import Expiry, ExpiryAction
from ...stops import AfterFailures, AfterSeconds, AllStops, AnyStop, Stop
from ..diagnostics import nearest

T = TypeVar("T")
Word = TypeVar("Word", bound=str)
ACTIONS: tuple[ExpiryAction, ...] = get_args(ExpiryAction)
Table = Mapping[str, Any]
MODIFIERS = ("cap", "floor", "jitter", "jitter_first", "full_jitter")
SOURCES = {
    "constant": (),
    "steps": (),
    "initial": ("multiplier",),
    "start": ("increment",),
    "between": (),
    "sum": (),
    "chain": (),
    "recurrence": (),
    "growth": (),
    "of": (),
}
RECURRENCE = ("initial", "delay", "multiplier", "cap", "factor")
GROWTH = ("delay", "multiplier", "cap", "factor")
FLAGS = {
    "ignorecase": re.IGNORECASE,
    "multiline": re.MULTILINE,
    "dotall": re.DOTALL,
    "ascii": re.ASCII,
    "verbose": re.VERBOSE,
}
_MOST = 2**63 - 1
_COUNT = re.compile(r"[0-9]{1,18}", re.ASCII)


def stop(given: object) -> Stop:
    """Return the stop for a number, a word or a table.

    These are `7`, `"never"`, `{ failures = 7, seconds = 3600 }` (the first of them), `{ any = […] }`, `{ all = […] }`.
    """
    if given == "never":
        return AfterFailures(None)
    if isinstance(given, int) and not isinstance(given, bool):
        if given < 1:
            raise PolicyError(f"dead after {given} failures", cure='Give 1 or more, or "never"', code="policy-value")
        return AfterFailures(given)
    table = _table(given, 'a number of failures, "never", or a table with failures, seconds, any or all')
    _known(table, ("failures", "seconds", "any", "all"))
    if "any" in table or "all" in table:
        name = _only(table)
        parts = _each(table, name, stop)
        return AnyStop(parts) if name == "any" else AllStops(parts)
    limits: list[Stop] = []
    if "failures" in table:
        limits.append(AfterFailures(_whole(table, "failures")))
    if "seconds" in table:
        limits.append(AfterSeconds(_number(table, "seconds")))
    if not limits:
        raise PolicyError("an empty table", cure="Give failures, seconds, any or all", code="policy-key-missing")
    return limits[0] if len(limits) == 1 else AnyStop(tuple(limits))


def backoff(given: object) -> Backoff:
    """Return the back-off for seconds, a list, or a table: one source, then `cap`, `floor`, `jitter`, `full_jitter`."""
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Constant(given)
    if isinstance(given, list):
        return Backoff.listed(given)
    table = _table(given, "seconds, a list of seconds, or a table")
    companions = [name for source in SOURCES if source in table for name in SOURCES[source]]
    _known(table, (*SOURCES, *companions, *MODIFIERS), also=("multiplier", "increment"))
    sources = [name for name in SOURCES if name in table]
    if len(sources) != 1:
        found = " and ".join(sources) or "none"
        raise PolicyError(
            f"one source of delays is needed, found {found}",
            cure=f"Give one of: {', '.join(SOURCES)}",
            code="policy-key-missing",
        )
    return _modified(_source(table, sources[0]), table)


def target(given: object) -> Target:
    """Return the target for a text or a table.

    The texts are `"queue:NAME"`, `"topic:NAME"`, `"same:NAME"` and `"NAME"`; the table is `{ kind = "queue", name =
    "NAME" }`.
    """
    if isinstance(given, str):
        return Target.parse(given)
    table = _table(given, "a name, or a table with kind and name")
    _known(table, ("kind", "name"))
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        raise PolicyError(f"{name!r:.200} is no name", where=".name", cure="Give a string", code="policy-value")
    kinds: dict[str, TargetKind] = {"queue": "queue", "topic": "topic", "same": "same"}
    return Target(kinds[choice(table.get("kind", "queue"), tuple(kinds), ".kind")], name)


def targets(given: object) -> tuple[Target, ...]:
    """Return the targets for one target or a list of them; an empty list is none."""
    several = given if isinstance(given, list) else [given]
    return tuple(
        at(f"[{number}]" if isinstance(given, list) else "", target, one) for number, one in enumerate(several)
    )


def condition(given: object) -> Condition:
    """Return the condition for `true`, `"package.Error"`, a list of names, or a table.

    The keys of a table are `type`, `message`, `pattern`, `not`, `any`, `all`.
    """
    if isinstance(given, bool):
        return Always(given)
    if isinstance(given, str | list):
        return Named.of(given if isinstance(given, list) else [given])
    table = _table(given, "an exception's dotted name, a list of names, or a table")
    _known(table, ("type", "message", "pattern", "flags", "not", "any", "all"))
    name = _only({key: table[key] for key in table if key != "flags"})
    if "flags" in table and name != "pattern":
        raise PolicyError("flags go with a pattern", where=".flags", cure="Leave them out", code="policy-conflict")
    if name == "pattern":
        return Message(None, _pattern(table))
    if name == "message":
        return Message(_text(table, "message"))
    if name == "not":
        return Not(at(".not", condition, table["not"]))
    if name == "type":
        return at(".type", condition, table["type"] if isinstance(table["type"], list) else [table["type"]])
    parts = _each(table, name, condition)
    return AnyOf(parts) if name == "any" else AllOf(parts)


def expiry(given: object) -> Expiry:
    """Return the expiry for a word or a table.

    The words are `"dead-letter"` and `"discard"`; the tables `{ action = "redirect", target = … }` and `{ action =
    "log", log = … }`.
    """
    table = {"action": given} if isinstance(given, str) else _table(given, "an action, or a table with one")
    _known(table, ("action", "target", "log", "time_to_live", "priority"))
    action: ExpiryAction = choice(table.get("action"), ACTIONS, ".action")
    goal = at(".target", target, table["target"]) if "target" in table else None
    log = _text(table, "log") if "log" in table else ""
    if log and action != "log":
        raise PolicyError(
            "what to log goes with the action log", where=".log", cure='Write action = "log"', code="policy-conflict"
        )
    life = _number(table, "time_to_live") if "time_to_live" in table else None
    priority = _number(table, "priority") if "priority" in table else None
    if priority is not None and not isinstance(priority, int):
        raise PolicyError(
            f"{priority!r:.200} is no whole number", where=".priority", cure="Give 0 to 9", code="policy-value"
        )
    if action == "redirect" and goal is None:
        cure = 'Write { action = "redirect", target = "queue:EXPIRED" }'
        raise PolicyError("redirect and a target go together", cure=cure, code="policy-conflict")
    return Expiry(action, goal, log, life, priority)


def choice(given: object, allowed: Sequence[Word], where: str = "") -> Word:
    """Return one of the allowed words. Raises PolicyError with the nearest of them for any other value."""
    for word in allowed:
        if given == word:
            return word
    near = nearest(given, allowed) if isinstance(given, str) else None
    meant = f"Did you mean {near!r}? " if near else ""
    raise PolicyError(
        f"{given!r:.200} is not possible here",
        where=where,
        cure=f"{meant}Use one of: {', '.join(allowed)}",
        code="policy-value",
    )


def at(where: str, read: Callable[[Any], T], given: object) -> T:
    """Return `read(given)`; in a PolicyError `where` is put before its own place."""
    try:
        return read(given)
    except PolicyError as error:
        inner = error.where if error.where.startswith((".", "[")) else ""
        raise PolicyError(error.what, where=where + inner, cure=error.cure, code=error.code) from None


def _source(table: Table, name: str) -> Backoff:
    match name:
        case "constant":
            return Constant(_number(table, name))
        case "steps":
            return _steps(_table(table[name], "a table of failures and seconds", ".steps"))
        case "initial":
            return Exponential(_number(table, name), _number(table, "multiplier", 2.0))
        case "start":
            return Linear(_number(table, name), _number(table, "increment"))
        case "between":
            pair = table[name]
            if not isinstance(pair, list) or len(pair) != 2:
                raise PolicyError(
                    f"{pair!r:.200} is no pair", where=".between", cure="Write [shortest, longest]", code="policy-value"
                )
            return Uniform(*pair)
        case "of":
            return at(".of", backoff, table[name])
        case "recurrence":
            inner = _table(table[name], f"a table with some of {', '.join(RECURRENCE)}", ".recurrence")
            return at(".recurrence", _recurrence, inner)
        case "growth":
            inner = _table(table[name], f"a table with some of {', '.join(GROWTH)}", ".growth")
            return at(".growth", _growth, inner)
    parts = _each(table, name, backoff)
    return Sum(parts) if name == "sum" else Chain(parts)


def _modified(source: Backoff, table: Table) -> Backoff:
    if "cap" in table or "floor" in table:
        source = Clamp(source, _number(table, "floor", 0.0), _number(table, "cap", LONGEST))
    if "jitter" in table:
        first = table.get("jitter_first", True)
        if not isinstance(first, bool):
            raise PolicyError(
                f"{first!r:.200} is not possible here",
                where=".jitter_first",
                cure="Use true or false",
                code="policy-value",
            )
        source = Spread(source, _number(table, "jitter"), first)
    elif "jitter_first" in table:
        raise PolicyError(
            "there is no jitter",
            where=".jitter_first",
            cure="Give jitter = 0.1, or leave it out",
            code="policy-conflict",
        )
    return FullJitter(source, _number(table, "full_jitter")) if "full_jitter" in table else source


def _recurrence(table: Table) -> Backoff:
    _known(table, RECURRENCE)
    return ActiveMQDelays(**table)


def _growth(table: Table) -> Backoff:
    _known(table, GROWTH)
    for name in ("delay", "cap"):
        if (name in table or name == "delay") and not -_MOST <= _whole(table, name) <= _MOST:
            raise PolicyError(
                f"{name} is {table[name]!r:.100}",
                where=f".{name}",
                cure="Give milliseconds of 64 bits",
                code="policy-value",
            )
    return ArtemisDelays(**table)


def _steps(table: Table) -> Backoff:
    for count in table:
        if not _COUNT.fullmatch(count):
            raise PolicyError(
                f"{count!r:.80} is no number of failures", where=".steps", cure="Write 3 = 1.0", code="policy-value"
            )
    return at(".steps", Steps, tuple(sorted((int(count), delay) for count, delay in table.items())))


def _pattern(table: Table) -> re.Pattern[str]:
    words = table.get("flags", [])
    if not isinstance(words, list):
        raise PolicyError(
            f"{words!r:.200} is no list", where=".flags", cure=f"Use some of: {', '.join(FLAGS)}", code="policy-value"
        )
    flags = re.NOFLAG
    for word in words:
        flags |= FLAGS[choice(word, tuple(FLAGS), ".flags")]
    try:
        return re.compile(_text(table, "pattern"), flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise PolicyError(
            f"no regular expression: {error}", where=".pattern", cure="See Python's re", code="policy-value"
        ) from None


def _table(given: object, wanted: str, where: str = "") -> Table:
    if not isinstance(given, dict):
        raise PolicyError(
            f"{given!r:.200} is not possible here", where=where, cure=f"Give {wanted}", code="policy-value"
        )
    return given


def _known(table: Table, names: Iterable[str], also: Iterable[str] = ()) -> None:
    allowed = tuple(names)
    for name in table:
        if name not in allowed:
            near = nearest(name, (*allowed, *also))
            cure = f"Did you mean {near!r}? " if near and near != name else ""
            raise PolicyError(
                f"unknown key {name!r:.80}",
                where="",
                cure=f"{cure}Known here: {', '.join(allowed)}",
                code="policy-key-unknown",
            )


def _only(table: Table) -> str:
    if len(table) != 1:
        raise PolicyError(
            f"one key is needed here, found {', '.join(table) or 'none'}",
            cure="Give one of them",
            code="policy-key-missing",
        )
    return next(iter(table))


def _each(table: Table, name: str, read: Callable[[Any], T]) -> tuple[T, ...]:
    parts = table[name]
    if not isinstance(parts, list) or not parts:
        raise PolicyError(
            f"{parts!r:.200} is no list of parts",
            where=f".{name}",
            cure="Give at least one, in [ ]",
            code="policy-value",
        )
    return tuple(at(f".{name}[{number}]", read, part) for number, part in enumerate(parts))


def _number(table: Table, name: str, default: float | None = None) -> float:
    given = table.get(name, default)
    if isinstance(given, bool) or not isinstance(given, int | float):
        found = "is missing" if given is None else f"is {given!r:.200}"
        raise PolicyError(f"{name} {found}", where=f".{name}", cure="Give a number", code="policy-value")
    return given


def _whole(table: Table, name: str) -> int:
    given = table.get(name)
    if isinstance(given, bool) or not isinstance(given, int):
        found = "is missing" if given is None else f"is {given!r:.200}"
        raise PolicyError(f"{name} {found}", where=f".{name}", cure="Give a whole number", code="policy-value")
    return given


def _text(table: Table, name: str) -> str:
    given = table[name]
    if not isinstance(given, str):
        raise PolicyError(f"{name} is {given!r:.200}", where=f".{name}", cure="Give a string", code="policy-value")
    return given
