# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks an AMQP 1.0 server with proton: who are you, do you let me in? Asks Artemis through its management, too.

proton is imported where it is used: the other brokers' tests run without it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from proton.utils import BlockingConnection

ANSWERED = 30.0  # seconds for the answer to a management call
_making = threading.Lock()


def plain_connection(url: str, **options: Any) -> BlockingConnection:
    """Connect without TLS.

    Each of proton's containers reads all certificates of the system twice, which takes a tenth of a second of
    processor time. The container of this connection is made as where proton has no TLS.
    """
    from proton import SSLUnavailable
    from proton.reactor import Container
    from proton.utils import BlockingConnection

    with _making, mock.patch("proton._reactor.SSLConfig", side_effect=SSLUnavailable):
        container = Container()
    return BlockingConnection(url, container=container, **options)


def server_version(host: str, port: int, user: str, password: str) -> str:
    """Return the version that the server reports, as in "2.44.0". Raises ConnectionError with the cause in words."""
    with connection_to(host, port, user, password) as connection:
        properties: Any = connection.conn.remote_properties  # None only once closed
    return str({str(name): value for name, value in (properties or {}).items()}.get("version", "unknown"))


def serves(host: str, port: int, user: str, password: str) -> bool:
    """Return whether the server lets us in."""
    try:
        with connection_to(host, port, user, password, 5):
            return True
    except ConnectionError:
        return False


def manage(
    host: str, port: int, user: str, password: str, resource: str, name: str, parameters: Sequence[str] = ()
) -> Any:
    """Make one management call of Artemis, on a connection of its own, and return its answer as `Management.ask` does.

    Raises as `Management.ask`, and ConnectionError.
    """
    with connection_to(host, port, user, password) as connection:
        return Management(connection).ask(resource, name, parameters)


class Management:
    """Makes management calls of Artemis on one connection."""

    def __init__(self, connection: BlockingConnection) -> None:
        self._receiver = connection.create_receiver(None, dynamic=True, credit=1)
        self._sender = connection.create_sender("activemq.management")

    def ask(self, resource: str, name: str, parameters: Sequence[str] = ()) -> Any:
        """Make a call: an operation if there are `parameters` or a trailing `()`, else the reading of an attribute.

        Raises ValueError with the broker's words if the broker says no; what proton raises.
        """
        from proton import Message

        operation = bool(parameters) or name.endswith("()")
        asked = {
            "_AMQ_ResourceName": resource,
            "_AMQ_OperationName" if operation else "_AMQ_Attribute": name.removesuffix("()"),
        }
        body = json.dumps([_value(parameter) for parameter in parameters])
        self._sender.send(Message(body=body, reply_to=self._receiver.link.remote_source.address, properties=asked))
        answer: Any = self._receiver.receive(timeout=ANSWERED)
        self._receiver.accept()
        value = (json.loads(answer.body) if answer.body else None) or [None]
        if not answer.properties.get("_AMQ_OperationSucceeded"):
            raise ValueError(str(value[0] if isinstance(value, list) else value))
        return value[0] if isinstance(value, list) else value

    def make_queue(self, queue: str, address: str | None = None, routing: str = "ANYCAST") -> None:
        """Make a durable queue, at the address of its name if no other is given, unless it is there already."""
        wanted = {"name": queue, "address": address or queue, "routing-type": routing, "durable": True}
        self.ask("broker", "createQueue", [json.dumps(wanted), "true"])


def _value(word: str) -> Any:
    """Return true, false and numbers as they are meant; everything else is text."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return value if isinstance(value, bool | int | float) else word


@contextmanager
def connection_to(
    host: str, port: int, user: str, password: str, seconds: float = 10.0
) -> Iterator[BlockingConnection]:
    """Connect, and close the connection in the end. What proton or the system raises becomes a ConnectionError."""
    from proton import ProtonException

    connection = None
    try:
        connection = plain_connection(
            f"amqp://{host}:{port}",
            timeout=seconds,
            user=user,
            password=password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            heartbeat=None,
        )
        yield connection
    except (ProtonException, OSError) as error:
        raise ConnectionError(str(error) or repr(error)) from error
    finally:
        if connection is not None:
            connection.close()
