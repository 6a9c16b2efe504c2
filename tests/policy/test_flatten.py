# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a map that merges with one that looks up: both have the same answer for every name."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.policy import PolicyMap, RedeliveryPolicy
from redeliver_mw.policy.destinations import MapEntry
from redeliver_mw.policy.flatten import flattened, single, translated

NAMES = [".".join(words) for size in (1, 2, 3, 4) for words in product("abx", repeat=size)]
WORDS = st.lists(st.sampled_from("ab*"), min_size=1, max_size=3)


def patterns(rest: str) -> st.SearchStrategy[str]:
    return st.builds(lambda words, tail: ".".join([*words, *tail]), WORDS, st.sampled_from([[], [], [rest]]))


@st.composite
def maps(draw: st.DrawFn) -> PolicyMap:
    syntax = draw(st.sampled_from(["activemq", "artemis"]))
    key = st.tuples(patterns(">" if syntax == "activemq" else "#"), st.sampled_from([None, None, "queue", "topic"]))
    keys = draw(st.lists(key, max_size=5, unique=True))
    fields = st.fixed_dictionaries({}, optional={"dead_after": st.integers(1, 9), "backoff": st.integers(0, 9)})
    wholes = st.builds(RedeliveryPolicy, st.integers(1, 9), st.integers(0, 9))
    entries = [MapEntry(pattern, kind, draw(fields | wholes)) for pattern, kind in keys]
    return PolicyMap(entries, syntax=syntax, match=draw(st.sampled_from(["best", "merge", "chain"])))


@given(maps())
@settings(max_examples=150)
def test_a_flattened_map_gives_the_same_answer_for_every_name(policies: PolicyMap) -> None:
    flat, lost = flattened(policies)
    assert lost == []
    assert flat.match == "best"
    for name, kind in product(NAMES, ("queue", "topic")):
        assert flat.resolve(name, kind) == policies.resolve(name, kind), (name, kind)


def test_an_overlap_of_two_patterns_gets_an_entry_of_its_own() -> None:
    policies = PolicyMap({"a.*": {"dead_after": 1}, "*.b": {"backoff": 5}}, match="merge")
    both = {str(entry): entry.given for entry in flattened(policies).policies.entries}
    assert both["a.b"] == RedeliveryPolicy(1, 5)
    assert set(both) == {"a.b", "a.*", "*.b"}


def whole(policies: PolicyMap) -> RedeliveryPolicy | None:
    return single(flattened(policies).policies)


def test_one_policy_for_all_is_found_however_it_is_written() -> None:
    one, other = RedeliveryPolicy(3), RedeliveryPolicy(4)
    assert whole(PolicyMap(None, one)) == one
    assert whole(PolicyMap({"a.>": one, "b": one}, one)) == one
    assert whole(PolicyMap({">": one}, other)) == one
    assert whole(PolicyMap({"queue:>": one}, other)) is None
    assert whole(PolicyMap({"a": one}, other)) is None


def test_patterns_that_overlap_in_too_many_ways_are_lost_and_named() -> None:
    entries = [MapEntry(".".join("a" if at == one else "*" for at in range(16)), None, {}) for one in range(16)]
    flat, lost = flattened(PolicyMap(entries, RedeliveryPolicy(3), match="merge"))
    assert len(lost) == 16
    assert (flat.entries, flat.default) == ((), RedeliveryPolicy(3))


def test_a_star_among_letters_is_lost_and_named_and_the_others_stay() -> None:
    policies = PolicyMap({"a.b*": {"dead_after": 1}, "a.#": {"backoff": 5}}, syntax="artemis", match="merge")
    flat, lost = flattened(policies)
    assert lost == ["a.b*: a star among letters"]
    assert flat.resolve("a.bb") == RedeliveryPolicy(backoff=5)


def test_several_patterns_in_one_entry_are_entries_of_their_own() -> None:
    flat = flattened(PolicyMap({"A,B.>.>": RedeliveryPolicy(1)})).policies
    assert {str(entry) for entry in flat.entries} == {"A", "B.>"}


@pytest.mark.parametrize(
    ("pattern", "translation"),
    [("a.>", "a.#"), (">", "#"), ("a.*.b", "a.*.b"), ("a>", "a>"), ("a.#", None), ("a#", None), ("a*", None)],
)
def test_a_pattern_is_translated_unless_its_words_are_wildcards_there(pattern: str, translation: str | None) -> None:
    assert translated(pattern, "activemq", "artemis") == translation


def test_a_wide_pattern_is_kept_for_the_kind_that_the_narrower_ones_leave_over() -> None:
    given = {"a.>": {"dead_after": 1}, "queue:a": {}, "a.a": {}, "a.*.>": {}}
    flat = flattened(PolicyMap(given)).policies
    assert flat.resolve("a", "topic").dead_after == 1
    assert flat.resolve("a", "queue").dead_after == flat.resolve("a.b", "topic").dead_after == 7
