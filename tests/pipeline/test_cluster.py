# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the chain on a cluster: executors in processes of their own get the package by `--py-files` alone.

spark-submit runs the job as docs/cluster.md says, in processes of its own: this process has a session of another
master.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.pipeline.journals import line, lines, record, segment
from tests.test_packaging import wheel

__all__ = ["wheel"]  # a fixture

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MASTER = "local-cluster[2,1,1024]"
SITE = Path(sysconfig.get_path("purelib"))
MARTS = {
    "messages",
    "attempt_curve",
    "recovery",
    "poison",
    "fingerprints",
    "waste",
    "storms",
    "dead_letter_flow",
    "clocks",
}

# What a cluster's user writes, and where each process found the package.
JOB = """
import json, sys
from collections.abc import Iterator

import redeliver_mw
from redeliver_mw.pipeline import compact, session
from redeliver_mw.pipeline.backtest import Candidate
from redeliver_mw.pipeline.insights import insights
from redeliver_mw.pipeline.judging import known
from redeliver_mw.pipeline.report.job import report, write
from redeliver_mw.policy import Backoff, RedeliveryPolicy


def whereabouts(batches):
    import os
    import pyarrow as pa
    import redeliver_mw
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"file": [redeliver_mw.__file__], "pid": [os.getpid()]})


if __name__ == "__main__":
    journal, lake, page = sys.argv[1:]
    spark = session()
    found = spark.range(0, 1000, 1, 8).mapInArrow(whereabouts, "file STRING, pid BIGINT").collect()
    done = compact(spark, journal, lake)
    rows = insights(spark, lake)
    later = Candidate("once more, after 2 s", RedeliveryPolicy(2, Backoff.constant(2.0)))
    [judged] = known(spark, lake).history.backtest([later], by="all")
    write(report(spark, lake), page)
    told = {name: spark.conf.get(f"spark.{name}") for name in ("master", "app.id")}
    print("ANSWER" + json.dumps({
        **told, "driver": redeliver_mw.__file__, "tasks": [list(row) for row in found], "records": done.records,
        "quarantined": done.quarantined, "rows": rows, "judged": judged.as_dict(),
    }))
    spark.stop()
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """Return a Python with all that is installed here but for the project, which an editable install leads to."""
    script = tmp_path / "python-without-the-project"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{SITE}" exec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return script


@pytest.mark.timeout(600)
def test_the_chain_runs_on_executors_that_have_the_package_from_py_files_alone(
    wheel: Path, python: Path, tmp_path: Path
) -> None:
    journal, lake, page, job = (tmp_path / name for name in ("journal", "lake", "page.html", "job.py"))
    for number in range(4):
        first = range(number * 500, (number + 1) * 500)
        segment(journal, [*lines(first), *(second(one) for one in first if one % 3 == 0), b"no record\n"])
    package = tmp_path / f"{wheel.stem}.zip"  # Spark puts .zip on the path, and .whl not
    shutil.copy(wheel, package)
    job.write_text(JOB)

    answer = submit(package, python, job, journal, lake, page)

    assert answer["master"] == MASTER
    where = {file for file, _ in answer["tasks"]} | {answer["driver"]}
    assert all(f"{package.name}/redeliver_mw/" in file for file in where), where
    assert len({pid for _, pid in answer["tasks"]}) >= 2
    failed = sum(number % 3 == 0 for number in range(2000))  # each a message of its own
    assert (answer["records"], answer["quarantined"]) == (2000 + failed, 4)
    assert set(answer["rows"]) == MARTS
    assert answer["rows"]["messages"] == failed
    tried = "SELECT count(*), sum(attempts), min(destination) FROM read_parquet(?)"
    marts = duckdb.execute(tried, [f"{lake}/marts/messages/*.parquet"]).fetchall()
    assert marts == [(failed, 2 * failed, "orders")]
    judged = answer["judged"]
    assert (judged["messages"], judged["p_recover"], judged["attempts_per_message"]) == (failed, 1.0, 2.0)
    assert "TimeoutError" in page.read_text()


def second(number: int) -> bytes:
    """Return the line of a successful attempt a second after this one, which failed."""
    failed = record(number)
    return line(
        number + 1,
        record_id=f"{failed.record_id}-2",
        message_key=failed.message_key,
        message_id=failed.message_id,
        delivery_count=2,
        attempts_total=2,
        first_attempt_us=failed.ts_us,
        last_failure_us=failed.ts_us,
    )


def submit(package: Path, python: Path, job: Path, *arguments: Path) -> dict[str, Any]:
    """Run the job with spark-submit, and return what the job answered."""
    settings = {
        "spark.executor.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    argv = [SITE / "pyspark" / "bin" / "spark-submit", "--master", MASTER, "--py-files", package]
    argv += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    env |= {"PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*map(str, argv), str(job), *map(str, arguments)],
        cwd=job.parent,
        env=env,
        capture_output=True,
        text=True,
        timeout=560,
        check=False,
    )
    said = [line.removeprefix("ANSWER") for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    answer: dict[str, Any] = json.loads(said[0])
    shutil.rmtree(SITE / "pyspark" / "work" / answer["app.id"], ignore_errors=True)  # the executors' folders
    return answer
