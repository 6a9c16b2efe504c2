# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what those worlds share whose clock is the wall's, and those that have a real broker behind a proxy."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from redeliver_mw.app import App
from redeliver_mw.testing.contract import World
from tests.brokers import Broker
from tests.brokers._process import free_ports
from tests.faults.proxy import Proxy


class RealTimeWorld(World):
    """Waits instead of moving its clock, which nobody can move."""

    def now(self) -> float:
        return time.monotonic()

    def advance(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_until(self, true: Callable[[], bool], timeout: float | None = None) -> bool:
        end = self.now() + (self.patience if timeout is None else timeout)
        while not (done := true()) and self.now() < end:
            time.sleep(0.01)
        return done


class BrokerWorld(RealTimeWorld):
    """Leads Apps to the broker through the proxy, which tells our connections by their names.

    The test itself goes past the proxy.
    """

    tick = 0.15

    def __init__(self, broker: Broker, proxy: Proxy) -> None:
        super().__init__()
        self.broker, self._proxy = broker, proxy
        self._adapters: list[Any] = []

    @abstractmethod
    def _drop(self) -> None:
        """Close the test's own connections to the broker."""

    @property
    def url(self) -> str:
        return self.other_url()

    def other_url(self, *, password: str | None = None, hosts: Sequence[str | None] = ()) -> str:
        """Return a URL with the broker's own credentials and the proxy's host, unless others are given."""
        b = self.broker
        named = ",".join(host or f"127.0.0.1:{self._proxy.port}" for host in hosts or (None,))
        return f"{b.kind}://{b.user}:{password or b.password}@{named}{b.path}"

    def dead_host(self) -> str:
        return f"127.0.0.1:{free_ports(1)[0]}"

    # -- faults ----------------------------------------------------------------------------------------------

    def cut_connections(self) -> None:
        self._proxy.cut()

    def lose_next_settle(self) -> None:
        self._proxy.swallow_next("(consume)")

    def silence(self) -> None:
        self._proxy.stall("up", "(publish)")
        for adapter in self._adapters:
            self._shorten(adapter, 1.0)

    def unsilence(self) -> None:
        self._proxy.resume()

    def crumble(self, size: int) -> None:
        """Cut what the broker says into pieces of so many bytes; 0 leaves it as it is."""
        self._proxy.crumb = size

    def kill_broker(self) -> None:
        self._drop()
        self.broker.kill()

    def restart_broker(self) -> None:
        self.broker.start()

    # -- begin and end ---------------------------------------------------------------------------------------

    def start(self, app: App) -> None:
        app.start()
        # Half a minute of silence is a long test: the patience is shortened, what follows it is the same. It is not so
        # short that a broker beside much other work is taken for a silent one.
        assert app._engine is not None
        self._adapters.append(app._engine.adapter)
        self._shorten(app._engine.adapter, 4.0)

    def _shorten(self, adapter: Any, patience: float) -> None:
        adapter._publisher._patience = patience

    def close(self) -> None:
        self.unsilence()
        self.crumble(0)
        super().close()
        self._proxy.cut()
        self._drop()
