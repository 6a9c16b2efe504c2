# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Watches a user's connection object with deliveries of ours: its subscriptions, and what its acks mean.

The callback keeps its own connection object. Eight methods of that one object are taken over: `subscribe`,
`unsubscribe`, `ack`, `nack`, `begin`, `commit`, `abort`, `disconnect`. What is none of ours passes through.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.context import current_delivery
from redeliver_mw.dropin import ACK, BoundedLog, CallbackRun, RefusedHere, Requeued, SettlementScope, because_of
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.redelivery.outbox import close_outbox
from redeliver_stomp.capabilities import destination_of, private_queue
from redeliver_stomp.dropin.claims import Claims, SubscribedSource
from redeliver_stomp.dropin.code_transactions import CodeTransactions
from redeliver_stomp.dropin.connection import StompUserConnection
from redeliver_stomp.dropin.copies import ConnectionCopyPublisher
from redeliver_stomp.frames import ack, encode, escaped
from redeliver_stomp.unackable import Mark, UnackableMessages, doubtful, hit_nothing, mark_of, odd

log = logging.getLogger("redeliver_mw.stomp")

REMEMBERED = 10_000  # unsettled deliveries of connections that were lost
TEMPORARY = ("/temp-queue/", "/temp-topic/", "/remote-temp-queue/", "/remote-temp-topic/")
PREFETCH = 1000  # where the user gives none: else the broker sends all that it has
RETRIES = ".redeliver-retries"  # behind the id of a durable subscription: that of its private queue
_logged_modes: set[str] = set()
DeliveryTag = Any  # 1.2: the `ack` header; 1.1: message id and subscription


class ScopeOwner(Protocol):
    """Has the policy for everything that is subscribed to from now on."""

    def subscribed(self, to: SubscribedSource, /) -> None: ...


