# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead groups`, and `redeliver dead list` and `show` of a store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError, counted
from ..redaction import redact
from ..redelivery.copies import HISTORY
from .arguments import Json, read_url
from .bodies import body_as_json, check_form, decoder_of, print_body
from .output import (
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
from .selection import OfGroup, OfQueue, Since, State, Where, key_of, selection_of, sort_of
from .shown_notes import last_note, note_as_json, print_notes

if TYPE_CHECKING:
    from ..operations import Group, Selection, Store, StoredLetter
    from ..operations.notes import Note
    from ..operations.selection import GroupKey

PART, INTERRUPTED = 3, 130

StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The store's, or env:NAME; else REDELIVER_STORE, else a file in your state folder",
    ),
]
Cursor = Annotated[str | None, typer.Option("--cursor", help="Of a store: where the page before ended, as printed")]
By = Annotated[str, typer.Option("--by", help="fingerprint, source, error, app or day")]
GroupLimit = Annotated[int | None, typer.Option("--limit", help="At most so many groups, from 1 on; the largest")]


def groups(
    store: StoreUrl = None,
    by: By = "fingerprint",
    queue: OfQueue = None,
    where: Where = None,
    since: Since = None,
    state: State = None,
    group: OfGroup = None,
    limit: GroupLimit = None,
    as_json: Json = False,
) -> None:
    """List groups of the letters in a store that have something in common, the largest first."""
    selection = selection_of(queue=queue, where=where, since=since, state=state, group=group)
    list_groups(store, key_of(by, "--by"), selection, limit, as_json)


def list_groups(store: str | None, key: GroupKey, selection: Selection, limit: int | None, as_json: bool) -> None:
    """Print groups of the letters that a selection means, the largest first."""
    from ..operations import groups as found_groups
    from ..operations.listing import GROUPS
    from ..operations.notes import notes_on

    check_limit(limit)
    with opened(store) as there:
        found = found_groups(there, key, selection, limit=limit or GROUPS)
        written = notes_on(there, key, [one.key or "" for one in found])
    if as_json:
        print_json([_group_as_json(key, one, written.get(one.key or "", ())) for one in found])
        return
    rows = [
        (
            str(one.letters),
            cut(plain(redact(one.key))) if one.key is not None else "none",
            *((cut(plain(redact(one.error_type or ""))),) if key == "fingerprint" else ()),
            when(one.first_us / 1e6),
            when(one.last_us / 1e6),
            *((last_note(written.get(one.key or "", ())),) if written else ()),
        )
        for one in found
    ]
    errors = ("error",) if key == "fingerprint" else ()
    names = ("letters", key, *errors, "first died", "last died", *(("note",) if written else ()))
    print_table(names, rows, right={0})


def list_store(
    store: str | None,
    selection: Selection,
    sort: str | None,
    limit: int | None,
    cursor: str | None,
    as_json: bool,
) -> None:
    """Print a page of the letters of a store that a selection means."""
    from ..operations import counts, page
    from ..operations.listing import PAGE
    from ..operations.notes import LETTER, notes_on

    check_limit(limit)
    order = sort_of(sort)
    with opened(store) as there:
        found = page(there, selection, sort=order, limit=limit or PAGE, cursor=cursor)
        number = counts(there)
        written = notes_on(there, LETTER, [one.dl_id for one in found.letters])
    if as_json:
        listed = [_as_json(one) | _notes_as_json(written.get(one.dl_id, ())) for one in found.letters]
        print_json({"letters": listed, "next_cursor": found.next_cursor})
        return
    ids = short_ids([one.dl_id for one in found.letters])
    states = selection.state is None
    rows = [
        (
            ids[one.dl_id],
            *((one.state,) if states else ()),
            plain(redact(one.queue)),
            plain(redact(one.source or one.problem)),
            cut(plain(redact(one.reason))),
            str(one.failures),
            _error(one),
            when(one.died_us / 1e6),
            str(one.body_bytes),
            *((last_note(written.get(one.dl_id, ())),) if written else ()),
        )
        for one in found.letters
    ]
    names = ("id", *(("state",) if states else ()), "queue", "from", "reason", "failures", "error", "died", "bytes")
    names += ("note",) if written else ()
    print_table(names, rows, right={names.index("failures"), names.index("bytes")})
    print(f"{counted(len(rows), 'letter')} of {_all_of(selection, number)}")
    if found.next_cursor is not None:
        print(f"more: --cursor {found.next_cursor}", file=sys.stderr)


def show_store(
    store: str | None,
    id_: str | None,
    selection: Selection,
    sort: str | None,
    form: str | None,
    decode: str | None,
    as_json: bool,
) -> None:
    """Print the headers and the body of one letter of a store: the one with this id, or the first of a selection."""
    from ..operations import page, show
    from ..operations.notes import notes_about
    from ..redelivery.headers import read_history

    if id_ is not None and not id_.strip():
        raise ConfigError("an empty id", where="--id", cure="Take one from `redeliver dead list`", code="option-value")
    order = sort_of(sort)
    check_form(form)
    decoder = decoder_of(decode)
    with opened(store) as there:
        if id_ is None:
            first = page(there, selection, sort=order, limit=1).letters
            if not first:
                print(_none_found(selection), file=sys.stderr)
                return
            id_ = first[0].dl_id
        found = show(there, id_)
        written = notes_about(there, found.letter)
    letter = found.letter
    attempts = read_history(found.headers.get(HISTORY, ""))
    headers = headers_shown(found.headers)
    if as_json:
        body = body_as_json(found.packed.body, decoder) if found.whole else {"body_removed": True}
        more = {"history": history_as_json(attempts), "headers": headers, **_notes_as_json(written), **body}
        print_json(_as_json(letter) | more)
        if "decode_error" in body:
            raise typer.Exit(PART)
        return
    place = plain(redact(letter.source or letter.problem))
    print(f"letter {letter.dl_id}, from {place}, {counted(letter.body_bytes, 'byte')}, {letter.state}")
    print(f"  (lay in {plain(redact(letter.queue))} of {plain(letter.broker)}, digest {letter.digest[:16]})")
    print_notes(written)
    for name, value in sorted(headers.items()):
        if name != HISTORY or not attempts:
            print(f"  {plain(name)}: {plain(str(value))}")
    print_history(attempts)
    if not found.whole:
        print("\nits body was removed from the store")
    elif not print_body(found.packed.body, form, decoder):
        raise typer.Exit(PART)


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


def _all_of(selection: Selection, number: dict[Any, int]) -> str:
    """Return how many letters there are in the state that is listed, whatever else is asked for."""
    if selection.state is None:
        return f"{sum(number.values())} in the store"
    many = number.get(selection.state, 0)
    return f"{many} that wait in the store" if selection.state == "waiting" else f"{many} that are {selection.state}"


def _none_found(selection: Selection) -> str:
    if selection.state == "waiting" and not (selection.where or selection.since_us or selection.group):
        return "no letter waits in the store"
    return "no letter of the store is meant by that" + ("" if selection.state is None else f" and is {selection.state}")


def _notes_as_json(notes: Sequence[Note]) -> dict[str, Any]:
    return {"notes": [note_as_json(one) for one in notes]}


def _group_as_json(by: GroupKey, one: Group, notes: Sequence[Note]) -> dict[str, Any]:
    return {
        by: redact(one.key) if one.key is not None else None,
        "letters": one.letters,
        "first_s": one.first_us / 1e6,
        "last_s": one.last_us / 1e6,
        "error_type": redact(one.error_type or "") or None,
        **_notes_as_json(notes),
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
