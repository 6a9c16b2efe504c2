# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Acks that follow each other closely go out together, and none of them waits for a slow callback."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from redeliver_stomp.dropin.ack_batch import MOMENT, TOGETHER, AckBatch
from tests.adapters.stomp.dropins import Listener, connect, consuming, left, new_name, put, until
from tests.brokers import Broker


class Clocked:
    """Runs an `AckBatch` on a clock that is moved by hand; what the batch wrote is in `written`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.alive = True
        self.written: list[bytes] = []
        self.acks = AckBatch(self.written.append, lambda: self.now, lambda: self.alive)


def test_acks_of_one_turn_are_one_write() -> None:
    c = Clocked()
    assert [c.acks.add(frame) for frame in (b"a", b"b", b"c")] == [True, False, False]
    assert c.written == []
    c.acks.flush()
    c.acks.flush()
    assert c.written == [b"abc"]
    assert c.acks.add(b"d")  # the first of the next turn


def test_no_more_than_a_few_dozen_wait() -> None:
    c = Clocked()
    for _ in range(2 * TOGETHER + 1):
        c.acks.add(b"a")
    assert c.written == [b"a" * TOGETHER] * 2


def test_none_waits_longer_than_a_moment_behind_callbacks_that_follow_each_other() -> None:
    c = Clocked()
    c.acks.add(b"a")
    c.now = MOMENT / 2
    c.acks.add(b"b")
    c.acks.flush_old()
    assert c.written == []
    c.now = MOMENT * 1.5
    c.acks.flush_old()
    assert c.written == [b"ab"]
    c.acks.add(b"c")
    c.now += MOMENT * 1.5
    c.acks.add(b"d")
    assert c.written == [b"ab", b"cd"]


def test_what_comes_after_the_loss_of_its_connection_is_not_written() -> None:
    c = Clocked()
    c.acks.add(b"a")
    c.acks.write_now([b"b", b"c"])
    c.alive = False
    c.acks.write_now([b"d"])
    c.alive = True
    c.acks.flush()
    assert c.written == [b"abc"]


def test_what_was_lost_with_its_connection_is_not_written_on_the_next() -> None:
    c = Clocked()
    c.acks.add(b"a")
    c.acks.drop()
    c.acks.flush()
    assert c.written == []


@pytest.mark.broker
def test_a_slow_callback_does_not_keep_back_the_ack_before_it(activemq63: Broker) -> None:
    queue, go_on = new_name(), threading.Event()

    def act(listener: Listener, frame: Any) -> None:
        if frame.body == "slow":
            go_on.wait(30)

    listener = Listener(act)
    put(activemq63, queue, "quick", "slow")
    connection = connect(activemq63, heartbeats=(500, 500))
    with consuming(activemq63, f"/queue/{queue}", listener, connection=connection) as conn:
        until(lambda: listener.attempts("slow"))
        line = vars(conn)["_redeliver_scope"].user_connection
        until(lambda: not line._acks._waiting)  # at the next heart-beat
        line.cut()
        until(lambda: not conn.is_connected())
        assert [frame.body for frame in left(activemq63, queue, 1)] == [b"slow"]
        go_on.set()
