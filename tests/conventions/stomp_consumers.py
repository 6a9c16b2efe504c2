# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds consumers in the shape of stomp.py's documentation: each settles in its own way, plain or wrapped.

A test drives one of them in its own process, or starts this file as a program and kills it in the middle of its work::

    BROKER="HOST PORT USER PASSWORD" python -m tests.conventions.stomp_consumers SHAPE plain|wrapped QUEUE STOPS_AT

The program prints one line for each entry of its diary. Its work on the message whose body is STOPS_AT never ends.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, NamedTuple

import stomp

from redeliver_mw import RedeliveryPolicy
from redeliver_stomp import redelivering

Headers = Mapping[str, str]
NONE: Headers = {}
Work = Callable[[str], Any]  # the application's own work on one body; it raises when it fails
Wrap = Callable[[Any, Any], Any]  # the one line that is changed: of a listener and its connection


class Login(NamedTuple):
    """Holds the address of a broker and the user's name and password there."""

    host: str
    port: int
    user: str
    password: str


class Diary:
    """Keeps what a consumer has seen and done, in order. Thread-safe."""

    def __init__(self, show: Callable[[str], object] = lambda _: None) -> None:
        self.entries: list[tuple[str, str]] = []
        self._show = show
        self._written = threading.Condition()

    def write(self, event: str, about: object = "") -> None:
        """Add an entry and wake whoever waits for it."""
        with self._written:
            self.entries.append((event, str(about)))
            self._written.notify_all()
            self._show(f"{event} {about}\n")

    def about(self, event: str) -> list[str]:
        """Return what all entries of `event` are about."""
        return [about for found, about in list(self.entries) if found == event]

    def has(self, event: str, about: object = "", *, times: int = 1, within: float = 5.0) -> bool:
        """Wait until there are so many such entries; return False when the time is over."""
        entry = (event, str(about))
        with self._written:
            return self._written.wait_for(lambda: self.entries.count(entry) >= times, within)


