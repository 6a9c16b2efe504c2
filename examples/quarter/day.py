# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one day of one consumer: its messages, the real middleware that handles them, and the journal of that day.

The broker is in memory, the clock hand-driven, the journal a real one. A seed gives the same day at any time and in any
process: the same messages fail at the same instants. Only ids are random.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import trouble
from shop import Services, World, make_app, serve
from trouble import DAYS, FIRST_DAY, HOUR, MINUTE, Fate

from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.testing import TestApp

DAY = 24 * HOUR
PATIENCE = 12 * HOUR  # the time within which every message of a day has ended
ATTEMPTS_A_MESSAGE = 1.75  # minimum average over a quarter
MESSAGES_A_CONSUMER = 8000  # messages per day; for more messages there are several consumers
QUARTER = 15 * MINUTE
MARKET = 0.3  # share of orders and payments from a marketplace, which delivers them every quarter of an hour
_SHARES = {"orders": 0.34, "payments": 0.26, "mails": 0.26, "invoices": 0.08, "imports": 0.06}


class Message(NamedTuple):
    """Describes a message that is sent at `at`."""

    at: float
    queue: str
    name: str
    body: bytes
    fate: Fate


@dataclass(frozen=True, slots=True)
class Day:
    """Describes day `number` (from 0) of consumer `consumer` (from 0), which handles `messages` on an average day."""

    number: int
    consumer: int
    messages: float
    seed: int

    @property
    def begin(self) -> float:
        return (FIRST_DAY + timedelta(days=self.number)).timestamp()

    @property
    def name(self) -> str:
        return f"{self.seed}-{self.number}-{self.consumer}"

    def sent(self) -> list[Message]:
        """Return the day's messages, in the order of sending."""
        rng = random.Random(self.name)
        count = round(self.messages * _busyness(self.number) / _AVERAGE)
        queues = rng.choices(list(_SHARES), list(_SHARES.values()), k=count)
        drawn = sorted((self._instant(queue, rng), queue) for queue in queues)
        return [self._message(at, queue, f"{self.name}-{number}", rng) for number, (at, queue) in enumerate(drawn)]

    def _instant(self, queue: str, rng: random.Random) -> float:
        """Draw a time: articles come during the catalogue's import, others mostly in the afternoon, some in batches."""
        if queue == "imports":
            return rng.uniform(*trouble.import_of(self.begin))
        hours = rng.gauss(15.0, 4.0) if rng.random() < 0.85 else rng.uniform(0.0, 24.0)
        at = self.begin + hours % 24.0 * HOUR
        return at - at % QUARTER if queue in ("orders", "payments") and rng.random() < MARKET else at

    def _message(self, at: float, queue: str, name: str, rng: random.Random) -> Message:
        cents, pieces = rng.randrange(100, 20_000), rng.randrange(1, 5)
        line: dict[str, object] = {"cents": cents, "pieces": pieces}
        if queue == "invoices" and trouble.NEW_FORMAT.holds(at) and rng.random() < 0.3:
            line = {"price": {"currency": "EUR", "amount": cents / 100}, "pieces": pieces}
        body = {"id": name, "lines": [line]} if queue == "invoices" else {"id": name, "cents": cents}
        return Message(at, queue, name, json.dumps(body).encode(), trouble.fate_of(queue, at, rng))


def days(attempts: int, seed: int) -> list[Day]:
    """Return the days of the quarter, with volumes chosen to give `attempts` attempts or somewhat more."""
    a_day = attempts / ATTEMPTS_A_MESSAGE / DAYS
    consumers = math.ceil(a_day / MESSAGES_A_CONSUMER)
    return [Day(number, one, a_day / consumers, seed) for number in range(DAYS) for one in range(consumers)]


def run(day: Day, journal: Path) -> Counter[tuple[str, str]]:
    """Handle the messages of a day, from midnight until the last of them has ended.

    Returns how many attempts had `(queue, outcome)`; each of them is a line of the journal.
    """
    outcomes: Counter[tuple[str, str]] = Counter()
    messages = day.sent()
    app = make_app(journal)
    test = TestApp(app)
    test.clock.wall_step(day.begin - test.clock.now().wall)
    fates = {message.name: message.fate for message in messages}
    serve(app, Services(World(test.clock, fates, day.name)))

    @app.on_attempt
    def count(record: AttemptRecord) -> None:
        outcomes[record.destination, record.outcome] += 1

    with test:
        for at, act in _timetable(test, day, messages):
            test.advance(max(0.0, at - test.clock.now().wall))  # the consumer may be busy for longer
            act()
        _wait_for_the_last(test)
    return outcomes


def _timetable(test: TestApp, day: Day, messages: list[Message]) -> list[tuple[float, Callable[[], object]]]:
    """Return the actions of a day: messages are sent, and after an outage somebody replays its dead letters."""
    acts: list[tuple[float, Callable[[], object]]] = [(m.at, partial(_send, test, m)) for m in messages]
    for at, queue in trouble.REPLAYS:
        if day.begin <= at < day.begin + DAY:
            acts.append((at, partial(test.replay, queue)))
    return sorted(acts, key=itemgetter(0))


def _send(test: TestApp, message: Message) -> None:
    test.send(message.queue, message.body, message_id=message.name)


def _wait_for_the_last(test: TestApp) -> None:
    """Wait until nothing but dead letters is left."""
    until = test.clock.now().mono + PATIENCE
    while any(not place.destination.name.startswith("dlq.") for place in test.broker.everything()):
        if test.clock.now().mono > until:
            raise RuntimeError("messages go round and round")
        test.advance(10 * MINUTE)


def _busyness(number: int) -> float:
    """Return the number of messages on a day relative to other days: people shop on weekends, and at sales."""
    day = FIRST_DAY + timedelta(days=number)
    if any(span.begin < (day + timedelta(days=1)).timestamp() and day.timestamp() < span.end for span in trouble.SALES):
        return 2.0
    return 1.25 if day.weekday() >= 5 else 0.95


_AVERAGE = sum(map(_busyness, range(DAYS))) / DAYS
