# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the values of all metrics at one moment, and merges those of several processes into one.

A supervisor receives the samples of each of its processes as JSON. When a process dies, what it had counted stays in
the sum, because Prometheus takes a sum that becomes smaller for a restart and counts everything again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .bounded_label import BoundedLabel
from .families import ATTEMPTS, BY_NAME, ERROR_TYPES, Merge

Labels = tuple[str, ...]


class HistogramValue(NamedTuple):
    """Holds how many values fell into each bucket (the last one has no upper bound), and their sum."""

    counts: tuple[int, ...]
    sum: float


Value = float | HistogramValue
Samples = Mapping[str, Mapping[Labels, Value]]  # by name and labels
_Gathered = dict[str, dict[Labels, Value]]


def merged(parts: list[Samples]) -> Samples:
    """Return the samples of several processes as one."""
    found: _Gathered = {}
    for part in parts:
        for name, values in part.items():
            if (family := BY_NAME.get(name)) is None:
                continue
            known = found.setdefault(name, {})
            for labels, value in values.items():
                known[labels] = value if labels not in known else combined(family.merge, known[labels], value)
    return found


def combined(how: Merge, one: Value, other: Value) -> Value:
    """Return two values of one metric as one."""
    if isinstance(one, HistogramValue) and isinstance(other, HistogramValue):
        counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
        return HistogramValue(counts, one.sum + other.sum)
    if isinstance(one, HistogramValue) or isinstance(other, HistogramValue):
        raise TypeError("a histogram and a number have no common value")
    return one + other if how == "sum" else max(one, other) if how == "max" else min(one, other)


def counted(samples: Samples) -> Samples:
    """Return only what is counted, and therefore never becomes smaller: no gauges."""
    return {name: values for name, values in samples.items() if BY_NAME[name].kind != "gauge"}


def to_json(samples: Samples) -> dict[str, Any]:
    """Return the samples as values for JSON."""
    return {
        name: [
            [list(labels), [*value] if isinstance(value, HistogramValue) else value] for labels, value in some.items()
        ]
        for name, some in samples.items()
    }


def from_json(given: Mapping[str, Any]) -> Samples:
    """Return the samples that `to_json` has written."""
    return {name: {tuple(labels): _value(value) for labels, value in some} for name, some in given.items()}


def _value(value: Any) -> Value:
    return HistogramValue(tuple(value[0]), value[1]) if isinstance(value, list) else value


class ProcessSamples:
    """Merges the samples of processes that start, report and end. One thread reports; `merged` may be called by any.

    Each process has a number, which its successor takes over. The types of errors that all of them report are bounded
    as those of one process are.
    """

    def __init__(self) -> None:
        self._present: dict[int, Samples] = {}
        self._error_types = BoundedLabel(ERROR_TYPES)
        self._past: Samples = {}  # counted by processes that have ended

    def reported(self, number: int, samples: Samples) -> None:
        """Take the newest samples of a process."""
        bounded: dict[Labels, Value] = {}
        for (source, outcome, error_type), value in samples.get(ATTEMPTS, {}).items():
            labels = (source, outcome, self._error_types.of(error_type) if error_type else "")
            bounded[labels] = value if labels not in bounded else combined("sum", bounded[labels], value)
        self._present[number] = {**samples, ATTEMPTS: bounded}

    def ended(self, number: int) -> None:
        """Note the end of a process: its gauges go, and what it has counted stays."""
        if (last := self._present.pop(number, None)) is not None:
            self._past = merged([self._past, counted(last)])

    def merged(self) -> Samples:
        """Return the samples of all processes as one."""
        return merged([self._past, *list(self._present.values())])
