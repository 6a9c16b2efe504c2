# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what was measured: figures with one value a round, their ratios within a round, and a run to and from JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

FORMAT: Final = 1


class Measure(NamedTuple):
    """Describes a kind of figure: its title in a table, its unit, its digits, and whether more of it is better."""

    title: str
    unit: str
    digits: int
    more: bool = False


MEASURES: Final = {
    "rate": Measure("messages", "msg/s", 0, more=True),
    "p50": Measure("latency p50", "ms", 2),
    "p99": Measure("latency p99", "ms", 2),
    "dead": Measure("until all are dead-lettered", "s", 2),
    "letter": Measure("a dead letter", "µs", 0),
    "start": Measure("start to first message", "ms", 0),
    "stop": Measure("stop", "ms", 0),
    "idle": Measure("processor, idle", "% of a core", 3),
    "cpu": Measure("processor", "µs/msg", 1),
    "rss": Measure("memory", "MiB", 1),
    "grown": Measure("memory grown", "MiB", 2),
}


class Figure(NamedTuple):
    """Holds the figure of a side for a case: `values` has one for each round that counts, in `MEASURES[what].unit`."""

    section: str
    case: str
    side: str
    what: str
    values: tuple[float, ...]

    @property
    def key(self) -> str:
        return "/".join(self[:4])

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclass
class Run:
    """Holds one run of the bench: figures by their keys, and what they depend on."""

    about: Mapping[str, Any] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)

    def add(self, figures: Sequence[Figure]) -> None:
        self.figures |= {figure.key: figure for figure in figures}

    def ratios(self, over: str, under: str) -> tuple[float, ...]:
        """Return the ratio of the figures with these keys for each round; none where one of them was not measured."""
        if over not in self.figures or under not in self.figures:
            return ()
        pairs = zip(self.figures[over].values, self.figures[under].values, strict=True)
        return tuple(mine / theirs for mine, theirs in pairs)

    def as_json(self) -> str:
        figures = [figure._asdict() | {"unit": MEASURES[figure.what].unit} for figure in self.figures.values()]
        return json.dumps({"format": FORMAT, **self.about, "figures": figures}, indent=1) + "\n"

    @classmethod
    def read(cls, file: Path) -> Run:
        """Read a run from its file.

        Raises ValueError, with the file's name, if the file is no such run, and OSError.
        """
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            if told.pop("format") != FORMAT:
                raise ValueError("written by another version of the bench")
            run = cls()
            for one in told.pop("figures"):
                one.pop("unit")
                run.add([Figure(**one | {"values": tuple(map(float, one["values"]))})])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file}: not a run of the bench ({error})") from error
        run.about = told
        return run


def spread(values: Sequence[float], digits: int) -> str:
    """Return the least, the median and the most, as in "1 / 2 / 3"."""
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
