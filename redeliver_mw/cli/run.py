# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver run module:app`: runs an App until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..app import App
from ..errors import ConfigError
from ..processes.child_process import supervise
from ..runtime.connection_health import not_ready
from ..runtime.health_server import HealthAddress, serving_health
from .app_loader import find_app
from .child import REPORTS
from .help import example
from .logs import LogFormat, show_logs

AppLocation = Annotated[str, typer.Argument(metavar="MODULE:APP", help="An App, as shop:app for `app` in shop.py")]
Format = Annotated[LogFormat, typer.Option(help="How log lines look on stderr")]
Processes = Annotated[
    int | None, typer.Option(metavar="N", help="So many processes, each started again when it dies; else this one")
]
Health = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Answer /live and /ready there over HTTP, for all processes")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog=example("redeliver run shop:app --processes 4"))(run)


def run(
    target: AppLocation, log_format: Format = LogFormat.console, processes: Processes = None, health: Health = None
) -> None:
    """Run an App until SIGTERM or SIGINT; it then finishes what is in hand. A second signal stops at once."""
    if processes is not None and processes < 1:
        raise ConfigError(
            f"{processes} processes consume nothing", where="--processes", cure="Write 1 or more", code="option-value"
        )
    address = None if health is None else HealthAddress.parse(health)
    show_logs(log_format)
    if processes is None:
        _run_one(target, address)
    else:
        _run_several(target, log_format, processes, address)


def _run_one(target: str, address: HealthAddress | None) -> None:
    found: list[App] = []  # empty until the import is done
    with serving_health(address, lambda: not_ready(found[0].health() if found else {"started": False})):
        found.append(find_app(target))
        found[0].run()


def _run_several(target: str, log_format: LogFormat, processes: int, address: HealthAddress | None) -> None:
    # -P, because `find_app` puts the current folder on the path.
    reports = "silent" if address is None else REPORTS
    command = [sys.executable, "-P", "-m", "redeliver_mw.cli.child", target, log_format.value, reports]
    code, message = supervise(command, processes, address)
    if message:
        print(f"error: {message}", file=sys.stderr)
    if code:
        raise typer.Exit(code)
