# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Drains a share of a dead-letter queue, on the memory broker: kept before it is settled, and never above its quota."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from redeliver_mw.dead_letters import QueueDrain, ReadLetters, TakenLetter
from redeliver_mw.errors import DestinationMissing
from redeliver_mw.memory import MemoryAdapter
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.testing import MemoryBroker
from tests.faults.load import until

DLQ = Destination("DLQ.orders")
PERSONALITIES = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]


class Shelf:
    """Stores each batch as a list. `spoil` is called before a batch is written, `seen` after a batch was read."""

    def __init__(
        self,
        spoil: Callable[[], None] = lambda: None,
        refused: Sequence[bytes] = (),
        seen: Callable[[], None] = lambda: None,
    ) -> None:
        self.batches: list[list[bytes]] = []
        self.certain, self.unknown = 0, 0
        self._spoil, self._refused, self._seen = spoil, refused, seen

    def read(self, generation: int, letters: Sequence[Delivery], /) -> ReadLetters:
        kept = [letter for letter in letters if letter.body not in self._refused]
        self._seen()
        return ReadLetters(kept, partial(self._write, [letter.body for letter in kept]))

    def _write(self, bodies: list[bytes]) -> None:
        self._spoil()
        self.batches.append(bodies)

    def sure(self, batches: int, /) -> None:
        self.certain += batches

    def lost(self) -> None:
        self.unknown += 1

    @property
    def bodies(self) -> list[bytes]:
        return [body for batch in self.batches for body in batch]


@pytest.fixture(params=PERSONALITIES)
def broker(request: pytest.FixtureRequest) -> MemoryBroker:
    """Return a broker that has the dead-letter queue."""
    made = MemoryBroker(request.param)
    made.declare(DLQ.name)
    return made


def put_dead_letters(broker: MemoryBroker, number: int) -> list[bytes]:
    bodies = [b"%03d" % n for n in range(number)]
    for body in bodies:
        broker.send(DLQ, body, {})
    return bodies


def share(broker: MemoryBroker, shelf: Shelf, quota: int, batch: int = 10, **options: Any) -> TakenLetter:
    return QueueDrain(MemoryAdapter(broker), DLQ, shelf, quota=quota, batch=batch, **options).run()


def left(broker: MemoryBroker) -> list[bytes]:
    return sorted(message.body for message in broker.peek(DLQ))


def test_all_letters_are_kept_and_leave_the_queue(broker: MemoryBroker) -> None:
    bodies, shelf = put_dead_letters(broker, 35), Shelf()
    assert share(broker, shelf, 35) == TakenLetter(kept=35, stay=0)
    assert (sorted(shelf.bodies), left(broker)) == (bodies, [])
    assert shelf.certain == len(shelf.batches)


def test_no_more_than_the_quota_is_taken(broker: MemoryBroker) -> None:
    bodies, shelf = put_dead_letters(broker, 35), Shelf()
    assert share(broker, shelf, 17).kept == 17
    assert sorted(shelf.bodies + left(broker)) == bodies


def test_no_batch_is_larger_than_was_asked_for(broker: MemoryBroker) -> None:
    put_dead_letters(broker, 35)
    shelf = Shelf()
    share(broker, shelf, 35, batch=8)
    assert max(map(len, shelf.batches)) <= 8


def test_a_letter_is_settled_only_after_it_was_kept(broker: MemoryBroker) -> None:
    put_dead_letters(broker, 30)
    there: list[int] = []
    shelf = Shelf(lambda: there.append(len(broker.everything())))
    share(broker, shelf, 30)
    kept_before = [sum(map(len, shelf.batches[:n])) for n in range(len(shelf.batches))]
    assert all(on_broker >= 30 - kept for on_broker, kept in zip(there, kept_before, strict=True))


def test_if_the_store_fails_the_broker_has_the_letters_again(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 30)

    def full() -> None:
        if len(shelf.batches) == 1:
            raise OSError(28, "No space left on device")

    shelf = Shelf(full)
    with pytest.raises(OSError, match="No space left"):
        share(broker, shelf, 30)
    assert sorted(shelf.bodies + left(broker)) == bodies


def test_the_next_letters_are_read_while_those_before_are_written(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 30)
    reads = threading.Semaphore(0)

    def second_is_read() -> None:
        if not shelf.batches:
            assert reads.acquire(timeout=30)  # of the batch that is being written
            assert reads.acquire(timeout=30), "the next batch is read only when this one is written"

    shelf = Shelf(second_is_read, seen=reads.release)
    assert share(broker, shelf, 30, early=5) == TakenLetter(kept=30, stay=0)
    assert (sorted(shelf.bodies), left(broker)) == (bodies, [])


