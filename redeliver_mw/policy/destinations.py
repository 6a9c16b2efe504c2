# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the policy for a destination."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from ..errors import PolicyError
from ..message import DestinationKind
from .coercion import choice_of
from .model import RedeliveryPolicy
from .patterns import Pattern, Syntax, closest, inside_key, patterns_of, precedence_key
from .word_tree import WordTree

Match = Literal["best", "merge", "chain"]
Given = RedeliveryPolicy | Mapping[str, Any]
Build = Callable[[Mapping[str, Any]], RedeliveryPolicy]
REMEMBERED = 10_000  # destinations whose policy is cached


@dataclass(frozen=True)
class MapEntry:
    """Holds a pattern, the kind of destination that it is for (None: both), and a policy or some fields of one."""

    pattern: str
    kind: DestinationKind | None
    given: Given

    @classmethod
    def parse(cls, key: str, given: Given) -> MapEntry:
        """Return the entry for `PATTERN`, `queue:PATTERN` or `topic:PATTERN`."""
        if not isinstance(key, str):
            raise PolicyError(f"{key!r:.200} is no destination pattern", cure="Give a str", code="policy-pattern")
        head, colon, rest = key.partition(":")
        if colon and head == "queue":
            return cls(rest, "queue", given)
        if colon and head == "topic":
            return cls(rest, "topic", given)
        return cls(key, None, given)

    def __str__(self) -> str:
        return f"{self.kind}:{self.pattern}" if self.kind else self.pattern


