# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Every mart of random journals is what DuckDB makes of the same Parquet: numbers and texts exactly, floats to 1e-9."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pyspark.sql import DataFrame, SparkSession

from redeliver_mw.pipeline import schemas
from redeliver_mw.pipeline.marts.attempt_curve import attempt_curve
from redeliver_mw.pipeline.marts.clocks import clocks
from redeliver_mw.pipeline.marts.dead_letter_flow import dead_letter_flow
from redeliver_mw.pipeline.marts.fingerprints import fingerprints
from redeliver_mw.pipeline.marts.messages import messages
from redeliver_mw.pipeline.marts.poison import poison
from redeliver_mw.pipeline.marts.recovery import recovery
from redeliver_mw.pipeline.marts.storms import Thresholds, storms
from redeliver_mw.pipeline.marts.waste import waste
from tests.pipeline.histories import Journal, journals, write
from tests.pipeline.oracle import Oracle

GRAIN = {
    "attempt_curve": 4,
    "recovery": 6,
    "messages": 3,
    "poison": 1,
    "fingerprints": 1,
    "waste": 3,
    "storms": 2,
    "dead_letter_flow": 3,
    "clocks": 3,
}
EASY = Thresholds(enter_retries=3, enter_amplification=1.5, leave_retries=2, leave_amplification=1.2)


def made(events: DataFrame) -> dict[str, DataFrame]:
    known = messages(events).localCheckpoint()
    return {
        "messages": known,
        "recovery": recovery(known),
        "waste": waste(known),
        "attempt_curve": attempt_curve(events),
        "poison": poison(events),
        "fingerprints": fingerprints(events),
        "storms": storms(events, EASY),
        "dead_letter_flow": dead_letter_flow(events),
        "clocks": clocks(events),
    }


def plain(value: Any) -> Any:
    """Return rows and structs alike as dicts."""
    match value:
        case list():
            return [plain(one) for one in value]
        case tuple() if hasattr(value, "asDict"):
            return {name: plain(one) for name, one in value.asDict().items()}
    return value


def by_grain(name: str, rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row.values())[: GRAIN[name]]: row for row in rows}
    assert len(found) == len(rows), f"{name} has two rows of one grain"
    return found


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)
    return type(one) is type(other) and one == other


def differences(name: str, got: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[str]:
    ours, theirs = by_grain(name, got), by_grain(name, wanted)
    told = [f"{name} {key}: missing, {theirs[key]}" for key in theirs.keys() - ours.keys()]
    told += [f"{name} {key}: too many, {ours[key]}" for key in ours.keys() - theirs.keys()]
    for key in ours.keys() & theirs.keys():
        if list(ours[key]) != list(theirs[key]):
            return [f"{name} has the columns {list(ours[key])}, not {list(theirs[key])}"]
        told += [
            f"{name} {key}: {column} is {ours[key][column]!r}, not {theirs[key][column]!r}"
            for column in ours[key]
            if not same(ours[key][column], theirs[key][column])
        ]
    return told


@given(journal=journals(500))
@settings(
    max_examples=4,  # a job costs what it costs, however little it has to do: few journals, and long ones
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink would start thousands of jobs
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # one folder will do: each file has its own name
)
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_mart_of_a_random_journal_is_what_duckdb_makes_of_the_same_parquet(
    spark: SparkSession, tmp_path: Path, journal: Journal
) -> None:
    path = write(journal.rows, tmp_path)
    oracle = Oracle(path)
    begin, end = (EASY.enter_retries, EASY.enter_amplification), (EASY.leave_retries, EASY.leave_amplification)
    found = made(spark.read.schema(schemas.EVENTS_WITH_DAY).parquet(path))
    assert set(found) == set(schemas.MARTS)
    told: list[str] = []
    for name, frame in found.items():
        assert frame.dtypes == spark.createDataFrame([], schemas.MARTS[name]).dtypes
        wanted = oracle.storms(begin, end) if name == "storms" else oracle.mart(name)
        told += differences(name, [plain(one) for one in frame.collect()], wanted)
    assert not told, "\n".join(told[:20])
