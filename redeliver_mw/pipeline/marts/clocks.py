# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes `clocks`: how far the hosts' clocks differ on each day; and corrects `events` accordingly.

Clocks of brokers do not matter: no field of a record is a broker's time. If all clocks are in step, or if there is only
one host, `corrected` returns its argument.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from .. import schemas
from ..host_clocks import Handovers, HostDay, host_clocks
from ..time_range import DAY_US, day_of
from .attempts import ATTEMPT, FIRST_TRY, HISTORY, NUMBERED, day

READ: Final = 1_000_000  # records used for handovers; of more, a part of the histories is taken, by their hash
_EPOCH: Final = day_of(0)
_TRIED: Final = f"{ATTEMPT} AND NOT {FIRST_TRY}"

# Attempts whose numbers follow each other, in histories in which no number occurs twice. A number that occurs twice
# means that a count was lost or that the message was delivered twice; then the order of its attempts is not known.
_HANDOVERS: Final = """
transform(
    filter(sequence(1, size(steps) - 1), n -> steps[n].delivery_count = steps[n - 1].delivery_count + 1),
    n -> named_struct(
        'at_us', steps[n].ts_us, 'before', steps[n - 1].host, 'after', steps[n].host,
        'gap_us', steps[n].ts_us - steps[n].handler_us - steps[n - 1].ts_us))
"""


def clocks(events: DataFrame) -> DataFrame:
    """Return the mart for `events`. Runs jobs at once: handovers are collected, READ of them at most."""
    days = events.where(_TRIED).groupBy("host", day("ts_us").alias("day")).agg(sf.count("*").alias("n")).collect()
    names = sorted({row["host"] for row in days})
    number = {name: n for n, name in enumerate(names)}
    seen = [HostDay(number[row["host"]], (row["day"] - _EPOCH).days, row["n"]) for row in days]
    found = host_clocks(_handovers(events, number, seen) if len(names) > 1 else _none(), seen)
    rows = [
        (
            day_of(one.day * DAY_US),
            names[one.host],
            one.since_us,
            one.until_us,
            one.offset_us,
            one.error_us,
            one.pairs,
            one.state,
        )
        for one in found
    ]
    return events.sparkSession.createDataFrame(rows, schemas.CLOCKS)


def corrected(events: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return `events` with all times on one clock, as far as `clocks` contains significant offsets.

    Times that came with the message (`last_failure_us`, and `first_attempt_us` of later attempts) are on the clock of a
    host that the record does not name. These are not corrected, but limited to the time of the record.
    """
    off = clocks.where("state = 'corrected'").select("host", "since_us", "until_us", "offset_us").collect()
    if not off:
        return events
    shifts = events.sparkSession.createDataFrame(
        [tuple(row) for row in off], "of_host STRING, since_us BIGINT, until_us BIGINT, offset_us BIGINT"
    )
    is_its = sf.expr("host = of_host AND ts_us >= since_us AND ts_us < until_us")
    known = events.join(sf.broadcast(shifts), is_its, "left").withColumn(
        "right_us", sf.expr("ts_us - coalesce(offset_us, 0L)")
    )
    times = {
        "ts_us": "right_us",
        "last_failure_us": "if(last_failure_us = ts_us, right_us, least(last_failure_us, right_us - 1))",
        "first_attempt_us": """
            if(delivery_count <= 1 OR first_attempt_us = ts_us - handler_us,
               first_attempt_us - coalesce(offset_us, 0L), least(first_attempt_us, right_us - handler_us))""",
    }
    return known.select(*(sf.expr(times.get(name, f"`{name}`")).alias(name) for name in events.columns))


def _handovers(events: DataFrame, number: dict[str, int], days: list[HostDay]) -> Handovers:
    """Return the handovers. Shuffles messages without success at once; a part of the histories if these are many."""
    hashed = events.where(f"{_TRIED} AND delivery_count <= {NUMBERED}").select(
        sf.xxhash64(*HISTORY).alias("hash"), *HISTORY, "delivery_count", "ts_us", "handler_us", "host"
    )
    if (parts := _parts(days)) is not None:
        hashed = hashed.where(parts)
    grouped = hashed.groupBy("hash", *HISTORY).agg(
        sf.sort_array(sf.collect_list(sf.struct("delivery_count", "ts_us", "handler_us", "host"))).alias("steps")
    )
    several = "size(steps) > 1 AND size(array_distinct(transform(steps, one -> one.delivery_count))) = size(steps)"
    table = grouped.where(several).select(sf.inline(sf.expr(_HANDOVERS))).toArrow()
    hosts = {name: table[name].to_pylist() for name in ("before", "after")}
    return Handovers(
        at_us=table["at_us"].to_numpy(),
        before=np.array([number[host] for host in hosts["before"]], np.int64),
        after=np.array([number[host] for host in hosts["after"]], np.int64),
        gap_us=table["gap_us"].to_numpy(),
    )


def _parts(days: list[HostDay]) -> Any:
    """Return the condition for the histories to read, so that each day has the same share of READ; None: all."""
    records: dict[int, int] = {}
    for one in days:
        records[one.day] = records.get(one.day, 0) + one.records
    share = READ // len(records)
    every = {at: -(-n // max(share, 1)) for at, n in records.items() if n > share}
    if sum(records.values()) <= READ or not every:
        return None
    known = sf.create_map(*(sf.lit(part) for at, n in every.items() for part in (at, n)))
    of_day = sf.expr(f"CAST((ts_us - pmod(ts_us, {DAY_US}L)) div {DAY_US}L AS INT)")
    return sf.expr("pmod(hash, 1000000007L)") % sf.coalesce(sf.try_element_at(known, of_day), sf.lit(1)) == 0


def _none() -> Handovers:
    return Handovers(*(np.zeros(0, np.int64) for _ in range(4)))
