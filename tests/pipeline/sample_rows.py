# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the marts of the made-up world, counted in the plainest way, so that a test can count again.

python -m tests.pipeline.sample_rows report.html
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from redeliver_mw.pipeline.report.facts import Facts, MartRows, facts
from redeliver_mw.pipeline.report.page import page
from redeliver_mw.pipeline.time_bins import bin_of
from tests.pipeline.sample_world import (
    QUEUES,
    SECOND,
    START,
    START_US,
    History,
    Kind,
    World,
    doubling,
    never,
    world,
)

Row = dict[str, Any]

MADE_S = START_US / SECOND + 15 * 86_400 + 8 * 3600
CANDIDATES = (
    (1,),
    (5,),
    (1, 1),
    (1, 5),
    (5, 30),
    (1, 2, 4),
    (1, 5, 30),
    (10, 60, 300),
    (1, 10, 60, 300),
    (5, 60, 600),
    (1, 2, 4, 8),
    (60, 300, 900),
    (60, 600, 3600),
    (2, 10, 60, 300, 1200),
    (10, 100, 1000),
    (300, 3600),
    (1, 1, 1, 1, 1, 1),
    (60, 60, 60, 60, 60),
    (1, 60, 3600, 36000),
    (30, 120, 600, 1800, 7200),
    (900, 900, 900),
    doubling(1, 8),
    doubling(1, 10),
    doubling(1, 12),
    doubling(5, 6),
    doubling(30, 6),
    doubling(0.5, 5),
)


@cache
def sample() -> tuple[World, MartRows]:
    """Return the made-up world, and what the page reads of it."""
    made = world()
    windows, tried, letters = list(_windows(made)), list(_backtest(made)), list(_flow(made))
    return made, MartRows(
        outcomes=list(_outcomes(made)),
        attempt_curve=list(_attempt_curve(made)),
        recovery=list(_recovery(made)),
        fingerprints=list(_fingerprints(made)),
        waste=list(_waste(made)),
        poison=list(_poison(made)),
        verdicts=list(_verdicts(made)),
        storms=windows,
        episodes=list(_episodes(windows)),
        flow_by_day=letters,
        flow_by_reason=letters,
        estimates=list(_estimates(made)),
        backtest=tried,
        choices=list(_choices(tried)),
    )


@cache
def sample_facts() -> Facts:
    return facts(sample()[1], lake="s3://data/redelivery", made_s=MADE_S)


def policy(rests: Sequence[float]) -> str:
    """Return the policy with these delays, in seconds, as JMSJCA would write it."""
    steps = [f"{number}:{rest * 1000:.0f}" for number, rest in enumerate(rests, 1)]
    return "; ".join([*steps, f"{len(rests) + 1}:move(queue:dlq.$)"])


def _day(us: int) -> date:
    return (START + timedelta(microseconds=us - START_US)).date()


def _outcomes(made: World) -> Iterator[Row]:
    healed = sum(one.healed for one in made.histories)
    yield {"outcome": "accepted", "n": healed}
    yield {"outcome": "dead_lettered", "n": len(made.histories) - healed}


def _attempt_curve(made: World) -> Iterator[Row]:
    counted: Counter[tuple[date, str, str | None, int]] = Counter()
    went: Counter[tuple[date, str, str | None, int]] = Counter()
    for one in made.histories:
        for attempt, us in enumerate(one.times_us, 1):
            key = _day(us), one.kind.queue, one.kind.type if attempt > 1 else None, attempt
            counted[key] += 1
            went[key] += one.healed and attempt == len(one.times_us)
    for (queue, us), number in made.healthy.items():
        counted[_day(us), queue, None, 1] += number
        went[_day(us), queue, None, 1] += number
    for key, n in counted.items():
        day, queue, error, attempt = key
        yield {
            "day": day,
            "destination": queue,
            "error_type": error,
            "attempt": attempt,
            "n": n,
            "n_accepted": went[key],
            "p_success": went[key] / n,
            "wilson_lo": 0.0,
            "wilson_hi": 1.0,
        }


