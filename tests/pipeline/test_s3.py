# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests compact, insights and report with a lake in a bucket, on a local S3 server, through Spark's S3 client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redeliver_mw.pipeline.object_files import PROBES, ObjectFiles
from tests.brokers import _install
from tests.brokers.skips import not_to_be_had
from tests.pipeline.hadoop_jars import s3_client
from tests.pipeline.s3_server import BUCKET, KEY, SECRET, config, environment, s3_server

REPOSITORY = Path(__file__).resolve().parents[2]


def contents(files: ObjectFiles, folder: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for entry in files.entries(folder):
        path = f"{folder}/{entry.name}" if folder else entry.name
        found |= contents(files, path) if entry.is_folder else {path: files.read(path)}
    return found


@pytest.mark.slow
@pytest.mark.spark
def test_records_are_compacted_counted_and_reported_once_and_no_credentials_are_written(tmp_path: Path) -> None:
    try:
        jars = ",".join(map(str, s3_client()))
    except _install.BrokerMissing as missing:
        not_to_be_had(missing)
    with s3_server() as url:
        place = f"s3://{BUCKET}/orders/lake"
        paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
        command = [sys.executable, "-m", "tests.pipeline.s3_jobs", jars, str(tmp_path / "journal"), place]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, **environment(url), "PYTHONPATH": paths},
            cwd=REPOSITORY,
            timeout=580,
        )
        assert done.returncode == 0, done.stderr
        first, second = json.loads(done.stdout.splitlines()[-1])
        there = contents(ObjectFiles(place, config(url)))
    # 30 lines, and then 30 of which the last ten are the first ten of those; one line of each segment is no record.
    assert [first[name] for name in ("records", "duplicates", "quarantined", "events", "bad")] == [30, 0, 1, 30, 1]
    assert [second[name] for name in ("records", "duplicates", "quarantined", "events", "bad")] == [20, 10, 1, 50, 2]
    for one in (first, second):
        assert one["messages"] == one["mart"] == one["failed"]
        assert one["again"] is None
    assert {path for path in there if path.endswith("_head.json")} == {"events/_head.json", "marts/_head.json"}
    assert json.loads(there["events/_head.json"])["generation"] == 2
    assert not any(path.startswith((PROBES, "events/_ticks")) for path in there)
    for word in (KEY, SECRET):
        assert not any(word.encode() in content for content in there.values())
        assert word not in done.stdout + done.stderr
