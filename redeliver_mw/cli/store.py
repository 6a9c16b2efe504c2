# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements the commands of `redeliver dead` that work on the store: collect, groups, and list and show of a store."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, counted
from ..redaction import redact
from ..redelivery.copies import HISTORY
from .arguments import Json, Url, read_url
from .logs import quiet_drivers
from .output import (
    body_of,
    cut,
    headers_shown,
    history_as_json,
    plain,
    print_history,
    print_json,
    print_table,
    short_ids,
    when,
)
from .signals import ended_by_signals

if TYPE_CHECKING:
    from ..operations import Collected, Store, StoredLetter

PART, INTERRUPTED = 3, 130

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store's, or env:NAME; else REDELIVER_STORE, else a file in your state folder",
    ),
]
Queues = Annotated[list[str], typer.Argument(metavar="QUEUE", help="The dead-letter queues")]
CollectLimit = Annotated[int | None, typer.Option("--limit", help="At most so many letters in all, from 1 on")]
Follow = Annotated[bool, typer.Option("--follow", help="Go on with letters that come later, until Ctrl-C")]
OfQueue = Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Of a store: letters of this queue only")]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Of a store: where the page before ended, as printed")]
By = Annotated[str, typer.Option("--by", help="fingerprint, source, error, app or day")]
GroupLimit = Annotated[int | None, typer.Option("--limit", help="At most so many groups, from 1 on; the largest")]


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
        with _telling() as tell:
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


def groups(
    store: StoreUrl = None,
    by: By = "fingerprint",
    queue: OfQueue = None,
    limit: GroupLimit = None,
    as_json: Json = False,
) -> None:
    """List groups of the letters in a store that have something in common, the largest first."""
    from ..operations import Selection
    from ..operations import groups as found_groups
    from ..operations.listing import GROUPS
    from ..operations.selection import GROUP_KEYS

    check_limit(limit)
    key = next((one for one in GROUP_KEYS if one == by), None)
    if key is None:
        raise ConfigError(
            f"there are no groups by {by!r}",
            where="--by",
            cure=f"Write one of {', '.join(GROUP_KEYS)}",
            code="option-value",
        )
    with opened(store) as there:
        found = found_groups(there, key, Selection(queue=queue), limit=limit or GROUPS)
    if as_json:
        print_json(
            [
                {
                    by: redact(one.key) if one.key is not None else None,
                    "letters": one.letters,
                    "first_s": one.first_us / 1e6,
                    "last_s": one.last_us / 1e6,
                    "error_type": redact(one.error_type or "") or None,
                }
                for one in found
            ]
        )
        return
    rows = [
        (
            str(one.letters),
            cut(plain(redact(one.key))) if one.key is not None else "none",
            *((cut(plain(redact(one.error_type or ""))),) if by == "fingerprint" else ()),
            when(one.first_us / 1e6),
            when(one.last_us / 1e6),
        )
        for one in found
    ]
    errors = ("error",) if by == "fingerprint" else ()
    print_table(("letters", by, *errors, "first died", "last died"), rows, right={0})


def list_store(store: str | None, queue: str | None, limit: int | None, cursor: str | None, as_json: bool) -> None:
    """Print a page of the letters that wait in a store, the newest first."""
    from ..operations import Selection, counts, page
    from ..operations.listing import PAGE

    check_limit(limit)
    with opened(store) as there:
        found = page(there, Selection(queue=queue), limit=limit or PAGE, cursor=cursor)
        waiting = counts(there).get("waiting", 0)
    if as_json:
        print_json({"letters": [_as_json(one) for one in found.letters], "next_cursor": found.next_cursor})
        return
    ids = short_ids([one.dl_id for one in found.letters])
    rows = [
        (
            ids[one.dl_id],
            plain(redact(one.queue)),
            plain(redact(one.source or one.problem)),
            cut(plain(redact(one.reason))),
            str(one.failures),
            _error(one),
            when(one.died_us / 1e6),
            str(one.body_bytes),
        )
        for one in found.letters
    ]
    print_table(("id", "queue", "from", "reason", "failures", "error", "died", "bytes"), rows, right={4, 7})
    print(f"{counted(len(rows), 'letter')} of {waiting} that wait in the store")
    if found.next_cursor is not None:
        print(f"more: --cursor {found.next_cursor}", file=sys.stderr)


