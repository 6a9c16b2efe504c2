# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which deliveries may go to a handler: one suspect alone, or all others together, and none waits for ever."""

from __future__ import annotations

from redeliver_mw.crash_safety.isolation import PATIENCE, Admission, Pending, SuspectIsolation
from redeliver_mw.crash_safety.store import ALONE, TOGETHER
from redeliver_mw.message import Destination
from redeliver_mw.testing import make_delivery


class World:
    def __init__(self) -> None:
        self.isolation, self.now = SuspectIsolation(), 1000.0
        self.paused: set[Destination] = set()

    def one(self, name: str, *, known: bool = False) -> Pending:
        delivery = make_delivery(b"x", message_id=name)
        delivery.known = known
        return Pending(delivery, name)

    def suspect(self, name: str) -> Pending:
        one = self.one(name, known=True)
        self.isolation.come(one, self.now, suspect=True)
        return one

    def pass_(self, *fresh: Pending) -> Admission:
        choice = self.isolation.choose(fresh, self.now, lambda source: source not in self.paused)
        self.isolation.let(choice, self.now)
        return choice

    def end(self, one: Pending) -> None:
        self.isolation.end(one.delivery, self.now)


def test_messages_without_a_past_pass_together_as_one_batch() -> None:
    world = World()
    choice = world.pass_(world.one("a"), world.one("b"))
    assert (len(choice.ones), choice.mark, choice.marks) == (2, TOGETHER, {})
    (batch,) = choice.batches
    assert [one.key for one in batch.members] == ["a", "b"]
    world.end(batch.members[0])
    assert batch.left == 1


def test_suspects_pass_one_after_the_other_and_nobody_with_them() -> None:
    world = World()
    first, second, fresh = world.suspect("s"), world.suspect("t"), world.one("a")
    choice = world.pass_(fresh)
    assert (choice.ones, choice.mark, choice.marks) == ([first], ALONE, {first.place: ALONE})
    assert world.pass_(world.one("b")).ones == []
    world.end(first)
    assert world.pass_().ones == [second]
    world.end(second)
    assert [one.key for one in world.pass_().ones] == ["a", "b"]


def test_a_suspect_waits_for_the_others_to_end() -> None:
    world = World()
    running = world.one("a")
    world.pass_(running)
    suspect = world.suspect("s")
    assert world.pass_(world.one("b")).ones == []
    world.end(running)
    assert world.pass_().ones == [suspect]


def test_after_a_while_the_others_pass_a_suspect_that_does_not_end_and_it_is_marked_like_them() -> None:
    world = World()
    suspect, fresh = world.suspect("s"), world.one("a")
    world.pass_(fresh)
    world.now += PATIENCE - 0.1
    assert world.pass_().ones == []
    world.now += 0.1
    choice = world.pass_()
    assert (choice.ones, choice.marks) == ([fresh], {suspect.place: TOGETHER})
    assert world.isolation.marks == {suspect.place: TOGETHER}


def test_after_a_while_a_suspect_does_not_wait_for_others_that_do_not_end() -> None:
    world = World()
    world.pass_(world.one("a"))
    suspect = world.suspect("s")
    world.now += PATIENCE
    choice = world.pass_(world.one("b"))
    assert (choice.ones[0], len(choice.ones), choice.mark) == (suspect, 2, TOGETHER)


def test_a_suspect_of_a_paused_source_keeps_nobody_waiting() -> None:
    world = World()
    suspect = world.suspect("s")
    world.paused.add(suspect.delivery.destination)
    assert [one.key for one in world.pass_(world.one("a")).ones] == ["a"]


def test_one_with_a_past_goes_before_those_without() -> None:
    world = World()
    world.isolation.come(world.one("again", known=True), world.now)
    assert [one.key for one in world.pass_(world.one("a")).ones] == ["again", "a"]
