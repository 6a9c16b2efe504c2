# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds consumers as proton's users write them, in the shapes of the driver's own examples, without any redelivery.

Tests run them plain and wrapped, in their own process or as a program that can be killed in the middle of work::

    python -m tests.conventions.proton_consumers NAME URL QUEUE STUCK plain|wrapped

The program reads user and password from `BROKER_USER` and `BROKER_PASSWORD`. It prints `has BODY` for each message
that it begins to work on, and its work on the message number STUCK never ends.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import proton
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import ApplicationEvent, Container, Copy, EventInjector, Selector

Work = Callable[[str], object]
Verb = Literal["accept", "release", "reject"]


@dataclass(frozen=True)
class At:
    """Names a queue of a broker, and how to log in there."""

    url: str
    queue: str
    user: str = ""
    password: str = ""

    def connect(self, container: Any) -> Any:
        login = {"user": self.user, "password": self.password, "allowed_mechs": "PLAIN"}
        if not self.user:
            login = {"allowed_mechs": "ANONYMOUS"}
        return container.connect(self.url, reconnect=False, **login)


class Consumer(MessagingHandler):
    """Remembers what every consumer here has done: the bodies it was given, with the delivery count of each."""

    def __init__(self, at: At, work: Work, **how: Any) -> None:
        super().__init__(**how)
        self.at, self.work = at, work
        self.conn: Any = None
        self.receiver: Any = None
        self.given: list[tuple[str, Any]] = []
        self.settled: list[str] = []

    def attach(self, event: Any, **options: Any) -> None:
        self.container = event.container
        self.conn = self.at.connect(event.container)
        self.receiver = event.container.create_receiver(self.conn, self.at.queue, **options)

    def take(self, event: Any) -> str:
        """Note a message and work on it."""
        body = self.note(event)
        self.work(body)
        return body

    def note(self, event: Any) -> str:
        body: str = event.message.body
        self.given.append((body, (event.message.properties or {}).get("JMSXDeliveryCount")))
        return body

    def counts(self, body: str) -> list[Any]:
        return [count for given, count in self.given if given == body]


class After:
    """Calls a function when a scheduled task of the container is due."""

    def __init__(self, fn: Callable[[], object]) -> None:
        self._fn = fn

    def on_timer_task(self, _event: Any) -> None:
        self._fn()


# -- the driver's examples -------------------------------------------------------------------------


class SimpleRecv(Consumer):
    """Lets the driver accept each message when `on_message` returns."""

    def on_start(self, event: Any) -> None:
        self.attach(event)

    def on_message(self, event: Any) -> None:
        self.settled.append(self.take(event))


class Server(Consumer):
    """Answers each request at its reply-to address."""

    def on_start(self, event: Any) -> None:
        self.attach(event)
        self.relay = event.container.create_sender(self.conn, None)

    def on_message(self, event: Any) -> None:
        body, request = self.take(event), event.message
        answer = proton.Message(address=request.reply_to, body=body.upper(), correlation_id=request.correlation_id)
        self.relay.send(answer)
        self.settled.append(body)


class SelectedRecv(SimpleRecv):
    """Receives only the messages that its selector matches."""

    def on_start(self, event: Any) -> None:
        self.attach(event, options=Selector("colour = 'green'"))


class TxRecv(Consumer, TransactionHandler):
    """Accepts its messages by batches, each batch in a transaction of its own."""

    def __init__(self, at: At, work: Work, *, batch: int = 3, early: bool = False) -> None:
        super().__init__(at, work, prefetch=0, auto_accept=False)
        self.batch, self.early = batch, early
        self.in_batch: list[str] = []
        self.transaction: Any = None
        self.commits = self.aborts = 0

    def on_start(self, event: Any) -> None:
        self.attach(event)
        self.declare()

    def declare(self) -> None:
        self.container.declare_transaction(self.conn, handler=self, settle_before_discharge=self.early)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(self.batch)

    def on_message(self, event: Any) -> None:
        body = self.note(event)
        self.transaction.accept(event.delivery)
        self.work(body)
        self.in_batch.append(body)
        if len(self.in_batch) == self.batch:
            self.discharge()

    def discharge(self) -> None:
        self.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.commits += 1
        self.settled += self.in_batch
        self.next_batch()

    def on_transaction_aborted(self, event: Any) -> None:
        self.aborts += 1
        self.next_batch()

    def next_batch(self) -> None:
        self.in_batch = []
        self.declare()