def _recovery(made: World) -> Iterator[Row]:
    counted: Counter[tuple[date, str, str, int, int | None]] = Counter()
    for one in made.histories:
        first, last = one.times_us[0], one.times_us[one.failures - 1]
        hi = bin_of(one.times_us[-1] - first) if one.healed else None
        counted[_day(one.times_us[-1]), one.kind.queue, one.kind.fingerprint, bin_of(last - first), hi] += 1
    for (day, queue, fingerprint, lo, hi), n in counted.items():
        yield {
            "day": day,
            "destination": queue,
            "fingerprint": fingerprint,
            "policy_version": "bae2c95d9978",
            "lo_bin": lo,
            "hi_bin": hi,
            "n": n,
        }


def _fingerprints(made: World) -> Iterator[Row]:
    for kind, found in made.kinds.items():
        yield {
            "fingerprint": kind.fingerprint,
            "group": kind.fingerprint,
            "example": kind.error,
            "n": sum(one.failures for one in found),
            "first_us": min(one.times_us[0] for one in found),
            "last_us": max(one.times_us[one.failures - 1] for one in found),
        }


def _waste(made: World) -> Iterator[Row]:
    for kind, found in made.kinds.items():
        spent: dict[date, list[int]] = defaultdict(lambda: [0, 0])
        last_hope = _last_hope(found)
        for one in (one for one in found if not one.healed):
            for attempt, us in enumerate(one.times_us, 1):
                spent[_day(us)][0] += 1
                spent[_day(us)][1] += attempt > last_hope
        for day, (attempts, hopeless) in spent.items():
            yield {
                "day": day,
                "destination": kind.queue,
                "fingerprint": kind.fingerprint,
                "attempts": attempts,
                "handler_us": attempts * QUEUES[kind.queue].handler_ms * 1000,
                "hopeless_attempts": hopeless,
            }


def _last_hope(found: Sequence[History]) -> int:
    """Return the last attempt at which at least one in a hundred succeeded; the first attempt always counts as one."""
    made = Counter(attempt for one in found for attempt in range(1, len(one.times_us) + 1))
    went = Counter(len(one.times_us) for one in found if one.healed)
    return max([1, *(attempt for attempt, n in made.items() if went[attempt] * 100 >= n)])


def _poison(made: World) -> Iterator[Row]:
    for one in made.histories:
        if not one.healed:
            yield {
                "message_key": one.key,
                "destination": one.kind.queue,
                "fingerprint": one.kind.fingerprint,
                "attempts": len(one.times_us),
                "first_us": one.times_us[0],
                "last_us": one.times_us[-1],
                "replays": 0,
                "verdict": "poison" if one.kind.heals is never else "dead",
            }


def _verdicts(made: World) -> Iterator[Row]:
    for verdict, n in Counter(row["verdict"] for row in _poison(made)).items():
        yield {"verdict": verdict, "n": n}


