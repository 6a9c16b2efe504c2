# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
r"""Reads our own language, TOML, which expresses the whole model. Also as `[tool.redeliver]` in a pyproject.toml.

Grammar; every key may be left out::

    syntax = "activemq"                  # how patterns are written: activemq (* and >) or artemis (* and #)
    match = "best"                       # or "merge", "chain": see PolicyMap
    [default]                            # for every source without an entry; its keys may also stand at the top
    dead_after = 7                       # LIMIT
    backoff = { initial = 1, multiplier = 2, cap = 60 }      # DELAYS, in seconds
    dead_letter = "queue:DLQ.$"          # TARGET, or a list; [] keeps the message
    on_dead = "dead-letter"              # or "discard", "keep"
    retry_on = ["TimeoutError", "requests.ConnectionError"]  # ERRORS; so are fatal and ignore
    expiry = "dead-letter"               # or "discard", "log", { action = "log", log = "%header%,%properties%,NAME" },
                                         # { action = "redirect", target = TARGET, time_to_live = S,
                                         #   priority = 0 to 9 }
    act = "failure"                      # or "arrival": ends a message that comes in with its limit reached
    name = "orders"                      # what it is called in journal and headers
    [default.arms.patient]               # some messages are under another policy: what differs from [default]
    share = 0.05                         # 5% of them; what all arms leave is the policy itself, as the arm "main"
    backoff = [60, 600]
    [destinations."ORDERS.>"]            # also "queue:ORDERS.>", "topic:PRICES.*": what differs from the default,
    backoff = [1, 5, 30]                 # whose arms it does not have: [destinations."ORDERS.>".arms.patient]

    LIMIT  := FAILURES | "never" | { failures = N, seconds = S } (the first of them)
            | { any = [LIMIT, …] } | { all = [LIMIT, …] }
    DELAYS := SECONDS | [SECONDS, …] (the last repeats) | { SOURCE, cap, floor, jitter, jitter_first, full_jitter }
    SOURCE := constant = S | initial = S, multiplier = M | start = S, increment = S | between = [S, S]
            | steps = { N = S, … } (from failure N on) | sum = [DELAYS, …] | chain = [DELAYS, …] | of = DELAYS
            | recurrence = { initial = MS, delay = MS, multiplier = M, cap = MS, factor = SHARE }     as ActiveMQ counts
            | growth = { delay = MS, multiplier = M, cap = MS, factor = SHARE }                     as Artemis counts
    TARGET := "NAME" | "queue:NAME" | "topic:NAME" | "same:NAME" | { kind = …, name = … }    $: the source's name
    ERRORS := "NAME" | ["NAME", …] | true | false | { type = … } | { message = TEXT } | { pattern = RE, flags = […] }
            | { not = ERRORS } | { any = [ERRORS, …] } | { all = [ERRORS, …] } | "none" (there is no such rule)

The keys beside a SOURCE are applied in this order: cap and floor, jitter, full jitter. For another order put the first
steps into `of`: `{ of = { initial = 1, jitter = 0.5 }, cap = 60 }` cuts after the jitter.

Worked example, on the queue `orders.eu`, the handler always failing::

    [default]
    dead_after = 5
    backoff = { initial = 2, multiplier = 3, cap = 10 }
    [destinations."orders.>"]
    dead_letter = ["queue:dead.$", "topic:alarms"]

    failure 1   again after 2 s
    failure 2   again after 6 s
    failure 3   again after 10 s: 18 s, cut
    failure 4   again after 10 s
    failure 5   copied to the queue `dead.orders.eu` and to the topic `alarms`

The language cannot express a rule that is a function of the exception.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ....errors import PolicyError
from ...destinations import MapEntry, PolicyMap
from ...model import RedeliveryPolicy, arm_name, arm_share, left_over
from .. import toml
from ..diagnostics import Diagnostics
from . import values as values

FIELDS: dict[str, Callable[[Any], Any]] = {
    "dead_after": values.stop,
    "backoff": values.backoff,
    "dead_letter": lambda given: values.targets(given) or None,
    "on_dead": lambda given: values.choice(given, ("dead-letter", "discard", "keep")),
    "retry_on": lambda given: None if given == "none" else values.condition(given),
    "fatal": lambda given: None if given == "none" else values.condition(given),
    "ignore": lambda given: None if given == "none" else values.condition(given),
    "expiry": values.expiry,
    "act": lambda given: values.choice(given, ("failure", "arrival")),
    "name": lambda given: _text(given),
}
KEYS = (*FIELDS, "arms")  # of a policy
TOP = ("syntax", "match", "default", "destinations")
_NOT_OURS = ("app",)  # settings of an App, in a pyproject.toml


def read(text: str, strict: bool = False) -> PolicyMap:
    """Return the policies of a TOML text. Raises PolicyError with line, path of keys and the nearest correct spelling.

    `strict` changes nothing: there is no other manual.
    """
    return _Reading(text).policies()


class _Reading:
    """Reads one text. Not reusable for a second one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._root: toml.Path = ()
        self._problems = Diagnostics()
        self._document = toml.parse(text)
        self._lines: dict[toml.Path, int] | None = None

    def policies(self) -> PolicyMap:
        top = self._top()
        own = {key: top[key] for key in top if key in KEYS}
        self._unknown(top, (*TOP, *KEYS, *(_NOT_OURS if self._root else ())), ())
        default = self._table(top, ("default",))
        if own and default:
            self._wrong(
                "keys of a policy at the top, and [default] too",
                ("default",),
                "Put them all into [default]",
                code="policy-conflict",
            )
        fields = self._policy(default, ("default",)) if default else self._policy(own, ())
        entries = self._entries(self._table(top, ("destinations",)))
        syntax = self._choice(top, "syntax", ("activemq", "artemis"))
        match = self._choice(top, "match", ("best", "merge", "chain"))
        if not (own or default or entries):
            self._problems.warn("it says nothing: this is our own default policy, for every destination")
        return self._map(entries, self._made(fields), syntax, match)

    def _map(self, entries: list[MapEntry], default: RedeliveryPolicy, syntax: Any, match: Any) -> PolicyMap:
        warnings = self._problems.warnings
        try:
            policies = PolicyMap(entries, default, syntax=syntax, match=match, native=self._text, warnings=warnings)
        except PolicyError:
            for entry in entries:
                self._check(entry, default, syntax)
        self._problems.close()
        return policies

    def _check(self, entry: MapEntry, default: RedeliveryPolicy, syntax: Any) -> None:
        try:
            PolicyMap([entry], default, syntax=syntax)
        except PolicyError as error:
            self._wrong(error.what, ("destinations", str(entry)), error.cure, code=error.code)

    def _top(self) -> Mapping[str, Any]:
        if "tool" not in self._document:
            return self._document
        tool = self._document["tool"]
        ours = tool.get("redeliver") if isinstance(tool, dict) else None
        if not isinstance(ours, dict):
            raise PolicyError(
                "there is no [tool.redeliver] in it", cure="Add [tool.redeliver.default]", code="policy-not-recognized"
            )
        self._root = ("tool", "redeliver")
        return ours

    def _entries(self, given: Mapping[str, Any]) -> list[MapEntry]:
        entries = []
        for pattern in given:
            path = ("destinations", pattern)
            fields = self._policy(self._table(given, path), path)
            if fields.get("dead_letter") and "on_dead" not in fields:
                fields["on_dead"] = "dead-letter"  # whatever the default does: this entry names a target
            entries.append(MapEntry.parse(pattern, fields))
        return entries

    def _policy(self, given: Mapping[str, Any], path: toml.Path) -> dict[str, Any]:
        if path:
            self._unknown(given, KEYS, path)
        arms = self._arms(given, (*path, "arms")) if "arms" in given else {}
        return self._fields(given, path) | arms

    def _arms(self, given: Mapping[str, Any], path: toml.Path) -> dict[str, Any]:
        if given["arms"] == "none":
            return {"arms": None}
        tables, found = self._table(given, path), {}
        if given["arms"] == {}:
            self._wrong(
                "a table without arms",
                path,
                f"Write [{toml.dotted(self._root + path)}.NAME]",
                code="policy-key-missing",
            )
        for name in tables:
            where = (*path, name)
            table = self._table(tables, where)
            self._unknown(table, ("share", *FIELDS), where)
            share = self._read(arm_share, table.get("share"), (*where, "share") if "share" in table else where)
            fields = self._fields(table, where)
            if self._read(arm_name, name, where) and share:
                found[name] = share, fields
        if found and not self._read(left_over, [share for share, _ in found.values()], (*path, [*found][-1])):
            found.clear()  # so that it is reported once
        return {"arms": found or None}

    def _read(self, read: Callable[[Any], Any], given: object, path: toml.Path) -> Any:
        try:
            return read(given)
        except PolicyError as error:
            return self._wrong(error.what, path, error.cure, code=error.code)

    def _fields(self, given: Mapping[str, Any], path: toml.Path) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, field in given.items():
            if name not in FIELDS:
                continue
            try:
                found[name] = FIELDS[name](field)
            except PolicyError as error:
                inner = error.where if error.where.startswith((".", "[")) else ""
                self._wrong(error.what, (*path, name), error.cure, inner, code=error.code)
        return found

    def _made(self, fields: dict[str, Any]) -> RedeliveryPolicy:
        try:
            return RedeliveryPolicy(**fields)
        except PolicyError as error:
            self._wrong(error.what, ("default",), error.cure, code=error.code)
            return RedeliveryPolicy()

    def _unknown(self, given: Mapping[str, Any], allowed: tuple[str, ...], path: toml.Path) -> None:
        for name in given:
            if name not in allowed:
                near = self._problems.nearest(name, allowed)
                meant = f"Did you mean {near!r}? " if near else ""
                self._wrong(
                    f"unknown key {name!r:.80}",
                    (*path, name),
                    f"{meant}Known here: {', '.join(allowed)}",
                    code="policy-key-unknown",
                )

    def _table(self, given: Mapping[str, Any], path: toml.Path) -> Mapping[str, Any]:
        found = given.get(path[-1], {})
        if isinstance(found, dict):
            return found
        self._wrong(
            f"{found!r:.200} is no table", path, f"Write [{toml.dotted(self._root + path)}]", code="policy-value"
        )
        return {}

    def _choice(self, given: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> str:
        try:
            return values.choice(given.get(name, allowed[0]), allowed)
        except PolicyError as error:
            self._wrong(error.what, (name,), error.cure, code=error.code)
            return allowed[0]

    def _wrong(self, what: str, path: toml.Path, cure: str, inner: str = "", *, code: str) -> None:
        whole = self._root + path
        if self._lines is None:
            self._lines = toml.places(self._text)
        near = next((whole[:end] for end in range(len(whole), 0, -1) if whole[:end] in self._lines), None)
        line = f"line {self._lines[near]}, " if near else ""
        self._problems.add(what, where=f"{line}{toml.dotted(whole)}{inner}"[:500], cure=cure, code=code)


def _text(given: object) -> str:
    if isinstance(given, str):
        return given
    raise PolicyError(f"{given!r:.200} is no text", cure="Give a string", code="policy-value")
