# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what is refused before the first message, and what a stop leaves to the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, connect
from redeliver_mw.errors import ConfigError
from redeliver_mw.testing import TestApp


def nothing(delivery: Delivery) -> None:
    pass


def test_a_dead_letter_queue_that_is_consumed_under_the_same_policy_is_refused() -> None:
    policy = RedeliveryPolicy(3, 1.0, "queue:dead")
    app = App("memory://", policy=policy)
    app.handler("orders")(nothing)
    app.handler("dead", policy=RedeliveryPolicy(3, 1.0, ["queue:dead", "queue:other"]))(nothing)
    with pytest.raises(ConfigError, match="where they come from"):
        TestApp(app).start()
    twin = App("memory://", policy=policy)
    twin.handler("orders")(nothing)
    twin.handler("DLQ.x", policy=RedeliveryPolicy(3, 1.0, "queue:orders"))(nothing)
    twin.handler("x", policy=RedeliveryPolicy(3, 1.0, "queue:DLQ.x"))(nothing)
    TestApp(twin).start().stop()  # each of them has a policy of its own


def test_a_dead_letter_queue_under_a_policy_with_another_end_is_consumed() -> None:
    app = App("memory://")
    app.handler("orders")(nothing)
    app.handler("DLQ.orders", policy=RedeliveryPolicy(2, 1.0, on_dead="keep"))(nothing)
    TestApp(app).start().stop()


def test_the_default_policy_on_a_queue_and_its_dead_letter_queue_is_refused() -> None:
    app = App("memory://")
    app.handler("orders")(nothing)
    app.handler("DLQ.orders")(nothing)
    with pytest.raises(ConfigError, match="same policy"):
        TestApp(app).start()


def test_a_coroutine_that_a_stop_cancels_leaves_its_message_to_the_broker() -> None:
    begun = threading.Event()
    app = App("memory://cancelled-by-a-stop")

    @app.handler("orders")
    async def never_ends(delivery: Delivery) -> None:
        begun.set()
        await asyncio.Event().wait()

    with connect("memory://cancelled-by-a-stop") as session:
        app.start()
        session.publish("orders", b"one lamp")
        assert begun.wait(10)
        report = app.stop(timeout=0.1)
        assert report.unsettled == 1
        assert session.depth("orders") == 1
        assert session.depth("DLQ.orders") == 0


def test_a_stop_waits_for_the_settlement_of_a_handler_that_has_just_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker is held between the end of its handler and its settlement, until a stop would be over."""
    app = App("memory://stopped-before-the-settlement")
    app.handler("orders")(nothing)
    reports = []
    stop = threading.Thread(target=lambda: reports.append(app.stop(timeout=30.0)))
    with connect("memory://stopped-before-the-settlement") as session:
        app.start()
        assert app._engine is not None
        adapter = app._engine.adapter
        settle = adapter.settle

        def settle_late(*arguments: Any, **more: Any) -> None:
            stop.start()
            stop.join(0.3)  # it ends at once if it does not wait for us
            settle(*arguments, **more)

        monkeypatch.setattr(adapter, "settle", settle_late)
        session.publish("orders", b"one lamp")
        while stop.ident is None:
            time.sleep(0.01)
        stop.join(30)
        assert [report.unsettled for report in reports] == [0]
        assert session.depth("orders") == 0
