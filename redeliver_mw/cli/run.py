# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redeliver run module:app`: runs an App until SIGTERM or SIGINT."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ..errors import ConfigError
from ..processes.child_process import supervise
from .app_loader import find_app
from .logs import LogFormat, show_logs

AppLocation = Annotated[str, typer.Argument(metavar="MODULE:APP", help="An App, as shop:app for `app` in shop.py")]
Format = Annotated[LogFormat, typer.Option(help="How log lines look on stderr")]
Processes = Annotated[
    int | None, typer.Option(metavar="N", help="So many processes, each started again when it dies; else this one")
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(target: AppLocation, log_format: Format = LogFormat.console, processes: Processes = None) -> None:
    """Run an App until SIGTERM or SIGINT; it then finishes what is in hand. A second signal stops at once."""
    if processes is not None and processes < 1:
        raise ConfigError(f"{processes} processes consume nothing", where="--processes", cure="Write 1 or more")
    show_logs(log_format)
    if processes is None:
        find_app(target).run()
    else:
        _run_several(target, log_format, processes)


def _run_several(target: str, log_format: LogFormat, processes: int) -> None:
    # -P: that the current folder is in reach is the doing of `find_app`.
    command = [sys.executable, "-P", "-m", "redeliver_mw.cli.child", target, log_format.value]
    code, said = supervise(command, processes)
    if said:
        print(f"error: {said}", file=sys.stderr)
    if code:
        raise typer.Exit(code)
