# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Walks the lanes of one source at random, and checks their order and bounds, and that no message is forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from redeliver_mw import Delivery
from redeliver_mw.flow.key_lanes import LEAST_DELAY, TAKE_OVER, Admitted, KeyLanes
from redeliver_mw.redelivery.order_places import PlaceKind
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


def test_a_copy_that_arrives_before_its_confirmation_takes_its_place_too() -> None:
    machine, first, second, copy = lanes(), message(1), message(2), message(1)
    machine.come(first, "a", 0.0, ROOM)
    machine.come(second, "a", 0.0, ROOM)
    machine.retries(first, 0.0, ROOM)
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


def parking(most: int = 1) -> tuple[KeyLanes, list[Delivery]]:
    """Return lanes in which of a key 0 has failed, 1 waits, and 2, 3 and 4 were parked and are away as `l2` to `l4`."""
    machine, all_ = lanes(parks=True, most=most), [message(n) for n in range(5)]
    machine.come(all_[0], "a", 0.0, ROOM)
    machine.retries(all_[0], 0.0, ROOM)
    for n, delivery in enumerate(all_[1:], 1):
        parked = machine.come(delivery, "a", 0.0, ROOM).park
        assert parked == ([] if n == 1 else [(delivery, LEAST_DELAY)])
    for n in (2, 3, 4):
        machine.leaves(all_[n], f"l{n}", 100.0, 0.0, ROOM)
    return machine, all_


def test_parked_messages_go_on_in_their_order_whatever_the_order_in_which_they_come_back() -> None:
    machine, (first, second, *_) = parking()
    assert machine.end(first, 2.0).go == [second]
    copies = {n: message(n) for n in (2, 3, 4)}
    for n in (4, 2):
        assert machine.come(copies[n], "a", 2.0, ROOM, name=f"l{n}") == Admitted()
    assert machine.end(second, 2.1).go == [copies[2]]
    assert machine.end(copies[2], 2.2) == Admitted()  # 4 waits for 3, which is not here
    assert machine.come(copies[3], "a", 2.3, ROOM, name="l3").go == [copies[3]]
    assert machine.end(copies[3], 2.4).go == [copies[4]]


def test_a_new_message_is_parked_behind_parked_ones_although_nothing_of_its_key_fails_any_more() -> None:
    machine, (first, second, *_) = parking()
    machine.end(first, 2.0)
    machine.end(second, 2.0)
    new = message(5)
    assert machine.come(new, "a", 2.0, ROOM).park == [(new, 3.0)]


def test_a_message_that_comes_back_too_early_is_parked_again_for_as_long_as_its_key_has_been_retrying() -> None:
    machine, _ = parking()
    copies = [message(n) for n in (2, 3, 4)]
    parked = [machine.come(copy, "a", 5.0, ROOM, name=f"l{n}").park for n, copy in enumerate(copies, 2)]
    assert parked == [[(copy, 10.0)] for copy in copies]


def test_a_copy_that_does_not_come_back_is_not_waited_for_for_ever() -> None:
    machine, (first, second, *_) = parking()
    machine.end(first, 2.0)
    machine.end(second, 2.0)
    third = message(3)
    assert machine.come(third, "a", 2.0, ROOM, name="l3") == Admitted()
    assert machine.look(21.9, ROOM) == Admitted()
    assert machine.look(22.0, ROOM).park == [(third, 32.0)]  # it has waited for LONGEST
    machine.leaves(third, "l3", 150.0, 22.0, ROOM)
    assert machine.look(100.0, ROOM) == Admitted()  # 2 is given up
    copy = message(3)
    assert machine.come(copy, "a", 101.0, ROOM, name="l3").go == [copy]


def test_a_message_that_comes_twice_has_one_place_to_come_back_to() -> None:
    machine, (first, second, *_) = parking()
    one, two = message(2), message(2)
    machine.come(one, "a", 0.5, ROOM, name="l2")
    machine.come(two, "a", 0.5, ROOM, name="l2")  # both are parked, and the limbo keeps one copy
    assert machine.note(two, "l2", "text of a") is None
    machine.leaves(one, "l2", 100.0, 0.5, ROOM)
    machine.leaves(two, "l2", 100.0, 0.5, ROOM)
    machine.end(first, 1.0)
    machine.end(second, 1.0)
    copies = {n: message(n) for n in (2, 3, 4)}
    assert machine.come(copies[2], "a", 1.0, ROOM, name="l2").go == [copies[2]]
    for n in (3, 4):
        machine.come(copies[n], "a", 1.0, ROOM, name=f"l{n}")
        assert machine.end(copies[n - 1], 1.0).go == [copies[n]]
    assert machine.end(copies[4], 1.0) == Admitted()
    assert machine._lanes == {}


