# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One AMQP connection that is kept up: hosts in turn, back-off with jitter, and what a refusal means.

All of it runs on the loop's thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import Any

import proton

from redeliver_mw.adapter.kit.connection_state import ConnectionState
from redeliver_mw.adapter.kit.host_rotation import HostRotation
from redeliver_mw.adapter.kit.tls_errors import WrongPort, WrongPortCheck, unavailable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerUnavailable, ConfigError, CredentialsRefused, RedeliverError
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
    """The option `heartbeat`, seconds; 0: none. ConfigError for anything but a whole number."""
    text = url.options.get("heartbeat", str(HEARTBEAT))
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"heartbeat={text!r} is no whole number of seconds", where=url.text, cure="heartbeat=30")
    return int(text)


class ProtonConnection(proton.Handler):
    """Opens, and opens again after each loss until `close`. Callbacks run on the loop's thread.

    With `failed` a first connect that does not come about is given up and told; without, tried for ever.
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
        self._up, self._down, self._failed = up, down, failed
        url.tls_context()  # a mistake in the URL is told at once
        self._heartbeat = heartbeat_of(url)
        self._hosts = HostRotation(url, TLS_PORT if url.flag("tls") else PORT)
        self._port_check = WrongPortCheck(url, loop.call_later, GREETING)
        self._was_up = self._heard_open = False
        self._wire: ProtonSocket | None = None
        self._timer: Any = None
        self.closing = False
        self.is_open = False
        self.connection: proton.Connection | None = None
        self.session: Any = None  # of the open connection
        self.state = ConnectionState(url.text, role, log, secret=url.password, first_is_told=failed is not None)

    # -- opening and closing ----------------------------------------------------------------------

    def open(self) -> None:
        if self.closing or self._wire is not None:
            return
        self.state.connecting()
        host, port = self._hosts.host
        try:
            tls = self._url.tls_context()  # a certificate may have been renewed
        except ConfigError as error:
            return self._not_open(error)
        connection = self.connection = proton.Connection()
        connection.handler = self
        connection.hostname = self._dialect.hostname(self._url, host)
        name = self._url.options.get("connection_name", "redeliver-mw")
        connection.container = f"{name} ({self._role}) {uuid.uuid4().hex[:12]}"
        transport = self._transport(connection)
        self._heard_open = False
        connection.open()
        self.session = connection.session()
        self.session.open()
        self._timer = self._loop.call_later(HANDSHAKE_TIMEOUT, self._too_late)
        self._wire = ProtonSocket(self._loop, connection, transport, host, port, tls, self._ended)
        if not self._was_up:
            self._loop.call_later(SUSPICIOUS, lambda: self._suspect(connection))
        return None

    def _suspect(self, connection: proton.Connection) -> None:
        """Nothing has come of the first handshake yet: Artemis is silent for 10 s where TLS meets a port in clear."""
        if connection is not self.connection or self.is_open:
            return

        def checked(wrong: WrongPort | None) -> None:
            if wrong is not None and connection is self.connection and not self.is_open:
                self.abort(wrong)

        self._port_check.begin(*self._hosts.host, checked)

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
        """For good: no reopening."""
        self.closing = True
        self.state.closed()
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
        """Only now: a broker that refuses an anonymous user opens the connection before it closes it."""
        if not self.is_open and event.session == self.session:
            self._cancel()
            if (product := self.product) != self._dialect.product:
                return self._unfit(Refused("product", product or "one that does not name its product"))
            if why := self._dialect.too_old(self.version):
                return self._unfit(Refused("version", why))
            self.is_open, self._was_up = True, True
            self._hosts.succeeded()
            self.state.connected()
            self._up(event.connection)

    def _unfit(self, why: Refused) -> None:
        """Trying again would not help."""
        self._was_up = False
        self.abort(why)

    def on_connection_remote_close(self, event: Any) -> None:
        if self._wire is not None and self._wire.error is None and event.connection.remote_condition is not None:
            self._wire.error = refusal(event.connection.remote_condition)
        event.connection.close()

    def on_session_remote_close(self, event: Any) -> None:
        """The broker ended the session: a protocol error of ours. All of it is opened anew."""
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
        if was_open or self.closing:
            if not self.closing:
                self.state.lost(error)
            self._down(error)
            self._later(0.05)
        else:
            self._refused(error)

    def _refused(self, error: BaseException) -> None:
        meaning = self._meaning(error)
        if self._was_up or type(meaning) is not BrokerUnavailable:
            return self._not_open(meaning)

        def checked(wrong: WrongPort | None) -> None:
            self._not_open(meaning if wrong is None else self._meaning(wrong))

        return self._port_check.begin(*self._hosts.host, checked)

    def _not_open(self, meaning: RedeliverError) -> None:
        """An attempt has failed: the next one follows, or this was the last."""
        if self.closing:
            return
        told = self._hosts.failed(meaning)
        self.state.failed(told)
        if self._failed is not None and not self._was_up and self._hosts.is_hopeless(told):
            self._failed(told)
        else:
            self._later(self._hosts.pause)

    def _later(self, seconds: float) -> None:
        if not self.closing:
            self._timer = self._loop.call_later(seconds, self.open)

    def _meaning(self, error: BaseException) -> RedeliverError:
        where = self._url.text
        if isinstance(error, Refused):
            if error.name == "product":
                return ConfigError(
                    f"this broker is {error.description}, not {self._dialect.title}",
                    where=where,
                    cure="Use its own scheme",
                )
            if error.name == "version":
                return ConfigError(error.description, where=where, cure="Use rabbitmq+pika")
            if "unauthorized" in error.name or "security" in error.name or "AMQ229031" in error.description:
                return CredentialsRefused("the broker refuses this user or password", where=where, cure="Check both")
        return unavailable(error, self._url, getattr(error, "strerror", None) or str(error) or type(error).__name__)
