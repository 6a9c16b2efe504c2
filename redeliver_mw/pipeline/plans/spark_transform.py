# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters through a plan's changes, and their bodies through its redaction, in Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from .letter import Redact
from .letter_transform import LetterTransform, letter_in

SHOWN: Final = "dl_id STRING, shown BINARY"
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


def run_changes(changes: LetterTransform, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over READ: rows of MADE."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([changes.made_of(row) for row in batch.to_pylist()], schema=_ARROW)


def run_redaction(redact: Redact, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """For `mapInArrow` over READ: rows of SHOWN."""
    for batch in batches:
        shown = [_shown(redact, row) for row in batch.to_pylist()]
        yield pa.RecordBatch.from_arrays([batch["dl_id"], pa.array(shown, pa.binary())], names=["dl_id", "shown"])


def _shown(redact: Redact, row: Mapping[str, Any]) -> bytes | None:
    """Nothing where the function raises, or gives what is no body: what cannot be redacted is not shown."""
    try:
        found = redact(letter_in(row))
    except (Exception, SystemExit):
        return None
    if isinstance(found, str):
        return found.encode("utf-8", "backslashreplace")
    return found if isinstance(found, bytes) else None
