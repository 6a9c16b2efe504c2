# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A batch of copies to the broker: many on their way at once, at a rate, each with the broker's answer.

Copies of one `chain` go one after the other, each when the one before it is confirmed; what comes behind one that
is not is held back.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ...adapter.protocol import Verdict
from ...errors import BrokerUnavailable, RedeliverError
from ...message import Outgoing
from .ledger import LedgerAnswer
from .rate_limit import RateLimit
from .sync_connection import SyncConnection

PATIENCE: Final = 60.0  # seconds without any answer, longer than adapters wait for one: the broker takes nothing
ENDING: Final = 10.0  # seconds for the answers that closing brings
SILENT: Final = "no answer"


@dataclass(frozen=True, slots=True)
class OutgoingLetter:
    """One letter of a batch. `chain`: those of the same one keep their order; empty: it is in none."""

    position: int
    out: Outgoing
    chain: str = ""


@dataclass(slots=True)
class SendResult:
    """What became of a batch: the ledger's answer, of which `unsent` were `held` back behind one that was not taken.

    `error` is why the line is of no use any more; `lost` why some have no answer though it is.
    """

    answer: LedgerAnswer = field(default_factory=LedgerAnswer)
    held: set[int] = field(default_factory=set)
    lost: str = ""
    error: RedeliverError | None = None


class BatchPublisher:
    """Sends batches over a line, at a pace. For one thread."""

    def __init__(self, line: SyncConnection, pace: RateLimit, *, patience: float = PATIENCE) -> None:
        self._line, self._pace, self._patience = line, pace, patience

    def send(self, letters: Sequence[OutgoingLetter]) -> SendResult:
        """Each letter has a place in what this returns, whatever happens. Raises nothing of the broker's."""
        batch = _Batch(letters)
        try:
            self._send(batch)
        except RedeliverError as error:
            batch.sent.error = error
            self._end(batch)
        batch.close()
        return batch.sent

    def _send(self, batch: _Batch) -> None:
        heard = time.monotonic()
        while batch.ready or batch.flying:
            wait = self._pace.take() if batch.ready else self._patience
            if not wait:
                self._publish(batch)
                while self._line.step(0):
                    heard = time.monotonic()
            elif self._line.step(min(wait, self._patience)):
                heard = time.monotonic()
            elif batch.flying and time.monotonic() - heard > self._patience:
                what = f"the broker takes no message: nothing was answered for {self._patience:.0f} s"
                cure = "Look whether a target is full, or the broker is short of memory or disk, and run it again"
                raise BrokerUnavailable(what, where=self._line.adapter.broker, cure=cure)
            if not batch.flying:
                heard = time.monotonic()

    def _publish(self, batch: _Batch) -> None:
        letter = batch.ready.popleft()
        batch.flying[letter.position] = letter

        def answer(verdict: Verdict, why: str) -> None:
            self._line.post(partial(batch.hear, letter, verdict, why))

        self._line.adapter.publish(letter.out, answer)

    def _end(self, batch: _Batch) -> None:
        """Closing the line brings an answer for each that is on its way; after that nothing can confirm it."""
        self._line.close()
        deadline = time.monotonic() + ENDING
        while batch.flying:
            try:
                if not self._line.step(deadline - time.monotonic()):
                    return
            except RedeliverError:
                pass  # the one that is known


class _Batch:
    """The letters of a batch, and where each of them is."""

    def __init__(self, letters: Sequence[OutgoingLetter]) -> None:
        self.sent = SendResult()
        self.ready: deque[OutgoingLetter] = deque()
        self.flying: dict[int, OutgoingLetter] = {}
        self._behind: dict[str, deque[OutgoingLetter]] = {}
        for letter in letters:
            if letter.chain and letter.chain in self._behind:
                self._behind[letter.chain].append(letter)
            else:
                self.ready.append(letter)
                if letter.chain:
                    self._behind[letter.chain] = deque()

    def hear(self, letter: OutgoingLetter, verdict: Verdict, why: str) -> None:
        if self.flying.pop(letter.position, None) is None:
            return
        answer = self.sent.answer
        if verdict == "ok":
            answer.confirmed.add(letter.position)
            if behind := self._behind.get(letter.chain):
                self.ready.append(behind.popleft())
        elif verdict in ("refused", "unfit"):
            answer.refused[letter.position] = why or "the broker refused it"
        else:
            (answer.unsent if verdict == "unsent" else answer.silent).add(letter.position)
            self.sent.lost = why or SILENT

    def close(self) -> None:
        """Whatever has no answer gets one: silence for what was given to the broker."""
        answer = self.sent.answer
        answer.silent |= self.flying.keys()
        if self.flying:
            self.sent.lost = self.sent.lost or SILENT
        answer.unsent |= {letter.position for letter in self.ready}
        self.sent.held = {letter.position for behind in self._behind.values() for letter in behind}
        answer.unsent |= self.sent.held
