# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares threads with processes, with a handler that computes and one that waits, on RabbitMQ.

    python -m tests.bench.processes [--messages 1000] [--rounds 5] [--handlers computes] [--url …]

Each side is a `redeliver run` of its own, with so many workers, or so many processes with so many workers each. When
all are up the messages are published, and the clock runs from the first message begun to the last one handled. To
compute is 5 ms of Python by the processor's time, to wait is 5 ms of sleep. The sides take turns. The bench prints
medians, and the ratio to one worker within a round, as Markdown.
"""

from __future__ import annotations

import argparse
import os
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pika

from tests.bench.delays import machine
from tests.bench.figures import spread
from tests.bench.rabbitmq import parameters
from tests.cli.running import Running

QUEUE, VERSION = "bench.processes", "4.3"
HANDLERS = ("computes", "waits")
WORK = 0.005  # seconds
PREFETCH = 20
BODY = b"x" * 256
WORDS = struct.Struct("dd")  # when a run began and ended, on the monotonic clock, which all processes share


class Side(NamedTuple):
    """Describes one side; `processes` 0 means a command without the option."""

    processes: int
    workers: int

    @property
    def name(self) -> str:
        threads = f"{self.workers} worker" + ("s" if self.workers > 1 else "")
        if not self.processes:
            return threads
        return f"`--processes {self.processes}`" + (f", {threads} each" if self.workers > 1 else "")


SIDES = [Side(0, 1), Side(0, 2), Side(0, 4), Side(1, 1), Side(2, 1), Side(2, 4)]
SHOP = """\
from redeliver_mw import App
from tests.bench.processes import QUEUE, work

app = App(prefetch={prefetch}, workers={workers})
app.handler(QUEUE)(work({kind!r}, {turns}))
"""


def turn(turns: int) -> int:
    """Run Python code that holds the interpreter."""
    found = 1
    for n in range(turns):
        found = (found * 31 + n) % 65_521
    return found


def work(kind: str, turns: int) -> Callable[[object], None]:
    """Return the handler, which notes each run in the file `runs`."""
    log = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def handle(delivery: object) -> None:
        began = time.monotonic()
        if kind == "computes":
            turn(turns)
        else:
            time.sleep(WORK)
        os.write(log, WORDS.pack(began, time.monotonic()))

    return handle


def turns_of(seconds: float) -> int:
    """Return how many turns take so many seconds on this machine."""
    tried = 200_000
    began = time.process_time()
    turn(tried)
    return round(tried * seconds / (time.process_time() - began))


def fill(channel: pika.adapters.blocking_connection.BlockingChannel, count: int) -> None:
    for n in range(count):
        channel.basic_publish("", QUEUE, BODY, pika.BasicProperties(delivery_mode=2, message_id=str(n)))


def rate(url: str, side: Side, kind: str, turns: int, count: int) -> float:
    """Return the messages per second of one side."""
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.queue_delete(QUEUE)
    channel.queue_declare(QUEUE, durable=True)
    with tempfile.TemporaryDirectory(prefix="redeliver-bench-") as name:
        folder = Path(name)
        shop = SHOP.format(prefetch=max(PREFETCH, side.workers), workers=side.workers, kind=kind, turns=turns)
        (folder / "shop.py").write_text(shop)
        words = ["run", "shop:app", *(["--processes", str(side.processes)] if side.processes else [])]
        with Running(folder, *words, extra={"REDELIVER_URL": url}) as running:
            while running.err.count("consuming") < max(1, side.processes):
                time.sleep(0.02)  # they have just been started
            fill(channel, count)
            while (folder / "runs").stat().st_size < count * WORDS.size:
                connection.process_data_events(0.1)
            running.signal()
            running.wait()
        runs = list(WORDS.iter_unpack((folder / "runs").read_bytes()))
    connection.close()
    return count / (max(ended for _, ended in runs) - min(began for began, _ in runs))


def compare(url: str, asked: argparse.Namespace) -> None:
    turns = turns_of(WORK)
    print(f"{machine()}; {asked.messages} messages, {asked.rounds} rounds, min / median / max\n", flush=True)
    print("| handler | side | messages per second | ratio to 1 worker |\n|---|---|---|---|")
    for kind in asked.handlers:
        rates: dict[Side, list[float]] = {side: [] for side in SIDES}
        for n in range(asked.rounds):
            for side in SIDES if n % 2 == 0 else reversed(SIDES):
                rates[side].append(rate(url, side, kind, turns, asked.messages))
        for side in SIDES:
            ratios = [mine / alone for mine, alone in zip(rates[side], rates[SIDES[0]], strict=True)]
            print(f"| {kind} | {side.name} | {spread(rates[side], 0)} | {spread(ratios, 2)} |", flush=True)
    print(f"\n{machine()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a RabbitMQ that runs already; else one is started for this")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--handlers", nargs="+", choices=HANDLERS, default=HANDLERS)
    asked = parser.parse_args()
    if asked.url:
        return compare(asked.url, asked)
    from tests.brokers import broker

    with broker("rabbitmq", version=VERSION) as own:
        compare(own.url, asked)


if __name__ == "__main__":
    main()
