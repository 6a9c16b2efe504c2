# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline report LAKE --out FILE.html`: shows the marts of a lake as one page for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from ...errors import ConfigError
from ..arguments import Json, read_policies
from ..help import example
from ..output import plain
from .options import Conf, LakeFolder, Master, Since, Until, spark
from .tables import listed

Out = Annotated[str | None, typer.Option("--out", metavar="FILE", help="Where the page goes, as HTML")]
PolicyInUse = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="POLICY", help="The policies in use, text or file; by default as far as the journal tells"
    ),
]
ObjectiveName = Annotated[
    str | None,
    typer.Option(
        "--objective",
        metavar="NAME",
        help="fewer-dead-letters, fewer-attempts or sooner; by default the first of them for which a policy is better",
    ),
]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("report", epilog=example("redeliver pipeline report lake --out report.html"))(report)


def report(
    lake: LakeFolder,
    out: Out = None,
    policy: PolicyInUse = None,
    objective: ObjectiveName = None,
    since: Since = None,
    until: Until = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Make a page of a lake's marts: what fails, what recovers and when, storms, waste, and a better policy."""
    from ...pipeline import Lake
    from ...pipeline.backtest.objective import objective_of
    from ...pipeline.report import job
    from ...pipeline.time_range import whole_days

    if out is None and not as_json:
        raise ConfigError(
            "no file is named for the page",
            where="--out",
            cure="Name a file, or ask for --json",
            code="path-not-usable",
        )
    # invalid options are reported before Spark is started
    wanted = objective_of(objective) if objective is not None else None
    policies = read_policies(policy, None, False) if policy is not None else None
    whole_days(since, until)
    if out is not None:
        job.check_out(out)
    place = Lake(lake)
    with spark(master, conf) as session, _telling() as tell:
        known = job.report(session, place, policies=policies, objective=wanted, since=since, until=until, progress=tell)
    for one in known.untold:
        print(f"note: {listed([f'{one.destination}: no advice, {one.why}'])}. Name it with --policy", file=sys.stderr)
    if out is not None:
        size = job.write(known, out)
        print(f"{out}: {size} bytes", file=sys.stderr)
    if as_json:
        print(json.dumps(known.as_json(), allow_nan=False))


@contextmanager
def _telling() -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows the current step on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status("reading the lake") as status:
        yield lambda now, done, of: status.update(Text(plain(f"{now}, {done + 1} of {of}" if of else now)))
