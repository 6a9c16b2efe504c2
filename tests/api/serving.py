# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the HTTP API with a real uvicorn on a free port, with a token for each role."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import uvicorn

from redeliver_mw.api import Api, create_app
from redeliver_mw.operations import Store
from redeliver_mw.operations.tokens import ROLES, Role, add_token
from tests.operations.taking import put
from tests.pipeline.letters import letter

HISTORY = '[{"t":"2026-01-01T00:00:00.000Z","f":"0123456789abcdef","h":"shop-1","d":1.5}]'
LETTERS = (
    letter(
        b'{"lamp": 1, "password": "hunter2"}',
        {
            "redeliver_error_message": "no such lamp, password=hunter2",
            "redeliver_history": HISTORY,
            "token": "hunter2",
            "tenant": "acme",
        },
        copy_id="copy-0",
    ),
    letter(b"\x00\xff", {"redeliver_error_type": "KeyError", "tenant": "zenith"}, copy_id="copy-1"),
    letter(b"a\x1b[2Jb", {"x\x1b[2J": "y\x1b[2J\u202e\x9b"}, copy_id="odd", message_id="m\x1b[2J"),
)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """Serve an ASGI application, and yield its URL."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    config = uvicorn.Config(app, http="h11", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until = time.monotonic() + 10
        while not server.started and time.monotonic() < until:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        if isinstance(app, Api):
            app.end_streams()
        server.should_exit = True
        thread.join(20)
        listener.close()
        assert not thread.is_alive()


@dataclass
class Served:
    """Holds a server with three dead letters, and a token for each role."""

    url: str
    store_url: str
    tokens: dict[Role, str]
    app: Api
    timeout: float = 20.0  # seconds that a client waits for an answer
    _clients: dict[str, httpx2.Client] = field(default_factory=dict)

    def client(self, role: Role | None = "admin") -> httpx2.Client:
        """Return a client with the token of a role; None: without a token."""
        if str(role) not in self._clients:
            headers = {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}
            self._clients[str(role)] = httpx2.Client(
                base_url=f"{self.url}/api/v1", headers=headers, timeout=self.timeout
            )
        return self._clients[str(role)]

    def get(self, path: str, role: Role = "admin", **more: Any) -> Any:
        """Return the JSON of an answer that has to be good."""
        found = self.client(role).get(path, **more)
        assert found.status_code == 200, found.text
        return found.json()

    def post(self, path: str, json: Any, role: Role = "admin", status: int = 200) -> Any:
        """Return the JSON of an answer that has to have this status."""
        found = self.client(role).post(path, json=json)
        assert found.status_code == status, found.text
        return found.json()

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@contextmanager
def served(store_url: str, tokens: dict[Role, str] | None = None, **options: Any) -> Iterator[Served]:
    """Serve a new store with three dead letters; with `tokens` one that was served before."""
    if tokens is None:
        with Store(store_url) as store:
            put(store, *LETTERS)
            tokens = {role: add_token(store, role, role, expires_s=3600, who="a test")[1] for role in ROLES}
    app = create_app(store_url, **options)
    with listening(app) as url:
        one = Served(url, store_url, tokens, app)
        try:
            yield one
        finally:
            one.close()
