# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the rows as a table for people, and tells what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tests.infrastructure.scene import WITHIN, Row

NAMES = (
    *("broker", "fault", "consumer", "confirmed", "broker back, s", "consuming again, s", "longest silence, s"),
    *("lost", "left", "duplicates", "dead letters twice"),
)
HEAD = f"| {' | '.join(NAMES)} |\n|{'---|' * len(NAMES)}\n"


def markdown(rows: Sequence[Row]) -> str:
    """Return a table in Markdown: a row for each consumer under each fault."""
    return HEAD + "".join(_line(row) + "\n" for row in rows)


def _line(row: Row) -> str:
    broker = f"{row.broker}{', ' + row.kind if row.kind else ''}"
    cells = [
        broker,
        row.fault,
        row.consumer,
        row.confirmed,
        _seconds(row.back),
        _seconds(row.again),
        _seconds(row.silent),
    ]
    dead = "-" if row.consumer.startswith("bare") else row.dead_twice
    return "| " + " | ".join(map(str, [*cells, row.lost, row.left, row.duplicates, dead])) + " |"


def pages(rows: Sequence[Row]) -> str:
    """Return a table in Markdown for each broker: seconds until consuming again, duplicates, twice dead for each fault.

    What was lost or left is named beside them, where anything was.
    """
    return "\n".join(_page(name, list(found)) for name, found in groupby(rows, key=_broker))


def _page(name: str, rows: list[Row]) -> str:
    consumers = list(dict.fromkeys(row.consumer for row in rows))
    names = ["fault", "broker back, s", *consumers]
    lines = [f"### {name}\n", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
    for fault in dict.fromkeys(row.fault for row in rows):
        of = {row.consumer: row for row in rows if row.fault == fault}
        back = [row.back for row in of.values() if row.back is not None]
        cells = [_cell(of[consumer]) if consumer in of else "" for consumer in consumers]
        lines.append("| " + " | ".join([fault, f"{max(back):.1f}" if back else "-", *cells]) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    if not row.confirmed:
        return "not played"
    cell = f"{_seconds(row.again)} · {row.duplicates}"
    if not row.consumer.startswith("bare"):
        cell += f" · {row.dead_twice}"
    bad = [f"**{count} {word}**" for count, word in ((row.lost, "lost"), (row.left, "left")) if count]
    return ", ".join([cell, *bad])


def _broker(row: Row) -> str:
    return f"{row.broker}{', ' + row.kind + ' queues' if row.kind else ''}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f}"


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Return a sentence for each row that is not as it must be.

    Where the bare consumer under the same fault lost messages, or a queue that nobody consumed did, the broker dropped
    them, and ours may have lost some.
    """
    dropped = {(row.broker, row.fault): row.lost or row.dropped for row in rows if row.consumer.startswith("bare")}
    found = []
    for row in rows:
        if row.consumer.startswith("bare"):
            continue
        wrong = [text for text in row.wrong if not (text.startswith("lost:") and dropped.get((row.broker, row.fault)))]
        if _delivers_twice(row):
            wrong = [text for text in wrong if not text.startswith("two different dead letters")]
        if (row.again is None or row.again > WITHIN) and not _may_wait_for_ever(row):
            late = "never again" if row.again is None else f"again after {row.again:.1f} s"
            wrong.append(f"consuming {late}")
        found += [f"{row.broker}, {row.fault}, {row.consumer}: {text}" for text in wrong]
    return found


def _delivers_twice(row: Row) -> bool:
    """Return whether the broker delivers what a consumer holds a second time, on the same channel and without a mark.

    A new master of a mirrored queue does, and on 3.10 a quorum queue after a partition that nothing handles.
    """
    return "mirrored" in row.broker or (row.broker, row.fault) == ("RabbitMQ 3.10, three nodes", "partition")


def _may_wait_for_ever(row: Row) -> bool:
    """Return whether the broker may forget this consumer when its queue is deleted, and tell it nothing.

    RabbitMQ 3.10 does so at times on a cluster. An App finds out; a driver's own loop, wrapped or not, does not.
    """
    return (row.broker, row.fault) == ("RabbitMQ 3.10, three nodes", "delete-source") and row.consumer.startswith(
        "drop-in"
    )
