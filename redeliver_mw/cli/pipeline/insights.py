# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline insights LAKE`: computes the marts of a lake again."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

from ..arguments import Json
from ..help import example
from ..output import print_table
from .options import Conf, LakeFolder, Master, Since, Until, spark


def register(group: typer.Typer) -> None:
    """Add the command to `redeliver pipeline`."""
    group.command("insights", epilog=example("redeliver pipeline insights lake"))(insights)


def insights(
    lake: LakeFolder,
    since: Since = None,
    until: Until = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Make the marts of a lake from its records: what fails, what recovers and when, what is wasted, what dies."""
    from ...pipeline import Lake
    from ...pipeline.insights import clock_warnings
    from ...pipeline.insights import insights as make
    from ...pipeline.time_range import span

    span(since, until)  # invalid options are reported before Spark is started
    place = Lake(lake)
    with spark(master, conf) as session, _telling() as tell:
        rows = make(session, place, since=since, until=until, progress=tell)
        warnings = clock_warnings(session, place)
    for line in warnings:
        print(line, file=sys.stderr)
    if as_json:
        print(json.dumps(rows))
    else:
        print_table(("mart", "rows"), [(name, str(number)) for name, number in rows.items()], right={1})


@contextmanager
def _telling() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows the current mart on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("reading the lake") as status:
        yield lambda name, done, of: status.update(f"{name}, {done + 1} of {of}" if done < of else name)
