# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline plan`: chooses the drained letters to send back, counts them and freezes the plan."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError
from ..arguments import Json
from ..help import example
from ..output import cut, plain, print_table
from .options import Conf, LakeFolder, Master, spark

if TYPE_CHECKING:
    from ...pipeline import Plan

IN_PART = 3
_NO_GROUPS = "activemq+stomp"  # a dialect in which no consumer sees a group id

NewPlanFolder = Annotated[str, typer.Argument(metavar="PLAN", help="The plan's folder: empty, or not there yet")]
Where = Annotated[
    str | None, typer.Option("--where", metavar="SQL", help="A condition in Spark SQL over the letters' columns")
]
DiedSince = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Letters dead from this day or time on (ISO 8601, UTC)")
]
DiedUntil = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Letters dead before this day or time (ISO 8601, UTC)")
]
Destinations = Annotated[
    list[str] | None,
    typer.Option("--destination", metavar="NAME", help="Letters that were consumed from there; may be repeated"),
]
Fingerprints = Annotated[
    list[str] | None,
    typer.Option("--fingerprint", metavar="HEX", help="Letters with this error_fingerprint; may be repeated"),
]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="Letters with this header; all of them, if repeated"),
]
MinAttempts = Annotated[
    int | None, typer.Option("--min-attempts", metavar="N", help="Letters whose handler failed so often, or more")
]
TransformOption = Annotated[
    str | None,
    typer.Option("--transform", metavar="MODULE:FUNCTION", help="Gives each letter back, changed or not; or None"),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="EDIT", help="header.NAME=VALUE, body.PATH=VALUE, to=queue:NAME; may be repeated"),
]
Unset = Annotated[
    list[str] | None, typer.Option("--unset", metavar="PLACE", help="header.NAME, body.PATH; may be repeated")
]
Ordered = Annotated[
    bool, typer.Option("--ordered", help="Letters of one group id go in the order of their deaths, one after the other")
]
MaxGeneration = Annotated[
    int, typer.Option("--max-generation", metavar="N", help="A message that was replayed so often is left out")
]
Buckets = Annotated[
    int | None, typer.Option("--buckets", metavar="N", help="Files, each for one publisher; by default what fits")
]
NoBodies = Annotated[
    bool, typer.Option("--no-bodies", help="Bodies stay in the lake, where a replay takes them from; none is edited")
]
RedactOption = Annotated[
    str | None,
    typer.Option("--redact", metavar="MODULE:FUNCTION", help="Gives what the plan shows of a body that stays there"),
]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("plan", epilog=example("redeliver pipeline plan lake plan --header tenant=acme"))(plan)


def plan(
    lake: LakeFolder,
    folder: NewPlanFolder,
    where: Where = None,
    since: DiedSince = None,
    until: DiedUntil = None,
    destination: Destinations = None,
    fingerprint: Fingerprints = None,
    header: Headers = None,
    min_attempts: MinAttempts = None,
    transform: TransformOption = None,
    edits: Set = None,
    removals: Unset = None,
    ordered: Ordered = False,
    max_generation: MaxGeneration = 5,
    buckets: Buckets = None,
    no_bodies: NoBodies = False,
    redact: RedactOption = None,
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> None:
    """Choose dead letters to send back, and freeze them as a plan: counted, in order, not sent yet."""
    from ...pipeline import Lake
    from ...pipeline import plan as make
    from ...pipeline.plans.options import plan_options
    from ...pipeline.plans.plan_dir import check_folder

    sys.path.insert(0, os.getcwd())
    asked: dict[str, Any] = {
        "where": where,
        "since": since,
        "until": until,
        "destinations": destination or (),
        "fingerprints": fingerprint or (),
        "headers": _headers(header),
        "min_attempts": min_attempts,
        "edits": edits or (),
        "removals": removals or (),
        "transform": transform,
        "ordered": ordered,
        "max_generation": max_generation,
        "buckets": buckets,
        "bodies": not no_bodies,
        "redact": redact,
    }
    plan_options(**asked)  # invalid options are reported before Spark is started
    check_folder(folder)
    Lake(lake)
    with spark(master, conf) as session, _telling() as tell:
        made = make(session, lake, folder, **asked, progress=tell)
    if as_json:
        print(json.dumps(_as_json(made)))
    else:
        _print(made)
    if made.ordered and _NO_GROUPS in made.dialects:
        print(f"note: {_NO_GROUPS} hides group ids, so letters from there go in no order", file=sys.stderr)
    for dl_id, error in made.errors:
        print(f"{plain(dl_id)}: {plain(error)}", file=sys.stderr)
    if _failed(made):
        raise typer.Exit(IN_PART)


def _headers(given: Sequence[str] | None) -> dict[str, str]:
    pairs = [one.partition("=") for one in given or ()]
    for name, mark, value in pairs:
        if not mark or not name:
            where = f"--header {name}{mark}{value}"
            raise ConfigError(
                "no NAME=VALUE", where=where, cure="Write it as in --header tenant=acme", code="option-value"
            )
    return {name: value for name, _, value in pairs}


def _print(made: Plan) -> None:
    from ...pipeline.plans.eligibility import WHY

    if made.destinations:
        rows = [(plain(name), str(number)) for name, number in made.destinations.items()]
        print_table(("goes to", "letters"), rows, right={1})
    if made.left_out:
        left_out = [(why, str(number), WHY.get(why, "")) for why, number in made.left_out.items()]
        print_table(("left out", "letters", "because"), left_out, right={1})
    where = f" where {cut(plain(made.where))}" if made.where else ""
    print(f"{made.letters} letters planned{where}, {sum(made.left_out.values())} left out")
    print(f"plan {made.plan_id} in {plain(made.folder)}, sha256 {made.sha256[:16]}")


def _failed(made: Plan) -> bool:
    from ...pipeline.plans.eligibility import FAILED

    return bool(made.left_out.get(FAILED))


def _as_json(made: Plan) -> dict[str, Any]:
    return {
        "plan_id": made.plan_id,
        "folder": made.folder,
        "lake": made.lake,
        "created_s": made.created_us / 1e6,
        "sha256": made.sha256,
        "letters": made.letters,
        "buckets": made.buckets,
        "where": made.where,
        "since_s": _seconds(made.since_us),
        "until_s": _seconds(made.until_us),
        "transform": made.transform,
        "set": list(made.edits),
        "ordered": made.ordered,
        "destinations": made.destinations,
        "brokers": made.brokers,
        "dialects": made.dialects,
        "left_out": made.left_out,
        "errors": [{"dl_id": dl_id, "error": error} for dl_id, error in made.errors],
    }


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6


@contextmanager
def _telling() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows the current step on stderr, or None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("choosing letters") as status:
        yield status.update
