# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what policies cost: to decide, to read and write a map of 1000 entries, and to find a destination in it.

    python -m tests.bench.policies [--rounds 7] [--entries 1000] [--only WORD] [--json FILE]

A round takes each measurement once, so that a machine whose speed drifts treats them alike. The medians are printed
with their spread, in Markdown. A goal that the median misses is marked; nothing fails by it.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from redeliver_mw.policy import Backoff, PolicyMap, RedeliveryPolicy
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.formats import READERS, WRITERS
from tests.policy.spelling import SPELLINGS, Rule

MAPS = {
    "activemq": "activemq-client",
    "weblogic": "weblogic",
    "artemis": "artemis",
    "patchbay": "patchbay",
    "native": "native",
}
ONE_DELAY = ("weblogic", "patchbay")  # these know no growth
FAILURES = range(1, 101)
MICRO, MILLI = 1e-6, 1e-3


class Cost(NamedTuple):
    """Describes one measurement: `run()` does it and returns how often; `goal` is in seconds for each, or None."""

    name: str
    run: Callable[[], int]
    unit: float
    goal: float | None


def costs(entries: int) -> Iterator[Cost]:
    """Yield everything that is measured; texts and maps are made here, outside the clock."""
    yield from deciding()
    texts = {language: text_of(language, entries) for language in MAPS}
    for language, text in texts.items():
        yield Cost(f"read {entries} entries: {language}", reading(language, text), MILLI, 100 * MILLI)
    maps = {language: READERS[language](text, False) for language, text in texts.items()}
    for language, policies in maps.items():
        names = names_of(language, entries)
        yield Cost(f"resolve, the first time: {language}", resolving(policies, names, warm=False), MICRO, None)
        yield Cost(f"resolve, again: {language}", resolving(policies, names, warm=True), MICRO, 5 * MICRO)
    for language in MAPS:
        yield Cost(f"write {entries} entries: {language}", writing(language, maps, entries), MILLI, None)


def deciding() -> Iterator[Cost]:
    jittered = ActiveMQDelays(1000, 1000, 2.0, 60_000, 0.15)
    for name, backoff in (
        ("exponential", Backoff.exponential(1.0, 2.0)),
        ("exponential, capped (the default)", RedeliveryPolicy().backoff),
        ("exponential, capped, jittered", Backoff.exponential(1.0, 2.0, cap=60).jittered(0.2)),
        ("ActiveMQ's recurrence, jittered", jittered),
    ):
        yield Cost(f"decide, F = 1 to 100, the first time: {name}", deciding_anew(backoff), MICRO, None)
        yield Cost(f"decide, F = 1 to 100, again: {name}", deciding_again(backoff), MICRO, 2 * MICRO)
    late = RedeliveryPolicy(None, jittered)
    yield Cost("draw with F = 100: ActiveMQ's recurrence, jittered", drawing(late, 100), MICRO, None)


def deciding_anew(backoff: Backoff) -> Callable[[], int]:
    def run() -> int:
        for _ in range(20):
            decide = RedeliveryPolicy(None, backoff).decide
            for failures in FAILURES:
                decide(failures)
        return 20 * len(FAILURES)

    return run


def deciding_again(backoff: Backoff) -> Callable[[], int]:
    decide = RedeliveryPolicy(None, backoff).decide

    def run() -> int:
        for _ in range(100):
            for failures in FAILURES:
                decide(failures)
        return 100 * len(FAILURES)

    return run


def drawing(policy: RedeliveryPolicy, failures: int) -> Callable[[], int]:
    rng = random.Random(1)

    def run() -> int:
        for _ in range(300):
            policy.backoff.draw(failures, rng)
        return 300

    return run


def text_of(language: str, entries: int) -> str:
    """Return a map with one entry for each source; limits and delays recur, as they do in life."""
    times = 1 if language in ONE_DELAY else 2
    rules = [
        Rule(name, 1000 + 10 * (at % 50), 3 + at % 7, times) for at, name in enumerate(patterns(language, entries))
    ]
    return SPELLINGS[MAPS[language]](*rules)


def patterns(language: str, entries: int) -> list[str]:
    # every fifth with a wildcard, where there are any
    rest = {"activemq": "&gt;", "artemis": "#", "native": ">"}.get(language)
    return [f"shop.s{at}.{rest}" if rest and at % 5 == 0 else f"shop.s{at}.orders" for at in range(entries)]


def names_of(language: str, entries: int) -> list[str]:
    prefix = "jms.queue." if language == "hornetq" else ""
    return [f"{prefix}shop.s{at}.orders" for at in range(0, entries, 7)]


def reading(language: str, text: str) -> Callable[[], int]:
    def run() -> int:
        READERS[language](text, False)
        return 1

    return run


def resolving(policies: PolicyMap, names: list[str], *, warm: bool) -> Callable[[], int]:
    def run() -> int:
        if not warm:
            policies._found.clear()
        for name in names:
            policies.resolve(name)
        return len(names)

    return run


def writing(language: str, maps: dict[str, PolicyMap], entries: int) -> Callable[[], int]:
    # out of another language: its own text is given back as it was
    policies = maps["artemis" if language == "native" else "native"]

    def run() -> int:
        WRITERS[language](policies)
        return 1

    return run


def measured(wanted: list[Cost], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each measurement in each round; a first round, which fills caches, does not count."""
    seconds: dict[str, list[float]] = {cost.name: [] for cost in wanted}
    for at in range(-1, rounds):
        for cost in wanted:
            gc.collect()
            began = time.perf_counter()
            times = cost.run()
            each = (time.perf_counter() - began) / times
            if at >= 0:
                seconds[cost.name].append(each)
    return seconds


def table(wanted: list[Cost], seconds: dict[str, list[float]]) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| what | median | min to max | goal | |"
    yield "|---|---:|---:|---:|---|"
    for name, _, unit, goal in wanted:
        word = "µs" if unit == MICRO else "ms"
        median, *ends = statistics.median(seconds[name]), min(seconds[name]), max(seconds[name])
        spread = " to ".join(f"{end / unit:.2f}" for end in ends)
        aim = f"{goal / unit:.0f} {word}" if goal else ""
        mark = "missed" if goal and median > goal else ""
        yield f"| {name} | {median / unit:.2f} {word} | {spread} | {aim} | {mark} |"


def as_json(wanted: list[Cost], seconds: dict[str, list[float]]) -> str:
    return json.dumps(
        {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "seconds": {cost.name: {"goal": cost.goal, "rounds": seconds[cost.name]} for cost in wanted},
        },
        indent=2,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="at least 5 for a median worth the name")
    parser.add_argument("--entries", type=int, default=1000)
    parser.add_argument("--only", default="", help="those whose name holds this")
    parser.add_argument("--json", type=Path, help="a file for all seconds of all rounds")
    asked = parser.parse_args()
    wanted = [cost for cost in costs(asked.entries) if asked.only in cost.name]
    seconds = measured(wanted, asked.rounds)
    print("\n".join(table(wanted, seconds)))
    if asked.json:
        asked.json.write_text(as_json(wanted, seconds) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
