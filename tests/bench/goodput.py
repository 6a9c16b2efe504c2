# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the healthy messages handled per second while one message in ten is failing: ours beside nack and requeue.

    python -m tests.bench.goodput --svg docs/goodput.svg

The broker is RabbitMQ, with a classic queue that is filled before, prefetch 100, one worker, and 2 ms of work for each
message; the failing ones always fail. By hand, pika's blocking loop acks, or calls `basic_nack(requeue=True)`. Ours is
an App that dead-letters after 3 failures, with delays of 2 s. Both run for so many seconds, one after the other.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika

from redeliver_mw import App, Delivery, RedeliveryPolicy
from tests.bench.delays import machine
from tests.bench.rabbitmq import parameters
from tests.brokers import broker

VERSION = "4.3"
QUEUE, DEAD = "bench.goodput", "DLQ.bench.goodput"
MESSAGES, EVERY = 20_000, 10  # one in so many is failing
PREFETCH, WORK, STEP = 100, 0.002, 0.5
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 64, 20, 52, 48

Series = list[float]


def fill(url: str) -> None:
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    for name in (QUEUE, DEAD):
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "classic"})
    for n in range(MESSAGES):
        body = b"failing" if n % EVERY == 0 else b"well"
        channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2, message_id=str(n)))
    while channel.queue_declare(QUEUE, passive=True).method.message_count < MESSAGES:
        connection.sleep(0.05)
    connection.close()


class Meter:
    """Counts the healthy messages that were handled in each step of time."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._steps: Counter[int] = Counter()

    def one(self) -> None:
        self._steps[int((time.monotonic() - self._began) / STEP)] += 1

    def series(self, seconds: float) -> Series:
        """Return the messages per second of each step."""
        return [self._steps[step] / STEP for step in range(int(seconds / STEP))]


class Over(Exception):
    """Ends the loop when the time is up."""


def by_hand(url: str, seconds: float) -> Series:
    """Run the loop that one would write, with the driver's only call that looks like redelivery."""
    channel = pika.BlockingConnection(parameters(url)).channel()
    channel.basic_qos(prefetch_count=PREFETCH)
    meter, deadline = Meter(), time.monotonic() + seconds

    def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        if time.monotonic() > deadline:
            raise Over  # pika comes to nothing else while messages keep coming back
        time.sleep(WORK)
        if body == b"failing":
            return ch.basic_nack(method.delivery_tag, requeue=True)
        ch.basic_ack(method.delivery_tag)
        meter.one()

    channel.basic_consume(QUEUE, on_message)
    with suppress(Over):
        channel.start_consuming()
    channel.connection.close()
    return meter.series(seconds)


def by_app(url: str, seconds: float) -> Series:
    app = App(url, policy=RedeliveryPolicy(3, 2.0, f"queue:{DEAD}"), prefetch=PREFETCH, app_name="goodput")
    meter = Meter()

    @app.handler(QUEUE)
    def handle(delivery: Delivery) -> None:
        time.sleep(WORK)
        if delivery.body == b"failing":
            raise ConnectionError("the warehouse does not answer")
        meter.one()

    with app:
        threading.Event().wait(seconds)
        return meter.series(seconds)


# -- the picture ----------------------------------------------------------------------------------

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2937 }
  .title { font-size: 15px; font-weight: 600 }
  .axis { stroke: #6b7280; fill: none } .grid { stroke: #d1d5db; stroke-width: 0.5 }
  .paper { fill: #ffffff } .curve { fill: none; stroke-width: 2.5; stroke-linejoin: round }
  .ours { stroke: #0b63c5 } .hand { stroke: #c2410c; stroke-dasharray: 6 4 }
  text.ours { stroke: none; fill: #0b63c5 } text.hand { stroke: none; fill: #c2410c }
  @media (prefers-color-scheme: dark) {
    text { fill: #e5e7eb } .paper { fill: #0d1117 } .grid { stroke: #374151 } .axis { stroke: #9ca3af }
    .ours { stroke: #60a5fa } .hand { stroke: #fb923c } text.ours { fill: #60a5fa } text.hand { fill: #fb923c }
  }
"""


def picture(ours: Series, hand: Series, seconds: float) -> str:
    top = _round_up(max(*ours, *hand, 1.0))
    x = _scale(0.0, seconds, LEFT, WIDTH - RIGHT)
    y = _scale(0.0, top, HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-label="Healthy messages handled per second, over time, with one message in ten failing">',
        f"<style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        f'<text class="title" x="{LEFT}" y="22">One message in ten always fails: goodput on RabbitMQ {VERSION}</text>',
    ]
    for n in range(5):
        value = top * n / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.0f}</text>')
    for second in range(0, int(seconds) + 1, 5):
        parts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{second}</text>')
    parts += [
        f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">seconds since the start</text>',
        f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 {HEIGHT / 2})">'
        "healthy messages per second</text>",
        _curve("hand", hand, x, y),
        _curve("ours", ours, x, y),
        f'<text class="ours" x="{LEFT + 4}" y="42">redeliver-mw: 3 attempts, 2 s apart, then the DLQ</text>',
        f'<text class="hand" x="{WIDTH - RIGHT}" y="42" text-anchor="end">nack and requeue (dashed)</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _curve(name: str, series: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    points = " ".join(f"{x((n + 0.5) * STEP):.1f},{y(value):.1f}" for n, value in enumerate(series))
    return f'<polyline class="curve {name}" points="{points}"/>'


def _scale(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    return lambda value: start + (value - low) / (high - low) * (end - start)


def _round_up(value: float) -> float:
    return next(step for step in (100, 200, 400, 600, 800, 1000, 2000, 4000, 10_000) if step >= value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--svg", type=Path, help="where the picture goes")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each of the two")
    asked = parser.parse_args()
    print(machine())
    series = {}
    with broker("rabbitmq", version=VERSION) as own:
        for side, run in (("nack and requeue", by_hand), ("redeliver-mw", by_app)):
            fill(own.url)
            series[side] = run(own.url, asked.seconds)
    print("\n| healthy messages per second | first second | last 5 s | handled in all |\n|---|---|---|---|")
    for side, values in series.items():
        last = values[-round(5 / STEP) :]
        first = sum(values[: round(1 / STEP)]) * STEP
        print(f"| {side} | {first:.0f} | {sum(last) / len(last):.0f} | {sum(values) * STEP:.0f} |")
    if asked.svg:
        asked.svg.write_text(picture(series["redeliver-mw"], series["nack and requeue"], asked.seconds))


if __name__ == "__main__":
    main()
