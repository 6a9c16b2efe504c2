# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds `BrokerClient`, a connection that only asks questions and waits for each answer.

No messages are consumed or changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self, TypeVar, cast

from ..adapter.capabilities import BrokerLimit, Capabilities
from ..adapter.protocol import Adapter, SupportsDelayedRelease, SupportsLimits, Verdict
from ..errors import BrokerUnavailable, DestinationMissing, RedeliverError
from ..message import Delivery, Destination
from .replay import missing

PATIENCE = 60.0  # seconds; an adapter waits for a silent broker for less than that

T = TypeVar("T")


class BrokerClient:
    """Asks a broker questions.

    A context manager: connected inside, closed after. Every method and `with` may raise BrokerError.
    """

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._news = threading.Condition()
        self._capabilities: Capabilities | None = None
        self._error: RedeliverError | None = None

    def __enter__(self) -> Self:
        self._adapter.start(self)
        try:
            self._wait(lambda: self._capabilities is not None)
        except BaseException:
            self._adapter.close(1.0)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._adapter.close(5.0)

    @property
    def capabilities(self) -> Capabilities:
        return self._adapter.capabilities

    @property
    def broker(self) -> str:
        """Return the name of the broker, without secrets."""
        return self._adapter.broker

    def depth(self, queue: Destination) -> int:
        """Return the minimum number of messages that are ready in `queue`. Raises DestinationMissing."""
        ask: Callable[[Callable[[int | RedeliverError], None]], None] = partial(self._adapter.depth, queue)
        return self._answer(queue, ask)

    def browse(self, queue: Destination, limit: int) -> Sequence[Delivery]:
        """Return up to `limit` letters without consuming them."""
        ask: Callable[[Callable[[Sequence[Delivery] | RedeliverError], None]], None]
        ask = partial(self._adapter.browse, queue, limit)
        return self._answer(queue, ask)

    def limit(self, queue: Destination) -> BrokerLimit | None:
        """Return the broker's own delivery limit for `queue`; None where the broker cannot be asked."""
        if not isinstance(self._adapter, SupportsLimits):
            return None
        ask: Callable[[Callable[[BrokerLimit], None]], None] = partial(self._adapter.limit_at, queue)
        return self._ask(ask)

    def objection(self, target: Destination) -> str:
        """Return why copies cannot be sent to `target`; empty if they can. Nothing is made."""

        def ask(answer: Callable[[tuple[Verdict, str]], None]) -> None:
            self._adapter.check(target, lambda verdict, why: answer((verdict, why)), declare=False)

        verdict, why = self._ask(ask)
        return "" if verdict == "ok" else why

    def capabilities_at(self, source: Destination) -> Capabilities:
        """Return the capabilities at a source. Raises DestinationMissing."""
        if not self.capabilities.by_source:
            return self.capabilities
        adapter = cast(SupportsDelayedRelease, self._adapter)
        ask: Callable[[Callable[[Capabilities | RedeliverError], None]], None]
        ask = partial(adapter.capabilities_at, source, declare=False)
        found: Capabilities = self._answer(source, ask)
        return found

    def _answer(self, queue: Destination, ask: Callable[[Callable[[T | RedeliverError], None]], None]) -> T:
        found = self._ask(ask)
        if isinstance(found, DestinationMissing):
            raise missing(queue, self._adapter.broker)
        if isinstance(found, RedeliverError):
            raise found
        return found

    def _ask(self, ask: Callable[[Callable[[T], None]], None]) -> T:
        found: list[T] = []

        def hear(answer: T) -> None:
            with self._news:
                found.append(answer)
                self._news.notify_all()

        ask(hear)
        self._wait(lambda: bool(found))
        return found[0]

    def _wait(self, done: Callable[[], bool]) -> None:
        with self._news:
            self._news.wait_for(lambda: done() or self._error is not None, PATIENCE)
        if self._error is not None:
            raise self._error
        if not done():
            raise BrokerUnavailable("the broker does not answer", where=self._adapter.broker, code="broker-timeout")

    # -- the adapter's sink: any thread -----------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        with self._news:
            self._capabilities = capabilities
            self._news.notify_all()

    def ready(self, source: Destination, generation: int, /) -> None:
        pass

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        pass

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        pass

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        with self._news:
            self._error = error
            self._news.notify_all()