class ConnectionScope(SettlementScope):
    """Follows one connection object through its generations: one for each subscription on each connection."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        version = getattr(connection, "version", "")
        if version not in ("1.1", "1.2"):
            cure = "Use stomp.Connection12"
            raise ConfigError(
                f"{type(connection).__name__} speaks no STOMP 1.1 or 1.2", cure=cure, code="callback-not-usable"
            )
        self._old = version == "1.1"
        self.user_connection = StompUserConnection(connection, self._lost)
        self.publisher = ConnectionCopyPublisher(self.user_connection, self)
        self.owner: ScopeOwner | None = None
        self.subscriptions: dict[str, SubscribedSource] = {}
        self.retired: set[str] = set()  # ids of ours that were unsubscribed: what still comes is the broker's
        self._late = BoundedLog(log)
        self.claims = Claims()
        self.transactions = CodeTransactions(connection, self, self.user_connection, self.publisher, self.claims)
        self._settled_there: set[DeliveryTag] = set()  # the broker has the ACK, and the core does not know yet
        self._committed: set[DeliveryTag] = set()  # of these, those for which the broker has answered the COMMIT
        self._gone: dict[DeliveryTag, Destination] = {}  # unsettled on connections that were lost, the oldest first
        self._foreign = False  # there were subscriptions that are none of ours
        self._bare: set[str] = set()  # ids of those that the code made through us
        self._unknown: set[str] = set()  # ids of those that were made before the wrapping, once they are logged
        self._convicts: dict[Destination, UnackableMessages] = {}
        self._trying: dict[Mark, UnackableMessages] = {}  # doubtful ones whose ACK was written and is not answered
        self._receipts: dict[DeliveryTag, str] = {}  # that the callback asked for with its ack
        self._subscribe, self._unsubscribe = connection.subscribe, connection.unsubscribe
        self._ack, self._nack, self._disconnect = connection.ack, connection.nack, connection.disconnect
        connection.subscribe, connection.unsubscribe = self._subscribing, self._unsubscribing
        connection.ack, connection.nack, connection.disconnect = self._acked, self._nacked, self._disconnecting

    @classmethod
    def of(cls, connection: Any) -> ConnectionScope:
        """Return the scope of this connection object, which keeps it."""
        found: ConnectionScope | None = vars(connection).get("_redeliver_scope")
        if found is None:
            found = connection._redeliver_scope = cls(connection)
        return found

    @property
    def is_open(self) -> bool:
        return self.user_connection.is_open

    def window(self, consumer: Hashable) -> int | None:
        found = self.subscriptions.get(str(consumer))
        if found is None or (
            found.destination.startswith("/topic/") and not (found.source and found.source.subscription)
        ):
            return None  # a copy at the tail of a topic, which a window of one leads to, would reach all subscribers
        return max(1, found.prefetch)

    def withdraw(self, run: CallbackRun) -> bool:
        return self.transactions.withdraw(run)

    def beside_transactions(self) -> AbstractContextManager[bool]:
        """Tell whether a COMMIT of ours would do harm now, as `CodeTransactions.beside`."""
        return self.transactions.beside()

    def open_runs(self) -> list[CallbackRun]:
        """Return the runs that are not settled. From any thread."""
        return list(self._open.values())

    def running(self) -> CallbackRun | None:
        """Return the run whose callback calls this, if a callback does."""
        try:
            run = self.run_of(current_delivery())
        except LookupError:
            return None
        return run if run is not None and run.inside else None

    def write(self, delivery: Delivery, settlement: Settlement) -> None:
        """Write a settlement. This broker honours `accepted` alone: everything else stays unsettled."""
        if settlement != "accepted":
            return
        tag = delivery.tag
        if tag in self._settled_there:
            self._settled_there.discard(tag)
            self._committed.discard(tag)
        elif doubtful(delivery.native):
            self._try(delivery)
        elif (receipt := self._receipts.pop(tag, None)) is None:
            self.user_connection.ack(self.ack_frame(delivery))
        else:
            self.send_ack(tag, receipt)

    def settleable(self, delivery: Delivery) -> bool:
        """Return whether a delivery is still ours to settle.

        One that a COMMIT has settled is, until our thread knows of the end of the connection: the code may disconnect
        as soon as it has the receipt of its COMMIT, before our thread has heard of that.
        """
        if delivery.tag in self._committed:
            return delivery.generation in self._listeners and self.run_of(delivery) is not None
        return super().settleable(delivery)

    def gone(self, delivery: Delivery) -> None:
        self._settled_there.discard(delivery.tag)
        self._committed.discard(delivery.tag)
        super().gone(delivery)

    def is_settled(self, delivery: Delivery) -> bool:
        """Return whether the broker has the ACK of a delivery that the core still holds for unsettled."""
        return delivery.tag in self._settled_there

    def settled_by_broker(self, run: CallbackRun) -> None:
        """Count a success: a COMMIT of the code's has settled the run. Called on our thread."""
        self._committed.add(run.delivery.tag)
        if run.in_hand and self.settleable(run.delivery):
            self._settled_there.add(run.delivery.tag)
            run.listener.code_settled(run, ACK)
        else:
            self.gone(run.delivery)

    def ack_frame(self, delivery: Delivery, *, receipt: str = "", transaction: str = "") -> bytes:
        if self._old:
            more = [("transaction", transaction), ("receipt", receipt)]
            return encode("ACK", [*self.ack_headers(delivery.tag), *(each for each in more if each[1])])
        return ack(delivery.native.raw(b"ack"), escaped(transaction).encode(), escaped(receipt).encode())

    def _try(self, delivery: Delivery) -> None:
        """Send an ACK for which the broker may close the connection."""
        if not self._may_try(delivery):
            return
        wanted = self._receipts.pop(delivery.tag, None)  # by the callback

        def answered(error: str) -> None:
            if not self.tried(delivery, error) and wanted and not error:
                self.user_connection.show_receipt(wanted)

        self.user_connection.ack(self.ack_frame(delivery, receipt=self.user_connection.expect(answered)))
        self.user_connection.flush()

    def _may_try(self, delivery: Delivery) -> bool:
        """Note that a doubtful ACK is about to be written; False if the broker closes the connection for it."""
        mark, convicts = mark_of(delivery.native), self.convicts(delivery.destination)
        if convicts.hopeless(mark):
            convicts.add(mark)
            return False
        self._trying[mark] = convicts
        return True

    def tried(self, delivery: Delivery, error: str) -> bool:
        """Take the answer to an ACK. Return whether its message turned out to be one that cannot be acked."""
        if not doubtful(delivery.native):
            return False
        mark = mark_of(delivery.native)
        convicts = self._trying.pop(mark, None)
        if convicts is None or not hit_nothing(error):
            return False
        convicts.add(mark)
        return True

    def convicts(self, source: Destination) -> UnackableMessages:
        """Return the messages of this source that nobody can ack over STOMP."""
        found = self._convicts.get(source)
        if found is None:
            found = self._convicts[source] = UnackableMessages(self.user_connection.broker, source)
        return found

    def send_ack(self, tag: DeliveryTag, receipt: str | None = None) -> None:
        try:
            self._ack(*(tag if self._old else (tag,)), receipt=receipt)
        except Exception as error:  # stomp.py's own: the broker has the message again
            log.debug("an ack did not go out: %r", error)

    def ack_headers(self, tag: DeliveryTag) -> list[tuple[str, str]]:
        """Return the headers that name a delivery in an ACK frame."""
        return [("message-id", tag[0]), ("subscription", tag[1])] if self._old else [("id", tag)]

    def tag_of(self, headers: dict[str, str]) -> DeliveryTag:
        return (headers.get("message-id"), headers.get("subscription")) if self._old else headers.get("ack")

    def _lost(self) -> None:
        trying, self._trying = self._trying, {}
        for mark, convicts in trying.items():  # closed without a word: it was one of these
            if odd(mark[0]) and not self.user_connection.leaving:
                convicts.add(mark)
        self.transactions.lost(self.open_runs())
        for run in self.open_runs():
            self._gone[run.delivery.tag] = run.delivery.destination
        for tag in list(self._gone)[:-REMEMBERED]:
            del self._gone[tag]
        self.abandon_all()
        self.clear()
        self._receipts.clear()
        self._settled_there.clear()
        self._committed.clear()
        self._unknown.clear()
        self.publisher.lost()

    # -- subscriptions ------------------------------------------------------------------------------

    def _subscribing(
        self,
        destination: str,
        id: Any,
        ack: str = "auto",
        headers: Any = None,
        **more: Any,
    ) -> None:
        given = {**(headers or {}), **more}
        to = self._wanted(destination, str(id), given, ack)
        if to is None or self.owner is None:
            self._foreign = True
            self._bare.add(str(id))
            self.retired.discard(str(id))
            self._subscribe(destination, id, ack, given)
            return
        if self.user_connection.other_product:
            product = self.user_connection.other_product
            what = f"this broker is {product}: its acks mean something else than ActiveMQ Classic's"
            raise ConfigError(
                what,
                where=self.user_connection.broker,
                cure="Use redeliver_proton on Artemis",
                code="broker-is-another",
            )
        self.user_connection._hurry()
        self.owner.subscribed(to)
        self._bare.discard(to.id)
        if ack != "client-individual" and ack not in _logged_modes:
            _logged_modes.add(ack)
            log.info("ack=%r goes out as 'client-individual'; what your code's own ACK means stays as it is", ack)
        given["activemq.prefetchSize"] = str(to.prefetch)
        self.subscriptions[to.id] = to
        self._subscribe(destination, id, "client-individual", given)
        if to.source is not None and to.source.subscription:
            self._subscribe_retries(to, to.source)

    def _subscribe_retries(self, to: SubscribedSource, source: Destination) -> None:
        """Retry copies for a durable subscription lie in a queue of its own."""
        mine = SubscribedSource(to.id + RETRIES, source, to.destination, to.prefetch, to.of, to.ack)
        self.subscriptions[mine.id] = mine
        prefetch = {"activemq.prefetchSize": str(to.prefetch)}
        self._subscribe(f"/queue/{private_queue(source)}", mine.id, "client-individual", prefetch)

    def _wanted(self, destination: str, name: str, headers: dict[str, Any], ack: str) -> SubscribedSource | None:
        """Return what a SUBSCRIBE asks for; None for what cannot be redelivered: browsers, temporary destinations."""
        plain = destination.partition("?")[0]
        known = plain.strip().startswith(("/queue/", "/topic/", *TEMPORARY))
        found = destination_of(plain.strip()) if known else Destination(plain, "queue")  # as ActiveMQ takes it
        if found is None or plain.strip().startswith(TEMPORARY) or headers.get("browser") == "true":
            return None
        source: Destination | None = found
        if "," in found.name or any(part in ("*", ">") for part in found.name.split(".")):
            source = None
        elif found.kind == "topic":
            durable = headers.get("activemq.subscriptionName") or headers.get("durable-subscription-name") or ""
            source = Destination(found.name, "topic", durable)
        prefetch = int(headers.get("activemq.prefetchSize") or PREFETCH)
        return SubscribedSource(name, source, destination, prefetch, name, ack)

    def passes(self, frame: Any) -> bool:
        """Return whether the listener gets a MESSAGE that is of no subscription of ours.

        One that was made before the wrapping is an error, logged once. In the mode `auto` the broker has forgotten the
        message already, so the listener gets it. In the other modes it stays unsettled; STOMP 1.1 does not tell the
        modes apart, and there the listener gets it as without the wrapper.
        """
        name, destination = frame.headers.get("subscription"), frame.headers.get("destination", "")
        if name is None or name in self._bare or destination.startswith(TEMPORARY):
            return True
        withheld = not self._old and "ack" in frame.headers
        if name not in self._unknown:
            self._unknown.add(name)
            what = "stay unsettled" if withheld else "reach the listener without redelivery"
            text = (
                "%s: the subscription %r was made before its listener was wrapped, or on another connection: its "
                "messages %s. Call redelivering(listener, connection) first, then connection.subscribe"
            )
            log.error(text, destination, name, what)
        self._foreign = self._foreign or not withheld
        return not withheld

    def _unsubscribing(self, id: Any, headers: Any = None, **more: Any) -> None:
        """Settle the message in hand first, for a callback that unsubscribes right after it."""
        mine = [name for name in (str(id), f"{id}{RETRIES}") if name in self.subscriptions]
        if mine and self.user_connection.here:
            self.closing()
        for name in mine:  # the broker has again what waits to be run
            del self.subscriptions[name]
            self.retired.add(name)

        def leave() -> None:
            for name in mine:
                self.abandon(name)
            self.user_connection.flush()  # behind the UNSUBSCRIBE they would do nothing
            try:
                self._unsubscribe(id, headers, **more)
                for name in mine[1:]:
                    self._unsubscribe(name)
            except Exception as error:
                log.debug("an UNSUBSCRIBE did not go out: %r", error)

        if not mine:
            self._unsubscribe(id, headers, **more)
        elif self.user_connection.here:
            self.publisher.when_idle(leave)
        else:
            self._meanwhile(lambda done: self.publisher.when_idle(lambda: in_turn(leave, done)))

    def _meanwhile(self, work: Callable[[Callable[[], None]], None], what: str = "the UNSUBSCRIBE goes out") -> None:
        """Let our thread do it, and wait for a while: behind a slow callback it is done later."""
        over = threading.Event()
        self.user_connection.hop(lambda: work(over.set))
        if not over.wait(5.0):
            log.warning("%s when the callback that runs is over", what)

    def _disconnecting(self, *args: Any, **kwargs: Any) -> Any:
        if self.user_connection.here:
            self.closing()
        elif self.user_connection.is_open and any(run.given.pending is not None for run in self.open_runs()):
            self._meanwhile(lambda done: done(), "the settlements of other threads go out")
        self.user_connection.leaving = True
        self.user_connection.flush()
        return self._disconnect(*args, **kwargs)

    # -- what the callback says ---------------------------------------------------------------------

    def _acked(self, id: Any, *args: Any, **kwargs: Any) -> None:
        self._settled_by_code(ACK, self._ack, id, args, kwargs)

    def _nacked(self, id: Any, *args: Any, **kwargs: Any) -> None:
        self._settled_by_code(Requeued("nack"), self._nack, id, args, kwargs)

    def _settled_by_code(
        self, settlement: Exception, by_hand: Callable[..., Any], of: Any, args: Any, kwargs: Any
    ) -> None:
        names = ("subscription", "transaction", "receipt") if self._old else ("transaction", "receipt")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        tag = (of, str(given.get("subscription"))) if self._old else of
        transaction, receipt = str(given.get("transaction") or ""), str(given.get("receipt") or "")
        run = self._open.get(tag)
        if run is None:
            ours = tag in self._gone or (self._old and tag[1] in {*self.subscriptions, *self.retired})
            if self._foreign and not ours:
                by_hand(of, *args, **kwargs)
                return
            if (source := self._gone.get(tag)) is not None:
                text = "%s: a settlement of %s came too late and is dropped: its connection was lost"
                return self._late.error(text, source, tag)
            text = "a settlement of %s came too late and is dropped: it is settled already, or lost"
            return self._late.error(text, tag)
        if transaction and settlement is not ACK:
            raise RefusedHere(
                "ActiveMQ takes no NACK in a transaction",
                where=str(run.delivery.destination),
                cure="Abort the transaction first, then nack without transaction=",
            )
        settlement = because_of(settlement, run.before)
        if isinstance(settlement.__cause__, RefusedHere):  # which the code has caught: its message has not failed
            return self._late.error(
                "%r: a nack is dropped, and the message stays unsettled: %s", run.delivery, settlement.__cause__
            )
        if not self.lives(run.delivery.generation):
            text = "%r: a settlement by the code came too late and is dropped: its subscription or connection is gone"
            self._late.error(text, run.delivery)
            if transaction or not run.inside:
                return
        runs = self._claimed(run, settlement)
        if not runs:
            return self._late.error(
                "%r: a settlement by the code came too late and is dropped: it is settled, held for a retry, lost, or "
                "part of a transaction",
                run.delivery,
            )
        if transaction:
            return self._join(runs, transaction, receipt)
        if settlement is ACK and receipt:
            self._receipts[tag] = receipt
        self._settle(runs, settlement)

    def _claimed(self, run: CallbackRun, settlement: Exception) -> list[CallbackRun]:
        """Return what a settlement is for: nothing if it is too late; in `client` mode earlier messages too.

        An ACK there covers those of its own subscription that the code has in hand. Messages that we hold stay ours.
        """
        with self.claims.lock:
            if not self.claims.take(run):
                return []
            if settlement is not ACK or run.given.to.ack != "client":
                return [run]
            earlier = [
                each
                for each in sorted(self.open_runs(), key=lambda each: each.order)
                if each.order < run.order and each.given.to.of == run.given.to.of and self.claims.take(each)
            ]
        return [*earlier, run]

    def _join(self, runs: list[CallbackRun], transaction: str, receipt: str) -> None:
        """Write ACKs in a transaction of the code's, but none that the broker would close the connection for."""
        able = [run for run in runs if not doubtful(run.delivery.native) or self._may_try(run.delivery)]
        if able:
            self.transactions.join(able, transaction, receipt)

    def _settle(self, runs: list[CallbackRun], settlement: Exception) -> None:
        """Carry out a settlement outside of transactions. Another thread's ACK goes out now, whatever callback runs."""
        if self.user_connection.here:
            for run in runs:
                run.listener.code_settled(run, settlement)
            return
        frames = []
        for run in runs:
            run.given.pending = settlement
            if settlement is ACK and self._goes_at_once(run):
                tag = run.delivery.tag
                self._settled_there.add(tag)
                frames.append(self.ack_frame(run.delivery, receipt=self._receipts.pop(tag, "")))
        if frames:
            self.user_connection.ack_at_once(frames)
        for run in runs:
            self.tell(run)

    def _goes_at_once(self, run: CallbackRun) -> bool:
        """Return whether an ACK need not wait: for messages that its callback has sent, or because it is doubtful."""
        delivery = run.delivery
        return self.lives(delivery.generation) and not doubtful(delivery.native) and not close_outbox(delivery)

    def tell(self, run: CallbackRun) -> None:
        """Pass a run's settlement by another thread on to the core. Any thread."""
        if not self.user_connection.here:
            self.user_connection.hop(lambda: self.tell(run))
        elif (settlement := self.claims.pending(run)) is not None:
            run.listener.code_settled(run, settlement)


def in_turn(*calls: Callable[[], object]) -> None:
    for call in calls:
        call()
