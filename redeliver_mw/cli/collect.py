# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead collect`: moves dead letters from their queues into the store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, counted
from ..redaction import redact
from .arguments import Json, Url, read_url
from .logs import quiet_drivers
from .output import plain, print_json, print_table
from .progress import told_by_queue
from .signals import ended_by_signals
from .store import INTERRUPTED, PART, StoreUrl, check_limit, opened

if TYPE_CHECKING:
    from ..operations import Collected, Store

Queues = Annotated[list[str], typer.Argument(metavar="QUEUE", help="The dead-letter queues")]
CollectLimit = Annotated[int | None, typer.Option("--limit", help="At most so many letters in all, from 1 on")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with letters that come later, until Ctrl-C")]


def collect(
    url: Url,
    queues: Queues,
    store: StoreUrl = None,
    limit: CollectLimit = None,
    follow: Follow = False,
    as_json: Json = False,
) -> None:
    """Move dead letters from their queues into the store: stored there first, then taken off the queue."""
    from ..operations import collect as run
    from ..operations.collect import queues_of

    quiet_drivers()
    check_limit(limit)
    if follow and limit is not None:
        raise ConfigError(
            "a collect with --follow has no end", where="--limit", cure="Leave one of them out", code="option-value"
        )
    address = read_url(url)
    queues_of(address, queues)  # wrong names make no file
    stop = threading.Event()
    with opened(store, create=True) as there, ended_by_signals(stop.set):
        if follow and sys.stderr.isatty():
            print("collecting until Ctrl-C", file=sys.stderr)
        with told_by_queue() as tell:
            done = run(address, queues, there, limit=limit, follow=follow, stop=stop, progress=tell)
        if as_json:
            print_json({**asdict(done), "queues": [_queue_as_json(one) for one in done.queues], "store": there.where})
        else:
            _print_collected(done, there)
        for line in _remarks(done, follow):
            print(line, file=sys.stderr)
    if done.stopped:
        raise typer.Exit(INTERRUPTED)
    if not done.whole:
        raise typer.Exit(PART)


# -- output -----------------------------------------------------------------------------------------


def _print_collected(done: Collected, store: Store) -> None:
    rows = [
        (
            plain(one.queue),
            "" if one.found is None else str(one.found),
            str(one.collected),
            str(one.again),
            str(one.stay),
        )
        for one in done.queues
    ]
    print_table(("queue", "found", "collected", "in the store before", "stay"), rows, right={1, 2, 3, 4})
    total = sum(one.collected for one in done.queues)
    print(f"{counted(total, 'letter')} collected into {store.where}, operation {done.operation}")


def _remarks(done: Collected, follow: bool) -> Iterator[str]:
    for one in done.queues:
        for why, number in one.reasons.items():
            letters = "1 letter stays" if number == 1 else f"{number} letters stay"
            yield f"note: {letters} in {plain(one.queue)}: {plain(redact(why))}"
        if one.rest:
            yield f"ended early: {plain(redact(one.rest))}; the other letters are still in {plain(one.queue)}"
    if done.stopped:
        left = "letters that come later stay" if follow else "the other letters are still"
        yield f"interrupted: {left} in their queues. To go on, run the same command again"


def _queue_as_json(one: Any) -> dict[str, Any]:
    given = asdict(one)
    return given | {
        "reasons": {redact(why): number for why, number in one.reasons.items()},
        "rest": redact(one.rest) or None,
    }
