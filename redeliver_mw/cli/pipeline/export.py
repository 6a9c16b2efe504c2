# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline export`: lets other programs read a lake's tables by Delta logs."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from ...errors import ConfigError
from ..arguments import Json
from ..help import example
from ..output import plain, print_table
from .options import LakeFolder

Delta = Annotated[bool, typer.Option("--delta", help="Write a Delta log for each table, over the files that are there")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("export", epilog=example("redeliver pipeline export lake --delta"))(export)


def export(lake: LakeFolder, delta: Delta = False, as_json: Json = False) -> None:
    """Let other programs read events, dead letters and marts as Delta tables; again after each change of the lake."""
    if not delta:
        raise ConfigError("no format is named", where="export", cure="Say --delta", code="option-value")
    from ...pipeline.delta.export import export as write_logs

    done = write_logs(lake)
    if as_json:
        print(json.dumps({"tables": [asdict(one) for one in done.tables], "notes": done.notes}))
    else:
        rows = [
            (
                one.table,
                plain(one.location),
                str(one.version),
                str(one.rows),
                str(one.files),
                str(one.added),
                str(one.removed),
            )
            for one in done.tables
        ]
        print_table(("table", "location", "version", "rows", "files", "added", "removed"), rows, right={2, 3, 4, 5, 6})
    for note in done.notes:
        print(f"note: {note}", file=sys.stderr)
