# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead export · import`: letters of a store as lines of JSON."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ..errors import StoreError, counted
from ..redaction import redact
from .arguments import Json
from .letter_states import Log
from .logs import show_audit
from .output import plain, print_json
from .progress import told
from .selection import Ids, OfGroup, OfQueue, Since, State, Where, selection_of, with_whole_ids
from .signals import ended_by_signals
from .store import INTERRUPTED, PART, StoreUrl, opened

if TYPE_CHECKING:
    from ..operations.import_ import Imported

STDOUT = "-"
TOLD = 20  # wrong lines that are printed

OutFile = Annotated[str, typer.Argument(metavar="FILE", help="A new file; or - for stdout")]
InFile = Annotated[str, typer.Argument(metavar="FILE", help="What export or discard has written; or - for stdin")]


def export_(
    file: OutFile = STDOUT,
    ids: Ids = None,
    where: Where = None,
    since: Since = None,
    group: OfGroup = None,
    queue: OfQueue = None,
    state: State = None,
    store: StoreUrl = None,
    log: Log = None,
) -> None:
    """Write letters of a store to a file or to stdout, exactly, one on each line. They stay in the store.

    The file appears when all of it is on the disk, for your eyes only, and never in place of another one.
    """
    from ..operations.export import export
    from ..operations.letter_files import WholeFile, checked_file

    show_audit(log)
    chosen = selection_of(queue=queue, where=where, since=since, state=state, group=group, ids=ids)
    out = None if file == STDOUT else WholeFile(checked_file(file))
    stop = threading.Event()
    target = _to_stdout() if out is None else out
    with opened(store) as there, ended_by_signals(stop.set), told("exported:") as tell, target as writer:
        done = export(there, writer.write, with_whole_ids(there, chosen), stop=stop, progress=tell)
        if done.stopped and out is not None:
            raise typer.Exit(_interrupted(f"{file} was not written"))
    place = "stdout" if out is None else plain(str(out.path))
    print(f"{counted(done.letters, 'letter')} written to {place}", file=sys.stderr)
    if done.without_body:
        print(f"note: {counted(done.without_body, 'letter')} left out: the body was removed", file=sys.stderr)
    if done.stopped:
        raise typer.Exit(_interrupted("stdout has the letters so far"))
    if done.without_body:
        raise typer.Exit(PART)


def import_(file: InFile, store: StoreUrl = None, log: Log = None, as_json: Json = False) -> None:
    """Store the letters of a file. Each keeps its id and waits; one that is in the store already is recognised.

    A store that does not exist is made. An import that was interrupted can be repeated.
    """
    from ..operations.import_ import import_letters

    show_audit(log)
    stop = threading.Event()
    with _read(file) as source, opened(store, create=True) as there, ended_by_signals(stop.set):
        size = 0 if file == STDOUT else Path(file).stat().st_size
        name = "" if file == STDOUT else Path(file).name
        with told("bytes read:") as tell:
            done = import_letters(there, source, name=name, size=size, stop=stop, progress=tell)
        _report(done, as_json)
    if done.stopped:
        raise typer.Exit(_interrupted("to go on, run the same command again; no letter is stored twice"))
    if not done.whole:
        raise typer.Exit(PART)


class _Stdout:
    """Writes lines to stdout."""

    def write(self, line: bytes) -> None:
        """Write a line. Raises StoreError if nobody reads it."""
        try:
            sys.stdout.buffer.write(line)
        except OSError as error:
            raise _refused("stdout", error) from None


@contextmanager
def _to_stdout() -> Iterator[_Stdout]:
    yield _Stdout()
    try:
        sys.stdout.buffer.flush()
    except OSError as error:
        raise _refused("stdout", error) from None


@contextmanager
def _read(file: str) -> Iterator[IO[bytes]]:
    try:
        with nullcontext(sys.stdin.buffer) if file == STDOUT else Path(file).open("rb") as source:
            yield source
    except OSError as error:
        raise _refused(plain(file), error) from None


def _refused(where: str, error: OSError) -> StoreError:
    what = error.strerror or type(error).__name__
    return StoreError(f"it cannot be used: {what}", where=where, cure="Name another file", code="letter-file")


def _interrupted(how: str) -> int:
    print(f"interrupted: {how}", file=sys.stderr)
    return INTERRUPTED


def _report(done: Imported, as_json: bool) -> None:
    there = sum(done.again.values())
    if as_json:
        print_json(
            {
                "operation": done.operation,
                "added": done.added,
                "again": dict(done.again),
                "completed": done.completed,
                "renamed": done.renamed,
                "wrong": done.wrong,
                "errors": [redact(str(error)) for error in done.errors],
                "interrupted": done.stopped,
            }
        )
    else:
        print(
            f"{counted(done.added, 'letter')} imported, {there} in the store before, "
            f"{counted(done.wrong, 'line')} wrong, operation {done.operation}"
        )
    for error in done.errors[:TOLD]:
        print(f"wrong: {plain(redact(str(error)))}", file=sys.stderr)
    if done.wrong > min(TOLD, len(done.errors)):
        print(f"wrong: {done.wrong - TOLD} more lines", file=sys.stderr)
    if done.renamed:
        print(f"note: {counted(done.renamed, 'letter')} got another id, because another letter has it", file=sys.stderr)
    if done.completed:
        print(f"note: {counted(done.completed, 'letter')} of the store got the removed body back", file=sys.stderr)
    away = {state: n for state, n in done.again.items() if state in ("archived", "discarded")}
    if away:
        many = ", ".join(f"{n} {state}" for state, n in sorted(away.items()))
        print(f"note: in the store before: {many}. `redeliver dead restore` lets them wait again", file=sys.stderr)
