# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps one connection of pika's up: opens and closes it, and says what a refusal means.

All of it runs on the thread of the adapter's I/O loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import pika
from pika import exceptions
from pika.adapters.select_connection import IOLoop

from redeliver_mw.adapter.kit.ledger_scope import scope_of_cluster
from redeliver_mw.adapter.kit.reconnect import Reconnector
from redeliver_mw.adapter.kit.tls_errors import unavailable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import ConfigError, CredentialsRefused, RedeliverError
from redeliver_mw.message import text_of
from redeliver_pika.amqp.exact_headers import ExactFrames

log = logging.getLogger("redeliver_mw.pika")

PORT, TLS_PORT = 5672, 5671
READ_BYTES = 1 << 16  # at most, at a time
HANDSHAKE_TIMEOUT = 10.0  # seconds for TCP, TLS and AMQP together: a silent peer
OPTIONS = {"heartbeat", "connection_name", "management", "delayed_retry"}


class OpenConnection(ExactFrames, pika.SelectConnection):
    """Is pika's connection, with headers read exactly, and more of them at a time."""

    def _proto_connection_made(self, transport: Any) -> None:
        # pika reads 4 KiB at a time. Each read lets go of Python's lock, and gets it back only some milliseconds later
        # if another thread computes meanwhile. A pika that does not have the attribute does not miss it.
        transport._MAX_RECV_BYTES = READ_BYTES
        super()._proto_connection_made(transport)

    def _on_connection_workflow_done(self, outcome: Any) -> None:
        # Closed during its handshake, pika 1.4.4 passes an exception's class where it then wants an exception.
        super()._on_connection_workflow_done(outcome() if isinstance(outcome, type) else outcome)


def ledger_scope(connection: Any, broker: str) -> str:
    """Return what the ledger of an open connection is kept for: its cluster and virtual host, on whichever node.

    `broker` stands for a server that tells no cluster name.
    """
    cluster = text_of((connection.server_properties or {}).get("cluster_name"))
    return scope_of_cluster(cluster, connection.params.virtual_host) if cluster else broker


def delayed_retry(url: BrokerUrl) -> float | None:
    """Return for how many seconds the queues keep back what is nacked, as the URL says; None if it does not.

    ConfigError for what is no number of seconds.
    """
    text = url.options.get("delayed_retry")
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        cure = "delayed_retry=0.5, or 0 where there is none"
        raise ConfigError(
            f"delayed_retry={text!r} is no number of seconds", where=url.text, cure=cure, code="broker-url-option"
        )
    return seconds


def parameters(url: BrokerUrl, role: str) -> list[pika.ConnectionParameters]:
    """Return one set for each host of the URL, with its TLS files as they are now. ConfigError for a bad option."""
    url.check_options(OPTIONS)
    tls = url.tls_context()
    heartbeat = url.options.get("heartbeat")
    if heartbeat is not None and not heartbeat.isdigit():
        raise ConfigError(
            f"heartbeat={heartbeat!r} is no whole number of seconds",
            where=url.text,
            cure="heartbeat=60",
            code="broker-url-option",
        )
    name = url.options.get("connection_name", "redeliver-mw")
    return [
        pika.ConnectionParameters(
            host=host or "localhost",
            port=port or (TLS_PORT if tls else PORT),
            virtual_host=url.path or "/",
            credentials=pika.PlainCredentials(
                "guest" if url.user is None else url.user, "guest" if url.password is None else url.password
            ),
            ssl_options=pika.SSLOptions(tls, host) if tls else None,
            heartbeat=int(heartbeat) if heartbeat else None,
            socket_timeout=HANDSHAKE_TIMEOUT / 2,
            stack_timeout=HANDSHAKE_TIMEOUT,
            client_properties={"connection_name": f"{name} ({role})"},
        )
        for host, port in url.hosts
    ]


class PikaConnection:
    """Opens, and opens again after each loss until `close`. Callbacks run on the loop's thread.

    With `failed`, a first connect that does not come about is given up and reported; without it, tried for ever.
    """

    def __init__(
        self,
        ioloop: IOLoop,
        url: BrokerUrl,
        role: str,
        *,
        up: Callable[[OpenConnection], None],
        down: Callable[[BaseException], None],
        failed: Callable[[RedeliverError], None] | None = None,
    ) -> None:
        self._ioloop, self._url, self._role, self._up = ioloop, url, role, up
        parameters(url, role)  # a mistake in the URL is reported at once
        self._reconnector = Reconnector(
            url,
            role,
            log,
            usual_port=TLS_PORT if url.flag("tls") else PORT,
            call_later=ioloop.call_later,
            connect=self._connect,
            down=down,
            meaning=self._meaning,
            failed=failed,
        )
        self.connection: OpenConnection | None = None
        self.state = self._reconnector.state

    def open(self) -> None:
        self._reconnector.open()

    @property
    def closing(self) -> bool:
        return self._reconnector.closing

    def _connect(self) -> None:
        each = parameters(self._url, self._role)  # a certificate may have been renewed
        self.connection = OpenConnection(
            each[self._reconnector.host_index],
            on_open_callback=self._opened,
            on_open_error_callback=lambda _, error: self._ended(error, was_open=False),
            on_close_callback=lambda _, error: self._ended(error, was_open=True),
            custom_ioloop=self._ioloop,
        )

    def close(self) -> None:
        """Close the connection, and open it no more."""
        self._reconnector.close()
        self.drop()

    def drop(self) -> None:
        """Close what is open now, as after a loss."""
        connection = self.connection
        if connection is not None and not (connection.is_closed or connection.is_closing):
            connection.close()

    def abort(self, reason: Exception) -> None:
        """Cut it: the peer is not to be asked for a goodbye."""
        connection = self.connection
        if connection is not None and not connection.is_closed:
            connection._terminate_stream(reason)

    @property
    def is_open(self) -> bool:
        return self.connection is not None and self.connection.is_open

    def _opened(self, connection: OpenConnection) -> None:
        self._reconnector.opened()
        self._up(connection)

    def _ended(self, error: BaseException, *, was_open: bool) -> None:
        self.connection = None
        self._reconnector.ended(error, was_open=was_open)

    def _meaning(self, error: BaseException) -> RedeliverError:
        where = self._url.text
        if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
            return CredentialsRefused("the broker refuses this user or password", where=where, cure="Check both")
        if isinstance(error, exceptions.ProbableAccessDeniedError):
            vhost = self._url.path or "/"
            return CredentialsRefused(
                f"virtual host {vhost!r} is not there, or not for this user", where=where, cure="Check the URL's path"
            )
        return unavailable(error, self._url, _short(error))


def _short(error: BaseException) -> str:
    """Return the text of the innermost cause: pika wraps errors several times over."""
    while True:
        inner = getattr(error, "exception", None) or (getattr(error, "exceptions", None) or error.args or [None])[-1]
        if not isinstance(inner, BaseException):
            return getattr(error, "strerror", None) or str(error) or type(error).__name__
        error = inner
