# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a month of attempts by a seed: as Parquet, as the journal's own lines, and with the truth behind them.

Of a hundred messages 70 succeed at once, 25 recover a lognormal time after their first failure (median 5 s, sigma
1.5), and 5 never do. They are tried six times, after 1, 2, 4, 8 and 16 s, each a tenth longer or shorter at most: that
comes to a little over two attempts a message. There are 40 destinations, 64 fingerprints, and ids as long as real ones:
each message has a key of 128 random bits, which no compression makes smaller. NumPy makes the data, a day at a time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from redeliver_mw.journal.records import FIELDS, SCHEMA

SEED: Final = 20260701
FIRST_DAY: Final = datetime(2026, 6, 1, tzinfo=UTC)
DAYS, DAY_US = 30, 86_400_000_000
END_US: Final = int(FIRST_DAY.timestamp()) * 1_000_000 + DAYS * DAY_US
DESTINATIONS, FINGERPRINTS = 40, 64
DELAYS: Final = (1.0, 2.0, 4.0, 8.0, 16.0)  # seconds
JITTER: Final = 0.1
ATTEMPTS_A_MESSAGE: Final = 2.031
SEGMENT: Final = 64 * 1024 * 1024  # bytes
RUN: Final = "5eed5eed5eed"
_PART: Final = 200_000  # messages that are made at a time: half a gigabyte of memory
_TYPES: Final = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "list<string>": pa.list_(pa.string()),
}
ARROW: Final = pa.schema([(name, _TYPES[kind.type]) for name, kind in SCHEMA.items()])


