# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes up a fortnight of five queues, the same one every time.

Every failing message has a time of its own at which it recovers, or none; its queue's policy says when it is tried.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

SECOND = 1_000_000
DAY = 86_400 * SECOND
DAYS = 14
START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
START_US = int(START.timestamp()) * SECOND

Heals = Callable[[random.Random], float | None]


@dataclass(frozen=True)
class Queue:
    """Describes a queue whose messages are tried again after `rests`, in seconds.

    A message with one failure more than there are `rests` is dead-lettered. One message in twenty has the delays of
    `arm`.
    """

    name: str
    per_day: int
    rests: Sequence[float]
    handler_ms: int
    arm: Sequence[float] = ()


@dataclass(frozen=True)
class Kind:
    """Describes one way of failing; `heals` draws after how many seconds a message recovers, None for never."""

    queue: str
    fingerprint: str
    error: str
    per_day: float
    heals: Heals
    first_day: int = 0

    @property
    def type(self) -> str:
        return self.error.partition(":")[0]


@dataclass(frozen=True)
class Outage:
    """Describes an outage: while it lasts, messages fail with this kind, and they recover when it is over."""

    kind: Kind
    begins_us: int
    seconds: float


@dataclass(frozen=True)
class History:
    """Holds the times of the attempts at one message that failed; `healed` tells whether the last one was a success."""

    key: str
    kind: Kind
    times_us: Sequence[int]
    healed: bool
    heals_s: float | None  # the truth, which no journal knows

    @property
    def failures(self) -> int:
        return len(self.times_us) - self.healed


@dataclass
class World:
    """Holds the histories, and how many messages of each queue and ten minutes never failed."""

    histories: list[History] = field(default_factory=list)
    healthy: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def kinds(self) -> dict[Kind, list[History]]:
        found: dict[Kind, list[History]] = {}
        for one in self.histories:
            found.setdefault(one.kind, []).append(one)
        return found


def around(median: float, spread: float, never: float = 0.0) -> Heals:
    """Return a lognormal law of recovery times; a share of `never` does not recover at all."""
    return lambda rng: None if rng.random() < never else rng.lognormvariate(math.log(median), spread)


def never(rng: random.Random) -> float | None:
    return None


def doubling(first: float, times: int) -> tuple[float, ...]:
    return tuple(first * 2**n for n in range(times))


ORDERS = Queue("orders", 42_000, doubling(1, 6), 120)
INVOICES = Queue("invoices", 9_000, (5, 5, 10, 10, 30, 30, 60), 850)
LABELS = Queue("shipping.labels", 16_000, doubling(1, 5), 400, (2, 10, 60, 300, 1200, 3600))
MAIL = Queue("mail.out", 21_000, (60, 300, 900, 3600, 7200), 90)
AUDIT = Queue("audit", 60_000, (1, 1, 1), 15)
QUEUES = {queue.name: queue for queue in (ORDERS, INVOICES, LABELS, MAIL, AUDIT)}

