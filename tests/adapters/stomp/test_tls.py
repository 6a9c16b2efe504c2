# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""TLS: stomp.py writes on another thread then, and everything else is to be the same."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from redeliver_mw import connect
from redeliver_mw.errors import BrokerUnavailable
from tests.contract.stomp_world import StompWorld

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="a certificate is made by the command openssl"),
]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    return key, cert


class Terminator:
    """Speaks TLS to the client and in clear to the broker."""

    def __init__(self, upstream: tuple[str, int], key: Path, cert: Path) -> None:
        self._upstream = upstream
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for pair in self.pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(plain,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as client:
            client.settimeout(0.02)  # both directions on one thread: an SSL object has room for one only
            with socket.create_connection(self._upstream) as broker:
                broker.settimeout(0.02)
                self.pairs.append((client, broker))
                while self._passed(client, broker) and self._passed(broker, client):
                    pass

    def _passed(self, source: socket.socket, target: socket.socket) -> bool:
        try:
            data = source.recv(1 << 16)
        except TimeoutError:
            return True
        target.settimeout(10)
        target.sendall(data)
        target.settimeout(0.02)
        return bool(data)


@pytest.fixture
def terminator(world: StompWorld, certificate: tuple[Path, Path]) -> Iterator[Terminator]:
    made = Terminator((world._broker.host, world._broker.port), *certificate)
    yield made
    made.close()


def test_it_works_over_tls_and_after_a_cut(
    world: StompWorld, terminator: Terminator, certificate: tuple[Path, Path]
) -> None:
    queue = world.new_queue()
    url = f"{world.other_url(hosts=[f'127.0.0.1:{terminator.port}'])}?tls=1&ca={certificate[1]}"
    consumer = world.consume(queue, url=url)
    world.send(queue, b"x" * 300_000)
    assert world.wait_until(lambda: consumer.handler.done.total() == 1)
    world.advance(0.2)  # else its ack is cut, too, and it comes again
    begun = time.process_time()
    terminator.cut()
    world.send(queue, b"after")
    assert world.wait_until(lambda: consumer.handler.done[b"after"] == 1)
    world.advance(0.5)
    assert time.process_time() - begun < 1.0, "a closed TLS connection must not be read for ever"
    with connect(url) as session:
        session.publish(queue, b"y" * 300_000)
    assert world.wait_until(lambda: consumer.handler.done[b"y" * 300_000] == 1)
    begun = time.monotonic()
    consumer.stop()
    assert time.monotonic() - begun < 3.0
    assert world.depth(queue) == 0


def test_a_certificate_that_nobody_vouches_for_is_refused(world: StompWorld, terminator: Terminator) -> None:
    url = world.other_url(hosts=[f"127.0.0.1:{terminator.port}"])
    with pytest.raises(BrokerUnavailable, match="certificate"):
        connect(f"{url}?tls=1")
    with connect(f"{url}?tls=1&verify=0"):
        pass
