# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the memory broker as the contract uses it: with a clock moved by hand, or on threads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.app import App
from redeliver_mw.memory import MemoryAdapter, MemoryBroker, register_broker
from redeliver_mw.message import Destination
from redeliver_mw.testing import ManualClock
from redeliver_mw.testing.contract import Raw, World
from tests.contract.broker_world import RealTimeWorld

FULL = 3  # messages that a refusing queue holds
_numbers = itertools.count(1)


class MemoryWorld(World):
    """Runs on the thread of the test, with a clock moved by hand."""

    patience = 60.0
    abilities = frozenset({"kill", "alarm"})

    def __init__(self, personality: str) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.personality = personality
        self.broker = self._broker()
        self.keeps_message_ids = personality != "activemq"
        if personality == "activemq":
            self.marks = frozenset({"cut"})
        if personality == "artemis":
            self.marks = frozenset()
        self.user = "guest" if personality.startswith("rabbitmq") else ""

    def _broker(self) -> MemoryBroker:
        return MemoryBroker(self.personality, clock=self.clock)

    @property
    def url(self) -> str:
        return f"memory://{self.broker.name}?personality={self.personality}"

    @property
    def capabilities(self) -> Capabilities:
        return self.broker.capabilities

    @property
    def foreign_headers(self) -> Mapping[str, Any]:
        return {
            "text": "grüße",
            "empty": "",
            "whole": 2**40,
            "minus": -7,
            "fraction": 1.75,
            "yes": True,
            "no": False,
            "nothing": None,
            "bytes": bytes(range(256)),
            "list": [1, "two", [3.5]],
            "table": {"a": {"b": None}},
        }

    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        name = self.new_name()
        if declare:
            self.broker.declare(name, max_length=FULL if refusing else None, refuse=refusing)
            for n in range(FULL if refusing else 0):
                self.broker.send(name, b"filler %d" % n)
        return name

    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        if lifetime is not None:
            properties["expires_at_us"] = self.broker.clock.now().us + round(lifetime * 1e6)
        self.broker.send(queue, body, headers, **properties)
        self._settle_down()

    def take_all(self, queue: str) -> list[Raw]:
        self._settle_down()
        link, found = self.broker.connect(), []
        while (held := link.get(queue)) is not None:
            props = {name: value for name, value in asdict(held.message.properties).items() if value is not None}
            found.append(Raw(held.message.body, dict(held.message.headers), props, held.redelivered))
            link.accept(held.tag)
        link.close()
        return found

    def depth(self, queue: str) -> int:
        return self.broker.depth(queue)

    def exists(self, queue: str) -> bool:
        return self.broker.queue(Destination(queue)) is not None

    def declare(self, queue: str) -> None:
        self.broker.declare(queue)

    def delete(self, queue: str) -> None:
        with self.broker.lock:
            del self.broker.stock.queues[Destination(queue)]

    def relent(self, queue: str) -> None:
        assert [raw.body[:6] for raw in self.take_all(queue)] == [b"filler"] * FULL

    def cut_connections(self) -> None:
        self.broker.cut()

    def lose_next_settle(self) -> None:
        self.broker.faults.drop_settle()

    def silence(self) -> None:
        self.broker.faults.silence(None, None)

    def unsilence(self) -> None:
        self.broker.faults.clear()

    def kill_broker(self) -> None:
        self.broker.kill()

    def restart_broker(self) -> None:
        self.broker.restart()

    def raise_alarm(self) -> None:
        self.broker.block()

    def lift_alarm(self) -> None:
        self.broker.unblock()

    def now(self) -> float:
        return self.clock.now().mono

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def wait_until(self, true: Callable[[], bool], timeout: float | None = None) -> bool:
        end = self.now() + (self.patience if timeout is None else timeout)
        self._settle_down()
        while not (done := true()) and self.now() < end:
            self.clock.advance(0.05)
        return done

    def start(self, app: App) -> None:
        app._start(MemoryAdapter(self.broker, publish_timeout=1.0), self.clock, drive=self.clock.run_until_idle)

    def _settle_down(self) -> None:
        self.clock.run_until_idle()


class ThreadedMemoryWorld(RealTimeWorld, MemoryWorld):
    """Runs as with a real broker: with threads, and time that passes by itself."""

    patience = 15.0
    tick = 0.1
    abilities = frozenset({"kill", "alarm", "threads"})

    def _broker(self) -> MemoryBroker:
        broker = MemoryBroker(self.personality, name=f"contract-{next(_numbers)}")
        register_broker(broker.name, broker)
        return broker

    def start(self, app: App) -> None:
        app.start()
        assert app._engine is not None
        app._engine.adapter._publisher._timeout = 1.0

    def _settle_down(self) -> None:
        pass
