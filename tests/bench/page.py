# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prints a run as Markdown: what it ran on, the goals, and a table for each section."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.figures import MEASURES, Figure, Run
from tests.bench.goals import GOALS
from tests.bench.rounds import BY_HAND

WORDS = {"met": "met", "must met": "must met, aim missed", "missed": "**missed**", "not measured": "not measured"}


def page(run: Run) -> str:
    parts = [on_what(run.about), *goals(run)]
    for section in dict.fromkeys(figure.section for figure in run.figures.values()):
        parts += ["", f"### {section}"]
        for cases in alike(run, section):
            parts += ["", *table(run, section, cases)]
    return "\n".join(parts) + "\n"


def put_between(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what a page has between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    _, after = rest.split(end)
    page.write_text("\n".join([before + begin, "", *lines, "", end]) + after, encoding="utf-8")


def on_what(about: Mapping[str, Any]) -> str:
    """Return what was measured on what, and what else the machine did meanwhile."""
    machine, load, options = about["machine"], about["load"], about["options"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"Measured {about['when']} at {about['commit'] or 'an unknown commit'}, on {machine['cores']} cores "
        f"({machine['processor']}), {machine['memory_gib']} GiB, {machine['system']}. {versions}. "
        f"Rounds in which the sides took turns: {options['rounds']}; {options['messages']} messages where not said "
        f"otherwise, {options['growth']} while memory is watched; medians, with the least and the most of all rounds. "
        f"The load before was {load['before']}; while "
        f"it ran, other work took {load['others']} of the cores.\n"
    )


def goals(run: Run) -> Iterator[str]:
    """Yield a table of the goals that were measured; ratios are within a round."""
    yield from ("| goal | here | must | aim | |", "|---|---:|---:|---:|---|")
    for goal in GOALS:
        if values := goal.values(run):
            sign = "≤" if goal.most else "≥"
            wanted = (f"{sign} {limit:g} {goal.unit}".rstrip() for limit in (goal.must, goal.aim))
            yield row(goal.name, around(values, 2), *wanted, WORDS[goal.state(run)])


def alike(run: Run, section: str) -> Iterator[list[str]]:
    """Yield the cases of a section, those with the same measures together."""
    measures: dict[str, set[str]] = {}
    for figure in run.figures.values():
        if figure.section == section:
            measures.setdefault(figure.case, set()).add(figure.what)
    for what in dict.fromkeys(map(frozenset, measures.values())):
        yield [case for case, found in measures.items() if found == what]


def table(run: Run, section: str, cases: Sequence[str]) -> Iterator[str]:
    """Yield a row for each side of each case: its figures, and the ratio of the first to that of the side by hand."""
    found = [figure for figure in run.figures.values() if figure.section == section and figure.case in cases]
    measures = [what for what in MEASURES if any(figure.what == what for figure in found)]
    titles = [f"{MEASURES[what].title}, {MEASURES[what].unit}" for what in measures]
    yield row("case", "side", *titles, f"{MEASURES[measures[0]].title}, to by hand")
    yield row("---", "---", *("---:" for _ in measures), "---:")
    for case, side in dict.fromkeys((figure.case, figure.side) for figure in found):
        mine = {figure.what: figure for figure in found if (figure.case, figure.side) == (case, side)}
        cells = (around(mine[what].values, MEASURES[what].digits) if what in mine else "" for what in measures)
        yield row(case, side, *cells, _to_by_hand(run, mine.get(measures[0])))


def _to_by_hand(run: Run, figure: Figure | None) -> str:
    if figure is None or figure.side == BY_HAND:
        return ""
    ratios = run.ratios(figure.key, figure._replace(side=BY_HAND).key)
    return around(ratios, 2) if ratios else ""


def around(values: Iterable[float], digits: int) -> str:
    """Return the median with the least and the most, as in "2 (1 to 3)"; return a single value as it is."""
    found = sorted(values)
    median = f"{statistics.median(found):.{digits}f}"
    return median if len(found) == 1 else f"{median} ({found[0]:.{digits}f} to {found[-1]:.{digits}f})"


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
