# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts dead letters on a real broker, counts them and takes them away, whichever broker it is."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pika

from redeliver_mw.adapter.protocol import Verdict
from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.session import Session, connect
from tests.brokers import Broker
from tests.faults.load import channel_on, until

HISTORY = (
    '[{"t":"2026-01-01T00:00:00.000Z","f":"0123456789abcdef","h":"shop-1","d":1.5},'
    '{"t":"2026-01-01T00:00:01.500Z","f":"fedcba9876543210","h":"shop-2"}]'
)
TAKEN_AFTER = 3.0  # seconds without a message: the queue is empty


def declare(broker: Broker, *queues: str) -> None:
    """Make these queues, empty."""
    adapter = adapter_for(broker.url)
    said: dict[str, Verdict] = {}
    asked = threading.Condition()

    class Quiet:
        def connected(self, capabilities: object, /) -> None:
            for queue in queues:
                adapter.check(Destination(queue), lambda verdict, why, q=queue: hear(q, verdict), declare=True)

        def ready(self, source: Destination, generation: int, /) -> None: ...
        def arrived(self, batch: object, /) -> None: ...
        def lost(self, generation: int, error: BaseException | None, /) -> None: ...
        def failed(self, error: BaseException, source: Destination | None, /) -> None: ...

    def hear(queue: str, verdict: Verdict) -> None:
        with asked:
            said[queue] = verdict
            asked.notify_all()

    adapter.start(Quiet())  # a sink that listens to nothing
    with asked:
        assert asked.wait_for(lambda: len(said) == len(queues), 30)
    adapter.close()
    assert set(said.values()) == {"ok"}
    for queue in queues:
        take(broker, queue)


def take(broker: Broker, queue: str) -> list[Delivery]:
    """Take every message off a queue, and return them."""
    found = []
    with connect(broker.url) as session:
        while True:
            patience = TAKEN_AFTER if session.depth(queue) else 0.3
            while (delivery := session.receive(queue, timeout=patience)) is not None:
                found.append(delivery)
                session.settle(delivery)
                patience = 0.3
            if not session.depth(queue):
                return found


def until_there(broker: Broker, queue: str) -> None:
    """Wait for the first message of a queue: a broker's own dead-lettering takes a moment."""
    with connect(broker.url) as session:
        until(lambda: session.depth(queue) > 0, 20, f"nothing comes to {queue}")


def dead_lettered_by_the_broker(broker: Broker, source: str, body: bytes) -> str:
    """Let the broker dead-letter a message on `source`, and return the queue where the dead letter is.

    A consumer rejects the message, raw.
    """
    if broker.kind == "rabbitmq":
        return _rejected_on_rabbitmq(broker, source, body)
    dead_letter_queue = "ActiveMQ.DLQ" if broker.kind == "activemq" else "DLQ"
    declare(broker, source, dead_letter_queue)
    with connect(broker.url) as session:
        session.publish(source, body, {"tenant": "a"})
    (_nacked_on_activemq if broker.kind == "activemq" else _rejected_on_artemis)(broker, source)
    until_there(broker, dead_letter_queue)
    return dead_letter_queue


def _rejected_on_rabbitmq(broker: Broker, source: str, body: bytes) -> str:
    dead_letter_queue = f"dlx.{source}"
    with channel_on(broker) as channel:
        for name in (source, dead_letter_queue):
            channel.queue_delete(name)
        to_dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letter_queue}
        channel.queue_declare(source, durable=True, arguments=to_dead_letters)
        channel.queue_declare(dead_letter_queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", source, body, pika.BasicProperties(delivery_mode=2, headers={"tenant": "a"}))
        channel.basic_reject(channel.basic_get(source)[0].delivery_tag, requeue=False)
    until_there(broker, dead_letter_queue)
    return dead_letter_queue


def _nacked_on_activemq(broker: Broker, source: str) -> None:
    import stomp

    connection = stomp.Connection12([(broker.host, broker.stomp_port)])
    done = threading.Event()

    class Nacking(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            connection.nack(frame.headers["ack"], receipt="nacked")

        def on_receipt(self, frame: Any) -> None:
            done.set()

    connection.set_listener("", Nacking())
    connection.connect(broker.user, broker.password, wait=True)
    connection.subscribe(f"/queue/{source}", id="1", ack="client-individual")
    assert done.wait(20)
    connection.disconnect()


def _rejected_on_artemis(broker: Broker, source: str) -> None:
    from proton.utils import BlockingConnection

    connection = BlockingConnection(
        f"amqp://{broker.host}:{broker.amqp_port}", user=broker.user, password=broker.password, timeout=20
    )
    receiver = connection.create_receiver(source)
    receiver.receive(timeout=20)
    receiver.reject()
    connection.close()


def put_dead_letters(session: Session, dlq: str, source: str, bodies: list[bytes]) -> None:
    """Publish dead letters of ours, as an App would have made them."""
    for number, body in enumerate(bodies):
        headers = {
            "redeliver_reason": "exhausted",
            "redeliver_failures": "3",
            "redeliver_failures_for": source,
            "redeliver_original_destination": source,
            "redeliver_original_kind": "queue",
            "redeliver_lineage": f"lineage-{number}",
            "redeliver_copy_id": f"copy-{number}",
            "redeliver_hop": "1",
            "redeliver_generation": "0",
            "redeliver_error_type": "ValueError",
            "redeliver_error_message": "no such lamp, password=hunter2",
            "tenant": "a",
            "redeliver_last_failed_at": "2026-01-01T00:00:01.500000Z",
            "redeliver_history": HISTORY,
        }
        session.publish(dlq, body, headers)


def bodies_in(broker: Broker, queue: str) -> Counter[bytes]:
    """Return how often each body lies in a queue; the queue is empty afterwards."""
    return Counter(delivery.body for delivery in take(broker, queue))
