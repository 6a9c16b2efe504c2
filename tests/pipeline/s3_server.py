# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Starts moto's S3 server on 127.0.0.1, in a process of its own, and a proxy before it that breaks what it is told to.

`python s3_server.py` serves until its standard input ends, and prints its port. moto looks at a condition and writes
in two steps, where a store does both in one; so puts come one at a time.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

KEY, SECRET = "AKIDTESTTESTTESTTEST", "thesecretthatnobodymaysee"
BUCKET = "lakes"


def config(url: str) -> dict[str, str]:
    """Return the settings with which a store of ours reaches the server."""
    return {"endpoint": url, "access_key_id": KEY, "secret_access_key": SECRET, "region": "us-east-1"}


def environment(url: str) -> dict[str, str]:
    """Return the settings of `config` as environment variables, for us and for Spark."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def s3_server() -> Iterator[str]:
    """Yield the URL of a running server with one bucket."""
    command = [sys.executable, __file__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request(
                "PUT", f"/{BUCKET}", b"", {"Authorization": "AWS4-HMAC-SHA256 Credential=x/y/us-east-1/s3/aws4_request"}
            )
            assert connection.getresponse().status == 200
            connection.close()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(20)


@dataclass
class Fault:
    """Says what happens to one request: whether it is handed on, and what the answer is.

    Without a status the connection is closed. If `late`, the request is handed on when `Proxy.deliver` is called.
    `then` is called after the request was handed on.
    """

    method: str
    path: str
    handed_on: bool = False
    status: int | None = None
    late: bool = False
    then: Callable[[], None] | None = None
    code: str = ""  # of the store, in the answer's text


@dataclass
class Proxy:
    """Hands requests on to the server, with faults: each in `faults` happens once, to the first request that it fits.

    A fault in `always` is never used up.
    """

    port: int
    faults: deque[Fault] = field(default_factory=deque)
    always: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    held: list[Callable[[], int]] = field(default_factory=list)
    before: list[tuple[str, str, Callable[[], None]]] = field(default_factory=list)  # called once, before it goes on
    # Called with each request and with what hands it on; if it returns False, the connection is closed. The path of a
    # request that removes several objects is followed by their keys.
    guard: Callable[[str, str, Callable[[], object]], bool] | None = None
    stripped: set[str] = field(default_factory=set)  # headers that the store behind it does not know
    url: str = ""

    def fault(self, method: str, path: str) -> Fault | None:
        for one in list(self.faults):
            if one.method == method and re.search(one.path, path):
                self.faults.remove(one)
                return one
        return next((one for one in self.always if one.method == method and re.search(one.path, path)), None)

    def deliver(self) -> list[int]:
        """Hand on the requests that were held, and return the server's status for each."""
        held, self.held = self.held, []
        return [one() for one in held]


def _with_keys(path: str, body: bytes) -> str:
    keys = re.findall(r"<Key>(.*?)</Key>", body.decode()) if path.endswith("?delete") else []
    return unquote(" ".join([path, *keys]))


@contextmanager
def proxy_to(server: str, *, puts_alone: bool = False) -> Iterator[Proxy]:
    """Yield a proxy to this server; with `puts_alone` a put is handed on when the put before it is answered."""
    proxy, alone = Proxy(int(server.rpartition(":")[2])), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {k: v for k, v in self.headers.items() if k.lower() not in proxy.stripped | {"connection"}}
            proxy.requests.append(f"{self.command} {self.path}")

            def hand_on() -> tuple[int, bytes, dict[str, str]]:
                connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=20)
                try:
                    with alone if puts_alone and self.command == "PUT" else nullcontext():
                        connection.request(self.command, self.path, body, headers)
                        answer = connection.getresponse()
                        return answer.status, answer.read(), dict(answer.getheaders())
                finally:
                    connection.close()

            if proxy.guard is not None and not proxy.guard(self.command, _with_keys(self.path, body), hand_on):
                self._hang_up()
                return
            for one in [one for one in proxy.before if one[0] == self.command and re.search(one[1], self.path)]:
                proxy.before.remove(one)
                one[2]()
            fault = proxy.fault(self.command, self.path)
            if fault is None:
                self._answer(*hand_on())
                return
            if fault.late:
                proxy.held.append(lambda: hand_on()[0])
            if fault.handed_on:
                hand_on()
            if fault.then is not None:
                fault.then()
            if fault.status is None:
                self._hang_up()
            else:
                code = {503: "SlowDown", 409: "ConditionalRequestConflict", 412: "PreconditionFailed"}
                key = f"<AWSAccessKeyId>{KEY}</AWSAccessKeyId>"  # as S3 sends it with some errors
                text = f"<Error><Code>{fault.code or code.get(fault.status, 'AccessDenied')}</Code>{key}</Error>"
                self._answer(fault.status, text.encode(), {})

        def _hang_up(self) -> None:
            self.close_connection = True
            with suppress(OSError):  # the client has gone
                self.connection.shutdown(socket.SHUT_RDWR)

        def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                    self.send_header(name, value)
            length = headers.get("Content-Length", headers.get("content-length")) if self.command == "HEAD" else None
            self.send_header("Content-Length", length or str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    for verb in ("GET", "PUT", "POST", "DELETE", "HEAD"):  # http.server looks for these names
        setattr(Handler, f"do_{verb}", Handler._any)

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that has gone

    server_here = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server_here.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    proxy.url = f"http://127.0.0.1:{server_here.server_address[1]}"
    try:
        yield proxy
    finally:
        server_here.shutdown()
        server_here.server_close()
        thread.join()


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app, one_at_a_time = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def in_one_step(environ: Any, start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] != "PUT":
            return app(environ, start_response)
        with one_at_a_time:
            return app(environ, start_response)

    server = make_server("127.0.0.1", 0, in_one_step, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
