# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts TLS in front of a broker that speaks in clear, with a certificate of our own."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
import warnings
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="a certificate is made by the command openssl"
)


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Make a key and a certificate for 127.0.0.1 that nobody else vouches for, and return their paths."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(words, check=True, capture_output=True)
    return key, cert


class Terminator:
    """Speaks TLS to the client and in clear to the broker."""

    def __init__(
        self,
        upstream: tuple[str, int],
        key: Path,
        cert: Path,
        *,
        clients: Path | None = None,
        newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    ) -> None:
        """Listen for TLS connections to `upstream`.

        With `clients`, a client that shows no certificate of this authority is refused. `newest` is the newest of the
        versions of TLS that are spoken.
        """
        self._upstream = upstream
        self.renew(key, cert, clients=clients)
        if newest is not ssl.TLSVersion.MAXIMUM_SUPPORTED:
            self._context.set_ciphers("ALL:@SECLEVEL=0")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # it is old, and that is what is tested
                self._context.minimum_version, self._context.maximum_version = ssl.TLSVersion.MINIMUM_SUPPORTED, newest
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def renew(self, key: Path, cert: Path, *, clients: Path | None = None) -> None:
        """Use another certificate for the connections to come."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(cert, key)
        if clients is not None:
            self._context.load_verify_locations(clients)
            self._context.verify_mode = ssl.CERT_REQUIRED

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
