# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks a STOMP server one question over a plain socket: do you let me in, and who are you?"""

from __future__ import annotations

import socket


def login(host: str, port: int, user: str, password: str, seconds: float = 10) -> dict[str, str]:
    """Return the headers of the server's CONNECTED frame. Raises ConnectionError with the cause in words."""
    frame = f"CONNECT\naccept-version:1.2\nhost:{host}\nheart-beat:0,0\nlogin:{user}\npasscode:{password}\n\n\0"
    try:
        with socket.create_connection((host, port), timeout=seconds) as peer:
            peer.sendall(frame.encode())
            said = b""
            while b"\0" not in said:
                if not (chunk := peer.recv(65536)):
                    raise ConnectionError("it closed the connection without a word")
                said += chunk
    except OSError as error:
        raise ConnectionError(str(error) or repr(error)) from error
    command, *lines = said.partition(b"\n\n")[0].decode(errors="replace").splitlines()
    headers = dict(line.partition(":")[::2] for line in reversed(lines))  # the first of a name is the one that counts
    if command != "CONNECTED":
        raise ConnectionError(headers.get("message") or command)
    return headers


def server_version(host: str, port: int, user: str, password: str) -> tuple[str, str]:
    """Return the product and version of the server, as in ("ActiveMQ", "5.18.3").

    Raises ConnectionError with the cause in words.
    """
    said = login(host, port, user, password).get("server", "unknown/unknown")
    product, _, version = said.partition("/")
    return product, version.partition(" ")[0]


def serves(host: str, port: int, user: str, password: str) -> bool:
    """Return whether the server lets us in."""
    try:
        login(host, port, user, password, 5)
    except ConnectionError:
        return False
    return True
