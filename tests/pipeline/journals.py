# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes journals for the tests: records made of a number, and folders with segments of them."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from redeliver_mw.journal.records import AttemptRecord, to_line

SECOND = 1_000_000
DAY = 86_400 * SECOND
START_US = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * SECOND
RUN = "0123456789ab"


def record(number: int, **changes: Any) -> AttemptRecord:
    """Return the record of an attempt, one for each second; every third attempt failed."""
    at, failed = START_US + number * SECOND, number % 3 == 0
    values: dict[str, Any] = {
        "record_id": f"{RUN}-{number}",
        "ts_us": at,
        "app": "shop",
        "host": "web-1",
        "broker": "rabbitmq://localhost",
        "broker_kind": "rabbitmq",
        "destination": "orders",
        "destination_kind": "queue",
        "message_id": f"m-{number}",
        "message_key": f"k-{number}",
        "generation": 0,
        "delivery_count": 1,
        "broker_redelivered": False,
        "outcome": "redelivered" if failed else "accepted",
        "policy": "3:1000; 6:5000; 8:move(queue:dlq.$)",
        "policy_version": "bae2c95d9978",
        "handler_us": 1500 + number % 7,
        "queue_us": 0,
        "first_attempt_us": at,
        "attempts_total": 1,
        "payload_bytes": 100,
    }
    if failed:
        values |= {
            "reason": "handler",
            "error_type": "TimeoutError",
            "error_message": f"order {number}: no answer",
            "error_fingerprint": "00112233445566aa",
            "error_frames": ["shop.orders:on_order", "shop.stock:take"],
            "mechanism": "hold",
            "delay_us": SECOND,
            "delay_base_us": SECOND,
            "last_failure_us": at,
        }
    return AttemptRecord(**(values | changes))


def line(number: int, **changes: Any) -> bytes:
    return to_line(record(number, **changes))


def lines(numbers: Iterable[int], **changes: Any) -> list[bytes]:
    return [line(number, **changes) for number in numbers]


def segment(folder: Path, content: bytes | Sequence[bytes], name: str = "", *, packed: bool = False) -> Path:
    """Write a finished segment, under the next free name unless a name is given, and return its path."""
    folder.mkdir(exist_ok=True)
    name = name or f"seg-web-1-4711-{RUN}.{len(list(folder.iterdir())) + 1:06d}.jsonl"
    path = folder / (name + (".gz" if packed else ""))
    raw = content if isinstance(content, bytes) else b"".join(content)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path
