# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Receives webhooks: an HTTP server keeps what it gets, checks each signature, and fails where a test wants it to."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cli.test_run_processes import eventually

SECRET = "whsec_" + base64.b64encode(b"a key of the tests, 32 bytes....").decode()


def is_signed(secret: str, headers: dict[str, str], body: bytes) -> bool:
    """Check a signature as Standard Webhooks describes it, without any code of ours."""
    key = base64.b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    signed = b".".join([headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body])
    wanted = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    version, _, signature = headers["webhook-signature"].partition(",")
    is_fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 300
    return version == "v1" and hmac.compare_digest(signature, wanted) and is_fresh


@dataclass
class Receiver:
    """Has every request that was answered with 2xx, in `got`, and the ids of all that came, in `tries`."""

    url: str = ""
    secret: str = SECRET
    answer: int = 204
    silent: threading.Event = field(default_factory=threading.Event)  # while set, there is no answer
    got: list[dict[str, Any]] = field(default_factory=list)
    tries: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def types(self) -> list[str]:
        return [one["type"] for one in self.got]

    def until(self, number: int, seconds: float = 30.0) -> list[dict[str, Any]]:
        """Return what came, once there are so many."""
        assert eventually(lambda: len(self.got) >= number, seconds), (self.got, self.tries)
        assert self.wrong == []
        return self.got


@contextmanager
def receiving(secret: str = SECRET) -> Iterator[Receiver]:
    receiver, over = Receiver(secret=secret), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(headers["content-length"]))
            if headers["content-type"] != "application/json" or not is_signed(receiver.secret, headers, body):
                receiver.wrong.append(str(headers))
            receiver.tries.append(headers["webhook-id"])
            while receiver.silent.is_set() and not over.wait(0.05):
                pass
            if 200 <= receiver.answer < 300:
                receiver.got.append(json.loads(body))
            self.send_response(receiver.answer)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hooks/a-token"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        over.set()
        receiver.silent.clear()
        server.shutdown()
        server.server_close()
        thread.join()
