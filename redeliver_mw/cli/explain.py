# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver explain POLICY`: shows the timeline of a message that always fails.

The timeline is shown alone or beside another policy's.

A policy with arms has a timeline for each arm; beside another policy only the timeline of `main` is shown.
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..message import Destination
from ..policy import Arm, RedeliveryPolicy
from ..policy.findings import findings_at
from .arguments import Json, Language, Layers, Policy, Strict, print_warnings, read_policies, refuse_findings
from .help import example
from .output import print_json, print_table
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
from .timeline import as_json as timeline_json
from .timeline_svg import TimelineLane, line, scale, svg

__all__ = ["explain", "register", "seconds", "timeline"]


class DestinationKindOption(StrEnum):
    """Lists the values of --kind."""

    queue = "queue"
    topic = "topic"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain", epilog=example("redeliver explain policy.toml"))(explain)


def explain(
    policy: Policy,
    destination: Annotated[str, typer.Option(metavar="NAME", help="The source; $ leaves the name open")] = "$",
    kind: Annotated[
        DestinationKindOption | None, typer.Option(help="Of --destination; else queue, unless it says topic:")
    ] = None,
    failures: Annotated[
        int | None,
        typer.Option(
            min=1, max=FAILURES_LIMIT, help="Show so many at most; else to the end, or 100 of a policy that has none"
        ),
    ] = None,
    against: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Another policy, in any language, shown beside it")
    ] = None,
    drawing: Annotated[Path | None, typer.Option("--svg", metavar="FILE", help="Draw the timeline into a file")] = None,
    language: Language = None,
    strict: Strict = False,
    layer: Layers = None,
    as_json: Json = False,
) -> None:
    """Show the timeline of a message that always fails, alone or beside another policy's."""
    source = source_of(destination, kind)
    policies = read_policies(policy, language, strict, layer)
    second = None if against is None else read_policies(against, None, strict)
    if strict:
        refuse_findings(findings_at(source, policies), policy)
        if second is not None and against is not None:
            refuse_findings(findings_at(source, second), against)
    found = policies.resolve(source.name, source.kind)
    lanes = _lanes("A" if against else str(source), found, failures)
    others = []
    print_warnings(findings_at(source, policies))
    if second is not None:
        print_warnings(findings_at(source, second))
        others = _lanes("B", second.resolve(source.name, source.kind), failures)
    if drawing is not None:
        _draw([*lanes, *others], source, drawing)
    if as_json:
        print_json(_json(lanes, others, source))
    elif others:
        _print_both(lanes, others, source)
    else:
        _print(lanes, source)


def source_of(destination: str, kind: DestinationKindOption | None) -> Destination:
    """Return the source that --destination and --kind name. Raises ConfigError if the two disagree."""
    source = Destination.parse(destination)
    if kind is None:
        return source
    if destination != source.name and source.kind != kind.value:
        raise ConfigError(
            f"{destination!r} is no {kind.value}",
            where="--kind",
            cure="Say queue or topic once",
            code="destination-kind",
        )
    return Destination(source.name, kind.value)


def _lanes(title: str, found: RedeliveryPolicy, failures: int | None) -> list[TimelineLane]:
    """Return one lane for each arm, `main` first."""
    return [TimelineLane(_title(title, arm, found), arm, list(timeline(arm.policy, failures))) for arm in found.apart]


def _title(title: str, arm: Arm, found: RedeliveryPolicy) -> str:
    return f"{title}, {arm} ({found.language})" if found.arms else f"{title} ({found.language})"


def _json(ours: list[TimelineLane], theirs: list[TimelineLane], source: Destination) -> dict[str, object]:
    if not theirs:
        return _lanes_json(ours, source)
    count = first_difference(ours[0].rows, theirs[0].rows, source)
    return {"a": _lanes_json(ours, source), "b": _lanes_json(theirs, source), "first_difference": count}


def _lanes_json(lanes: list[TimelineLane], source: Destination) -> dict[str, object]:
    found = [timeline_json(lane.policy, source, lane.rows) for lane in lanes]
    if len(found) == 1:
        return found[0]
    kept = ("dead_after", "timeline", "repeats")
    arms = {
        lane.arm.name: {"share": lane.arm.propensity} | {name: one[name] for name in kept}
        for lane, one in zip(lanes[1:], found[1:], strict=True)
    }
    return found[0] | {"share": lanes[0].arm.propensity, "arms": arms}


def _print(lanes: list[TimelineLane], source: Destination) -> None:
    for lane in lanes:
        if len(lanes) > 1:
            print(f"{lane.arm}:")
        print_table(NAMES, folded(lane.rows, source), right=(0, 2, 3, 4))
    _print_picture(lanes)
    for lane in lanes:
        text = summary(lane.policy, lane.rows, source)
        print(text if len(lanes) == 1 else f"{lane.arm}: {text}")


def _print_both(ours: list[TimelineLane], theirs: list[TimelineLane], source: Destination) -> None:
    names = ("failure", "A", "after", "elapsed", "B", "after", "elapsed")
    print_table(names, beside(ours[0].rows, theirs[0].rows, source), right=(0, 2, 3, 5, 6))
    _print_picture([ours[0], theirs[0]])
    for lane in (ours[0], theirs[0]):
        print(f"{lane.title}: {summary(lane.policy, lane.rows, source)}")
    count = first_difference(ours[0].rows, theirs[0].rows, source)
    print("They decide the same." if count is None else f"They differ from failure {count} on.")
    for lane in (*ours[1:], *theirs[1:]):
        print(f"Not compared: {lane.title}.")


def _print_picture(lanes: list[TimelineLane]) -> None:
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


def _draw(lanes: list[TimelineLane], source: Destination, file: Path) -> None:
    try:
        file.write_text(svg(lanes, source), encoding="utf-8", errors="replace")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"cannot be written: {reason}",
            where=str(file),
            cure="Name a file in a folder of yours",
            code="path-not-usable",
        ) from None