def test_a_message_that_comes_a_second_time_while_it_is_here_comes_right_behind_itself() -> None:
    machine, (first, second, *_) = parking()
    assert machine.end(first, 1.0).go == [second]
    copies = {n: message(n) for n in (2, 3, 4)}
    for n, copy in copies.items():
        assert machine.come(copy, "a", 1.0, ROOM, name=f"l{n}") == Admitted()
    double, third = message(2), message(2)
    assert machine.come(double, "a", 1.0, ROOM, name="l2") == Admitted()
    assert machine.come(third, "a", 1.0, ROOM, name="l2") == Admitted()
    gone = [second]
    while going := machine.end(gone[-1], 2.0).go:
        gone += going
    assert gone in ([second, copies[2], *two, copies[3], copies[4]] for two in ([double, third], [third, double]))


def test_a_double_that_is_parked_alone_takes_nothing_from_the_one_that_waits() -> None:
    machine, (first, second, *_) = parking()
    assert machine.end(first, 1.0).go == [second]
    machine.retries(second, 1.0, ROOM)
    copy, double = message(2), message(2)
    assert machine.come(copy, "a", 1.0, ROOM, name="l2") == Admitted()
    assert [delivery for delivery, _ in machine.come(double, "a", 1.0, ROOM, name="l2").park] == [double]
    assert machine.note(double, "l2", "text of a") is None
    assert machine.leaves(double, "l2", 100.0, 1.0, ROOM) == Admitted()
    later = {n: message(n) for n in (3, 4)}
    assert machine.end(second, 2.0).go == [copy]
    assert machine.come(later[4], "a", 2.0, ROOM, name="l4") == Admitted()
    assert machine.come(later[3], "a", 2.0, ROOM, name="l3") == Admitted()
    assert machine.end(copy, 3.0).go == [later[3]]
    assert machine.end(later[3], 3.0).go == [later[4]]


def test_what_was_parked_and_runs_when_its_connection_is_lost_is_not_overtaken_by_its_redelivery() -> None:
    machine, (first, second, *_) = parking()
    machine.end(first, 1.0)
    machine.end(second, 1.0)
    copy, again = message(2), message(2, 2)
    assert machine.come(copy, "a", 1.0, ROOM, name="l2").go == [copy]
    machine.lost(1, [copy], 2.0)
    assert machine.come(again, "a", 3.0, ROOM, name="").go == []
    assert machine.end(copy, 4.0).go == [again]


def test_what_could_not_be_parked_waits_for_its_turn() -> None:
    machine, first, second, third = lanes(parks=True, most=1), message(0), message(1), message(2)
    machine.come(first, "a", 0.0, ROOM)
    machine.retries(first, 0.0, ROOM)
    machine.come(second, "a", 0.0, ROOM)
    assert [delivery for delivery, _ in machine.come(third, "a", 0.0, ROOM).park] == [third]
    assert machine.stays(third, 0.5) == Admitted()
    assert machine.end(first, 1.0).go == [second]
    assert machine.end(second, 1.0).go == [third]
    assert machine.is_known(third)


def test_places_are_noted_with_the_first_copy_that_is_parked_and_forgotten_with_their_end() -> None:
    machine = KeyLanes(1, LONGEST, parks=True, name_of=lambda delivery: f"id{delivery.text}")
    first, second, third = message(0), message(1), message(2)
    for delivery in (first, second, third):
        machine.come(delivery, "a", 0.0, ROOM)
        machine.retries(first, 0.0, ROOM)
    noted = machine.note(third, "lineage", "digest")
    assert noted is not None
    assert [one[1:] for one in noted] == [
        ("id0", PlaceKind.HERE),
        ("id1", PlaceKind.HERE),
        ("lineage", PlaceKind.BEHIND),
    ]
    assert [one[0] for one in noted] == sorted(one[0] for one in noted)
    assert machine.end(first, 1.0).over == [("digest", noted[0][0])]


