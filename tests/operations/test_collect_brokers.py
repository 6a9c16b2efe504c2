# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Moves dead letters of real brokers into the store: all of them, once, exactly, whatever is killed on the way."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.dead_letters import Packed, copy_of, pack, unpack
from redeliver_mw.errors import DestinationMissing, StoreError
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.operations import Collected, Store, collect, page, show
from redeliver_mw.operations.collect import BATCH
from redeliver_mw.operations.operation import last_operations
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.cli.running import REPOSITORY, Running, redeliver
from tests.dead_letters.many_letters import depth, publish_letters
from tests.faults.letters import dead_lettered_by_the_broker, declare, put_dead_letters, until_there
from tests.faults.load import until
from tests.operations.killing import site
from tests.operations.taking import packed

pytestmark = pytest.mark.broker

MANY, SOME = 3_000, 300
TO_KILL = 5_000  # so that after all kills but one, two batches are left
THREE = ["rabbitmq43", "artemis244", "activemq63"]
KILLS = 3


@pytest.fixture(params=THREE)
def each(request: pytest.FixtureRequest) -> Broker:
    """Return a broker of each kind in turn."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def dlq(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test has."""
    return f"dlq.{abs(hash(request.node.nodeid)):x}"


def run(broker: Broker, store: Store, *queues: str, **options: Any) -> Collected:
    return collect(broker.url, queues, store, **options)


def copy(packed: Packed, reader: Any, capabilities: Capabilities) -> tuple[Outgoing, bytes | None]:
    """Return the copy, and the wire form of the original that an adapter may send instead of parts of it."""
    what = {"replay_id": "r", "lineage": "L", "salt": "s"}
    out = copy_of(packed, Destination("orders"), reader, capabilities, **what)
    if out.origin is None:
        return out, None
    lines = pack(out.origin).head.split(b"\n")  # in STOMP two headers are those of the delivery, not of the message
    return replace(out, origin=None), b"\n".join(x for x in lines if not x.startswith((b"ack:", b"subscription:")))


def bodies(store: Store) -> list[bytes]:
    return [one.body for one in packed(store)]


# -- what is collected ------------------------------------------------------------------------------


def test_all_letters_are_in_the_store_once_and_the_queue_is_empty(each: Broker, dlq: str, store: Store) -> None:
    given = publish_letters(each, dlq, MANY)
    seen: list[tuple[str, int, int | None]] = []
    done = run(each, store, dlq, progress=lambda *how_far: seen.append(how_far))
    [queue] = done.queues
    assert (queue.found, queue.collected, queue.again, queue.stay, queue.rest) == (MANY, MANY, 0, 0, "")
    assert done.whole
    assert set(bodies(store)) == given
    assert depth(each, dlq) == 0
    assert seen[-1] == (dlq, MANY, MANY)
    letters = page(store, limit=MANY).letters
    assert len({one.dl_id for one in letters}) == MANY
    ours = [one for one in letters if one.source == "queue:orders" and one.error_type == "ValueError"]
    assert len(ours) == len(range(0, MANY, 3))
    [operation] = last_operations(store)
    assert (operation.operation_id, operation.state) == (done.operation, "done")
    assert (operation.total, operation.done, operation.failed) == (MANY, MANY, 0)


def test_the_copy_of_a_letter_in_the_store_is_the_copy_of_the_letter_in_its_queue(
    each: Broker, dlq: str, store: Store
) -> None:
    declare(each, dlq)
    given = [b"\x00\xff" * 1000, "zwölf".encode(), b""]
    with connect(each.url) as session:
        put_dead_letters(session, dlq, "orders", given)
        adapter = session._adapter

        def copies(letters: list[Packed]) -> list[Any]:
            return [copy(one, adapter.reader, session.capabilities) for one in letters]

        looked_at = [pack(one) for one in session.browse(dlq)]
        before = copies(looked_at)
        run(each, store, dlq)
        kept = sorted(packed(store), key=lambda one: given.index(one.body))
        assert [one.body for one in looked_at] == given
        assert copies(kept) == before
        assert [unpack(one, adapter.reader).body for one in kept] == given


