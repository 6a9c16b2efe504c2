# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests TLS with real brokers: what works, and for each failure its reason, its cure, and how soon they are told."""

from __future__ import annotations

import contextlib
import logging
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Reject, connect
from redeliver_mw.adapter.kit.tls_errors import TlsFailed
from tests.brokers import Broker
from tests.cli.running import redeliver
from tests.faults.letters import declare
from tests.faults.terminator import Terminator, needs_openssl
from tests.tls.brokers import TlsBroker
from tests.tls.certificates import Authority, Certificate

pytestmark = [pytest.mark.broker, needs_openssl]

UNKNOWN_AUTHORITY = ("its certificate is from an authority that is not trusted here", "Write ca=FILE in the URL")
OTHER_HOST = ("its certificate is for another host", "Write the host name that it is for")
EXPIRED = ("its certificate has expired", "Renew it")
CLIENT_WANTED = ("the broker requires a client certificate", "Write cert=FILE and key=FILE in the URL")
CLIENT_REFUSED = ("our client certificate", "Check cert= and key= in the URL")
NO_VERSION = ("no version of TLS in common", "TLS 1.2 or 1.3")
NO_TLS = ("this port does not speak TLS", "Name the broker's TLS port, or leave tls=1 out")
ONLY_TLS = ("this port speaks TLS", "Write ?tls=1 in the URL")


def refused(url: str, parts: tuple[str, str], soon: float = 10.0) -> None:
    """Check that a refusal is told within `soon` seconds, in one line, with reason and cure, without the password."""
    begun = time.monotonic()
    with pytest.raises(TlsFailed) as caught, connect(url):
        pass
    assert time.monotonic() - begun < soon
    said = str(caught.value)
    for part in parts:
        assert part in said
    assert "\n" not in said
    assert "not-the-real-one" not in said
    assert "Start it" not in said


def url(tls: TlsBroker, port: int, *options: str, host: str = "127.0.0.1") -> str:
    return tls.url(port, *options, host=host, password="not-the-real-one")


@contextlib.contextmanager
def in_front(tls: TlsBroker, certificate: Certificate, **options: Any) -> Iterator[Terminator]:
    one = tls.broker
    made = Terminator((one.host, one.port), certificate.key, certificate.cert, **options)
    try:
        yield made
    finally:
        made.close()


def test_a_certificate_of_the_authority_in_ca_is_taken(tls: TlsBroker, authority: Authority) -> None:
    with connect(tls.url(tls.port, f"ca={authority.cert}")):
        pass


def test_a_client_certificate_is_shown_where_one_is_required(tls: TlsBroker, authority: Authority) -> None:
    client = authority.give("client")
    with connect(tls.url(tls.strict_port, f"ca={authority.cert}", f"cert={client.cert}", f"key={client.key}")):
        pass


def test_an_unknown_authority(tls: TlsBroker, stranger: Authority) -> None:
    refused(url(tls, tls.port), UNKNOWN_AUTHORITY)
    refused(url(tls, tls.port, f"ca={stranger.cert}"), UNKNOWN_AUTHORITY)


def test_a_certificate_for_another_host(tls: TlsBroker, authority: Authority) -> None:
    refused(url(tls, tls.port, f"ca={authority.cert}", host="localhost"), (*OTHER_HOST,))
    with in_front(tls, authority.give("other", host="DNS:example.org")) as front:
        refused(url(tls, front.port, f"ca={authority.cert}"), OTHER_HOST)


def test_an_expired_certificate(tls: TlsBroker, authority: Authority) -> None:
    with in_front(tls, authority.give("expired", days=-1)) as front:
        refused(url(tls, front.port, f"ca={authority.cert}"), EXPIRED)


def test_a_client_certificate_that_is_missing(tls: TlsBroker, authority: Authority) -> None:
    refused(url(tls, tls.strict_port, f"ca={authority.cert}"), CLIENT_WANTED)


def test_a_client_certificate_that_the_broker_does_not_trust(
    tls: TlsBroker, authority: Authority, stranger: Authority
) -> None:
    client = stranger.give("unknown-client")
    options = (f"ca={authority.cert}", f"cert={client.cert}", f"key={client.key}")
    refused(url(tls, tls.strict_port, *options), CLIENT_REFUSED)


