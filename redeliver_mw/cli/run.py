# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redeliver run module:app`: runs an App until SIGTERM or SIGINT."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ConfigError
from .finding import find_app
from .logs import LogFormat, show_logs

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="An App, as shop:app for `app` in shop.py")]
Format = Annotated[LogFormat, typer.Option(help="How log lines look on stderr")]
Processes = Annotated[int | None, typer.Option(help="Not built yet")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run")(run)


def run(target: Target, log_format: Format = LogFormat.console, processes: Processes = None) -> None:
    """Run an App until SIGTERM or SIGINT; it then finishes what is in hand. A second signal stops at once."""
    if processes is not None:
        raise ConfigError(
            "not built yet", where="--processes", cure="Leave it out, and start this command as often as needed"
        )
    show_logs(log_format)
    find_app(target).run()
