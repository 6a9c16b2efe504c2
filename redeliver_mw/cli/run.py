# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver run module:app`: runs an App until SIGTERM or SIGINT."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from ..app import App
from ..errors import ConfigError
from ..processes.child_process import supervise
from ..runtime.connection_health import not_ready
from ..runtime.health_pages import health_pages
from ..telemetry.page_server import Page, ServedPages, ServerAddress, serving
from ..telemetry.served import PATH
from .app_loader import find_app
from .child import NOTIFY_VARIABLE
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
Metrics = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Answer /metrics there for Prometheus, for all processes"),
]

Traces = Annotated[
    bool, typer.Option("--traces", help="Make spans by OpenTelemetry's global tracer provider, in all processes")
]
Notify = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Send notifications to this webhook, signed with REDELIVER_NOTIFY_SECRET; or env:NAME"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("run", epilog=example("redeliver run shop:app --processes 4"))(run)


def run(
    target: AppLocation,
    log_format: Format = LogFormat.console,
    processes: Processes = None,
    health: Health = None,
    metrics: Metrics = None,
    traces: Traces = False,
    notify: Notify = None,
) -> None:
    """Run an App until SIGTERM or SIGINT; it then finishes what is in hand. A second signal stops at once."""
    if processes is not None and processes < 1:
        raise ConfigError(
            f"{processes} processes consume nothing", where="--processes", cure="Write 1 or more", code="option-value"
        )
    addresses = Addresses(_address(health, "--health"), _address(metrics, "--metrics"))
    webhook = None if notify is None else _webhook(notify)
    show_logs(log_format)
    if processes is None:
        _run_one(target, addresses, traces=traces, webhook=webhook)
    else:
        _run_several(target, log_format, processes, addresses, traces=traces, webhook=webhook)


class Addresses(NamedTuple):
    """Holds where health and metrics are served; None: nowhere."""

    health: ServerAddress | None
    metrics: ServerAddress | None


def _address(text: str | None, option: str) -> ServerAddress | None:
    return None if text is None else ServerAddress.parse(text, option)


def _webhook(given: str) -> str:
    """Return the URL of a webhook. Raises ConfigError for a variable that is not set, or another text."""
    from ..notifications.targets import OPTION, check_webhook

    if given.startswith("env:") and not os.environ.get(given.removeprefix("env:")):
        raise ConfigError(
            f"the variable {given.removeprefix('env:')!r} is not set",
            where=f"--{OPTION}",
            cure="Set it to the URL of the webhook",
            code="notify-target",
        )
    url = os.environ[given.removeprefix("env:")] if given.startswith("env:") else given
    check_webhook(url)
    return url


def _run_one(target: str, addresses: Addresses, *, traces: bool, webhook: str | None) -> None:
    found: list[App] = []  # empty until the import is done
    with serving(
        _served(addresses.health, "--health", health_pages(lambda: not_ready(_health(found)))),
        _served(addresses.metrics, "--metrics", _metrics_pages(found) if addresses.metrics else {}),
    ):
        app = find_app(target)
        if addresses.metrics is not None:
            app.measured()
        if traces:
            app.traced()
        if webhook is not None:
            app.notified(webhook)
        found.append(app)
        app.run()


def _served(address: ServerAddress | None, option: str, pages: Mapping[str, Page]) -> ServedPages | None:
    return None if address is None else ServedPages(address, option, pages)


def _health(found: Sequence[App]) -> dict[str, Any]:
    return found[0].health() if found else {"started": False}


def _metrics_pages(found: Sequence[App]) -> Mapping[str, Page]:
    """Return the page of the metrics, which is empty until there is an App. Raises MissingExtra."""
    from ..telemetry.prometheus import PrometheusMetrics  # needs an extra

    nothing = PrometheusMetrics()
    return {PATH: lambda accept: (found[0].measured() if found else nothing).page(accept)}


def _run_several(
    target: str, log_format: LogFormat, processes: int, addresses: Addresses, *, traces: bool, webhook: str | None
) -> None:
    # -P, because `find_app` puts the current folder on the path.
    wanted = [name for name, address in addresses._asdict().items() if address is not None]
    wanted += ["traces"] if traces else []
    if webhook is not None:  # its URL may hold a secret, and every user may read a command line
        wanted.append("notify")
        os.environ[NOTIFY_VARIABLE] = webhook
    telemetry = ",".join(wanted) or "silent"
    command = [sys.executable, "-P", "-m", "redeliver_mw.cli.child", target, log_format.value, telemetry]
    code, message = supervise(command, processes, addresses.health, addresses.metrics)
    if message:
        print(f"error: {message}", file=sys.stderr)
    if code:
        raise typer.Exit(code)
