# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The lanes of one source, walked at random: order, bounds, and nobody forgotten."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redeliver_mw import Delivery
from redeliver_mw.flow.key_lanes import BEHIND, LEAST_REST, Admitted, KeyLanes
from redeliver_mw.testing import make_delivery

MOST, LONGEST, ROOM = 4, 20.0, 6


def message(number: int = 0, generation: int = 1) -> Delivery:
    delivery = make_delivery(b"%d" % number)
    delivery.generation = generation
    return delivery


def lanes(*, parks: bool = False, most: int | None = None) -> KeyLanes:
    return KeyLanes(most, LONGEST, parks=parks)


def test_who_has_no_key_is_free() -> None:
    machine, first, second = lanes(), message(1), message(2)
    assert machine.come(first, None, 0.0, ROOM).go == [first]
    assert machine.come(second, None, 0.0, ROOM).go == [second]
    assert machine.end(first, 0.0) == Admitted()


def test_the_copy_of_one_that_left_takes_its_place_again_whatever_its_key() -> None:
    machine, first, second, copy = lanes(), message(1), message(2), message(1)
    machine.come(first, "a", 0.0, ROOM)
    assert machine.leaves(first, "lineage", 100.0, 0.0, ROOM) == Admitted()
    assert machine.come(second, "a", 1.0, ROOM) == Admitted()
    assert machine.come(copy, None, 2.0, ROOM, name="lineage").go == [copy]
    assert machine.end(copy, 3.0).go == [second]


def test_the_copy_that_is_quicker_than_the_word_of_it_takes_its_place_too() -> None:
    machine, first, second, copy = lanes(), message(1), message(2), message(1)
    machine.come(first, "a", 0.0, ROOM)
    machine.come(second, "a", 0.0, ROOM)
    machine.rests(first, 0.0, ROOM)
    assert machine.come(copy, "a", 1.0, ROOM, name="lineage") == Admitted()
    assert machine.leaves(first, "lineage", 100.0, 1.0, ROOM).go == [copy]
    assert machine.end(copy, 3.0).go == [second]


def test_one_that_left_is_forgotten_when_it_does_not_come() -> None:
    machine, first, second = lanes(), message(1), message(2)
    machine.come(first, "a", 0.0, ROOM)
    machine.leaves(first, "lineage", 15.0, 0.0, ROOM)
    machine.come(second, "a", 1.0, ROOM)
    assert machine.next_look() == 15.0
    assert machine.look(14.9, ROOM) == Admitted()
    assert machine.look(15.0, ROOM).go == [second]
    assert machine.come(message(1), "a", 16.0, ROOM, name="lineage") == Admitted()  # as any other


def test_whose_handler_outlives_its_connection_keeps_its_place() -> None:
    machine, running, waiting, again = lanes(), message(1), message(2), message(1, 2)
    machine.come(running, "a", 0.0, ROOM)
    machine.come(waiting, "a", 0.0, ROOM)
    assert machine.lost(1, [running], 1.0) == Admitted()
    assert machine.waiting == 0
    assert machine.come(again, "a", 2.0, ROOM, name="") == Admitted()
    assert machine.end(running, 3.0).go == [again]


def test_what_was_lost_unbegun_frees_its_place() -> None:
    machine, first, again = lanes(), message(1), message(1, 2)
    machine.come(first, "a", 0.0, ROOM)
    machine.lost(1, [], 1.0)
    assert machine.come(again, "a", 2.0, ROOM, name="").go == [again]
    assert machine.end(first, 3.0) == Admitted()


def test_who_is_parked_again_comes_before_who_is_new() -> None:
    machine, sick, first, second, new = lanes(parks=True, most=1), *(message(n) for n in range(4))
    machine.come(sick, "a", 0.0, ROOM)
    machine.rests(sick, 0.0, ROOM)
    machine.come(message(9), "a", 0.0, ROOM)
    machine.come(first, "a", 0.0, ROOM)
    [(_, due)] = machine.come(second, "a", 0.0, ROOM).park
    assert LEAST_REST < due < LEAST_REST + BEHIND + 0.1
    now = due + 0.1
    [(_, again)] = machine.come(first, "a", now, ROOM, name="").park
    [(_, late)] = machine.come(new, "a", now, ROOM).park
    [(_, also)] = machine.come(second, "a", now, ROOM, name="").park
    assert again < also < late


