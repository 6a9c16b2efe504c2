# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Near stacks are found as if each had been compared with each."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.pipeline.similar_stacks import Stack, groups, shingles


def stack(name: str, *frames: str, kind: str | None = "ValueError") -> Stack:
    return Stack(name, kind, frames)


def steps(count: int) -> list[str]:
    return [f"shop.step{n}:run" for n in range(count)]


def grouped_by_hand(stacks: Sequence[Stack]) -> dict[str, str]:
    """Return each stack's group: compare every pair, in fractions, and merge groups until nothing linked is apart."""
    near = {one.fingerprint: {one.fingerprint} for one in stacks}
    for one, other in combinations(stacks, 2):
        a, b = three_in_a_row(one.frames), three_in_a_row(other.frames)
        if one.error_type == other.error_type and a and b and 5 * len(a & b) >= 4 * len(a | b):
            merged = near[one.fingerprint] | near[other.fingerprint]
            for name in merged:
                near[name] = merged
    return {name: min(linked) for name, linked in near.items()}


def three_in_a_row(frames: Sequence[str]) -> set[tuple[str, ...]]:
    if len(frames) < 3:
        return {(frame,) for frame in frames}
    return set(zip(frames, frames[1:], frames[2:], strict=False))


def test_a_stack_is_the_set_of_its_frames_three_in_a_row() -> None:
    assert shingles(["a", "b", "c", "d"]) == {("a", "b", "c"), ("b", "c", "d")}
    assert shingles(["a", "b"]) == {("a",), ("b",)}
    assert shingles([]) == frozenset()


def test_stacks_that_share_four_fifths_are_one_group_under_its_smallest_name() -> None:
    # 11 frames have 9 shingles; another last frame leaves 8 of 10 in common: four fifths.
    assert groups([stack("b", *steps(11)), stack("a", *steps(10), "x:y")]) == {"a": "a", "b": "a"}


def test_stacks_that_share_less_are_apart() -> None:
    # 10 frames have 8 shingles; another last frame leaves 7 of 9.
    assert groups([stack("b", *steps(10)), stack("a", *steps(9), "x:y")]) == {"a": "a", "b": "b"}


def test_stacks_of_two_error_types_are_apart_even_if_they_are_the_same() -> None:
    assert groups([stack("a", *steps(20)), stack("b", *steps(20), kind="KeyError")]) == {"a": "a", "b": "b"}


def test_stacks_without_frames_are_near_to_nothing() -> None:
    assert groups([stack("a"), stack("b"), stack("c", kind=None)]) == {"a": "a", "b": "b", "c": "c"}


def test_of_two_frames_the_order_does_not_matter() -> None:
    assert groups([stack("a", "x:f", "y:g"), stack("b", "y:g", "x:f")]) == {"a": "a", "b": "a"}


def test_what_is_near_to_one_of_a_group_belongs_to_it() -> None:
    # b shares 11 of 13 with either of the others; they share 10 of 14, which is less than four fifths.
    frames = steps(14)
    a, b, c = frames, [*frames[:-1], "x:y"], ["u:v", *frames[1:-1], "x:y"]
    assert groups([stack("a", *a), stack("c", *c)]) == {"a": "a", "c": "c"}
    assert groups([stack("a", *a), stack("b", *b), stack("c", *c)]) == {"a": "a", "b": "a", "c": "a"}


@given(
    st.lists(
        st.tuples(st.sampled_from(["E", "F", None]), st.integers(0, 30), st.lists(st.integers(0, 40), max_size=3)),
        max_size=25,
    )
)
def test_groups_are_those_that_comparing_each_with_each_would_give(
    drawn: list[tuple[str | None, int, list[int]]],
) -> None:
    stacks = []
    for number, (kind, length, changed) in enumerate(drawn):
        frames = [f"f{at}" if at not in changed else f"g{at}" for at in range(length)]
        stacks.append(Stack(f"{number * 7919 % 1009:04d}", kind, frames))
    assert groups(stacks) == grouped_by_hand(stacks)


def test_the_order_in_which_they_come_changes_nothing() -> None:
    stacks = [stack(f"{n:02d}", *steps(20)[: 12 + n % 8]) for n in range(40)]
    assert groups(stacks) == groups(stacks[::-1])


@pytest.mark.slow
def test_thousands_of_stacks_take_seconds() -> None:
    rng = Random(3)
    stems = [[f"m{rng.randrange(400)}:f{rng.randrange(9)}" for _ in range(rng.randint(3, 30))] for _ in range(400)]
    stacks = []
    for number in range(8_000):
        frames = list(rng.choice(stems))
        frames[rng.randrange(len(frames))] = f"own:{rng.randrange(50)}"
        stacks.append(Stack(f"{number:05d}", rng.choice("EFG"), frames))
    begun = time.process_time()
    found = groups(stacks)
    assert time.process_time() - begun < 30
    assert len(found) == 8_000 > len(set(found.values()))