@dataclass(frozen=True, init=False)
class PolicyMap:
    """Holds policies by the name of the source. Frozen, compared by value, thread-safe.

    `PolicyMap({"FRED.JOE": p, "ORDERS.>": q, "topic:PRICES.*": r}, default=s)`: patterns as ActiveMQ writes them, or
    with `syntax="artemis"` as Artemis does; a prefix `queue:` or `topic:` narrows an entry to that kind. An entry holds
    a RedeliveryPolicy, or some of its keywords as a mapping. `match` defines how entries combine:

    - `best`: the one closest entry. ActiveMQ: the exact name, else the pattern that the others contain; Artemis: by its
      order of precedence. Of equal patterns one for this kind wins, else the last written.
    - `merge`: all entries that match, field by field, the closest first; the first that sets a field wins.
    - `chain`: all entries that match, field by field, in the order in which they were written.

    `build` makes a policy of the fields if they are not the keywords of RedeliveryPolicy; without `build`, the fields
    replace those of `default` without its `arms`: an entry has only the arms that it defines. Raises PolicyError for an
    invalid pattern, field or policy.
    """

    entries: tuple[MapEntry, ...] = field(hash=False)
    default: RedeliveryPolicy
    syntax: Syntax
    match: Match
    build: Build | None
    language: str = field(compare=False)
    native: str = field(compare=False)  # the complete original spelling; empty if there is none
    warnings: tuple[str, ...] = field(compare=False)  # valid settings that may not be what was meant
    _patterns: tuple[tuple[Pattern, MapEntry], ...] = field(compare=False, repr=False)
    _found: dict[tuple[str, str], RedeliveryPolicy] = field(compare=False, repr=False)

    def __init__(
        self,
        entries: Mapping[str, Given] | Sequence[MapEntry] | None = None,
        default: RedeliveryPolicy | None = None,
        *,
        syntax: Syntax = "activemq",
        match: Match = "best",
        build: Build | None = None,
        language: str = "native",
        native: str = "",
        warnings: Sequence[str] = (),
    ) -> None:
        """Take the entries, as the class describes them. Raises PolicyError."""
        if not isinstance(default, RedeliveryPolicy | None):
            raise PolicyError(
                f"{default!r:.200} is no policy",
                where="default",
                cure="Give a RedeliveryPolicy",
                code="policy-missing",
            )
        values: dict[str, Any] = {
            "default": RedeliveryPolicy() if default is None else default,
            "syntax": choice_of(syntax, ("activemq", "artemis"), "syntax"),
            "match": choice_of(match, ("best", "merge", "chain"), "match"),
            "build": build,
            "language": language,
            "native": native,
            "warnings": tuple(warnings),
            "entries": _entries(entries),
            "_found": {},
        }
        for key, value in values.items():
            object.__setattr__(self, key, value)
        object.__setattr__(self, "_patterns", self._ordered())

    def resolve(self, name: str, kind: str = "queue") -> RedeliveryPolicy:
        """Return the policy for a source of that name; never None. Never raises. Pure."""
        found = self._found.get((name, kind))
        if found is None:
            found = self._resolve(name, kind)
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            self._found[name, kind] = found
        return found

    def matching(self, name: str, kind: str = "queue") -> tuple[MapEntry, ...]:
        """Return the entries that apply to a source of that name; with `best`, at most the winning one."""
        if self.language == "artemis" and name.startswith(("jms.queue.", "jms.topic.")) and name[10:]:
            # HornetQ's name of a destination: its reader has removed the prefix from the patterns as well.
            kind, name = name[4:9], name[10:]
        # Artemis: a queue has the settings of its address; a queue that is named completely has its own entry here.
        address = name.partition("::")[0] if self.syntax == "artemis" else name
        words = address.split(".")
        near = {*self._places.matching(words), *(self._places.matching(name.split(".")) if name != address else ())}
        pairs = [
            pair
            for pair in (self._patterns[at] for at in sorted(near))
            if pair[1].kind in (None, kind) and (pair[0].matches(address, words) or pair[0].text == name)
        ]
        if self.match == "best" and len(pairs) > 1:
            chosen = pairs[0][0]
            if self.syntax == "activemq":
                chosen = closest(name, (pattern for pattern, _ in pairs)) or chosen
            pairs = [next(pair for pair in pairs if pair[0].text == chosen.text)]
        return tuple(entry for _, entry in pairs)

    def _resolve(self, name: str, kind: str) -> RedeliveryPolicy:
        fields: dict[str, Any] = {}
        found = self.matching(name, kind)
        for entry in found:
            if isinstance(entry.given, RedeliveryPolicy):
                # A whole policy sets every field, so entries behind it do not matter.
                return entry.given.replace(**fields) if fields else entry.given
            fields = {**entry.given, **fields}
        return self._built(fields) if found else self.default

    def _built(self, fields: Mapping[str, Any]) -> RedeliveryPolicy:
        if self.build is not None:
            return self.build(fields)
        return self.default.replace(**{"arms": None, **fields})  # its arms were made for the unchanged default

    @cached_property
    def _places(self) -> WordTree[int]:
        tree: WordTree[int] = WordTree()
        for at, (pattern, _) in enumerate(self._patterns):
            tree.add(pattern, at)
        return tree

    def _ordered(self) -> tuple[tuple[Pattern, MapEntry], ...]:
        # The order in which matching entries apply: of equal patterns the one for one kind comes first, then the last
        # written.
        pairs = [(pattern, entry) for entry in self.entries for pattern in self._checked(entry)]
        if self.match != "chain":
            pairs.reverse()
            pairs.sort(key=lambda pair: pair[1].kind is None)
            order: Callable[[Pattern], Any] = precedence_key if self.syntax == "artemis" else inside_key
            pairs.sort(key=lambda pair: order(pair[0]))
        return tuple(pairs)

    def _checked(self, entry: MapEntry) -> list[Pattern]:
        try:
            patterns = patterns_of(entry.pattern, self.syntax)
            if not isinstance(entry.given, RedeliveryPolicy):
                self._built(entry.given)
            elif self.build is not None and self.match != "best":
                raise PolicyError(
                    "a whole policy among fields", cure="Give its fields as a mapping", code="policy-missing"
                )
        except TypeError as error:  # RedeliveryPolicy has no such keyword
            raise PolicyError(
                f"{error}", where=str(entry), cure="Use the keywords of RedeliveryPolicy", code="policy-missing"
            ) from None
        except PolicyError as error:
            error.where = f"{entry}: {error.where}" if error.where else str(entry)
            raise
        return patterns


def _entries(given: Mapping[str, Given] | Sequence[MapEntry] | None) -> tuple[MapEntry, ...]:
    if isinstance(given, Mapping):
        entries = [MapEntry.parse(key, value) for key, value in given.items()]
    else:
        entries = list(given or ())
    for entry in entries:
        if not isinstance(entry, MapEntry) or not isinstance(entry.given, RedeliveryPolicy | Mapping):
            raise PolicyError(
                f"{getattr(entry, 'given', entry)!r:.200} is no policy",
                where=str(entry)[:200],
                cure="Give a RedeliveryPolicy, such as RedeliveryPolicy.parse(text), or a mapping of its keywords",
                code="policy-missing",
            )
    return tuple(_frozen(entry) for entry in entries)


def _frozen(entry: MapEntry) -> MapEntry:
    if isinstance(entry.given, RedeliveryPolicy):
        return entry
    return MapEntry(entry.pattern, entry.kind, dict(entry.given))


AnyPolicy = str | Path | RedeliveryPolicy | PolicyMap  # everything that `policy=` accepts
