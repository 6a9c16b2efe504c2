# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Draws timelines: a line of characters for the terminal, and an SVG. Pure.

Time runs to the right and to scale. Each mark is a failed run of the handler; the last one shows the final decision.
With jitter a run can be earlier or later than its mark: the light band shows the range.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from ..message import Destination
from ..policy import Accept, Arm, DeadLetter, Discard, Keep, Redeliver, RedeliveryPolicy
from .timeline import TimelineRow, goes_on, seconds, summary

WIDTH = 64  # characters
_PLAIN = str.maketrans("─●░✕⌀→▏", "-o:xd>|")
_COLOURS = {"run": "#2563eb", "band": "#bfdbfe", "dead": "#dc2626", "discard": "#6b7280", "axis": "#9ca3af"}
_LANE, _LEFT, _SPAN, _TOP = 96, 40, 840, 56  # pixels


@dataclass(frozen=True)
class TimelineLane:
    """Holds the timeline of a policy's arm, and its title."""

    title: str
    arm: Arm
    rows: Sequence[TimelineRow]

    @property
    def policy(self) -> RedeliveryPolicy:
        return self.arm.policy

    @property
    def length(self) -> float:
        """Return the seconds to the last run, with maximum jitter."""
        return self.runs[-1][2]

    @property
    def runs(self) -> list[tuple[float, float, float]]:
        """Return when each run of the handler fails: earliest, as planned, latest; seconds after the first failure."""
        found, low, high, base = [(0.0, 0.0, 0.0)], 0.0, 0.0, 0.0
        for row in self.rows[:-1]:
            if isinstance(row.decision, Redeliver | Keep):
                low, base, high = low + row.decision.low, row.elapsed, high + row.decision.high
                found.append((low, base, high))
        return found

    @property
    def end(self) -> str:
        """Return `dead`, `discard`, `on` (the policy goes on) or `stop` (the rest is not known)."""
        match self.rows[-1].decision:
            case DeadLetter():
                return "dead"
            case Discard() | Accept():
                return "discard"
        return "on" if goes_on(self.policy, self.rows) else "stop"


def line(lane: TimelineLane, *, longest: float | None = None, plain: bool = False) -> str:
    """Return the picture in one line of at most WIDTH + 2 characters; empty if no time passes.

    `plain` is ASCII only.
    """
    whole = lane.length if longest is None else longest
    if not whole:
        return ""

    def at(moment: float) -> int:
        return min(round(moment / whole * (WIDTH - 1)), WIDTH - 1)

    runs = lane.runs
    marks = ["─"] * (at(runs[-1][1]) + 1) + [" "] * (WIDTH - 1 - at(runs[-1][1]))
    for low, _, high in runs:
        if at(low) != at(high):
            marks[at(low) : at(high) + 1] = "░" * (at(high) + 1 - at(low))
    for cell, count in Counter(at(base) for _, base, _ in runs).items():
        marks[cell] = "●" if count == 1 else str(count) if count < 10 else "+"
    marks[at(runs[-1][1])] = {"dead": "✕", "discard": "⌀", "on": "→"}.get(lane.end, marks[at(runs[-1][1])])
    drawn = "▏" + "".join(marks).rstrip()
    return drawn.translate(_PLAIN) if plain else drawn


def scale(longest: float) -> str:
    """Return the text below the line: its first moment and its last."""
    return f" 0 s{seconds(longest):>{WIDTH - 3}}" if longest else ""


def svg(lanes: Sequence[TimelineLane], source: Destination) -> str:
    """Return one drawing, with a lane for each policy, all to one scale."""
    whole = max(lane.length for lane in lanes) or 1.0
    height = _TOP + _LANE * len(lanes) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT * 2 + _SPAN}" height="{height}"'
        f' viewBox="0 0 {_LEFT * 2 + _SPAN} {height}" font-family="system-ui, sans-serif" font-size="13">',
        f"<title>{escape(f'What becomes of a message from {source} that always fails')}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for number, lane in enumerate(lanes):
        parts += _lane(lane, _TOP + _LANE * number, whole, source)
    parts += _ticks(whole, _TOP + _LANE * len(lanes) - 24)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _lane(lane: TimelineLane, y: int, whole: float, source: Destination) -> list[str]:
    runs, last = lane.runs, _x(lane.runs[-1][1], whole)
    end = "" if lane.end in ("dead", "discard", "stop") else ' stroke-dasharray="4 3"'
    parts = [
        f'<text x="{_LEFT}" y="{y - 26}" font-weight="600">{escape(lane.title)}</text>',
        f'<text x="{_LEFT}" y="{y + 28}" fill="#4b5563">{escape(summary(lane.policy, lane.rows, source))}</text>',
        f'<line x1="{_LEFT}" y1="{y}" x2="{last:.1f}" y2="{y}" stroke="{_COLOURS["axis"]}" stroke-width="2"/>',
    ]
    if lane.end == "on":
        right = _LEFT + _SPAN + 24
        parts.append(f'<line x1="{last:.1f}" y1="{y}" x2="{right}" y2="{y}" stroke="{_COLOURS["axis"]}"{end}/>')
    parts += _bands(runs, y, whole) + _dots(runs, y, whole)
    if lane.end in ("dead", "discard"):
        parts.append(
            f'<path d="M{last - 7:.1f} {y - 7}l14 14m0 -14l-14 14" stroke="{_COLOURS[lane.end]}"'
            ' stroke-width="3" fill="none"/>'
        )
    return parts


def _bands(runs: Sequence[tuple[float, float, float]], y: int, whole: float) -> list[str]:
    places = dict.fromkeys((round(_x(low, whole), 1), round(_x(high, whole), 1)) for low, _, high in runs)
    return [
        f'<rect x="{left:.1f}" y="{y - 9}" width="{max(right - left, 1):.1f}" height="18" rx="3"'
        f' fill="{_COLOURS["band"]}" fill-opacity="0.6"/>'
        for left, right in places
        if left != right
    ]


def _dots(runs: Sequence[tuple[float, float, float]], y: int, whole: float) -> list[str]:
    # draw only the first of several runs on one spot, so that a drawing stays small however often a message fails
    spots: dict[float, str] = {}
    for number, (_, base, _) in enumerate(runs, 1):
        spots.setdefault(round(_x(base, whole), 1), f"failure {number}, {seconds(base)} after the first")
    return [
        f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{_COLOURS["run"]}"><title>{title}</title></circle>'
        for x, title in spots.items()
    ]


def _ticks(whole: float, y: int) -> list[str]:
    parts = []
    for quarter in range(5):
        x, moment = _LEFT + _SPAN * quarter / 4, whole * quarter / 4
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x}" y2="{y + 5}" stroke="{_COLOURS["axis"]}"/>')
        parts.append(f'<text x="{x}" y="{y + 20}" text-anchor="middle" fill="#4b5563">{seconds(moment)}</text>')
    return parts


def _x(moment: float, whole: float) -> float:
    return _LEFT + _SPAN * moment / whole
