# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares two runs of the bench: `python -m tests.bench.diff A.json B.json`, or `make bench-diff A=… B=…`.

The ratios come first, since they hardly depend on the machine; then comes every figure that both runs have. A change is
said to be better or worse where no round of the one run reached any round of the other, and the medians are more than
3 % apart. The output is Markdown. The exit code is 2 for files that are no runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.figures import MEASURES, Run
from tests.bench.goals import GOALS
from tests.bench.page import around, row

NOTHING = 0.03  # of a change


def verdict(before: Sequence[float], after: Sequence[float], *, more: bool) -> str:
    """Return `better`, `worse`, or nothing where the change may be chance; `more` says that more is better."""
    old, new = statistics.median(before), statistics.median(after)
    apart = min(after) > max(before) or max(after) < min(before)
    if not apart or abs(new - old) <= NOTHING * abs(old):
        return ""
    return "better" if (new > old) == more else "worse"


def compared(before: Run, after: Run) -> Iterator[str]:
    yield from _differences(before, after)
    yield from (row("goal", "A", "B", "B / A", ""), row("---", "---:", "---:", "---:", "---"))
    for goal in GOALS:
        old, new = goal.values(before), goal.values(after)
        if old and new:
            yield _line(goal.name, old, new, 2, more=not goal.most)
    yield from ("", row("figure", "unit", "A", "B", "B / A", ""), row("---", "---", "---:", "---:", "---:", "---"))
    for key, figure in before.figures.items():
        if key in after.figures:
            measure = MEASURES[figure.what]
            name = f"{key} | {measure.unit}"
            yield _line(name, figure.values, after.figures[key].values, measure.digits, more=measure.more)
    for name, one, other in (("A", before, after), ("B", after, before)):
        if alone := [key for key in one.figures if key not in other.figures]:
            yield f"\nOnly in {name}: {', '.join(alone)}"


def _differences(before: Run, after: Run) -> Iterator[str]:
    """Yield what makes the figures of two runs hard to compare."""
    for what in ("machine", "versions", "options"):
        old, new = before.about.get(what, {}), after.about.get(what, {})
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield f"{what}, {name}: {old.get(name, 'none')} in A, {new.get(name, 'none')} in B\n"


def _line(name: str, old: Sequence[float], new: Sequence[float], digits: int, *, more: bool) -> str:
    under = statistics.median(old)
    times = f"{statistics.median(new) / under:.2f}" if under else ""
    return row(name, around(old, digits), around(new, digits), times, verdict(old, new, more=more))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", metavar="A.json", type=Path)
    parser.add_argument("after", metavar="B.json", type=Path)
    asked = parser.parse_args()
    try:
        before, after = Run.read(asked.before), Run.read(asked.after)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(compared(before, after)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
