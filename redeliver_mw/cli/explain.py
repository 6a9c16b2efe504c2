# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redeliver explain POLICY`: the timeline of a message that always fails, alone or beside another policy's."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..message import Destination
from .given import Json, Language, Policy, Strict, read_policies
from .picture import Lane, line, scale, svg
from .showing import print_table
from .timeline import (
    FAILURES_LIMIT,
    NAMES,
    beside,
    first_difference,
    folded,
    seconds,
    summary,
    timeline,
)
from .timeline import as_json as told_as_json

__all__ = ["explain", "register", "seconds", "timeline"]


class Kind(StrEnum):
    """What --kind takes."""

    queue = "queue"
    topic = "topic"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    policy: Policy,
    destination: Annotated[str, typer.Option(metavar="NAME", help="The source; $ leaves the name open")] = "$",
    kind: Annotated[Kind | None, typer.Option(help="Of --destination; else queue, unless it says topic:")] = None,
    failures: Annotated[
        int | None,
        typer.Option(
            min=1, max=FAILURES_LIMIT, help="Show so many at most; else to the end, or 100 of a policy that has none"
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Another policy, in any language, told beside it")
    ] = None,
    drawing: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the timeline into a file")] = None,
    language: Language = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Show the timeline of a message that always fails, alone or beside another policy's."""
    source = source_of(destination, kind)
    lanes = [_lane("A" if against else str(source), policy, language, strict, source, failures)]
    if against is not None:
        lanes.append(_lane("B", against, None, strict, source, failures))
    if drawing is not None:
        _draw(lanes, source, drawing)
    if as_json:
        print(json.dumps(_json(lanes, source), ensure_ascii=False))
    elif against is None:
        print_table(NAMES, folded(lanes[0].rows, source), right=(0, 2, 3, 4))
        _print_picture(lanes)
        print(summary(lanes[0].policy, lanes[0].rows, source))
    else:
        _print_both(lanes[0], lanes[1], source)


def source_of(destination: str, kind: Kind | None) -> Destination:
    """The source that --destination and --kind name; ConfigError if they disagree."""
    source = Destination.parse(destination)
    if kind is None:
        return source
    if destination != source.name and source.kind != kind.value:
        raise ConfigError(f"{destination!r} is no {kind.value}", where="--kind", cure="Say queue or topic once")
    return Destination(source.name, kind.value)


def _lane(
    title: str, given: str, language: str | None, strict: bool, source: Destination, failures: int | None
) -> Lane:
    found = read_policies(given, language, strict).resolve(source.name, source.kind)
    return Lane(f"{title} ({found.language})", found, list(timeline(found, failures)))


def _json(lanes: list[Lane], source: Destination) -> dict[str, object]:
    told = [told_as_json(lane.policy, source, lane.rows) for lane in lanes]
    if len(told) == 1:
        return told[0]
    return {"a": told[0], "b": told[1], "first_difference": first_difference(lanes[0].rows, lanes[1].rows, source)}


def _print_both(ours: Lane, theirs: Lane, source: Destination) -> None:
    names = ("failure", "A", "after", "elapsed", "B", "after", "elapsed")
    print_table(names, beside(ours.rows, theirs.rows, source), right=(0, 2, 3, 5, 6))
    _print_picture([ours, theirs])
    for lane in (ours, theirs):
        print(f"{lane.title}: {summary(lane.policy, lane.rows, source)}")
    count = first_difference(ours.rows, theirs.rows, source)
    print("They decide the same." if count is None else f"They differ from failure {count} on.")


def _print_picture(lanes: list[Lane]) -> None:
    plain = not _can_show("▏─●░✕⌀→")
    longest = max(lane.length for lane in lanes)
    drawn = [line(lane, longest=longest, plain=plain) for lane in lanes]
    if any(drawn):
        print("\n".join([*drawn, scale(longest), ""]))


def _can_show(characters: str) -> bool:
    try:
        characters.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _draw(lanes: list[Lane], source: Destination, file: Path) -> None:
    try:
        file.write_text(svg(lanes, source), encoding="utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"cannot be written: {reason}", where=str(file), cure="Name a file in a folder of yours"
        ) from None
