# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One AMQP connection that is kept up: hosts in turn, back-off with jitter, and what a refusal means.

All of it runs on the loop's thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import proton
from tenacity import wait_random_exponential

from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerUnavailable, ConfigError, CredentialsRefused, RedeliverError
from redeliver_proton.broker_dialect import BrokerDialect
from redeliver_proton.loop import ProtonLoop
from redeliver_proton.wire import ProtonSocket, Refused, refusal

log = logging.getLogger("redeliver_mw.proton")

ROUNDS_AT_START = 3  # over all hosts, before a first connect is given up
HANDSHAKE_TIMEOUT = 10.0  # seconds for TCP, TLS, SASL and AMQP together: a silent peer
GOODBYE_TIMEOUT = 2.0  # seconds for the peer's answer to our close
HEARTBEAT = 30  # seconds between signs of life that we ask of the broker
OPTIONS = {"heartbeat", "connection_name"}
_pause = wait_random_exponential(multiplier=0.2, max=15)


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
        self._tls, self._heartbeat = url.tls_context(), heartbeat_of(url)
        self._attempts = 0
        self._was_up = self._heard_open = False
        self._wire: ProtonSocket | None = None
        self._timer: Any = None
        self.closing = False
        self.is_open = False
        self.connection: proton.Connection | None = None
        self.session: Any = None  # of the open connection

    # -- opening and closing ----------------------------------------------------------------------

    def open(self) -> None:
        if self.closing or self._wire is not None:
            return
        host, port = self._url.hosts[self._attempts % len(self._url.hosts)]
        host = host or "localhost"
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
        port = port or (5671 if self._tls else 5672)
        self._wire = ProtonSocket(self._loop, connection, transport, host, port, self._tls, self._ended)

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
            self.is_open, self._attempts, self._was_up = True, 0, True
            self._up(event.connection)

    def _unfit(self, why: Refused) -> None:
        """Trying again would not help."""
        self._was_up, self._attempts = False, ROUNDS_AT_START * len(self._url.hosts)
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
                log.warning("%s: the connection (%s) was lost: %s", self._url.text, self._role, error)
            self._down(error)
            self._later(0.05)
        else:
            self._refused(error)

    def _refused(self, error: BaseException) -> None:
        self._attempts += 1
        hosts = len(self._url.hosts)
        meaning = self._meaning(error)
        rounds = self._attempts / hosts
        hopeless = isinstance(meaning, CredentialsRefused) or rounds >= ROUNDS_AT_START
        if hopeless and self._failed is not None and not self._was_up:
            self._failed(meaning)
            return
        if self._was_up:
            log.info("%s: not yet again (%s): %s", self._url.text, self._role, error)
        state: Any = SimpleNamespace(attempt_number=max(1, int(rounds)))  # all that these waits ask of a retry's state
        self._later(0.05 + (float(_pause(state)) if self._attempts % hosts == 0 else 0.0))

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
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return BrokerUnavailable(
            f"no broker answers there ({text})", where=where, cure="Start it, or check host and port"
        )
