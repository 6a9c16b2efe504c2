# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds an adapter by itself: what the adapter tells is kept, and what it is asked is waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.adapter.protocol import Subscription
from redeliver_mw.adapter.registry import adapter_for
from redeliver_mw.errors import RedeliverError
from redeliver_mw.message import Delivery, Destination, Outgoing

LIMIT = 15.0  # seconds


class Probe:
    """Serves as the sink of the adapter that it holds, and as a context manager."""

    def __init__(self, url: str) -> None:
        self.adapter: Any = adapter_for(url)  # its own type: some tests look inside
        self._changed = threading.Condition()
        self.connections = 0
        self.ready_sources: list[Destination] = []
        self.deliveries: list[Delivery] = []
        self.losses: list[int] = []
        self.failures: list[RedeliverError] = []

    def __enter__(self) -> Probe:
        self.adapter.start(self)
        self.wait(lambda: bool(self.connections or self.failures))
        return self

    def __exit__(self, *_: object) -> None:
        self.adapter.close(5.0)

    def wait(self, true: Callable[[], bool], seconds: float = LIMIT) -> None:
        with self._changed:
            assert self._changed.wait_for(true, seconds)

    def subscribe(self, source: str | Destination, **options: Any) -> None:
        destination = Destination.parse(source)
        self.adapter.subscribe(Subscription(source=destination, **options))
        self.wait(lambda: destination in self.ready_sources or bool(self.failures))

    def take(self, count: int) -> list[Delivery]:
        """Wait for so many deliveries, and return them, oldest first; they stay unsettled."""
        self.wait(lambda: len(self.deliveries) >= count)
        with self._changed:
            taken, self.deliveries = self.deliveries[:count], self.deliveries[count:]
        return taken

    def ask(self, call: Callable[[Callable[..., None]], None], seconds: float = LIMIT) -> Any:
        """Return what `call` is answered: the one thing, or several as a tuple."""
        found: list[Any] = []

        def answer(*what: Any) -> None:
            with self._changed:
                found.append(what[0] if len(what) == 1 else what)
                self._changed.notify_all()

        call(answer)
        self.wait(lambda: bool(found), seconds)
        return found[0]

    def publish(self, out: Outgoing, after: float = 0.0) -> tuple[str, str]:
        found: tuple[str, str] = self.ask(lambda answer: self.adapter.publish(out, answer, after=after))
        return found

    def move(self, delivery: Delivery, *outs: Outgoing) -> tuple[str, str]:
        moves = [(out, 0.0) for out in outs]
        found: tuple[str, str] = self.ask(lambda answer: self.adapter.move(delivery, moves, answer))
        return found

    def move_all(self, moves: Sequence[tuple[Delivery, Outgoing]]) -> list[str]:
        """Ask for all moves at once, and return their verdicts in that order."""
        found: dict[Delivery, str] = {}

        def answered(delivery: Delivery, verdict: str) -> None:
            with self._changed:
                found[delivery] = verdict
                self._changed.notify_all()

        for delivery, out in moves:
            self.adapter.move(delivery, [(out, 0.0)], lambda verdict, _, d=delivery: answered(d, verdict))
        self.wait(lambda: len(found) == len(moves))
        return [found[delivery] for delivery, _ in moves]

    def check(self, target: str, declare: bool = False) -> tuple[str, str]:
        destination = Destination.parse(target)
        found: tuple[str, str] = self.ask(lambda answer: self.adapter.check(destination, answer, declare=declare))
        return found

    # -- the sink --------------------------------------------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        self._note(lambda: setattr(self, "connections", self.connections + 1))

    def ready(self, source: Destination, generation: int, /) -> None:
        self._note(lambda: self.ready_sources.append(source))

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        self._note(lambda: self.deliveries.extend(batch))

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._note(lambda: self.losses.append(generation))

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self._note(lambda: self.failures.append(error))

    def _note(self, note: Callable[[], object]) -> None:
        with self._changed:
            note()
            self._changed.notify_all()


def copy_of(delivery: Delivery, target: str, **headers: Any) -> Outgoing:
    """Return a copy as the core makes one, with headers beside the original's."""
    kept = dict(delivery.headers) | headers
    copy_id = f"copy-of-{delivery.generation}-{delivery.tag}-to-{target}"
    return Outgoing(Destination.parse(target), delivery.body, kept, delivery.properties, copy_id, delivery)
