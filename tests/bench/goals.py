# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the goals as data: a figure, or the ratio of two figures round by round, and what it has to be."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from tests.bench.figures import MEASURES, Run

State = Literal["met", "must met", "missed", "not measured"]


class Goal(NamedTuple):
    """Says what a figure, or the ratio of two figures, has to be.

    `over` and `under` are keys of figures; without `under` the figure itself counts. If `most`, less is better.
    `reached` is the median of the last long run where that was below `must`: what is missed already is no news.
    """

    name: str
    over: str
    under: str
    must: float
    aim: float
    most: bool = False
    reached: float | None = None

    def values(self, run: Run) -> tuple[float, ...]:
        """Return one value for each round; none where the figure was not measured."""
        if self.under:
            return run.ratios(self.over, self.under)
        return run.figures[self.over].values if self.over in run.figures else ()

    def reaches(self, value: float, wanted: float) -> bool:
        return value <= wanted if self.most else value >= wanted

    def state(self, run: Run) -> State:
        """Return how the goal stands; `met` says that the aim is reached, too."""
        if not (values := self.values(run)):
            return "not measured"
        median = statistics.median(values)
        if not self.reaches(median, self.must):
            return "missed"
        return "met" if self.reaches(median, self.aim) else "must met"

    @property
    def unit(self) -> str:
        return "" if self.under else MEASURES[self.over.rpartition("/")[2]].unit


def _goals() -> Iterator[Goal]:
    for kind, title, bare, must, aim in (
        ("rabbitmq", "RabbitMQ", "bare pika ack-each", 1.3, 1.8),
        ("activemq", "ActiveMQ", "bare stomp.py ack-each", 1.0, 1.15),
        ("artemis", "Artemis", "bare proton accept-each", 0.9, 1.2),
    ):
        yield Goal(f"App on {title} / {bare}", f"brokers/{kind}/App/rate", f"brokers/{kind}/by hand/rate", must, aim)
    for kind, driver, reached in (
        ("rabbitmq", "pika", None),
        ("activemq", "stomp.py", 0.59),
        ("artemis", "proton", None),
    ):
        bare = f"brokers/{kind}/by hand/rate"
        dropin = f"brokers/{kind}/drop-in/rate"
        yield Goal(f"drop-in / bare callback, {driver}", dropin, bare, 0.85, 1.0, reached=reached)
    app = "frameworks/rabbitmq/App/rate"
    for name, must, aim in (("FastStream", 4, 6), ("Dramatiq", 4, 6), ("Celery", 4, 6), ("aio-pika", 2, 4)):
        yield Goal(f"App on RabbitMQ / {name}", app, f"frameworks/rabbitmq/{name}/rate", must, aim)
    rests, letters, giving_up = (
        "failing/goodput, delays of 2 s",
        "failing/2000 messages, 3 delays of 0.2 s",
        "failing/giving up",
    )
    for work in ("", ", handler of 1 ms"):
        over, under = f"{rests}{work}/App/rate", f"{rests}{work}/App, none failing/rate"
        yield Goal(f"healthy goodput with 10 % failing (2 s) / without failing{work}", over, under, 0.9, 0.97)
    yield Goal(
        "2000 messages, 10 % failing, 3 delays of 200 ms: time until these are dead-lettered / pika and a TTL queue",
        f"{letters}/App/dead",
        f"{letters}/by hand/dead",
        1.2,
        1.0,
        most=True,
    )
    yield Goal(
        "failed attempt to the dead-letter queue / confirmed publish and ack by hand, time",
        f"{giving_up}/App/letter",
        f"{giving_up}/by hand/letter",
        1.25,
        1.0,
        most=True,
    )
    known = "knobs/every message has an id/App"
    yield Goal(
        "crash-safe counts on / off, each with an id", f"{known}, crash-safe counts/rate", f"{known}/rate", 0.7, 0.85
    )
    safe = "knobs/crash-safe counts/App"
    yield Goal(
        "crash-safe counts, none with an id / each with an id",
        f"{safe}, none with an id/rate",
        f"{safe}, each with an id/rate",
        0.9,
        1.0,
    )
    yield Goal("processor of an idle App", "life/idle/App/idle", "", 1.0, 0.2, most=True)
    yield Goal("memory from the 10 000th message to the last", "life/memory/App/grown", "", 5.0, 0.0, most=True)
    yield Goal("memory of an App on RabbitMQ without limbo", "brokers/rabbitmq/App/rss", "", 40.0, 32.0, most=True)


GOALS: Final = tuple(_goals())
