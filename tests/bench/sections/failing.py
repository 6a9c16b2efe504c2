# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures what the App does on RabbitMQ while one message in ten always fails.

Goodput is the healthy messages per second, over that of as many without any failing ones among them. The handler does
nothing, or takes 1 ms for a healthy one; failing ones fail at once, so that what they cost is not the handler's. The
time of the dead letters is from the first handler to the last dead letter. For the latency, 1000 messages a second are
published while they are consumed; it is the time from the sending of a healthy one to its handler. For giving up, each
message fails once, and is dead-lettered; the time, for each message, is from the first handler to the last dead letter,
and the side by hand uses confirms.

Where an App waits for 2 s, it has been up for eleven seconds: in the first ten it gives no copy to a queue that it
made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.bench.asked import Asked
from tests.bench.figures import Figure
from tests.bench.rounds import APP, BY_HAND, Case, Ground, Program, Turn

MODULE, UP = "tests.bench.failing", 11.0
CONFIRMED = "by hand, confirmed"
NONE_FAILING, HAND_NONE = "App, none failing", "by hand, none failing"
GOODPUT, PACED = "goodput, delays of {:g} s", "1000 messages a second"
LETTERS, GIVING_UP = "2000 messages, 3 delays of 0.2 s", "giving up"


def turn(side: str, case: Case, name: str | None = None) -> Turn:
    return Turn(name or side, Program(MODULE, side), case)


def measure(asked: Asked) -> Iterator[Figure]:
    with asked.ground("rabbitmq") as at:
        yield from goodput(at, asked)
        yield from latency(at, asked)
        case = Case(2000, fail_every=10, rest=0.2, tries=4)
        turns = [turn(side, case) for side in (BY_HAND, CONFIRMED, APP)]
        yield from at.compare("failing", LETTERS, turns, asked.rounds)
        case = Case(max(200, asked.messages // 5), fail_every=1, tries=1)
        turns = [turn(CONFIRMED, case, BY_HAND), turn(APP, case)]
        yield from at.compare("failing", GIVING_UP, turns, asked.rounds)


def goodput(at: Ground, asked: Asked) -> Iterator[Figure]:
    for rest, lead in ((0.2, 0.0), (2.0, UP)):
        for words, work, messages in (("", 0, 5 * asked.messages), (", handler of 1 ms", 1, asked.messages // 4)):
            case = Case(messages, work_ms=work, fail_every=10, rest=rest, tries=3, lead=lead)
            alone = replace(case, fail_every=0, lead=0.0, messages=case.messages * 9 // 10)
            turns = [
                turn(BY_HAND, alone, HAND_NONE),
                turn(BY_HAND, replace(case, lead=0.0)),
                turn(APP, alone, NONE_FAILING),
                turn(APP, case),
            ]
            yield from at.compare("failing", GOODPUT.format(rest) + words, turns, asked.rounds)


def latency(at: Ground, asked: Asked) -> Iterator[Figure]:
    well = Case(max(1000, asked.messages // 2), tries=3, pace=1000)
    short, long = replace(well, fail_every=10, rest=0.2), replace(well, fail_every=10, rest=2.0, lead=UP)
    turns = [
        turn(BY_HAND, well, HAND_NONE),
        turn(APP, well, NONE_FAILING),
        turn(BY_HAND, short, "by hand, 0.2 s"),
        turn(APP, short, "App, 0.2 s"),
        turn(BY_HAND, long, "by hand, 2 s"),
        turn(APP, long, "App, 2 s"),
    ]
    yield from at.compare("failing", PACED, turns, asked.rounds)
