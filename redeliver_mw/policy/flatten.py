# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns a PolicyMap that merges into one in which a single entry holds the whole answer. Pure.

Writers need this: one system merges field by field, another looks up one entry, and two systems choose differently
between patterns that merely overlap. Here every overlap of two patterns gets an entry of its own. Of all entries that
match a name, one is then contained in the others, and every rule of precedence takes that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..message import Destination, DestinationKind
from .decisions import Target
from .destinations import MapEntry, PolicyMap
from .model import RedeliveryPolicy
from .patterns import Pattern, Syntax, from_inside, pattern_of, patterns_of
from .word_tree import WordTree

MOST = 5_000  # overlaps; their number can double with each pattern
MOST_PAIRS = 100_000  # pairs of patterns that are compared, which takes half a second
REST = {"activemq": ">", "artemis": "#"}  # the word that stands for any number of words
_Key = tuple[Pattern, DestinationKind | None]
_Keys = dict[tuple[str, DestinationKind | None], _Key]


class Flat(NamedTuple):
    """Holds the map, and which entries of the given map could not be separated, and are left out."""

    policies: PolicyMap
    lost: list[str]  # a writer adds these to its own losses

    @property
    def entries(self) -> tuple[MapEntry, ...]:
        return self.policies.entries


def flattened(policies: PolicyMap) -> Flat:
    """Return a map with the same answer for every name and kind.

    The map has `match="best"` and whole policies, the widest pattern first.
    """
    plain, lost = _without_partial(policies)
    parts = apart(plain.entries, plain.syntax)
    if parts is None:
        lost += [f"{entry}: its overlaps with other patterns are too many" for entry in plain.entries]
        return Flat(_map([], policies), lost)
    entries = []
    for part in parts:
        policy = plain.resolve(part.name, part.asked)
        if part.kind is not None:
            policy = of_kind(policy, part.kind, literal(part.pattern, plain.syntax))
        entries.append(MapEntry(part.pattern, part.kind, policy))
    return Flat(_map(entries, policies), lost)


def of_kind(policy: RedeliveryPolicy, kind: DestinationKind, name: str | None = None) -> RedeliveryPolicy:
    """Return the policy with each target of the source's kind changed to the known kind.

    If the name of the source is known too, of two templates that resolve to the same destination only the first
    remains.
    """
    first: dict[Destination | Target, Target] = {}

    def known(target: Target) -> Target:
        own = Target(kind, target.template) if target.kind == "same" else target
        return first.setdefault(own if name is None else own.resolve(Destination(name, kind)), own)

    for target in policy.targets:
        known(target)
    return policy.with_places(known)


def literal(pattern: str, syntax: Syntax) -> str | None:
    """Return the one name that a pattern matches, or None if it may match several."""
    return pattern if Pattern(pattern, syntax).literal else None


class Part(NamedTuple):
    """Holds a pattern, the kind it is for, and a name and a kind with which to look up its policy."""

    pattern: str
    kind: DestinationKind | None
    name: str
    asked: DestinationKind


def apart(entries: Sequence[MapEntry], syntax: Syntax) -> list[Part] | None:
    """Return the patterns and their overlaps, the widest first; without stars inside words.

    None if there are too many.
    """
    keys = _closed(_keys(entries, syntax), syntax)
    if keys is None:
        return None
    patterns = {pattern.text: pattern for pattern, _ in keys.values()}
    examples = _Examples(list(keys.values()))
    parts: dict[str, list[Part]] = {}
    for text, kind in keys:
        for asked in _kinds_left(text, kind, keys):
            name = examples.of(patterns[text], asked)
            if name is not None:
                parts.setdefault(text, []).append(Part(text, kind, name, asked))
                break
    order = reversed(from_inside(patterns.values()))
    return [part for pattern in order for part in parts.get(pattern.text, [])]


def single(flat: PolicyMap) -> RedeliveryPolicy | None:
    """Return the one policy that a flattened map gives to every name and kind, or None if there are several."""
    covered = leaves_nothing(flat)
    answers = [entry.given for entry in flat.entries if isinstance(entry.given, RedeliveryPolicy)]
    first, *others = answers if covered else [flat.default, *answers]
    return first if all(policy == first for policy in others) else None


def leaves_nothing(flat: PolicyMap) -> bool:
    """Return whether every name and kind has an entry in a flattened map, so that its default is never used."""
    given = {(entry.pattern, entry.kind) for entry in flat.entries}
    everything = REST[flat.syntax]
    return (everything, None) in given or {(everything, "queue"), (everything, "topic")} <= given


