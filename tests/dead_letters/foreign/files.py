# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads dead letters of other frameworks, a file each in `letters/`: recorded from the real client, or written by hand.

A recorded letter is kept byte for byte, as it lay in its dead-letter queue on RabbitMQ; `record.py` has made it. What
is for readers only is under `shown`. A letter of a framework that does not run on Python is written from the
framework's own source or documentation, whose addresses are under `evidence`.
"""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pika.spec import Basic

from redeliver_mw.message import Delivery, Destination
from redeliver_pika.amqp.properties import RawProperties
from redeliver_pika.messages import READER, delivery_of

FOLDER = Path(__file__).with_name("letters")
RECORDED = ("celery", "celery-protocol-1", "kombu", "dramatiq", "taskiq", "faststream", "aio-pika")
SPRING = ("spring", "spring-exchange", "spring-cloud-stream")
WRITTEN = (
    "masstransit",
    "masstransit-skipped",
    "nservicebus",
    *SPRING,
    "camel",
)


@dataclass(frozen=True)
class Letter:
    """Holds one file of `letters/`."""

    name: str
    queue: str  # that it lay in
    source: str  # that it was consumed from
    delivery: Delivery

    @property
    def body(self) -> bytes:
        return self.delivery.body


def letter(name: str) -> Letter:
    told = json.loads((FOLDER / f"{name}.json").read_text())
    native = _recorded(told) if "head" in told else _written(told)
    return Letter(name, told["queue"], told["source"], delivery_of(Destination(told["queue"]), 1, native))


def _recorded(told: dict[str, Any]) -> Any:
    return _delivered(READER.unpack(base64.b64decode(told["head"]), base64.b64decode(told["body"])))


def _written(told: dict[str, Any]) -> Any:
    properties = RawProperties.of(headers=told["headers"], delivery_mode=2, **told["properties"])
    method = Basic.Deliver(exchange=told["exchange"], routing_key=told["routing_key"])
    return _delivered((method, RawProperties.from_raw(b"".join(properties.encode())), told["body"].encode()))


def _delivered(native: Any) -> Any:
    native[0].delivery_tag, native[0].redelivered = 1, False
    return native


def save(name: str, queue: str, source: str, versions: dict[str, str], delivery: Delivery) -> None:
    """Write what a queue held as a file."""
    head = READER.pack(delivery.native)
    properties = {word: value for word, value in asdict(delivery.properties).items() if value is not None}
    told = {
        "queue": queue,
        "source": source,
        "versions": versions,
        "shown": {
            "headers": delivery.headers,
            "properties": properties,
            "body": delivery.body.decode("utf-8", "replace"),
        },
        "head": base64.b64encode(head).decode(),
        "body": base64.b64encode(delivery.body).decode(),
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(told, indent=2, default=_shown, ensure_ascii=False) + "\n")


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)
