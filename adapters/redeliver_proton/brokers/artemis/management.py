# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks the broker's management address, over the connection that there is. On the connection's thread."""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable
from typing import Any

import proton

from redeliver_mw.errors import BrokerError, BrokerUnavailable
from redeliver_proton.amqp.codec import compound, read, write
from redeliver_proton.amqp.sections import APPLICATION, PROPERTIES, VALUE, Received
from redeliver_proton.loop import CallLoop

ADDRESS = "activemq.management"
TIMEOUT = 10.0  # seconds for one answer
CREDIT = 200
OnReply = Callable[[Any], None]  # the result, or a BrokerError


class ManagementDenied(BrokerError):
    """Reports that this user may not ask, so that the state of the broker stays unknown."""

    code = "management-refused"


class ManagementReply(BrokerError):
    """Reports the broker's own error: what was asked for is not there, or cannot be done."""

    code = "management-refused"


class ArtemisManagement(proton.Handler):
    """Asks on links of its own, in a session of its own: a refusal there ends nothing else."""

    def __init__(self, loop: CallLoop, connection: proton.Connection) -> None:
        self._loop = loop
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[OnReply, Any]] = {}
        self._queue: deque[tuple[str, bytes]] = deque()
        self._denied: BrokerError | None = None
        self._reply_to = ""
        self._session = connection.session()
        self._session.handler = self
        self._session.open()
        number = id(self)
        self._receiver = self._session.receiver(f"replies-{number:x}")
        self._receiver.source.dynamic = True
        self._sender = self._session.sender(f"questions-{number:x}")
        self._sender.target.address = ADDRESS
        self._receiver.open()
        self._receiver.flow(CREDIT)
        self._sender.open()

    def ask(self, resource: str, operation: str, *arguments: Any, answer: OnReply) -> None:
        """Call an operation of `broker`, `queue.NAME` or `address.NAME`."""
        self._ask({"_AMQ_ResourceName": resource, "_AMQ_OperationName": operation}, arguments, answer)

    def attribute(self, resource: str, name: str, answer: OnReply) -> None:
        self._ask({"_AMQ_ResourceName": resource, "_AMQ_Attribute": name}, (), answer)

    def lost(self, error: BaseException) -> None:
        """Answer every open question: the connection is gone."""
        self._deny(BrokerUnavailable(f"the connection was lost: {error}", code="connection-lost"))

    def _ask(self, names: dict[str, str], arguments: Any, answer: OnReply) -> None:
        if self._denied is not None:
            return answer(self._denied)
        number = str(next(self._numbers))
        timer = self._loop.call_later(
            TIMEOUT, lambda: self._reply(number, BrokerUnavailable("management does not answer", code="broker-timeout"))
        )
        self._waiting[number] = (answer, timer)
        parts = [write(part) for pair in names.items() for part in pair]
        self._queue.append((number, _section(APPLICATION, compound(0xC1, 0xD1, parts)) + _body(arguments)))
        self._flush()

    def _flush(self) -> None:
        while self._queue and self._reply_to and self._sender.credit > 0:
            number, rest = self._queue.popleft()
            fields = [write(value) for value in (None, None, None, None, self._reply_to, number)]
            delivery = self._sender.delivery(number)
            self._sender.stream(_section(PROPERTIES, compound(0xC0, 0xD0, fields)) + rest)
            self._sender.advance()
            delivery.settle()

    def _reply(self, number: str, result: Any) -> None:
        if number in self._waiting:
            answer, timer = self._waiting.pop(number)
            timer.cancel()
            answer(result)

    def _deny(self, error: BrokerError) -> None:
        self._denied = error
        self._queue.clear()
        for number in list(self._waiting):
            self._reply(number, error)

    # -- the driver's events ----------------------------------------------------------------------

    def on_link_remote_open(self, event: Any) -> None:
        if event.link == self._receiver:
            self._reply_to = self._receiver.remote_source.address or ""
        self._flush()

    def on_link_flow(self, event: Any) -> None:
        self._flush()

    def on_link_remote_close(self, event: Any) -> None:
        condition = event.link.remote_condition
        self._deny(
            ManagementDenied(f"the broker allows no management requests: {condition.description if condition else ''}")
        )
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def on_session_remote_close(self, event: Any) -> None:
        self._deny(ManagementDenied("the broker ended the session for management requests"))
        event.session.close()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link == self._sender:
            return
        if delivery.readable and not delivery.partial:
            reply = Received(bytes(self._receiver.recv(delivery.pending) or b""))
            self._receiver.advance()
            delivery.update(proton.Delivery.ACCEPTED)
            delivery.settle()
            self._receiver.flow(1)
            self._reply(str(reply.field("correlation_id")), result_of(reply))


def result_of(reply: Received) -> Any:
    """Return the broker's answer, from JSON; a `ManagementReply` where it answered with an error."""
    text = reply.body_bytes().decode("utf-8", "replace")
    try:
        found = json.loads(text) if text else [None]
    except ValueError:
        found = [text]
    value = found[0] if isinstance(found, list) and found else found
    where = reply.application.get("_AMQ_OperationSucceeded")
    if where is None or read(reply.raw, where[0]) is not True:
        refused = "AMQ229032" in str(value) or "does not have permission" in str(value)
        return (ManagementDenied if refused else ManagementReply)(str(value))
    return value


def _body(arguments: Any) -> bytes:
    return _section(VALUE, write(json.dumps(list(arguments))))


def _section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + value
