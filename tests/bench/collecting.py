# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the side that collects dead letters into a store, and then asks the store what a person would ask it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.side import Side, Task, memory, play, tell

BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
ERRORS = ("TimeoutError", "ConnectionError", "ValueError", "KeyError", "acme.StockError")
TENANTS = 50
ASKED = 20  # times for each question
PAGE = 100
ORDERS = {
    "-collected": "ORDER BY collected_us DESC, letter_id DESC LIMIT 101",
    "failures": "ORDER BY failures, letter_id LIMIT 101",
    "-bytes": "ORDER BY body_bytes DESC, letter_id DESC LIMIT 101",
    "source": "ORDER BY coalesce(source, ''), letter_id LIMIT 101",
}
TENANT = f"tenant-{TENANTS // 2}"


def headers_of(number: int) -> dict[str, str]:
    """Return the headers of a dead letter of an App on RabbitMQ, after seven failures, and two of its producer's."""
    died = BEGAN + timedelta(seconds=number % 100_000 * 20)
    fingerprint = f"{0xD966B6BCABAA92F4 ^ number % 40:016x}"
    times = [_at(died - timedelta(seconds=64 - 2**n), "milliseconds") for n in range(7)]
    attempts = ",".join(f'{{"t":"{t}","f":"{fingerprint}","h":"vm","d":{2**n}.0}}' for n, t in enumerate(times))
    return {
        "original-destination": f"orders.{number % 4}",
        "redeliver_app": "shop",
        "redeliver_copy_id": f"{number:032x}",
        "redeliver_error_fingerprint": fingerprint,
        "redeliver_error_message": "the database did not answer within 3 s",
        "redeliver_error_type": ERRORS[number % len(ERRORS)],
        "redeliver_failures": "7",
        "redeliver_failures_for": f"orders.{number % 4}",
        "redeliver_first_attempt_at": _at(died - timedelta(seconds=63)),
        "redeliver_first_failed_at": _at(died - timedelta(seconds=63)),
        "redeliver_generation": "0",
        "redeliver_history": f"[{attempts}]",
        "redeliver_hop": "3",
        "redeliver_host": "vm",
        "redeliver_last_failed_at": _at(died),
        "redeliver_lineage": f"{number ^ 0xFFFFFFFF:032x}",
        "redeliver_original_destination": f"orders.{number % 4}",
        "redeliver_original_kind": "queue",
        "redeliver_original_message_id": f"m{number}",
        "redeliver_original_routing_key": f"orders.{number % 4}",
        "redeliver_policy": "dead after 7 failures; delay 1 s times 2 up to 60 s; queue:DLQ.$",
        "redeliver_policy_version": "d794211d0577",
        "redeliver_reason": "exhausted",
        "x-tenant": f"tenant-{number % TENANTS}",
        "x-trace": f"{number * 0x9E3779B97F4A7C15 % 2**128:032x}",
    }


def _at(when: datetime, spec: str = "microseconds") -> str:
    return when.isoformat(timespec=spec).replace("+00:00", "Z")


def collected(task: Task) -> None:
    """Collect a queue into a new SQLite file; the time of the whole call counts."""
    from redeliver_mw.operations import Store, collect

    assert task.journal is not None
    file = Path(task.journal).parent / "store.db"
    sizes: list[tuple[int, float]] = []
    with Store(f"sqlite:///{file}") as store:
        cpu, began = time.process_time(), time.perf_counter()
        done = collect(task.url, [task.queue], store, progress=lambda queue, taken, of: sizes.append((taken, memory())))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert done.whole, done
        assert done.queues[0].collected == task.messages, done
        early = next(size for taken, size in sizes if taken >= task.messages // 10)
        answers = dict(_questions(store, file))
    tell(
        rate=task.messages / seconds,
        cpu=cpu / task.messages * 1e6,
        rss=memory(),
        grown=sizes[-1][1] - early,
        file=file.stat().st_size / task.messages,
        **answers,
    )


def _questions(store: Any, file: Path) -> Iterator[tuple[str, float]]:
    """Yield the seconds of each question to the store and of the same question in bare SQL, as the least of several."""
    from redeliver_mw.operations import Selection, groups, page
    from redeliver_mw.operations.sorting import Sort

    def filtered(where: str) -> Callable[[], Sequence[Any]]:
        return lambda: page(store, Selection(where=where)).letters

    def ordered(sort: str) -> Callable[[], Sequence[Any]]:
        return lambda: page(store, sort=Sort.parse(sort)).letters

    letters_of = f"SELECT {', '.join(_columns())} FROM redeliver_store_letter WHERE state = 'waiting'"
    newest = "ORDER BY died_us DESC, letter_id DESC LIMIT 101"
    of_tenant = f"SELECT letter_id FROM redeliver_store_header WHERE name = 'x-tenant' AND text = '{TENANT}'"
    of_host = "SELECT letter_id FROM redeliver_store_own_header WHERE json_extract(texts, '$.redeliver_host') = 'vm'"
    grouped = (
        "SELECT fingerprint, count(*), min(died_us), max(died_us), max(error_type) FROM redeliver_store_letter"
        " WHERE state = 'waiting' GROUP BY fingerprint ORDER BY count(*) DESC, max(died_us) DESC LIMIT 100"
    )
    questions: list[tuple[str, Callable[[], Sequence[Any]], str]] = [
        ("page", lambda: page(store).letters, f"{letters_of} {newest}"),
        ("groups", lambda: groups(store, "fingerprint"), grouped),
        (
            "filter",
            filtered(f'header.x-tenant = "{TENANT}"'),
            f"{letters_of} AND letter_id IN ({of_tenant}) {newest}",
        ),
        (
            "filter over a header of ours",
            filtered("header.redeliver_host = vm"),
            f"{letters_of} AND letter_id IN ({of_host}) {newest}",
        ),
        *((f"sort by {name}", ordered(name), f"{letters_of} {order}") for name, order in ORDERS.items()),
    ]
    with sqlite3.connect(file) as bare:
        for name, ours, sql in questions:
            found, expected = ours(), bare.execute(sql).fetchall()
            assert len(found) == min(len(expected), PAGE), (name, len(found), len(expected))
            theirs = _seconds(partial(_all, bare, sql))
            yield name, _seconds(ours)
            yield f"bare {name}", theirs


def _all(bare: sqlite3.Connection, sql: str) -> object:
    return bare.execute(sql).fetchall()


def _columns() -> Sequence[str]:
    from redeliver_mw.operations.listing import StoredLetter

    return StoredLetter._fields


def _seconds(ask: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        ask()
        return time.perf_counter() - began

    return min(once() for _ in range(ASKED))


SIDES: dict[str, Side] = {"collect": collected}

if __name__ == "__main__":
    play(SIDES)