def test_a_letter_that_the_broker_has_dead_lettered_is_collected(each: Broker, file_store: Store) -> None:
    dead_letter_queue = dead_lettered_by_the_broker(each, "collected.orders", b"lamp")
    run(each, file_store, dead_letter_queue)
    found = [one for one in page(file_store).letters if show(file_store, one.dl_id).packed.body == b"lamp"]
    assert [(one.queue, one.source) for one in found] == [(dead_letter_queue, "queue:collected.orders")]
    assert (found[0].reason == "rejected") == (each.kind == "rabbitmq")  # the others give no reason


def test_at_most_so_many_are_taken_from_several_queues_in_order(rabbitmq43: Broker, dlq: str, store: Store) -> None:
    queues = [f"{dlq}.{number}" for number in range(3)]
    for queue in queues:
        publish_letters(rabbitmq43, queue, SOME)
    done = run(rabbitmq43, store, *queues, queues[0], limit=SOME + 50)
    assert [(one.queue, one.found, one.collected) for one in done.queues] == [
        (queues[0], SOME, SOME),
        (queues[1], SOME, 50),
        (queues[2], SOME, 0),
    ]
    assert [depth(rabbitmq43, queue) for queue in queues] == [0, SOME - 50, SOME]


def test_two_collects_at_once_share_the_letters(each: Broker, dlq: str, url: str) -> None:
    given = publish_letters(each, dlq, MANY)
    results: list[Collected] = []

    def work() -> None:
        with Store(url) as store:
            results.append(run(each, store, dlq, batch=100))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    with Store(url) as store:
        assert sorted(bodies(store)) == sorted(given)
    assert depth(each, dlq) == 0


@pytest.mark.parametrize(
    "each", ["rabbitmq43", "artemis244"], indirect=True
)  # ActiveMQ makes a queue that is asked for
def test_a_missing_queue_is_an_error_before_any_letter_is_taken(each: Broker, dlq: str, file_store: Store) -> None:
    publish_letters(each, dlq, 10)
    with pytest.raises(DestinationMissing):
        run(each, file_store, dlq, f"{dlq}.missing")
    assert (depth(each, dlq), bodies(file_store)) == (10, [])


# -- without an end ---------------------------------------------------------------------------------


def test_with_follow_letters_are_collected_as_they_come_until_it_is_stopped(
    each: Broker, dlq: str, file_store: Store
) -> None:
    given = publish_letters(each, dlq, 10)
    stop, done = threading.Event(), []
    other = f"{dlq}.other"
    declare(each, other)
    thread = threading.Thread(target=lambda: done.append(run(each, file_store, dlq, other, follow=True, stop=stop)))
    thread.start()
    try:
        until(lambda: len(bodies(file_store)) == 10, 60, "the first letters do not come")
        with connect(each.url) as session:
            for number in range(5):
                session.publish(other, b"late %d" % number)
        until(lambda: len(bodies(file_store)) == 15, 60, "later letters do not come")
    finally:
        stop.set()
        thread.join(60)
    assert [one.collected for one in done[0].queues] == [10, 5]
    assert sorted(bodies(file_store)) == sorted([*given, *(b"late %d" % number for number in range(5))])
    assert last_operations(file_store)[0].state == "done"


def test_with_follow_it_goes_on_after_the_broker_was_away(each: Broker, dlq: str, file_store: Store) -> None:
    only_if(each.can_restart, "kill")
    given = publish_letters(each, dlq, 1_000)
    stop = threading.Event()
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(run(each, file_store, dlq, follow=True, stop=stop, batch=50)))
    thread.start()
    try:
        until(lambda: len(bodies(file_store)) >= 100, 60, "the first letters do not come")
        each.kill()
        each.start()
        until(lambda: set(bodies(file_store)) == given, 120, "it does not go on")
        with connect(each.url) as session:
            session.publish(dlq, b"late")
        until(lambda: b"late" in bodies(file_store), 60, "it does not go on")
    finally:
        stop.set()
        thread.join(60)
    assert done


