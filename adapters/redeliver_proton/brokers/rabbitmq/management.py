# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks RabbitMQ's management over AMQP 1.0: requests like HTTP's on a pair of links. On the loop's thread.

Only what is known to be understood is asked: to anything else 4.3 answers by ending the session.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable
from typing import Any

import proton

from redeliver_mw.errors import BrokerError
from redeliver_proton.amqp.codec import compound, read, write
from redeliver_proton.amqp.sections import PROPERTIES, VALUE, Received
from redeliver_proton.loop import CallLoop

NODE = "/management"
REPLY_TO = "$me"
TIMEOUT = 10.0  # seconds for one answer
CREDIT = 100
OnReply = Callable[[int, Any], None]  # the status as HTTP has it, and the body; 0 and a BrokerError: nobody answered


class RabbitManagement(proton.Handler):
    """Asks on a pair of links of its own, in a session of its own: what ends that ends nothing else.

    A question that this user may not ask ends the session, too: the next one opens another.
    """

    def __init__(self, loop: CallLoop, connection: proton.Connection) -> None:
        self._loop, self._connection = loop, connection
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[OnReply, Any]] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._lost: BrokerError | None = None
        self._paired = False
        self._session: Any = None

    def _open(self) -> None:
        self._paired = False
        self._session = self._connection.session()
        self._session.handler = self
        self._session.open()
        name = f"redeliver-management-{next(self._numbers)}-{id(self):x}"
        self._sender = self._session.sender(name)
        self._receiver = self._session.receiver(name)
        for link in (self._sender, self._receiver):
            link.source.address = link.target.address = NODE
            link.properties = {proton.symbol("paired"): True}
        self._sender.snd_settle_mode = proton.Link.SND_SETTLED
        self._sender.open()
        self._receiver.open()
        self._receiver.flow(CREDIT)

    def ask(self, method: str, path: str, answer: OnReply, body: Any = None) -> None:
        if self._lost is not None:
            return answer(0, self._lost)
        if self._session is None:
            self._open()
        number = str(next(self._numbers))
        late = BrokerError("the broker's management does not answer", code="broker-timeout")
        timer = self._loop.call_later(TIMEOUT, lambda: self._reply(number, 0, late))
        self._waiting[number] = (answer, timer)
        fields = compound(0xC0, 0xD0, [write(field) for field in (number, None, path, method, REPLY_TO)])
        self._queue.append((number, _section(PROPERTIES, fields) + _section(VALUE, write(body))))
        self._flush()

    def lost(self, error: BaseException) -> None:
        """Answer every open question: the connection is gone."""
        self._lost = BrokerError(f"the connection was lost: {error}", code="connection-lost")
        self._end(self._lost)

    def _flush(self) -> None:
        while self._queue and self._paired and self._sender.credit > 0:
            number, data = self._queue.popleft()
            delivery = self._sender.delivery(number)
            self._sender.stream(data)
            self._sender.advance()
            delivery.settle()

    def _reply(self, number: str, status: int, body: Any) -> None:
        if number in self._waiting:
            answer, timer = self._waiting.pop(number)
            timer.cancel()
            answer(status, body)

    def _end(self, error: BrokerError) -> None:
        self._session = None
        self._queue.clear()
        for number in list(self._waiting):
            self._reply(number, 0, error)

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if self._session is not None and event.link == self._receiver:
            self._paired = True
            self._flush()

    def on_link_flow(self, event: Any) -> None:
        self._flush()

    def on_link_remote_close(self, event: Any) -> None:
        if event.session == self._session:
            self._end(_denied(event.link.remote_condition))
            event.session.close()

    on_link_remote_detach = on_link_remote_close

    def on_session_remote_close(self, event: Any) -> None:
        if event.session == self._session:
            self._end(_denied(event.session.remote_condition))
        event.session.close()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if self._session is None or event.link != self._receiver or not delivery.readable or delivery.partial:
            return
        reply = Received(bytes(self._receiver.recv(delivery.pending) or b""))
        self._receiver.advance()
        delivery.update(proton.Delivery.ACCEPTED)
        delivery.settle()
        self._receiver.flow(1)
        status = str(reply.field("subject"))
        self._reply(str(reply.field("correlation_id")), int(status) if status.isdigit() else 500, _body(reply))


def _denied(condition: Any) -> BrokerError:
    why = f"{condition.name}: {condition.description}" if condition else "the broker ended the session"
    return BrokerError(
        f"the broker answers no management request: {why}",
        cure="Check this user's permissions",
        code="management-refused",
    )


def _body(reply: Received) -> Any:
    _ = reply.parts
    return next((read(reply.raw, value) for code, _, value in reply.body if code == VALUE), None)


def _section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value