class AbortingTxRecv(TxRecv):
    """Aborts its first transactions, `times` of them, and commits the others."""

    def __init__(self, at: At, work: Work, *, times: int, **how: Any) -> None:
        super().__init__(at, work, **how)
        self.times = times

    def discharge(self) -> None:
        if self.aborts < self.times:
            self.transaction.abort()
        else:
            self.transaction.commit()


class ServerTx(Consumer):
    """Sends the answer and accepts the request in one transaction, which begins after `on_message` has returned."""

    def __init__(self, at: At, work: Work) -> None:
        super().__init__(at, lambda body: None, auto_accept=False)
        self.inside = work  # what happens between the declaration and the commit

    def on_start(self, event: Any) -> None:
        self.attach(event)
        self.relay = event.container.create_sender(self.conn, None)

    def on_message(self, event: Any) -> None:
        body, request = self.take(event), event.message
        answer = proton.Message(address=request.reply_to, body=body.upper(), correlation_id=request.correlation_id)
        one = OneRequest(self, body, answer, event.delivery)
        self.container.declare_transaction(self.conn, handler=one)


class OneRequest(TransactionHandler):
    """Hears of the transaction of one request."""

    def __init__(self, server: ServerTx, body: str, answer: proton.Message, request: Any) -> None:
        super().__init__()
        self.server, self.body, self.answer, self.request = server, body, answer, request

    def on_transaction_declared(self, event: Any) -> None:
        event.transaction.send(self.server.relay, self.answer)
        event.transaction.accept(self.request)
        self.server.inside(self.body)
        event.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.server.settled.append(self.body)


class QueueBrowser(Consumer):
    """Reads a queue to its end and takes nothing away."""

    def on_start(self, event: Any) -> None:
        self.attach(event, options=Copy())

    def on_message(self, event: Any) -> None:
        self.take(event)


class RecurringTimer(MessagingHandler):
    """Consumes nothing, and ticks a few times."""

    def __init__(self, ticks: int, period: float = 0.05) -> None:
        super().__init__()
        self.left, self.period = ticks, period

    def on_start(self, event: Any) -> None:
        self.container = event.reactor
        self.container.schedule(self.period, self)

    def on_timer_task(self, event: Any) -> None:
        self.left -= 1
        if self.left:
            self.container.schedule(self.period, self)


# -- consumers that settle by themselves, later ----------------------------------------------------


class ByTimer(Consumer):
    """Settles each message `after` seconds, from a scheduled task, with the verb that `verb_of` names."""

    def __init__(
        self, at: At, work: Work, *, verb_of: Callable[[str], Verb | None] = lambda body: "accept", after: float = 0.1
    ) -> None:
        super().__init__(at, work, auto_accept=False)
        self.verb_of, self.after = verb_of, after

    def on_start(self, event: Any) -> None:
        self.attach(event)

    def on_message(self, event: Any) -> None:
        body, delivery = self.take(event), event.delivery
        verb = self.verb_of(body)
        if verb is not None:
            self.later(lambda: self.say(verb, body, delivery))

    def later(self, fn: Callable[[], object]) -> None:
        self.container.schedule(self.after, After(fn))

    def say(self, verb: str, body: str, delivery: Any) -> None:
        getattr(self, verb)(delivery)
        if verb == "accept":
            self.settled.append(body)


class ByEvent(ByTimer):
    """Works on another thread, which sends the container an event for each message that is done."""

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        self.injector = EventInjector()
        event.container.selectable(self.injector)

    def later(self, fn: Callable[[], object]) -> None:
        done = ApplicationEvent("work_done", subject=fn)
        timer = threading.Timer(self.after, lambda: self.injector.trigger(done))
        timer.daemon = True
        timer.start()

    def on_work_done(self, event: Any) -> None:
        event.subject()

    def on_connection_closed(self, event: Any) -> None:
        self.injector.close()


