# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps copies that are not written yet: they wait in a timer, or for an answer about their target.

A timer may end with the connection whose loop it runs on. A copy that waited there would then never be answered, and
its message would wait for ever. So each copy is kept here until it is taken out, and is answered when its original is
lost.
"""

from __future__ import annotations

import itertools

from ...message import Outgoing
from ..protocol import OnAnswer


class PendingCopies:
    """Keeps the answers of copies until they are taken out, by number. On one thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._answers: dict[int, tuple[int | None, OnAnswer]] = {}  # with the generation of the original

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, out: Outgoing, answer: OnAnswer) -> int:
        """Keep a copy's answer, and return the number under which `take` gives it back."""
        number = next(self._numbers)
        self._answers[number] = (out.generation, answer)
        return number

    def take(self, number: int) -> bool:
        """Take a copy out, to go on with it. False if it has been answered meanwhile: nothing is to be sent then."""
        return self._answers.pop(number, None) is not None

    def forget(self, generation: int) -> None:
        """Answer the copies of a lost generation *unsent*."""
        gone = [number for number, (of, _) in self._answers.items() if of == generation]
        self._answer(gone, "the original was lost meanwhile")

    def close(self, why: str) -> None:
        """Answer every copy *unsent*."""
        self._answer(list(self._answers), why)

    def _answer(self, numbers: list[int], why: str) -> None:
        for number in numbers:
            if (kept := self._answers.pop(number, None)) is not None:
                kept[1]("unsent", why)
