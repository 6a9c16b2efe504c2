# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what `redeliver pipeline` says of an unusable bucket, without Spark: one error, its cure and its exit code."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.draining.commit import gather
from redeliver_mw.pipeline.draining.manifests import read_all
from redeliver_mw.pipeline.draining.staging import batches
from redeliver_mw.pipeline.lake.lake_format import ABOUT
from tests.pipeline.journals import lines, segment
from tests.pipeline.letters import Task, letter
from tests.pipeline.s3_server import BUCKET, KEY, SECRET, Fault, Proxy, environment, proxy_to, s3_server

Capture = pytest.CaptureFixture[str]
LATER = "2027-01-01"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with s3_server() as url:
        yield url


@pytest.fixture
def proxy(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy before the server, to which this process goes."""
    with proxy_to(server) as found:
        for name, value in environment(found.url).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def place() -> str:
    return f"s3://{BUCKET}/{uuid4().hex}/lake"


@pytest.fixture
def lake(proxy: Proxy, place: str) -> Lake:
    """Return a lake with a letter in its table and one that a dead drain has staged."""
    made = Lake(place, create=True)
    Task(made).keep(letter(b"a", message_id="a"), sure=True)
    gather(made)
    Task(made, "dead").keep(letter(b"b", message_id="b"), sure=True)
    return made


@pytest.fixture
def journal(tmp_path: Path) -> str:
    segment(tmp_path / "journal", lines(range(10)))
    return str(tmp_path / "journal")


def error(capsys: Capture, *words: str, code: int) -> str:
    """Run a command that must end with `code`, and return the one line that it prints about its error."""
    assert run(["pipeline", *words]) == code
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    [line] = [line for line in err.splitlines() if line.startswith("error: ")]
    for word in (KEY, SECRET, "AWSAccessKeyId"):
        assert word not in out + err
    return str(line)


def test_wrong_credentials(proxy: Proxy, place: str, journal: str, capsys: Capture) -> None:
    for method in ("GET", "PUT"):
        proxy.always.append(Fault(method, "", status=403, code="SignatureDoesNotMatch"))
    said = error(capsys, "compact", journal, place, code=1)
    assert "the store refuses access (403 SignatureDoesNotMatch). Check the credentials" in said
    assert "[bucket-refused]" in said


@pytest.mark.parametrize("command", ["compact", "forget", "insights", "plan", "backtest", "report"])
def test_a_missing_bucket(proxy: Proxy, command: str, journal: str, tmp_path: Path, capsys: Capture) -> None:
    place = "s3://nobody-has-made-it/lake"
    words = {
        "compact": (journal, place),
        "forget": (place, "--before", LATER),
        "plan": (place, str(tmp_path / "plan")),
        "report": (place, "--out", str(tmp_path / "page.html")),
    }
    said = error(capsys, command, *words.get(command, (place,)), code=1)
    assert "there is no such bucket" in said
    assert "make the bucket first. [bucket-missing]" in said.replace("first [", "first. [")


def test_a_bucket_that_may_be_read_only(proxy: Proxy, lake: Lake, journal: str, capsys: Capture) -> None:
    for method in ("PUT", "POST", "DELETE"):
        proxy.always.append(Fault(method, "", status=403))
    assert run(["pipeline", "forget", lake.root, "--before", LATER, "--json"]) == 0  # it only reads
    assert json.loads(capsys.readouterr().out)["letters"] == 1
    said = error(capsys, "forget", lake.root, "--before", LATER, "--execute", code=1)
    assert "the store refuses access (403 AccessDenied)" in said
    assert "check the credentials, and that they may list, read, write and delete there" in said
    assert "[bucket-refused]" in said
    said = error(capsys, "compact", journal, f"{lake.root}/new", code=1)
    assert "[bucket-refused]" in said
    proxy.always.clear()
    assert (read_all(lake.files)[0].letters, len(batches(lake.files))) == (1, 1)


def test_a_store_that_is_busy_for_a_moment_is_asked_again_and_nobody_notices(
    proxy: Proxy, lake: Lake, capsys: Capture
) -> None:
    for method in ("GET", "GET", "PUT", "PUT", "PUT"):
        proxy.faults.append(Fault(method, "", status=503))
    assert run(["pipeline", "forget", lake.root, "--before", LATER, "--execute", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["letters"] == 2
    assert not proxy.faults


def test_a_store_that_stays_busy(proxy: Proxy, lake: Lake, capsys: Capture) -> None:
    proxy.always.append(Fault("PUT", "", status=503))
    said = error(capsys, "forget", lake.root, "--before", LATER, "--execute", code=1)
    assert "the store is busy or out of order (503 SlowDown)" in said
    assert "run it again later" in said
    assert "[store-not-answering]" in said
    proxy.always.clear()
    assert (read_all(lake.files)[0].letters, len(batches(lake.files))) == (1, 1)


@pytest.mark.parametrize("header", ["if-match", "if-none-match"])
def test_a_store_without_conditional_puts(proxy: Proxy, lake: Lake, header: str, capsys: Capture) -> None:
    proxy.stripped.add(header)
    said = error(capsys, "forget", lake.root, "--before", LATER, "--execute", code=1)
    assert "take a store with conditional writes, or keep the lake in a folder" in said
    assert "[store-not-conditional]" in said
    proxy.stripped.clear()
    assert (read_all(lake.files)[0].letters, len(batches(lake.files))) == (1, 1)


def test_a_lake_of_a_newer_format(lake: Lake, journal: str, tmp_path: Path, capsys: Capture) -> None:
    lake.files.publish(ABOUT, b'{"format": 3}')
    for words in (
        ("compact", journal, lake.root),
        ("forget", lake.root, "--before", LATER),
        ("plan", lake.root, str(tmp_path / "plan")),
    ):
        said = error(capsys, *words, code=2)
        assert "the lake has the format 3, and this release knows 2. Upgrade redeliver-mw [format-newer]" in said


def test_a_plan_in_a_bucket_is_refused_with_the_reason(lake: Lake, capsys: Capture) -> None:
    said = error(capsys, "plan", lake.root, f"s3://{BUCKET}/plan", code=2)
    assert "a plan cannot be in a bucket" in said
    assert "a ledger is appended to and synced" in said
    said = error(capsys, "replay", f"s3://{BUCKET}/plan", "rabbitmq://h/", code=2)
    assert "a plan cannot be in a bucket" in said