def noting(most: int = 1) -> tuple[KeyLanes, list[Delivery]]:
    """Return lanes in which of a key 0 has failed, 1 waits, and 2 and 3 are being parked."""
    machine = KeyLanes(most, LONGEST, parks=True, name_of=lambda delivery: f"id{delivery.text}")
    all_ = [message(n) for n in range(4)]
    for delivery in all_:
        machine.come(delivery, "a", 0.0, ROOM)
        machine.retries(all_[0], 0.0, ROOM)
    return machine, all_


def test_the_place_of_one_that_is_being_parked_is_noted_with_a_later_one_that_is_noted_before_it() -> None:
    machine, (*_, third, fourth) = noting()
    noted = machine.note(fourth, "l3", "digest")
    assert noted is not None
    assert [one[1:] for one in noted] == [
        ("id0", PlaceKind.HERE),
        ("id1", PlaceKind.HERE),
        ("id2", PlaceKind.HERE),
        ("l3", PlaceKind.BEHIND),
    ]
    assert machine.note(third, "l2", "digest") == [(noted[2][0], "l2", PlaceKind.BEHIND)]


def test_places_that_the_limbo_did_not_take_are_noted_with_the_next_one() -> None:
    machine, (*_, third, fourth) = noting()
    noted = machine.note(third, "l2", "digest")
    assert noted is not None
    machine.doubt("digest", [number for number, *_ in noted])
    again = machine.note(fourth, "l3", "digest")
    assert again is not None
    assert [one[0] for one in again[:-1]] == [one[0] for one in noted]


def restored(*kinds: tuple[PlaceKind, bool]) -> KeyLanes:
    """Return lanes of a process that finds these places of key `a`, named `l0`, `l1`, ..., each parked or not."""
    machine = lanes(parks=True)
    for n, (kind, parked) in enumerate(kinds):
        machine.restore(n + 1, "text of a", f"l{n}", kind, due=5.0, parked=parked, now=0.0)
    return machine


def test_after_a_restart_messages_have_the_places_that_were_noted() -> None:
    machine = restored((PlaceKind.HERE, False), (PlaceKind.BEHIND, True), (PlaceKind.BEHIND, True))
    new, first, second, third = message(9), message(0), message(1), message(2)
    assert machine.come(first, "a", 0.0, ROOM, name="l0", text="text of a").go == [first]
    assert [one for one, _ in machine.come(new, "a", 0.0, ROOM, name="l9").park] == [new]
    assert machine.end(first, 1.0).go == []
    assert machine.come(third, "a", 2.0, ROOM, name="l2").go == []
    assert machine.come(second, "a", 2.0, ROOM, name="l1").go == [second]
    assert machine.end(second, 3.0).go == [third]


def test_after_a_restart_messages_without_an_id_take_their_noted_places_as_they_come() -> None:
    machine = KeyLanes(1, LONGEST, parks=True)
    first, second, third = message(0), message(1), message(2)
    for delivery in (first, second, third):
        machine.come(delivery, "a", 0.0, ROOM)
        machine.retries(first, 0.0, ROOM)
    noted = machine.note(third, "lineage", "text of a")
    assert noted is not None
    assert [one[1:] for one in noted] == [("", PlaceKind.HERE), ("", PlaceKind.HERE), ("lineage", PlaceKind.BEHIND)]
    machine = lanes(parks=True)
    for number, name, kind in noted:
        assert machine.restore(number, "text of a", name, kind, due=5.0, parked=kind is PlaceKind.BEHIND, now=0.0)
    copy, new = message(2), message(3)
    assert machine.come(copy, None, 1.0, ROOM, name="lineage") == Admitted()
    assert machine.come(first, "a", 1.0, ROOM, name="", text="text of a").go == [first]
    assert machine.come(second, "a", 1.0, ROOM, name="", text="text of a") == Admitted()
    machine.come(new, "a", 1.0, ROOM, name="", text="text of a")
    gone = [first]
    while going := machine.end(gone[-1], 2.0).go:
        gone += going
    assert gone == [first, second, copy, new]


