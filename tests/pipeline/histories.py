# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes records as a journal might hold them: one at will, a history at will, and journals that hypothesis writes.

The journals are worse than what brokers do: counts that are forgotten, cut off, or begin at two thousand; clocks that
jump; equal times; copies of a message in two queues; verdicts without a run; names in any script.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.journal.records import SCHEMA
from redeliver_mw.pipeline.schemas import EVENTS_WITH_DAY

Row = dict[str, Any]

SECOND = 1_000_000
DAY = 86_400 * SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
START = 1_772_409_600 * SECOND  # 2026-03-02, a Monday, at midnight UTC

_ARROW = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "list<string>": pa.list_(pa.string()),
}
_TABLE = pa.schema([*((name, _ARROW[kind.type]) for name, kind in SCHEMA.items()), ("dt", pa.date32())])
_ids = itertools.count(1)

NO_ERROR: Row = dict.fromkeys(name for name in SCHEMA if name.startswith("error_"))

PLAIN: Row = {
    "v": 1,
    "app": "shop",
    "host": "h1",
    "broker": "b1",
    "broker_kind": "rabbitmq",
    "destination": "orders",
    "destination_kind": "queue",
    "message_key": "m1",
    "generation": 0,
    "delivery_count": 1,
    "broker_redelivered": False,
    "outcome": "accepted",
    "policy": "p",
    "policy_version": "v1",
    "handler_us": 1_000,
    "queue_us": 0,
    "first_attempt_us": START,
    "attempts_total": 1,
    "payload_bytes": 10,
}


def row(at_s: float = 0.0, outcome: str = "accepted", /, **fields: Any) -> Row:
    """Return a record of `outcome`, so many seconds after START; a failure has an error and says itself when it was."""
    ts_us = START + round(at_s * SECOND)
    given: Row = dict.fromkeys(SCHEMA) | PLAIN | {"ts_us": ts_us, "record_id": f"r-{next(_ids):06d}"}
    if outcome not in ("accepted", "released"):
        given |= {"error_type": "ValueError", "error_message": "no", "error_fingerprint": "aa"}
        given |= {"last_failure_us": ts_us}
    return given | {"outcome": outcome} | fields


def history(*attempts: tuple[float, str], **fields: Any) -> list[Row]:
    """Return the records of one message: the first attempt is numbered 1, the next 2, and so on."""
    return [row(at, outcome, **{"delivery_count": n, **fields}) for n, (at, outcome) in enumerate(attempts, 1)]


def write(rows: Iterable[Row], folder: Path) -> str:
    """Write a Parquet file with these rows and their days, as a lake has them, and return its path."""
    dated = [one | {"dt": (EPOCH + timedelta(microseconds=one["ts_us"])).date()} for one in rows]
    path = folder / f"events-{next(_ids)}.parquet"
    pq.write_table(pa.Table.from_pylist(dated, schema=_TABLE), path)
    return str(path)


def events(spark: SparkSession, rows: Iterable[Row], folder: Path) -> DataFrame:
    """Return the rows as a lake's `events`."""
    return spark.read.schema(EVENTS_WITH_DAY).parquet(write(rows, folder))


# What hypothesis writes

_NAMES = ["orders", "orders.eu", "Größe/É", "q'uote\"d", "注文", "e\u0301"]
_STACK = [f"shop.step{n}:run" for n in range(14)]
# Near to each other, or one frame too far away; short ones; recursion; none.
_FRAMES: list[list[str] | None] = [
    _STACK,
    [*_STACK[:-1], "shop.other:run"],
    ["shop.main:go", *_STACK],
    _STACK[:7],
    _STACK[:6],
    ["a:b"],
    ["a:b", "c:d"],
    ["c:d", "a:b"],
    ["x:y", "x:z", "x:y", "x:z", "x:y"],
    ["ü:f", "注:文", "a\nb:c"],
    [],
    None,
]
_MESSAGES = [None, "", "no", "e\u0301" * 400, "😀" * 700, "tab\t and \0"]


_ENDS = [
    "accepted",
    "accepted",
    "dead_lettered",
    "discarded",
    "redelivered",
    "kept",
    "expired",
    "arrival",
    "crashed",
]


