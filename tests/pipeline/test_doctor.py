# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The doctor finds what would otherwise be a worker that died without a word, and names the cure."""

from __future__ import annotations

import sys
from importlib.metadata import version as package
from pathlib import Path

import pytest

from redeliver_mw.pipeline.doctor import SparkFinding, examine
from tests.pipeline.javas import fake_java


def finding(name: str, **settings: str) -> SparkFinding:
    [found] = [
        one for one in examine({key.replace("_", "."): one for key, one in settings.items()}) if one.name == name
    ]
    assert found.ok == (not found.cure)
    return found


def installed(folder: Path, name: str, version: str) -> Path:
    """Make a folder for `sys.path` in which another version is installed, and return its path."""
    about = folder / f"{name}-{version}.dist-info" / "METADATA"
    about.parent.mkdir(parents=True)
    about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


def python(folder: Path, says: str) -> str:
    """Make a program that answers as a Python that is asked for its versions, and return its path."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return str(path)


def test_what_is_installed_here_will_do() -> None:
    found = {one.name: one.found for one in examine() if one.ok}
    packages = {"pyspark", "pyarrow", "pandas", "numpy", "protobuf"}
    assert found.keys() == {"java", *packages, "PYSPARK_PYTHON", "spark jars", "hadoop-aws"}
    import pandas

    assert found["pandas"] == pandas.__version__


@pytest.mark.parametrize(
    ("name", "version"),
    [("pandas", "3.0.1"), ("pandas", "2.1.4"), ("pyspark", "4.1.2"), ("pyspark", "5.0.0"), ("pyarrow", "17.0.0")],
)
def test_a_version_that_breaks_spark_is_bad(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, version: str
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, name, version))
    found = finding(name)
    assert not found.ok
    assert found.found.startswith(f"{version}, and >=")
    assert found.cure.startswith(f"Run: pip install '{name}>=")


def test_a_release_candidate_and_a_build_of_its_own_are_the_version_they_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(installed(tmp_path, "pyspark", "4.2.1+acme.7"))
    assert finding("pyspark").ok


def test_what_is_not_installed_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mine = next(path for path in Path(sys.prefix).rglob("redeliver_mw-*.dist-info"))
    (tmp_path / mine.name).symlink_to(mine)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    found = finding("protobuf")
    assert (found.found, found.ok, found.cure) == ("none", False, "Run: pip install 'redeliver-mw[spark]'")


def test_a_java_that_is_missing_or_too_old_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.22")))
    assert finding("java").found.startswith("11 (")
    assert "Java 17 or 21" in finding("java").cure
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert (finding("java").found, finding("java").ok) == ("none", False)


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_the_javas_that_spark_runs_on_are_fine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, version)))
    assert finding("java").ok


def test_workers_of_another_python_are_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", python(tmp_path, '{"python": "3.9"}'))
    assert "which is Python 3.9; this is 3." in finding("PYSPARK_PYTHON").found


def test_workers_without_what_they_import_are_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    says = f'{{"python": "{own}", "pyarrow": null, "redeliver-mw": null, "pyspark": "4.3.0"}}'
    monkeypatch.setenv("PYSPARK_PYTHON", python(tmp_path, says))
    assert finding("PYSPARK_PYTHON").found.endswith("which lacks pyarrow, redeliver-mw")


def test_workers_of_this_python_under_another_name_are_asked_and_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(Path(sys.executable).parent / "." / Path(sys.executable).name))
    assert finding("PYSPARK_PYTHON").ok


def test_workers_that_do_not_run_are_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "gone"))
    assert "does not run" in finding("PYSPARK_PYTHON").found


# Spark, its Hadoop, and the S3 client


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the jars of a Spark, which are empty files with the jars' names, and return its path."""
    jars = tmp_path / "spark" / "jars"
    jars.mkdir(parents=True)
    for name in (f"spark-core_2.13-{package('pyspark')}", "hadoop-client-api-3.5.0", "hadoop-client-runtime-3.5.0"):
        (jars / f"{name}.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    return tmp_path / "spark"


def test_without_an_s3_client_the_doctor_says_which_one_a_bucket_needs(home: Path) -> None:
    found = finding("hadoop-aws")
    assert (found.ok, found.found.rpartition(" ")[2]) == (
        True,
        "spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0",
    )
    assert finding("spark jars").found == f"{package('pyspark')}, with Hadoop 3.5.0 ({home})"


def test_the_s3_client_of_another_hadoop_is_bad_wherever_it_is_named(home: Path) -> None:
    right, wrong = (f"org.other:one:1,org.apache.hadoop:hadoop-aws:{version}" for version in ("3.5.0", "3.4.1"))
    assert finding("hadoop-aws", spark_jars_packages=right).ok
    bad = finding("hadoop-aws", spark_jars_packages=wrong)
    assert bad.found == "3.4.1 (spark.jars.packages), and Spark's Hadoop is 3.5.0"
    assert "org.apache.hadoop:hadoop-aws:3.5.0" in bad.cure
    (home / "conf").mkdir()
    (home / "conf" / "spark-defaults.conf").write_text(f"# ours\nspark.jars.packages  {wrong}\n")
    assert finding("hadoop-aws") == bad
    assert finding("hadoop-aws", spark_jars_packages=right).ok  # a job's own settings come first
    (home / "jars" / "hadoop-aws-3.3.6.jar").touch()
    both = finding("hadoop-aws", spark_jars_packages=right).found
    assert both.startswith(f"3.5.0 (spark.jars.packages), 3.3.6 ({home / 'jars'})")


def test_an_s3_client_without_the_sdk_that_it_calls_is_bad(home: Path) -> None:
    jar = "/opt/hadoop-aws-3.5.0.jar"
    assert finding("hadoop-aws", spark_jars=jar).found == "3.5.0 (spark.jars), without Amazon's SDK"
    assert finding("hadoop-aws", spark_jars=f"{jar}, /opt/bundle-2.35.4.jar").ok


def test_jars_of_another_spark_than_the_package_are_bad(home: Path) -> None:
    next((home / "jars").glob("spark-core*")).rename(home / "jars" / "spark-core_2.13-4.0.1.jar")
    found = finding("spark jars")
    assert (found.ok, found.found.endswith(f"and pyspark is {package('pyspark')}")) == (False, True)
    for jar in (home / "jars").iterdir():
        jar.unlink()
    assert finding("spark jars").cure == "Unset SPARK_HOME, or let it lead to the folder of a Spark"
