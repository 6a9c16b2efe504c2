# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers messages that cannot be acked over STOMP at all: an AMQP producer gave them an id of its own.

ActiveMQ answers their ACK by closing the connection without a word (or, where the id looks like one of its own,
with an ERROR), and keeps the message: it would come back for ever, and be run and dead-lettered each time. So
one round is enough: afterwards such a message is left where it is, in this process, and its neighbours go on.
"""

from __future__ import annotations

import logging
import re

from redeliver_mw.message import Destination
from redeliver_stomp.frames import RawFrame

log = logging.getLogger("redeliver_mw.stomp")

MOST = 10_000  # that are remembered
Mark = tuple[bytes, bytes]  # message id and timestamp, as on the wire
_OWN_ID = re.compile(rb"ID\\c.+(?:\\c-?\d+){4}\Z")
_UNEXPECTED = re.compile(r"Unexpected ACK received for message-id \[(.*)\]", re.DOTALL)
_proved: set[str] = set()  # brokers that were seen to do this
_convicted: dict[tuple[str, Destination], dict[Mark, None]] = {}


def mark_of(frame: RawFrame) -> Mark:
    return frame.raw(b"message-id"), frame.raw(b"timestamp")


def odd(message_id: bytes) -> bool:
    """Return whether an id, as on the wire, is none of a broker's own: an ack of it may close the connection."""
    return _OWN_ID.match(message_id) is None


def doubtful(frame: RawFrame) -> bool:
    """Return whether a message may have such an id; messages of AMQP producers are watched in any case."""
    return b"\nJMS_AMQP_" in frame.head or odd(frame.raw(b"message-id"))


def hit_nothing(error: str) -> bool:
    """Return whether an ERROR says that an ACK was for a message which cannot be acked."""
    found = _UNEXPECTED.search(error)
    return found is not None and found[1] != "null"


class UnackableMessages:
    """Keeps the unackable messages of one source on one broker, for all connections of this process.

    Called on the threads of their loops.
    """

    def __init__(self, broker: str, source: Destination) -> None:
        self._broker, self._source = broker, source
        self._marks = _convicted.setdefault((broker, source), {})

    def __len__(self) -> int:
        return len(self._marks)

    def __contains__(self, frame: RawFrame) -> bool:
        return bool(self._marks) and mark_of(frame) in self._marks

    def hopeless(self, mark: Mark) -> bool:
        """Return whether this broker was seen to close a connection for an ack of such an id."""
        return self._broker in _proved and odd(mark[0])

    def add(self, mark: Mark) -> None:
        """Leave the message in its queue from now on; it is logged once."""
        if mark in self._marks:
            return
        _proved.add(self._broker)
        self._marks[mark] = None
        if len(self._marks) > MOST:
            del self._marks[next(iter(self._marks))]
        log.error(
            "%s: message %s cannot be acked over STOMP, because its producer gave it an AMQP message-id. It stays in "
            "the queue and is not run again here. Let the producer set no message-id, and take it out over AMQP",
            self._source,
            mark[0].decode("utf-8", "replace").replace("\\c", ":"),
        )
