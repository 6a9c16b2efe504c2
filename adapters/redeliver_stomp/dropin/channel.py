# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A user's connection object while deliveries of ours are on it: its subscriptions, and what its acks mean.

The callback keeps its own connection object. Five methods of that one object are taken over: `subscribe`,
`unsubscribe`, `ack`, `nack`, `disconnect`. What is none of ours passes through.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.dropin import ACK, BoundedLog, CallbackRun, Requeued, SettlementScope, because_of
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Delivery, Destination
from redeliver_stomp.capabilities import destination_of, private_queue
from redeliver_stomp.dropin.connection import StompUserConnection
from redeliver_stomp.dropin.copies import ConnectionCopyPublisher
from redeliver_stomp.frames import ack, encode
from redeliver_stomp.unackable import Mark, UnackableMessages, doubtful, hit_nothing, mark_of, odd

log = logging.getLogger("redeliver_mw.stomp")

REMEMBERED = 10_000  # deliveries that were acked in a transaction
PREFETCH = 1000  # where the user gives none: else the broker sends all that it has
RETRIES = ".redeliver-retries"  # behind the id of a durable subscription: that of its private queue
_told: set[str] = set()
DeliveryTag = Any  # 1.2: the `ack` header; 1.1: message id and subscription


@dataclass(slots=True, eq=False)
class SubscribedSource:
    """One SUBSCRIBE of the user's, or ours beside it. `source` is None for a pattern: each message tells its own."""

    id: str
    source: Destination | None
    destination: str
    prefetch: int
    of: str  # the id that the user knows
    ack: str  # the mode that the user asked for


class ScopeOwner(Protocol):
    """Whose policy goes with what is subscribed to from now on."""

    def subscribed(self, to: SubscribedSource, /) -> None: ...


