# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what errors of TLS mean, by the texts that real brokers and drivers gave.

`tests/tls` has the brokers themselves.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable

import pytest

from redeliver_mw.adapter.kit.tls_errors import (
    PLAIN_AT_TLS_PORT,
    TLS_AT_PLAIN_PORT,
    TlsFailed,
    WrongPort,
    WrongPortCheck,
    problem_of,
    speaks_in_clear,
    unavailable,
)
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerUnavailable

VERIFY = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
SEEN = [
    (f"{VERIFY}unable to get local issuer certificate (_ssl.c:1006)", "from an authority that is not trusted here"),
    (f"{VERIFY}self-signed certificate in certificate chain (_ssl.c:1006)", "an authority that is not trusted here"),
    (f"{VERIFY}certificate has expired (_ssl.c:1006)", "its certificate has expired"),
    (f"{VERIFY}certificate is not yet valid (_ssl.c:1006)", "its certificate is not valid yet"),
    (
        f"{VERIFY}Hostname mismatch, certificate is not valid for 'localhost'. (_ssl.c:1006)",
        "for another host (Hostname mismatch, certificate is not valid for 'localhost')",
    ),
    (f"{VERIFY}IP address mismatch, certificate is not valid for '127.0.0.1'. (_ssl.c:1006)", "for another host"),
    ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)", "requires a client certificate"),
    ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "this port does not speak TLS"),
    ("[SSL: UNSUPPORTED_PROTOCOL] unsupported protocol (_ssl.c:1006)", "no version of TLS in common"),
    ("[SSL: SOMETHING_NEW] something new (_ssl.c:1)", "TLS fails (SOMETHING_NEW)"),
]
# pika gives some of them as text only.
ALERT = "Stream connection lost: SSLError(1, '[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert … (_ssl.c:2580)')"


@pytest.mark.parametrize(("text", "reason"), SEEN)
def test_an_error_of_tls_is_reported_with_its_reason_and_a_cure(text: str, reason: str) -> None:
    problem = problem_of(ssl.SSLError(1, text), client_certificate=False)
    assert problem is not None
    assert reason in problem.reason
    assert problem.cure


def test_an_error_that_a_driver_has_wrapped_is_found() -> None:
    class Wrapped(Exception):
        exceptions = (ConnectionError("other"), ConnectionError(ALERT))

    problem = problem_of(Wrapped("failed"), client_certificate=False)
    assert problem is not None
    assert problem.reason == "the broker requires a client certificate"


def test_an_alert_is_about_our_certificate_where_one_was_shown() -> None:
    error = ssl.SSLError(1, "[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate (_ssl.c:2580)")
    problem = problem_of(error, client_certificate=True)
    assert problem is not None
    assert problem.reason == "the broker refuses our client certificate"


def test_what_is_no_error_of_tls_is_a_broker_that_does_not_answer() -> None:
    told = unavailable(ConnectionRefusedError(111, "Connection refused"), parse_url("rabbitmq://h/"), "refused")
    assert type(told) is BrokerUnavailable
    assert (
        str(told)
        == "rabbitmq://h/: no broker answers there (refused). Start it, or check host and port [broker-unavailable]"
    )


def test_a_wrong_port_is_reported_as_such() -> None:
    told = unavailable(WrongPort(PLAIN_AT_TLS_PORT), parse_url("rabbitmq://h/"), "closed")
    assert isinstance(told, TlsFailed)
    assert str(told).startswith("rabbitmq://h/: this port speaks TLS. Write ?tls=1")


# -- looking at ports ---------------------------------------------------------------------------------


class Loop:
    """Runs what is asked for later at once, one after the other, until nothing is left."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], None]] = []

    def call_later(self, _seconds: float, fn: Callable[[], None]) -> None:
        self._waiting.append(fn)

    def run(self) -> None:
        while self._waiting:
            self._waiting.pop(0)()


def peer(answers: bytes) -> tuple[socket.socket, int]:
    """Return a socket that sends `answers` to each client that has said something, and its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1024)
                client.sendall(answers)

    threading.Thread(target=serve, daemon=True).start()
    return listener, listener.getsockname()[1]


def test_an_answer_in_clear_is_known_by_its_first_bytes() -> None:
    for answer, known in ((b"AMQP\x03\x01\x00\x00", True), (b"\x15\x03\x03\x00\x02", False)):
        listener, port = peer(answer)
        with listener:
            assert speaks_in_clear("127.0.0.1", port, b"AMQP\x03\x01\x00\x00") is known


def test_each_host_is_looked_at_once_and_what_was_found_is_reported_again() -> None:
    listener, port = peer(b"AMQP\x03\x01\x00\x00")
    loop, found = Loop(), list[WrongPort | None]()
    url = parse_url(f"artemis://127.0.0.1:{port}?tls=1")
    check = WrongPortCheck(url, loop.call_later, b"AMQP\x03\x01\x00\x00")
    with listener:
        check.begin("127.0.0.1", port, found.append)
        check.begin("127.0.0.1", port, found.append)  # it is being looked at
        loop.run()
    check.begin("127.0.0.1", port, found.append)
    assert found[0] is None
    assert [one and one.problem for one in found[1:]] == [TLS_AT_PLAIN_PORT, TLS_AT_PLAIN_PORT]