class ByThread(ByTimer):
    """Settles from another thread, as a pool of workers would."""

    def later(self, fn: Callable[[], object]) -> None:
        timer = threading.Timer(self.after, fn)
        timer.daemon = True
        timer.start()


class EveryFifth(Consumer):
    """Accepts five messages at a time, when it has the fifth."""

    def __init__(self, at: At, work: Work) -> None:
        super().__init__(at, work, auto_accept=False)
        self.in_hand: list[tuple[str, Any]] = []

    def on_start(self, event: Any) -> None:
        self.attach(event)

    def on_message(self, event: Any) -> None:
        self.in_hand.append((self.take(event), event.delivery))
        if len(self.in_hand) == 5:
            for body, delivery in self.in_hand:
                self.accept(delivery)
                self.settled.append(body)
            self.in_hand = []


class LeavesSome(ByTimer):
    """Leaves messages whose body begins with `leave` unsettled on purpose, and accepts the others at once."""

    def __init__(self, at: At, work: Work) -> None:
        super().__init__(at, work, verb_of=lambda body: None)

    def on_message(self, event: Any) -> None:
        body = self.take(event)
        if not body.startswith("leave"):
            self.say("accept", body, event.delivery)


class OneAtATime(Consumer):
    """Asks for the next message only when it has succeeded with the one before."""

    def __init__(self, at: At, work: Work, *, after: float = 0.0, always: bool = False) -> None:
        super().__init__(at, work, prefetch=0, auto_accept=False)
        self.after, self.always = after, always  # `always`: it asks for the next one after a failure, too
        self.in_hand = self.most_in_hand = 0

    def on_start(self, event: Any) -> None:
        self.attach(event)

    def on_link_opened(self, event: Any) -> None:
        if event.link == self.receiver:
            self.receiver.flow(1)

    def on_message(self, event: Any) -> None:
        self.in_hand += 1
        self.most_in_hand = max(self.most_in_hand, self.in_hand)
        try:
            body = self.take(event)
        except Exception:
            self.in_hand -= 1
            if self.always:
                self.receiver.flow(1)
            raise
        delivery = event.delivery
        if self.after:
            self.container.schedule(self.after, After(lambda: self.succeed(body, delivery)))
        else:
            self.succeed(body, delivery)

    def succeed(self, body: str, delivery: Any) -> None:
        self.in_hand -= 1
        self.settled.append(body)
        self.accept(delivery)
        self.receiver.flow(1)


# -- as programs -----------------------------------------------------------------------------------

NEVER = 600.0  # seconds
PROGRAMS: dict[str, Callable[[At, Work], Any]] = {
    "simple_recv": SimpleRecv,
    "server": Server,
    "selected_recv": SelectedRecv,
    "tx_recv": TxRecv,
    "server_tx": ServerTx,
    "queue_browser": QueueBrowser,
    "accepts_by_timer": lambda at, work: ByTimer(at, work, after=NEVER),
    "accepts_by_event": lambda at, work: ByEvent(at, work, after=NEVER),
    "accepts_by_thread": lambda at, work: ByThread(at, work, after=NEVER),
    "accepts_every_fifth": EveryFifth,
    "leaves_some": LeavesSome,
    "one_at_a_time": lambda at, work: OneAtATime(at, work, after=0.05),
}


def main(name: str, url: str, queue: str, stuck: str, how: str) -> None:
    seen = 0

    def work(body: str) -> None:
        nonlocal seen
        seen += 1
        print(f"has {body}", flush=True)
        if seen == int(stuck):
            time.sleep(NEVER)

    at = At(url, queue, os.environ["BROKER_USER"], os.environ["BROKER_PASSWORD"])
    handler = PROGRAMS[name](at, work)
    if how == "wrapped":
        from redeliver_mw import RedeliveryPolicy
        from redeliver_proton import redelivering

        handler = redelivering(handler, policy=RedeliveryPolicy(dead_after=3, backoff=0.2))
    Container(handler).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
