# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which of the letters that were staged are one and the same? Pure.

A consumer that dies after it has staged a batch leaves a question: did the broker take the letters off its queue? If
not, they come again, and were staged twice. So a letter is the same as one that was staged before it only if

- both carry the id of the same copy of ours, the same body and the same source: nobody but us gives those; or
- the former lies in a *doubt*, a batch that is not known to be off its queue, has the same id, and was not matched
  yet; and the latter was in somebody's hands before, as far as its broker tells, and came by another way.

An id that a message had of its own makes it one among many. Without one, letters may be alike and yet not the same.
These count as come back only where their whole batch did, for its letters are settled at once, and if not all in it
are alike. (For that to be wrong, every letter of the batch would have to have its double, in body, death and queue, and
all of these would have to have been in the hands of somebody who died before he kept them.)

In every other case the letter is a new one, with an ordinal behind its id: in doubt a letter is there twice, at most a
batch for each death, and none is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

LetterOrigin = tuple[str, int]
"""One generation of one process of a task. What it has not settled does not come to it again."""


class StagedLetter(NamedTuple):
    """A letter in a batch: `batch` and `row` say where, `same` is a digest of body and source."""

    batch: int
    row: int
    dl_id: str
    same: str
    known_by: str
    may_be_back: bool


@dataclass(frozen=True, slots=True)
class Doubt:
    """A batch that may be in its queue as well as here. Letters by id: how many of each have not come back.

    `known` have an id of their own, `others` have not. `whole` counts all that it began with.
    """

    batch: str
    queue: str  # broker and dead-letter queue, as text
    origin: LetterOrigin
    known: dict[str, int]
    others: dict[str, int]
    whole: int

    @property
    def is_open(self) -> bool:
        return bool(self.known or self.others)


def doubt_of(batch: str, queue: str, origin: LetterOrigin, letters: Iterable[tuple[str, str]]) -> Doubt:
    """The doubt that a batch of `(dl_id, known_by)` is. Copies of ours need none."""
    counted = Counter((dl_id, known_by) for dl_id, known_by in letters if known_by != "copy")
    alone = Counter(dl_id for dl_id, _ in counted.elements())
    known = {dl_id: 1 for dl_id, known_by in counted if known_by and alone[dl_id] == 1}
    others = {dl_id: n for dl_id, n in alone.items() if dl_id not in known}
    return Doubt(batch, queue, origin, known, others, sum(alone.values()))


@dataclass(slots=True)
class Matched:
    """What matching found: the ids under which letters go into the table, by batch and row; those that are there
    already; and the doubts that remain."""

    ids: dict[tuple[int, int], str] = field(default_factory=dict)
    again: set[tuple[int, int]] = field(default_factory=set)
    doubts: list[Doubt] = field(default_factory=list)


class Staged(NamedTuple):
    """A batch in order of time: where it came from, and the doubt that it is itself, if it is one."""

    queue: str
    origin: LetterOrigin
    doubt: Doubt | None


def match(
    batches: Sequence[Staged],
    letters: Iterable[StagedLetter],
    there: Mapping[str, Sequence[tuple[str, str]]],
    doubts: Sequence[Doubt] = (),
) -> Matched:
    """`letters`, in order of their batches, are those whose id is not theirs alone: among all that is staged, in a
    doubt of before, or in the table. `there`: `(dl_id, same)` of what the table has for each of these ids, ordinals
    left off. Ids that it gives are free.
    """
    return _Matching(batches, there, doubts).run(letters)


class _Matching:
    def __init__(
        self, batches: Sequence[Staged], there: Mapping[str, Sequence[tuple[str, str]]], doubts: Sequence[Doubt]
    ) -> None:
        self._batches = batches
        self._taken = {base: {dl_id for dl_id, _ in known} for base, known in there.items()}
        self._ordinals: dict[str, int] = {}  # up to which they are taken
        self._same = {(base, same) for base, known in there.items() for _, same in known}
        self._open = [_own(one) for one in doubts]
        self._reached = 0  # batches whose own doubt is open already
        self._returned: dict[str, list[StagedLetter]] = {}  # by the doubt's batch: they may be it, if all of it came
        self._came: Counter[str] = Counter()  # how many of a doubt came back now
        self._found = Matched()

    def run(self, letters: Iterable[StagedLetter]) -> Matched:
        undecided: list[StagedLetter] = []
        for letter in letters:
            self._open_until(letter.batch)
            if letter.known_by == "copy":
                self._copy(letter)
            elif not (letter.may_be_back and self._returns(letter)):
                undecided.append(letter)
        self._open_until(len(self._batches))
        back = self._whole_batches()
        for letter in undecided:
            self._new(letter)
        for letter in sorted(back):
            self._new(letter)
        self._found.doubts = [one for one in self._open if one.is_open]
        return self._found

    def _open_until(self, batch: int) -> None:
        for staged in self._batches[self._reached : batch]:
            if staged.doubt is not None and staged.doubt.is_open:
                self._open.append(_own(staged.doubt))
        self._reached = max(self._reached, batch)

    def _copy(self, letter: StagedLetter) -> None:
        if (letter.dl_id, letter.same) in self._same:
            self._found.again.add((letter.batch, letter.row))
        else:
            self._same.add((letter.dl_id, letter.same))
            self._new(letter)

    def _returns(self, letter: StagedLetter) -> bool:
        """Takes the letter out of the doubt that it may be in."""
        came = self._batches[letter.batch]
        for doubt in self._open:
            if doubt.origin == came.origin or doubt.queue != came.queue:
                continue
            for kind in (doubt.known, doubt.others):
                if letter.dl_id in kind:
                    _leave(kind, letter.dl_id)
                    self._came[doubt.batch] += 1
                    if kind is doubt.known:
                        self._found.again.add((letter.batch, letter.row))
                    else:
                        self._returned.setdefault(doubt.batch, []).append(letter)
                    return True
        return False

    def _whole_batches(self) -> list[StagedLetter]:
        """Decides on what has no id of its own; answers those that are new after all."""
        new: list[StagedLetter] = []
        for doubt in self._open:
            returned = self._returned.get(doubt.batch)
            if returned is None:
                continue
            told_apart = len({letter.dl_id for letter in returned}) > 1 or self._came[doubt.batch] > len(returned)
            if not doubt.is_open and told_apart and self._came[doubt.batch] == doubt.whole:
                self._found.again.update((letter.batch, letter.row) for letter in returned)
            else:
                new += returned
                doubt.others.clear()  # what comes of it later is not all of it
        return new

    def _new(self, letter: StagedLetter) -> None:
        taken = self._taken.setdefault(letter.dl_id, set())
        ordinal = self._ordinals.get(letter.dl_id, 1)
        while (dl_id := letter.dl_id if ordinal == 1 else f"{letter.dl_id}-{ordinal}") in taken:
            ordinal += 1
        self._ordinals[letter.dl_id] = ordinal + 1
        self._found.ids[letter.batch, letter.row] = dl_id


def _own(doubt: Doubt) -> Doubt:
    """The same, to be counted down."""
    return replace(doubt, known=dict(doubt.known), others=dict(doubt.others))


def _leave(counts: dict[str, int], dl_id: str) -> None:
    counts[dl_id] -= 1
    if not counts[dl_id]:
        del counts[dl_id]
