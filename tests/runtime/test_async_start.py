# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Cancels `async with app` while the App starts: nothing consumes afterwards."""

from __future__ import annotations

import asyncio
import threading

import pytest

from redeliver_mw import App
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.message import Destination
from redeliver_mw.runtime import engine


class Gate:
    """Holds a start, on its thread, until it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
        self.reached, self.go = threading.Event(), threading.Event()
        original = getattr(engine.Engine, where)

        def waiting(this: engine.Engine, *arguments: object) -> object:
            self.reached.set()
            assert self.go.wait(10)
            return original(this, *arguments)

        monkeypatch.setattr(engine.Engine, where, waiting)


def app_with_five() -> tuple[App, MemoryBroker, list[bytes]]:
    broker, handled = MemoryBroker("rabbitmq", name="cancelled", makes_queues=True), list[bytes]()
    register_broker("cancelled", broker)
    for number in range(5):
        broker.send(Destination("orders"), b"%d" % number)
    app = App("memory://cancelled")
    app.handler("orders")(lambda delivery: handled.append(delivery.body))
    return app, broker, handled


async def cancelled_at(gate: Gate, app: App, times: int) -> None:
    async def enter() -> None:
        async with app:
            raise AssertionError("the body was entered")

    entering = asyncio.ensure_future(enter())
    await asyncio.to_thread(gate.reached.wait, 10)
    for _ in range(times):
        entering.cancel()
        await asyncio.sleep(0)
    gate.go.set()
    with pytest.raises(asyncio.CancelledError):
        await entering


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("where", ["start", "_abilities", "_subscribe"])
def test_a_start_that_is_cancelled_leaves_nothing_that_consumes(
    where: str, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, broker, handled = app_with_five()
    asyncio.run(cancelled_at(Gate(monkeypatch, where), app, times))
    assert not broker._links  # it is connected to by nobody
    assert len(handled) + broker.depth(Destination("orders")) == 5


def test_an_app_whose_start_was_given_up_may_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app, _, handled = app_with_five()
    with monkeypatch.context() as patched:
        asyncio.run(cancelled_at(Gate(patched, "start"), app, 1))

    async def whole() -> None:
        async with app:
            for _ in range(500):
                if len(handled) == 5:
                    break
                await asyncio.sleep(0.01)

    asyncio.run(whole())
    assert sorted(handled) == [b"0", b"1", b"2", b"3", b"4"]
