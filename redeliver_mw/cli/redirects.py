# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver dead redirect add · list · remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..redaction import redact
from .arguments import Json
from .help import example
from .letter_states import Log
from .logs import show_audit
from .output import plain, print_json, print_table, when
from .store import StoreUrl, opened

Old = Annotated[
    str, typer.Argument(metavar="OLD", help="The source that letters name: a queue, or topic:NAME::SUBSCRIPTION")
]
New = Annotated[str, typer.Argument(metavar="NEW", help="Where they are sent instead")]


def register(dead: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="Redirects: where letters are sent whose source has moved.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("add", epilog=example("redeliver dead redirect add orders orders.eu"))(add)
    group.command("list", epilog=example("redeliver dead redirect list"))(list_)
    group.command("remove", epilog=example("redeliver dead redirect remove orders"))(remove)
    dead.add_typer(group, name="redirect")


def add(old: Old, new: New, store: StoreUrl = None, log: Log = None) -> None:
    """Send letters of one source to another one from now on, in every replay of the store."""
    from ..operations.redirects import add_redirect

    show_audit(log)
    with opened(store) as there:
        made = add_redirect(there, old, new)
    print(f"letters of {plain(redact(made.old))} go to {plain(redact(made.new))}")


def list_(store: StoreUrl = None, as_json: Json = False) -> None:
    """List all redirects of a store."""
    from ..operations.redirects import all_redirects

    with opened(store) as there:
        found = all_redirects(there)
    if as_json:
        print_json(
            [
                {"old": redact(one.old), "new": redact(one.new), "who": redact(one.who), "at_s": one.at_us / 1e6}
                for one in found
            ]
        )
        return
    rows = [
        (plain(redact(one.old)), plain(redact(one.new)), plain(redact(one.who)), when(one.at_us / 1e6)) for one in found
    ]
    print_table(("old", "new", "who", "when"), rows)


def remove(old: Old, store: StoreUrl = None, log: Log = None) -> None:
    """Remove the redirect of a source."""
    from ..operations.redirects import remove_redirect

    show_audit(log)
    with opened(store) as there:
        remove_redirect(there, old)
    print(f"letters of {plain(redact(old))} go back to it")
