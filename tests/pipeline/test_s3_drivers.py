# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Commands of `redeliver pipeline` with a lake in a bucket, as processes with Spark: the chain, races, and kills."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.manifests import HEAD as LETTERS_HEAD
from redeliver_mw.pipeline.draining.manifests import read_all
from redeliver_mw.pipeline.draining.staging import STAGING, batches
from redeliver_mw.pipeline.lake.snapshots import HEAD as EVENTS_HEAD
from redeliver_mw.session import connect
from tests.brokers import Broker, _install
from tests.brokers.skips import not_to_be_had
from tests.dead_letters.burying import depth
from tests.faults.letters import bury, declare
from tests.pipeline.hadoop_jars import s3_client
from tests.pipeline.journals import lines, segment
from tests.pipeline.other_stores import make_bucket, s3mock
from tests.pipeline.replays import body_of, numbers_in
from tests.pipeline.s3_server import BUCKET, KEY, SECRET, Proxy, environment, proxy_to, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

REPOSITORY = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
REDELIVER = "import sys; from redeliver_mw.cli.main import run; sys.exit(run(sys.argv[1:]))"
LETTERS = 60


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


@pytest.fixture
def place() -> str:
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


@pytest.fixture
def queues(rabbitmq43: Broker) -> tuple[str, str]:
    """A source and its dead-letter queue, with letters."""
    source = f"orders.{uuid4().hex[:8]}"
    declare(rabbitmq43, source, f"dlq.{source}")
    with connect(rabbitmq43.url) as session:
        bury(session, f"dlq.{source}", source, [body_of(number) for number in range(LETTERS)])
    return source, f"dlq.{source}"


