# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""App and drop-in against the loop one would write by hand, on RabbitMQ, in one run.

    python -m tests.bench.rabbitmq [--messages 10000] [--rounds 5] [--url rabbitmq://…]

Each side is a process of its own that consumes the same number of persistent messages of 256 bytes with a
no-op handler, prefetch 500; sides take turns, so that a machine whose speed drifts treats them alike. What
counts is the ratio within a round; the medians are printed with their spread.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from redeliver_mw.registry import parse_url

PREFETCH = 500
BODY = b"x" * 256
HERE = Path(__file__).resolve()


def parameters(url: str) -> pika.ConnectionParameters:
    parsed = parse_url(url)
    host, port = parsed.hosts[0]
    credentials = pika.PlainCredentials(parsed.user or "guest", parsed.password or "guest")
    return pika.ConnectionParameters(host, port or 5672, parsed.path or "/", credentials)


def fill(url: str, queue: str, count: int, kind: str) -> None:
    """`count` persistent messages in a new queue."""
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.queue_delete(queue)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    properties = pika.BasicProperties(delivery_mode=2)
    for n in range(count):
        channel.basic_publish(
            "", queue, BODY, pika.BasicProperties(delivery_mode=2, message_id=str(n)) if n % 2 else properties
        )
    while channel.queue_declare(queue, passive=True).method.message_count < count:
        connection.sleep(0.05)
    connection.close()


def report(began: float, count: int) -> None:
    """What a side prints: messages per second, and how big it is."""
    seconds = time.perf_counter() - began
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    print(count / seconds, pages * os.sysconf("SC_PAGE_SIZE") / 2**20, flush=True)


def by_hand(url: str, queue: str, count: int, journal: str | None) -> None:
    """The tutorial's loop: BlockingConnection, ack each."""
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    seen, began = 0, 0.0

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal seen, began
        began = began or time.perf_counter()
        seen += 1
        ch.basic_ack(method.delivery_tag)
        if seen == count:
            ch.stop_consuming()

    channel.basic_consume(queue, on_message)
    channel.start_consuming()
    report(began, count)
    connection.close()


def drop_in(url: str, queue: str, count: int, journal: str | None) -> None:
    """The same loop with its callback wrapped; the wrapper acks."""
    from redeliver_pika import redelivering

    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    seen, began = 0, 0.0

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal seen, began
        began = began or time.perf_counter()
        seen += 1
        if seen == count:
            ch.stop_consuming()

    channel.basic_consume(queue, redelivering(on_message, journal=journal))
    channel.start_consuming()
    report(began, count)
    connection.close()


def app(url: str, queue: str, count: int, journal: str | None) -> None:
    import threading

    from redeliver_mw import App, Delivery

    application = App(url, prefetch=PREFETCH, journal=journal)
    done = threading.Event()
    seen, began = 0, 0.0

    @application.handler(queue)
    def handle(delivery: Delivery) -> None:
        nonlocal seen, began
        began = began or time.perf_counter()
        seen += 1
        if seen == count:
            done.set()

    application.start()
    done.wait()
    report(began, count)
    application.stop()


SIDES: dict[str, Callable[[str, str, int, str | None], None]] = {"by hand": by_hand, "drop-in": drop_in, "App": app}


def one(side: str, url: str, queue: str, count: int, journal: str | None) -> tuple[float, float]:
    """Messages per second and MiB of one side, in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.rabbitmq", "--side", side, "--url", url, "--queue", queue]
    command += ["--messages", str(count)] + (["--journal", journal] if journal else [])
    printed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    rate, memory = printed.split()
    return float(rate), float(memory)


def compare(url: str, count: int, rounds: int, kinds: list[str], journal: str | None) -> dict[str, dict[str, float]]:
    """The median ratio of each side to the hand-written loop, by queue type; prints the table."""
    import rich.console
    import rich.table

    table = rich.table.Table(title=f"{count} messages of 256 B, no-op, prefetch {PREFETCH}, {rounds} rounds")
    for heading in ("queue", "side", "msg/s (min / median / max)", "ratio to by hand (min / median / max)", "RSS MiB"):
        table.add_column(heading)
    result: dict[str, dict[str, float]] = {}
    for kind in kinds:
        rates: dict[str, list[float]] = {side: [] for side in SIDES}
        sizes: dict[str, float] = {}
        for n in range(rounds):
            for side in SIDES if n % 2 == 0 else reversed(SIDES):
                queue = f"bench.{kind}"
                fill(url, queue, count, kind)
                rate, sizes[side] = one(side, url, queue, count, journal)
                rates[side].append(rate)
        result[kind] = {}
        for side in SIDES:
            ratios = [mine / bare for mine, bare in zip(rates[side], rates["by hand"], strict=True)]
            result[kind][side] = statistics.median(ratios)
            table.add_row(kind, side, spread(rates[side], 0), spread(ratios, 2), f"{sizes[side]:.0f}")
    rich.console.Console(width=110).print(table)
    return result


def spread(values: list[float], digits: int) -> str:
    return " / ".join(f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=os.environ.get("REDELIVER_URL"))
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--queues", nargs="+", default=["classic", "quorum"])
    parser.add_argument("--journal", default=None)
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--queue")
    given = parser.parse_args()
    if given.side:
        SIDES[given.side](given.url, given.queue, given.messages, given.journal)
    elif given.url:
        compare(given.url, given.messages, given.rounds, given.queues, given.journal)
    else:
        from tests.brokers import broker

        with broker("rabbitmq", version="4.3") as own:
            compare(own.url, given.messages, given.rounds, given.queues, given.journal)


if __name__ == "__main__":
    main()