# -- bad weather ------------------------------------------------------------------------------------


def test_a_store_that_goes_away_in_the_middle_is_an_error_and_loses_nothing(
    each: Broker, dlq: str, tmp_path: Path
) -> None:
    given = publish_letters(each, dlq, MANY)
    file, away = tmp_path / "store.db", tmp_path / "away.db"

    def tell(queue: str, taken: int, of: int | None) -> None:
        if taken >= 500 and not away.exists():
            file.rename(away)

    with Store(f"sqlite:///{file}") as store:
        with pytest.raises(StoreError) as caught:
            run(each, store, dlq, batch=100, progress=tell)
        assert caught.value.code == "store-file-missing"
        away.rename(file)
        kept = set(bodies(store))
        until(lambda: len(kept) + depth(each, dlq) >= MANY, 30, "letters are missing")
        run(each, store, dlq, batch=100)
        assert sorted(bodies(store)) == sorted(given)


# -- the command line -------------------------------------------------------------------------------


def test_ctrl_c_ends_it_in_good_order_and_the_next_one_goes_on(each: Broker, dlq: str, tmp_path: Path) -> None:
    given = publish_letters(each, dlq, 10)
    url = f"sqlite:///{tmp_path}/store.db"
    words = ("dead", "collect", "env:BROKER", dlq, "--store", "env:STORE")
    extra = {"BROKER": each.url, "STORE": url}
    with Running(tmp_path, *words, "--follow", extra=extra) as running:
        with Store(url) as store:
            until(lambda: len(bodies(store)) == 10, 60, "no letter comes")
        running.signal(signal.SIGINT)
        assert running.wait(60) == 130
        assert "interrupted: letters that come later stay in their queues. To go on, run the same" in running.err
        assert "10 letters collected into sqlite:///" in running.out
    with connect(each.url) as session:
        session.publish(dlq, b"late")
    until_there(each, dlq)
    done = redeliver(tmp_path, *words, "--json", extra=extra)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["store"], told["stopped"]) == (url, False)
    assert told["queues"] == [
        {"queue": dlq, "found": 1, "collected": 1, "again": 0, "stay": 0, "reasons": {}, "rest": None}
    ]
    with Store(url) as store:
        assert sorted(bodies(store)) == sorted([*given, b"late"])


@pytest.mark.parametrize("seed", range(1, 12))
def test_a_collect_that_is_killed_at_random_lines_loses_nothing_and_repeats_only_what_nothing_tells_apart(
    each: Broker, dlq: str, tmp_path: Path, seed: int
) -> None:
    given = publish_letters(each, dlq, TO_KILL)
    site(tmp_path)
    url, log = f"sqlite:///{tmp_path}/store.db", tmp_path / "kills"
    extra = {"BROKER": each.url, "KILL_CODE": str(REPOSITORY), "KILL_LOG": str(log)}
    extra |= {"KILL_SURE": "operations/collect.py:_write", "KILL_SURE_OFTEN": "2"}  # at the second batch at the latest
    words = ("dead", "collect", "env:BROKER", dlq, "--store", url)
    for number in range(KILLS):
        killed = redeliver(tmp_path, *words, extra=extra | {"KILL_SEED": f"{seed}-{each.kind}-{number}"})
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    kills = log.read_text().splitlines()
    assert len(kills) == KILLS
    until(lambda: redeliver(tmp_path, *words, extra=extra).returncode == 0 and depth(each, dlq) == 0, 120, "it stays")
    with Store(url) as store:
        found = packed(store)
        assert {one.body for one in found} == given
        times = Counter(one.body for one in found)
        numbers = {body: int(body[1:9]) for body in times}
        assert [number for body, number in numbers.items() if number % 3 < 2 and times[body] > 1] == []
        assert len(found) - TO_KILL <= BATCH * len(kills)
