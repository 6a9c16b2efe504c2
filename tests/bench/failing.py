# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the sides of the failing path, on RabbitMQ: some messages fail whenever they are tried, and end as dead letters.

The side by hand is the consumer that one finds in tutorials. It publishes a failure to a queue whose messages expire
back to the source, with its count in a header, or to the dead-letter queue, and acks it. The copy is confirmed before
the ack, or not. The latter loses messages, and is faster. A process of its own counts the dead letters, and another one
publishes while others consume, so that they take nothing from the side.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import Any

import pika

from tests.bench.rabbitmq import message, parameters
from tests.bench.side import Side, Task, memory, play, tell

LOOK = 0.005  # seconds between two looks at the dead letters


class Outcome:
    """Collects what becomes of the messages of one task.

    The time begins with the first handler, and ends when all healthy messages are done and all others are dead letters.
    """

    def __init__(self, task: Task) -> None:
        self._task = task
        self._began = self._healed = 0.0
        self._well = task.messages - task.letters
        self._latencies: list[float] = []  # s
        self._all_well = threading.Event()
        if task.letters:
            self._letters = _beside(task, "letters")
            self._read()  # it is there

    def publish(self) -> None:
        """Publish the messages from now on, if the queue was not filled before."""
        if self._task.pace:
            _beside(self._task, "publish")

    def healthy(self, body: bytes) -> bool:
        """Return whether a body is healthy, as every handler asks; a healthy one takes its time, and is counted."""
        if not self._began:
            time.sleep(0.0 if self._task.pace else self._task.lead)
            self._began = time.monotonic()
        if body.startswith(b"s"):
            return False
        if self._task.work:
            time.sleep(self._task.work)
        self._well -= 1
        if self._task.pace:
            self._latencies.append(time.monotonic() - float(body[1:].rstrip(b"x")))
        if not self._well:
            self._healed = time.monotonic()
            self._all_well.set()
        return True

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        if self._task.letters:
            self._dead = float(self._read())
        if self._well:
            self._all_well.wait()

    def _read(self) -> str:
        assert self._letters.stdout is not None
        return self._letters.stdout.readline()

    def report(self) -> None:
        task, letters = self._task, self._task.letters
        told = {"rss": memory()}
        if letters == task.messages:
            told["letter"] = (self._dead - self._began) / letters * 1e6
        elif not task.pace:
            told["rate"] = (task.messages - letters) / (self._healed - self._began)
        if letters and letters < task.messages:
            told["dead"] = self._dead - self._began
        if found := sorted(self._latencies):
            told |= {f"p{share}": found[share * (len(found) - 1) // 100] * 1000 for share in (50, 99)}
        tell(**told)


def _beside(task: Task, what: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "tests.bench.failing", what, task.as_json()]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def letters(task: Task) -> None:
    """Print `ready`, then the time at which all dead letters are there, on the clock of all processes; delete them."""
    channel = pika.BlockingConnection(parameters(task.url)).channel()
    print("ready", flush=True)
    while channel.queue_declare(task.dead, passive=True).method.message_count < task.letters:
        time.sleep(LOOK)  # to consume them would take more of the machine, and from the side
    print(time.monotonic(), flush=True)
    channel.queue_purge(task.dead)
    channel.connection.close()


def publish(task: Task) -> None:
    """Publish at the task's pace, each body with the time of its sending."""
    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    began = time.monotonic() + task.lead
    for n in range(task.messages):
        if (ahead := began + n / task.pace - time.monotonic()) > 0:
            time.sleep(ahead)
        channel.basic_publish("", task.queue, *message(task, n, f"{time.monotonic():.6f}"))
    connection.close()


def by_app(task: Task) -> None:
    from redeliver_mw import App, Delivery, RedeliveryPolicy

    outcome = Outcome(task)
    policy = RedeliveryPolicy(task.tries, task.rest, f"queue:{task.dead}")
    app = App(task.url, policy=policy, prefetch=task.prefetch, journal=task.journal, app_name="bench")

    @app.handler(task.queue)
    def handle(delivery: Delivery) -> None:
        if not outcome.healthy(delivery.body):
            raise ConnectionError("the warehouse does not answer")

    app.start()
    outcome.publish()
    outcome.wait()
    outcome.report()
    app.stop()


def by_hand(task: Task, *, confirmed: bool = False) -> None:
    connection = pika.BlockingConnection(parameters(task.url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=task.prefetch)
    resting = f"{task.queue}.rest.{task.rest}"
    back = {
        "x-message-ttl": round(task.rest * 1000),
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": task.queue,
    }
    channel.queue_declare(resting, durable=True, arguments=back)
    if confirmed:
        channel.confirm_delivery()
    outcome = Outcome(task)

    def on_message(ch: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        if not outcome.healthy(body):
            failures = (properties.headers or {}).get("failures", 0) + 1
            copy = pika.BasicProperties(
                headers={"failures": failures}, delivery_mode=2, message_id=properties.message_id
            )
            ch.basic_publish("", task.dead if failures == task.tries else resting, body, copy, mandatory=confirmed)
        ch.basic_ack(method.delivery_tag)

    def over() -> None:
        outcome.wait()
        connection.add_callback_threadsafe(channel.stop_consuming)

    channel.basic_consume(task.queue, on_message)
    outcome.publish()
    threading.Thread(target=over).start()
    channel.start_consuming()
    outcome.report()
    connection.close()


def by_hand_confirmed(task: Task) -> None:
    by_hand(task, confirmed=True)


SIDES: dict[str, Side] = {
    "by hand": by_hand,
    "by hand, confirmed": by_hand_confirmed,
    "App": by_app,
    "letters": letters,
    "publish": publish,
}

if __name__ == "__main__":
    play(SIDES)
