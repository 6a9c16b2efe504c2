# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the timeline of a message that always fails, and formats its rows. Pure.

Times count from the first failure and leave out the time that the handler takes; `elapsed` is the end of the delay.
Float seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..errors import counted
from ..message import Destination
from ..policy import Accept, DeadLetter, Decision, Discard, Keep, Redeliver, RedeliveryPolicy

FAILURES_SHOWN = 100  # for a policy that goes on forever
FAILURES_LIMIT = 100_000  # the most rows that a person or a program can use
NAMES = ("failure", "then", "after", "range", "elapsed")


@dataclass(frozen=True)
class TimelineRow:
    """Holds one failure, the decision that follows, and the end of the delay."""

    failures: int
    decision: Decision
    elapsed: float  # seconds since the first failure; base delays

    def as_json(self, source: Destination) -> dict[str, Any]:
        """Return the row as `explain --json` prints it (docs/cli.md)."""
        row: dict[str, Any] = {"failures": self.failures, "decision": word(self.decision)}
        match self.decision:
            case Redeliver(base, low, high) | Keep(base, low, high):
                row |= {"delay_s": base, "delay_min_s": low, "delay_max_s": high, "elapsed_s": self.elapsed}
            case DeadLetter(targets):
                resolved = [target.resolve(source) for target in targets]
                row["targets"] = [{"kind": target.kind, "name": target.name} for target in resolved]
        return row


def timeline(policy: RedeliveryPolicy, failures: int | None = None) -> Iterator[TimelineRow]:
    """Yield rows until the last decision, or `failures` rows.

    Without `failures`, a policy that goes on forever is cut at FAILURES_SHOWN rows.
    """
    most = failures or (FAILURES_SHOWN if policy.dead_after is None else min(policy.dead_after, FAILURES_LIMIT))
    elapsed = 0.0
    for count in range(1, most + 1):
        decision = policy.decide(count, elapsed)
        if isinstance(decision, Redeliver | Keep):
            # avoids float noise such as 0.30000000000000004 s
            elapsed = round(elapsed + decision.base, 9)
        yield TimelineRow(count, decision, elapsed)
        if not isinstance(decision, Redeliver) and not (isinstance(decision, Keep) and failures):
            return


def goes_on(policy: RedeliveryPolicy, rows: Sequence[TimelineRow]) -> bool:
    """Return whether the policy goes on forever after these rows."""
    last = rows[-1].decision
    return isinstance(last, Redeliver | Keep) and policy.goes_on


def word(decision: Decision) -> str:
    """Return the decision as `explain --json` names it: see docs/cli.md."""
    words = {
        Redeliver: "redeliver",
        DeadLetter: "dead-letter",
        Discard: "discard",
        Keep: "keep",
        Accept: "accept",
    }
    return words[type(decision)]


def as_json(policy: RedeliveryPolicy, source: Destination, rows: Sequence[TimelineRow]) -> dict[str, Any]:
    """Return the whole timeline as `explain --json` prints it (docs/cli.md)."""
    return {
        "language": policy.language,
        "destination": {"name": source.name, "kind": source.kind},
        "dead_after": policy.dead_after,
        "timeline": [row.as_json(source) for row in rows],
        "repeats": goes_on(policy, rows),
    }


def folded(rows: Iterable[TimelineRow], source: Destination) -> Iterator[tuple[str, ...]]:
    """Yield cells under NAMES: equal decisions in a row share one line, with the elapsed time of the last."""
    for _, run in groupby(rows, key=lambda row: row.decision):
        same = list(run)
        yield counts(same[0].failures, same[-1].failures), *cells(same[-1], source)


def beside(
    ours: Sequence[TimelineRow], theirs: Sequence[TimelineRow], source: Destination
) -> Iterator[tuple[str, ...]]:
    """Yield two timelines in one table: the failure, then three cells for each, empty after a timeline has ended."""
    most = max(len(ours), len(theirs))
    pairs = [(count, _at(ours, count), _at(theirs, count)) for count in range(1, most + 1)]
    for _, run in groupby(pairs, key=lambda pair: tuple(row and row.decision for row in pair[1:])):
        same = list(run)
        cells_of = [_short(row, source) for row in same[-1][1:]]
        yield counts(same[0][0], same[-1][0]), *cells_of[0], *cells_of[1]


def first_difference(ours: Sequence[TimelineRow], theirs: Sequence[TimelineRow], source: Destination) -> int | None:
    """Return the first F at which the two decide differently; None if they never do."""
    for count in range(1, max(len(ours), len(theirs)) + 1):
        one, other = _at(ours, count), _at(theirs, count)
        if one is None or other is None or one.as_json(source) != other.as_json(source):
            return count
    return None


def cells(row: TimelineRow, source: Destination) -> tuple[str, str, str, str]:
    """Return cells for the decision, the delay, its range, and its end."""
    match row.decision:
        case Redeliver(base, low, high) | Keep(base, low, high):
            reach = "" if low == high else f"{seconds(low)} to {seconds(high)}"
            return word(row.decision), seconds(base), reach, seconds(row.elapsed)
        case DeadLetter(targets):
            names = ", ".join(str(target.resolve(source)) for target in targets)
            return f"dead-letter to {names}", "", "", ""
    return word(row.decision), "", "", ""


def summary(policy: RedeliveryPolicy, rows: Sequence[TimelineRow], source: Destination) -> str:
    """Return one sentence about how the timeline ends."""
    last = rows[-1]
    after = f"after {counted(last.failures, 'failure')}, {seconds(last.elapsed)} after the first"
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
    """Return a time for people: `0 s`, `25 ms`, `1.5 s`, `3 min 25 s`, `2 h 5 min`, `4 d 3 h`."""
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


def counts(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _at(rows: Sequence[TimelineRow], failures: int) -> TimelineRow | None:
    return rows[failures - 1] if failures <= len(rows) else None


def _short(row: TimelineRow | None, source: Destination) -> tuple[str, str, str]:
    if row is None:
        return "", "", ""
    then, after, reach, elapsed = cells(row, source)
    return then, f"{after} ({reach})" if reach else after, elapsed