def test_the_noted_place_of_a_message_without_an_id_outlives_its_connection() -> None:
    machine = KeyLanes(1, LONGEST, parks=True)
    first, second, third, again, new = message(0), message(1), message(2), message(1, 2), message(9, 2)
    for delivery in (first, second, third):
        machine.come(delivery, "a", 0.0, ROOM)
        machine.retries(first, 0.0, ROOM)
    machine.note(third, "lineage", "text of a")
    machine.leaves(third, "lineage", 100.0, 0.0, ROOM)
    assert machine.lost(1, [], 1.0).over == []
    assert machine.come(message(0, 2), "a", 1.0, ROOM, name="").go != []
    assert machine.come(again, "a", 1.0, ROOM, name="") == Admitted()
    assert [delivery for delivery, _ in machine.come(new, "a", 1.0, ROOM, name="").park] == [new]


def test_after_a_restart_a_message_that_was_noted_twice_has_its_first_place() -> None:
    machine = restored((PlaceKind.BEHIND, True))
    again = machine.restore(2, "text of a", "l0", PlaceKind.BEHIND, due=5.0, parked=True, now=0.0)
    assert again is False


def test_after_a_restart_a_parked_copy_is_waited_for_until_it_was_due_and_longest() -> None:
    machine, new = restored((PlaceKind.IN_FRONT, True)), message(9)
    assert machine.come(new, "a", 0.0, ROOM, text="text of a") == Admitted()
    assert machine.next_look() == LONGEST  # of the one that waits
    machine.give_back([], 1.0)
    assert machine.come(new, "a", 1.0, ROOM, text="text of a") == Admitted()
    assert max(machine._times()) == TAKE_OVER + LONGEST