def _windows(made: World) -> Iterator[Row]:
    """Yield the windows, of ten seconds each; what never failed is in one window of each sixty."""
    sums: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0])
    for one in made.histories:
        for attempt, us in enumerate(one.times_us):
            sums[us // (10 * SECOND) * 10 * SECOND, one.kind.queue][attempt > 0] += 1
    for (queue, us), number in made.healthy.items():
        sums[us, queue][0] += number
    for (us, queue), (first, retries) in sorted(sums.items()):
        stormy = retries >= 12 and retries >= first
        yield {
            "window_us": us,
            "destination": queue,
            "attempts": first + retries,
            "first_attempts": first,
            "retries": retries,
            "amplification": (first + retries) / first if first else None,
            "state": "storm" if stormy else "calm",
        }


def _episodes(windows: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """Yield the episodes: stormy windows of one queue that are at most five minutes apart."""
    runs: list[list[Mapping[str, Any]]] = []
    for window in sorted((one for one in windows if one["state"] == "storm"), key=lambda one: one["destination"]):
        before = runs[-1][-1] if runs else None
        if (
            before is None
            or window["destination"] != before["destination"]
            or window["window_us"] - before["window_us"] > 300 * SECOND
        ):
            runs.append([])
        runs[-1].append(window)
    for run in runs:
        yield {
            "destination": run[0]["destination"],
            "first_us": run[0]["window_us"],
            "end_us": run[-1]["window_us"] + 10 * SECOND,
            "attempts": sum(one["attempts"] for one in run),
            "retries": sum(one["retries"] for one in run),
            "peak": max(one["attempts"] / max(one["first_attempts"], 1) for one in run),
        }


def _flow(made: World) -> Iterator[Row]:
    """Yield the flow of dead letters; half of one queue's are sent back on working days."""
    came = Counter((_day(one.times_us[-1]), one.kind.queue) for one in made.histories if not one.healed)
    for (day, queue), number in came.items():
        back = number // 2 if queue == "shipping.labels" and day.weekday() < 5 else 0
        yield {"day": day, "destination": queue, "reason": "exhausted", "in": number, "out": back, "oldest_us": None}


def _estimates(made: World) -> Iterator[Row]:
    """Yield the truth in the place of an estimate."""
    for kind, found in made.kinds.items():
        healed = sorted(one.heals_s for one in found if one.heals_s is not None)
        for after_s in (math.exp(step / 15) for step in range(-30, 180)):
            yield {
                "destination": kind.queue,
                "fingerprint": kind.fingerprint,
                "after_s": after_s,
                "healed": bisect_right(healed, after_s) / len(found),
            }


def _backtest(made: World) -> Iterator[Row]:
    """Yield what each candidate would have done, counted on the truth; what lies beyond what was tried is marked."""
    for queue in QUEUES.values():
        horizon = sum(queue.arm or queue.rests) * 1.1
        found = {kind: histories for kind, histories in made.kinds.items() if kind.queue == queue.name}
        tried = {
            rests: [_tried(rests, kind, of, horizon) for kind, of in found.items()]
            for rests in {tuple(queue.rests), *CANDIDATES}
        }
        costs = {rests: _cost(rows) for rests, rows in tried.items()}
        for rests, rows in tried.items():
            mine = costs[rests]
            beaten = any(
                other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in costs.values()
            )
            yield from ({**row, "destination": queue.name, "pareto": not beaten} for row in rows)


def _tried(rests: Sequence[float], kind: Kind, found: Sequence[History], horizon: float) -> Row:
    times = list(accumulate(rests))
    healed = sorted(one.heals_s for one in found if one.heals_s is not None)
    by = [bisect_right(healed, at) / len(found) for at in times]
    made = [1.0, 1.0, *(1 - share for share in by[:-1])]  # the share that makes the first, second, … attempt
    late = sum(share for at, share in zip(times, made[1:], strict=True) if at > horizon)
    seen = [share for at, share in zip(times, by, strict=True) if at <= horizon]
    guessed = late > 0.001

    def when(part: float) -> float | None:
        reached = next((at for at, share in zip(times, by, strict=True) if share >= part * by[-1]), None)
        return None if guessed or not by[-1] else reached

    return {
        "candidate": policy(rests),
        "error_fingerprint": kind.fingerprint,
        "messages": len(found),
        "p_recover": by[-1],
        "p_recover_lo": seen[-1] if seen else 0.0,
        "p_recover_hi": 1.0 if guessed else by[-1],
        "dead_letter_share": 1 - by[-1],
        "attempts_per_message": sum(made),
        "wasted_attempts": (1 - by[-1]) * len(found) * len(made),
        "ttr_mean_s": None,
        "ttr_p50_s": when(0.5),
        "ttr_p95_s": when(0.95),
        "extrapolated_share": late / sum(made),
        "extrapolated": guessed,
    }


def _cost(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Return the dead-lettered share, the attempts per message, and how long 95 % of the recoveries take at most."""
    messages = sum(row["messages"] for row in rows)
    names = ("dead_letter_share", "attempts_per_message")
    dies, attempts = (sum(row[name] * row["messages"] for row in rows) / messages for name in names)
    return dies, attempts, max(math.inf if row["extrapolated"] else row["ttr_p95_s"] or 0.0 for row in rows)


def _choices(tried: Sequence[Row]) -> Iterator[Row]:
    """Yield the best candidate of each queue.

    A dead-lettered message costs as much as twenty attempts, and ten times as much time costs as much as two attempts.
    """
    for queue in QUEUES.values():
        rows: dict[str, list[Row]] = defaultdict(list)
        for row in tried:
            if row["destination"] == queue.name:
                rows[row["candidate"]].append(row)
        worth = {}
        for name, of_name in rows.items():
            dies, attempts, time_s = _cost(of_name)
            if time_s < math.inf or queue.name == "orders":
                worth[name] = 20 * dies + attempts + 2 * math.log10(60 + min(time_s, 3600))
        best = min(worth, key=worth.__getitem__)
        yield {"destination": queue.name, "today": policy(queue.rests), "best": best, "confidence": "fairly sure"}


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(sample_facts()))
