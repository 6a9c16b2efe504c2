# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline drain URL DLQ LAKE`: moves dead letters from their queue into the lake."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import counted
from ..arguments import Dlq, Json, Url, read_url
from ..help import example
from ..logs import quiet_drivers
from ..output import plain
from ..signals import ended_by_signals
from .options import Conf, LakeFolder, Master, spark

if TYPE_CHECKING:
    from ...pipeline import Drained

PART, INTERRUPTED = 3, 130

Tasks = Annotated[int, typer.Option("--tasks", metavar="N", help="So many consumers share the queue, from 1 on")]
Peek = Annotated[bool, typer.Option("--peek", help="Leave the letters in their queue; where the broker can browse")]
Batch = Annotated[
    int, typer.Option("--batch", metavar="N", help="Letters that are written, and then settled, at once; up to 10000")
]


def register(group: typer.Typer) -> None:
    """Add the command to `redeliver pipeline`."""
    group.command("drain", epilog=example("redeliver pipeline drain env:BROKER dlq.orders lake"))(drain)


def drain(
    url: Url,
    dlq: Dlq,
    lake: LakeFolder,
    tasks: Tasks = 2,
    peek: Peek = False,
    batch: Batch = 1000,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Take the letters of a dead-letter queue into a lake, as many as there are now: written first, then settled."""
    from ...pipeline.draining.job import carry_out, prepare
    from ...pipeline.draining.order import Drained

    quiet_drivers()
    found = prepare(read_url(url), dlq, lake, tasks=tasks, peek=peek, batch=batch)
    if isinstance(found, Drained):  # no Spark was needed
        raise typer.Exit(_show(found, dlq, peek, as_json))
    stop = threading.Event()
    with spark(master, conf) as session, ended_by_signals(stop.set):
        with _telling() as tell:
            done = carry_out(session, found, stop=stop, progress=tell)
        code = _show(done, dlq, peek, as_json)
    raise typer.Exit(code)


def _show(done: Drained, dlq: str, peek: bool, as_json: bool) -> int:
    """Print what was done, and return the exit code."""
    print(json.dumps(asdict(done)) if as_json else "\n".join(_lines(done, dlq, peek)))
    if done.rest and not done.stopped:
        print(f"ended early: {plain(done.rest)}; what is left is still in {plain(dlq)}", file=sys.stderr)
    if done.stopped:
        print(f"interrupted: the other letters are still in {plain(dlq)}", file=sys.stderr)
        return INTERRUPTED
    return PART if done.rest or done.stay else 0


def _lines(done: Drained, dlq: str, peek: bool) -> Iterator[str]:
    """Yield sentences for people about what was done, without sentences about nothing."""
    new = done.letters - done.earlier
    if not done.found:
        yield f"nothing is in {plain(dlq)}"
    else:
        yield f"{new} of {counted(done.found, 'letter')} {'looked at' if peek else 'drained'}"
    if done.earlier:
        yield f"{counted(done.earlier, 'letter')} more that a run before had taken, which did not come to its end"
    if done.again:
        yield f"{done.again} were in the lake already"
    if done.stay:
        yield f"{done.stay} stay in {plain(dlq)}: they cannot be kept outside of it"


@contextmanager
def _telling() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows the number of staged letters on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("draining", total=None)
        yield lambda now, done, of: shown.update(task, description=now, completed=done, total=of)
