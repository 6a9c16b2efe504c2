# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which staged letters are one, on a random queue whose consumers may die: no letter is ever missing."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.pipeline.draining.dedupe import Doubt, Matched, Staged, StagedLetter, doubt_of, match

QUEUE = "host DLQ"
FATES = ["lives", "lives", "dies unsettled", "dies settled", "dies unstaged"]


def staged(origin: str, letters: list[tuple[str, str]], sure: bool, generation: int = 1) -> Staged:
    """Return a batch of letters, each given as `(id, known_by)`."""
    at = (origin, generation)
    return Staged(QUEUE, at, None if sure else doubt_of(f"{origin}-{generation}", QUEUE, at, letters))


def letters(batch: int, ids: str, known_by: str = "id", back: bool = True, same: str = "body") -> list[StagedLetter]:
    return [StagedLetter(batch, row, one, same, known_by, back) for row, one in enumerate(ids)]


def pairs(ids: str, known_by: str = "id") -> list[tuple[str, str]]:
    return [(one, known_by) for one in ids]


def again(found: Matched) -> list[tuple[int, int]]:
    return sorted(found.again)


# -- one rule at a time ----------------------------------------------------------------------------


def test_a_letter_of_a_batch_in_doubt_that_comes_back_is_the_same() -> None:
    batches = [staged("dead", pairs("ab"), sure=False), staged("next", pairs("bc"), sure=True)]
    found = match(batches, [*letters(0, "ab", back=False), *letters(1, "bc")], {})
    assert again(found) == [(1, 0)]
    assert set(found.ids.values()) == {"a", "b", "c"}
    assert found.doubts[0].known == {"a": 1}


def test_a_letter_that_nobody_had_before_is_another_one() -> None:
    batches = [staged("dead", pairs("a"), sure=False), staged("next", pairs("a"), sure=True)]
    found = match(batches, [*letters(0, "a", back=False), *letters(1, "a", back=False)], {})
    assert (again(found), sorted(found.ids.values())) == ([], ["a", "a-2"])


def test_a_letter_whose_like_is_off_the_queue_for_certain_is_another_one() -> None:
    batches = [staged("one", pairs("a"), sure=True), staged("next", pairs("a"), sure=True)]
    found = match(batches, [*letters(0, "a"), *letters(1, "a")], {})
    assert (again(found), sorted(found.ids.values())) == ([], ["a", "a-2"])


def test_what_came_by_the_same_way_cannot_have_come_back() -> None:
    batches = [staged("one", pairs("a"), sure=False), staged("one", pairs("a"), sure=True)]
    found = match(batches, [*letters(0, "a"), *letters(1, "a")], {})
    assert (again(found), sorted(found.ids.values())) == ([], ["a", "a-2"])


def test_it_comes_back_once_and_a_second_one_is_another() -> None:
    batches = [
        staged("dead", pairs("a"), sure=False),
        staged("next", pairs("a"), True),
        staged("third", pairs("a"), True),
    ]
    found = match(batches, [*letters(0, "a"), *letters(1, "a"), *letters(2, "a")], {})
    assert (again(found), sorted(found.ids.values())) == ([(1, 0)], ["a", "a-2"])
    assert found.doubts == []


def test_who_takes_what_came_back_and_dies_too_leaves_it_in_doubt_again() -> None:
    batches = [staged(name, pairs("a"), sure=False) for name in ("dead", "next", "third")]
    found = match(batches, [*letters(0, "a"), *letters(1, "a"), *letters(2, "a")], {})
    assert (again(found), list(found.ids.values())) == ([(1, 0), (2, 0)], ["a"])
    assert [doubt.batch for doubt in found.doubts] == ["third-1"]


def test_a_doubt_of_another_queue_says_nothing() -> None:
    before = [Doubt("b", "host OTHER", ("dead", 1), {"a": 1}, {}, 1)]
    found = match([staged("next", pairs("a"), sure=True)], letters(0, "a"), {"a": [("a", "body")]}, before)
    assert (again(found), list(found.ids.values()), found.doubts) == ([], ["a-2"], before)


def test_the_same_copy_of_ours_is_the_same_letter_in_whatever_batch_it_lies() -> None:
    batches = [staged("one", pairs("a", "copy"), sure=True), staged("next", pairs("aa", "copy"), sure=True)]
    given_ = [*letters(0, "a", "copy"), *letters(1, "aa", "copy", back=False)]
    found = match(batches, given_, {})
    assert (again(found), list(found.ids.values())) == ([(1, 0), (1, 1)], ["a"])


def test_another_body_under_the_id_of_a_copy_is_another_letter() -> None:
    found = match(
        [staged("one", pairs("a", "copy"), sure=True)], letters(0, "a", "copy", same="new"), {"a": [("a", "old")]}
    )
    assert (again(found), list(found.ids.values())) == ([], ["a-2"])


def test_an_ordinal_is_the_first_that_is_free() -> None:
    table = {"a": [("a", "x"), ("a-2", "x"), ("a-4", "x")]}
    found = match([staged("one", pairs("aa"), sure=True)], letters(0, "aa"), table)
    assert sorted(found.ids.values()) == ["a-3", "a-5"]


