# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares a replay from the store with the loop that one would write by hand: `python -m tests.bench.replays`.

`--broker …` names the brokers. Both sides send the same number of dead letters of 256 bytes back to a durable queue.
The loop takes each from the dead-letter queue, publishes it, waits for the confirm and acks it, which is what keeps a
letter from being lost. The replay claims each batch in an SQLite file, publishes it with confirms and records the
answers; its plan is in its time, the collect before it is not. In a round the sides take turns. The goal is at least
the loop's rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pika
from proton.utils import BlockingConnection

from redeliver_mw.operations import Selection, Store
from redeliver_mw.operations.replay import run_replay
from redeliver_mw.operations.replay_plan import plan_replay
from redeliver_mw.session import connect
from tests.bench.asked import Asked
from tests.bench.figures import spread
from tests.bench.rabbitmq import parameters
from tests.bench.rounds import BY_HAND
from tests.faults.letters import declare
from tests.operations.filling import fill, letters_of, send

REPLAY = "replay"
WARM = 1_000  # letters of the round that does not count


def by_hand_on_rabbitmq(url: str, dlq: str, source: str, number: int) -> None:
    """Run the loop of the tutorials, with publisher confirms."""
    connection = pika.BlockingConnection(parameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    channel.confirm_delivery()
    for done, (method, properties, body) in enumerate(channel.consume(dlq), start=1):
        channel.basic_publish("", source, body, properties, mandatory=True)
        channel.basic_ack(method.delivery_tag)
        if done == number:
            break
    connection.close()


def by_hand_on_artemis(url: str, dlq: str, source: str, number: int) -> None:
    """Run the same loop with proton's blocking client, whose `send` waits for the broker's outcome."""
    amqp = "amqp" + url[url.index("://") :]
    connection = BlockingConnection(amqp, timeout=30)
    receiver, sender = connection.create_receiver(dlq, credit=500), connection.create_sender(source)
    for _ in range(number):
        message = receiver.receive()
        message.address = source
        sender.send(message)
        receiver.accept()
    connection.close()


BY: dict[str, Callable[[str, str, str, int], None]] = {
    "rabbitmq": by_hand_on_rabbitmq,
    "artemis": by_hand_on_artemis,
}


def bodies(number: int) -> list[bytes]:
    return [b"%08d" % n + bytes(248) for n in range(number)]


def hand(kind: str, broker: Any, name: str, number: int) -> float:
    """Return the letters per second of the loop."""
    declare(broker, f"dlq.{name}", name)
    send(broker, letters_of(f"dlq.{name}", name, bodies(number)))
    began = time.perf_counter()
    BY[kind](broker.url, f"dlq.{name}", name, number)
    return checked(broker, name, number, time.perf_counter() - began)


def replayed(broker: Any, name: str, number: int) -> float:
    """Return the letters per second of the replay."""
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/store.db") as store:
        fill(broker, store, name, bodies(number))
        began = time.perf_counter()
        done = run_replay(store, plan_replay(store, Selection()).operation_id, broker.url)
        seconds = time.perf_counter() - began
        assert done.whole, done
    return checked(broker, name, number, seconds)


def checked(broker: Any, name: str, number: int, seconds: float) -> float:
    with connect(broker.url) as session:
        assert session.depth(name) == number
    return number / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--broker", nargs="+", choices=BY, default=list(BY))
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    for kind in asked.broker:
        with Asked().ground(kind) as at:
            broker = SimpleNamespace(url=at.url)
            rates: dict[str, list[float]] = {BY_HAND: [], REPLAY: []}
            for number in range(-1, asked.rounds):
                letters = asked.messages if number >= 0 else min(WARM, asked.messages)
                sides = [BY_HAND, REPLAY] if number % 2 == 0 else [REPLAY, BY_HAND]
                for side in sides:
                    name = f"{side.replace(' ', '')}.{number}"
                    rate = hand(kind, broker, name, letters) if side == BY_HAND else replayed(broker, name, letters)
                    if number >= 0:
                        rates[side].append(rate)
            title = f"{at.bench.kind} {at.bench.version}, {asked.messages} letters"
            for side, found in rates.items():
                print(f"{title}, {side}: {spread(found, 0)} msg/s (min / median / max)")
            ratios = [mine / theirs for mine, theirs in zip(rates[REPLAY], rates[BY_HAND], strict=True)]
            print(f"{title}: ratio {spread(ratios, 2)}", flush=True)


if __name__ == "__main__":
    main()
