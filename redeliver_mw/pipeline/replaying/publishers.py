# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the publishers of a replay: each is a Spark task that sends the letters of its buckets and records the answers.

`PublisherTask` holds their instructions, `PublisherJob` waits for them on the driver, `BucketPublisher` is one of them.

A batch is recorded as intended, then sent, then its answers are recorded. Whatever ends the publisher, only letters of
that one batch are in doubt; they are sent again, as the same copies.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ... import errors
from ...adapter.protocol import Adapter
from ...adapter.registry import adapter_for
from ...dead_letters import Edits, Packed, copy_of
from ...dead_letters.sending.batch_publisher import BatchPublisher, OutgoingLetter, SendResult
from ...dead_letters.sending.limits import REFUSED_IN_A_ROW
from ...dead_letters.sending.rate_limit import RateLimit
from ...dead_letters.sending.sync_connection import SyncConnection
from ...errors import BrokerError, BrokerUnavailable, NotCopyable, RedeliverError
from ...message import Destination
from ..errors import LakeError, SparkError, lake_error, readable_errors
from ..plans.plan_file import path_of
from ..schemas import Row
from .body_lookup import borrowed
from .ledger import FOLDER, BucketAttempt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPORT: Final = "report STRING"
AGAIN: Final = "Run it again: it goes on where it was"
_BATCH_BYTES: Final = 8 << 20  # of bodies in one batch of copies

