# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes archives of loaded classes, of Spark's and of brokers', from which Java starts in half the time.

Spark loads some ten thousand classes before its first job, a broker a few thousand, and each test of a command starts
a Java of its own. `python -m tests.java_archives` runs a small pipeline, and has Java write its classes into the
virtual environment. Java checks an archive before it uses it: with other jars, or as another Java, it starts without.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]

#: The Java of Spark lives for seconds in most tests, too short for an optimizing compiler to pay. Without that compiler
#: Java keeps little room for compiled code, 48 MB, and throws away and compiles again what does not fit.
SPARK_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"]
#: Otherwise Java says on stdout which classes an archive cannot hold, and why it uses none.
_QUIET = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off"]


def archive(java: str | Path, folder: Path) -> Path:
    """Return the path of a Java's archive in a folder; another Java, or another release of it, has another one."""
    real = Path(java).resolve()
    key = hashlib.sha256(f"{real} {real.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return folder / f"classes-{key}.jsa"


def reading(path: Path) -> list[str]:
    """Return the options with which Java starts from an archive; none if there is no archive."""
    return [f"-XX:SharedArchiveFile={path}", *_QUIET] if path.exists() else []


def writing(path: Path) -> list[str]:
    """Return the options with which Java writes an archive when it ends by itself, or after SIGTERM."""
    return [f"-XX:ArchiveClassesAtExit={path}", *_QUIET]


def can_write(java: str | Path) -> bool:
    """Return whether a Java can write an archive: it needs that of its own classes, which some builds come without."""
    return not subprocess.run([str(java), "-Xshare:on", "-version"], check=False, capture_output=True).returncode


def spark_options() -> list[str]:
    """Return the options for the Java of Spark in tests."""
    path = archive_of_spark()
    return [*SPARK_OPTIONS, *(reading(path) if path is not None else [])]


def archive_of_spark() -> Path | None:
    """Return the path of the archive of Spark's classes, written or not; None without a Java."""
    java = _java()
    return archive(java, Path(sys.prefix)) if java is not None else None


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    return java if java and os.path.exists(java) else None


def _write_thatarchive_of_spark() -> str:
    java, path = _java(), archive_of_spark()
    if java is None or path is None:
        return "there is no Java here"
    if path.exists():
        return f"{path} is here"
    if not can_write(java):
        return "this Java can write none; Spark starts without"
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        unfinished = Path(folder) / path.name
        env = {**os.environ, "SPARK_SUBMIT_OPTS": " ".join([*SPARK_OPTIONS, *writing(unfinished)])}
        subprocess.run([sys.executable, "-m", __spec__.name, "work", folder], env=env, cwd=REPOSITORY, check=True)
        unfinished.replace(path)
    return f"{path} is written"


def _work(folder: Path) -> None:
    """Let Spark do what most tests have it do, and wait until its Java has ended and written the archive."""
    from pyspark import SparkContext

    from redeliver_mw.pipeline import compact, session
    from tests.pipeline.journals import lines, segment

    segment(folder / "journal", lines(range(100)))
    spark = session("local[2]")
    compact(spark, folder / "journal", folder / "lake")
    gateway = SparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=300)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        _work(Path(sys.argv[2]))
    else:
        print(f"java archives: {_write_thatarchive_of_spark()}")
