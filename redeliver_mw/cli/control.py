# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver control APP pause · resume · breaker · status`: controls running Apps through the store."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import ConfigError
from ..redaction import redact
from .arguments import Json
from .help import example
from .output import cut, plain, print_json, print_table, when
from .store import StoreUrl, opened

if TYPE_CHECKING:
    from ..operations.control import ControlResult, ProcessReport, SourceReport

OfApp = Annotated[str, typer.Argument(metavar="APP", help="The App's name, `app_name`; by default its module's")]
OfSource = Annotated[str, typer.Argument(metavar="SOURCE", help="A queue, or topic:NAME::SUBSCRIPTION")]
OneOrAll = Annotated[
    str | None, typer.Argument(metavar="SOURCE", help="A queue, or topic:NAME::SUBSCRIPTION; else all with a breaker")
]
Wish = Annotated[
    str, typer.Argument(metavar="STATE", help="open or close, until you say otherwise; auto: as the handlers fare")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    control = typer.Typer(
        help="Running Apps: pause their sources, open their breakers, see what they do.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )
    control.callback()(_of_app)
    control.command("pause", epilog=example("redeliver control shop pause orders"))(pause)
    control.command("resume", epilog=example("redeliver control shop resume orders"))(resume)
    control.command("breaker", epilog=example("redeliver control shop breaker open orders"))(breaker)
    control.command("status", epilog=example("redeliver control shop status"))(status)
    app.add_typer(control, name="control")


def _of_app(context: typer.Context, app: OfApp) -> None:
    context.obj = app


def pause(context: typer.Context, source: OfSource, store: StoreUrl = None, as_json: Json = False) -> None:
    """Stop handing messages of a source to its handler, in every process of the App, until `resume`.

    Messages that are being handled, or wait for their next attempt, are not affected. The pause outlasts a restart.
    """
    from ..operations.control import control_source

    with opened(store) as there:
        _print_result(control_source(there, context.obj, "pause", source), as_json)


def resume(context: typer.Context, source: OfSource, store: StoreUrl = None, as_json: Json = False) -> None:
    """End the pause of a source. A pause by the App's own code, or by its breaker, goes on."""
    from ..operations.control import control_source

    with opened(store) as there:
        _print_result(control_source(there, context.obj, "resume", source), as_json)


def breaker(
    context: typer.Context, state: Wish, source: OneOrAll = None, store: StoreUrl = None, as_json: Json = False
) -> None:
    """Keep a breaker open or closed, or leave it to the results of the handlers again; this outlasts a restart."""
    from ..operations.control import BREAKER_WISHES, control_breaker

    wish = next((one for one in BREAKER_WISHES if one == state), None)
    if wish is None:
        raise ConfigError(
            f"a breaker cannot be set to {state!r}",
            where="STATE",
            cure=f"Write one of {', '.join(BREAKER_WISHES)}",
            code="option-value",
        )
    with opened(store) as there:
        _print_result(control_breaker(there, context.obj, wish, source), as_json)


def status(context: typer.Context, store: StoreUrl = None, as_json: Json = False) -> None:
    """List the processes of an App, with the state of each source, as each has reported last."""
    from ..operations.control import app_status

    with opened(store) as there:
        found = app_status(there, context.obj)
    if as_json:
        print_json([_as_json(one) for one in found])
        return
    rows = [row for one in found for row in _rows(one)]
    names = ("host", "pid", "process", "source", "state", "breaker", "waiting", "last seen")
    print_table(names, rows, right={1, 6})


# -- output -----------------------------------------------------------------------------------------


def _print_result(done: ControlResult, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    else:
        sources = plain(redact(", ".join(done.sources)))
        what = done.wish if done.subject == "consumption" else f"breaker {done.wish}"
        processes = "1 running process" if done.running == 1 else f"{done.running} running processes"
        print(f"{plain(done.app)}: {what} {sources}; {processes}")
    if not done.running:
        print("note: no running process has reported these; the App obeys when it starts", file=sys.stderr)


def _rows(one: ProcessReport) -> list[tuple[str, ...]]:
    head = plain(one.host), str(one.pid), one.state
    seen = when(one.seen_us / 1e6)
    if not one.sources:
        return [(*head, "none", "", "", "", seen)]
    return [(*head, plain(redact(of.source)), _state(of), _breaker(of), str(of.waiting), seen) for of in one.sources]


def _state(of: SourceReport) -> str:
    return "consuming" if of.consuming else cut(plain(redact(of.why)))


def _breaker(of: SourceReport) -> str:
    return f"{of.breaker} (by an operator)" if of.forced else of.breaker or "none"


def _as_json(one: ProcessReport) -> dict[str, Any]:
    return {
        "host": one.host,
        "pid": one.pid,
        "state": one.state,
        "broker": redact(one.broker),
        "started_s": one.started_us / 1e6,
        "seen_s": one.seen_us / 1e6,
        "sources": [
            {
                "source": redact(of.source),
                "consuming": of.consuming,
                "why_not_consuming": redact(of.why) or None,
                "breaker": of.breaker or None,
                "breaker_forced": of.forced,
                "waiting": of.waiting,
            }
            for of in one.sources
        ],
    }
