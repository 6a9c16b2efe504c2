# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks whether passwords and messages travel encrypted, and for how long the broker's certificate lasts."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from ..adapter.registry import BrokerUrl
from .finding import Finding, not_known, ok, warning

SOON: Final = 14 * 86_400.0  # seconds before its end, from which on a certificate is worth a warning
PATIENCE: Final = 5.0  # seconds for a handshake
DAY: Final = 86_400.0


def check_tls(url: BrokerUrl, port: int, now: float) -> Iterator[Finding]:
    """Yield the findings about the connection to the first host. `now` is wall time. Connects if TLS is on."""
    host = url.hosts[0][0] or "localhost"
    if not url.flag("tls"):
        if is_loopback(host):
            yield ok("tls", host, "off, on this machine alone")
        else:
            yield warning(
                "tls-off",
                host,
                "passwords and messages are readable on the network",
                "Write tls=1 in the broker's URL, and name its TLS port",
            )
    elif not url.flag("verify", True):
        yield warning(
            "tls-not-verified",
            host,
            "on, but verify=0 lets any host pass for the broker",
            "Leave verify=0 out, and name the authority of its certificate: ca=FILE",
        )
    else:
        yield _certificate(url, host, port, now)
    yield from _management(url)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    if host in ("", "localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _certificate(url: BrokerUrl, host: str, port: int, now: float) -> Finding:
    context = url.tls_context()
    assert context is not None
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as bare,
            context.wrap_socket(bare, server_hostname=host) as sock,
        ):
            certificate, version = sock.getpeercert() or {}, sock.version()
    except OSError as error:
        return not_known("tls", host, f"a handshake of our own failed: {error.strerror or error}")
    left = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - now
    if left < SOON:
        return warning(
            "tls-certificate-expires",
            host,
            f"the broker's certificate is valid for {left / DAY:.0f} more days, and no connection is opened after that",
            "Renew it; an App reads its own files anew for each connection",
        )
    return ok("tls", host, f"on ({version}), verified, valid for {left / DAY:.0f} more days")


def _management(url: BrokerUrl) -> Iterator[Finding]:
    parts = urlsplit(url.options.get("management", ""))
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield warning(
            "tls-management-off",
            parts.hostname or "",
            "the password for the management is readable on the network",
            "Write management=https://HOST:15671",
        )
