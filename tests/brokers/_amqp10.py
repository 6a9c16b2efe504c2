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
    with _connection(host, port, user, password, 10) as connection:
        properties: Any = connection.conn.remote_properties  # None only once closed
    return str({str(name): value for name, value in (properties or {}).items()}.get("version", "unknown"))


def serves(host: str, port: int, user: str, password: str) -> bool:
    """Return whether the server lets us in."""
    try:
        with _connection(host, port, user, password, 5):
            return True
    except ConnectionError:
        return False


def manage(
    host: str, port: int, user: str, password: str, resource: str, name: str, parameters: Sequence[str] = ()
) -> Any:
    """Make one management call of Artemis: an operation if `parameters` or a trailing `()`, else an attribute.

    Raises ValueError with the broker's words if the broker says no; ConnectionError.
    """
    from proton import Message

    operation = bool(parameters) or name.endswith("()")
    asked = {
        "_AMQ_ResourceName": resource,
        "_AMQ_OperationName" if operation else "_AMQ_Attribute": name.removesuffix("()"),
    }
    with _connection(host, port, user, password, 10) as connection:
        receiver = connection.create_receiver(None, dynamic=True, credit=1)
        sender = connection.create_sender("activemq.management")
        body = json.dumps([_value(parameter) for parameter in parameters])
        sender.send(Message(body=body, reply_to=receiver.link.remote_source.address, properties=asked))
        answer: Any = receiver.receive(timeout=10)
        receiver.accept()
    value = (json.loads(answer.body) if answer.body else None) or [None]
    if not answer.properties.get("_AMQ_OperationSucceeded"):
        raise ValueError(str(value[0] if isinstance(value, list) else value))
    return value[0] if isinstance(value, list) else value


def _value(word: str) -> Any:
    """Return true, false and numbers as they are meant; everything else is text."""
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return value if isinstance(value, bool | int | float) else word


@contextmanager
def _connection(host: str, port: int, user: str, password: str, seconds: float) -> Iterator[BlockingConnection]:
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