def test_nothing_is_settled_while_it_is_being_written_and_what_fails_is_given_back(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 30)
    there: list[int] = []
    both_read = threading.Semaphore(0)

    def fails() -> None:
        assert both_read.acquire(timeout=30)
        assert both_read.acquire(timeout=30)
        there.append(len(broker.everything()))
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        share(broker, Shelf(fails, seen=both_read.release), 30, early=5)
    assert there == [30]  # the batch that was read meanwhile is not written
    assert left(broker) == bodies


def test_a_connection_that_is_lost_during_a_write_leaves_that_batch_in_doubt(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 30)

    def cut() -> None:
        if not shelf.batches:
            broker.cut()

    shelf = Shelf(cut)
    share(broker, shelf, 30)
    assert shelf.unknown == 1
    assert sorted(set(shelf.bodies) | set(left(broker))) == bodies


def test_what_cannot_be_kept_stays_in_its_queue(broker: MemoryBroker) -> None:
    bodies, shelf = put_dead_letters(broker, 25), Shelf(refused=[b"003", b"020"])
    taken = share(broker, shelf, 25)
    assert (taken.kept, taken.stay, taken.rest) == (23, 2, "")
    assert left(broker) == [b"003", b"020"]
    assert sorted(shelf.bodies + left(broker)) == bodies


def test_it_says_so_when_those_that_stay_are_in_the_way(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 25)
    taken = share(broker, Shelf(refused=bodies[:10]), 25)
    assert "in the way" in taken.rest
    assert len(left(broker)) >= 10


def test_it_ends_when_others_have_taken_the_rest(broker: MemoryBroker) -> None:
    bodies, shelf = put_dead_letters(broker, 5), Shelf()
    assert share(broker, shelf, 30) == TakenLetter(kept=5, stay=0)
    assert (sorted(shelf.bodies), left(broker)) == (bodies, [])


def test_a_drain_ends_when_it_is_asked_to_and_gives_back_what_it_has_in_hand(broker: MemoryBroker) -> None:
    bodies, shelf = put_dead_letters(broker, 35), Shelf()
    taken = share(broker, shelf, 35, stopped=lambda: len(shelf.batches) >= 2)
    assert (taken.kept, taken.rest) == (len(shelf.bodies), "it was asked to stop")
    assert 0 < taken.kept < 35
    assert sorted(shelf.bodies + left(broker)) == bodies


def test_a_cut_in_the_middle_loses_nothing_and_leaves_a_batch_in_doubt(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 40)
    cut = threading.Event()

    def spoil() -> None:
        if len(shelf.batches) == 2 and not cut.is_set():
            cut.set()
            broker.cut()

    shelf = Shelf(spoil)
    share(broker, shelf, 40)
    assert sorted(set(shelf.bodies) | set(left(broker))) == bodies
    twice = len(shelf.bodies) - len(set(shelf.bodies))
    assert twice <= 10 * (1 + shelf.unknown)
    assert shelf.certain <= len(shelf.batches)


def test_shares_that_compete_take_each_letter_once(broker: MemoryBroker) -> None:
    bodies = put_dead_letters(broker, 60)
    shelves = [Shelf(), Shelf(), Shelf()]
    threads = [threading.Thread(target=share, args=(broker, shelf, 20)) for shelf in shelves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(body for shelf in shelves for body in shelf.bodies) == bodies
    assert [len(shelf.bodies) for shelf in shelves] == [20, 20, 20]


def test_a_queue_that_is_not_there_is_named() -> None:
    with pytest.raises(DestinationMissing, match=r"there is no queue:DLQ\.orders.*Check its name"):
        share(MemoryBroker("rabbitmq"), Shelf(), 1)


def test_a_drain_that_waits_takes_what_comes_later_and_goes_on_after_a_lost_connection(broker: MemoryBroker) -> None:
    bodies, shelf, stop = put_dead_letters(broker, 5), Shelf(), threading.Event()
    ended: list[TakenLetter] = []

    def work() -> None:
        adapter = MemoryAdapter(broker)
        drain = QueueDrain(adapter, DLQ, shelf, quota=2**62, batch=10, stopped=stop.is_set, waits=True)
        ended.append(drain.run())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(lambda: sorted(shelf.bodies) == bodies, 30, "the first letters do not come")
        broker.cut()
        broker.send(DLQ, b"late", {})
        until(lambda: b"late" in shelf.bodies, 30, "the late letter does not come")
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(30)
    assert set(shelf.bodies) == {*bodies, b"late"}
    assert left(broker) == []
    assert ended[0].rest == "it was asked to stop"
