# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what a handler sends until the handler has succeeded, and discards it if the handler fails.

Every error that can be known is raised where the message is sent, in the handler: once the handler has succeeded, a
message that can never be sent would keep its source waiting.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..adapter.capabilities import Capabilities
from ..errors import ConfigError
from ..message import Checking, Delivery, Destination, Outgoing, Past, Properties
from .headers import avoiding_broker_effects

PROPERTIES = frozenset(
    {
        "content_type",
        "content_encoding",
        "correlation_id",
        "reply_to",
        "type",
        "priority",
        "group_id",
        "message_id",
    }
)
HIGHEST_PRIORITY = 255
HEADER_BYTES = 1024  # of the header budget, for the headers that we add


@dataclass(frozen=True, slots=True, eq=False)
class QueuedSend:
    """Holds one message, and when it is sent."""

    out: Outgoing
    after: float = 0.0  # seconds of the broker's own delay
    parked: bool = False  # the message waits in limbo instead
    due_us: int | None = None  # not before this time, microseconds since 1970; None: at once

    def decided(self, at_us: int) -> QueuedSend:
        """Return the message with its delay counted from now, the success of the handler."""
        return replace(self, due_us=at_us + round(self.after * 1e6)) if self.after else self

    def later(self, at_us: int, smallest: float) -> QueuedSend:
        """Return the message with its remaining delay: 0, or at least the `smallest` delay that the broker has."""
        if self.due_us is None:
            return self
        delay = (self.due_us - at_us) / 1e6
        return replace(self, after=max(delay, smallest) if delay > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class SendRules:
    """Holds what can be sent from here."""

    capabilities: Capabilities
    limbo: bool = False

    def sending(self, out: Outgoing, after: float) -> QueuedSend:
        """Return the message with what delays it: the broker, else the limbo. Raises ConfigError if neither can."""
        schedule = self.capabilities.schedule
        if not after:
            return QueuedSend(out)
        if schedule is not None and not schedule.rungs:
            return QueuedSend(out, max(after, schedule.smallest))
        if not self.limbo:
            raise ConfigError(
                f"{self.capabilities.dialect} cannot delay a message to any queue",
                where=str(out.target),
                cure='Give the App a limbo, where it waits: limbo="sqlite:///limbo.db"; or leave after= out',
                code="delay-not-possible",
            )
        return QueuedSend(out, after, parked=True)


@dataclass(slots=True, eq=False)
class Outbox:
    """Holds the messages sent during one handler run, followed by a None sentinel once the run has ended.

    `send` is called on any thread, `close` by the code that ran the handler. Appending is atomic: exactly the messages
    before the None are sent.
    """

    _rules: SendRules
    _sends: list[QueuedSend | None] = field(default_factory=list)

    def send(
        self,
        delivery: Delivery,
        destination: str | Destination,
        body: bytes | str,
        headers: Mapping[str, Any] | None,
        after: float,
        properties: Mapping[str, Any],
    ) -> None:
        """Queue a message. Raises ConfigError if it cannot be sent, and if the run is over."""
        target = Destination.parse(destination)
        where = str(target)
        if None in self._sends:
            raise _over(where)
        if isinstance(after, bool) or not isinstance(after, int | float) or not 0 <= after < math.inf:
            raise ConfigError(
                f"after={after!r} is no number of seconds from 0 on",
                where=where,
                cure="Give seconds",
                code="send-value",
            )
        out = Outgoing(
            target,
            body_bytes(body, where),
            _headers_within(self._rules.capabilities.header_bytes, headers, where),
            _properties(properties, where),
            cause=delivery,
        )
        if isinstance(delivery.reader, Checking) and (why := delivery.reader.unsendable(out)):
            raise ConfigError(
                why, where=where, cure="Send it otherwise: this driver would never take it", code="send-value"
            )
        self._keep(self._rules.sending(out, float(after)), where)

    def close(self) -> tuple[QueuedSend, ...]:
        """Return the messages sent so far; a later `send` is an error."""
        self._sends.append(None)
        return tuple(send for send in self._sends[: self._sends.index(None)] if send is not None)

    def reopened(self, sends: Sequence[QueuedSend]) -> Outbox:
        """Return an open outbox with the same rules that holds `sends`."""
        return Outbox(self._rules, list(sends))

    def is_used(self) -> bool:
        """Return whether it is open or closed with at least one message in it."""
        return bool(self._sends) and self._sends[0] is not None

    def _keep(self, sending: QueuedSend, where: str) -> None:
        self._sends.append(sending)
        if None in self._sends and self._sends.index(None) < self._sends.index(sending):
            raise _over(where)


class ClosedOutbox:
    """Takes the place of an outbox for a time: nothing can be sent, for the reason `why`."""

    def __init__(self, why: str, cure: str) -> None:
        self._why, self._cure = why, cure

    def send(self, delivery: Delivery, destination: str | Destination, *_: object) -> None:
        raise ConfigError(
            self._why, where=str(Destination.parse(destination)), cure=self._cure, code="send-not-possible"
        )

    def close(self) -> tuple[QueuedSend, ...]:
        return ()


class EndedOutbox:
    """Takes the place of an outbox when the run is over."""

    def send(self, delivery: Delivery, destination: str | Destination, *_: object) -> None:
        raise _over(str(Destination.parse(destination)))

    def close(self) -> tuple[QueuedSend, ...]:
        return ()


CLOSED = EndedOutbox()
_OUTBOXES = (Outbox, ClosedOutbox, EndedOutbox)


def close_outbox(delivery: Delivery) -> tuple[QueuedSend, ...]:
    """Return what the current run of the delivery has sent. A later `send` is an error; a second call returns the same.

    Called by the code that ran the handler.
    """
    outbox = delivery.outbox
    assert isinstance(outbox, _OUTBOXES)
    return outbox.close()


def reopen_outbox(delivery: Delivery, sends: Sequence[QueuedSend]) -> None:
    """Let the current run of the delivery send again, in addition to `sends`."""
    assert isinstance(delivery.outbox, Outbox)
    delivery.outbox = delivery.outbox.reopened(sends)


def has_sends(delivery: Delivery) -> bool:
    """Return whether the current run of the delivery has sent anything. The outbox stays open."""
    return isinstance(delivery.outbox, Outbox) and delivery.outbox.is_used()


def sends_of(
    delivery: Delivery, past: Past, lineage: str, sends: Sequence[QueuedSend], capabilities: Capabilities
) -> list[Outgoing]:
    """Return a handler's messages as they are sent when `delivery`, the latest of its message, is settled.

    Each message has an id of its own, which is also its message id unless the handler gave it one. The id is the same
    if the handler is run again and sends the same, and never that of any other message.
    """
    outs = []
    for n, sending in enumerate(sends):
        out = sending.out
        id_of_send = _id(lineage, past.generation, n, out)
        properties = replace(out.properties, message_id=out.properties.message_id or id_of_send)
        headers = avoiding_broker_effects(out.headers, capabilities)
        outs.append(replace(out, headers=headers, properties=properties, copy_id=id_of_send, cause=delivery))
    return outs


def _id(lineage: str, generation: int, n: int, out: Outgoing) -> str:
    """Return the id of the n-th message that a handler sends.

    The content is part of the id: another run may send something else, which must not be taken for the same message.
    """
    identity = repr((lineage, generation, n, str(out.target), dict(out.headers), out.properties))
    return hashlib.sha256(identity.encode("utf-8", "backslashreplace") + b"\0" + out.body).hexdigest()[:32]


def _over(where: str) -> ConfigError:
    return ConfigError(
        "Delivery.send came after its handler was over",
        where=where,
        cure="Send before the handler returns, and wait for its threads",
        code="send-not-possible",
    )


def body_bytes(body: object, where: str) -> bytes:
    """Return the body of a message to be sent; a str is encoded as UTF-8. Raises ConfigError for any other type."""
    if isinstance(body, str):
        try:
            return body.encode()
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"its body is no UTF-8: {error.reason}", where=where, cure="Send bytes", code="send-value"
            ) from None
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise ConfigError(
        f"its body is a {type(body).__name__}, not bytes or str",
        where=where,
        cure="Encode it, as with json.dumps",
        code="send-value",
    )


