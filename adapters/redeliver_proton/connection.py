# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps one AMQP connection up: opens and closes it, and says what a refusal means.

All of it runs on the loop's thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

import proton

from redeliver_mw.adapter.kit.reconnect import Reconnector
from redeliver_mw.adapter.kit.tls_errors import WrongPort, unavailable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import ConfigError, CredentialsRefused, RedeliverError
from redeliver_proton.broker_dialect import BrokerDialect
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.wire import ProtonSocket, Refused, refusal

log = logging.getLogger("redeliver_mw.proton")

PORT, TLS_PORT = 5672, 5671
HANDSHAKE_TIMEOUT = 10.0  # seconds for TCP, TLS, SASL and AMQP together: a silent peer
GOODBYE_TIMEOUT = 2.0  # seconds for the peer's answer to our close
HEARTBEAT = 30  # seconds between signs of life that we ask of the broker
OPTIONS = {"heartbeat", "connection_name"}
GREETING = b"AMQP\x03\x01\x00\x00"  # what a client begins with in clear; a broker answers with the same
SUSPICIOUS = 2.0  # seconds of silence in a first handshake, after which is looked whether it is the wrong port


def heartbeat_of(url: BrokerUrl) -> int:
    """Return the option `heartbeat` in seconds; 0: none. Raises ConfigError for anything but a whole number."""
    text = url.options.get("heartbeat", str(HEARTBEAT))
    if not text.isascii() or not text.isdigit():
        raise ConfigError(
            f"heartbeat={text!r} is no whole number of seconds",
            where=url.text,
            cure="heartbeat=30",
            code="broker-url-option",
        )
    return int(text)


