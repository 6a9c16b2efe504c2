# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests copies that wait on their way out, without a broker.

Each copy is answered once, also when the connection closes at the step where the copy waits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from redeliver_mw.adapter.kit.pending_copies import PendingCopies
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.testing import make_delivery
from redeliver_pika.dropin.copies import ChannelCopyPublisher, SharedConnection
from redeliver_pika.publisher import Publisher

GENERATION = 7
STEPS = ("look-up", "young ladder", "channel opens")


def copy() -> Outgoing:
    original = make_delivery(b"1")
    original.generation = GENERATION
    return Outgoing(Destination("orders"), b"1", {}, origin=original)


class Topology:
    """Answers a look-up when the test says so. All queues are there, and a marker where the test says that."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Callable[[Any], None]]] = []

    def look_up(self, queue: str, answer: Callable[[Any], None]) -> None:
        self.asked.append((queue, answer))

    def answer(self, *, young: bool) -> None:
        while self.asked:
            queue, answer = self.asked.pop(0)
            answer(1 if young and queue.endswith(".young") else 0)


class Waiting:
    """Holds one copy that waits at a step, and the answers that the copy was given."""

    def __init__(self, step: str) -> None:
        self.topology, self.timers, self.answers = Topology(), list[Callable[[], None]](), list[str]()
        link: Any = SimpleNamespace(is_open=True, connection=None)
        timers: Any = SimpleNamespace(call_later=lambda *_: None)
        self.publisher = Publisher(timers, link)
        topology: Any = self.topology
        self.post = ChannelCopyPublisher(self.publisher, topology, lambda _, fn: self.timers.append(fn))
        self.post.store(copy(), 1.0, lambda verdict, _: self.answers.append(verdict), lambda: True)
        if step != "look-up":
            self.topology.answer(young=step == "young ladder")

    def go_on(self) -> None:
        """Answer late what the step waited for."""
        while self.timers or self.topology.asked:
            self.topology.answer(young=False)
            due, self.timers[:] = list(self.timers), []
            for fn in due:
                fn()


@pytest.mark.parametrize("step", STEPS)
def test_a_copy_that_waits_is_answered_unsent_when_its_generation_is_lost_and_is_never_sent(step: str) -> None:
    waiting = Waiting(step)
    assert waiting.answers == []
    waiting.post.forget(GENERATION + 1)
    assert waiting.answers == []
    waiting.post.forget(GENERATION)
    assert waiting.answers == ["unsent"]
    waiting.go_on()
    assert (waiting.answers, waiting.publisher.idle) == (["unsent"], True)


@pytest.mark.parametrize("step", ["look-up", "young ladder"])
def test_a_copy_that_waits_goes_on_once_when_its_step_is_over(step: str) -> None:
    waiting = Waiting(step)
    waiting.go_on()
    assert (waiting.answers, waiting.publisher.idle) == ([], False)


def test_of_the_first_copies_to_a_target_one_goes_alone_and_each_is_answered_once() -> None:
    waiting = Waiting("look-up")
    post, answers = waiting.post, list[str]()
    for _ in range(3):
        post.store(copy(), 0.0, lambda verdict, _: answers.append(verdict), lambda: True)
    assert len(waiting.publisher._copies.unwritten) == 1
    post.forget(GENERATION)
    assert answers == ["unsent"] * 3


def test_closing_answers_each_pending_copy_once_and_none_can_be_taken_after() -> None:
    pending, answers = PendingCopies(), list[tuple[str, str]]()
    number = pending.add(copy(), lambda *answer: answers.append(answer))
    pending.close("the connection was closed")
    pending.close("again")
    assert answers == [("unsent", "the connection was closed")]
    assert not pending.take(number)
    assert len(pending) == 0


class Connection:
    """Stands for a connection of pika's whose loop does not turn any more."""

    is_open, is_closed = True, False
    server_properties: ClassVar[dict[str, Any]] = {}
    params = SimpleNamespace(host="localhost", port=5672, virtual_host="/")

    def __init__(self) -> None:
        self.hopped: list[Callable[[], None]] = []
        self.on_close: list[Callable[..., None]] = []

    def add_on_close_callback(self, fn: Callable[..., None]) -> None:
        self.on_close.append(fn)

    def _adapter_add_callback_threadsafe(self, fn: Callable[[], None]) -> None:
        self.hopped.append(fn)

    def close(self) -> None:
        self.is_open, self.is_closed = False, True
        for fn in self.on_close:
            fn(self, ConnectionError("cut by the test"))


def test_what_hops_into_a_loop_that_ends_arrives_when_the_connection_closes_and_once() -> None:
    connection, arrived = Connection(), list[int]()
    shared = SharedConnection(connection)
    shared.hop(lambda: arrived.append(1))
    assert arrived == []
    connection.close()
    assert arrived == [1]
    for late in connection.hopped:
        late()
    shared.hop(lambda: arrived.append(2))
    assert arrived == [1, 2]


def test_a_copy_for_a_closed_connection_is_answered_unsent() -> None:
    connection, answers = Connection(), list[str]()
    shared = SharedConnection(connection)
    connection.close()
    shared.store(copy(), 0.0, lambda verdict, _: answers.append(verdict), lambda: True)
    assert answers == ["unsent"]
