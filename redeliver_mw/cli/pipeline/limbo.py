# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline limbo URL LAKE`: copies the messages that stay in a limbo into the lake."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from typing import Annotated

import typer

from ...errors import counted
from ..arguments import Json, read_url
from ..help import example
from .options import LakeFolder

LimboUrl = Annotated[str, typer.Argument(metavar="URL", help="The limbo's, or env:NAME for the variable that holds it")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("limbo", epilog=example("redeliver pipeline limbo sqlite:///limbo.db lake"))(limbo)


def limbo(url: LimboUrl, lake: LakeFolder, as_json: Json = False) -> None:
    """Copy what a limbo does not send by itself any more into the lake, in place of the copy before.

    The limbo is not changed: `redeliver limbo release` sends its messages, and no replay of the lake's letters does.
    """
    from ...pipeline.draining.limbo_letters import copy_limbo

    done = copy_limbo(read_url(url), lake)
    if as_json:
        print(json.dumps(asdict(done)))
        return
    print(f"{counted(done.letters, 'message')} copied, in place of {done.before}")
    if done.waiting:
        print(f"note: {counted(done.waiting, 'message')} not copied: the limbo sends what waits", file=sys.stderr)
