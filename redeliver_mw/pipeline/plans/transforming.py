# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters through a plan's changes, in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from .changing import Changes

_ARROW: Final = pa.schema(
    [
        ("dl_id", pa.string()),
        ("target", pa.string()),
        ("body", pa.binary()),
        ("body_sha256", pa.string()),
        ("edited_body", pa.bool_()),
        ("edits", pa.string()),
        ("why", pa.string()),
        ("detail", pa.string()),
    ]
)


def run_changes(changes: Changes, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over READ: rows of MADE."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([changes.made_of(row) for row in batch.to_pylist()], schema=_ARROW)
