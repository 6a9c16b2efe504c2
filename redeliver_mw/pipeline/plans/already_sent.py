# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The letters that replays have sent back already, as the ledgers of their plans say, and a broker has confirmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import LakeError
from ..lake.lake import Lake
from ..replaying import ledger
from ..replaying.registry import FOLDER, StartedReplay, all_begun
from .eligibility import SENT
from .plan_file import ABOUT, path_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMES: Final = [column.split()[0] for column in SENT.split(", ")]
_PLACE: Final = "plan_id STRING, folder STRING, bucket INT"


def sent_back(spark: SparkSession, lake: Lake) -> DataFrame:
    """Rows of SENT. LakeError where a plan that was replayed is gone: with it went what is known of its letters."""
    begun = all_begun(lake.files)
    places = [(one.plan_id, one.folder, bucket) for one in begun for bucket in sorted(_tries(lake, one))]
    if not places:
        return spark.createDataFrame([], SENT)
    return spark.createDataFrame(places, _PLACE).repartition(len(places)).mapInArrow(_read, SENT)


def _tries(lake: Lake, begun: StartedReplay) -> dict[int, list[str]]:
    if not os.path.exists(os.path.join(begun.folder, ABOUT)):
        raise LakeError(
            "this plan was replayed and is gone: nobody knows which of its letters were sent",
            where=begun.folder,
            cure=f"Put it back; or remove {lake.files.url(f'{FOLDER}/{begun.plan_id}.json')} to plan all of them again",
        )
    return ledger.tries(begun.folder)


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over buckets: their letters that are confirmed."""
    for batch in batches:
        for place in batch.to_pylist():
            paths = ledger.tries(place["folder"]).get(place["bucket"], [])
            confirmed = ledger.read(paths, place["plan_id"]).confirmed
            if confirmed:
                table = pq.read_table(
                    os.path.join(place["folder"], path_of(place["bucket"])), columns=["position", *_NAMES]
                )
                is_sent = [position in confirmed for position in table["position"].to_pylist()]
                yield from table.filter(pa.array(is_sent, pa.bool_())).select(_NAMES).to_batches()