class Walk(RuleBasedStateMachine):
    """Messages of three keys come, fail, leave, end, are lost; time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.generation = 1
        self.count = 0
        self.out: dict[str, set[Delivery]] = defaultdict(set)  # gone on, and not over
        self.sick: set[Delivery] = set()
        self.away: dict[str, tuple[str, Delivery]] = {}
        self.number: dict[Delivery, int] = {}
        self.key: dict[Delivery, str] = {}
        self.came: set[Delivery] = set()  # and neither gone on nor parked nor lost
        self.disordered = False
        self.last: dict[str, int] = defaultdict(int)

    @initialize(parks=st.booleans())
    def begin(self, parks: bool) -> None:
        self.lanes = KeyLanes(MOST, LONGEST, parks=parks)

    def follow(self, going: Admitted) -> None:
        if going.gave_up:
            self.disordered = True
        for delivery in going.go:
            assert delivery in self.came
            self.came.discard(delivery)
            key = self.key[delivery]
            if not self.disordered:
                assert not self.out[key]  # one at a time
                assert self.number[delivery] >= self.last[key]
            self.last[key] = self.number[delivery]
            self.out[key].add(delivery)
        for delivery, rest in going.park:
            assert delivery in self.came
            assert rest > 0
            self.came.discard(delivery)

    def running(self) -> list[Delivery]:
        return sorted((d for some in self.out.values() for d in some), key=self.number.__getitem__)

    @rule(key=st.sampled_from("abc"))
    def come(self, key: str) -> None:
        self.count += 1
        delivery = message(self.count, self.generation)
        self.number[delivery], self.key[delivery] = self.count, key
        self.came.add(delivery)
        self.follow(self.lanes.come(delivery, key, self.now, ROOM))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(self.running()))
        self.out[self.key[delivery]].discard(delivery)
        self.follow(self.lanes.end(delivery, self.now))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.follow(self.lanes.rests(data.draw(st.sampled_from(self.running())), self.now, ROOM))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), rest=st.floats(0.1, 30.0))
    def leave(self, data: st.DataObject, rest: float) -> None:
        delivery = data.draw(st.sampled_from(self.running()))
        self.out[self.key[delivery]].discard(delivery)
        name = f"lineage-{self.number[delivery]}"
        self.away[name] = (self.key[delivery], delivery)
        self.follow(self.lanes.leaves(delivery, name, self.now + rest, self.now, ROOM))

    @precondition(lambda self: self.away)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.away)))
        key, was = self.away.pop(name)
        delivery = message(self.number[was], self.generation)
        self.number[delivery], self.key[delivery] = self.number[was], key
        self.came.add(delivery)
        if name not in self.lanes._awaited:
            self.disordered = True  # it was not waited for any longer
        self.follow(self.lanes.come(delivery, key, self.now, ROOM, name=name))

    @rule(seconds=st.floats(0.1, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        before = len(self.lanes._awaited)
        going = self.lanes.look(self.now, ROOM)
        self.disordered |= len(self.lanes._awaited) < before
        self.follow(going)

    @rule()
    def lose(self) -> None:
        keep = [delivery for delivery in self.running() if self.number[delivery] % 2]
        self.came = {delivery for delivery in self.came if delivery.generation != self.generation}
        going = self.lanes.lost(self.generation, keep, self.now)
        self.out = defaultdict(set, {key: some & set(keep) for key, some in self.out.items()})
        self.follow(going)
        self.generation += 1

    @invariant()
    def no_more_wait_behind_sick_ones_than_may(self) -> None:
        if self.count:
            assert self.lanes.behind <= ROOM
            assert all(len(lane.waiting) <= MOST for lane in self.lanes._lanes.values() if lane.sick_since is not None)

    @invariant()
    def nobody_waits_for_nobody_and_nobody_is_forgotten(self) -> None:
        if self.count:
            assert self.lanes.waiting == len(self.came)
            assert not any(lane.is_free and lane.waiting for lane in self.lanes._lanes.values())

    def teardown(self) -> None:
        """When all is over nothing is kept."""
        while self.count and (self.running() or self.lanes.next_look() is not None):
            for delivery in self.running():
                self.out[self.key[delivery]].discard(delivery)
                self.follow(self.lanes.end(delivery, self.now))
            self.now = max(self.now, self.lanes.next_look() or 0.0)
            self.follow(self.lanes.look(self.now, ROOM))
        if self.count:
            assert (self.came, self.lanes._lanes, self.lanes._awaited, self.lanes._troubled) == (set(), {}, {}, set())


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