class Consumer(stomp.ConnectionListener):
    """Returns from `on_message` when the work is done, in the ack mode `auto`; connects again when it is cut off.

    The shapes below differ from it in the ack mode and in how they settle.
    """

    ack_mode = "auto"

    def __init__(self, conn: Any, login: Login, queue: str, work: Work, diary: Diary, headers: Headers = NONE) -> None:
        self.conn, self.queue, self.work, self.diary = conn, queue, work, diary
        self._login, self._headers = login, headers
        self.connects_again = True

    def connect_and_subscribe(self) -> None:
        """Do what the documentation's function of that name does."""
        self.conn.connect(self._login.user, self._login.password, wait=True)
        self.subscribe()
        self.diary.write("subscribed")

    def subscribe(self, subscription: str = "1", queue: str = "") -> None:
        """Send the SUBSCRIBE of this consumer's ack mode."""
        address = f"/queue/{queue or self.queue}"
        self.conn.subscribe(address, id=subscription, ack=self.ack_mode, headers=dict(self._headers))

    def stop(self) -> None:
        """Disconnect for good, behind everything that was sent."""
        self.connects_again = False
        if self.conn.is_connected():
            self.conn.disconnect(receipt="bye")
            self.diary.has("receipt", "bye")  # after a reconnect stomp.py does not wait for it

    def ack(self, frame: Any, **more: Any) -> None:
        """Send the ACK for a frame as a user of either version of the protocol does."""
        self.conn.ack(*self._names(frame), **more)
        self.diary.write("acked", frame.body)

    def nack(self, frame: Any, **more: Any) -> None:
        """Send the NACK for a frame as a user of either version of the protocol does."""
        self.conn.nack(*self._names(frame), **more)
        self.diary.write("nacked", frame.body)

    def _names(self, frame: Any) -> tuple[str, ...]:
        headers = frame.headers
        return (headers["message-id"], headers["subscription"]) if "ack" not in headers else (headers["ack"],)

    # -- what stomp.py calls ----------------------------------------------------------------------

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        self.work(frame.body)
        self.diary.write("returned", frame.body)

    def on_receipt(self, frame: Any) -> None:
        self.diary.write("receipt", frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.diary.write("error", frame.headers.get("message", ""))

    def on_disconnected(self) -> None:
        self.diary.write("disconnected")
        if self.connects_again:
            self.connect_and_subscribe()


class AcksAfterWork(Consumer):
    """Acks each message at the end of `on_message`."""

    ack_mode = "client-individual"

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        self.work(frame.body)
        self.ack(frame)


class AcksEveryFifth(Consumer):
    """Acks every fifth message, which in the ack mode `client` covers the four before it."""

    ack_mode = "client"
    batch = 5

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._since = 0

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        self.work(frame.body)
        self._since += 1
        if self._since == self.batch:
            self._since = 0
            self.ack(frame)


class AcksFromThread(Consumer):
    """Hands each message to a thread of its own, which works on it and acks it, or nacks it when the work fails."""

    ack_mode = "client-individual"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._inbox: SimpleQueue[Any] = SimpleQueue()
        self._worker = threading.Thread(target=self._run, name="the application's worker", daemon=True)
        self._worker.start()

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        self._inbox.put(frame)

    def stop(self) -> None:
        self._inbox.put(None)
        self._worker.join(10)
        super().stop()

    def _run(self) -> None:
        for frame in iter(self._inbox.get, None):
            try:
                self.work(frame.body)
            except Exception:
                self.nack(frame)
            else:
                self.ack(frame)


class LeavesSomeUnacked(Consumer):
    """Acks a message only if the work on it says so; the others are left for whoever consumes next."""

    ack_mode = "client-individual"

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        if self.work(frame.body):
            self.ack(frame)


class NacksFailures(Consumer):
    """Nacks inside `except:`, which is how most callbacks are written."""

    ack_mode = "client-individual"

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        try:
            self.work(frame.body)
        except Exception:
            self.nack(frame)
        else:
            self.ack(frame)


class WorksInTransaction(Consumer):
    """Acks a message and sends its result in one transaction; nacks the message after an abort."""

    ack_mode = "client-individual"

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        transaction = self.conn.begin()
        try:
            self.ack(frame, transaction=transaction)
            self.conn.send(f"/queue/{self.queue}.results", frame.body, transaction=transaction)
            self.work(frame.body)
            self.conn.commit(transaction)
        except Exception:
            self.conn.abort(transaction)
            self.nack(frame)


class AcksBatchInTransaction(Consumer):
    """Sends five results in a transaction, together with one ACK that covers the five messages."""

    ack_mode = "client"
    batch = 5

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._transaction = ""
        self._since = 0

    def on_message(self, frame: Any) -> None:
        self.diary.write("got", frame.body)
        if not self._since:
            self._transaction = self.conn.begin()
        self.work(frame.body)
        self.conn.send(f"/queue/{self.queue}.results", frame.body, transaction=self._transaction)
        self._since += 1
        if self._since == self.batch:
            self._since = 0
            self.ack(frame, transaction=self._transaction)
            self.conn.commit(self._transaction)


SHAPES: dict[str, type[Consumer]] = {
    shape.__name__: shape
    for shape in (
        Consumer,
        AcksAfterWork,
        AcksEveryFifth,
        AcksFromThread,
        LeavesSomeUnacked,
        NacksFailures,
        WorksInTransaction,
        AcksBatchInTransaction,
    )
}


def plain(listener: Any, _conn: Any) -> Any:
    """Leave the listener as it is."""
    return listener


def wrapped(listener: Any, conn: Any) -> Any:
    """Wrap the listener with a policy of three attempts."""
    return redelivering(listener, conn, policy=RedeliveryPolicy(dead_after=3, backoff=0.2))


WRAPS: dict[str, Wrap] = {"plain": plain, "wrapped": wrapped}


def main(shape: str, how: str, queue: str, stops_at: str) -> None:
    """Consume until this process is killed."""
    host, port, user, password = os.environ["BROKER"].split(" ")
    diary = Diary(lambda line: os.write(1, line.encode()))

    def work(body: str) -> bool:
        diary.write("works on", body)
        if body == stops_at:
            threading.Event().wait()
        return int(body) % 2 == 0

    conn = stomp.Connection12([(host, int(port))], reconnect_attempts_max=1)
    login = Login(host, int(port), user, password)
    consumer = SHAPES[shape](conn, login, queue, work, diary)
    conn.set_listener("", WRAPS[how](consumer, conn))
    consumer.connect_and_subscribe()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
