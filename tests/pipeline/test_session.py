# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The session has what must be set, and says in one sentence why there is none."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.errors import ConfigError, MissingExtra
from redeliver_mw.pipeline import SparkError, session
from tests.java_archives import archive_of_spark
from tests.pipeline.javas import fake_java

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]


def refused(program: str) -> str:
    """Return what a process says in which `session` refuses; the class of the error comes first."""
    head = "from redeliver_mw.pipeline import session\nfrom redeliver_mw.errors import RedeliverError\ntry:\n    "
    tail = "\nexcept RedeliverError as error:\n    print(type(error).__name__, error)\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    done = subprocess.run(
        [sys.executable, "-c", head + program + tail], capture_output=True, text=True, env=environment, timeout=200
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.count("\n") == 1, done.stdout
    return done.stdout


def test_times_are_utc_shuffles_are_as_wide_as_the_machine_and_sums_do_not_wrap(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"


def test_the_workers_run_this_python(spark: SparkSession) -> None:
    def which(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow

        for _ in batches:
            yield pyarrow.record_batch([pyarrow.array([sys.executable])], names=["python"])

    found = spark.range(1).mapInArrow(which, "python STRING").collect()
    assert [row["python"] for row in found] == [sys.executable]


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtra, match=r"pyspark is not installed.*redeliver-mw\[spark\]"):
        session("local[1]")


def test_missing_java_is_reported_before_spark_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"PATH: no Java was found\. Install Java 17 or 21"):
        session("local[1]")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(ConfigError, match=r"JAVA_HOME=.*gone: no Java was found"):
        session("local[1]")


@pytest.mark.parametrize(("text", "said"), [("1.8.0_402", "8"), ("11.0.22", "11"), ("16", "16")])
def test_a_java_that_is_too_old_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, said: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, text)))
    with pytest.raises(ConfigError, match=rf"bin/java: Java {said} is too old for Spark 4"):
        session("local[1]")


def test_an_address_where_nobody_listens_is_given_up_at_once() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        where = f"sc://127.0.0.1:{bound.getsockname()[1]}/;user_id=me"
        with pytest.raises(SparkError, match="nobody answers there"):
            session(where)


def test_a_server_of_its_own_is_not_started_if_something_has_its_port(connect_port: int) -> None:
    with socket.create_server(("127.0.0.1", connect_port)):
        text = refused("session('local-connect[1]')")
    assert text.startswith("SparkError local-connect[1]: port 15002 of this machine")
    assert "End what listens there" in text
    assert text.endswith(" [spark-not-started]\n")


@pytest.mark.slow
@pytest.mark.spark
def test_a_server_of_its_own_listens_on_this_machine_alone_and_leaves_its_port(connect_port: int) -> None:
    program = (
        "import socket\n"
        "from redeliver_mw.pipeline import session\n"
        "for _ in range(2):\n"
        "    spark = session('local-connect[1]')\n"
        "    assert session('local-connect[1]') is spark\n"
        f"    socket.create_connection(('127.0.0.1', {connect_port})).close()\n"
        f"    other = socket.create_server(('127.0.0.2', {connect_port}))  # refused beside a server on all addresses\n"
        "    other.close()\n"
        "    spark.stop()\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=250)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_a_master_that_spark_does_not_know_is_your_input() -> None:
    assert refused("session('nonsense')").startswith("ConfigError nonsense: Spark does not take this: ")


@pytest.mark.slow
@pytest.mark.spark
def test_a_setting_that_spark_refuses_is_your_input() -> None:
    text = refused("session('local[1]', {'spark.sql.session.timeZone': 'Mars'})")
    assert text.startswith("ConfigError local[1]: Spark does not take this: ")
    assert "Mars" in text


@pytest.mark.spark
def test_a_setting_that_java_refuses_is_reported_in_its_words() -> None:
    text = refused("session('local[1]', {'spark.driver.memory': 'lots'})")
    assert "local[1]: Spark does not take this: Invalid maximum heap size: -Xmxlots. Correct --master or --conf" in text


def test_the_java_of_the_tests_starts_from_an_archive_of_its_classes_if_there_is_one(spark: SparkSession) -> None:
    from pyspark import SparkContext

    java = SparkContext._gateway.proc.pid
    mapped = Path(f"/proc/{java}/maps").read_text()
    archive = archive_of_spark()
    assert archive is not None
    assert (str(archive) in mapped) == archive.exists()
