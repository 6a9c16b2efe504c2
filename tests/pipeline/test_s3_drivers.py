# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests commands of `redeliver pipeline` with a lake in a bucket, as processes with Spark: chain, races and kills.

A kill is SIGKILL, at a request that changes the bucket. One case stands for each kind of such requests, and a test says
for each command that there is no other kind. `optimize`, which needs no Spark, is killed at each of its requests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from redeliver_mw.cli.pipeline.main import IN_PART
from redeliver_mw.pipeline import Lake, optimize
from redeliver_mw.pipeline.draining.commit import gather
from redeliver_mw.pipeline.draining.manifests import HEAD as LETTERS_HEAD
from redeliver_mw.pipeline.draining.manifests import read_all
from redeliver_mw.pipeline.draining.staging import batches
from redeliver_mw.pipeline.lake.snapshots import HEAD as EVENTS_HEAD
from redeliver_mw.session import connect
from tests.brokers import Broker, _install
from tests.brokers.skips import not_to_be_had
from tests.dead_letters.many_letters import depth
from tests.faults.letters import declare, put_dead_letters
from tests.pipeline.journals import lines, segment
from tests.pipeline.letters import Task, letter
from tests.pipeline.many_runs import everything, ids, publish_run, segments
from tests.pipeline.other_stores import make_bucket, s3mock
from tests.pipeline.replays import body_of, numbers_in
from tests.pipeline.s3_drivers import Killer, WarmSession, race
from tests.pipeline.s3_server import BUCKET, environment, proxy_to, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

LETTERS = 60
EARLIER = 1000  # the number of a letter that is in the table before


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture(scope="module", params=["moto", "s3mock"])
def server(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "moto":
        yield request.getfixturevalue("moto")
        return
    try:
        with s3mock() as url:
            make_bucket(url, BUCKET)
            yield url
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)


@pytest.fixture(scope="module")
def warm(moto: str) -> Iterator[WarmSession]:
    """Yield the session that runs what is not killed, since each start of Spark costs many seconds."""
    with WarmSession(moto) as session:
        yield session