@dataclass(frozen=True)
class Journal:
    """Makes its rows of a seed and a number of messages, which are all that hypothesis has to draw, and to show."""

    seed: int
    messages: int

    @property
    def rows(self) -> list[Row]:
        """Return histories of all sorts, and a crowd of messages that are tried at one time: a storm, or nearly one."""
        rng = Random(self.seed)
        rows = [one for number in range(self.messages) for one in _message(rng, number)]
        crowd, from_us, number = rng.randint(0, 60), START + _start(rng), rng.choice([1, 2, 3])
        rows += [
            row(0, "redelivered", message_key=f"crowd-{n}", delivery_count=number, ts_us=from_us + n * SECOND // 2)
            for n in range(crowd)
        ]
        rng.shuffle(rows)
        return [one | {"record_id": f"r-{number}"} for number, one in enumerate(rows)]


def journals(messages: int = 200) -> st.SearchStrategy[Journal]:
    return st.builds(Journal, st.integers(0, 2**32), st.just(messages))


def _message(rng: Random, number: int) -> list[Row]:
    """Return all records of one message: of some generations, and sometimes of a second queue."""
    key, queues = f"{rng.choice(_NAMES)}-{number}", rng.sample(_NAMES, 2 if rng.random() < 0.2 else 1)
    first, last = rng.choice([(0, 0), (0, 0), (0, 0), (0, 1), (0, 2), (1, 1), (1, 2)])
    start_us, rows = START + _start(rng), list[Row]()
    for queue in queues:
        at_us = start_us
        for generation in range(first, last + 1):
            rows += _History(rng, at_us, message_key=key, generation=generation, destination=queue).write()
            at_us += _rest(rng)
    return rows


def _start(rng: Random) -> int:
    """Draw a time anywhere in three days, within microseconds of midnight, or, half of the time, in the first 90 s."""
    anywhere, midnight = rng.randint(0, 3 * DAY), rng.randint(0, 3) * DAY + rng.randint(-3, 3)
    return rng.choice([anywhere, midnight, rng.randint(0, 90 * SECOND), rng.randint(0, 90 * SECOND)])


def _rest(rng: Random) -> int:
    return rng.choice([0, rng.randint(0, 300), rng.randint(0, 20 * SECOND), rng.randint(0, 2 * DAY)])


def _error(rng: Random) -> Row:
    kind = rng.choice(["ValueError", "ValueError", "Fehler ü", None])
    frames, twin = rng.randrange(len(_FRAMES)), rng.randint(0, 7)
    return {
        "error_type": kind,
        "error_message": rng.choice(_MESSAGES),
        # A failure may be told without its frames; seldom one has no fingerprint, or one of two with the same frames.
        "error_frames": _FRAMES[frames] if twin < 6 else [],
        "error_fingerprint": None if twin == 7 else f"{kind}/{frames}/{twin == 0}",
    }


class _History:
    """Draws the records of one history, from the first on."""

    def __init__(self, rng: Random, start_us: int, **about: Any) -> None:
        self._rng, self._at = rng, start_us
        self._about = about | {"first_attempt_us": start_us - rng.randint(0, 3)}
        self._number = rng.choice([1, 1, 1, 1, 1, 1, 2, 4, 999, 2_000])
        self._error: Row = {}
        self._failed_us: int | None = None
        self.rows: list[Row] = []

    def write(self) -> list[Row]:
        for _ in range(self._rng.choice([0, 0, 1, 2, 3, 4, 5])):
            self._error = _error(self._rng)
            self._fail(self._rng.choice(["redelivered", "redelivered", "redelivered", "kept"]))
        self._end(self._rng.choice(_ENDS))
        match self._rng.choice(["released", "again", "expired", None, None, None, None, None]):
            case "released":
                self._tell("released", reason="stop")
            case "again":
                self._number = self._rng.randint(1, 3)
                self._tell("accepted", broker_redelivered=True)
            case "expired":
                self._tell("discarded", reason="expired", handler_us=0)
        return self.rows

    def _end(self, how: str) -> None:
        match how:
            case "accepted":
                self._tell("accepted", broker_redelivered=self._rng.random() < 0.5)
            case "expired":
                self._tell("dead_lettered", reason="expired", handler_us=0, **self._rng.choice([self._error, {}]))
            case "arrival":
                self._number = max(1, self._number - 1)
                self._tell("dead_lettered", reason="exhausted", handler_us=0, **self._error)
            case "crashed":
                self._error = {"error_type": "ProcessDied", "error_fingerprint": "pd", "error_frames": []}
                self._fail(self._rng.choice(["redelivered", "dead_lettered"]), reason="crashed", handler_us=0)
            case _:
                self._error = self._error or _error(self._rng)
                self._fail(how, reason=self._rng.choice(["exhausted", "rejected", "fatal", None]))

    def _fail(self, outcome: str, **more: Any) -> None:
        self._failed_us, delay_us = self._at, _rest(self._rng)
        self._tell(outcome, **self._error, delay_us=delay_us, **more)
        self._at += delay_us
        luck = self._rng.randint(0, 19)
        if luck == 0:  # its process died
            self._number = 1
        elif luck != 1:  # 1: a failure that does not count
            self._number += 1
        if luck == 2:  # the clock jumped
            self._at -= self._rng.randint(1, 2 * DAY)

    def _tell(self, outcome: str, **more: Any) -> None:
        drawn = {
            "handler_us": self._rng.choice([0, self._rng.randint(0, 5_000)]),
            "policy_version": self._rng.choice(["v1", "v2"]),
            "policy_arm": self._rng.choice([None, "slow"]),
            "propensity": self._rng.choice([None, 0.05, 0.1]),
        }
        told = {"delivery_count": self._number, "last_failure_us": self._failed_us, "ts_us": self._at}
        self.rows.append(row(0, outcome, **NO_ERROR | self._about | drawn | told | more))
