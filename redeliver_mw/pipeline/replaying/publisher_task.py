# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a publisher, a Spark task, does: the letters of its buckets to the broker, and what that says to the ledger.

A batch is written down as intended, sent, and its answers written down. Whatever ends the publisher, only letters of
that one batch are in doubt; they are sent again, as the same copies.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import BrokerError, BrokerUnavailable, NotCopyable, RedeliverError
from ..errors import LakeError, lake_error
from ..plans.plan_file import path_of
from .batch_publisher import BatchPublisher, OutgoingLetter, SendResult
from .body_lookup import borrowed
from .bucket_attempt import BucketAttempt
from .ledger import FOLDER
from .rate_limit import RateLimit
from .row_to_copy import COLUMNS, chain_of, letter_of
from .sync_connection import SyncConnection
from .work import PublisherTask, stop, to_text

REFUSED_IN_A_ROW: Final = 100  # then nothing more is tried: it would be refused, too
_BATCH_BYTES: Final = 8 << 20  # of bodies that are on their way at once

Row = dict[str, Any]


def run_publishers(work: PublisherTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over the publishers' numbers: how each has ended."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            error = BucketPublisher(work).run(number)
            yield pa.record_batch([pa.array([to_text(error)])], names=["report"])


class BucketPublisher:
    """One publisher of a run, with a connection of its own."""

    def __init__(self, work: PublisherTask) -> None:
        self._work = work
        self._in_a_row = 0  # refused since the last confirm

    def run(self, number: int) -> RedeliverError | None:
        """All its buckets, until the end or until it is to stop. Gives the error that ended it and so all others."""
        work = self._work
        ended: RedeliverError | None = None
        try:
            with SyncConnection(work.url) as line:
                courier = BatchPublisher(line, RateLimit(work.rate))
                for bucket in work.shares[number]:
                    if self._stopped:
                        break
                    self._bucket(bucket, line, courier)
        except RedeliverError as error:
            ended = error
        except OSError as error:
            ended = _of_disk(error, work.folder)
        if ended is not None:
            self._stop_others(str(ended))
        return ended

    @property
    def _stopped(self) -> bool:
        return os.path.exists(self._work.stop_file)

    def _stop_others(self, why: str) -> None:
        with suppress(OSError):  # the same disk, most likely: they meet it by themselves
            stop(self._work, why)

    def _bucket(self, bucket: int, line: SyncConnection, courier: BatchPublisher) -> None:
        work = self._work
        ledger = BucketAttempt(work.folder, work.plan_id, bucket, work.run)
        try:
            sending = _Sending(work, ledger, line, courier)
            for rows in _batches(work, bucket, ledger.before.confirmed):
                for sent in sending.batch(rows):
                    self._judge(sent)
                    if self._stopped:
                        return
        finally:
            ledger.close()

    def _judge(self, sent: SendResult) -> None:
        """Raises what ends the publisher."""
        answer = sent.answer
        if sent.error is not None:
            raise sent.error
        self._in_a_row = 0 if answer.confirmed else self._in_a_row + len(answer.refused)
        if self._in_a_row >= REFUSED_IN_A_ROW:
            why = next(reversed(answer.refused.values()))
            what = f"{self._in_a_row} letters one after the other were refused, the last one: {why}"
            raise BrokerError(what, cure="See to it that their targets are there and have room, and run it again")


class _Sending:
    """The batches of one bucket."""

    def __init__(
        self, work: PublisherTask, ledger: BucketAttempt, line: SyncConnection, courier: BatchPublisher
    ) -> None:
        self._work, self._ledger, self._line, self._courier = work, ledger, line, courier
        self._blocked: set[str] = set()  # chains of which a letter was refused: what is behind it waits for it

    def batch(self, rows: list[Row]) -> Iterator[SendResult]:
        """Sends them, those whose answer a lost link took away once more. The ledger knows before this yields."""
        letters, refused = self._letters(rows)
        silent = 0
        while letters or refused:
            self._ledger.intend([letter.position for letter in letters])
            sent = self._courier.send(letters) if letters else SendResult()
            sent.answer.refused |= refused
            self._ledger.answer(sent.answer)
            self._blocked |= {letter.chain for letter in letters if letter.position in sent.answer.refused} - {""}
            again = sent.answer.silent | sent.answer.unsent
            before, letters = letters, [one for one in letters if one.position in again and not self._blocks(one)]
            silent = 0 if sent.answer.confirmed else silent + 1
            if letters and sent.error is None and (silent > 1 or sent.answer.unsent >= {x.position for x in before}):
                cure = "See to the broker, and run it again: it goes on where it was"
                sent.error = BrokerUnavailable(sent.lost, where=self._line.adapter.broker, cure=cure)
            refused = {}
            yield sent

    def _blocks(self, letter: OutgoingLetter) -> bool:
        return letter.chain in self._blocked

    def _letters(self, rows: list[Row]) -> tuple[list[OutgoingLetter], dict[int, str]]:
        """The copies, and why there is none of the others."""
        work, letters, refused = self._work, [], {}
        for row in rows:
            if (chain := chain_of(row, work.ordered)) in self._blocked:
                continue
            try:
                letters.append(letter_of(row, work.plan_id, work.ordered, self._line.adapter))
            except (NotCopyable, ValueError) as error:
                refused[int(row["position"])] = str(error) or "no exact copy can be made"
                self._blocked |= {chain} - {""}
        return letters, refused


def _batches(work: PublisherTask, bucket: int, confirmed: set[int]) -> Iterator[list[Row]]:
    """The rows of a bucket that are to be sent, in their order, as many as may be on their way at once."""
    rows: list[Row] = []
    size, whole = 0, borrowed(work.bodies, bucket)
    with pq.ParquetFile(os.path.join(work.folder, path_of(bucket))) as file:
        for part in file.iter_batches(batch_size=work.batch, columns=list(COLUMNS)):
            if confirmed.issuperset(part.column("position").to_pylist()):
                continue
            for row in part.to_pylist():
                if work.below is not None and row["rank"] >= work.below:
                    break
                if row["position"] in confirmed:
                    continue
                row = whole(row)
                rows.append(row)
                size += len(row["body"] or b"")
                if len(rows) >= work.batch or size >= _BATCH_BYTES:
                    yield rows
                    rows, size = [], 0
            else:
                continue
            break
    if rows:
        yield rows


def _of_disk(error: OSError, folder: str) -> RedeliverError:
    where = f"{error.filename or os.path.join(folder, FOLDER)} on {socket.gethostname()}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        cure = "Make room and run it again: it goes on where it was"
        return LakeError("the disk is full, and what cannot be written down is not sent", where=where, cure=cure)
    return lake_error(error, where)
