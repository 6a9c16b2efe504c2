# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects one thread to the broker for synchronous questions: answers of the adapter are queued for that thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Final, Self, TypeVar

from ...adapter.capabilities import Capabilities
from ...adapter.protocol import Adapter, Verdict
from ...errors import BrokerError, BrokerUnavailable, RedeliverError
from ...message import Delivery, Destination

CONNECTED_IN: Final = 60.0  # seconds; an adapter itself would try without end
ANSWERED_IN: Final = 45.0  # seconds for a question, more than adapters wait themselves
LAST_WORDS: Final = 5.0  # seconds for a clean end

T = TypeVar("T")
ConnectionStep = Callable[[], None]


class SyncConnection:
    """Wraps an adapter, as its `Sink`; a context manager. `open` raises BrokerError, ConfigError."""

    def __init__(self, adapter: Adapter) -> None:
        self.adapter = adapter
        self._steps: SimpleQueue[ConnectionStep] = SimpleQueue()
        self._connected = False
        self._error: RedeliverError | None = None

    def open(self) -> Self:
        self.adapter.start(self)
        try:
            deadline = time.monotonic() + CONNECTED_IN
            while not self._connected:
                if not self.step(deadline - time.monotonic()):
                    raise BrokerUnavailable(
                        "the broker does not answer", where=self.adapter.broker, code="broker-timeout"
                    )
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Close the connection. Copies without an answer then get one: `unsent` or `silent`."""
        self.adapter.close(LAST_WORDS)

    def post(self, step: ConnectionStep) -> None:
        """Queue a step for the thread that waits. Any thread."""
        self._steps.put(step)

    def step(self, timeout: float) -> bool:
        """Do the first queued step; return False if none comes within `timeout` seconds.

        Raises the error if the connection failed.
        """
        try:
            step = self._steps.get(timeout=timeout) if timeout > 0 else self._steps.get_nowait()
        except Empty:
            return False
        step()
        if self._error is not None:
            raise self._error
        return True

    def check(self, target: Destination) -> str:
        """Return why a target takes no messages; empty if it does, as far as the broker reports in advance."""

        def ask(answer: Callable[[tuple[Verdict, str]], None]) -> None:
            self.adapter.check(target, lambda verdict, why: answer((verdict, why)), declare=False)

        verdict, why = self._ask(ask)
        if verdict == "silent":
            raise BrokerUnavailable(
                f"the broker does not answer: {why}", where=self.adapter.broker, code="broker-timeout"
            )
        return "" if verdict == "ok" else why or "the broker refuses it"

    def depth(self, source: Destination) -> int:
        """Return the number of messages ready in a queue. Raises BrokerError."""

        def ask(answer: Callable[[int | RedeliverError], None]) -> None:
            self.adapter.depth(source, answer)

        return _or_raise(self._ask(ask))

    def browse(self, source: Destination, limit: int) -> Sequence[Delivery]:
        """Return up to `limit` messages, left in their queue. Raises BrokerError."""

        def ask(answer: Callable[[Sequence[Delivery] | RedeliverError], None]) -> None:
            self.adapter.browse(source, limit, answer)

        return _or_raise(self._ask(ask))

    def _ask(self, ask: Callable[[Callable[[T], None]], None]) -> T:
        found: list[T] = []
        ask(lambda answer: self.post(lambda: found.append(answer)))
        deadline = time.monotonic() + ANSWERED_IN
        while not found:
            if not self.step(deadline - time.monotonic()):
                raise BrokerError("the broker does not answer", where=self.adapter.broker, code="broker-timeout")
        return found[0]

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- the adapter's sink: any thread ---------------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        def know() -> None:
            self._connected = True

        self.post(know)

    def ready(self, source: Destination, generation: int, /) -> None:
        pass

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        pass

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        pass

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        def know() -> None:
            self._error = error

        self.post(know)


def _or_raise(found: T | RedeliverError) -> T:
    if isinstance(found, RedeliverError):
        raise found
    return found
