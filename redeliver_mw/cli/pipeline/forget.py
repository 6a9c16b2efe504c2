# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline forget`: removes dead letters, or their bodies, that have been kept long enough."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from ...errors import counted
from ..arguments import Json
from ..help import example
from .options import LakeFolder

Before = Annotated[str, typer.Option("--before", metavar="DAY", help="Letters that died before this day, in UTC")]
OnlyBodies = Annotated[bool, typer.Option("--bodies", help="Only their bodies: the letters stay to be counted")]
Remove = Annotated[bool, typer.Option("--execute", help="Do it; without it, it is only counted")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("forget", epilog=example("redeliver pipeline forget lake --before 2026-01-01"))(forget)


def forget(
    lake: LakeFolder, before: Before, bodies: OnlyBodies = False, execute: Remove = False, as_json: Json = False
) -> None:
    """Remove drained dead letters that died before a day, or only their bodies. They are nowhere else."""
    from ...pipeline import Lake
    from ...pipeline.delta.log import has_log
    from ...pipeline.draining.staging import TABLE
    from ...pipeline.lake.retention import forget as forget_letters

    found = forget_letters(lake, before, bodies_only=bodies, execute=execute)
    if found.done and found.letters and has_log(Lake(lake).files, TABLE):
        print("note: the Delta log still names them; run `redeliver pipeline export LAKE --delta`", file=sys.stderr)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    what = "bodies" if found.bodies_only else "letters"
    print(f"{found.letters} {what} of {found.days} days {'removed' if found.done else 'would be removed'}")
    if found.unsent:
        print(f"note: {found.unsent} of them were not sent back by any replay", file=sys.stderr)
    if found.staged:
        what = f"{counted(found.staged, 'letter')} of a drain that died"
        print(f"note: {what} are not counted; --execute, and the next drain, put them into the table", file=sys.stderr)
    if not found.done and (found.letters or found.staged):
        print("note: nothing was removed; say --execute to remove them", file=sys.stderr)
