# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures: facts to SVG. Pure; `name` is unique for each picture on the page, `width` in pixels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .axis_scales import Scale, Tick, rounds, spans, steps, times
from .healing import Point, RecoveryCurve
from .letters import Flow
from .markup import Markup, join, tag
from .storms import Storm, Storms
from .svg_axes import LETTER, LINE, area, bottom_axis, left_axis, line, picture, shortened, text
from .units import count, date, duration, share, short

_PERCENT: Final = [Tick(0.0, "0 %"), Tick(0.5, "50 %"), Tick(1.0, "100 %")]
LANES: Final = 6  # destinations with storms
_LANE: Final = 26


def healing_curve(name: str, healing: RecoveryCurve, title: str, width: int = 336, height: int = 180) -> Markup | None:
    """Draw which share of a failure's messages had recovered by each time.

    None if no message was tried a second time.
    """
    points = healing.curve
    if not points:
        return None
    high = points[-1].after_s * 1.6
    low = min(points[0].after_s / 1.6, high / 300)
    x = Scale(low, high, 48, width - 14, log=True)
    y = Scale(0, 1, height - 28, 10)
    end = x(points[-1].after_s)
    parts = [
        tag("rect", x=end, y=y.end, width=x.end - end, height=y.start - y.end, class_="unseen"),
        left_axis(y, _PERCENT, x.start, x.end),
        area(_curve(x, y, points, lambda p: p.hi), _curve(x, y, points, lambda p: p.lo), "band"),
        line(_curve(x, y, points, lambda p: p.certain), "certain"),
        line([(x(one.after_s), y(one.healed)) for one in healing.likely], "likely"),
        bottom_axis(x, spans(x, 58), y.end, y.start),
    ]
    return picture(name, width, height, title, _recovery_text(healing), parts)


