# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The rows as a table for people, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.infrastructure.scene import WITHIN, Row

NAMES = (
    *("broker", "fault", "consumer", "confirmed", "broker back, s", "consuming again, s", "longest silence, s"),
    *("lost", "left", "duplicates", "dead letters twice"),
)
HEAD = f"| {' | '.join(NAMES)} |\n|{'---|' * len(NAMES)}\n"


def markdown(rows: Sequence[Row]) -> str:
    """A table in Markdown: a row for each consumer under each fault."""
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


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f}"


def verdicts(rows: Sequence[Row]) -> list[str]:
    """A sentence for each row that is not as it must be.

    Where the bare consumer under the same fault lost messages, the broker dropped them: ours may have lost as many.
    """
    dropped = {(row.broker, row.fault): row.lost for row in rows if row.consumer.startswith("bare")}
    found = []
    for row in rows:
        if row.consumer.startswith("bare"):
            continue
        wrong = [text for text in row.wrong if not (text.startswith("lost:") and dropped.get((row.broker, row.fault)))]
        if row.again is None or row.again > WITHIN:
            late = "never again" if row.again is None else f"again after {row.again:.1f} s"
            wrong.append(f"consuming {late}")
        found += [f"{row.broker}, {row.fault}, {row.consumer}: {text}" for text in wrong]
    return found
