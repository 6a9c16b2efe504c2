# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides which host is tried next, after how long, and which error is reported when no host answers."""

from __future__ import annotations

import random

from ...errors import BrokerUnavailable, ConfigError, CredentialsRefused, RedeliverError
from ..registry import BrokerUrl
from .tls_errors import TlsFailed

ROUNDS_AT_START = 3  # over all hosts, before a first connect is given up
SHORT_PAUSE, LONGEST_PAUSE = 0.05, 5.0  # seconds between two attempts
GROWING_FROM = 0.2  # seconds: the longest pause after the first round; it doubles with each


class HostRotation:
    """Counts attempts over the hosts of a URL. On the adapter's I/O thread only."""

    def __init__(self, url: BrokerUrl, usual_port: int) -> None:
        self._url = url
        self._hosts = [(host or "localhost", port or usual_port) for host, port in url.hosts]
        self._attempts = 0  # since the last one that succeeded
        self._errors: dict[tuple[str, int], str] = {}  # the error of each host's last attempt

    @property
    def index(self) -> int:
        """Return the place of the next host among the hosts of the URL, from 0."""
        return self._attempts % len(self._hosts)

    @property
    def host(self) -> tuple[str, int]:
        """Return the host and port that are tried next."""
        return self._hosts[self.index]

    def succeeded(self) -> None:
        """Begin to count anew: this host is connected to."""
        self._attempts = 0
        self._errors.clear()

    def failed(self, error: RedeliverError) -> RedeliverError:
        """Count a failed attempt, and return the error to report: of several hosts, each with its reason."""
        host, port = self.host
        self._attempts += 1
        if not isinstance(error, BrokerUnavailable) or len(self._hosts) == 1:
            return error
        self._errors[host, port] = error.what
        if len(self._errors) == 1 or isinstance(error, TlsFailed):
            return error
        each = "; ".join(f"{host}:{port}: {_reason(what)}" for (host, port), what in self._errors.items())
        return BrokerUnavailable(f"no broker answers there ({each})", where=error.where, cure=error.cure)

    def is_hopeless(self, error: RedeliverError) -> bool:
        """Return whether a first connect is to be given up after this error."""
        if isinstance(error, CredentialsRefused | ConfigError):
            return True
        return (isinstance(error, TlsFailed) and self.index == 0) or self._rounds >= ROUNDS_AT_START

    @property
    def pause(self) -> float:
        """Return the seconds until the next attempt: few within a round, and after it more, at random, up to 5.05 s."""
        if self.index:
            return SHORT_PAUSE
        longest = min(LONGEST_PAUSE, GROWING_FROM * 2 ** min(self._rounds - 1, 16))
        return SHORT_PAUSE + random.uniform(0, longest)

    @property
    def _rounds(self) -> int:
        return max(1, self._attempts // len(self._hosts))


def _reason(what: str) -> str:
    return what.removeprefix("no broker answers there (").removesuffix(")")
