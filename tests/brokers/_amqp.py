# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks an AMQP 0-9-1 server two questions with pika: who are you, and do you do your work?"""

from __future__ import annotations

from urllib.parse import unquote

import pika
import pika.exceptions


def server_version(host: str, port: int, user: str, password: str, path: str) -> str:
    """Return the version that the server reports, as in "3.10.8". Raises ConnectionError with the cause in words."""
    connection = _connect(host, port, user, password, unquote(path[1:]) or "/", 10)
    try:
        properties = connection._impl.server_properties or {}  # pika has no public name for it
        version = properties.get("version", b"unknown")
    finally:
        connection.close()
    return version.decode() if isinstance(version, bytes) else str(version)


def serves(host: str, port: int, user: str, password: str) -> bool:
    """Return whether a message can be published with a confirm and fetched again."""
    try:
        connection = _connect(host, port, user, password, "/", 5)
    except ConnectionError:
        return False
    try:
        channel = connection.channel()
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.confirm_delivery()
        channel.basic_publish("", queue, b"there?", mandatory=True)
        return bool(channel.basic_get(queue, auto_ack=True)[2] == b"there?")
    except (pika.exceptions.AMQPError, OSError):
        return False  # still starting
    finally:
        if connection.is_open:
            connection.close()


def _connect(host: str, port: int, user: str, password: str, vhost: str, seconds: float) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        host=host,
        port=port,
        virtual_host=vhost,
        credentials=pika.PlainCredentials(user, password),
        socket_timeout=seconds,
        stack_timeout=seconds,
        blocked_connection_timeout=seconds,
    )
    try:
        return pika.BlockingConnection(parameters)
    except Exception as error:  # pika lets socket errors and timeouts of its own through: all mean the same here
        cause = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
        raise ConnectionError(str(cause) or repr(cause)) from error
