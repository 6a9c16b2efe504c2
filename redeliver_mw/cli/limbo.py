# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver limbo list · show · release URL`: looks at parked messages, and makes them due by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from ..redaction import redact
from .arguments import Json, read_url
from .help import example
from .output import body_of, cut, headers_shown, plain, print_json, print_table, when

if TYPE_CHECKING:
    from ..limbo import LimboAdmin, Parked, ParkedSummary

LISTED = 100

LimboUrl = Annotated[str, typer.Argument(metavar="URL", help="The limbo's, or env:NAME for the variable that holds it")]
MessageLimit = Annotated[int | None, typer.Option("--limit", help="At most so many messages; those due first")]
MessageId = Annotated[str | None, typer.Option("--id", help="This message only: its id, copy id, or lineage")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    limbo = typer.Typer(
        help="Parked messages: look at them, and have them sent now.", no_args_is_help=True, rich_markup_mode=None
    )
    limbo.command("list", epilog=example("redeliver limbo list sqlite:///limbo.db"))(list_)
    limbo.command("show", epilog=example("redeliver limbo show sqlite:///limbo.db"))(show)
    limbo.command("release", epilog=example("redeliver limbo release sqlite:///limbo.db --limit 10"))(release)
    app.add_typer(limbo, name="limbo")


def list_(url: LimboUrl, limit: MessageLimit = None, id_: MessageId = None, as_json: Json = False) -> None:
    """List parked messages, by the time they are due."""
    from ..limbo.admin import DEAD_LETTER

    with _open_admin(url, limit, id_) as admin:
        found, counts = admin.listed(limit or LISTED, id_), admin.counts()
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = [
        (
            str(one.id),
            plain(one.to),
            plain(one.source),
            one.state if one.state != DEAD_LETTER else f"{one.state} ({plain(one.reason)})",
            when(one.due),
            str(one.publishes),
            str(one.failures),
            cut(plain(redact(one.last_error))),
            str(one.body_bytes),
        )
        for one in found
    ]
    names = ("id", "to", "from", "state", "due", "publishes failed", "failures", "last error", "bytes")
    print_table(names, rows, right={5, 6, 8})
    letters = counts.pop(DEAD_LETTER)
    parts = [f"{number} {state}" for state, number in counts.items()]
    parts.append("1 dead letter" if letters == 1 else f"{letters} dead letters")
    print(f"{sum(counts.values()) + letters} parked: " + ", ".join(parts))
    _warn_of_sleepers(found)


def show(url: LimboUrl, limit: MessageLimit = None, id_: MessageId = None, as_json: Json = False) -> None:
    """Show the headers and the body of a parked message, by default of the one that is due first."""
    with _open_admin(url, limit, id_) as admin:
        found = admin.show(limit or 1, id_)
    if as_json:
        print_json([_shown(one) for one in found])
        return
    for number, one in enumerate(found):
        head = f"message {one.id}, to {plain(str(one.out.target))}, due {when(one.due)}, {len(one.out.body)} bytes"
        print(("\n" if number else "") + head)
        if one.problem:
            print(f"  cannot be sent as it is: {plain(redact(one.problem))}")
        for name, value in sorted(headers_shown(one.out.headers).items()):
            print(f"  {plain(name)}: {plain(str(value))}")
        body = body_of(one.out.body)
        print(f"\n{plain(body['body'], lines=True)}" + (" (hex)" if body["body_encoding"] == "hex" else ""))


def release(url: LimboUrl, limit: MessageLimit = None, id_: MessageId = None, as_json: Json = False) -> None:
    """Make parked messages due now, those that were given up included; their app sends them, if it runs.

    A dead letter, of which no copy could be made, goes back to its source, and only with --id.
    """
    from ..limbo.admin import DEAD_LETTER

    with _open_admin(url, limit, id_) as admin:
        released, counts = admin.release(limit, id_), admin.counts()
        waiting = admin.listed(limit or LISTED, id_) if released else []
    if as_json:
        print_json({"released": released, "parked": sum(counts.values())})
    else:
        print(f"{released} of {sum(counts.values())} released")
    if id_ is None and (letters := counts[DEAD_LETTER]):
        stay = "1 dead letter stays" if letters == 1 else f"{letters} dead letters stay"
        print(f"note: {stay}; release it with --id to send it back to where it comes from", file=sys.stderr)
    _warn_of_sleepers(waiting)


def _open_admin(url: str, limit: int | None, id_: str | None) -> LimboAdmin:
    """Return the limbo's admin. Raises ConfigError for invalid options before the database is opened."""
    from ..limbo import LimboAdmin

    if limit is not None and limit < 1:
        raise ConfigError(
            f"{limit} is no number from 1 on", where="--limit", cure="Leave it out for all", code="option-value"
        )
    if id_ is not None and not id_.strip():
        raise ConfigError("an empty id", where="--id", cure="Take one from `redeliver limbo list`", code="option-value")
    return LimboAdmin(read_url(url))


def _warn_of_sleepers(found: Sequence[ParkedSummary]) -> None:
    if apps := sorted({one.app for one in found if one.asleep}):
        print(f"note: no running app sends these at present; start {', '.join(map(plain, apps))}", file=sys.stderr)


def _as_json(one: ParkedSummary) -> dict[str, Any]:
    given = asdict(one)
    renamed = {"source": "from", "due": "due_s", "parked": "parked_s", "count": "delivery_count", "body_bytes": "bytes"}
    nullable = ("source", "reason", "lineage", "copy_id", "last_error", "holder")
    given |= {name: given[name] or None for name in nullable} | {"last_error": redact(one.last_error) or None}
    return {renamed.get(name, name): value for name, value in given.items()}


def _shown(one: Parked) -> dict[str, Any]:
    return {
        "id": one.id,
        "to": str(one.out.target),
        "from": one.source or None,
        "due_s": one.due,
        "delivery_count": one.count,
        "publishes": one.publishes,
        "last_error": redact(one.last_error) or None,
        "problem": redact(one.problem) or None,
        "bytes": len(one.out.body),
        "headers": headers_shown(one.out.headers),
        **body_of(one.out.body),
    }