def header_table(headers: object, where: str) -> dict[str, Any]:
    """Return the headers of a message to be sent. Raises ConfigError if they are no mapping, or a name is no text."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise ConfigError(
            f"its headers are a {type(headers).__name__}, not a mapping",
            where=where,
            cure='Write {"name": value}',
            code="send-value",
        )
    for name in headers:
        if not isinstance(name, str) or not name:
            raise ConfigError(
                f"{name!r} is no name of a header", where=where, cure="Name headers by texts", code="send-value"
            )
    return dict(headers)


def _headers_within(most: int, headers: object, where: str) -> dict[str, Any]:
    table = header_table(headers, where)
    size = sum(len(name) + _size(value) for name, value in table.items())
    if size > most - HEADER_BYTES:
        raise ConfigError(
            f"its headers take {size} bytes, the broker takes {most - HEADER_BYTES}",
            where=where,
            cure="Put more into the body",
            code="headers-too-large",
        )
    return table


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "replace"))
    return len(value) if isinstance(value, bytes) else 8


def _properties(given: Mapping[str, Any], where: str) -> Properties:
    for name, value in given.items():
        if name not in PROPERTIES:
            known = ", ".join(sorted(PROPERTIES))
            raise ConfigError(
                f"{name} is no property of a message", where=where, cure=f"Use {known}, or a header", code="send-value"
            )
        if name == "priority":
            right = value is None or (type(value) is int and 0 <= value <= HIGHEST_PRIORITY)
        else:
            right = value is None or (isinstance(value, str) and value != "")
        if not right:
            wanted = f"a whole number to {HIGHEST_PRIORITY}" if name == "priority" else "a text"
            raise ConfigError(
                f"{name}={value!r} is not {wanted}", where=where, cure=f"Give {name} {wanted}", code="send-value"
            )
    return Properties(**given)