def test_a_version_that_is_too_old(tls: TlsBroker, authority: Authority) -> None:
    with in_front(tls, authority.give("old"), newest=ssl.TLSVersion.TLSv1_1) as front:
        refused(url(tls, front.port, f"ca={authority.cert}"), NO_VERSION)


def test_tls_at_a_port_in_clear_is_reported_within_seconds(tls: TlsBroker, authority: Authority) -> None:
    """Artemis says nothing for 10 s then, three times over."""
    refused(url(tls, tls.broker.port, f"ca={authority.cert}"), NO_TLS)


def test_a_port_with_tls_spoken_to_in_clear_is_reported_within_seconds(tls: TlsBroker) -> None:
    for port in (tls.port, tls.strict_port):
        refused(url(tls, port).replace("?tls=1", ""), ONLY_TLS)


def new_queue(one: Broker) -> str:
    queue = f"tls-{uuid.uuid4().hex[:8]}"
    declare(one, queue)
    return queue


def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.05)  # between two looks


def test_an_app_says_it_at_its_start(tls: TlsBroker) -> None:
    app = App(url(tls, tls.port))
    app.handler("orders")(print)
    with pytest.raises(TlsFailed, match="authority that is not trusted here"):
        app.start()


def test_the_command_line_says_it_in_one_line_and_exits_with_1(tls: TlsBroker, tmp_path: Path) -> None:
    broken = url(tls, tls.port)
    lake = str(tmp_path / "lake")
    for words in (("dead", "list", broken, "DLQ"), ("pipeline", "drain", broken, "DLQ", lake)):
        done = redeliver(tmp_path, *words)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert UNKNOWN_AUTHORITY[0] in done.stderr
        assert UNKNOWN_AUTHORITY[1] in done.stderr
        assert "not-the-real-one" not in done.stderr


def test_certificates_that_are_renewed_while_it_runs_are_used_by_the_next_connection(
    tls: TlsBroker, tmp_path: Path
) -> None:
    ours = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}

    def install(authority: Authority) -> Certificate:
        client = authority.give("client")
        for name, source in (("ca", authority.cert), ("cert", client.cert), ("key", client.key)):
            ours[name].write_bytes(source.read_bytes())
        return authority.give("server")

    folders = [tmp_path / name for name in ("old", "new")]
    for folder in folders:
        folder.mkdir()
    old, new = map(Authority, folders)
    queue, handled = new_queue(tls.broker), list[bytes]()
    with in_front(tls, install(old), clients=old.cert) as front:
        app = App(tls.url(front.port, *(f"{name}={path}" for name, path in ours.items())))
        app.handler(queue)(lambda delivery: handled.append(delivery.body))
        with app, connect(tls.broker.url) as session:
            session.publish(queue, b"before")
            until(lambda: handled == [b"before"])
            server = install(new)
            front.renew(server.key, server.cert, clients=new.cert)
            front.cut()
            session.publish(queue, b"after")
            until(lambda: b"after" in handled)
            until(lambda: all(one["connected"] for one in app.health()["connections"].values()))


def test_a_file_that_is_broken_for_a_moment_is_reported_and_mended_by_its_renewal(
    tls: TlsBroker, authority: Authority, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authority.cert.read_bytes())
    queue = new_queue(tls.broker)
    with in_front(tls, authority.give("front")) as front:
        app = App(tls.url(front.port, f"ca={ca}"))
        app.handler(queue)(print)
        with app:
            ca.write_text("half a certif")
            front.cut()
            until(lambda: str(ca) in (app.health()["connections"]["consume"]["last_error"] or ""))
            ca.write_bytes(authority.cert.read_bytes())
            until(lambda: app.health()["connections"]["consume"]["connected"])


