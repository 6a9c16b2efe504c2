# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which of the staged letters are the same letter. Pure.

If a consumer dies after it has staged a batch, it is not known whether the broker took the letters off its queue. If
the broker did not, the letters come again, and are staged twice. So a letter is the same as one that was staged before
it only if

- both carry the id of the same copy of ours, the same body and the same source: only redeliver-mw sets such ids; or
- the former is in a *doubt*, a batch that is not known to be off its queue, has the same id, and was not matched yet;
  and the latter was delivered before, as far as its broker reports, and came in another attempt or generation.

A message's own id distinguishes it among many. Without an id, two letters may be equal and still be different letters.
Such letters count as come back only if their whole batch came back, because the letters of a batch are settled at once,
and only if not all in the batch are equal. (For an error, every letter of the batch would need a double with the same
body, reason and queue, and all doubles would need to have been delivered to a consumer that died before storing them.)

In every other case the letter is a new one, with an ordinal added to its id: in doubt a letter is there twice, at most
one batch for each crash, and none is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

LetterOrigin = tuple[str, int]
"""One generation of one process of a task. What it has not settled does not come to it again."""


class StagedLetter(NamedTuple):
    """Identifies a letter in a batch: `batch` and `row` are its position, `same` is a digest of body and source."""

    batch: int
    row: int
    dl_id: str
    same: str
    known_by: str
    may_be_back: bool


@dataclass(frozen=True, slots=True)
class Doubt:
    """Counts the letters, by id, of a batch that may be in its queue as well as in the lake, until they have come back.

    `known` counts letters with an id of their own, `others` letters without. `whole` counts all that the batch began
    with.
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
    """Return the doubt for a batch of `(dl_id, known_by)`. Copies of ours need no doubt."""
    counted = Counter((dl_id, known_by) for dl_id, known_by in letters if known_by != "copy")
    alone = Counter(dl_id for dl_id, _ in counted.elements())
    known = {dl_id: 1 for dl_id, known_by in counted if known_by and alone[dl_id] == 1}
    others = {dl_id: n for dl_id, n in alone.items() if dl_id not in known}
    return Doubt(batch, queue, origin, known, others, sum(alone.values()))


@dataclass(slots=True)
class Matched:
    """Holds the result of matching.

    The ids under which letters go into the table, by batch and row; the letters that are there already; and the doubts
    that remain.
    """

    ids: dict[tuple[int, int], str] = field(default_factory=dict)
    again: set[tuple[int, int]] = field(default_factory=set)
    doubts: list[Doubt] = field(default_factory=list)


class Staged(NamedTuple):
    """Describes a batch in order of time: its origin, and its own doubt, if it has one."""

    queue: str
    origin: LetterOrigin
    doubt: Doubt | None


def match(
    batches: Sequence[Staged],
    letters: Iterable[StagedLetter],
    there: Mapping[str, Sequence[tuple[str, str]]],
    doubts: Sequence[Doubt] = (),
) -> Matched:
    """Match the staged letters with each other, with doubts, and with the table.

    `letters`, in order of their batches, are those whose id is not unique: among all staged letters, in an earlier
    doubt, or in the table. `there`: `(dl_id, same)` of the table's rows for each of these ids, without ordinals. The
    ids in the result are not used in the table yet.
    """
    return _Matching(batches, there, doubts).run(letters)


class _Matching:
    def __init__(
        self, batches: Sequence[Staged], there: Mapping[str, Sequence[tuple[str, str]]], doubts: Sequence[Doubt]
    ) -> None:
        self._batches = batches
        self._taken = {base: {dl_id for dl_id, _ in known} for base, known in there.items()}
        self._ordinals: dict[str, int] = {}  # the highest ordinal in use
        self._same = {(base, same) for base, known in there.items() for _, same in known}
        self._open = [_own(one) for one in doubts]
        self._reached = 0  # batches whose own doubt is open already
        self._returned: dict[str, list[StagedLetter]] = {}  # by the doubt's batch
        self._came: Counter[str] = Counter()  # number of letters of a doubt that came back now
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
        """Return whether the letter matches one in a doubt, and take that one out of the doubt."""
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
        """Decide on letters without an id of their own; return those that are new after all."""
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
                doubt.others.clear()  # letters that come later are not the whole batch
        return new

    def _new(self, letter: StagedLetter) -> None:
        taken = self._taken.setdefault(letter.dl_id, set())
        ordinal = self._ordinals.get(letter.dl_id, 1)
        while (dl_id := letter.dl_id if ordinal == 1 else f"{letter.dl_id}-{ordinal}") in taken:
            ordinal += 1
        self._ordinals[letter.dl_id] = ordinal + 1
        self._found.ids[letter.batch, letter.row] = dl_id


def _own(doubt: Doubt) -> Doubt:
    """Return a copy of the doubt, for counting down."""
    return replace(doubt, known=dict(doubt.known), others=dict(doubt.others))


def _leave(counts: dict[str, int], dl_id: str) -> None:
    counts[dl_id] -= 1
    if not counts[dl_id]:
        del counts[dl_id]
