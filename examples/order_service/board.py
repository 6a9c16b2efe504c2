# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts the demo's messages, and shows the counts: live on a terminal, otherwise one line per second."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from redeliver_mw import Delivery
from redeliver_mw.journal.records import AttemptRecord


@dataclass
class Tally:
    """Sums up the records of one queue."""

    handled: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    failures: int = 0
    last_error: str = ""


def name_of(delivery: Delivery) -> str:
    """Return a message's name in the demo: its correlation id, the only id that every broker and every copy keeps."""
    return delivery.correlation_id or ""


class Board:
    """Holds all tallies; written by the hook's and the handlers' threads, read by the screen's thread.

    A record contains the message id only, and ActiveMQ gives each message and each copy an id of its own. So the board
    notes which message has which id when a handler is called.
    """

    def __init__(self, run: str, queues: Sequence[str]) -> None:
        self.run = run  # the names of this run's messages begin with it
        self.sent: list[str] = []
        self.letters: list[Delivery] = []  # this run's dead letters, in the order in which they were found
        self.queues = {name: Tally() for name in queues}
        self.changed = threading.Condition()
        self._names: dict[str | None, str] = {}  # by message id

    def noting(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Return `handler`, changed so that the board sees each delivery first."""

        @functools.wraps(handler)
        def noted(*given: Any) -> Any:
            delivery: Delivery = given[-1]
            with self.changed:
                self._names[delivery.message_id] = name_of(delivery)
            return handler(*given)

        return noted  # recognised as async if the handler is

    def on_attempt(self, record: AttemptRecord) -> None:
        with self.changed:
            name = self._names.get(record.message_id, "")
            if not name or name.startswith(self.run):  # other names come from an earlier run that was interrupted
                self._count(self.queues[record.destination], name, record)
            self.changed.notify_all()

    def on_dead_letter(self, letter: Delivery) -> None:
        with self.changed:
            if name_of(letter).startswith(self.run):
                self.letters.append(letter)
                self.queues[letter.headers["redeliver_original_destination"]].dead.add(name_of(letter))

    def _count(self, tally: Tally, name: str, record: AttemptRecord) -> None:
        """Count a record. A record without a name is of a body that could not be decoded, so no handler has seen it."""
        if record.error_type:
            tally.failures += 1
            tally.last_error = f"{record.error_type}: {record.error_message}"
        tally.waiting.discard(name)
        if record.outcome == "accepted" and name:
            tally.handled.add(name)
        elif record.outcome == "redelivered":
            tally.waiting.add(name)

    @property
    def handled(self) -> set[str]:
        return set().union(*(tally.handled for tally in self.queues.values()))

    @property
    def ended(self) -> int:
        return sum(len(tally.handled | tally.dead) for tally in self.queues.values())

    def table(self) -> Table:
        table = Table(expand=False)
        table.add_column("queue", no_wrap=True)
        for name in ("handled", "failed attempts", "waiting", "dead"):
            table.add_column(name, justify="right")
        table.add_column("last error", width=44, no_wrap=True)
        with self.changed:
            for name, tally in self.queues.items():
                counts = (len(tally.handled), tally.failures, len(tally.waiting), len(tally.dead))
                table.add_row(name, *map(str, counts), Text(tally.last_error, overflow="ellipsis"))
        return table

    def line(self) -> str:
        """Return the counts as one line, for output without a terminal."""
        tallies = self.queues.values()
        waiting, dead = sum(len(t.waiting) for t in tallies), sum(len(t.dead) for t in tallies)
        failures, handled = sum(t.failures for t in tallies), sum(len(t.handled) for t in tallies)
        return f"sent {len(self.sent)}, handled {handled}, failed attempts {failures}, waiting {waiting}, dead {dead}"


class Screen:
    """Shows the board: live on a terminal, otherwise one line per second."""

    def __init__(self, board: Board, console: Console, total: int) -> None:
        self._board, self._console = board, console
        self._progress = Progress(
            TextColumn("done"), BarColumn(40), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )
        self._task = self._progress.add_task("done", total=total)
        self._last = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(self._view(), console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.update(self._view(), refresh=True)
            self._live.stop()
        else:
            self._console.print(self._board.line())

    def refresh(self) -> None:
        now = time.monotonic()
        if self._live is not None:
            self._live.update(self._view(), refresh=True)
        elif now - self._last >= 1.0:
            self._last = now
            self._console.print(self._board.line())

    def _view(self) -> Group:
        self._progress.update(self._task, completed=self._board.ended)
        return Group(self._board.table(), self._progress)
