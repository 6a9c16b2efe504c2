# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes copies with confirms and `mandatory`, and no second copy while the first may still be answered.

On the thread of the adapter's I/O loop. A copy counts as sent on the broker's confirm, when it was not returned before
(confirm-before-settle). Silence closes the link before it is reported (failed-target); a broker in memory alarm stops
the clock.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

from pika import spec
from pika.adapters.select_connection import IOLoop

from redeliver_mw.adapter import OnAnswer
from redeliver_mw.adapter.kit.connection_state import ConnectionState
from redeliver_mw.adapter.kit.publish_queue import PublishQueue
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Outgoing
from redeliver_pika.amqp.properties import RawProperties
from redeliver_pika.connection import OpenConnection, PikaConnection
from redeliver_pika.messages import NAME_BYTES, frame_properties

log = logging.getLogger("redeliver_mw.pika")

PATIENCE = 30.0  # seconds in which a confirm has to come
_TOO_LARGE = re.compile(r"message size \d+ is larger than configured max size (\d+)")
NO_ROUTE = "(312)"  # ends the refusal of a copy for which there is no queue


@dataclass(slots=True, eq=False)
class _SentCopy:
    exchange: str
    routing_key: str
    properties: bytes  # encoded
    body: bytes
    answer: OnAnswer
    out: Outgoing
    returned: str = ""
    since: float = 0.0
    waited: float = 0.0

    @property
    def generation(self) -> int | None:
        return self.out.generation


class PublishTimers(Protocol):
    """Is what the publisher needs of a loop."""

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> object: ...


