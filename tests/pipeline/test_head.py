# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A race has one winner, nothing is half visible, and a lost answer is no lost run: in a folder and in a bucket."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception
from uuid import uuid4

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import head as head_module
from redeliver_mw.pipeline.errors import LakeError, StoreTrouble, lake_error
from redeliver_mw.pipeline.files import FileChanged, Files
from redeliver_mw.pipeline.head import InDoubt, LostRace
from redeliver_mw.pipeline.lake import snapshots
from redeliver_mw.pipeline.manifests import base_of, new_run, run_folders
from redeliver_mw.pipeline.object_files import PROBES, ObjectFiles
from tests.pipeline.head_writer import begin, files_of, publish_one
from tests.pipeline.s3_server import BUCKET, KEY, SECRET, Fault, Proxy, config, proxy_to, s3_server

REPOSITORY = Path(__file__).resolve().parents[2]
HEAD = r"events/_head\.json"
RACERS, ROUNDS = 5, 5


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    with proxy_to(server) as found:
        yield found


@pytest.fixture
def bucket() -> str:
    """Return an address in the bucket that no other test has."""
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, bucket: str) -> str:
    return bucket if request.param == "bucket" else str(tmp_path / "lake")


@pytest.fixture
def files(place: str, server: str) -> Files:
    return files_of(place, server)


@pytest.fixture
def through(proxy: Proxy, bucket: str, monkeypatch: pytest.MonkeyPatch) -> ObjectFiles:
    """Return a lake behind the proxy, which was probed already, so that the tests' faults meet the head."""
    monkeypatch.setattr(head_module, "_PAUSES", (0.0, 0.01, 0.02))
    found = ObjectFiles(bucket, {**config(proxy.url)})
    publish_one(found)
    proxy.requests.clear()
    return found


def runs(files: Files) -> list[str]:
    """Return the runs that count, and check that all files of each run are there."""
    manifests = snapshots.current(files).manifests
    assert all(files.read(file.path) == b"rows" for one in manifests for file in one.files)
    return [one.run for one in manifests]


def everything(files: Files, folder: str = "events") -> set[str]:
    found: set[str] = set()
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}"
        found |= everything(files, path) if entry.is_folder else {path}
    return found