class ConnectionScope(SettlementScope):
    """One connection object, through its generations: one for each subscription on each connection."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        version = getattr(connection, "version", "")
        if version not in ("1.1", "1.2"):
            cure = "Use stomp.Connection12"
            raise ConfigError(f"{type(connection).__name__} speaks no STOMP 1.1 or 1.2", cure=cure)
        self._old = version == "1.1"
        self.line = StompUserConnection(connection, self._lost)
        self.post = ConnectionCopyPublisher(self.line, self)
        self.owner: ScopeOwner | None = None
        self.subscriptions: dict[str, SubscribedSource] = {}
        self.retired: set[str] = set()  # ids of ours that were unsubscribed: what still comes is the broker's
        self._late = BoundedLog(log)
        self._theirs: dict[DeliveryTag, None] = {}  # that the code acked in a transaction, the oldest first
        self._foreign = False  # there were subscriptions that are none of ours
        self._convicts: dict[Destination, UnackableMessages] = {}
        self._trying: dict[Mark, UnackableMessages] = {}  # doubtful ones whose ACK was written and is not answered
        self._receipts: dict[DeliveryTag, str] = {}  # that the callback asked for with its ack
        self._subscribe, self._unsubscribe = connection.subscribe, connection.unsubscribe
        self._ack, self._nack, self._disconnect = connection.ack, connection.nack, connection.disconnect
        connection.subscribe, connection.unsubscribe = self._subscribing, self._unsubscribing
        connection.ack, connection.nack, connection.disconnect = self._acked, self._nacked, self._disconnecting

    @classmethod
    def of(cls, connection: Any) -> ConnectionScope:
        """The one of this connection object; it is kept on it, and goes with it."""
        found: ConnectionScope | None = vars(connection).get("_redeliver_seat")
        if found is None:
            found = connection._redeliver_seat = cls(connection)
        return found

    @property
    def is_open(self) -> bool:
        return self.line.is_open

    def write(self, delivery: Delivery, word: Settlement) -> None:
        """`accepted` alone is honoured by this broker: everything else stays unsettled."""
        if word == "accepted":
            if doubtful(delivery.native):
                self._try(delivery)
            elif (receipt := self._receipts.pop(delivery.tag, None)) is None:
                self.line.ack(self._ack_frame(delivery))
            else:
                self.send_ack(delivery.tag, receipt)

    def _ack_frame(self, delivery: Delivery, receipt: str = "") -> bytes:
        if self._old:
            more = [("receipt", receipt)] if receipt else []
            return encode("ACK", [*self.ack_headers(delivery.tag), *more])
        return ack(delivery.native.raw(b"ack"), receipt=receipt.encode())

    def _try(self, delivery: Delivery) -> None:
        """An ACK of which it is not known whether the broker survives the sight of it."""
        mark, convicts = mark_of(delivery.native), self.convicts(delivery.destination)
        if convicts.hopeless(mark):
            return convicts.add(mark)
        self._trying[mark] = convicts
        wanted = self._receipts.pop(delivery.tag, None)  # by the callback

        def tried(error: str) -> None:
            if self._trying.pop(mark, None) is not None and hit_nothing(error):
                convicts.add(mark)
            elif wanted and not error:
                self.line.show_receipt(wanted)

        self.line.ack(self._ack_frame(delivery, self.line.expect(tried)))
        self.line.flush()

    def convicts(self, source: Destination) -> UnackableMessages:
        """Messages of this source that nobody can ack over STOMP."""
        found = self._convicts.get(source)
        if found is None:
            found = self._convicts[source] = UnackableMessages(self.line.broker, source)
        return found

    def send_ack(self, tag: DeliveryTag, receipt: str | None = None) -> None:
        try:
            self._ack(*(tag if self._old else (tag,)), receipt=receipt)
        except Exception as error:  # stomp.py's own: the message is the broker's again
            log.debug("an ack did not go out: %r", error)

    def ack_headers(self, tag: DeliveryTag) -> list[tuple[str, str]]:
        """What names a delivery in an ACK frame."""
        return [("message-id", tag[0]), ("subscription", tag[1])] if self._old else [("id", tag)]

    def tag_of(self, headers: dict[str, str]) -> DeliveryTag:
        return (headers.get("message-id"), headers.get("subscription")) if self._old else headers.get("ack")

    def _lost(self) -> None:
        trying, self._trying = self._trying, {}
        for mark, convicts in trying.items():  # closed without a word: it was one of these
            if odd(mark[0]) and not self.line.leaving:
                convicts.add(mark)
        self.abandon_all()
        self.clear()
        self._receipts.clear()
        self._theirs.clear()
        self.post.lost()

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
            self.retired.discard(str(id))
            self._subscribe(destination, id, ack, given)
            return
        if self.line.other_product:
            what = f"this broker is {self.line.other_product}: its acks mean something else than ActiveMQ Classic's"
            raise ConfigError(what, where=self.line.broker, cure="Use redeliver_proton on Artemis")
        self.line._hurry()
        self.owner.subscribed(to)
        if ack != "client-individual" and ack not in _told:
            _told.add(ack)
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
        """None for what cannot be redelivered: browsers, temporary destinations."""
        plain = destination.partition("?")[0]
        found = destination_of(plain)
        if found is None or not plain.startswith(("/queue/", "/topic/")) or headers.get("browser") == "true":
            return None
        source: Destination | None = found
        if "," in found.name or any(part in ("*", ">") for part in found.name.split(".")):
            source = None
        elif found.kind == "topic":
            durable = headers.get("activemq.subscriptionName") or headers.get("durable-subscription-name") or ""
            source = Destination(found.name, "topic", durable)
        prefetch = int(headers.get("activemq.prefetchSize") or PREFETCH)
        return SubscribedSource(name, source, destination, prefetch, name, ack)

    def _unsubscribing(self, id: Any, headers: Any = None, **more: Any) -> None:
        """A callback that unsubscribes right after a message gets that one settled first."""
        mine = [name for name in (str(id), f"{id}{RETRIES}") if name in self.subscriptions]
        if mine and self.line.here:
            self.closing()
        for name in mine:  # what waits for its turn is the broker's again
            del self.subscriptions[name]
            self.retired.add(name)

        def leave() -> None:
            for name in mine:
                self.abandon(name)
            self.line.flush()  # behind the UNSUBSCRIBE they would do nothing
            try:
                self._unsubscribe(id, headers, **more)
                for name in mine[1:]:
                    self._unsubscribe(name)
            except Exception as error:
                log.debug("an UNSUBSCRIBE did not go out: %r", error)

        if not mine:
            self._unsubscribe(id, headers, **more)
        elif self.line.here:
            self.post.when_idle(leave)
        else:
            self._meanwhile(lambda done: self.post.when_idle(lambda: in_turn(leave, done)))

    def _meanwhile(self, work: Callable[[Callable[[], None]], None], what: str = "the UNSUBSCRIBE goes out") -> None:
        """Let our thread do it, and wait for a while: behind a slow callback it is done later."""
        over = threading.Event()
        self.line.hop(lambda: work(over.set))
        if not over.wait(5.0):
            log.warning("%s when the callback that runs is over", what)

    def _disconnecting(self, *args: Any, **kwargs: Any) -> Any:
        if self.line.here:
            self.closing()
        elif self.line.is_open:
            self._meanwhile(lambda done: done(), "the ACKs of other threads go out")
        self.line.leaving = True
        self.line.flush()
        return self._disconnect(*args, **kwargs)

    # -- what the callback says ---------------------------------------------------------------------

    def _acked(self, id: Any, *args: Any, **kwargs: Any) -> None:
        self._said(ACK, self._ack, id, args, kwargs)

    def _nacked(self, id: Any, *args: Any, **kwargs: Any) -> None:
        self._said(Requeued("nack"), self._nack, id, args, kwargs)

    def _said(self, word: Exception, by_hand: Callable[..., Any], of: Any, args: Any, kwargs: Any) -> None:
        names = ("subscription", "transaction", "receipt") if self._old else ("transaction", "receipt")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        tag = (of, str(given.get("subscription"))) if self._old else of
        turn = self._open.get(tag)
        if turn is not None and given.get("transaction"):
            if not self._theirs:
                text = (
                    "%s: ACKs in a transaction go to the broker as they are, and count as neither success nor failure"
                )
                log.info(text, turn.delivery.destination)
            self._theirs[tag] = None  # after an ABORT the code may settle it again
            if len(self._theirs) > REMEMBERED:
                del self._theirs[next(iter(self._theirs))]
            self.gone(turn.delivery)
            by_hand(of, *args, **kwargs)
        elif tag in self._theirs:
            by_hand(of, *args, **kwargs)
        elif turn is not None:
            if given.get("receipt") and word is ACK:
                self._receipts[tag] = given["receipt"]
            word = because_of(word, turn.before)
            if self.line.here:
                self._tell(turn, word)
            else:
                self.line.hop(lambda: self._tell(turn, word))
        elif self._foreign and not (self._old and tag[1] in {*self.subscriptions, *self.retired}):
            by_hand(of, *args, **kwargs)
        else:
            self._late.error("a settlement of %s came too late and is dropped: it is settled already, or lost", tag)

    def _tell(self, turn: CallbackRun, word: Exception) -> None:
        """Pass a settlement on; in `client` mode an ACK is for all earlier messages too.

        It covers those of its own subscription that the code has in hand. Messages that we hold stay ours.
        """
        if word is ACK and turn.in_hand and turn.given[1].ack == "client":
            for earlier in sorted(self._open.values(), key=lambda each: each.order):
                if earlier.order < turn.order and earlier.in_hand and earlier.given[1].of == turn.given[1].of:
                    earlier.keeper.word(earlier, ACK)
        turn.keeper.word(turn, word)


def in_turn(*calls: Callable[[], object]) -> None:
    for call in calls:
        call()
