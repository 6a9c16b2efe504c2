# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a collect into a store with the loop that one would write by hand: `python -m tests.bench.collects`.

`--broker …` names the brokers. Both sides consume the same number of persistent dead letters, with bodies of 256 bytes
and the 25 headers that an App and a producer give them. The loop throws them away and acks each; the collect has each
batch on the disk, in an SQLite file, before it settles the batch. In a round the sides take turns. Then the store is
asked for its first page, for its groups, for pages with a filter over a header and for pages in other orders, beside
the same in bare SQL on the same file. The goals are at least half of the loop's rate, and at most three times the time
of the bare SQL.
"""

from __future__ import annotations

import argparse
from typing import Any

import pika
from proton import Message
from proton.reactor import Container

from tests.bench import collecting
from tests.bench.artemis import Filling
from tests.bench.asked import Asked
from tests.bench.figures import spread
from tests.bench.rabbitmq import parameters
from tests.bench.rounds import BY_HAND, WARM, Case, Ground, Program, Turn
from tests.bench.side import Task

COLLECT = "collect"
QUESTIONS = (
    "page",
    "groups",
    "filter",
    "filter over a header of ours",
    *(f"sort by {one}" for one in collecting.ORDERS),
)


def fill_rabbitmq(task: Task) -> None:
    """Make a new queue of dead letters."""
    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    channel.queue_delete(task.queue)
    channel.queue_declare(task.queue, durable=True, arguments={"x-queue-type": task.kind})
    for n in range(task.messages):
        drivers: Any = pika.BasicProperties  # which has no types
        properties = drivers(delivery_mode=2, message_id=f"m{n}", headers=collecting.headers_of(n))
        channel.basic_publish("", task.queue, task.text.encode(), properties)
    connection.close()


class FillingLetters(Filling):
    """Sends dead letters, each of which differs from the others."""

    def on_sendable(self, event: Any) -> None:
        while self.left and event.sender.credit:
            number = self.task.messages - self.left
            self.message = Message(
                id=f"m{number}",
                body=self.task.text.encode(),
                durable=True,
                inferred=True,
                properties=collecting.headers_of(number),
            )
            event.sender.send(self.message)
            self.left -= 1


def fill_artemis(task: Task) -> None:
    """Fill the queue, which is empty."""
    Container(FillingLetters(task)).run()


FILLS = {"rabbitmq": fill_rabbitmq, "artemis": fill_artemis}


def compare(at: Ground, case: Case, rounds: int) -> None:
    """Print the figures of each side; the first round, which has fewer letters, does not count."""
    bench = at.bench
    found: dict[str, list[dict[str, float]]] = {BY_HAND: [], COLLECT: []}
    for number in range(-1, rounds):
        this = case if number >= 0 else Case(min(case.messages, WARM), case.queue)
        turns = [at.turn(BY_HAND, this), Turn(COLLECT, Program(collecting.__name__, COLLECT), this)]
        for turn in turns if number % 2 == 0 else reversed(turns):
            told = at.play(turn)
            at.say(f"{bench.kind}: {turn.side}: {told['rate']:.0f} msg/s, {told['cpu']:.0f} µs of processor")
            if number >= 0:
                found[turn.side].append(told)
    title, ours, bare = f"{bench.kind} {bench.version}", found[COLLECT], found[BY_HAND]
    for side, values in found.items():
        rates = spread([one["rate"] for one in values], 0)
        cpu = spread([one["cpu"] for one in values], 0)
        print(
            f"{title}, {case.messages} letters, {side}: {rates} msg/s, {cpu} µs of processor each (min / median / max)"
        )
    ratios = [mine["rate"] / theirs["rate"] for mine, theirs in zip(ours, bare, strict=True)]
    print(f"{title}: rate of the collect / of the loop: {spread(ratios, 2)}")
    print(
        f"{title}: memory from a tenth of the letters to the last: {spread([one['grown'] for one in ours], 1)} MiB more"
    )
    print(f"{title}: size of the file: {spread([one['file'] for one in ours], 0)} bytes for each letter")
    for name in QUESTIONS:
        times = [one[name] * 1e3 for one in ours]
        ratios = [one[name] / one[f"bare {name}"] for one in ours]
        print(f"{title}: {name}: {spread(times, 2)} ms, {spread(ratios, 2)} times the bare SQL", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", nargs="+", choices=FILLS, default=list(FILLS))
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    for kind in asked.broker:
        with Asked().ground(kind) as at:
            own = Ground(at.bench._replace(fill=FILLS[kind]), at.url, at.folder, at.say)
            compare(own, Case(asked.messages, own.bench.queues[0]), asked.rounds)


if __name__ == "__main__":
    main()
