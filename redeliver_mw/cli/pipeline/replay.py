# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline replay PLAN URL`: sends the letters of a plan back, or only looks at them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import counted
from ...message import Destination
from ...redaction import redact
from ..arguments import Json, Url, read_url
from ..help import example
from ..logs import quiet_drivers
from ..output import plain, print_json, print_table
from ..signals import ended_by_signals
from .options import Conf, Master, spark

if TYPE_CHECKING:
    from ...pipeline.replaying.report import Canary, Replayed

IN_PART, INTERRUPTED = 3, 130
SENDING = "sending"  # the phase that a run reports while letters are being sent

PlanFolder = Annotated[str, typer.Argument(metavar="PLAN", help="The plan's folder")]
Send = Annotated[bool, typer.Option("--execute", help="Send them; without it nothing is sent")]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="Messages a second, of all publishers together")
]
CanarySize = Annotated[
    str | None, typer.Option("--canary", metavar="N|P%", help="Send so many first, and wait for what becomes of them")
]
StopAt = Annotated[str, typer.Option("--stop-at", metavar="P%", help="Stop when more than this share dies again")]
Publishers = Annotated[
    int | None, typer.Option("--publishers", metavar="N", help="Spark tasks that send, by default two")
]
ConsumersJournal = Annotated[
    str | None,
    typer.Option("--journal", metavar="FOLDER", help="The consumers' journal; else the dead-letter queues are watched"),
]
Wait = Annotated[float, typer.Option("--wait", metavar="S", help="Seconds to wait for the canary, at most")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("replay", epilog=example("redeliver pipeline replay plan env:BROKER --execute --rate 500"))(replay)


def replay(
    plan: PlanFolder,
    url: Url,
    execute: Send = False,
    rate: Rate = None,
    canary: CanarySize = None,
    stop_at: StopAt = "20%",
    publishers: Publishers = None,
    journal: ConsumersJournal = None,
    wait: Wait = 60.0,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Send the letters of a plan back, each once; without --execute tell what would be sent. Run again, it goes on."""
    from ...pipeline import replay as send_back
    from ...pipeline.replaying.job import look
    from ...pipeline.replaying.options import ReplayOptions

    quiet_drivers()
    address = read_url(url)
    ReplayOptions(rate=rate, canary=canary, stop_at=stop_at, publishers=publishers, journal=journal, wait=wait)
    done = look(plan, address)  # also reports invalid input before Spark is started
    if not execute or (done.whole and not done.peeked):
        raise typer.Exit(_show(done, execute, as_json))
    ending = threading.Event()
    with spark(master, conf) as session, ended_by_signals(ending.set):
        with _telling() as tell:
            done = send_back(
                session,
                plan,
                address,
                execute=True,
                rate=rate,
                canary=canary,
                stop_at=stop_at,
                publishers=publishers,
                journal=journal,
                wait=wait,
                stop=ending,
                progress=tell,
            )
        code = _show(done, execute, as_json)
    raise typer.Exit(code)


@contextmanager
def _telling() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows progress and speed on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(SENDING, total=None, rate="")

        def tell(now: str, done: int, of: int) -> None:
            shown.update(task, description=now, completed=done, total=of)
            speed = shown.tasks[0].speed
            shown.update(task, rate="" if speed is None or now != SENDING else f"{speed:.0f} messages/s")

        yield tell


# -- output ------------------------------------------------------------------------------------------


def _show(done: Replayed, execute: bool, as_json: bool) -> int:
    """Print what was done, and return the exit code."""
    from ...pipeline.replaying.report import to_json

    if as_json:
        print_json(to_json(done))
    else:
        rows = [
            (str(number), word, plain(str(Destination.parse(target))), _why(done, target, word))
            for target, words in done.targets.items()
            for word, number in words.items()
        ]
        print_table(("letters", "outcome", "to", "why"), rows, right={0})
        print(f"{done.replayed} of {done.letters} replayed, replay id {done.plan_id}")
    for line in _remarks(done, execute):
        print(line, file=sys.stderr)
    if done.interrupted:
        return INTERRUPTED
    if (execute and not done.whole) or done.missing:
        return IN_PART if execute else 1
    return 0


def _why(done: Replayed, target: str, word: str) -> str:
    if word == "left" and target in done.missing:
        return plain(redact(done.missing[target]))
    whys = [plain(redact(why)) for name, why, _ in done.refusals if name == target] if word == "refused" else []
    return whys[0] + (f" … and {len(whys) - 1} more reasons" if len(whys) > 1 else "") if whys else ""


def _remarks(done: Replayed, execute: bool) -> Iterator[str]:
    if not execute:
        if not done.whole:
            yield "note: nothing was sent; say --execute to send them"
        return
    if done.sent:
        senders = counted(done.publishers, "publisher")
        yield f"{done.sent} sent in {done.seconds:.1f} s, {done.rate:.0f} messages/s, {senders}"
    if done.removed is not None:
        yield f"{done.removed} that were only looked at are off their dead-letter queue"
    if done.canary is not None:
        yield _canary(done.canary)
    if done.died_again:
        yield f"note: {done.died_again} of the replayed died again"
    if done.in_doubt:
        yield f"note: of {done.in_doubt} nobody knows whether the broker has them; the next run sends them again"
    if done.interrupted:
        yield "interrupted: run it again, and it goes on where it was"
    elif done.stopped:
        yield f"stopped: {plain(redact(done.stopped))}; the others are not sent"


def _canary(one: Canary) -> str:
    ends = "" if one.decided is None else f", the end of {one.decided} is known"
    return f"canary of {one.letters}: {one.verdict}, {one.died} died again{ends}, after {one.waited:.0f} s"