@pytest.fixture
def place(moto: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address that no other test has; this process finds server and credentials in the environment."""
    for name, value in environment(moto).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


@pytest.fixture
def queues(rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Return a source and its dead-letter queue, which has letters."""
    monkeypatch.setenv("BROKER", rabbitmq43.url)
    source = f"orders.{uuid4().hex[:8]}"
    declare(rabbitmq43, source, f"dlq.{source}")
    with connect(rabbitmq43.url) as session:
        put_dead_letters(session, f"dlq.{source}", source, [body_of(number) for number in range(LETTERS)])
    return source, f"dlq.{source}"


def letters(lake: Lake) -> Counter[int]:
    """Return how often each letter is in the table, and check that all files that the table leads to are whole."""
    counted: Counter[int] = Counter()
    for file in [file for one in read_all(lake.files) for file in one.files]:
        with lake.files.open(file.path) as opened:
            rows = pq.read_table(opened, columns=["body"])
        assert len(rows) == file.rows
        counted.update(int(body.split()[1]) for body in rows["body"].to_pylist())
    return counted


def records(numbers: Iterable[int]) -> list[str]:
    """Return the ids of these records, in the order of `ids`."""
    return sorted(f"0123456789ab-{number}" for number in numbers)


def data(lake: Lake, folder: str = "events") -> set[str]:
    return {path for path in everything(lake.files, folder) if path.startswith(f"{folder}/dt=")}


def named(lake: Lake) -> set[str]:
    """Return the paths of the files of the events that count."""
    return {file.path for one in lake.manifests() for file in one.files}


# The chain


@pytest.mark.broker
def test_the_whole_chain_runs_on_a_bucket_and_each_letter_goes_back_once(
    server: str,
    rabbitmq43: Broker,
    queues: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    place, (source, dlq) = f"s3://{BUCKET}/{uuid4().hex}/lake", queues
    journal, plan, again, page = (str(tmp_path / name) for name in ("journal", "plan", "again", "page.html"))
    segment(Path(journal), lines(range(300)))
    said: list[str] = []
    with WarmSession(server) as session:
        for words in [
            ["compact", journal, place],
            ["insights", place],
            ["backtest", place, "--search", "--json"],
            ["report", place, "--out", page],
            ["drain", "env:BROKER", dlq, place, "--json"],
            ["plan", place, plan, "--no-bodies", "--json"],
            ["replay", plan, "env:BROKER", "--execute", "--json", "--wait", "0"],
            ["plan", place, again, "--json"],
            ["forget", place, "--before", "2100-01-01", "--bodies", "--execute", "--json"],
            ["compact", journal, place],
        ]:
            said.append(session.run(*words))
    told = [json.loads(line) for line in "".join(said).splitlines() if line.startswith('{"')]
    drained, planned, replayed, nothing, forgotten = told[-5:]
    assert (drained["found"], drained["letters"], planned["letters"], replayed["replayed"]) == (LETTERS,) * 4
    assert (nothing["letters"], forgotten["letters"], forgotten["unsent"]) == (0, LETTERS, 0)
    assert numbers_in(rabbitmq43.url, source) == Counter(range(LETTERS))
    assert depth(rabbitmq43, dlq) == 0
    lake = Lake(place)
    assert ids(lake) == records(range(300))
    assert batches(lake.files) == []
    assert not any(".bodies" in entry.name for entry in lake.files.entries("replays"))
    assert "TimeoutError" in Path(page).read_text()


# Races


def judged(ends: list[tuple[int, str, str]], winner: str) -> None:
    """Check that one driver has won, and that the other names the winner's run and ends with 1."""
    assert sorted(code for code, _, _ in ends) == [0, 1], ends
    [(_, _, complaint)] = [end for end in ends if end[0] == 1]
    named = re.search(r"the run (\S+) of process \d+ on \S+ was published first", complaint)
    assert named, complaint
    assert named[1] == winner
    assert "[lost-the-race]" in complaint


def test_of_two_compactions_that_race_one_wins_and_each_record_is_there_once(
    moto: str, warm: WarmSession, place: str, tmp_path: Path
) -> None:
    publish_run(Lake(place, create=True), 0, range(1000, 1010))
    segment(tmp_path / "journal", lines(range(200)))
    words = ("compact", str(tmp_path / "journal"), place)
    with proxy_to(moto) as one, proxy_to(moto) as other:
        ends = race([one, other], EVENTS_HEAD, words)
    lake = Lake(place)
    judged(ends, lake.manifests()[-1].run)
    assert ids(lake) == records([*range(200), *range(1000, 1010)])
    assert data(lake) == named(lake)  # the loser has removed its files
    warm.run(*words)
    assert len(lake.manifests()) == 2


@pytest.mark.broker
def test_of_two_drains_that_race_one_wins_and_each_letter_is_there_once(
    moto: str, warm: WarmSession, place: str, rabbitmq43: Broker, queues: tuple[str, str]
) -> None:
    dlq = queues[1]
    with proxy_to(moto) as one, proxy_to(moto) as other:
        ends = race([one, other], LETTERS_HEAD, ("drain", "env:BROKER", dlq, place, "--batch", "5"))
    lake = Lake(place)
    judged(ends, read_all(lake.files)[-1].run)
    assert set(letters(lake).values()) == {1}
    warm.run("drain", rabbitmq43.url, dlq, place)
    assert letters(lake) == Counter(range(LETTERS))
    assert batches(lake.files) == []
    assert depth(rabbitmq43, dlq) == 0


# Kills


@dataclass(frozen=True, slots=True)
class Kill:
    """Describes a kill at the first request that `request` is found in, and whether the run counts afterwards."""

    request: str
    carried_out: bool = False
    published: bool = False

    def __str__(self) -> str:
        return f"{'after' if self.carried_out else 'before'} {self.request}"


def kills(*cases: Kill) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kill", cases, ids=str)


def others(seen: Iterable[str], cases: Iterable[Kill], *known: str) -> list[str]:
    """Return the requests that no case is about.

    At a request of a `known` kind a kill leaves what it leaves in another case.
    """
    kinds = [*(case.request for case in cases), *known]
    return [text for text in seen if not any(re.search(kind, text) for kind in kinds)]


TRIAL = "(PUT|POST) .*/_probe/"  # of the store's conditions, before the first file of a run
COMPACTION = [
    Kill("PUT .*/_lake.json"),
    Kill("PUT .*/_probe/"),
    Kill("POST .*/_probe/"),
    Kill("PUT .*/events/dt"),
    Kill("PUT .*/events/dt", carried_out=True),
    Kill("PUT .*/quarantine/"),
    Kill("PUT .*/events/_manifests/"),
    Kill("PUT .*/events/_snapshots/"),
    Kill("PUT .*/events/_head.json"),
    Kill("PUT .*/events/_head.json", carried_out=True, published=True),
    Kill("POST .*/events/_ticks/", published=True),
]


@kills(*COMPACTION)
def test_a_compaction_that_is_killed_leaves_all_of_its_run_or_nothing_and_the_next_one_completes_it(
    kill: Kill, moto: str, warm: WarmSession, place: str, tmp_path: Path
) -> None:
    old, new = records(range(1000, 1010)), records([*range(40), *range(1000, 1010)])
    if "_lake.json" in kill.request:
        old, new = [], records(range(40))
    else:
        publish_run(Lake(place, create=True), 0, range(1000, 1010))
    segment(tmp_path / "journal", [*lines(range(40)), b"no record\n"])
    words = ("compact", str(tmp_path / "journal"), place)
    with proxy_to(moto) as proxy:
        killer = Killer(proxy, kill.request, carried_out=kill.carried_out)
        killer.run(proxy.url, *words)
    assert killer.killed, killer.seen
    assert others(killer.seen, COMPACTION) == []
    lake = Lake(place, create=True)
    assert ids(lake) == (new if kill.published else old)
    before = named(lake)
    warm.run(*words, code=0 if kill.published else IN_PART)  # a line is no record
    assert ids(lake) == new
    assert before <= named(lake)
    assert data(lake) == named(lake)  # what the dead run has left is gone


def test_a_compaction_that_is_killed_while_it_removes_what_a_dead_one_has_left_changes_no_record(
    moto: str, warm: WarmSession, place: str, tmp_path: Path
) -> None:
    publish_run(Lake(place, create=True), 0, range(1000, 1010))
    segment(tmp_path / "journal", lines(range(40)))
    words = ("compact", str(tmp_path / "journal"), place)
    with proxy_to(moto) as proxy:
        Killer(proxy, "PUT .*/events/_head.json").run(proxy.url, *words)
    lake = Lake(place)
    left = data(lake) - named(lake)
    assert left
    publish_run(lake, 1, range(2000, 2010), removal=False)  # from here on the run is dead for certain
    with proxy_to(moto) as proxy:
        killer = Killer(proxy, "POST .*/events/dt", carried_out=True)
        killer.run(proxy.url, *words)
    assert killer.killed, killer.seen
    assert ids(lake) == records([*range(1000, 1010), *range(2000, 2010)])
    warm.run(*words)
    assert ids(lake) == records([*range(40), *range(1000, 1010), *range(2000, 2010)])
    assert data(lake) == named(lake)


DRAIN = [
    Kill("PUT .*/_staging/.*/_begun"),
    Kill("PUT .*/_staging/.*parquet"),
    Kill("PUT .*/_staging/.*parquet", carried_out=True),
    Kill("PUT .*/_staging/.*sure"),
    Kill("PUT .*/dead_letters/dt"),
    Kill("PUT .*/dead_letters/_manifests/"),
    Kill("PUT .*/dead_letters/_snapshots/"),
    Kill("PUT .*/dead_letters/_head.json"),
    Kill("PUT .*/dead_letters/_head.json", carried_out=True, published=True),
    Kill("POST .*/_staging/", carried_out=True, published=True),
]


@pytest.mark.broker
@kills(*DRAIN)
def test_a_drain_that_is_killed_loses_no_letter_and_the_next_one_has_each_once(
    kill: Kill, moto: str, warm: WarmSession, place: str, rabbitmq43: Broker, queues: tuple[str, str]
) -> None:
    lake = Lake(place, create=True)
    Task(lake).keep(letter(body_of(EARLIER), message_id="earlier"), sure=True)
    gather(lake)
    old = Counter([EARLIER])
    words = ("drain", "env:BROKER", queues[1], place, "--batch", "20", "--tasks", "1")
    with proxy_to(moto) as proxy:
        killer = Killer(proxy, kill.request, carried_out=kill.carried_out)
        killer.run(proxy.url, *words)
    assert killer.killed, killer.seen
    assert others(killer.seen, DRAIN, TRIAL) == []
    assert letters(lake) == (old + Counter(range(LETTERS)) if kill.published else old)
    warm.run("drain", rabbitmq43.url, *words[2:])
    assert letters(lake) == old + Counter(range(LETTERS))
    assert depth(rabbitmq43, queues[1]) == 0
    assert batches(lake.files) == []
    assert data(lake, "dead_letters") == {file.path for one in read_all(lake.files) for file in one.files}


def marts(lake: Lake) -> list[str]:
    """Return the runs of the compaction that the marts were made from; check that all files of the marts are whole."""
    manifest = lake.marts().manifest
    for name, mart in manifest.marts.items():
        rows = 0
        for path in mart.files:
            with lake.files.open(path) as opened:
                rows += len(pq.read_table(opened))
        assert rows == mart.rows, name
    return manifest.events or []


INSIGHTS = [
    Kill("(PUT|POST|DELETE) .*/marts/_runs/"),  # from Spark's own S3 client
    Kill("PUT .*/marts/_manifests/"),
    Kill("PUT .*/marts/_head.json"),
    Kill("PUT .*/marts/_head.json", carried_out=True, published=True),
]


@kills(*INSIGHTS)
def test_insights_that_is_killed_leaves_all_marts_of_one_run(
    kill: Kill, moto: str, warm: WarmSession, place: str
) -> None:
    lake = Lake(place, create=True)
    publish_run(lake, 0, range(30))
    warm.run("insights", place)
    old = marts(lake)
    new = [*old, publish_run(lake, 1, range(30, 60))]
    with proxy_to(moto) as proxy:
        killer = Killer(proxy, kill.request, carried_out=kill.carried_out)
        killer.run(proxy.url, "insights", place)
    assert killer.killed, killer.seen
    assert others(killer.seen, INSIGHTS, TRIAL, "POST .*/marts/[a-z_]+$") == []
    assert marts(lake) == (new if kill.published else old)
    warm.run("insights", place)
    assert marts(lake) == new
    kept = {path.split("/")[2] for path in everything(lake.files, "marts/_runs")}
    assert len(kept) == 2  # those of the head, and those before


REPLAY = [
    Kill("PUT .*/replays/.*json"),
    Kill("PUT .*/replays/.*json", carried_out=True),
    Kill("PUT .*/replays/.*parquet"),
    Kill("PUT .*/replays/.*parquet", carried_out=True),
]


@pytest.mark.broker
@kills(*REPLAY)
def test_a_replay_that_is_killed_before_it_sends_is_run_again_and_sends_each_letter_once(
    kill: Kill,
    moto: str,
    warm: WarmSession,
    place: str,
    rabbitmq43: Broker,
    queues: tuple[str, str],
    tmp_path: Path,
) -> None:
    source, dlq = queues
    warm.run("drain", rabbitmq43.url, dlq, place)
    warm.run("plan", place, str(tmp_path / "plan"), "--no-bodies")
    words = ("--execute", "--json", "--wait", "0")
    with proxy_to(moto) as proxy:
        killer = Killer(proxy, kill.request, carried_out=kill.carried_out)
        killer.run(proxy.url, "replay", str(tmp_path / "plan"), "env:BROKER", *words)
    assert killer.killed, killer.seen
    assert others(killer.seen, REPLAY, "POST .*/replays/") == []
    assert depth(rabbitmq43, source) == 0
    warm.run("replay", str(tmp_path / "plan"), rabbitmq43.url, *words)
    assert numbers_in(rabbitmq43.url, source) == Counter(range(LETTERS))


# Small files


@pytest.mark.parametrize("carried_out", [False, True], ids=["before", "after"])
def test_optimize_that_is_killed_at_each_change_loses_no_record_and_no_segment(
    carried_out: bool, moto: str, place: str
) -> None:
    lake = Lake(place, create=True)
    for run in range(3):
        publish_run(lake, run, [run * 10, 86_400 + run])
    words = ("optimize", place, "--keep", "0s")
    outcomes: list[bool] = []
    for step in range(1, 60):
        publish_run(lake, 10 + step, [step * 100, 86_400 + step * 100])
        before, read, head = ids(lake), segments(lake), lake.manifests()[-1].run
        with proxy_to(moto) as proxy:
            killer = Killer(proxy, number=step, carried_out=carried_out)
            killer.run(proxy.url, *words, spark=False)
        assert (ids(lake), segments(lake)) == (before, read), killer.killed
        outcomes.append(lake.manifests()[-1].run != head)
        optimize(lake, keep_s=0)
        assert (ids(lake), segments(lake)) == (before, read)
        assert len(lake.manifests()) == 1
        assert data(lake) == named(lake)  # and what the dead have left is gone
        if not killer.killed:
            break
    else:
        pytest.fail("it was killed each time")
    assert outcomes == sorted(outcomes)  # nothing before the head, everything from then on
    assert not outcomes[0]