def program(place: str, server: str, *words: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    command = [sys.executable, "-m", "tests.pipeline.head_writer", place, server, *map(str, words)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPOSITORY
    )


# Races


def raced(files: Files, base: snapshots.Snapshot) -> tuple[list[str], list[LostRace]]:
    """Let writers on threads publish their runs together; return the published runs, and the errors of the others."""
    together, won, lost = threading.Barrier(RACERS), list[str](), list[LostRace]()

    def race() -> None:
        manifest = begin(files, base)
        together.wait()
        try:
            snapshots.publish(files, base, manifest)
            won.append(manifest.run)
        except LostRace as error:
            lost.append(error)

    threads = [threading.Thread(target=race) for _ in range(RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won, lost


def test_of_writers_with_one_base_exactly_one_is_published_and_the_others_name_it(files: Files) -> None:
    published: list[str] = []
    for number in range(ROUNDS):
        base = snapshots.current(files)
        assert (base.head.generation, [one.run for one in base.manifests]) == (number, published)
        won, lost = raced(files, base)
        assert (len(won), len(lost)) == (1, RACERS - 1)
        assert all(f"the run {won[0]} of process {os.getpid()} on " in error.what for error in lost)
        assert {error.code for error in lost} == {"lost-the-race"}
        published += won
        assert runs(files) == published
    named = {path for one in snapshots.current(files).manifests for path in (one.path, *(f.path for f in one.files))}
    assert {path for path in everything(files) if "_snapshots" not in path} == {*named, snapshots.HEAD}


def test_processes_that_race_publish_all_of_their_runs_once_and_readers_see_whole_runs(
    place: str, files: Files, server: str
) -> None:
    racers = [program(place, server, "race", 5) for _ in range(3)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    seen: list[list[str]] = []
    while any(racer.poll() is None for racer in racers):
        seen.append(runs(files))
    said = [line for racer in racers for line in racer.communicate()[0].split()]
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    final = runs(files)
    assert len(final) == 15
    assert sorted(final) == sorted(said)
    assert all(final[: len(one)] == one for one in seen)  # it only ever grew
    assert snapshots.current(files).head.generation == 15
    assert [base_of(run) for run in final] == list(range(15))


# Death


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_step_leaves_all_of_its_run_or_nothing(
    place: str, files: Files, server: str
) -> None:
    published = [publish_one(files)]
    outcomes: list[bool] = []
    for step in range(0, 400, 3):
        writer = program(place, server, "kill", step)
        said = writer.communicate()[0].split()
        now = runs(files)
        assert now[: len(published)] == published
        assert len(now) - len(published) <= 1
        outcomes.append(len(now) > len(published))
        published = now
        if writer.returncode == 0:
            assert said == now[-1:]
            break
        assert writer.returncode == -signal.SIGKILL
    else:
        pytest.fail("it was killed each time")
    assert not outcomes[0]
    assert len(outcomes) > 5
    for _ in range(2):
        published.append(publish_one(files))
    assert runs(files) == published
    assert set(run_folders(files)) == set(published)  # and nothing is left of the dead
    assert {path.rpartition("/")[2] for path in everything(files, "events/_manifests")} == {
        f"{run}.json" for run in published
    }


def test_files_of_a_run_that_may_still_be_published_are_not_removed(files: Files) -> None:
    base = snapshots.current(files)
    late = begin(files, base)
    snapshots.remove_dead(files, snapshots.current(files))  # as another run does when it begins
    assert snapshots.publish(files, base, late).head.generation == 1
    assert runs(files) == [late.run]
    base = snapshots.current(files)
    dead = begin(files, base)
    winner = publish_one(files)
    assert set(run_folders(files)) == {late.run, winner}
    with pytest.raises(LostRace):
        snapshots.publish(files, base, dead)
    assert runs(files) == [late.run, winner]


# Answers


def test_a_run_whose_answer_was_lost_is_published_though_the_repetition_was_refused(
    through: ObjectFiles, proxy: Proxy
) -> None:
    before = runs(through)
    proxy.faults.append(Fault("PUT", HEAD, handed_on=True))
    run = publish_one(through)
    assert runs(through) == [*before, run]
    assert snapshots.current(through).head.generation == 2


@pytest.mark.parametrize("status", [503, 409, 412, None])
def test_a_refusal_without_effect_is_repeated_until_the_run_is_published(
    through: ObjectFiles, proxy: Proxy, status: int | None
) -> None:
    before = runs(through)
    proxy.faults.append(Fault("PUT", HEAD, status=status))
    run = publish_one(through)
    assert runs(through) == [*before, run]
    assert sum(one.startswith("PUT") and "_head.json" in one for one in proxy.requests) == 2


@pytest.mark.parametrize("status", [503, 409, 412])
def test_a_refusal_of_what_was_done_all_the_same_is_not_believed(
    through: ObjectFiles, proxy: Proxy, status: int
) -> None:
    before = runs(through)
    proxy.faults.append(Fault("PUT", HEAD, handed_on=True, status=status))
    run = publish_one(through)
    assert runs(through) == [*before, run]
    assert snapshots.current(through).head.generation == 2


def test_a_run_whose_answer_was_lost_has_won_also_if_another_followed_before_it_looked(
    through: ObjectFiles, proxy: Proxy, server: str
) -> None:
    followers: list[str] = []

    def follow() -> None:
        followers.append(publish_one(ObjectFiles(through.root, config(server))))

    before = runs(through)
    proxy.faults.append(Fault("PUT", HEAD, handed_on=True, then=follow))
    run = publish_one(through)
    assert runs(through) == [*before, run, *followers]
    assert len(followers) == 1


def test_a_run_that_is_in_doubt_keeps_its_files_and_the_next_one_settles_it(
    through: ObjectFiles, proxy: Proxy, server: str
) -> None:
    before = runs(through)
    proxy.always.append(Fault("PUT", HEAD, late=True))
    with pytest.raises(InDoubt, match=r"it is not known whether the run .* is published: the store does not") as error:
        publish_one(through)
    assert error.value.cure
    proxy.always.clear()
    [doubtful] = set(run_folders(through)) - set(before)
    assert runs(through) == before
    later = publish_one(through)
    assert runs(through) == [*before, later]
    assert set(proxy.deliver()) == {412}  # what was late comes too late
    assert runs(through) == [*before, later]
    assert doubtful not in run_folders(through)


def test_a_run_that_was_in_doubt_and_arrives_late_is_whole(through: ObjectFiles, proxy: Proxy) -> None:
    before = runs(through)
    proxy.always.append(Fault("PUT", HEAD, late=True))
    with pytest.raises(InDoubt):
        publish_one(through)
    proxy.always.clear()
    [doubtful] = set(run_folders(through)) - set(before)
    base = snapshots.current(through)
    other = begin(through, base)
    snapshots.remove_dead(through, base)  # as a run does when it begins
    statuses = proxy.deliver()
    assert statuses.count(200) == 1
    with pytest.raises(LostRace, match=doubtful):
        snapshots.publish(through, base, other)
    assert runs(through) == [*before, doubtful]


# Stores that cannot be used


@pytest.mark.parametrize(("header", "what"), [("if-none-match", "If-None-Match"), ("if-match", "If-Match")])
def test_a_store_that_ignores_a_condition_is_found_out_and_refused_with_the_cure(
    proxy: Proxy, bucket: str, header: str, what: str
) -> None:
    proxy.stripped.add(header)
    store = ObjectFiles(bucket, config(proxy.url))
    with pytest.raises(StoreTrouble, match=what) as error:
        store.swap("events/_head.json", b"{}", None)
    found = lake_error(error.value, store.url())
    assert (found.code, bool(found.cure)) == ("store-not-conditional", True)
    assert store.versioned("events/_head.json") is None
    assert store.entries(PROBES) == []


def test_a_missing_bucket_is_an_error_and_not_an_empty_lake(server: str) -> None:
    store = ObjectFiles("s3://nobody-has-made-it/lake", config(server))
    for look in (store.entries, lambda: store.versioned("a"), lambda: store.read("a"), lambda: store.publish("a", b"")):
        with pytest.raises(StoreTrouble) as error:
            look()
        assert (error.value.code, error.value.filename) == ("bucket-missing", store.root)


@pytest.mark.parametrize(
    ("method", "status", "name", "code", "cure"),
    [
        ("GET", 403, "InvalidAccessKeyId", "bucket-refused", "credentials"),
        ("PUT", 403, "AccessDenied", "bucket-refused", "write"),
        ("GET", 403, "RequestTimeTooSkewed", "bucket-refused", "clock"),
        ("GET", 400, "AuthorizationHeaderMalformed", "bucket-refused", "region"),
        ("PUT", 503, "SlowDown", "store-not-answering", "later"),
    ],
)
def test_a_store_that_refuses_is_one_error_without_its_own_text(
    proxy: Proxy, bucket: str, method: str, status: int, name: str, code: str, cure: str
) -> None:
    store = ObjectFiles(bucket, config(proxy.url))
    proxy.always.append(Fault(method, "", status=status, code=name))
    with pytest.raises(StoreTrouble) as error:
        store.read("a") if method == "GET" else store.swap("a", b"", None)
    found = lake_error(error.value, store.url())
    assert (found.code, cure in found.cure) == (code, True)
    assert f"({status} {name})" in found.what
    for text in (str(found), str(error.value), repr(error.value), "".join(format_exception(error.value))):
        assert str(status) in text
        assert KEY not in text
        assert SECRET not in text


def test_a_server_that_is_away_is_an_error_soon(bucket: str) -> None:
    store = ObjectFiles(bucket, config("http://127.0.0.1:9"))
    with pytest.raises(StoreTrouble, match="does not answer") as error:
        store.read("a")
    assert error.value.code == "store-not-answering"


@pytest.mark.parametrize(
    "url",
    [
        "s3://lakes",
        "s3://lakes/",
        "s3:///lake",
        "hdfs://name/lake",
        "s3://me:pass-word@lakes/l",
        "s3://lakes/l?key=pass-word",
    ],
)
def test_an_address_that_is_none_or_holds_a_password_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        ObjectFiles(url)
    assert error.value.cure
    assert "pass-word" not in str(error.value)


def test_credentials_are_found_in_the_files_of_the_provider(
    server: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "credentials").write_text(f"[shop]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    (tmp_path / "config").write_text(f"[profile shop]\nregion = us-east-1\nendpoint_url = {server}\n")
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "shop")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    store = ObjectFiles(bucket)
    run = publish_one(store)
    assert runs(store) == [run]
    assert not any(word in store.read(path).decode() for path in everything(store) for word in (KEY, SECRET))


def test_without_any_credentials_the_error_says_where_to_give_them(
    server: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    nobody = {"endpoint": server, "region": "us-east-1", "metadata_endpoint": "http://127.0.0.1:9"}
    with pytest.raises(StoreTrouble, match="no credentials were found") as error:
        ObjectFiles(bucket, nobody).read("a")
    assert (error.value.code, "environment" in error.value.cure) == ("bucket-refused", True)


# Folders


def test_a_file_is_swapped_only_in_the_version_that_was_read(files: Files) -> None:
    files.swap("a/_head.json", b"1", None)
    found = files.versioned("a/_head.json")
    assert found is not None
    assert found.content == b"1"
    for version in (None, "of another"):
        with pytest.raises((FileChanged, ValueError)):
            files.swap("a/_head.json", b"2", version)
    files.swap("a/_head.json", b"2", found.version)
    with pytest.raises(FileChanged):
        files.swap("a/_head.json", b"3", found.version)
    assert files.read("a/_head.json") == b"2"


def test_manifests_of_a_lake_without_a_head_count_until_a_run_is_published_and_after_that(files: Files) -> None:
    run = new_run()
    old = json.dumps(
        {"run": run, "created_us": 1, "journal": "/j", "segments": [], "files": [], "quarantine": [], "duplicates": 0}
    )
    files.publish(f"events/_manifests/{run}.json", old.encode())
    base = snapshots.current(files)
    dying = begin(files, base)
    assert runs(files) == [run]
    winner = publish_one(files)
    assert runs(files) == [run, winner]
    assert dying.run not in run_folders(files)


@pytest.mark.parametrize("path", [snapshots.HEAD, "events/_snapshots"])
def test_a_head_or_snapshot_that_is_damaged_or_gone_is_reported(tmp_path: Path, path: str) -> None:
    files = files_of(str(tmp_path / "lake"), "")
    publish_one(files)
    target = tmp_path / "lake" / path
    target = next(target.iterdir()) if target.is_dir() else target
    target.write_text("{")
    with pytest.raises(LakeError, match="this file is damaged"):
        snapshots.current(files)
    if path != snapshots.HEAD:
        target.unlink()
        with pytest.raises(LakeError, match="is missing"):
            snapshots.current(files)
