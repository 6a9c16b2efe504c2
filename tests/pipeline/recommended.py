# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures whether a policy that the back-test recommends is better, in a month that the back-test has not seen.

    python -m tests.pipeline.recommended [--seeds 20] [--messages 5000] [--processes 2] [--by-lot]

For each seed a service is drawn: how many messages fail, how fast they recover, how often all of them fail for a while,
and how many never recover. A month of the service runs in the real middleware, on the broker in memory with a clock
moved by hand, under a policy as people have them; one message in ten goes another way, in an arm. Out of the journal
the back-test recommends a policy for one objective. Then a further month with other messages runs twice, under the old
policy and under the new one. The program prints what was predicted of both, what came, and by how much what the
objective holds to today's level has grown at most. The exit code is 1 if fewer than nine seeds in ten are better.

`--by-lot` also runs the further month under one of the policies that the search looked at, drawn by lot, which shows
how much better than luck the back-test is.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.console import Console
from rich.table import Table

from redeliver_mw import App, Delivery, PolicyMap, RedeliveryPolicy
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.journal.segments import read_segments
from redeliver_mw.pipeline.backtest.history import History
from redeliver_mw.pipeline.backtest.objective import OBJECTIVES, Objective, recommend
from redeliver_mw.pipeline.backtest.rows import BacktestRow, Candidate
from redeliver_mw.pipeline.backtest.search import search
from redeliver_mw.pipeline.time_bins import bin_of
from redeliver_mw.policy import Backoff
from redeliver_mw.testing import TestApp

MONTH: Final = 30 * 86_400.0
WORK: Final = 0.005  # seconds that an attempt takes
SLACK: Final = 1.02  # what is to be no more than now may be so much more: a month is a sample
DLQ: Final = "queue:dlq.$"


class Case(NamedTuple):
    """Holds a policy as people have them, the arm beside it, and the objective: what people would like less of."""

    objective: str
    policy: RedeliveryPolicy
    arm: RedeliveryPolicy


CASES: Final = (
    Case(
        "fewer-dead-letters",
        RedeliveryPolicy(6, Backoff.exponential(1.0, 2.0), DLQ),
        RedeliveryPolicy(9, Backoff.exponential(4.0, 3.0, cap=1200.0).jittered(0.3), DLQ),
    ),
    Case(
        "fewer-attempts",
        RedeliveryPolicy(12, 5.0, DLQ),
        RedeliveryPolicy(8, Backoff.exponential(1.0, 2.0, cap=60.0).jittered(0.3), DLQ),
    ),
    Case(
        "sooner",
        RedeliveryPolicy(10, 120.0, DLQ),
        RedeliveryPolicy(11, Backoff.exponential(2.0, 2.0, cap=600.0).jittered(0.3), DLQ),
    ),
)


class Busy(Exception):
    """Says that the message recovers by itself."""


class Down(Exception):
    """Says that the message recovers with the outage."""


class Broken(Exception):
    """Says that the message never recovers."""


@dataclass(frozen=True, slots=True)
class Service:
    """Holds what a seed draws: shares of all messages, seconds, and outages a month."""

    busy: float
    median: float
    sigma: float
    broken: float
    outages: int
    outage: float

    @classmethod
    def drawn(cls, seed: int) -> Service:
        rng = random.Random(f"service {seed}")
        return cls(
            busy=rng.uniform(0.25, 0.4),
            median=math.exp(rng.uniform(math.log(3.0), math.log(40.0))),
            sigma=rng.uniform(0.8, 1.5),
            broken=rng.uniform(0.01, 0.05),
            outages=rng.randint(5, 40),
            outage=rng.uniform(120.0, 1800.0),
        )