REFUSED = Kind(
    "orders", "5f1c09a2e77b4d10", "ConnectionError: warehouse.internal:5432 refused the connection", 0, never
)
SILENT = Kind(
    "orders", "a803d1c64e5f9b27", "TimeoutError: pricing gave no answer within 2 s", 330, around(3, 1.1, 0.01)
)
NO_SKU = Kind("orders", "0e44b7d9a1c25f38", "KeyError: 'sku'", 9, never)
CURRENCY = Kind("invoices", "c2d9f00b6a7e4813", "ValueError: unknown currency 'XBT' in line 3", 160, never, 9)
LOCKED = Kind("invoices", "77e0a4b91d3c5f62", "OperationalError: database is locked", 120, around(0.9, 0.9))
THROTTLED = Kind(
    "shipping.labels",
    "b16f3e8c05d7a942",
    "HTTPError: 429 Too Many Requests, https://api.carrier.example/v2/labels",
    260,
    around(90, 1.2, 0.03),
)
GATEWAY = Kind("shipping.labels", "41d8a5c7f2e6b093", "HTTPError: 502 Bad Gateway", 45, around(25, 1.4, 0.05))
CLOSED = Kind(
    "mail.out", "9ac2e5d103f8b746", "SMTPServerDisconnected: Connection unexpectedly closed", 90, around(700, 1)
)
ASCII = Kind("mail.out", "e0b7c48d56a1f329", "UnicodeEncodeError: 'ascii' codec can't encode character", 6, never)
TWICE = Kind(
    "audit",
    "38f5d2a9c61e0b74",
    "IntegrityError: duplicate key value violates a unique constraint",
    70,
    around(1.5, 0.8, 0.4),
)
MEMORY = Kind("audit", "6b20e9f4d8c3a157", "MemoryError", 0.4, around(2, 1))
KINDS = (REFUSED, SILENT, NO_SKU, CURRENCY, LOCKED, THROTTLED, GATEWAY, CLOSED, ASCII, TWICE, MEMORY)
OUTAGES = (
    Outage(REFUSED, START_US + 3 * DAY + 9 * 3600 * SECOND, 14 * 60),
    Outage(REFUSED, START_US + 8 * DAY + 14 * 3600 * SECOND, 47 * 60),
    Outage(GATEWAY, START_US + 11 * DAY + 20 * 3600 * SECOND, 25 * 60),
)


def world(seed: int = 7) -> World:
    rng = random.Random(seed)
    found = World()
    for number, (kind, begins_us, heals_s) in enumerate([*_alone(rng), *_together(rng)]):
        found.histories.append(_history(rng, kind, begins_us, heals_s, f"{number:08x}"))
    for queue in QUEUES.values():
        for step in range(DAYS * 144):
            mean = queue.per_day / 144 * _rhythm(step / 6 % 24)
            found.healthy[queue.name, START_US + step * 600 * SECOND] = _drawn(rng, mean)
    return found


def _alone(rng: random.Random) -> Iterator[tuple[Kind, int, float | None]]:
    for kind in KINDS:
        for day in range(kind.first_day, DAYS):
            for _ in range(_drawn(rng, kind.per_day)):
                yield kind, START_US + day * DAY + _hour(rng), kind.heals(rng)


def _together(rng: random.Random) -> Iterator[tuple[Kind, int, float | None]]:
    for outage in OUTAGES:
        for _ in range(int(QUEUES[outage.kind.queue].per_day / 86_400 * outage.seconds * 1.5)):
            into = rng.random() * outage.seconds
            yield outage.kind, outage.begins_us + int(into * SECOND), outage.seconds - into


def _history(rng: random.Random, kind: Kind, begins_us: int, heals_s: float | None, key: str) -> History:
    queue = QUEUES[kind.queue]
    rests = queue.arm if queue.arm and rng.random() < 0.05 else queue.rests
    times, elapsed = [begins_us], 0.0
    for rest in rests:
        elapsed += rest * rng.uniform(0.9, 1.1)
        times.append(begins_us + int(elapsed * SECOND))
        if heals_s is not None and elapsed >= heals_s:
            return History(key, kind, times, True, heals_s)
    return History(key, kind, times, False, heals_s)


def _drawn(rng: random.Random, mean: float) -> int:
    """Draw a number with this mean, from about a Poisson distribution."""
    if mean >= 20:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    draws, product = 0, rng.random()
    while product > math.exp(-mean):
        draws, product = draws + 1, product * rng.random()
    return draws


def _rhythm(hour: float) -> float:
    return 1 - 0.75 * math.cos((hour - 2) / 24 * 2 * math.pi)


def _hour(rng: random.Random) -> int:
    while True:
        at = rng.random() * 24
        if rng.random() * 1.75 < _rhythm(at):
            return int(at * 3600 * SECOND)