def driver(url: str, *words: str) -> subprocess.Popen[str]:
    """Start a command of `redeliver pipeline`, with Spark on this machine."""
    jars = ",".join(map(str, s3_client()))  # compact compares records through Spark
    return subprocess.Popen(
        [sys.executable, "-c", REDELIVER, "pipeline", *words, "--master", "local[2]", "--conf", f"spark.jars={jars}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment(url), "PYTHONPATH": PATH},
        cwd=REPOSITORY,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, complained = process.communicate(timeout=300)
    assert KEY not in said + complained
    assert SECRET not in said + complained
    return process.returncode, said, complained


def lake(url: str, place: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    for name, value in environment(url).items():
        monkeypatch.setenv(name, value)
    return Lake(place)


def records(found: Lake) -> Counter[str]:
    """How often each record is in the lake."""
    counted: Counter[str] = Counter()
    for file in [file for one in found.manifests() for file in one.files]:
        with found.files.open(file.path) as opened:
            counted.update(pq.read_table(opened, columns=["record_id"])["record_id"].to_pylist())
    return counted


def letters(found: Lake) -> Counter[int]:
    """How often each letter is in the lake."""
    counted: Counter[int] = Counter()
    for file in [file for one in read_all(found.files) for file in one.files]:
        with found.files.open(file.path) as opened:
            counted.update(int(body.split()[1]) for body in pq.read_table(opened, columns=["body"])["body"].to_pylist())
    return counted


# The chain


@pytest.mark.broker
def test_the_whole_chain_runs_on_a_bucket_and_each_letter_goes_back_once(
    server: str,
    place: str,
    rabbitmq43: Broker,
    queues: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    try:
        jars = ",".join(map(str, s3_client()))
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)
    source, dlq = queues
    journal, plan, again, page = (str(tmp_path / name) for name in ("journal", "plan", "again", "page.html"))
    segment(Path(journal), lines(range(300)))
    commands = [
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
    ]
    (tmp_path / "commands").write_text(json.dumps(commands))
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.s3_chain", jars, str(tmp_path / "commands")],
        capture_output=True,
        text=True,
        env={**os.environ, **environment(server), "PYTHONPATH": PATH, "BROKER": rabbitmq43.url},
        cwd=REPOSITORY,
        timeout=900,
    )
    codes = re.findall(r"^CODE (\w+) (\d+)$", done.stdout, re.MULTILINE)
    assert [(words[0], "0") for words in commands] == codes, done.stdout + done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]
    drained, planned, replayed, nothing, forgotten = told[-5:]
    assert (drained["found"], drained["letters"], planned["letters"], replayed["replayed"]) == (LETTERS,) * 4
    assert (nothing["letters"], forgotten["letters"], forgotten["unsent"]) == (0, LETTERS, 0)
    assert numbers_in(rabbitmq43.url, source) == Counter(range(LETTERS))
    assert depth(rabbitmq43, dlq) == 0
    there = lake(server, place, monkeypatch)
    assert set(records(there).values()) == {1}
    assert len(records(there)) == 300
    assert batches(there.files) == []
    assert not any(".bodies" in entry.name for entry in there.files.entries("replays"))
    assert "TimeoutError" in Path(page).read_text()
    for word in (KEY, SECRET):
        assert word not in done.stdout + done.stderr


# Races


def raced(proxy: Proxy, head: str) -> None:
    """Let nobody replace the head until two drivers want to."""
    both = threading.Barrier(2)

    def wait() -> None:
        both.wait(240)

    proxy.before += [("PUT", head, wait), ("PUT", head, wait)]


def judged(ends: list[tuple[int, str, str]]) -> None:
    """One has won, and the other names it and ends with 1."""
    assert sorted(code for code, _, _ in ends) == [0, 1], ends
    [(_, _, complaint)] = [end for end in ends if end[0] == 1]
    assert re.search(r"the run \S+ of process \d+ on \S+ was published first", complaint), complaint
    assert "[lost-the-race]" in complaint


def test_of_two_compactions_that_race_one_wins_and_each_record_is_there_once(
    moto: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment(tmp_path / "journal", lines(range(200)))
    with proxy_to(moto) as proxy:
        raced(proxy, EVENTS_HEAD)
        both = [driver(proxy.url, "compact", str(tmp_path / "journal"), place) for _ in range(2)]
        judged([ended(one) for one in both])
    assert records(lake(moto, place, monkeypatch)) == Counter({f"0123456789ab-{n}": 1 for n in range(200)})
    code, said, _ = ended(driver(moto, "compact", str(tmp_path / "journal"), place))
    assert code == 0, said


@pytest.mark.broker
def test_of_two_drains_that_race_one_wins_and_each_letter_is_there_once(
    moto: str,
    place: str,
    rabbitmq43: Broker,
    queues: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BROKER", rabbitmq43.url)
    dlq = queues[1]
    with proxy_to(moto) as proxy:
        raced(proxy, LETTERS_HEAD)
        both = [driver(proxy.url, "drain", "env:BROKER", dlq, place, "--batch", "5") for _ in range(2)]
        ends = [ended(one) for one in both]
    judged(ends)
    code, said, complained = ended(driver(moto, "drain", "env:BROKER", dlq, place))
    assert code == 0, complained + said
    there = lake(moto, place, monkeypatch)
    assert letters(there) == Counter(range(LETTERS))
    assert batches(there.files) == []
    assert depth(rabbitmq43, dlq) == 0


# Kills


class Killer:
    """Kills a driver before its request of this number that changes something is handed on."""

    def __init__(self, proxy: Proxy, number: int) -> None:
        self.left = number
        self.driver: subprocess.Popen[str] | None = None
        self.seen: list[str] = []
        self._alone = threading.Lock()
        proxy.watch = self._watch

    def _watch(self, method: str, path: str) -> None:
        if method not in ("PUT", "POST", "DELETE"):
            return
        with self._alone:
            self.seen.append(f"{method} {path}")
            self.left -= 1
            if self.left == 0 and self.driver is not None:
                os.kill(self.driver.pid, signal.SIGKILL)
                self.driver.wait()
        if self.left <= 0:
            raise ConnectionResetError  # nothing of it is handed on, also of a worker that lives a moment longer


def test_a_compaction_that_is_killed_before_any_change_leaves_all_of_its_run_or_nothing(
    moto: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = Counter({f"0123456789ab-{n}": 1 for n in range(120)})
    segment(tmp_path / "journal", lines(range(120)))
    for number in range(1, 60):
        place = f"s3://{BUCKET}/{uuid4().hex}/lake"
        with proxy_to(moto) as proxy:
            killer = Killer(proxy, number)
            killer.driver = driver(proxy.url, "compact", str(tmp_path / "journal"), place)
            code, _, complained = ended(killer.driver)
        assert code in (0, -signal.SIGKILL), complained
        assert records(lake_or_new(moto, place, monkeypatch)) in (Counter(), expected), killer.seen
        code_after, said, complained = ended(driver(moto, "compact", str(tmp_path / "journal"), place))
        assert code_after == 0, complained + said
        assert records(lake(moto, place, monkeypatch)) == expected
        if code == 0:
            assert number > 8
            return
    pytest.fail("it was killed each time")


@pytest.mark.broker
def test_a_drain_that_is_killed_before_any_change_loses_no_letter_and_the_next_one_has_each_once(
    moto: str, rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER", rabbitmq43.url)
    for number in range(1, 60):
        place, source = f"s3://{BUCKET}/{uuid4().hex}/lake", f"orders.{uuid4().hex[:8]}"
        declare(rabbitmq43, source, f"dlq.{source}")
        with connect(rabbitmq43.url) as session:
            bury(session, f"dlq.{source}", source, [body_of(one) for one in range(LETTERS)])
        words = ("drain", "env:BROKER", f"dlq.{source}", place, "--batch", "20", "--tasks", "1")
        with proxy_to(moto) as proxy:
            killer = Killer(proxy, number)
            killer.driver = driver(proxy.url, *words)
            code, _, complained = ended(killer.driver)
        assert code in (0, -signal.SIGKILL), complained
        there = letters(lake_or_new(moto, place, monkeypatch))
        assert set(there.values()) <= {1}
        code_after, said, complained = ended(driver(moto, *words))
        assert code_after == 0, complained + said
        found = lake(moto, place, monkeypatch)
        assert letters(found) == Counter(range(LETTERS)), killer.seen
        assert depth(rabbitmq43, f"dlq.{source}") == 0
        assert batches(found.files) == []
        assert found.files.entries(STAGING) == []
        if code == 0:
            assert number > 8
            return
    pytest.fail("it was killed each time")


def lake_or_new(url: str, place: str, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """The lake, also if the driver was killed before it had made one."""
    for name, value in environment(url).items():
        monkeypatch.setenv(name, value)
    return Lake(place, create=True)
