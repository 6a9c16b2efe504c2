# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes with confirms, by each broker's plain driver, and knows what was confirmed, and since when.

No message is sent a second time, so that a message that is handled twice was not the producer's doing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import pika
import proton
from proton.utils import BlockingConnection

from redeliver_mw.adapter.registry import BrokerUrl, parse_url
from tests.adapters.stomp.plain import Plain

PATIENCE = 3.0  # seconds for a connection, or for a confirm
AGAIN = 0.3  # seconds between two tries to connect
EVERY = 0.05  # seconds between two messages

Publish = Callable[[str], None]  # raises if the broker did not confirm the body in time
Open = tuple[Publish, Callable[[], None]]  # and how to close it


class Confirmed(NamedTuple):
    """Records a message that the broker has promised to keep; the seconds are the machine's monotonic clock."""

    body: str
    sent: float
    at: float


class Producer:
    """Publishes numbered bodies to one queue on a thread of its own, from `start` until `end`.

    Of ten messages one always fails, two recover: the second kind at the second attempt, the third at the third.
    """

    def __init__(self, url: str, queue: str, label: str) -> None:
        self._url, self._queue, self._label = parse_url(url), queue, label
        self._over, self._paused, self._rests = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer {queue}", daemon=True)
        self._number = 0
        self.confirmed: list[Confirmed] = []
        self.doubtful: set[str] = set()  # sent, and never confirmed: the broker may have it or not
        self.last_error = ""

    def start(self) -> None:
        self._thread.start()

    def pause(self) -> None:
        """Send nothing more until `resume`; returns when the last answer is in."""
        self._rests.clear()
        self._paused.set()
        self._rests.wait(4 * PATIENCE)

    def resume(self) -> None:
        self._paused.clear()

    def end(self) -> None:
        self._over.set()
        self._thread.join()

    def confirmed_since(self, moment: float) -> Confirmed | None:
        """Return the first message that was sent after `moment`, and is confirmed."""
        return next((one for one in self.confirmed if one.sent >= moment), None)

    def _body(self) -> str:
        number = self._number
        self._number += 1
        name = f"{self._label}.{number}"
        if number % 10 == 5:
            return f"poison:{name}"
        return f"heal:{2 + number // 10 % 2}:{name}" if number % 10 in (3, 7) else f"fine:{name}"

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                publish, close = OPENERS[self._url.dialect.partition("+")[0]](self._url, self._queue)
            except Exception as error:  # drivers raise what they like while a broker is away
                self.last_error = repr(error)
                self._wait(AGAIN)
                continue
            try:
                self._publish_until_it_fails(publish)
            finally:
                threading.Thread(target=_quietly, args=(close,), daemon=True).start()  # a frozen peer never answers

    def _publish_until_it_fails(self, publish: Publish) -> None:
        while not self._over.is_set():
            if self._paused.is_set():
                self._rests.set()
                self._wait(EVERY)
                continue
            body, sent = self._body(), time.monotonic()
            self.doubtful.add(body)
            try:
                publish(body)
            except Exception as error:
                self.last_error = repr(error)
                return
            self.doubtful.discard(body)
            self.confirmed.append(Confirmed(body, sent, time.monotonic()))
            self._wait(EVERY)

    def _wait(self, seconds: float) -> None:
        if self._paused.is_set():
            self._rests.set()
        self._over.wait(seconds)


def _quietly(close: Callable[[], object]) -> None:
    try:
        close()
    except Exception:  # it was broken before, or is now
        return


def _pika(url: BrokerUrl, queue: str) -> Open:
    credentials = pika.PlainCredentials(url.user, url.password)
    patience: dict[str, Any] = {
        "heartbeat": 3,
        "socket_timeout": PATIENCE,
        "stack_timeout": PATIENCE,
        "blocked_connection_timeout": PATIENCE,
    }
    connection = pika.BlockingConnection(
        [pika.ConnectionParameters(host, port, url.path or "/", credentials, **patience) for host, port in url.hosts]
    )
    channel = connection.channel()
    channel.confirm_delivery()

    transport: Any = connection
    patience_ends = PatienceEnd(lambda: transport._impl._transport._sock.shutdown(socket.SHUT_RDWR))

    def publish(body: str) -> None:
        durable = pika.BasicProperties(delivery_mode=2, message_id=body)
        with patience_ends:
            channel.basic_publish("", queue, body.encode(), durable, mandatory=True)

    def close() -> None:
        patience_ends.forget()
        connection.close()

    return publish, close


class PatienceEnd:
    """Calls `cut` if what is done within the context takes longer than the patience.

    pika waits for a confirm without an end, and RabbitMQ 3.10 never sends some of them after a partition.
    """

    def __init__(self, cut: Callable[[], object]) -> None:
        self._cut, self._due = cut, 0.0
        self._over = threading.Event()
        threading.Thread(target=self._watch, name="producer's patience", daemon=True).start()

    def __enter__(self) -> None:
        self._due = time.monotonic() + PATIENCE

    def __exit__(self, *_: object) -> None:
        self._due = 0.0

    def forget(self) -> None:
        """End the watch."""
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(AGAIN):
            if 0.0 < self._due < time.monotonic():
                self._over.set()
                _quietly(self._cut)


def _stomp(url: BrokerUrl, queue: str) -> Open:
    errors: list[Exception] = []
    for host, port in url.hosts:
        try:
            client = Plain(_login(url, host, port), patience=PATIENCE)
            break
        except (OSError, AssertionError) as error:
            errors.append(error)
    else:
        raise ConnectionError(str(errors))

    def publish(body: str) -> None:
        if refused := client.send(f"/queue/{queue}", body.encode()):
            raise ConnectionError(refused)

    return publish, client.close


def _login(url: BrokerUrl, host: str | None, port: int | None) -> Any:
    return SimpleNamespace(host=host, port=port, user=url.user, password=url.password)


def _proton(url: BrokerUrl, queue: str) -> Open:
    errors: list[Exception] = []
    for host, port in url.hosts:
        try:
            connection = BlockingConnection(
                f"amqp://{host}:{port}",
                timeout=PATIENCE,
                user=url.user,
                password=url.password,
                allowed_mechs="PLAIN",
                heartbeat=None,
            )
            break
        except (OSError, proton.ProtonException) as error:
            errors.append(error)
    else:
        raise ConnectionError(str(errors))
    sender = connection.create_sender(queue)

    def publish(body: str) -> None:
        sender.send(proton.Message(body=body, id=body, durable=True), timeout=PATIENCE)

    return publish, connection.close


OPENERS = {"rabbitmq": _pika, "activemq": _stomp, "artemis": _proton}
