# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs real brokers that speak TLS themselves, at ports with different demands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.brokers import Broker, broker
from tests.brokers._process import free_ports
from tests.brokers.rabbitmq import RabbitMQ
from tests.tls.certificates import STORE_PASSWORD, Authority, Certificate

VERSIONS = {"rabbitmq": "4.3", "activemq": "6.3", "artemis": "2.44"}


@dataclass(frozen=True)
class TlsBroker:
    """Holds a broker with a port in clear and two with TLS.

    The broker's certificate is for 127.0.0.1 and from `authority`.
    """

    broker: Broker
    authority: Authority
    port: int  # with TLS
    strict_port: int  # the same, where a client certificate of `authority` is required

    def url(self, port: int, *options: str, host: str = "127.0.0.1", password: str | None = None) -> str:
        """Return a URL for one of the ports, with TLS."""
        one = self.broker
        query = "&".join(("tls=1", *options))
        return f"{one.kind}://{one.user}:{password or one.password}@{host}:{port}{one.path}?{query}"


def open_tls_broker(kind: str, authority: Authority, server: Certificate) -> TlsBroker:
    """Start a broker with TLS. Raises BrokerMissing or BrokerFailed."""
    port, strict_port = free_ports(2)
    return TlsBroker(_OPEN[kind](authority, server, port, strict_port), authority, port, strict_port)


def _rabbitmq(authority: Authority, server: Certificate, port: int, strict_port: int) -> Broker:
    one = broker("rabbitmq", version=VERSIONS["rabbitmq"])
    assert isinstance(one, RabbitMQ)
    try:
        for number, more in ((port, ""), (strict_port, ", {verify, verify_peer}, {fail_if_no_peer_cert, true}")):
            files = {"cacertfile": authority.cert, "certfile": server.cert, "keyfile": server.key}
            pems = ", ".join(f'{{{name}, "/mnt/{path.name}"}}' for name, path in files.items())
            for path in files.values():
                (one.data / path.name).write_bytes(path.read_bytes())
            listener = f'{{"127.0.0.1", {number}}}'
            one.evaluate(f"rabbit_networking:start_ssl_listener({listener}, [{pems}{more}], 2).")
    except BaseException:
        one.stop()
        raise
    return one


def _activemq(authority: Authority, server: Certificate, port: int, strict_port: int) -> Broker:
    stores = f'keyStore="file:{server.store()}" trustStore="file:{authority.trust_store()}"'
    types = 'keyStoreType="PKCS12" trustStoreType="PKCS12"'
    passwords = f'keyStorePassword="{STORE_PASSWORD}" trustStorePassword="{STORE_PASSWORD}"'
    tls = f"<sslContext><sslContext {stores} {types} {passwords}/></sslContext>"
    uri = '<transportConnector name="{name}" uri="stomp+ssl://127.0.0.1:{port}{more}"/>'
    connectors = uri.format(name="tls", port=port, more="")
    connectors += uri.format(name="strict", port=strict_port, more="?transport.needClientAuth=true")
    return broker("activemq", version=VERSIONS["activemq"], tls=tls, connectors=connectors)


def _artemis(authority: Authority, server: Certificate, port: int, strict_port: int) -> Broker:
    options = f"sslEnabled=true;keyStorePath={server.store()};keyStorePassword={STORE_PASSWORD};keyStoreType=PKCS12"
    trust = f"trustStorePath={authority.trust_store()};trustStorePassword={STORE_PASSWORD};trustStoreType=PKCS12"
    acceptors = f'<acceptor name="tls">tcp://127.0.0.1:{port}?protocols=AMQP,STOMP;{options}</acceptor>'
    options += f";{trust};needClientAuth=true"
    acceptors += f'<acceptor name="strict">tcp://127.0.0.1:{strict_port}?protocols=AMQP,STOMP;{options}</acceptor>'
    return broker("artemis", version=VERSIONS["artemis"], acceptors=acceptors)


_OPEN: dict[str, Callable[[Authority, Certificate, int, int], Broker]] = {
    "rabbitmq": _rabbitmq,
    "activemq": _activemq,
    "artemis": _artemis,
}
