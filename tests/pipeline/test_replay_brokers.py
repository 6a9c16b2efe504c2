# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Replays to real brokers are killed, starved, refused, stopped, and gone on with, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from redeliver_mw.errors import BrokerError, ConfigError, DestinationMissing, RedeliverError
from redeliver_mw.pipeline import Lake, LakeError, Replayed, SparkError, replay
from redeliver_mw.pipeline.replaying.ledger import positions_in
from redeliver_mw.pipeline.replaying.registry import all_begun, sent_letters
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.disks import fill, small_disk_at
from tests.faults.load import channel_on, until
from tests.pipeline.replays import ledger_lines, make_plan, numbers_in, taken, template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]

BATCH = 500
THREE = ["rabbitmq43", "activemq63", "artemis244"]


@pytest.fixture(params=THREE)
def each(request: pytest.FixtureRequest) -> Broker:
    """Return one broker of each kind in turn."""
    found: Broker = request.getfixturevalue(request.param)
    return found


class Asked:
    """Runs a replay in a thread of its own; `end` returns what the replay returned, or raises what it raised."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._done: Replayed | None = None
        self._error: BaseException | None = None
        self.stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(args, options), daemon=True)
        self._thread.start()

    def _run(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        try:
            self._done = replay(*args, execute=True, stop=self.stop, **options)
        except BaseException as error:  # raised again by `end`
            self._error = error

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> Replayed:
        self._thread.join(900)
        assert self.over
        if self._error is not None:
            raise self._error
        assert self._done is not None
        return self._done


def publishers(folder: Path, before: set[str]) -> list[int]:
    """Return the ids of the processes of the run that is at work, which is none of those in `before`."""
    return [line["pid"] for line in ledger_lines(folder) if "ledger" in line and line["run"] not in before]


def sending(folder: Path, before: set[str]) -> list[int]:
    """Return the ids of the publishers of that run that have a batch on its way."""
    pids: dict[str, int] = {}
    for line in ledger_lines(folder):
        if "ledger" in line and line["run"] not in before:
            pids[line["file"]] = line["pid"]
    last = {line["file"]: line for line in ledger_lines(folder)}
    return [pid for file, pid in pids.items() if "intent" in last[file]]


def confirmed(folder: Path) -> int:
    """Return how many letters the ledger has confirmed, counted without the code that writes the ledger."""
    return sum(_size(line["done"]) for line in ledger_lines(folder) if "done" in line)


def _size(text: str) -> int:
    parts = [part.split("-") for part in text.split(",") if part]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in parts)


def unanswered(folder: Path) -> int:
    """Return how many publishers ended with a batch on its way."""
    last: dict[str, str] = {}
    for line in ledger_lines(folder):
        last[line["file"]] = "intent" if "intent" in line else "done"
    return sum(word == "intent" for word in last.values())


def kill_one(asked: Asked, folder: Path, before: set[str], goal: int, in_flight: bool, chance: random.Random) -> None:
    """Kill one publisher once so many letters are confirmed, at any instant or while a batch is on its way.

    The signal is SIGKILL.
    """
    until(lambda: (confirmed(folder) >= goal and bool(publishers(folder, before))) or asked.over, 600, "no progress")
    if in_flight:
        until(lambda: bool(sending(folder, before)) or asked.over, 600, "nothing is on its way")
    os.kill(chance.choice(sending(folder, before) or publishers(folder, before)), signal.SIGKILL)
    with pytest.raises(SparkError, match="Run it again"):
        asked.end()


@pytest.fixture
def names(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return the names of a source and a dead-letter queue of the test's own."""
    name = "".join(c if c.isalnum() else "." for c in request.node.name.removeprefix("test_"))[:60]
    return f"rp.{name}", f"dlq.{name}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_publishers_that_are_killed_lose_nothing_and_repeat_a_batch_at_most(
    each: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    letters, folder, chance = 8_000, tmp_path / "plan", random.Random(7)
    make_plan(lake, folder, each.url, template(each, *names), *names, letters)
    for share, in_flight in ((0.1, True), (0.4, False), (0.7, True)):
        before = {line["run"] for line in ledger_lines(folder) if "ledger" in line}
        asked = Asked(spark, folder, each.url)
        kill_one(asked, folder, before, int(letters * share), in_flight, chance)
    killed = unanswered(folder)

    done = replay(spark, folder, each.url, execute=True)

    assert (done.whole, done.replayed, done.in_doubt) == (True, letters, 0)
    there = numbers_in(each.url, names[0])
    twice = there.total() - letters
    assert set(there) == set(range(letters))
    assert 1 <= killed <= 2 * 3  # the job's other publisher is ended, too
    assert twice <= (0 if each.kind == "artemis" else BATCH * killed)
    print(f"\n{each.describe()}: {killed} publishers ended on the way, {twice} letters are there twice")