class Walk(RuleBasedStateMachine):
    """Lets messages of three keys come, fail, leave, be parked, end, be lost and come again, while time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.generation = 1
        self.count = 0
        self.out: dict[str, set[Delivery]] = defaultdict(set)  # gone on, and not over
        self.away: dict[str, tuple[str, int]] = {}  # by name: key and number
        self.parking: list[Delivery] = []  # and their copies are not kept yet
        self.again: list[tuple[int, str]] = []  # lost: they come before all others
        self.number: dict[Delivery, int] = {}
        self.key: dict[Delivery, str] = {}
        self.name: dict[Delivery, str] = {}
        self.came: set[Delivery] = set()  # and neither gone on nor parked nor lost
        self.disordered = False
        self.last: dict[str, int] = defaultdict(int)

    @initialize(parks=st.booleans())
    def begin(self, parks: bool) -> None:
        self.parks = parks
        self.lanes = KeyLanes(MOST, LONGEST, parks=parks)

    def follow(self, going: Admitted) -> None:
        if going.gave_up and not self.parks:
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
        for delivery, due in going.park:
            assert delivery in self.came
            assert due > self.now
            self.came.discard(delivery)
            self.parking.append(delivery)

    def running(self) -> list[Delivery]:
        return sorted((d for some in self.out.values() for d in some), key=lambda d: (self.number[d], d.tag))

    def twice(self) -> list[Delivery]:
        """Return the copies that are here, each the only one of its message."""
        here = [d for d in [*self.came, *self.running()] if d in self.name and d.generation == self.generation]
        names = Counter(self.name[delivery] for delivery in here)
        alone = [d for d in here if names[self.name[d]] == 1 and self.name[d] not in self.away]
        return sorted(alone, key=self.number.__getitem__)

    def awaited(self) -> set[str]:
        return {place.name for lane in self.lanes._lanes.values() for place in lane.line if place.delivery is None}

    def made(self, number: int, key: str) -> Delivery:
        delivery = message(number, self.generation)
        self.number[delivery], self.key[delivery] = number, key
        self.came.add(delivery)
        return delivery

    @rule(key=st.sampled_from("abc"))
    def come(self, key: str) -> None:
        if self.again:
            number, key = self.again.pop(0)
            return self.follow(self.lanes.come(self.made(number, key), key, self.now, ROOM, name=""))
        self.count += 1
        self.follow(self.lanes.come(self.made(self.count, key), key, self.now, ROOM))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        delivery = data.draw(st.sampled_from(self.running()))
        self.out[self.key[delivery]].discard(delivery)
        self.follow(self.lanes.end(delivery, self.now))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.follow(self.lanes.retries(data.draw(st.sampled_from(self.running())), self.now, ROOM))

    @precondition(lambda self: self.running())
    @rule(data=st.data(), delay=st.floats(0.1, 30.0))
    def leave(self, data: st.DataObject, delay: float) -> None:
        delivery = data.draw(st.sampled_from(self.running()))
        if delivery.generation == self.generation:
            self.out[self.key[delivery]].discard(delivery)
            self.left(delivery, self.now + delay)

    @precondition(lambda self: self.parking)
    @rule()
    def keep(self) -> None:
        """Tell the lanes that the limbo has the copy of the message that is being parked longest."""
        self.left(self.parking.pop(0), self.now + 40.0)

    def left(self, delivery: Delivery, until: float) -> None:
        name = f"lineage-{self.number[delivery]}"
        self.away[name] = (self.key[delivery], self.number[delivery])
        self.follow(self.lanes.leaves(delivery, name, until, self.now, ROOM))

    @precondition(lambda self: self.away and not self.again)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.away)))
        key, number = self.away.pop(name)
        if name not in self.lanes._names:
            self.disordered = True  # it was not waited for any longer
        delivery = self.made(number, key)
        self.name[delivery] = name
        self.follow(self.lanes.come(delivery, key, self.now, ROOM, name=name))

    @precondition(lambda self: self.twice())
    @rule(data=st.data())
    def come_twice(self, data: st.DataObject) -> None:
        """Let a copy come a second time while its first delivery is here."""
        first = data.draw(st.sampled_from(self.twice()))
        delivery = self.made(self.number[first], self.key[first])
        self.name[delivery] = self.name[first]
        self.follow(self.lanes.come(delivery, self.key[first], self.now, ROOM, name=self.name[first]))

    @rule(seconds=st.floats(0.1, 15.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        before = self.awaited()
        going = self.lanes.look(self.now, ROOM)
        self.disordered |= not before <= self.awaited()
        self.follow(going)

    @rule()
    def lose(self) -> None:
        """Lose all that is here, which comes again in its old order. A handler that is not through goes on."""
        running = self.running()
        keep = [delivery for delivery in running if self.number[delivery] % 2]
        lost = {d for d in [*self.came, *running, *self.parking] if d.generation == self.generation}
        for delivery in sorted(lost, key=self.number.__getitem__):
            if delivery in self.name and delivery not in keep:
                self.away[self.name[delivery]] = (self.key[delivery], self.number[delivery])
            else:
                self.again.append((self.number[delivery], self.key[delivery]))
        self.again.sort()
        self.came -= lost
        self.parking = []
        going = self.lanes.lost(self.generation, keep, self.now)
        self.out = defaultdict(set, {key: some & set(keep) for key, some in self.out.items()})
        self.follow(going)
        self.generation += 1

    @invariant()
    def no_more_wait_behind_retrying_ones_than_may(self) -> None:
        if self.count:
            assert self.lanes.behind <= ROOM
            assert all(
                len(lane.waiting) <= MOST for lane in self.lanes._lanes.values() if lane.retrying_since is not None
            )

    @invariant()
    def nobody_waits_for_nobody_and_nobody_is_forgotten(self) -> None:
        if self.count:
            assert self.lanes.waiting == len(self.came)
            assert not any(lane.line[0].waits for lane in self.lanes._lanes.values())

    def teardown(self) -> None:
        """Check that nothing is kept when all is over."""
        while self.count and (self.running() or self.parking or self.lanes.next_look() is not None):
            for delivery in self.running():
                self.out[self.key[delivery]].discard(delivery)
                self.follow(self.lanes.end(delivery, self.now))
            while self.parking:
                self.follow(self.lanes.end(self.parking.pop(), self.now))
            self.now = max(self.now, self.lanes.next_look() or 0.0)
            self.follow(self.lanes.look(self.now, ROOM))
        if self.count and not self.lanes._adrift:
            assert (self.came, self.lanes._lanes, self.lanes._names, self.lanes._troubled) == (set(), {}, {}, {})
            assert self.lanes._places == {}


TestWalk = Walk.TestCase
TestWalk.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
