# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Assembles the commands of `redeliver`, and turns their errors into messages and exit codes.

Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 an error of the environment, 2 an error of the input, 3
done in part, 130 interrupted, 70 a bug of ours, with its traceback in a file. To add a command, write a module with
`register(app)` and name the module in COMMANDS.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from . import api, check, control, convert, dead, doctor, explain, limbo
from . import run as run_command
from .exit_codes import verdict
from .help import CommandsByTask
from .pipeline import main as pipeline_main

COMMANDS = (check, explain, convert, run_command, doctor, control, dead, limbo, api, pipeline_main)

app = typer.Typer(
    name="redeliver",
    cls=CommandsByTask,
    help="Redelivery for consumers of message brokers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # this module writes the error messages
    rich_markup_mode=None,  # the texts of policies have many brackets
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"redeliver-mw {version('redeliver-mw')}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit")
]


@app.callback()
def _group(version: Version = False) -> None:
    pass  # the callbacks above do all the work


for _command in COMMANDS:
    _command.register(app)


def main() -> None:
    """Run the command line of this process, and exit with its code.

    From the end of the command on SIGINT is ignored: the exit code is decided, and the interpreter ends in a moment.
    """
    code = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line, and return its exit code. Prints errors; raises nothing but SystemExit and its like."""
    try:
        app(args=list(arguments), prog_name="redeliver")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except (Exception, KeyboardInterrupt) as error:
        code, message = verdict(error)
        if message:
            print(f"error: {message}", file=sys.stderr)
        return code
    return 0
