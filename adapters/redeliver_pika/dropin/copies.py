# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes a drop-in's copies: on a channel of our own on the user's connection, or on a companion connection.

`SharedConnection` lives on the thread of the user's loop and borrows its timers; there is no thread of ours.
`PikaCompanion` has a thread for its own connection, so that copies still go out when the broker blocks the user's.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from pika import BlockingConnection
from pika.adapters.select_connection import IOLoop
from pika.exceptions import StreamLostError

from redeliver_mw.adapter import OnAnswer, Verdict
from redeliver_mw.adapter.capabilities import ScheduleRange
from redeliver_mw.adapter.kit.pending_copies import PendingCopies
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.dropin import NOT_KNOWN, CopyPublisher, IsAlive
from redeliver_mw.errors import BrokerUnavailable, ConfigError, RedeliverError
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.redelivery.plan import SourcePlan
from redeliver_pika.capabilities import CLASSIC, RUNGS, rung_queue
from redeliver_pika.connection import ledger_scope
from redeliver_pika.messages import route_to
from redeliver_pika.publisher import NO_ROUTE, Publisher
from redeliver_pika.queues import Queues
from redeliver_pika.retry_ladder import RetryLadder

log = logging.getLogger("redeliver_mw.pika")


class ChannelCopyPublisher(CopyPublisher):
    """Publishes copies, each with a confirm, and makes sure of a rung before. Used on one thread."""

    def __init__(
        self, publisher: Publisher, topology: Queues, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self._publisher, self._topology, self._later = publisher, topology, later
        self._ladder = RetryLadder(topology, self._publish, later)
        self._pending = PendingCopies()  # not with the publisher yet
        self._known: set[str] = set()  # targets that took a copy, or were made
        self._behind: dict[str, list[tuple[int, Callable[[], None]]]] = {}  # what waits for the first copy to a target

    def provide(self, plan: SourcePlan) -> None:
        """Make sure of the rungs of the plan's ladder."""
        if plan.ways.schedule is not None:
            self._ladder.ensure(plan.source, plan.ways.schedule.rungs, lambda found: None)

    def schedule_wait(self, source: Destination, seconds: float) -> float:
        """Return how long the rung is young yet; one that is not known is looked up, while its copy waits for that."""
        rung = rung_queue(source, seconds)
        return self._ladder.wait(rung) if self._ladder.knows(rung) else NOT_KNOWN

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        if after > 0:
            self._climb(out, after, answer, alive)
        else:
            exchange, key = route_to(out.target)
            self._deliver(out, exchange, key, answer, alive)

    def _climb(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        """Publish to the rung, once that can be trusted: until then the copy waits here, then for its rest only."""
        rung, number = rung_queue(out.target, after), self._pending.add(out, answer)

        def found(outcome: int | RedeliverError) -> None:
            young = self._ladder.wait(rung)
            if isinstance(outcome, RedeliverError):
                if self._pending.take(number):
                    answer("unsent" if isinstance(outcome, BrokerUnavailable) else "refused", str(outcome))
            elif not alive():
                if self._pending.take(number):
                    answer("unsent", "the original was lost meanwhile")
            elif young > 0:
                rest = ScheduleRange(RUNGS).hop(after - young)

                def rested() -> None:
                    if self._pending.take(number):
                        self.store(out, rest, answer, alive)

                self._later(young, rested)
            elif self._pending.take(number):
                self._publish(out, "", rung, answered)

        def answered(verdict: Verdict, why: str) -> None:
            if verdict != "ok":
                self._ladder.forget(rung)  # it may be gone: looked up again before the next try
            answer(verdict, why)

        self._ladder.ensure(out.target, (after,), found)

    def _deliver(self, out: Outgoing, exchange: str, key: str, answer: OnAnswer, alive: IsAlive) -> None:
        """Publish to the target. To a queue that is not known yet one copy goes alone, and the others wait for it."""

        def answered(verdict: Verdict, why: str) -> None:
            if verdict != "ok":
                self._known.discard(key)  # it may be gone
            answer(verdict, why)

        if not alive():
            answer("unsent", "the original was lost meanwhile")
        elif exchange or key in self._known:
            self._publish(out, exchange, key, answered)
        elif (waiting := self._behind.get(key)) is not None:
            waiting.append((self._pending.add(out, answer), lambda: self._deliver(out, exchange, key, answer, alive)))
        else:
            self._behind[key] = []
            self._deliver_first(out, key, answer, alive)

    def _deliver_first(self, out: Outgoing, queue: str, answer: OnAnswer, alive: IsAlive) -> None:
        """Publish alone: where the queue is not there the copy comes back. Then it is declared, and published to again.

        Of several copies the broker does not always tell which one came back, and another may have been kept.
        """

        def answered(verdict: Verdict, why: str) -> None:
            if verdict == "refused" and NO_ROUTE in why:
                number = self._pending.add(out, answer)
                self._topology.ensure(queue, CLASSIC, lambda found: made(number, found))
            else:
                over(known=verdict in ("ok", "refused"))
                answer(verdict, why)

        def made(number: int, found: int | RedeliverError) -> None:
            there = not isinstance(found, RedeliverError)
            over(known=there)
            if not self._pending.take(number):
                return
            if there:
                self._deliver(out, "", queue, answer, alive)
            else:
                answer("unsent" if isinstance(found, BrokerUnavailable) else "refused", str(found))

        def over(*, known: bool) -> None:
            if known:
                self._known.add(queue)
            for number, go_on in self._behind.pop(queue):
                if self._pending.take(number):
                    go_on()

        self._publish(out, "", queue, answered)

    def _publish(self, out: Outgoing, exchange: str, key: str, answer: OnAnswer) -> None:
        self._publisher.publish(out, exchange, key, answer)

    def forget(self, generation: int) -> None:
        """Answer the copies of a lost generation that are not written yet, wherever they wait."""
        self._pending.forget(generation)
        self._publisher.forget(generation)


class _NullTopology:
    """Stands for a channel of ours where BlockingConnection.close() expects one of its own to close."""

    is_open = False


class SharedConnection(ChannelCopyPublisher):
    """Wraps a user's connection, of any of pika's kinds, for what it lends: timers, and a channel for copies.

    The confirms of a BlockingConnection can be awaited one by one only; so there the channel is opened on the
    SelectConnection inside it, and its callbacks come from within the poll of whatever the user's loop does.
    """

    def __init__(self, connection: Any) -> None:
        self.users = connection
        self.blocking = isinstance(connection, BlockingConnection)
        self.raw: Any = connection._impl if self.blocking else connection
        self.runners: dict[Any, Any] = {}  # the runner of each wrapper on this connection
        topology = Queues()
        topology.connected(self)
        super().__init__(Publisher(self, self), topology, self.raw_later)
        self._numbers = itertools.count(1)
        self._hops: dict[int, Callable[[], None]] = {}  # on their way into the loop
        self.raw.add_on_close_callback(self._closed)

    @classmethod
    def of(cls, connection: Any) -> SharedConnection:
        """Return the shared connection of this pika connection, which keeps it."""
        found: SharedConnection | None = vars(connection).get("_redeliver_shared")
        if found is None:
            found = connection._redeliver_shared = cls(connection)
        return found

    @property
    def broker(self) -> str:
        """Return the broker's place, as `PikaAdapter.broker` does."""
        p = self.raw.params
        return f"{p.host}:{p.port}/{p.virtual_host.lstrip('/')}"

    @property
    def ledger_scope(self) -> str:
        """Return the same scope as `PikaAdapter.ledger_scope`: App and drop-in share the ledger of a source."""
        return ledger_scope(self.raw, self.broker)

    # -- the loop ---------------------------------------------------------------------------------

    def later(self, seconds: float, fn: Callable[[], None]) -> None:
        """Call `fn` where callbacks of the user's may run: never nested in a poll. Not at all once it is closed."""
        if self.raw.is_open:
            call = self.users.call_later if self.blocking else self.raw._adapter_call_later
            call(max(0.0, seconds), fn)

    def raw_later(self, seconds: float, fn: Callable[[], None]) -> None:
        """Call `fn` from the loop itself; nothing of the user's may run in it."""
        if self.raw.is_open:
            self.raw._adapter_call_later(max(0.0, seconds), fn)

    call_later = raw_later  # the name by which Publisher knows it

    def hop(self, fn: Callable[[], None]) -> None:
        """Call `fn` in the loop, from another thread; right here if there is no loop any more."""
        number = next(self._numbers)
        self._hops[number] = fn

        def arrived() -> None:
            if (hopped := self._hops.pop(number, None)) is not None:
                hopped()

        if self.raw.is_closed:  # a loop that was left for good would take it, too, and never call it
            return arrived()
        try:
            if self.blocking:
                self.users.add_callback_threadsafe(arrived)
            else:
                self.raw._adapter_add_callback_threadsafe(arrived)
        except Exception:  # it was closed just now: what `fn` tells is for the ledger only
            arrived()

    def _closed(self, _connection: Any, error: BaseException) -> None:
        """Answer everything that waits in a timer or a queue: the connection is closed, and its timers never fire.

        The copies of its generations have been answered before, by `forget`, as each of its channels was closed.
        """
        self._topology.disconnected(error)
        why = f"the connection was closed: {error}"
        self._pending.close(why)
        self._publisher.end(why)
        for number in list(self._hops):  # the loop may never turn again
            if (hopped := self._hops.pop(number, None)) is not None:
                hopped()

    # -- what Publisher and Topology see: a connection and its link --------------------------------

    @property
    def is_open(self) -> bool:
        return bool(self.raw.is_open)

    @property
    def connection(self) -> SharedConnection:
        return self

    def channel(self, on_open_callback: Callable[[Any], None]) -> None:
        opened = self.raw.channel(on_open_callback=on_open_callback)
        if self.blocking:
            opened._get_cookie = lambda: _NullTopology  # not a cookie: that is gone once the channel is closed

    def add_on_connection_blocked_callback(self, fn: Callable[..., None]) -> None:
        self.raw.add_on_connection_blocked_callback(fn)

    def add_on_connection_unblocked_callback(self, fn: Callable[..., None]) -> None:
        self.raw.add_on_connection_unblocked_callback(fn)

    def abort(self, reason: Exception) -> None:
        """Close the connection without a goodbye, which abandons every delivery on it.

        The reason is silence: nothing else tells whether a copy was kept.
        """
        log.error("the connection is closed, and the broker has its unsettled messages again: %s", reason)
        self.raw._terminate_stream(StreamLostError(str(reason)))

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        if not self.is_open:
            return answer("unsent", "there is no connection")
        return super().store(out, after, answer, alive)

    def _publish(self, out: Outgoing, exchange: str, key: str, answer: OnAnswer) -> None:
        if not self.is_open:
            return answer("unsent", "there is no connection")
        if not self._publisher.started:
            self._publisher.use(self)
        return super()._publish(out, exchange, key, answer)


class _AskingPublisher(Publisher):
    """Lends its connection to a topology."""

    topology: Queues

    def _up(self, connection: Any) -> None:
        self.topology.connected(connection)
        super()._up(connection)

    def _down(self, error: BaseException) -> None:
        self.topology.disconnected(error)
        super()._down(error)


class PikaCompanion(ChannelCopyPublisher):
    """Keeps a connection for copies, on a daemon thread. Methods from any thread; answers come on the companion's."""

    off_thread = True

    def __init__(self, address: str) -> None:
        url = parse_url(address)
        if url.dialect != "rabbitmq+pika":
            raise ConfigError(
                "publisher= is no RabbitMQ", where=url.text, cure="Give a rabbitmq:// URL", code="publisher-url"
            )
        self._ioloop = IOLoop()
        publisher = _AskingPublisher.at(self._ioloop, url)
        publisher.topology = Queues()
        super().__init__(publisher, publisher.topology, self._ioloop.call_later)
        self._thread = threading.Thread(target=self._run, name="redeliver-pika-publisher", daemon=True)
        self._starting = threading.Lock()
        self._closing = False

    def _run(self) -> None:
        self._publisher.open()
        while not self._closing:
            try:
                self._ioloop.start()
            except Exception:
                log.exception("the companion connection's thread met a fault; it goes on")
        self._ioloop.close()

    def call(self, fn: Callable[[], None]) -> None:
        """Run `fn` on the companion's thread; from any thread."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()
        self._ioloop.add_callback_threadsafe(fn)

    def close(self, timeout: float = 5.0) -> None:
        """Close the connection for good, and wait for its thread, at most `timeout` seconds. Any other thread."""
        with self._starting:
            self._closing = True
        if self._thread.ident is not None:
            self._ioloop.add_callback_threadsafe(self._close)
            self._thread.join(timeout)

    def _close(self) -> None:
        self._publisher.close()
        self._stop_if_closed()

    def _stop_if_closed(self) -> None:
        if not self._closing:
            return
        if self._publisher.is_closed:
            self._ioloop.stop()
        else:
            self._ioloop.call_later(0.02, self._stop_if_closed)  # the broker has yet to answer

    def provide(self, plan: SourcePlan) -> None:
        self.call(lambda: super(PikaCompanion, self).provide(plan))

    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        self.call(lambda: super(PikaCompanion, self).store(out, after, answer, alive))

    def forget(self, generation: int) -> None:
        self.call(lambda: super(PikaCompanion, self).forget(generation))
