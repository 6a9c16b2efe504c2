# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `TestApp`: an App on a memory broker with a hand-driven clock. No threads, no waiting, no server."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..app import App
from ..dead_letters import Replay, ReplayReport
from ..memory import MemoryAdapter, MemoryBroker, StoredMessage
from ..message import Destination
from ..runtime.runner import StopReport
from .clock import ManualClock
from .faults import Faults

PERSONALITIES = {"rabbitmq": "rabbitmq", "activemq": "activemq", "artemis": "artemis"}


class TestApp:
    """Runs `app`'s handlers as its broker would, driven by `send` and `advance`.

    The memory broker has the personality of the app's URL (`memory://`: RabbitMQ's). Sources are declared. As a context
    manager it stops the app at the end; without `with` the app starts at the first use. For one thread.

        with TestApp(app) as test:
            test.send("orders", b"broken")
            test.advance(3.0)
            assert test.dead_letters("orders")[0].headers["redeliver_failures"] == "3"
    """

    __test__ = False  # tells pytest that this is not a test class

    def __init__(self, app: App, *, personality: str | None = None, faults: Faults | None = None) -> None:
        """Take an App with its handlers, which is not started yet.

        `personality`: the broker that the memory broker imitates, with None that of the app's URL. `faults`: what goes
        wrong at the broker.
        """
        self.app = app
        self.clock = ManualClock()
        kind = app.dialect.partition("+")[0]
        plays = personality or app.url_option("personality") or PERSONALITIES.get(kind, "rabbitmq")
        self.broker = MemoryBroker(plays, clock=self.clock, faults=faults)
        self._started = False

    def start(self) -> Self:
        """Connect and subscribe. A second call does nothing."""
        if self._started:
            return self
        for source in self.app.sources:
            self.broker.declare(source)
        self.app._start(MemoryAdapter(self.broker), self.clock, drive=self.clock.run_until_idle)
        self._started = True
        return self

    def send(
        self,
        destination: str | Destination,
        body: bytes | str,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        """Send a message, and run everything that is due now. A str is encoded as UTF-8."""
        self.start()
        raw = body.encode() if isinstance(body, str) else body
        self.broker.send(Destination.parse(destination), raw, dict(headers or {}), **properties)
        self.clock.run_until_idle()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; everything that falls due meanwhile happens at its own instant.

        Changes made to the limbo's tables by SQL are noticed first.
        """
        self.start()
        if self.app._engine is not None:
            self.app._engine.look_at_limbo()
        self.clock.advance(seconds)

    def dead_letters(self, source: str | Destination) -> list[StoredMessage]:
        """Return the messages in the dead-letter targets of this source, oldest first."""
        return [message for target in self.app.dead_letter_targets(source) for message in self.broker.peek(target)]

    def replay(self, source: str | Destination, *, limit: int | None = None) -> ReplayReport:
        """Send the messages in the dead-letter targets of this source back to where they were consumed from.

        Everything that is due now happens: handlers run again. `limit`: at most this many dead letters of each target
        (>= 1).
        """
        self.start()
        replay_id = uuid.uuid4().hex[:16]
        targets = [target for target in self.app.dead_letter_targets(source) if self.broker.depth(target)]
        done = [
            Replay(
                MemoryAdapter(self.broker), target, limit=limit, replay_id=replay_id, drive=self.clock.run_until_idle
            ).run()
            for target in targets
        ]
        self.clock.run_until_idle()
        rest = "; ".join(report.rest for report in done if report.rest)
        outcomes = [outcome for report in done for outcome in report.outcomes]
        return ReplayReport(replay_id, outcomes, sum(report.died_again for report in done), rest)

    def depth(self, destination: str | Destination) -> int:
        """Return the number of messages ready in a queue."""
        return self.broker.depth(destination)

    def stop(self) -> StopReport:
        """Stop the app immediately, and return its report."""
        return self.app.stop(0.0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
