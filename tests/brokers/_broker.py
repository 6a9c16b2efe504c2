# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what a test sees of a broker: where it is, and the means to kill, silence and restart it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Self
from urllib.parse import quote, unquote, urlsplit

from tests.brokers._process import BrokerFailed, Leash

How = Literal["env", "compose", "debian package", "debootstrap cache", "maven cache"]


class Broker(ABC):
    """Represents a running broker. Not thread-safe: one thread at a time."""

    kind: ClassVar[str]
    title: ClassVar[str]
    how: How
    host: str
    port: int  # of the usual driver
    stomp_port: int  # these two of ActiveMQ and Artemis only
    amqp_port: int  # of AMQP 1.0
    user: str
    password: str
    version: str
    path: str = "/"
    management_url: str | None = None  # of the HTTP API, credentials in it; None for a given broker
    can_restart = False

    @property
    def url(self) -> str:
        """Return the URL in the form that `App` takes."""
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return f"{self.kind}://{user}:{password}@{self.host}:{self.port}{self.path}"

    def describe(self) -> str:
        """Return one line for humans, without the password."""
        return f"{self.title} {self.version} at {self.host}:{self.port} ({self.how})"

    @abstractmethod
    def kill(self) -> None:
        """Kill -9 every process of the node; return when they are gone. The data of the node stay."""

    @abstractmethod
    def start(self) -> None:
        """Start the broker again after `kill`, with the same data and port; return when it is usable.

        Raises BrokerFailed if it does not become usable.
        """

    @abstractmethod
    def pause(self) -> None:
        """Send SIGSTOP: connections stay open and nothing answers, until `resume`."""

    @abstractmethod
    def resume(self) -> None:
        """Send SIGCONT."""

    @abstractmethod
    def stop(self) -> None:
        """End the broker and delete its data. May be called twice."""

    @abstractmethod
    def ctl(self, *words: str) -> str:
        """Return what the broker's own admin command prints for these words. Raises BrokerFailed if it says no."""

    @abstractmethod
    def alive(self) -> bool:
        """Return False once a broker of ours has no process left."""

    @abstractmethod
    def revive(self) -> None:
        """Undo a `kill` or `pause` that a failed test has left behind."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class GivenBroker(Broker):
    """Uses a broker that was there before, named by an environment variable, and never kills it."""

    how: How = "env"
    default_port: ClassVar[int] = 5672
    default_user: ClassVar[str] = "guest"  # and password

    def __init__(self, url: str, variable: str) -> None:
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or self.default_port
        self.user = unquote(parts.username or self.default_user)
        self.password = unquote(parts.password or self.default_user)
        self.path = parts.path or self.path
        self._variable = variable

    def fits(self, version: str) -> bool:
        """Return whether a test that asked for `version` may have this broker."""
        return self.version.startswith(f"{version}.")

    def _not_ours(self, *_: str) -> BrokerFailed:
        return BrokerFailed(f"the broker that {self._variable} names is not ours to command (can_restart is False)")

    def kill(self) -> None:
        raise self._not_ours()

    start = pause = resume = kill

    def ctl(self, *words: str) -> str:
        raise self._not_ours()

    def alive(self) -> bool:
        return True

    def revive(self) -> None:
        pass

    def stop(self) -> None:
        pass


class OwnBroker(Broker):
    """Starts a broker: processes on a leash, data in a temporary folder; both end with this process."""

    can_restart = True
    host = "127.0.0.1"

    def __init__(self, prefix: Sequence[str]) -> None:
        self.data = Path(tempfile.mkdtemp(prefix=f"redeliver-mw-{self.kind}-"))
        self.state: Literal["down", "up", "paused", "stopped"] = "down"
        try:
            self._leash = Leash(self.data, prefix)
        except BaseException:
            shutil.rmtree(self.data)
            raise
        atexit.register(self.stop)

    @abstractmethod
    def _launch(self) -> None:
        """Start the processes and wait until the broker is usable."""

    def pids(self) -> list[int]:
        """Return the broker's living processes; none once it is stopped."""
        return [] if self.state == "stopped" else self._leash.pids()

    def alive(self) -> bool:
        return self.state != "stopped" and self._leash.holds_any()

    def start(self) -> None:
        if self.state == "down":
            self._launch()
            self.state = "up"

    def kill(self) -> None:
        self._leash.kill()
        self.state = "down"

    def leave(self, seconds: float = 60.0) -> None:
        """End the node in good order, as an operator does, after `seconds` by force. The data of the node stay."""
        self._ask_to_end()
        deadline = time.monotonic() + seconds
        while self._leash.pids() and time.monotonic() < deadline:
            time.sleep(0.05)  # between two looks at other processes
        self.kill()

    def _ask_to_end(self) -> None:
        self._leash.terminate()

    def pause(self) -> None:
        self._leash.pause()
        self.state = "paused"

    def resume(self) -> None:
        self._leash.resume()
        self.state = "up"

    def revive(self) -> None:
        if self.state == "paused":
            self.resume()
        if self.state == "up" and not self.alive():
            self.state = "down"  # it fell over by itself
        self.start()

    def stop(self) -> None:
        self.state = "stopped"
        self._leash.end()
        atexit.unregister(self.stop)