class ProtonConnection(proton.Handler):
    """Opens, and opens again after each loss until `close`. Callbacks run on the loop's thread.

    With `failed`, a first connect that does not come about is given up and reported; without it, tried for ever.
    """

    def __init__(
        self,
        loop: ProtonLoop,
        url: BrokerUrl,
        dialect: BrokerDialect,
        role: str,
        *,
        up: Callable[[proton.Connection], None],
        down: Callable[[BaseException], None],
        failed: Callable[[RedeliverError], None] | None = None,
    ) -> None:
        url.check_options(OPTIONS)
        self._loop, self._url, self._dialect, self._role = loop, url, dialect, role
        self._up = up
        url.tls_context()  # a mistake in the URL is reported at once
        self._heartbeat = heartbeat_of(url)
        self._reconnector = Reconnector(
            url,
            role,
            log,
            usual_port=TLS_PORT if url.flag("tls") else PORT,
            call_later=loop.call_later,
            connect=self._connect,
            down=down,
            meaning=self._meaning,
            failed=failed,
            greeting=GREETING,
        )
        self._wire: ProtonSocket | None = None
        self._timer: Any = None  # of the handshake, or of the goodbye
        self.is_open = False
        self.connection: proton.Connection | None = None
        self.session: Any = None  # of the open connection
        self.state = self._reconnector.state

    # -- opening and closing ----------------------------------------------------------------------

    def open(self) -> None:
        self._reconnector.open()

    @property
    def closing(self) -> bool:
        return self._reconnector.closing

    def _connect(self) -> None:
        host, port = self._reconnector.host
        tls = self._url.tls_context()  # a certificate may have been renewed
        connection = self.connection = proton.Connection()
        connection.handler = self
        connection.hostname = self._dialect.hostname(self._url, host)
        name = self._url.options.get("connection_name", "redeliver-mw")
        connection.container = f"{name} ({self._role}) {uuid.uuid4().hex[:12]}"
        transport = self._transport(connection)
        connection.open()
        self.session = connection.session()
        self.session.open()
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT, self._too_late)
        self._wire = ProtonSocket(self._loop, connection, transport, host, port, tls, self._ended)
        if not self._reconnector.was_up:
            self._loop.call_later(SUSPICIOUS, lambda: self._suspect(connection))

    def _suspect(self, connection: proton.Connection) -> None:
        """Suspect a port in clear when no first handshake comes: Artemis is silent for 10 s if TLS meets one."""
        if connection is not self.connection or self.is_open:
            return

        def checked(wrong: WrongPort | None) -> None:
            if wrong is not None and connection is self.connection and not self.is_open:
                self.abort(wrong)

        self._reconnector.check_port(checked)

    def _transport(self, connection: proton.Connection) -> proton.Transport:
        transport = proton.Transport()
        sasl = transport.sasl()
        sasl.allow_insecure_mechs = True  # TLS, where there is any, lies below and is unknown to the driver
        if self._url.user is not None:
            connection.user, connection.password = self._url.user, self._url.password or ""
            sasl.allowed_mechs("PLAIN")
        else:
            sasl.allowed_mechs("ANONYMOUS")
        transport.bind(connection)
        if self._heartbeat:
            transport.idle_timeout = 2.0 * self._heartbeat  # the driver asks the peer for half of it
        return transport

    def close(self) -> None:
        """Close the connection, and open it no more."""
        self._reconnector.close()
        self._cancel()
        if self._wire is None:
            return
        if not self.is_open or self.connection is None:
            return self.abort(ConnectionError("we are closing"))
        self.connection.close()
        self._timer = self._loop.call_later(GOODBYE_TIMEOUT, lambda: self.abort(ConnectionError("no goodbye")))

    def abort(self, reason: BaseException) -> None:
        """Cut it: the peer is not to be asked for a goodbye."""
        if self._wire is not None:
            self._wire.drop(reason)

    @property
    def is_down(self) -> bool:
        return self._wire is None

    def _too_late(self) -> None:
        self.abort(TimeoutError(f"no AMQP within {HANDSHAKE_TIMEOUT:g} s"))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- the driver's events ----------------------------------------------------------------------

    def on_session_remote_open(self, event: Any) -> None:
        """Note that the connection is open: a broker that refuses an anonymous user opens and closes it before this."""
        if not self.is_open and event.session == self.session:
            self._cancel()
            if (product := self.product) != self._dialect.product:
                return self._unfit(Refused("product", product or "one that does not name its product"))
            if why := self._dialect.too_old(self.version):
                return self._unfit(Refused("version", why))
            self.is_open = True
            self._reconnector.opened()
            self._up(event.connection)

    def _unfit(self, why: Refused) -> None:
        """Give up the connection, because another try would not help."""
        self._reconnector.was_up = False
        self.abort(why)

    def on_connection_remote_close(self, event: Any) -> None:
        if self._wire is not None and self._wire.error is None and event.connection.remote_condition is not None:
            self._wire.error = refusal(event.connection.remote_condition)
        event.connection.close()

    def on_session_remote_close(self, event: Any) -> None:
        """Open everything anew: the broker ended the session, after a protocol error of ours."""
        self.abort(refusal(event.session.remote_condition))

    @property
    def product(self) -> str:
        return str(self._remote("product"))

    @property
    def version(self) -> str:
        return str(self._remote("version")) or "0"

    @property
    def cluster_name(self) -> str:
        return str(self._remote("cluster_name"))

    def _remote(self, name: str) -> Any:
        properties = self.connection.remote_properties if self.connection is not None else None
        return (properties or {}).get(proton.symbol(name), "")

    # -- losses -----------------------------------------------------------------------------------

    def _ended(self, error: BaseException) -> None:
        self._cancel()
        was_open, self.is_open = self.is_open, False
        self._wire = self.connection = self.session = None
        self._reconnector.ended(error, was_open=was_open)

    def _meaning(self, error: BaseException) -> RedeliverError:
        where = self._url.text
        if isinstance(error, Refused):
            if error.name == "product":
                return ConfigError(
                    f"this broker is {error.description}, not {self._dialect.title}",
                    where=where,
                    cure="Use its own scheme",
                    code="broker-is-another",
                )
            if error.name == "version":
                return ConfigError(error.description, where=where, cure="Use rabbitmq+pika", code="broker-is-another")
            if "unauthorized" in error.name or "security" in error.name or "AMQ229031" in error.description:
                return CredentialsRefused("the broker refuses this user or password", where=where, cure="Check both")
        return unavailable(error, self._url, getattr(error, "strerror", None) or str(error) or type(error).__name__)