class Month:
    """Draws the messages of a month and the handler that they meet; the same name gives the same month."""

    def __init__(self, service: Service, messages: int, name: str) -> None:
        rng = random.Random(name)
        self._service = service
        begins = [rng.uniform(0.0, MONTH) for _ in range(service.outages)]
        self._outages = [(begin, begin + rng.expovariate(1 / service.outage)) for begin in begins]
        self.sent = sorted(rng.uniform(0.0, MONTH) for _ in range(messages))
        self._heals = [self._healing(at, rng) for at in self.sent]

    def _healing(self, at: float, rng: random.Random) -> tuple[type[Exception], float]:
        service, ill = self._service, rng.random()
        if ill < service.broken:
            return Broken, math.inf
        if ill < service.broken + service.busy:
            return Busy, at + service.median * math.exp(rng.gauss(0.0, service.sigma))
        return Busy, 0.0

    def handle(self, number: int, now: float) -> None:
        """Handle a message: raise its error until it recovers, and `Down` during an outage."""
        if any(begin <= now < end for begin, end in self._outages):
            raise Down("nobody answers")
        error, until = self._heals[number]
        if now < until:
            raise error(f"message {number}")


def run(month: Month, policy: RedeliveryPolicy, folder: Path) -> list[AttemptRecord]:
    """Run the month in the real middleware until the last message has come to its end, and return its journal."""
    app = App("memory://?personality=artemis", policy=policy, journal=folder, app_name="recommended")
    test = TestApp(app)
    begin = test.clock.now().mono

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        test.clock.advance(WORK)
        month.handle(int(delivery.body), test.clock.now().mono - begin)

    with test:
        for number, at in enumerate(month.sent):
            test.advance(max(0.0, begin + at - test.clock.now().mono))
            test.send("orders", str(number), message_id=str(number))
        while any(place.destination.name == "orders" for place in test.broker.everything()):
            test.advance(600.0)
    return list(read_segments(folder))


# -- what a journal says --------------------------------------------------------------------------------------------


class Fate(NamedTuple):
    """Holds what became of a message that failed; times are in microseconds."""

    failures: list[AttemptRecord]
    success: AttemptRecord | None

    @property
    def is_dead(self) -> bool:
        return self.failures[-1].outcome == "dead_lettered"


def fates(records: Iterable[AttemptRecord]) -> list[Fate]:
    """Return the fate of each message that failed at least once."""
    by_key: defaultdict[str, list[AttemptRecord]] = defaultdict(list)
    for record in records:
        by_key[record.message_key].append(record)
    found = []
    for history in by_key.values():
        history.sort(key=lambda record: record.ts_us)
        failures = [record for record in history if record.outcome != "accepted"]
        if failures:
            found.append(Fate(failures, history[-1] if history[-1].outcome == "accepted" else None))
    return found


def recovery(found: Iterable[Fate]) -> list[dict[str, Any]]:
    """Return rows as the mart `recovery` has them, but for the day, which the back-test does not look at."""
    counted: Counter[tuple[Any, ...]] = Counter()
    for failures, success in found:
        first, last = failures[0], success or failures[-1]
        lo = bin_of(failures[-1].ts_us - first.ts_us)
        hi = bin_of(success.ts_us - first.ts_us) if success else None
        counted[first.destination, first.error_fingerprint, last.policy_version, lo, hi] += 1
    names = ("destination", "fingerprint", "policy_version", "lo_bin", "hi_bin")
    return [dict(zip(names, key, strict=True)) | {"n": n} for key, n in counted.items()]


def measured(found: list[Fate]) -> dict[str, float]:
    """Return the columns of the back-test that objectives speak of, measured."""
    healed = [fate for fate in found if fate.success is not None]
    took = [fate.success.ts_us - fate.failures[0].ts_us for fate in healed if fate.success is not None]
    return {
        "dead_letter_share": sum(fate.is_dead for fate in found) / len(found),
        "attempts_per_message": sum(len(fate.failures) + (fate.success is not None) for fate in found) / len(found),
        "ttr_mean_s": sum(took) / len(took) / 1e6,
    }