def test_letters_without_an_id_count_as_come_back_when_their_whole_batch_did() -> None:
    batches = [
        staged("dead", pairs("abb", ""), False),
        staged("next", pairs("ab", ""), True),
        staged("x", pairs("b", ""), True),
    ]
    given_ = [*letters(0, "abb", ""), *letters(1, "ab", ""), *letters(2, "b", "")]
    found = match(batches, given_, {})
    assert again(found) == [(1, 0), (1, 1), (2, 0)]
    assert sorted(found.ids.values()) == ["a", "b", "b-2"]


def test_letters_without_an_id_of_which_a_part_comes_are_others() -> None:
    batches = [staged("dead", pairs("abb", ""), sure=False), staged("next", pairs("ab", ""), sure=True)]
    found = match(batches, [*letters(0, "abb", ""), *letters(1, "ab", "")], {})
    assert (again(found), found.doubts) == ([], [])
    assert sorted(found.ids.values()) == ["a", "a-2", "b", "b-2", "b-3"]


def test_letters_that_are_all_alike_and_without_an_id_are_never_the_same() -> None:
    batches = [staged("dead", pairs("aa", ""), sure=False), staged("next", pairs("aa", ""), sure=True)]
    found = match(batches, [*letters(0, "aa", ""), *letters(1, "aa", "")], {})
    assert (again(found), len(found.ids)) == ([], 4)


def test_an_id_that_two_letters_of_a_batch_share_is_none() -> None:
    batches = [staged("dead", pairs("aab"), sure=False), staged("next", pairs("a"), sure=True)]
    found = match(batches, [*letters(0, "aab"), *letters(1, "a")], {})
    assert (again(found), sorted(found.ids.values())) == ([], ["a", "a-2", "a-3", "b"])


# -- a queue made by chance ------------------------------------------------------------------------


@dataclass
class World:
    """Holds a queue of letters that are told by their number, and what its consumers leave behind."""

    chance: random.Random
    marks: bool  # the broker marks what somebody had before
    fates: list[str]
    queue: list[tuple[int, bool]] = field(default_factory=list)  # number, whether it was handed out before
    batches: list[Staged] = field(default_factory=list)
    letters: list[StagedLetter] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    kills: int = 0
    largest: int = 0

    def consume(self, who: str, known: dict[int, tuple[str, str]]) -> None:
        """Take a batch and stage it; then its consumer may die, with the batch off the queue or not."""
        self.chance.shuffle(self.queue)
        size = self.chance.randint(1, 4)
        hand, self.queue = self.queue[:size], self.queue[size:]
        self.largest = max(self.largest, len(hand))
        fate = self.chance.choice(self.fates)
        if not hand:
            return
        if fate != "dies unstaged":
            batch = len(self.batches)
            self.batches.append(staged(who, [known[number] for number, _ in hand], sure=fate == "lives"))
            for row, (number, before) in enumerate(hand):
                dl_id, known_by = known[number]
                self.letters.append(
                    StagedLetter(batch, row, dl_id, "", known_by, before or bool(known_by and not self.marks))
                )
                self.numbers[batch, row] = number
        if fate in ("dies unsettled", "dies unstaged"):
            self.queue += [(number, True) for number, _ in hand]
        self.kills += fate != "lives"


@given(
    st.integers(0, 10**9),
    st.integers(1, 12),
    st.booleans(),
    st.sampled_from(["copy", "id", "", "mixed"]),
    st.booleans(),
)
def test_no_letter_is_ever_missing_and_one_is_twice_in_doubt_only(
    seed: int, number: int, marks: bool, kind: str, twins: bool
) -> None:
    # Letters that have their double in everything are told by their number, as long as all who die have kept theirs.
    world = World(random.Random(seed), marks, FATES[:4] if twins else FATES)
    known: dict[int, tuple[str, str]] = {}
    for one in range(number):
        by = world.chance.choice(["copy", "id", ""]) if kind == "mixed" else kind
        # Only letters without an id of their own may be alike and yet not the same.
        known[one] = (f"{by}{one // 2 if twins and not by else one}", by)
    world.queue = [(one, False) for one in range(number)]
    for step in range(60):
        world.consume(f"c{step}", known)
    while world.queue:
        world.consume(f"end{len(world.batches)}-{world.kills}", known)
    found = match(world.batches, world.letters, {})
    rows = [world.numbers[place] for place in found.ids]
    assert len(set(found.ids.values())) == len(found.ids)
    assert set(found.ids) | found.again == set(world.numbers)
    if twins:  # which of two that are alike is which, nobody can tell: as many of each as there were
        assert all(
            sum(known[row] == known[one] for row in rows) >= sum(known[n] == known[one] for n in known) for one in known
        )
    else:
        assert set(rows) == set(known)
    assert len(rows) - number <= world.kills * world.largest
    if kind in ("copy", "id"):
        assert len(rows) == number