def translated(pattern: str, source: Syntax, target: Syntax) -> str | None:
    """Return the pattern of a flattened map in the other syntax; None if a word of it would be a wildcard there."""
    if source == target:
        return pattern
    words = pattern.split(".")
    text = ".".join(REST[target] if word == REST[source] else word for word in words)
    strange = REST[target] in pattern or any("*" in word and word != "*" for word in words)
    return None if strange or (target == "activemq" and "," in pattern) else text


def _map(entries: Sequence[MapEntry], like: PolicyMap) -> PolicyMap:
    return PolicyMap(entries, like.default, syntax=like.syntax, language=like.language, warnings=like.warnings)


def _without_partial(policies: PolicyMap) -> Flat:
    # A star inside a word makes overlaps that no pattern can express.
    good, lost = [], []
    for entry in policies.entries:
        if any(pattern.partial for pattern in patterns_of(entry.pattern, policies.syntax)):
            lost.append(f"{entry}: a star among letters")
        else:
            good.append(entry)
    if not lost:
        return Flat(policies, lost)
    plain = PolicyMap(good, policies.default, syntax=policies.syntax, match=policies.match, build=policies.build)
    return Flat(plain, lost)


def _keys(entries: Sequence[MapEntry], syntax: Syntax) -> _Keys:
    keys: _Keys = {}
    for entry in entries:
        for pattern in patterns_of(entry.pattern, syntax):
            plain = _pattern(pattern.words, pattern.rest, syntax)
            keys[plain.text, entry.kind] = plain, entry.kind
    return keys


def _closed(keys: _Keys, syntax: Syntax) -> _Keys | None:
    tree: WordTree[_Key] = WordTree()
    fresh, looked_at = list(keys.values()), 0
    while fresh:
        for key in fresh:
            tree.add(key[0], key)
        found: _Keys = {}
        for one in fresh:
            near = [other for other in tree.overlapping(one[0]) if other is not one]
            looked_at += len(near)
            if len(found) > MOST or looked_at > MOST_PAIRS:
                return None
            for other in near:
                both = _overlap(one, other, syntax)
                if both is not None and (both[0].text, both[1]) not in keys:
                    found[both[0].text, both[1]] = both
        if len(found) > MOST:
            return None
        keys |= found
        fresh = list(found.values())
    return keys


def _overlap(one: _Key, other: _Key, syntax: Syntax) -> _Key | None:
    if one[1] is not None and other[1] is not None and one[1] != other[1]:
        return None
    left, right = one[0], other[0]
    if len(left.words) > len(right.words):
        left, right = right, left
    if len(left.words) < len(right.words) and not left.rest:
        return None
    if left.contains(right):  # the usual case
        return right, one[1] or other[1]
    words = list(right.words)
    for at, word in enumerate(left.words):
        if words[at] == "*":
            words[at] = word
        elif word not in ("*", words[at]):
            return None
    return _pattern(words, left.rest and right.rest, syntax), one[1] or other[1]


def _pattern(words: Sequence[str], rest: bool, syntax: Syntax) -> Pattern:
    return pattern_of(".".join([*words, REST[syntax]] if rest else words), syntax)


def _kinds_left(text: str, kind: DestinationKind | None, keys: _Keys) -> list[DestinationKind]:
    # The kinds with which to look up the policy of an entry; none if entries for each kind cover everything.
    if kind is not None:
        return [kind]
    kinds: tuple[DestinationKind, ...] = ("queue", "topic")
    return [each for each in kinds if (text, each) not in keys]


class _Examples:
    """Finds names that a pattern matches and no other pattern does, except for those that contain it."""

    def __init__(self, keys: Sequence[_Key]) -> None:
        self._tree: WordTree[_Key] = WordTree()
        for key in keys:
            self._tree.add(key[0], key)
        patterns = [pattern for pattern, _ in keys]
        self._longest = max((len(pattern.words) for pattern in patterns), default=0) + 1
        taken = {word for pattern in patterns for word in pattern.words}
        self._spare = next(word for size in range(1, len(taken) + 2) if (word := "x" * size) not in taken)

    def of(self, pattern: Pattern, kind: DestinationKind) -> str | None:
        """Return a name that this pattern matches, and no other does except for those that contain it.

        The result is None if the patterns inside this one match every name of that kind that it matches.
        """
        words = [self._spare if word == "*" else word for word in pattern.words]
        if not pattern.rest:
            return ".".join(words)
        near = (other for other, other_kind in self._tree.overlapping(pattern) if other_kind in (None, kind))
        inside = [other for other in near if other.text != pattern.text and pattern.contains(other)]
        for _ in range(self._longest + 1 - len(words)):
            name = ".".join(words)
            if name and not any(other.matches(name) for other in inside):
                return name
            words.append(self._spare)
        return None