@dataclass(frozen=True, slots=True)
class Made:
    """Describes what lies in a folder: `events/dt=…/*.parquet`, `journal/seg-….jsonl` and the recovery times."""

    folder: Path
    asked: int

    @property
    def events(self) -> Path:
        return self.folder / "events"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @property
    def records(self) -> int:
        """Return how many records there are."""
        return sum(pq.read_metadata(path).num_rows for path in self.events.rglob("*.parquet"))

    def recovery_s(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Return the true recovery time, in seconds, of each message that failed; infinite if it never would have."""
        return cast("np.ndarray[Any, np.dtype[np.float64]]", np.load(self.folder / "recovery_s.npy"))


def make(folder: Path, records: int, seed: int = SEED) -> Made:
    """Make about `records` records (within 1 %), unless they lie there already."""
    target = Made(folder / f"records-{records}-seed-{seed}", records)
    if target.folder.exists():
        return target
    half = target.folder.with_suffix(".half")  # only what is whole gets the name
    shutil.rmtree(half, ignore_errors=True)
    journal = _Segments(half / "journal")
    times = []
    for number, (table, recovery) in enumerate(_tables(records, seed)):
        day = FIRST_DAY + timedelta(days=number // _parts(records))
        place = half / "events" / f"dt={day.date()}"
        place.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, place / f"part-{number:05}.parquet", compression="zstd")
        journal.write(lines(table))
        times.append(recovery)
    journal.close()
    np.save(half / "recovery_s.npy", np.concatenate(times))
    half.rename(target.folder)
    return target


def is_made(folder: Path, records: int) -> bool:
    """Return whether `make` finds these records there, from whatever seed."""
    return any(found.suffix != ".half" for found in folder.glob(f"records-{records}-seed-*"))


def _parts(records: int) -> int:
    """Return into how many parts a day is cut."""
    return 1 + int(records / ATTEMPTS_A_MESSAGE / DAYS) // _PART


def _tables(records: int, seed: int) -> Iterator[tuple[pa.Table, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(seed)
    parts = _parts(records)
    messages = round(records / ATTEMPTS_A_MESSAGE / DAYS / parts)
    first = int(FIRST_DAY.timestamp()) * 1_000_000
    count = 0
    for part in range(DAYS * parts):
        length = DAY_US // parts
        made = _Part(rng, messages, first + part // parts * DAY_US + part % parts * length, length, count)
        count += made.rows
        yield made.table(), made.recovery_s


class _Part:
    """Makes the messages whose first attempt ends within `length` microseconds from `begin` on.

    All attempts of a part come before those of the next.
    """

    def __init__(self, rng: np.random.Generator, messages: int, begin: int, length: int, before: int) -> None:
        self._rng, self._before = rng, before
        self._first = np.sort(begin + rng.integers(1_000_000, length - 60_000_000, messages))
        self._destination = rng.integers(0, DESTINATIONS, messages)
        self._print = rng.integers(0, FINGERPRINTS, messages)
        ill = rng.random(messages)
        heals = rng.lognormal(np.log(5.0), 1.5, messages)
        recovery = np.where(ill < 0.70, 0.0, np.where(ill < 0.95, heals, np.inf))
        self.recovery_s = recovery[recovery > 0]
        jitter = rng.uniform(1 - JITTER, 1 + JITTER, (messages, len(DELAYS)))
        delays = np.rint(np.asarray(DELAYS) * jitter * 1e6).astype(np.int64)
        after = np.concatenate([np.zeros((messages, 1), np.int64), np.cumsum(delays, axis=1)], axis=1)
        fails = after < recovery[:, None] * 1e6
        ran = np.concatenate([np.ones((messages, 1), bool), np.logical_and.accumulate(fails, axis=1)[:, :-1]], axis=1)
        self._of, self._nth = np.nonzero(ran)  # of each attempt: its message, and how many came before it
        self._after, self._failed = after[ran], fails[ran]
        self._delay = np.concatenate([delays, np.zeros((messages, 1), np.int64)], axis=1)[ran]
        self._last_failure = np.concatenate([np.zeros((messages, 1), np.int64), after[:, :-1]], axis=1)[ran]
        self.rows = len(self._of)

    def table(self) -> pa.Table:
        """Return the attempts with the fields of a record, in the order of their time."""
        columns = self._of_message() | self._of_attempt() | self._of_failure()
        table = pa.table({n: columns.get(n, pa.nulls(self.rows, ARROW.field(n).type)) for n in FIELDS}, ARROW)
        return table.take(pc.sort_indices(table, [("ts_us", "ascending")]))

    def _of_message(self) -> dict[str, Any]:
        keys = _hex(self._rng, len(self._first), 16).take(self._of)
        names = pa.array([f"shop.{chr(97 + n % 26)}{n:02}" for n in range(DESTINATIONS)])
        same = {
            "app": "order-service",
            "host": "web-17.shop.internal",
            "broker": "artemis://mq.shop.internal:61616",
            "broker_kind": "artemis",
            "destination_kind": "queue",
            "policy_version": "bae2c95d9978",
            "policy": "dead after 6 failures; delay 1 s times 2, jitter 10%; queue:dlq.$",
        }
        return {name: pa.repeat(text, self.rows) for name, text in same.items()} | {
            "v": pa.repeat(pa.scalar(1, pa.int16()), self.rows),
            "message_key": keys,
            "message_id": pc.binary_join_element_wise("ID:", keys, "-1", ""),
            "destination": names.take(pa.array(self._destination[self._of])),
            "generation": pa.repeat(pa.scalar(0, pa.int32()), self.rows),
            "broker_redelivered": pa.repeat(False, self.rows),
            "payload_bytes": pa.array(200 + self._of % 1000, pa.int32()),
        }

    def _of_attempt(self) -> dict[str, Any]:
        first = self._first[self._of]
        handler = np.minimum(900_000, self._rng.lognormal(np.log(12_000), 1.0, self.rows)).astype(np.int64)
        numbers = pa.array(np.arange(self._before, self._before + self.rows)).cast(pa.string())
        outcome = np.where(self._failed, np.where(self._nth == len(DELAYS), 2, 1), 0)
        names = pa.array(["accepted", "redelivered", "dead_lettered"])
        last = np.where(self._failed, self._after, self._last_failure)
        return {
            "record_id": pc.binary_join_element_wise(RUN, numbers, "-"),
            "ts_us": pa.array(first + self._after),
            "delivery_count": pa.array(self._nth + 1, pa.int32()),
            "attempts_total": pa.array(self._nth + 1, pa.int32()),
            "outcome": names.take(pa.array(outcome)),
            "handler_us": pa.array(handler),
            "queue_us": pa.repeat(pa.scalar(0, pa.int64()), self.rows),
            "first_attempt_us": pa.array(first - 5_000),
            "last_failure_us": pa.array(first + last, mask=~(self._failed | (self._nth > 0))),
        }

    def _of_failure(self) -> dict[str, Any]:
        none, dead = ~self._failed, self._failed & (self._nth == len(DELAYS))
        which = pa.array(self._print[self._of], mask=none)
        ids = pc.if_else(pa.array(self._failed), pa.array(self._of).cast(pa.string()), None)
        prints, types, frames, texts = _errors()
        message = pc.binary_join_element_wise("order ", ids, ": no answer", "")
        rests = self._failed & ~dead
        base = np.asarray([*DELAYS, 0.0])[self._nth] * 1e6
        return {
            "error_fingerprint": prints.take(which),
            "error_type": types.take(which),
            "error_frames": frames.take(which),
            "error_message": message,
            "error_text": pc.binary_join_element_wise(texts.take(which), message, ""),
            "reason": pc.if_else(pa.array(dead), "exhausted", None),
            "mechanism": pc.if_else(pa.array(rests), "schedule", None),
            "delay_us": pa.array(self._delay, mask=~rests),
            "delay_base_us": pa.array(base.astype(np.int64), mask=~rests),
            "targets": pa.array([["queue:dlq.shop"]]).take(pa.array(np.zeros(self.rows, np.int64), mask=~dead)),
        }


def _errors() -> tuple[pa.Array, pa.Array, pa.Array, pa.Array]:
    """Return for each fingerprint: itself, its type, its frames, and a traceback up to its message."""
    kinds = ("TimeoutError", "ConnectionError", "WarehouseBusy", "CardDeclined", "KeyError", "DatabaseLocked")
    prints = _hex(np.random.default_rng(1), FINGERPRINTS, 8)
    types = [kinds[n % len(kinds)] for n in range(FINGERPRINTS)]
    frames = [["shop.handlers:on_order", f"shop.stock_{n}:Stock.take", "http.client:send"] for n in range(FINGERPRINTS)]
    step = '  File "/srv/shop/stock_{}.py", line {}, in take\n    self.client.send(order)\n'
    texts = [
        "Traceback (most recent call last):\n" + step.format(n, 40) + step.format(n, 94) + f"{types[n]}: "
        for n in range(FINGERPRINTS)
    ]
    return prints, pa.array(types), pa.array(frames), pa.array(texts)


def _hex(rng: np.random.Generator, count: int, size: int) -> pa.Array:
    """Return so many strings, of so many random bytes each, as hex digits."""
    digits = rng.bytes(count * size).hex().encode()
    offsets = pa.array(np.arange(count + 1) * size * 2, pa.int32())
    return pa.StringArray.from_buffers(count, offsets.buffers()[1], pa.py_buffer(digits))


# -- the journal's lines --------------------------------------------------------------------------------------------


def lines(table: pa.Table) -> pa.Array:
    """Return the records as the journal writes them: JSON, without the fields that are null.

    The texts have no quotes in them.
    """
    pieces = [_piece(name, table[name].combine_chunks(), at == 0) for at, name in enumerate(FIELDS)]
    return pc.binary_join_element_wise(pa.scalar("{"), *pieces, pa.scalar("}\n"), "")


def _piece(name: str, column: pa.Array, first: bool) -> pa.Array:
    key = f'{"" if first else ","}"{name}":'
    if pa.types.is_list(column.type):
        texts = pc.binary_join(column, '","')
        return pc.fill_null(pc.binary_join_element_wise(key + '["', texts, '"]', ""), "")
    if pa.types.is_string(column.type):
        told = pc.replace_substring(pc.replace_substring(column, '"', '\\"'), "\n", "\\n")
        return pc.fill_null(pc.binary_join_element_wise(key + '"', told, '"', ""), "")
    return pc.fill_null(pc.binary_join_element_wise(key, column.cast(pa.string()), ""), "")


class _Segments:
    """Writes lines into segments of the usual size."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder, self._number, self._size = folder, 0, SEGMENT
        self._file: Any = None

    def write(self, found: pa.Array) -> None:
        data = found.buffers()[2]
        offsets = np.frombuffer(found.buffers()[1], np.int32)[: len(found) + 1]
        at = 0
        while at < len(found):
            if self._size >= SEGMENT:
                self._next()
            end = int(np.searchsorted(offsets, offsets[at] + SEGMENT - self._size, "left"))
            end = min(max(end, at + 1), len(found))
            self._file.write(memoryview(data)[offsets[at] : offsets[end]])
            self._size += int(offsets[end] - offsets[at])
            at = end

    def _next(self) -> None:
        self.close()
        self._number, self._size = self._number + 1, 0
        self._file = (self._folder / f"seg-bench-1-{RUN}.{self._number:06}.jsonl").open("wb")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
