# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redeliver explain POLICY`: the timeline of a message that always fails.

Times count from the first failure and leave out how long the handler takes; `elapsed` is when the rest is
over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Annotated, Any

import typer

from ..errors import ConfigError
from ..message import Destination
from ..policy import Accept, DeadLetter, Decision, Discard, Keep, Redeliver, RedeliveryPolicy
from .given import Json, Language, Policy, Strict, read_policies

FAILURES_SHOWN = 100  # of a policy that goes on for ever
FAILURES_LIMIT = 100_000  # rows that a person or a program can still want


class Kind(StrEnum):
    """What --kind takes."""

    queue = "queue"
    topic = "topic"


@dataclass(frozen=True)
class Row:
    """One failure, what is decided then, and when the rest is over."""

    failures: int
    decision: Decision
    elapsed: float  # seconds since the first failure; base delays

    def as_json(self, source: Destination) -> dict[str, Any]:
        """The row as API section 5 promises it."""
        row: dict[str, Any] = {"failures": self.failures, "decision": word(self.decision)}
        match self.decision:
            case Redeliver(base, low, high) | Keep(base, low, high):
                row |= {"delay_s": base, "delay_min_s": low, "delay_max_s": high, "elapsed_s": self.elapsed}
            case DeadLetter(targets):
                resolved = [target.resolve(source) for target in targets]
                row["targets"] = [{"kind": target.kind, "name": target.name} for target in resolved]
        return row


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    policy: Policy,
    destination: Annotated[str, typer.Option(help="The source; $ leaves the name open")] = "$",
    kind: Annotated[Kind | None, typer.Option(help="queue, unless the name says topic:")] = None,
    failures: Annotated[int | None, typer.Option(min=1, max=FAILURES_LIMIT, help="Stop after so many")] = None,
    language: Language = None,
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Show the timeline of a message that always fails."""
    source = _source(destination, kind)
    found = read_policies(policy, language, strict).resolve(source.name, source.kind)
    rows = list(timeline(found, failures))
    if as_json:
        print(json.dumps(_as_json(found, source, rows), ensure_ascii=False))
    else:
        _print_table(rows, source)
        print(_summary(found, rows, source))


def timeline(policy: RedeliveryPolicy, failures: int | None = None) -> Iterator[Row]:
    """Row by row until the last decision, or `failures`; without that, a policy that goes on is cut short."""
    most = failures or (FAILURES_SHOWN if policy.dead_after is None else min(policy.dead_after, FAILURES_LIMIT))
    elapsed = 0.0
    for count in range(1, most + 1):
        decision = policy.decide(count, elapsed)
        if isinstance(decision, Redeliver | Keep):
            # nobody waits for 0.30000000000000004 s
            elapsed = round(elapsed + decision.base, 9)
        yield Row(count, decision, elapsed)
        if not isinstance(decision, Redeliver) and not (isinstance(decision, Keep) and failures):
            return


def goes_on(policy: RedeliveryPolicy, rows: list[Row]) -> bool:
    """Does the policy go on for ever after these rows?"""
    last = rows[-1].decision
    return isinstance(last, Redeliver | Keep) and policy.goes_on


def word(decision: Decision) -> str:
    """The decision in one word of API section 5."""
    words = {
        Redeliver: "redeliver",
        DeadLetter: "dead-letter",
        Discard: "discard",
        Keep: "keep",
        Accept: "accept",
    }
    return words[type(decision)]


def _source(destination: str, kind: Kind | None) -> Destination:
    source = Destination.parse(destination)
    if kind is None:
        return source
    if destination != source.name and source.kind != kind.value:
        raise ConfigError(f"{destination!r} is no {kind.value}", where="--kind", cure="Say queue or topic once")
    return Destination(source.name, kind.value)


def _as_json(policy: RedeliveryPolicy, source: Destination, rows: list[Row]) -> dict[str, Any]:
    return {
        "language": policy.language,
        "destination": {"name": source.name, "kind": source.kind},
        "dead_after": policy.dead_after,
        "timeline": [row.as_json(source) for row in rows],
        "repeats": goes_on(policy, rows),
    }


def _print_table(rows: list[Row], source: Destination) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("failure", justify="right", no_wrap=True)
    table.add_column("then")
    for name in ("after", "range", "elapsed"):
        table.add_column(name, justify="right", no_wrap=True)
    for cells in _folded(rows, source):
        table.add_row(*(Text(cell) for cell in cells))  # Text: a name may look like markup
    console = Console()
    if not console.is_terminal:
        console = Console(width=10_000)  # a pipe has no width: nothing is cut for it
    console.print(table)


def _folded(rows: Iterable[Row], source: Destination) -> Iterator[tuple[str, ...]]:
    # a run of equal decisions is one line, with the elapsed time of its last
    for decision, run in groupby(rows, key=lambda row: row.decision):
        same = list(run)
        first, last = same[0].failures, same[-1].failures
        counts = str(first) if first == last else f"{first}-{last}"
        match decision:
            case Redeliver(base, low, high) | Keep(base, low, high):
                reach = "" if low == high else f"{seconds(low)} to {seconds(high)}"
                yield counts, word(decision), seconds(base), reach, seconds(same[-1].elapsed)
            case DeadLetter(targets):
                names = ", ".join(str(target.resolve(source)) for target in targets)
                yield counts, f"dead-letter to {names}", "", "", ""
            case _:
                yield counts, word(decision), "", "", ""


def _summary(policy: RedeliveryPolicy, rows: list[Row], source: Destination) -> str:
    last = rows[-1]
    failures = f"{last.failures} failure{'s' if last.failures > 1 else ''}"
    after = f"after {failures}, {seconds(last.elapsed)} after the first"
    match last.decision:
        case DeadLetter(targets):
            return f"Dead {after}: to {', '.join(str(target.resolve(source)) for target in targets)}."
        case Discard():
            return f"Dead {after}: discarded."
        case Keep(base):
            return f"Kept {after}: again every {seconds(base)}, for ever."
        case _:
            return f"Not dead {after}; it goes on{' for ever' if policy.goes_on else ''}."


def seconds(value: float) -> str:
    """A time for people: `0 s`, `25 ms`, `1.5 s`, `3 min 25 s`, `2 h 5 min`, `4 d 3 h`."""
    if value < 1:
        return f"{value * 1000:.6g} ms" if value else "0 s"
    if value < 60:
        return f"{value:.6g} s"
    whole = round(value)
    for unit, size, below, small in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        if unit == "d" or whole < (3600 if unit == "min" else 86400):
            large, rest = divmod(whole, size)
            return f"{large} {unit}" + (f" {rest // small} {below}" if rest // small else "")
    raise AssertionError("the last unit takes all")