# -- a seed ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """Holds what came of a seed in the month that nobody had seen, under the old policy and under the new one.

    `present` and `best` are what the back-test predicted of the two policies from the month before. `lot` is what came
    under a policy drawn by lot, where one was drawn.
    """

    seed: int
    objective: Objective
    present: BacktestRow
    best: BacktestRow
    before: dict[str, float]
    after: dict[str, float]
    lot: dict[str, float] | None = None

    @property
    def is_better(self) -> bool:
        return self._beats(self.after)

    @property
    def is_better_by_lot(self) -> bool:
        return self.lot is not None and self._beats(self.lot)

    @property
    def grown(self) -> float:
        """Return the largest of what the objective holds to today's level, as a multiple of that level."""
        return self._grown(self.after)

    def _beats(self, month: dict[str, float]) -> bool:
        """Return whether there was less of what the policy was chosen for, and no more of what it is held to."""
        name = self.objective.minimise
        return month[name] < self.before[name] and self._grown(month) <= SLACK

    def _grown(self, month: dict[str, float]) -> float:
        return max(month[name] / self.before[name] for name in self.objective.at_most)


def trial(seed: int, messages: int, by_lot: bool = False) -> Outcome:
    case, service = CASES[seed % len(CASES)], Service.drawn(seed)
    objective = OBJECTIVES[case.objective]
    with tempfile.TemporaryDirectory() as folder:
        old = case.policy.replace(arms={"other": (0.1, case.arm)})
        seen = run(Month(service, messages, f"seen {seed}"), old, Path(folder, "seen"))
        found = search(
            History(recovery(fates(seen)), attempt_s=WORK),
            Candidate("present", case.policy),
            case.policy,
            objective,
        )
        told = recommend(found.rows, objective, "present")
        assert told.best is not None, "history cannot judge the policy that made it"
        unseen = Month(service, messages, f"unseen {seed}")

        def month(policy: RedeliveryPolicy | PolicyMap, name: str) -> dict[str, float]:
            assert isinstance(policy, RedeliveryPolicy)
            return measured(fates(run(unseen, policy, Path(folder, name))))

        policies = {candidate.name: candidate.policies for candidate in found.candidates}
        drawn = random.Random(f"lot {seed}").choice(sorted(policies))
        return Outcome(
            seed,
            objective,
            told.present,
            told.best,
            month(case.policy, "before"),
            month(policies[told.best.candidate], "after"),
            month(policies[drawn], "lot") if by_lot else None,
        )


def trials(seeds: int, messages: int, processes: int, by_lot: bool = False) -> Iterator[Outcome]:
    """Yield the outcomes in the order of the seeds."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(partial(trial, messages=messages, by_lot=by_lot), range(1, seeds + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--messages", type=int, default=5000, help="of a month")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--by-lot", action="store_true")
    asked = parser.parse_args()
    outcomes = []
    for outcome in trials(asked.seeds, asked.messages, asked.processes, asked.by_lot):
        outcomes.append(outcome)
        told = f"{outcome.seed} of {asked.seeds}: {'better' if outcome.is_better else 'no better'}"
        Console(stderr=True).print(told, highlight=False)
    show(outcomes)
    better = sum(outcome.is_better for outcome in outcomes)
    print(f"better on {better} of {asked.seeds} seeds")
    if asked.by_lot:
        print(f"drawn by lot, better on {sum(outcome.is_better_by_lot for outcome in outcomes)}")
    return 0 if better >= 0.9 * asked.seeds else 1


def show(outcomes: Iterable[Outcome]) -> None:
    """Print the table, with the column that each seed's objective makes small."""
    table = Table("seed", "objective", "recommended")
    for heading in ("old, predicted", "old, came", "new, predicted", "new, came", "held", ""):
        table.add_column(heading, justify="right")
    for one in outcomes:
        name = one.objective.minimise
        values = (getattr(one.present, name), one.before[name], getattr(one.best, name), one.after[name], one.grown)
        cells = (f"{value:.3g}" for value in values)
        better = "" if one.is_better else "no better"
        table.add_row(str(one.seed), one.objective.name, one.best.candidate, *cells, better)
    Console(width=160).print(table)


if __name__ == "__main__":
    sys.exit(main())
