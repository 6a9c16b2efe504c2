# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One TCP connection that is kept up: hosts in turn, back-off with jitter, and what a refusal means.

All of it runs on the thread of the adapter's I/O loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pika
from pika import exceptions
from pika.adapters.select_connection import IOLoop
from tenacity import wait_random_exponential

from redeliver_mw.adapter.kit.ledger_scope import scope_of_cluster
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerUnavailable, ConfigError, CredentialsRefused, RedeliverError
from redeliver_mw.message import text_of
from redeliver_pika.amqp.exact_headers import ExactFrames

log = logging.getLogger("redeliver_mw.pika")

ROUNDS_AT_START = 3  # over all hosts, before a first connect is given up
HANDSHAKE_TIMEOUT = 10.0  # seconds for TCP, TLS and AMQP together: a silent peer
OPTIONS = {"heartbeat", "connection_name", "management", "delayed_retry"}
_pause = wait_random_exponential(multiplier=0.2, max=15)


class OpenConnection(ExactFrames, pika.SelectConnection):
    """pika's connection, with headers read exactly."""

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
    told = url.options.get("delayed_retry")
    if told is None:
        return None
    try:
        seconds = float(told)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        cure = "delayed_retry=0.5, or 0 where there is none"
        raise ConfigError(f"delayed_retry={told!r} is no number of seconds", where=url.text, cure=cure)
    return seconds


def parameters(url: BrokerUrl, role: str) -> list[pika.ConnectionParameters]:
    """One set for each host of the URL. ConfigError for options that do not exist."""
    url.check_options(OPTIONS)
    tls = url.tls_context()
    heartbeat = url.options.get("heartbeat")
    if heartbeat is not None and not heartbeat.isdigit():
        raise ConfigError(f"heartbeat={heartbeat!r} is no whole number of seconds", where=url.text, cure="heartbeat=60")
    name = url.options.get("connection_name", "redeliver-mw")
    return [
        pika.ConnectionParameters(
            host=host or "localhost",
            port=port or (5671 if tls else 5672),
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

    With `failed` a first connect that does not come about is given up and told; without, tried for ever.
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
        self._ioloop, self._url, self._role = ioloop, url, role
        self._up, self._down, self._failed = up, down, failed
        self._parameters = parameters(url, role)
        self._attempts = 0
        self._was_up = False
        self.closing = False
        self._again: Any = None
        self.connection: OpenConnection | None = None

    def open(self) -> None:
        self._again = None
        if self.closing:
            return
        self.connection = OpenConnection(
            self._parameters[self._attempts % len(self._parameters)],
            on_open_callback=self._opened,
            on_open_error_callback=lambda _, error: self._refused(error),
            on_close_callback=lambda _, error: self._closed(error),
            custom_ioloop=self._ioloop,
        )

    def close(self) -> None:
        """For good: no reopening."""
        self.closing = True
        if self._again is not None:
            self._ioloop.remove_timeout(self._again)
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
        self._attempts, self._was_up = 0, True
        self._up(connection)

    def _closed(self, error: BaseException) -> None:
        self.connection = None
        if not self.closing:
            log.warning("%s: the connection (%s) was lost: %s", self._url.text, self._role, error)
        self._down(error)
        self._later(0.05)

    def _refused(self, error: BaseException) -> None:
        self.connection = None
        if self.closing:
            return self._down(error)
        self._attempts += 1
        meaning = self._meaning(error)
        rounds = self._attempts / len(self._parameters)
        hopeless = isinstance(meaning, CredentialsRefused) or rounds >= ROUNDS_AT_START
        if hopeless and self._failed is not None and not self._was_up:
            self._failed(meaning)
            return
        full_round = self._attempts % len(self._parameters) == 0
        state: Any = SimpleNamespace(attempt_number=int(rounds))  # all that these waits ask of a retry's state
        pause = float(_pause(state)) if full_round else 0.0
        self._later(0.05 + pause)

    def _later(self, seconds: float) -> None:
        if not self.closing:
            self._again = self._ioloop.call_later(seconds, self.open)

    def _meaning(self, error: BaseException) -> RedeliverError:
        where = self._url.text
        if isinstance(error, exceptions.ProbableAuthenticationError | exceptions.AuthenticationError):
            return CredentialsRefused("the broker refuses this user or password", where=where, cure="Check both")
        if isinstance(error, exceptions.ProbableAccessDeniedError):
            vhost = self._url.path or "/"
            return CredentialsRefused(
                f"virtual host {vhost!r} is not there, or not for this user", where=where, cure="Check the URL's path"
            )
        return BrokerUnavailable(
            f"no broker answers there ({_short(error)})", where=where, cure="Start it, or check host and port"
        )


def _short(error: BaseException) -> str:
    """The cause at the bottom: pika wraps it several times over."""
    while True:
        inner = getattr(error, "exception", None) or (getattr(error, "exceptions", None) or error.args or [None])[-1]
        if not isinstance(inner, BaseException):
            return getattr(error, "strerror", None) or str(error) or type(error).__name__
        error = inner