def show_store(store: str | None, id_: str | None, as_json: bool) -> None:
    """Print the headers and the body of one letter of a store: the one with this id, or the newest one."""
    from ..operations import page, show
    from ..redelivery import history

    if id_ is not None and not id_.strip():
        raise ConfigError("an empty id", where="--id", cure="Take one from `redeliver dead list`", code="option-value")
    with opened(store) as there:
        if id_ is None:
            newest = page(there, limit=1).letters
            if not newest:
                print("no letter waits in the store", file=sys.stderr)
                return
            id_ = newest[0].dl_id
        found = show(there, id_)
    letter, body = found.letter, body_of(found.packed.body)
    attempts = history.read(found.headers.get(HISTORY, ""))
    headers = headers_shown(found.headers)
    if as_json:
        print_json(_as_json(letter) | {"history": history_as_json(attempts), "headers": headers, **body})
        return
    place = plain(redact(letter.source or letter.problem))
    print(f"letter {letter.dl_id}, from {place}, {counted(letter.body_bytes, 'byte')}, {letter.state}")
    print(f"  (lay in {plain(redact(letter.queue))} of {plain(letter.broker)}, digest {letter.digest[:16]})")
    for name, value in sorted(headers.items()):
        if name != HISTORY or not attempts:
            print(f"  {plain(name)}: {plain(str(value))}")
    print_history(attempts)
    print(f"\n{plain(body['body'], lines=True)}" + (" (hex)" if body["body_encoding"] == "hex" else ""))


# -- input ------------------------------------------------------------------------------------------


@contextmanager
def opened(given: str | None, *, create: bool = False) -> Iterator[Store]:
    """Open the store that is meant. Raises ConfigError, StoreError."""
    from ..operations import Store, location

    with Store(location(None if given is None else read_url(given)), create=create) as store:
        yield store


def check_limit(limit: int | None) -> None:
    """Raise ConfigError for a limit below 1."""
    if limit is not None and limit < 1:
        raise ConfigError(
            f"{limit} is no number from 1 on", where="--limit", cure="Leave it out for all", code="option-value"
        )


# -- output -----------------------------------------------------------------------------------------


@contextmanager
def _telling() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """Yield a function that shows the number of collected letters on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        bars: dict[str, TaskID] = {}

        def tell(queue: str, taken: int, of: int | None) -> None:
            if queue not in bars:
                bars[queue] = shown.add_task(plain(queue), total=of)
            shown.update(bars[queue], completed=taken, total=of)

        yield tell


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


def _as_json(letter: StoredLetter) -> dict[str, Any]:
    def shown(text: str | None) -> str | None:
        return redact(text or "") or None

    return {
        "id": letter.dl_id,
        "state": letter.state,
        "broker": letter.broker,
        "queue": shown(letter.queue),
        "from": shown(letter.source),
        "problem": shown(letter.problem),
        "reason": shown(letter.reason),
        "failures": letter.failures,
        "error_type": shown(letter.error_type),
        "error_message": shown(letter.error_message),
        "fingerprint": shown(letter.fingerprint),
        "app": shown(letter.app),
        "died_s": letter.died_us / 1e6,
        "collected_s": letter.collected_us / 1e6,
        "message_key": shown(letter.message_key),
        "message_id": shown(letter.message_id),
        "content_type": shown(letter.content_type),
        "generation": letter.generation,
        "replay_id": shown(letter.replay_id),
        "bytes": letter.body_bytes,
        "digest": letter.digest,
    }


def _error(letter: StoredLetter) -> str:
    text = f"{letter.error_type}: {letter.error_message or ''}" if letter.error_type else ""
    return cut(plain(redact(text)))
