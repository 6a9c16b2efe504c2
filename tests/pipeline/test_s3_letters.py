# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the table of dead letters in a bucket, without Spark: races, kills, removal, and a lake copied there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from redeliver_mw.pipeline import Lake, LakeError, optimize
from redeliver_mw.pipeline.draining.commit import gather, gather_looked
from redeliver_mw.pipeline.draining.manifests import HEAD, current, read_all
from redeliver_mw.pipeline.draining.staging import LOOKED, STAGING, DrainStop, batches, begin, tell_to_stop
from redeliver_mw.pipeline.files import Files
from redeliver_mw.pipeline.head import LostRace
from redeliver_mw.pipeline.lake.lake_format import ABOUT
from redeliver_mw.pipeline.lake.retention import forget
from redeliver_mw.pipeline.manifests import run_after
from tests.pipeline import drained
from tests.pipeline.letter_writer import LATER, work
from tests.pipeline.letters import Task, letter
from tests.pipeline.s3_server import BUCKET, Fault, environment, proxy_to, s3_server

REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = b"a name and an address"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def place(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address in the bucket that no other test has; this process finds its credentials in the environment."""
    for name, value in environment(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


@pytest.fixture
def lake(place: str) -> Lake:
    return Lake(place, create=True)


def bodies(lake: Lake) -> list[bytes | None]:
    """Return the bodies in the table, and check that all files that the table leads to are whole."""
    found: list[bytes | None] = []
    for file in [file for one in read_all(lake.files) for file in one.files]:
        with lake.files.open(file.path) as opened:
            rows = pq.read_table(opened, columns=["body"])
        assert len(rows) == file.rows
        found += rows["body"].to_pylist()
    return sorted(found, key=lambda body: body or b"")


def everything(files: Files, folder: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        found |= everything(files, path) if entry.is_folder else {path: files.read(path)}
    return found


def data(files: Files) -> set[str]:
    return {path for path in everything(files, "dead_letters") if path.endswith(".parquet")}


def stage(lake: Lake, *texts: bytes, run: str = "run") -> None:
    task = Task(lake, run)
    for text in texts:
        task.keep(letter(text, message_id=text.decode()), sure=True)


def test_of_drains_that_gather_together_one_is_published_and_each_letter_is_there_once(place: str, lake: Lake) -> None:
    stage(lake, b"a", b"b", b"c")
    together, won, lost = threading.Barrier(4), list[str](), list[LostRace]()

    def race() -> None:
        mine = Lake(place)
        together.wait()
        try:
            if done := gather(mine):
                won.append(done.run)
        except LostRace as error:
            lost.append(error)

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert all(f"the run {won[0]} of process {os.getpid()} on " in error.what for error in lost)
    assert {error.code for error in lost} <= {"lost-the-race"}
    assert bodies(lake) == [b"a", b"b", b"c"]
    assert gather(lake) is None
    assert (batches(lake.files), len(data(lake.files))) == ([], 1)


def test_the_loser_of_a_race_says_who_won_and_where_its_letters_are_and_the_next_drain_has_them(
    server: str, place: str, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(lake, b"a")
    with proxy_to(server) as proxy, monkeypatch.context() as patched:
        for name, value in environment(proxy.url).items():
            patched.setenv(name, value)
        behind = Lake(place)

        def faster() -> None:
            other = Task(lake, "another")
            other.keep(letter(b"b", message_id="b"), sure=True)
            base = current(lake.files)
            gather_looked(lake, other.stage.written, base)  # publishes a run, and leaves what the drain has staged

        proxy.before.append(("PUT", HEAD, faster))
        with pytest.raises(LostRace) as error:
            gather(behind)
    winner = read_all(lake.files)[-1].run
    assert f"the run {winner} of process {os.getpid()}" in error.value.what
    assert f"letters taken off the queue lie in {place}/{STAGING}" in error.value.what
    assert "the next drain puts them into the table" in error.value.cure
    assert bodies(lake) == [b"b"]
    assert gather(lake) is not None
    assert b"a" in bodies(lake)
    assert batches(lake.files) == []


def killed(place: str, what: str, step: int) -> bool:
    """Run a writer that is killed before this step; return whether it was killed, and did not come to its end."""
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    command = [sys.executable, "-m", "tests.pipeline.letter_writer", place, what, str(step)]
    environ = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environ, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


class Dead(BaseException):
    """Stands for the death of a process, which can send nothing any more."""


def dies(place: str, what: str, step: int) -> bool:
    """Do what the writer does until this request, and return whether it was reached; from then on every request fails.

    The requests fail as those of a process that has died.
    """
    import obstore

    left = [step]
    with pytest.MonkeyPatch.context() as patched:
        for name in ("put", "get", "get_range", "head", "delete", "list", "list_with_delimiter"):
            original = getattr(obstore, name)

            def counted(*args: Any, _original: Any = original, **options: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise Dead
                return _original(*args, **options)

            patched.setattr(obstore, name, counted)
        try:
            work(place, what)
        except Dead:
            return True
    return False


Way = Callable[[str, str, int], bool]


def ways(steps: int) -> Any:
    """Parametrize a test with some steps in this process, and with one step and all steps of a real process."""
    some = [
        pytest.param(dies, range(0, 300, steps), id="dies"),
        pytest.param(killed, range(12, 13), id="one kill"),
        pytest.param(killed, range(300), id="killed at each step"),
    ]
    return pytest.mark.parametrize(("way", "steps"), some)


def each_lake(place: str, steps: range) -> Iterator[tuple[int, Lake]]:
    """Yield each step with a lake of its own, so that the number of requests does not grow from step to step."""
    for step in steps:
        yield step, Lake(f"{place}-{step}", create=True)
    assert len(steps) == 1, "it was killed each time"


@ways(17)
def test_a_drain_that_is_killed_leaves_its_letters_in_the_table_or_staged_and_the_next_one_completes_it(
    way: Way, steps: range, place: str
) -> None:
    outcomes: list[bool] = []
    for step, lake in each_lake(place, steps):
        stage(lake, b"a", run="before")
        gather(lake)
        stage(lake, b"b")
        died = way(lake.root, "gather", step)
        assert bodies(lake) in ([b"a"], [b"a", b"b"])  # all of the run, or nothing
        outcomes.append(bodies(lake) == [b"a", b"b"])
        gather(lake)
        assert bodies(lake) == [b"a", b"b"]
        assert batches(lake.files) == []
        assert data(lake.files) == {file.path for one in read_all(lake.files) for file in one.files}
        forget(lake, "2020-01-01", execute=True)
        assert data(lake.files) == {file.path for one in read_all(lake.files) for file in one.files}
        if not died:
            assert len(steps) > 1, "it was not killed"
            break
    if len(steps) > 1:
        assert (outcomes[0], outcomes[-1]) == (False, True)


@ways(17)
def test_forgetting_that_is_killed_leaves_all_bodies_or_none_and_the_next_one_removes_them_from_the_bucket(
    way: Way, steps: range, place: str
) -> None:
    outcomes: set[int] = set()
    for step, lake in each_lake(place, steps):
        for number in range(2):  # in two manifests
            stage(lake, SECRET + b"-%d" % number, run=f"run-{number}")
            gather(lake)
        died = way(lake.root, "forget", step)
        left = [body for body in bodies(lake) if body is not None]
        assert (len(bodies(lake)), len(left)) in ((2, 0), (2, 2))
        outcomes.add(len(left))
        forget(lake, LATER, bodies_only=True, execute=True)
        assert bodies(lake) == [None, None]
        assert len(data(lake.files)) == 2
        if not died:
            assert len(steps) > 1, "it was not killed"
            break
    if len(steps) > 1:
        assert outcomes == {0, 2}


@ways(17)
def test_optimize_that_is_killed_leaves_every_letter_in_the_bucket_once(way: Way, steps: range, place: str) -> None:
    expected = [b"0", b"1"]
    outcomes: set[bool] = set()
    for step, lake in each_lake(place, steps):
        for text in expected:  # in two manifests, of one day
            dead_us = drained.NOON - 20 * drained.DAY
            drained.put(lake, [drained.letter(text.decode(), body=text, dead_us=dead_us)])
        died = way(lake.root, "optimize", step)
        assert bodies(lake) == expected
        outcomes.add(len(read_all(lake.files)) == 1)
        optimize(lake, keep_s=0)
        assert bodies(lake) == expected
        assert len(read_all(lake.files)) == 1
        assert data(lake.files) == {file.path for one in read_all(lake.files) for file in one.files}
        if not died:
            assert len(steps) > 1, "it was not killed"
            break
    if len(steps) > 1:
        assert outcomes == {False, True}


def test_forgetting_removes_bodies_that_a_dead_drain_a_dead_look_and_a_dead_replay_have_left(lake: Lake) -> None:
    stage(lake, SECRET)
    gather(lake)
    stage(lake, SECRET + b" staged", run="dead")
    look = Task(lake, run_after(current(lake.files).head.generation), owner="broker")
    look.keep(letter(SECRET + b" looked at", message_id="l"))
    lake.files.publish("replays/p.bodies/letters/bucket-00000.parquet", SECRET)
    lake.files.publish("replays/p.json", b'{"plan_id": "p", "folder": "/not/there", "letters": 1, "begun_us": 1}')
    assert len(data(lake.files)) == 3
    found = forget(lake, LATER, execute=True)
    assert (found.letters, found.staged) == (2, 0)
    assert data(lake.files) == set()
    assert not any("bodies" in path for path in everything(lake.files, "replays"))
    assert lake.files.entries(LOOKED) == []


def test_a_look_that_is_at_work_keeps_its_copies_until_another_run_is_published(lake: Lake) -> None:
    base = current(lake.files)
    look = Task(lake, run_after(base.head.generation), owner="broker")
    look.keep(letter(b"a", message_id="a"))
    assert gather(lake) is None  # as a drain does when it begins
    stage(lake, b"b")
    gather(lake)
    with pytest.raises(LostRace):
        gather_looked(lake, look.stage.written, base)
    gather(lake)
    assert lake.files.entries(LOOKED) == []
    assert bodies(lake) == [b"b"]


def test_tasks_learn_from_the_bucket_that_they_are_to_end(lake: Lake) -> None:
    begin(lake.files, "run")
    asked = DrainStop(lake.files, "run")
    assert not asked()
    tell_to_stop(lake.files, "run")
    assert DrainStop(lake.files, "run")()
    assert not asked()  # the bucket is not asked for each letter


def test_a_batch_is_one_request_so_that_nothing_of_a_torn_one_stays(
    server: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_to(server) as proxy:
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        lake = Lake(place, create=True)
        Task(lake).keep(letter(os.urandom(12_000_000), message_id="large"))
        assert not any("uploads" in one or "partNumber" in one for one in proxy.requests)
        proxy.always.append(Fault("PUT", STAGING, status=403))
        with pytest.raises(OSError, match="refuses access"):
            Task(lake).keep(letter(b"b", message_id="b"))
        proxy.always.clear()
        assert [batch.rows for batch in batches(lake.files)] == [1]


# A lake that was copied


def test_a_lake_that_was_copied_from_a_folder_to_a_bucket_is_the_same_and_goes_on(tmp_path: Path, lake: Lake) -> None:
    old = Lake(tmp_path / "lake", create=True)
    stage(old, b"a", b"b")
    gather(old)
    stage(old, b"c", run="staged")
    heads_last = sorted(
        everything(old.files), key=lambda path: (path.endswith(("_head.json", "_current.json")), path == ABOUT)
    )
    for path in heads_last:
        if not path.endswith(".lock"):
            lake.files.publish(path, old.files.read(path))
    copied = Lake(lake.root)
    assert bodies(copied) == [b"a", b"b"]
    assert gather(copied) is not None
    assert bodies(copied) == [b"a", b"b", b"c"]
    assert current(copied.files).head.generation == 2


def test_a_lake_whose_head_was_not_copied_with_its_snapshot_is_refused_and_named(lake: Lake) -> None:
    stage(lake, b"a")
    gather(lake)
    lake.files.remove(current(lake.files).head.manifest)
    with pytest.raises(LakeError, match="leads to is missing") as error:
        read_all(lake.files)
    assert error.value.code == "lake-damaged"