# -- drop-ins -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def dropin(one: Broker, queue: str, publisher: str) -> Iterator[None]:
    """Run an application that consumes by its own connection in clear and rejects all messages.

    The dead letters go by `publisher`.
    """
    over = threading.Event()
    thread = threading.Thread(target=_DROPINS[one.kind], args=(one, queue, publisher, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(20)
        assert not thread.is_alive()


def _reject(*_: object) -> None:
    raise Reject("not wanted")


def _pika(one: Broker, queue: str, publisher: str, over: threading.Event) -> None:
    import pika

    from redeliver_pika import redelivering

    where = pika.ConnectionParameters(one.host, one.port, credentials=pika.PlainCredentials(one.user, one.password))
    connection = pika.BlockingConnection(where)
    channel = connection.channel()
    channel.basic_consume(queue, redelivering(_reject, publisher=publisher))
    while not over.is_set():
        connection.process_data_events(0.1)
    connection.close()


def _stomp(one: Broker, queue: str, publisher: str, over: threading.Event) -> None:
    import stomp

    from redeliver_stomp import redelivering

    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None:
            _reject(frame)

    connection = stomp.Connection12([(one.host, one.port)])
    connection.set_listener("", redelivering(Listener(), connection, publisher=publisher))
    connection.connect(one.user, one.password, wait=True)
    connection.subscribe(f"/queue/{queue}", id="1", ack="auto")
    over.wait()
    connection.disconnect()


def _proton(one: Broker, queue: str, publisher: str, over: threading.Event) -> None:
    from proton.handlers import MessagingHandler
    from proton.reactor import Container

    from redeliver_proton import redelivering

    class Handler(MessagingHandler):
        def on_start(self, event: Any) -> None:
            given = {"user": one.user, "password": one.password, "allowed_mechs": "PLAIN"}
            self.connection = event.container.connect(f"amqp://{one.host}:{one.port}", **given)
            event.container.create_receiver(self.connection, queue)
            event.container.schedule(0.1, self)

        def on_timer_task(self, event: Any) -> None:
            if over.is_set():
                self.connection.close()
            else:
                event.container.schedule(0.1, self)

        def on_message(self, event: Any) -> None:
            _reject(event)

    Container(redelivering(Handler(), publisher=publisher)).run()


_DROPINS = {"rabbitmq": _pika, "activemq": _stomp, "artemis": _proton}


def test_a_dropin_publishes_its_copies_over_tls(tls: TlsBroker, authority: Authority) -> None:
    queue = new_queue(tls.broker)
    declare(tls.broker, f"DLQ.{queue}")
    with connect(tls.broker.url) as session:
        session.publish(queue, b"one")
        with dropin(tls.broker, queue, tls.url(tls.port, f"ca={authority.cert}")):
            letter = None
            deadline = time.monotonic() + 60
            while letter is None and time.monotonic() < deadline:
                with contextlib.suppress(Exception):  # its queue is not there yet
                    letter = next(iter(session.browse(f"DLQ.{queue}", 1)), None)
                time.sleep(0.1)  # between two looks
            assert letter is not None
            assert letter.body == b"one"


def test_a_dropin_whose_publisher_fails_by_tls_logs_why_and_keeps_the_message(
    tls: TlsBroker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue(tls.broker)
    with connect(tls.broker.url) as session:
        session.publish(queue, b"one")
        with dropin(tls.broker, queue, url(tls, tls.port)):
            until(lambda: any(UNKNOWN_AUTHORITY[0] in record.getMessage() for record in caplog.records))
        said = next(text for text in map(logging.LogRecord.getMessage, caplog.records) if UNKNOWN_AUTHORITY[0] in text)
        assert UNKNOWN_AUTHORITY[1] in said
        assert "not-the-real-one" not in "".join(record.getMessage() for record in caplog.records)
        kept = session.receive(queue, 30.0)
        assert kept is not None
        assert kept.body == b"one"
        session.settle(kept)


def test_a_dropin_whose_publisher_has_failed_publishes_once_the_cause_is_mended(
    tls: TlsBroker, authority: Authority, stranger: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, ca = new_queue(tls.broker), tmp_path / "ca.pem"
    declare(tls.broker, f"DLQ.{queue}")
    ca.write_bytes(stranger.cert.read_bytes())
    with connect(tls.broker.url) as session:
        session.publish(queue, b"one")
        with dropin(tls.broker, queue, tls.url(tls.port, f"ca={ca}")):
            until(lambda: any(UNKNOWN_AUTHORITY[0] in record.getMessage() for record in caplog.records))
            ca.write_bytes(authority.cert.read_bytes())
            letter = session.receive(f"DLQ.{queue}", 120.0)
            assert letter is not None
            assert letter.body == b"one"
            session.settle(letter)