def storm_chart(name: str, storms: Storms, width: int) -> Markup:
    """Draw attempts over time, first and repeated ones stacked; below, a lane of storms for each destination."""
    left = 150 if width > 600 else 44
    lanes = _lanes(storms.storms)
    lane = _LANE if width > 600 else _LANE + LINE
    top, bottom = 30.0, 206.0
    x = Scale(storms.first_s, storms.end_s, left, width - 12)
    rates = {one.start_s: (one.first_attempts / storms.width_s, one.retries / storms.width_s) for one in storms.buckets}
    per, unit = _per(max(first + again for first, again in rates.values()))
    levels = rounds(per * max(first + again for first, again in rates.values()), 4)
    y = Scale(0, levels[-1], bottom, top)
    starts = _starts(storms)
    firsts = [(x(at), y(per * rates.get(at, (0, 0))[0])) for at in starts]
    alls = [(x(at), y(per * sum(rates.get(at, (0, 0))))) for at in starts]
    floor = [(x.start, y.start), (x.end, y.start)]
    ticks = times(storms.first_s, storms.end_s, max((width - left) // 80, 3))
    parts = [
        text(0, 12, f"attempts per {unit}"),
        left_axis(y, [Tick(value, short(value)) for value in levels], left, x.end),
        area(steps([*alls, (x.end, alls[-1][1])]), steps([*firsts, (x.end, firsts[-1][1])]), "again"),
        area(steps([*firsts, (x.end, firsts[-1][1])]), floor, "first"),
        bottom_axis(x, x.thinned(ticks, 40), top, bottom),
        *(_lane(number, found, x, bottom + 34 + lane * (number + 1), left) for number, found in enumerate(lanes)),
    ]
    description = (
        f"Attempts per {unit} in steps of {duration(storms.width_s)}: {count(storms.first_attempts)} first ones and "
        f"{count(storms.retries)} repeated ones in all. Storms are listed in the table."
    )
    return picture(name, width, bottom + 38 + lane * len(lanes), f"Attempts per {unit}", description, parts)


def flow_chart(name: str, flow: Flow, width: int, height: int = 200) -> Markup | None:
    """Draw new dead letters upwards, and those sent back downwards. None without any."""
    if not flow.bars or not (flow.came or flow.left):
        return None
    first_s, span_s = flow.bars[0].start_s, flow.bars[0].days * 86400.0
    end_s = flow.bars[-1].start_s + span_s
    up, down = max(bar.came for bar in flow.bars), max(bar.left for bar in flow.bars)
    levels = rounds(max(up, down), 4)
    step = levels[1]
    high, low = math.ceil(up / step) * step, math.ceil(down / step) * step
    x, y = Scale(first_s, end_s, 48, width - 10), Scale(-low, high, height - 28, 12)
    bars: list[str] = []
    for bar in flow.bars:
        left, right = x(bar.start_s) + 1, max(x(bar.start_s + span_s) - 1, x(bar.start_s) + 2)
        title = tag("title", f"{date(bar.start_s)}: {count(bar.came)} came, {count(bar.left)} sent back")
        both = ((y(bar.came), y(0), "came"), (y(0), y(-bar.left), "left"))
        bars += [
            tag("rect", title, x=left, y=top, width=right - left, height=bottom - top, class_=class_)
            for top, bottom, class_ in both
            if bottom > top
        ]
    ticks = [Tick(sign * level, short(level)) for sign in (1, -1) for level in levels if -low <= sign * level <= high]
    parts = [
        left_axis(y, ticks, x.start, x.end),
        bottom_axis(x, x.thinned(times(first_s, end_s, max(width // 80, 3)), 40), y.end, y.start),
        *bars,
        tag("line", x1=x.start, x2=x.end, y1=y(0), y2=y(0), class_="axis"),
    ]
    description = f"{count(flow.came)} dead letters came, {count(flow.left)} were sent back."
    return picture(name, width, height, "Dead letters by day", description, parts)


def bar(part: float, inner: float, width: int = 200) -> Markup:
    """Draw a bar for a table, `part` of `width`, of which `inner` is marked.

    The cells beside it contain the numbers.
    """
    whole = max(part * width, 1.0)
    return tag(
        "svg",
        tag("rect", x=0, y=0, width=whole, height=10, class_="came"),
        tag("rect", x=0, y=0, width=whole * inner, height=10, class_="hopeless") if inner else None,
        class_="bar",
        viewBox=f"0 0 {width} 10",
        width=width,
        height=10,
        aria_hidden="true",
    )


def _curve(x: Scale, y: Scale, points: Sequence[Point], value: Callable[[Point], float]) -> list[tuple[float, float]]:
    return steps([(x.start, y.start), *((x(point.after_s), y(value(point))) for point in points)])


def _recovery_text(healing: RecoveryCurve) -> str:
    last = healing.curve[-1]
    text = f"{count(healing.healed)} of {count(healing.messages)} recovered, {share(last.certain)} of all. "
    if healing.half_s is not None and healing.most_s is not None:
        text += f"Half of those were seen to have by {duration(healing.half_s)}, 95 % by {duration(healing.most_s)}. "
    return text + f"No message was tried later than {duration(healing.watched_s)} after its first failure."


def _per(highest: float) -> tuple[float, str]:
    """Return the unit of time in which a rate per second is a readable number."""
    for seconds, unit in ((1.0, "second"), (60.0, "minute"), (3600.0, "hour")):
        if highest * seconds >= 3:
            return seconds, unit
    return 86400.0, "day"


def _starts(storms: Storms) -> list[float]:
    """Return the beginning of every bucket, including those without an attempt."""
    first = storms.buckets[0].start_s
    last = storms.buckets[-1].start_s
    return [first + number * storms.width_s for number in range(round((last - first) / storms.width_s) + 1)]


def _lanes(storms: Iterable[Storm]) -> list[list[Storm]]:
    """Return the storms of each destination; the destination with the worst storm first."""
    lanes: dict[str, list[Storm]] = {}
    for storm in storms:
        lanes.setdefault(storm.destination, []).append(storm)
    return list(lanes.values())[:LANES]


def _lane(number: int, storms: Sequence[Storm], x: Scale, y: float, left: int) -> Markup:
    beside = left > 100
    name = shortened(storms[0].destination, left - 20 if beside else x.end - 8)
    words = text(left - 8, y - 5, name, "lane", "end") if beside else text(4, y - 18, name, "lane")
    marks: list[str] = [words, tag("line", x1=left, x2=x.end, y1=y - 9, y2=y - 9, class_="grid")]
    worst = sorted(storms, key=lambda storm: storm.number)
    taken = [(x(storm.first_s), max(x(storm.end_s), x(storm.first_s) + 3)) for storm in worst]
    marks += [tag("rect", x=start, y=y - 15, width=end - start, height=12, class_="storm") for start, end in taken]
    for storm, (_, end) in zip(worst, tuple(taken), strict=True):
        label = end + 3, end + 3 + LETTER
        free = all(label[1] < start or stop < label[0] for start, stop in taken)
        if storm.number <= 9 and free and label[1] <= x.end + 12:
            marks.append(text(label[0], y - 5, str(storm.number), "label"))
            taken.append(label)
    return join(marks)