class Publisher:
    """Publishes on a connection of its own, or on one that it is given: `link` then stands for that."""

    def __init__(
        self, timers: PublishTimers, link: Any, *, patience: float = PATIENCE, closed: Callable[[], None] = lambda: None
    ) -> None:
        self._link, self._closed = link, closed
        self.started = False
        self.state: ConnectionState | None = None  # of a connection of its own
        self._channel: Any = None
        self._publish: Callable[..., None]  # pika's own, with the channel first
        self._next = 1  # the delivery tag of the next publish on this channel
        self._blocked = False
        self._patience = patience
        self._copies: PublishQueue[_SentCopy] = PublishQueue(
            call_later=timers.call_later,
            patience=lambda: self._patience,
            silent=self._give_up,
            paused=lambda: self._blocked,
        )
        self._largest: int | None = None  # bytes of a body; None: the broker has refused none for its size

    @classmethod
    def at(cls, ioloop: IOLoop, url: BrokerUrl, closed: Callable[[], None] = lambda: None) -> Self:
        """Return a publisher with a connection of its own."""
        made = cls(ioloop, None, closed=closed)
        link = PikaConnection(ioloop, url, "publish", up=made._up, down=made._down)
        made._link, made.state = link, link.state
        return made

    def open(self) -> None:
        self.started = True
        self._link.open()

    def use(self, connection: Any) -> None:
        """Take a channel on this connection, which somebody else keeps, in place of `open`."""
        self.started = True
        self._up(connection)

    def close(self) -> None:
        self._link.close()
        self.end("we are closing")

    def end(self, why: str) -> None:
        """Answer every copy: those that were written *silent*, the others *unsent*."""
        self._copies.close(why)

    @property
    def is_closed(self) -> bool:
        return self._link.connection is None

    @property
    def idle(self) -> bool:
        return self._copies.idle

    def publish(self, out: Outgoing, exchange: str, routing_key: str, answer: OnAnswer) -> None:
        """Publish a copy, once the link is up. One answer comes for each call."""
        if len(routing_key.encode("utf-8", "replace")) > NAME_BYTES:  # pika raises only when it writes the frame
            answer("refused", f"no queue can be called so: its name has more than {NAME_BYTES} bytes")
            return
        try:
            properties = b"".join(frame_properties(out).encode())
        except ValueError as error:
            answer("unfit", f"it cannot be encoded: {error}")
            return
        if self._largest is not None and len(out.body) > self._largest:
            answer("unfit", self._too_large(len(out.body)))
            return
        sent = _SentCopy(exchange, routing_key, properties, out.body, answer, out)
        if self._can_write:
            self._write(sent)
        else:
            self._copies.add(sent)

    @property
    def _can_write(self) -> bool:
        return self._channel is not None and self._channel.is_open and not self._blocked

    def forget(self, generation: int) -> None:
        """Drop copies that are not written yet, for deliveries of a lost generation."""
        self._copies.forget(generation)

    def _write(self, sent: _SentCopy) -> None:
        self._copies.written(self._next, sent)
        self._next += 1
        properties = RawProperties.from_raw(sent.properties)
        self._publish(self._channel, sent.exchange, sent.routing_key, sent.body, properties, mandatory=True)

    # -- the channel ------------------------------------------------------------------------------

    def _up(self, connection: OpenConnection) -> None:
        self._blocked, self._largest = False, None
        connection.add_on_connection_blocked_callback(lambda _, frame: self._block(True, frame.method.reason))
        connection.add_on_connection_unblocked_callback(lambda *_: self._block(False))
        connection.channel(on_open_callback=self._opened)

    def _opened(self, channel: Any) -> None:
        channel.add_on_close_callback(self._channel_closed)
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: self._ready(channel))

    def _ready(self, channel: Any) -> None:
        self._channel, self._next = channel, 1
        # Past what instrumentation has put on the channel object or around its class's method: OpenTelemetry's replaces
        # the `traceparent` of whatever is published, and a copy carries the user's headers as they were.
        self._publish = inspect.unwrap(type(channel).basic_publish)
        self._flush()

    def _flush(self) -> None:
        while self._copies.unwritten and self._can_write:
            self._write(self._copies.unwritten.popleft())

    def _block(self, blocked: bool, reason: str = "") -> None:
        self._blocked = blocked
        if self.state is not None:
            self.state.block(f"the broker blocks publishing: {reason or 'it does not say why'}" if blocked else "")
        log.warning("the broker blocks publishing: copies wait" if blocked else "the broker takes copies again")
        self._flush()

    def _channel_closed(self, channel: Any, reason: BaseException) -> None:
        if channel is self._channel or self._channel is None:
            self._channel = None
            self._answer_too_large(reason)
            self._copies.answer_unanswered(f"the channel was closed: {reason}")
            if self._link.is_open and self._link.connection is not None:
                self._link.connection.channel(on_open_callback=self._opened)

    def _down(self, error: BaseException) -> None:
        self._channel, self._blocked = None, False
        self._copies.answer_unanswered(f"the publishing link was lost: {error}")
        self._closed()

    # -- answers ----------------------------------------------------------------------------------

    def _returned(self, _channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Note a copy that could not be routed. The next confirm does not count; equal copies are interchangeable."""
        way, why = (method.exchange, method.routing_key), f"{method.reply_text} ({method.reply_code})"
        there = [s for s in self._copies.unanswered.values() if not s.returned and (s.exchange, s.routing_key) == way]
        encoded = b"".join(properties.encode())
        same = [s for s in there if s.properties == encoded and s.body == body][:1]
        if not same:  # RabbitMQ 4.3.6 writes the headers in another order
            id_of_copy = (properties.headers or {}).get("redeliver_copy_id")
            known = [s for s in there if id_of_copy and s.out.copy_id == id_of_copy]
            named = [s for s in there if s.out.properties.message_id == properties.message_id is not None]
            same = known or [s for s in named if s.body == body]
        for sent in same or there:  # not recognised: doubt falls on all that went the same way
            sent.returned = why

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._copies.unanswered if tag <= method.delivery_tag or method.delivery_tag == 0]
        acked = isinstance(method, spec.Basic.Ack)
        for tag in tags:
            if (sent := self._copies.unanswered.pop(tag, None)) is None:
                continue
            if acked and not sent.returned:
                sent.answer("ok", "")
            else:
                sent.answer("refused", sent.returned or "the broker refused it (nack)")

    def _answer_too_large(self, reason: BaseException) -> None:
        """Learn how large a message may be; those above that are refused for ever, and would close each channel.

        Seen on RabbitMQ 3.10.8 and 4.3.6: the broker closes the channel, and what was published in it before may be
        stored without a confirm. It tells the limit nowhere else.
        """
        found = _TOO_LARGE.search(str(reason))
        if found is None:
            return
        self._largest = most = int(found[1])
        written, waiting = self._copies.unanswered, self._copies.unwritten
        for tag in [tag for tag, sent in written.items() if len(sent.body) > most]:
            sent = written.pop(tag)
            sent.answer("unfit", self._too_large(len(sent.body)))
        for sent in [sent for sent in waiting if len(sent.body) > most]:
            waiting.remove(sent)
            sent.answer("unfit", self._too_large(len(sent.body)))

    def _too_large(self, size: int) -> str:
        return f"its body has {size} bytes, the broker takes {self._largest} (max_message_size)"

    def _give_up(self) -> None:
        """Close first, tell afterwards: `_down` answers what was written, once nothing can confirm it any more."""
        why = f"no confirm within {self._patience:g} s"
        log.warning("%s: the publishing link is closed and opened again", why)
        self._link.abort(ConnectionError(why))