def test_a_whole_replay_sends_each_letter_once_as_its_next_generation(
    each: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    folder = tmp_path / "plan"
    plan = make_plan(lake, folder, each.url, template(each, *names), *names, 1200, buckets=3)
    looked = replay(spark, folder, each.url)
    assert (looked.executed, looked.left, looked.missing) == (False, 1200, {})
    assert not (folder / "ledger").exists()

    done = replay(spark, folder, each.url, execute=True)

    assert (done.whole, done.sent, done.died_again, done.stopped) == (True, 1200, 0, "")
    (begun,) = all_begun(lake.files)
    assert (begun.plan_id, begun.folder) == (plan.plan_id, str(folder))
    assert sorted(sent_letters(begun).to_pylist()) == [f"copy-{n:06d}" for n in range(1200)]
    found = taken(each.url, names[0])
    assert Counter(one.body for one in found) == Counter(b"letter %06d" % n for n in range(1200))
    one = found[0]
    number = one.text.split()[1]
    ours = {name: one.headers.get(f"redeliver_{name}") for name in ("lineage", "generation", "replay_id", "reason")}
    assert ours == {"lineage": f"lineage-{number}", "generation": "1", "replay_id": plan.plan_id, "reason": None}
    assert one.headers["tenant"] == "a"
    again = replay(spark, folder, each.url, execute=True)
    assert (again.whole, again.sent) == (True, 0)
    assert taken(each.url, names[0]) == []


def test_what_is_edited_is_what_arrives(
    each: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    folder = tmp_path / "plan"
    change = {"body": b"\xff another body", "edited_body": True, "edits": '{"headers": {"tenant": null, "by": "hand"}}'}
    make_plan(lake, folder, each.url, template(each, *names), *names, 1, change=change)
    assert replay(spark, folder, each.url, execute=True).whole
    (one,) = taken(each.url, names[0])
    assert (one.body, one.headers.get("tenant"), one.headers["by"]) == (b"\xff another body", None, "hand")


@pytest.mark.slow
def test_the_rate_is_held_within_five_percent(
    each: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    folder, rate = tmp_path / "plan", 300.0
    make_plan(lake, folder, each.url, template(each, *names), *names, 2000)
    done = replay(spark, folder, each.url, execute=True, rate=rate, batch=50)
    assert done.publishers == 2
    assert done.rate <= 1.05 * rate
    # Each publisher by itself, as one may begin later. On a busy machine it may also stand still for a moment and catch
    # up: from the first batch to the last it is not too fast, and it is not too slow either, or not usually.
    publisher: dict[str, int] = {}
    times: dict[int, list[float]] = defaultdict(list)
    sent: Counter[int] = Counter()
    for line in ledger_lines(folder):
        if "pid" in line:
            publisher[line["file"]] = line["pid"]
        elif "done" in line:
            pid = publisher[line["file"]]
            times[pid].append(line["at_us"] / 1e6)
            sent[pid] += len(positions_in(line["done"]))
    assert (len(sent), sent.total()) == (2, 2000)
    for pid, number in sent.items():
        took = [after - before for before, after in pairwise(sorted(times[pid]))]
        mean, usual, batch = sum(took) / len(took), statistics.median(took), number / len(times[pid])
        assert batch / mean <= 1.05 * rate / 2
        assert batch / min(mean, usual) >= 0.95 * rate / 2, (mean, usual)


# -- targets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rabbitmq43", "artemis244"])
def test_a_missing_target_is_reported_and_nothing_is_sent(
    name: str, request: pytest.FixtureRequest, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    broker: Broker = request.getfixturevalue(name)
    folder = tmp_path / "plan"
    make_plan(lake, folder, broker.url, template(broker, *names), *names, 10, change={"target": "queue:rp.not.there"})
    assert set(replay(spark, folder, broker.url).missing) == {"queue:rp.not.there"}
    with pytest.raises(DestinationMissing, match=r"queue:rp\.not\.there takes nothing: .*10 letters go there"):
        replay(spark, folder, broker.url, execute=True)
    assert not (folder / "ledger").exists()
    assert all_begun(lake.files) == []


def small_queue(broker: Broker, name: str, most: int) -> None:
    """Declare a queue that refuses every message over `most`."""
    with channel_on(broker) as channel:
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-max-length": most, "x-overflow": "reject-publish"})


def test_a_full_target_is_counted_and_the_rest_goes_when_there_is_room(
    rabbitmq43: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    folder, broker = tmp_path / "plan", rabbitmq43
    head = template(broker, *names)
    small_queue(broker, names[0], 300)
    make_plan(lake, folder, broker.url, head, *names, 1000, buckets=2)
    with pytest.raises(BrokerError, match=r"letters one after the other were refused"):
        replay(spark, folder, broker.url, execute=True, batch=100)
    there = numbers_in(broker.url, names[0])
    looked = replay(spark, folder, broker.url)
    assert looked.replayed == there.total() >= 300
    assert looked.refused >= 100
    assert looked.refused + looked.replayed + looked.left == 1000
    while not looked.whole:
        try:
            looked = replay(spark, folder, broker.url, execute=True, batch=100)
        except BrokerError:
            looked = replay(spark, folder, broker.url)
        there += numbers_in(broker.url, names[0])
    assert there == Counter(range(1000))


def test_what_is_behind_a_refused_one_of_its_group_waits_for_it(
    rabbitmq43: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    folder, broker, groups = tmp_path / "plan", rabbitmq43, 6
    head = template(broker, *names)
    small_queue(broker, names[0], 25)
    # Number n is in bucket n % 2, and so is all of its group.
    make_plan(lake, folder, broker.url, head, *names, 120, buckets=2, group_of=lambda n: f"group {n % groups}")
    came: list[int] = []
    held = 0
    done = replay(spark, folder, broker.url)
    for _ in range(20):
        if done.whole:
            break
        done = replay(spark, folder, broker.url, execute=True, batch=20)
        held += done.held_back
        assert done.refused <= groups
        came += [int(one.text.split()[1]) for one in taken(broker.url, names[0])]
    assert held > 0
    assert sorted(came) == list(range(120))
    for group in range(groups):
        mine = [n for n in came if n % groups == group]
        assert mine == sorted(mine)


# -- brokers, disks, ledgers ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_broker_that_dies_in_the_middle_is_one_clear_error_and_nothing_is_lost(
    each: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, names: tuple[str, str]
) -> None:
    only_if(each.can_restart, "kill")
    letters, folder = 8000, tmp_path / "plan"
    make_plan(lake, folder, each.url, template(each, *names), *names, letters)
    asked = Asked(spark, folder, each.url)
    until(lambda: confirmed(folder) >= 1000 or asked.over, 300, "no progress")
    each.kill()
    with pytest.raises(BrokerError) as caught:
        asked.end()
    assert "\n" not in str(caught.value)
    each.start()
    doubtful = replay(spark, folder, each.url).in_doubt
    assert doubtful <= 2 * BATCH

    assert replay(spark, folder, each.url, execute=True).whole

    there = numbers_in(each.url, names[0])
    assert set(there) == set(range(letters))
    assert there.total() - letters <= (0 if each.kind == "artemis" else doubtful)
    print(f"\n{each.describe()}: {doubtful} in doubt, {there.total() - letters} there twice; {caught.value}")


@pytest.fixture
def some(rabbitmq43: Broker, lake: Lake, tmp_path: Path, names: tuple[str, str]) -> Callable[..., Path]:
    """Return a function that makes a plan of 1000 letters in a folder."""

    def make(folder: Path = tmp_path / "plan", letters: int = 1000) -> Path:
        make_plan(lake, folder, rabbitmq43.url, template(rabbitmq43, *names), *names, letters, buckets=2)
        return folder

    return make


def test_two_replays_of_one_plan_cannot_be_at_work(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, names: tuple[str, str]
) -> None:
    folder = some()
    first = Asked(spark, folder, rabbitmq43.url, rate=400.0)
    until(lambda: confirmed(folder) > 0 or first.over, 200, "no progress")
    with pytest.raises(LakeError, match=rf"process {os.getpid()} on .* is at work on its replay"):
        replay(spark, folder, rabbitmq43.url, execute=True)
    assert first.end().whole
    assert numbers_in(rabbitmq43.url, names[0]) == Counter(range(1000))


def test_what_another_plan_has_sent_meanwhile_is_not_sent_again(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = some(letters=20), some(tmp_path / "second", letters=30)
    assert replay(spark, first, rabbitmq43.url, execute=True).whole
    with pytest.raises(ConfigError, match="20 of its letters were sent back by the replay"):
        replay(spark, second, rabbitmq43.url, execute=True)
    assert numbers_in(rabbitmq43.url, names[0]) == Counter(range(20))


def test_a_plan_that_was_changed_after_freezing_is_not_sent(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, names: tuple[str, str]
) -> None:
    folder = some()
    path = folder / "letters" / "bucket-00001.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="changed after the plan was frozen"):
        replay(spark, folder, rabbitmq43.url, execute=True)
    assert numbers_in(rabbitmq43.url, names[0]) == Counter()


def test_a_torn_last_line_of_the_ledger_is_a_batch_in_doubt_and_a_damaged_one_an_error(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, names: tuple[str, str]
) -> None:
    folder = some()
    assert replay(spark, folder, rabbitmq43.url, execute=True, batch=100).whole
    path = min((folder / "ledger").glob("bucket-00000.*.jsonl"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    looked = replay(spark, folder, rabbitmq43.url)
    assert (looked.in_doubt, looked.replayed) == (100, 900)

    assert replay(spark, folder, rabbitmq43.url, execute=True).sent == 100

    there = numbers_in(rabbitmq43.url, names[0])
    assert (set(there), there.total()) == (set(range(1000)), 1100)
    path.write_bytes(whole[:300] + b"?" + whole[301:])
    with pytest.raises(LakeError, match=r"line \d is damaged.*Restore"):
        replay(spark, folder, rabbitmq43.url, execute=True)


def test_with_a_full_disk_no_letter_is_sent_that_cannot_be_written_down(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    with small_disk_at(tmp_path / "disk", "2m") as disk:
        folder = some(disk / "plan")
        asked = Asked(spark, folder, rabbitmq43.url, rate=200.0, batch=5)
        until(lambda: confirmed(folder) > 20 or asked.over, 200, "no progress")
        with pytest.raises(OSError, match="No space"):
            fill(disk / "others")
        with pytest.raises(LakeError, match="the disk is full") as caught:
            asked.end()
        assert "Make room" in caught.value.cure
        there = numbers_in(rabbitmq43.url, names[0])
        assert there.total() == confirmed(folder) < 1000
        (disk / "others").unlink()
        looked = replay(spark, folder, rabbitmq43.url)
        assert (looked.in_doubt, looked.replayed) == (0, there.total())
        assert replay(spark, folder, rabbitmq43.url, execute=True).whole
    assert there + numbers_in(rabbitmq43.url, names[0]) == Counter(range(1000))


def test_a_replay_that_is_asked_to_stop_ends_in_good_order_and_goes_on_later(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession, names: tuple[str, str]
) -> None:
    folder = some()
    asked = Asked(spark, folder, rabbitmq43.url, rate=300.0)
    until(lambda: confirmed(folder) > 0 or asked.over, 200, "no progress")
    asked.stop.set()
    done = asked.end()
    assert (done.interrupted, done.in_doubt) == (True, 0)
    assert 0 < done.replayed < 1000
    assert replay(spark, folder, rabbitmq43.url, execute=True).sent == 1000 - done.replayed
    assert numbers_in(rabbitmq43.url, names[0]) == Counter(range(1000))


def test_letters_of_another_dialect_and_too_many_publishers_are_refused(
    some: Callable[..., Path], rabbitmq43: Broker, spark: SparkSession
) -> None:
    folder = some(letters=10)
    for url, options, what in (
        ("artemis://127.0.0.1:1", {}, r"read through rabbitmq\+pika, and this is artemis\+proton"),
        ("memory://", {}, "a memory broker lives in one process"),
        (rabbitmq43.url, {"publishers": 99}, "99 publishers, and Spark runs 2 tasks at a time"),
        (rabbitmq43.url, {"journal": str(folder / "nowhere")}, "no journal is here"),
    ):
        with pytest.raises(ConfigError, match=what):
            replay(spark, folder, url, execute=True, **options)
    with pytest.raises(RedeliverError, match="no plan is here"):
        replay(spark, folder.parent / "nowhere", rabbitmq43.url)


def test_a_broker_that_is_absent_is_one_clear_error(
    some: Callable[..., Path], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redeliver_mw.dead_letters.sending.sync_connection.CONNECTED_IN", 2.0)
    with pytest.raises(BrokerError):
        replay(spark, some(letters=3), "rabbitmq://guest:secret@127.0.0.1:1", execute=True)
