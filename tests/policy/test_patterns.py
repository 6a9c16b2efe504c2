# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests patterns of ActiveMQ and of Artemis: what they match, and which comes first."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy.patterns import Pattern, Syntax, by_precedence, closest, from_inside, patterns_of

# DestinationMapTest of ActiveMQ; what is chosen out of the set is derived from its order of comparison
KEYS = {"TEST.FOO": "v1", "TEST.*": "v2", "TEST.>": "v3", ">": "v4", "TEST.FOO.BAR": "v5"}


@pytest.mark.parametrize(
    ("name", "matching", "chosen"),
    [
        ("FOO", "v4", "v4"),
        ("TEST.FOO", "v1 v2 v3 v4", "v1"),
        ("TEST.D1", "v2 v3 v4", "v2"),
        ("TEST.FOO.BAR", "v3 v4 v5", "v5"),
        ("TEST.BAR.FOO", "v3 v4", "v3"),
        ("TEST", "v3 v4", "v3"),
    ],
)
def test_activemqs_own_vectors(name: str, matching: str, chosen: str) -> None:
    found = [pattern for pattern in (Pattern(key, "activemq") for key in KEYS) if pattern.matches(name)]
    assert {KEYS[pattern.text] for pattern in found} == set(matching.split())
    for order in itertools.permutations(found):
        best = closest(name, order)
        assert best is not None
        assert KEYS[best.text] == chosen


@pytest.mark.parametrize("syntax", ["activemq", "artemis"])
def test_the_rest_is_any_number_of_words_and_none_too(syntax: Syntax) -> None:
    pattern = Pattern("a.b." + (">" if syntax == "activemq" else "#"), syntax)
    assert [name for name in ("a.b", "a.b.c", "a.b.c.d", "a", "a.babc", "x.a.b") if pattern.matches(name)] == [
        "a.b",
        "a.b.c",
        "a.b.c.d",
    ]


def test_the_patterns_of_the_two_differ_where_a_star_stands_among_letters() -> None:
    assert Pattern("pay*", "artemis").matches("payments")
    assert Pattern("pay*", "artemis").partial
    assert not Pattern("pay*", "artemis").matches("payments.eu")
    assert not Pattern("pay*", "activemq").matches("payments")
    assert Pattern("pay*", "activemq").matches("pay*")


def test_a_rest_behind_an_empty_word_matches_only_what_begins_so() -> None:
    """This was seen on Artemis 2.44."""
    assert Pattern(".#", "artemis").matches(".x")
    assert not Pattern(".#", "artemis").matches("x")


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("*.#", ".x", False),
        ("k.*", "k.", False),
        ("k.*", "k..", False),
        ("k.#", "k.", False),
        ("k.#", "k..", True),
        ("k.*.#", "k.x..y", True),
        ("#", "", True),
        ("#", "..", True),
    ],
)
def test_no_star_of_artemis_stands_for_an_empty_word(text: str, name: str, matches: bool) -> None:
    """This was seen on Artemis 2.44."""
    assert Pattern(text, "artemis").matches(name) == matches


def test_a_regular_expressions_marks_are_letters() -> None:
    assert Pattern("a+(b)$.*", "artemis").matches("a+(b)$.x")
    assert not Pattern("a+(b)$.*", "artemis").matches("aab.x")


def test_unrelated_patterns_are_chosen_by_their_text_and_the_name_itself_first() -> None:
    """ActiveMQ compares names where neither pattern matches the other."""
    patterns = [Pattern(text, "activemq") for text in ("A.>", "*.B", "A.*")]
    assert closest("A.B", patterns) is patterns[1]
    assert closest("A.*", patterns) is patterns[2]
    assert closest("X", []) is None


def test_a_comma_separates_patterns_of_activemq_only() -> None:
    assert [pattern.text for pattern in patterns_of(" A , B.>,", "activemq")] == ["A", "B.>"]
    assert [pattern.text for pattern in patterns_of("A,B", "artemis")] == ["A,B"]


def test_artemis_order_of_precedence() -> None:
    """RepositoryTest of Artemis and its user manual agree: `foo.*` stands before `foo.0.#` for `foo.0`."""
    texts = ["#", "foo.#", "foo.0.#", "*.0", "foo.*", "foo.0"]
    ordered = ["foo.0", "foo.*", "*.0", "foo.0.#", "foo.#", "#"]
    for order in itertools.permutations(texts):
        assert [one.text for one in by_precedence(Pattern(text, "artemis") for text in order)] == ordered


@pytest.mark.parametrize(
    ("text", "syntax"),
    [("", "activemq"), ("", "artemis"), ("A.>.B", "activemq"), ("a.#.b", "artemis"), ("#a", "artemis")],
)
def test_what_is_no_pattern_is_refused_with_a_cure(text: str, syntax: Syntax) -> None:
    with pytest.raises(PolicyError, match="pattern") as caught:
        Pattern(text, syntax)
    assert caught.value.cure


def test_several_rests_at_the_end_are_one() -> None:
    assert Pattern("A.>.>", "activemq").matches("A")


words = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=4)
texts = st.builds(lambda parts, rest: ".".join([*parts, *([">"] if rest else [])]), words, st.booleans())
NAMES = [".".join(parts) for size in range(1, 6) for parts in itertools.product("ab", repeat=size)]


@given(texts, texts)
def test_a_pattern_that_contains_another_matches_all_that_it_matches(one: str, other: str) -> None:
    wide, narrow = Pattern(one, "activemq"), Pattern(other, "activemq")
    inside = {name for name in NAMES if narrow.matches(name)}
    assert wide.contains(narrow) == (inside <= {name for name in NAMES if wide.matches(name)})


@given(st.lists(texts, max_size=6))
def test_none_stands_behind_one_that_contains_it(given_texts: list[str]) -> None:
    ordered = from_inside(Pattern(text, "activemq") for text in given_texts)
    for before, behind in itertools.combinations(ordered, 2):
        assert not before.contains(behind) or behind.contains(before)


@given(texts, st.sampled_from(NAMES))
def test_both_syntaxes_match_alike(text: str, name: str) -> None:
    assert Pattern(text, "activemq").matches(name) == Pattern(text.replace(">", "#"), "artemis").matches(name)


@pytest.mark.timeout(10)
def test_many_stars_among_letters_are_compared_in_no_time() -> None:
    pattern = Pattern("*a" * 300, "artemis")
    assert pattern.matches("a" * 600)
    assert not pattern.matches("a" * 600 + "b")


@given(st.text("ab*.", min_size=1, max_size=8), st.sampled_from(["", "#", ".#"]), st.text("ab.*", max_size=9))
def test_a_star_among_letters_is_one_letter_or_more_of_its_word(head: str, rest: str, name: str) -> None:
    pattern = Pattern(head + rest, "artemis")
    if not pattern.partial:
        return
    stem = (head + rest).removesuffix("#").removesuffix(".") if rest else head
    expression = re.escape(stem).replace(r"\*", "[^.]+") + (r"(\..+)?" if rest else "")
    assert pattern.matches(name) == bool(re.fullmatch(expression, name))
