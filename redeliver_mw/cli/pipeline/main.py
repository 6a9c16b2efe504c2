# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline compact · schema · doctor`: reads journals into a lake, on Spark.

Each other command of the group is a module with `register(group)`, named in PARTS.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import ConfigError, counted
from ..arguments import Json
from ..help import example
from ..output import plain, print_table
from . import backtest, drain, export, forget, insights, limbo, optimize, plan, replay, report
from .options import Conf, LakeFolder, Master, Since, Until, read_conf, spark, telling

if TYPE_CHECKING:
    from ...pipeline import Compacted

PARTS = (
    insights,
    backtest,
    report,
    drain,
    limbo,
    plan,
    replay,
    forget,
    export,
    optimize,
)
BAD, IN_PART = 1, 3

JournalFolder = Annotated[str, typer.Argument(metavar="JOURNAL", help="The folder that App(journal=…) writes to")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of a table: events, quarantine, or a mart")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(
        help="What months of failures say: journals to a lake, to answers.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("compact", epilog=example("redeliver pipeline compact journal lake"))(compact)
    group.command("schema", epilog=example("redeliver pipeline schema events"))(schema)
    group.command("doctor", epilog=example("redeliver pipeline doctor"))(doctor)
    for part in PARTS:
        part.register(group)
    app.add_typer(group, name="pipeline")


def compact(
    journal: JournalFolder,
    lake: LakeFolder,
    since: Since = None,
    until: Until = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Read the finished segments of a journal into a lake: each segment once, each record once."""
    from ...pipeline import compact as into_lake
    from ...pipeline.lake.compaction import named_folders, nothing_new

    done = nothing_new(journal, lake, since=since, until=until)  # also reports invalid input before Spark is started
    if done is None:
        with spark(master, conf) as session, telling("reading") as tell:
            done = into_lake(session, journal, lake, since=since, until=until, progress=tell)
    if as_json:
        print(json.dumps({**asdict(done), "days": [str(day) for day in done.days]}))
    else:
        print("\n".join(_lines(done, lake)))
    if done.below:
        segments = counted(sum(done.below.values()), "segment")
        where = f"{segments} in folders of {plain(journal)} are not read: {plain(named_folders(done.below))}"
        print(f"note: {where}. Compact each of these folders by itself", file=sys.stderr)
    if done.quarantined:
        raise typer.Exit(IN_PART)


def schema(name: Name, as_json: Json = False) -> None:
    """Print the columns of a table, one a line, as DDL has them."""
    from ...pipeline.schemas import ALL

    if name not in ALL:
        raise ConfigError(
            f"{name!r} is no table of a lake", where="NAME", cure=f"Take one of {', '.join(ALL)}", code="option-value"
        )
    columns = [column.partition(" ") for column in re.split(r",\s*(?![^<]*>)", ALL[name])]
    if as_json:
        print(json.dumps([{"name": column, "type": kind} for column, _, kind in columns]))
    else:
        print("\n".join(f"{column} {kind}" for column, _, kind in columns))


def doctor(conf: Conf = None, as_json: Json = False) -> None:
    """Look whether Spark can run here: Java, the packages it needs, the Python of its workers, its S3 client."""
    from ...pipeline.doctor import examine

    findings = examine(read_conf(conf))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings]))
    else:
        rows = [(one.name, "ok" if one.ok else "bad", plain(one.found), plain(one.cure)) for one in findings]
        print_table(("what", "", "found", "cure"), rows)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(BAD)


def _lines(done: Compacted, lake: str) -> list[str]:
    """Return sentences for people about what was done, without sentences about nothing."""
    if done.run is None:
        lines = ["nothing new"]
    else:
        span = f", {done.days[0]} to {done.days[-1]}" if done.days else ""
        lines = [f"{done.records} records from {done.segments} segments{span}"]
    found = [
        (done.quarantined, f"lines are no records: {os.path.join(lake, 'quarantine')}"),
        (done.duplicates, "records were in the lake already"),
        (done.counts, "lines count messages that were handled at once"),
        (done.others, "lines tell of something else than an attempt"),
        (done.outside, "records are left for later by --since or --until"),
        (done.copies, "segments are copies of others"),
        (done.unfinished, "segments are still being written"),
    ]
    return lines + [f"{number} {what}" for number, what in found if number]
