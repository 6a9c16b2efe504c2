# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends a batch of copies to the broker: many at once, at a limited rate, each with the broker's answer.

Copies of one `chain` go one after the other, each when the one before it is confirmed. If a copy is not confirmed, the
copies behind it are held back.
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
from .rate_limit import RateLimit
from .sync_connection import SyncConnection

PATIENCE: Final = 60.0  # seconds without any answer, longer than adapters wait for one: the broker accepts nothing
ENDING: Final = 10.0  # seconds for the answers that come with closing
SILENT: Final = "no answer"


@dataclass(frozen=True, slots=True)
class OutgoingLetter:
    """Holds one letter of a batch. `chain`: letters with the same chain keep their order; empty: no order."""

    position: int
    out: Outgoing
    chain: str = ""


@dataclass(slots=True)
class BatchAnswer:
    """Holds the results of a batch, by position.

    `unsent` were never given to the broker; for `silent` no result is known.
    """

    confirmed: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)


@dataclass(slots=True)
class SendResult:
    """Holds the result of a batch.

    Of the letters that are `unsent` in the answer, those in `held` waited behind one that was refused. `error` is why
    the connection is no longer usable; `lost` why some letters have no answer although it is.
    """

    answer: BatchAnswer = field(default_factory=BatchAnswer)
    held: set[int] = field(default_factory=set)
    lost: str = ""
    error: RedeliverError | None = None


class BatchPublisher:
    """Sends batches over a connection, at a limited rate. Not thread-safe."""

    def __init__(self, line: SyncConnection, pace: RateLimit, *, patience: float = PATIENCE) -> None:
        self._line, self._pace, self._patience = line, pace, patience

    def send(self, letters: Sequence[OutgoingLetter]) -> SendResult:
        """Send letters. Each has a place in the result, whatever happens. Does not raise errors of the broker."""
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
                raise BrokerUnavailable(what, where=self._line.adapter.broker, cure=cure, code="broker-timeout")
            if not batch.flying:
                heard = time.monotonic()

    def _publish(self, batch: _Batch) -> None:
        letter = batch.ready.popleft()
        batch.flying[letter.position] = letter

        def answer(verdict: Verdict, why: str) -> None:
            self._line.post(partial(batch.hear, letter, verdict, why))

        self._line.adapter.publish(letter.out, answer)

    def _end(self, batch: _Batch) -> None:
        """Close the connection, which answers each copy that is not answered; after that nothing can be confirmed."""
        self._line.close()
        deadline = time.monotonic() + ENDING
        while batch.flying:
            try:
                if not self._line.step(deadline - time.monotonic()):
                    return
            except RedeliverError:
                pass  # the known one


class _Batch:
    """Tracks the letters of a batch."""

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
        """Give each letter without an answer one: `silent` for copies that were given to the broker."""
        answer = self.sent.answer
        answer.silent |= self.flying.keys()
        if self.flying:
            self.sent.lost = self.sent.lost or SILENT
        answer.unsent |= {letter.position for letter in self.ready}
        self.sent.held = {letter.position for behind in self._behind.values() for letter in behind}
        answer.unsent |= self.sent.held