COLUMNS: Final = (  # the columns of a plan's letters that a copy needs
    "position",
    "rank",
    "dl_id",
    "message_key",
    "group_id",
    "target",
    "dlq",
    "redelivered",
    "letter",
    "body",
    "body_sha256",
    "edited_body",
    "edits",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherTask:
    """Holds the instructions for a run's publishers: publisher n sends the letters of the buckets in `shares[n]`.

    Only letters whose rank is below `below` go (None: all), at `rate` per second for each publisher (None: no limit),
    `batch` of them at a time. `bodies` is the folder with the bodies, if they are not in the plan.
    """

    folder: str
    plan_id: str
    run: str
    url: str = field(repr=False)
    shares: Sequence[Sequence[int]]
    bodies: str = ""
    ordered: bool = False
    below: int | None = None
    rate: float | None = None
    batch: int = 500

    @property
    def stop_file(self) -> str:
        """Return the file whose presence stops publishers from beginning another batch."""
        return os.path.join(self.folder, FOLDER, f"_stop-{self.run}")


def stop(work: PublisherTask, why: str) -> None:
    """Let all publishers of the run end in good order. Raises OSError."""
    with open(work.stop_file, "w", encoding="utf-8") as file:
        file.write(why)


def to_text(error: RedeliverError | None) -> str:
    """Return how a publisher ended: its error as text, or none. The ledger records the letters that were sent."""
    return json.dumps(
        None if error is None else [type(error).__name__, error.what, error.where, error.cure, error.code]
    )


def read_report(text: str) -> RedeliverError | None:
    """Return the error that `to_text` wrote."""
    fields = json.loads(text)
    return None if fields is None else _error(*fields)


def _error(name: str, what: str, where: str, cure: str, code: str) -> RedeliverError:
    kind: type[RedeliverError] = LakeError if name == "LakeError" else getattr(errors, name, RedeliverError)
    return kind(what, where=where, cure=cure, code=code)


class PublisherJob:
    """Runs the publishers as a Spark job, in a thread of its own."""

    def __init__(self, spark: SparkSession, work: PublisherTask) -> None:
        self._spark, self._work = spark, work
        self._sent: list[Any] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="redeliver-replay", daemon=True)
        self._thread.start()

    def _run(self) -> None:

        try:
            number = len(self._work.shares)
            numbers = self._spark.range(0, number, 1, number)
            self._sent = numbers.mapInArrow(partial(run_publishers, self._work), REPORT).collect()
        except BaseException as error:  # raised by `errors`, in the thread that waits for the job
            self._error = error
            with suppress(OSError):
                stop(self._work, "the job was given up")  # so that the remaining publishers end, too

    def over(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def end(self) -> None:
        """End the publishers in good order, whatever ended the driver's wait."""
        if self._thread.is_alive():
            with suppress(OSError):
                stop(self._work, "the driver ends")
            self._thread.join()

    def errors(self) -> list[RedeliverError]:
        """Return the errors that ended publishers. Raises SparkError if one died."""
        if self._error is None:
            return [error for row in self._sent if (error := read_report(row["report"])) is not None]
        try:
            with readable_errors(self._work.folder):
                raise self._error
        except SparkError as error:
            raise SparkError(
                error.what, where=error.where, cure=f"{AGAIN}. {error.cure}", code=error.code
            ) from self._error


def shares_of(letters: Mapping[int, int], publishers: int) -> list[list[int]]:
    """Return the buckets of each publisher: the largest first, each to the publisher with the fewest letters."""
    shares: list[list[int]] = [[] for _ in range(publishers)]
    sizes = [0] * publishers
    for bucket, number in sorted(letters.items(), key=lambda one: (-one[1], one[0])):
        least = sizes.index(min(sizes))
        shares[least].append(bucket)
        sizes[least] += number
    return shares


def run_publishers(work: PublisherTask, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield how each publisher with these numbers has ended. Called by Spark's `mapInArrow`."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            error = BucketPublisher(work).run(number)
            yield pa.record_batch([pa.array([to_text(error)])], names=["report"])


class BucketPublisher:
    """Sends the letters of one publisher's buckets, over a connection of its own."""

    def __init__(self, work: PublisherTask) -> None:
        self._work = work
        self._in_a_row = 0  # refused since the last confirm

    def run(self, number: int) -> RedeliverError | None:
        """Send all its buckets, until the end or a stop.

        Return the error that ended this publisher and so all others.
        """
        work = self._work
        ended: RedeliverError | None = None
        try:
            with SyncConnection(adapter_for(work.url)) as line:
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
        with suppress(OSError):  # most likely the same disk, so the other publishers meet the error themselves
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
        """Raise the error that ends the publisher, if there is one."""
        answer = sent.answer
        if sent.error is not None:
            raise sent.error
        self._in_a_row = 0 if answer.confirmed else self._in_a_row + len(answer.refused)
        if self._in_a_row >= REFUSED_IN_A_ROW:
            why = next(reversed(answer.refused.values()))
            what = f"{self._in_a_row} letters one after the other were refused, the last one: {why}"
            raise BrokerError(
                what,
                cure="See to it that their targets are there and have room, and run it again",
                code="publish-refused",
            )


class _Sending:
    """Sends the batches of one bucket."""

    def __init__(
        self, work: PublisherTask, ledger: BucketAttempt, line: SyncConnection, courier: BatchPublisher
    ) -> None:
        self._work, self._ledger, self._line, self._courier = work, ledger, line, courier
        self._blocked: set[str] = set()  # chains with a refused letter: the letters behind it wait

    def batch(self, rows: list[Row]) -> Iterator[SendResult]:
        """Send rows, and once more those whose answers were lost with a connection.

        The ledger contains each result before it is yielded.
        """
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
                sent.error = BrokerUnavailable(
                    sent.lost, where=self._line.adapter.broker, cure=cure, code="connection-lost"
                )
            refused = {}
            yield sent

    def _blocks(self, letter: OutgoingLetter) -> bool:
        return letter.chain in self._blocked

    def _letters(self, rows: list[Row]) -> tuple[list[OutgoingLetter], dict[int, str]]:
        """Return the copies, and the reasons for rows without a copy."""
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
    """Yield the rows of a bucket that are to be sent, in their order, as many as may be unconfirmed at once."""
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
        return LakeError(
            "the disk is full, and what cannot be written down is not sent", where=where, cure=cure, code="lake-disk"
        )
    return lake_error(error, where)


def chain_of(row: Row, ordered: bool) -> str:
    """Return the chain of a row, whose letters have to go in order; empty for a letter by itself."""
    return (row["group_id"] or "") if ordered else ""


def letter_of(row: Row, plan_id: str, ordered: bool, adapter: Adapter) -> OutgoingLetter:
    """Return the letter of a row. Raises NotCopyable if it cannot be sent exactly."""
    if row["letter"] is None or row["body"] is None:
        raise NotCopyable("its body is neither in the plan nor, as it was planned, in the lake")
    edits = None
    if row["edits"] or row["edited_body"]:
        headers = json.loads(row["edits"]).get("headers", {}) if row["edits"] else {}
        edits = Edits(row["body"] if row["edited_body"] else None, headers)
    packed = Packed(Destination.parse(row["dlq"]), bool(row["redelivered"]), row["letter"], row["body"])
    out = copy_of(
        packed,
        Destination.parse(row["target"]),
        adapter.reader,
        adapter.capabilities,
        replay_id=plan_id,
        lineage=row["dl_id"],
        known_as=row["message_key"],
        salt=f"{plan_id}.{row['dl_id']}",
        edits=edits,
    )
    return OutgoingLetter(row["position"], out, chain_of(row, ordered))
