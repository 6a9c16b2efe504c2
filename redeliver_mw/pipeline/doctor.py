# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks whether Spark can run here: what it needs, what was found, and the cure.

Without this check each of these problems shows only as a worker that died without a message. No pyspark is imported.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

from . import spark_jars
from .java import CURE, OLDEST, find_java
from .spark_jars import SparkJars

_PARTS: Final = ("pyspark", "pyarrow", "pandas", "numpy", "protobuf")
_EXTRA: Final = "pip install 'redeliver-mw[spark]'"
_ASK: Final = """\
import importlib.metadata as m, json, sys
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps({"python": "%d.%d" % sys.version_info[:2], **{n: version(n) for n in sys.argv[1:]}}))
"""


@dataclass(frozen=True, slots=True)
class SparkFinding:
    """Describes a requirement of Spark: what was found, whether that is sufficient, and the cure if not."""

    name: str
    found: str
    ok: bool
    cure: str = ""


def examine(settings: Mapping[str, str] | None = None) -> list[SparkFinding]:
    """Return the findings in the order in which to fix them. Starts `java` and the workers' Python, but no Spark.

    `settings` are those that the jobs get, such as `spark.jars.packages`.
    """
    jars = spark_jars.look(settings)
    return [_java(), *(_part(name) for name in _PARTS), _workers(), *([_spark(jars), _client(jars)] if jars else ())]


def _spark(jars: SparkJars) -> SparkFinding:
    """Check that the jars of Spark are of the version of the Python package, which calls them."""
    try:
        package = version("pyspark")
    except PackageNotFoundError:
        package = ""
    found = f"{jars.spark or 'unknown'}, with Hadoop {jars.hadoop or 'unknown'} ({jars.home})"
    if not jars.spark:
        return SparkFinding("spark jars", found, False, "Unset SPARK_HOME, or let it lead to the folder of a Spark")
    if package and _numbers(jars.spark) != _numbers(package):
        cure = f"Unset SPARK_HOME, or run: pip install 'pyspark=={jars.spark}'"
        return SparkFinding("spark jars", f"{found}, and pyspark is {package}", False, cure)
    return SparkFinding("spark jars", found, True)


def _client(jars: SparkJars) -> SparkFinding:
    """Check that Hadoop's S3 client has the version of Spark's Hadoop. Only lakes in a bucket of S3 need it."""
    name, right = "hadoop-aws", f"{spark_jars.CLIENT}:{jars.hadoop}"
    if not jars.clients:
        return SparkFinding(name, f"none; a lake on s3:// needs --conf spark.jars.packages={right}", True)
    found = ", ".join(f"{version_} ({where})" for where, version_ in jars.clients.items())
    if set(jars.clients.values()) != {jars.hadoop}:
        what = f"{found}, and Spark's Hadoop is {jars.hadoop or 'unknown'}"
        return SparkFinding(name, what, False, f"Give spark.jars.packages={right}, and no other version of it")
    if not jars.sdk:
        cure = f"Give spark.jars.packages={right}, which brings it, or its jar as well"
        return SparkFinding(name, f"{found}, without Amazon's SDK", False, cure)
    return SparkFinding(name, found, True)


def _java() -> SparkFinding:
    java = find_java()
    if java is None:
        return SparkFinding("java", "none", False, CURE)
    fits = java.version >= OLDEST
    return SparkFinding("java", f"{java.version} ({java.path})", fits, "" if fits else CURE)


def _part(name: str) -> SparkFinding:
    wanted = _wanted(name)
    try:
        found = version(name)
    except PackageNotFoundError:
        return SparkFinding(name, "none", False, f"Run: {_EXTRA}")
    if _fits(found, wanted):
        return SparkFinding(name, found, True)
    return SparkFinding(name, f"{found}, and {wanted} is needed", False, f"Run: pip install '{name}{wanted}'")


def _wanted(name: str) -> str:
    """Return the versions that our own extra `spark` asks for, as `>=4.2,<5`; empty if it asks for none."""
    for line in requires("redeliver-mw") or ():
        found = re.match(rf"{name}(?:\[.*?\])?\s*([<>=!~][^;]*);.*\bextra\s*==\s*['\"]spark['\"]", line)
        if found:
            return ",".join(sorted(found[1].replace(" ", "").split(","), reverse=True))
    return ""


def _fits(found: str, wanted: str) -> bool:
    """Return whether a version is in a range of `>=` and `<`, the only operators that our own extra uses."""
    for bound in filter(None, wanted.split(",")):
        here, there = _numbers(found), _numbers(bound)
        if not (here >= there if bound.startswith(">=") else here < there):
            return False
    return True


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3])


def _workers() -> SparkFinding:
    """Check the Python of Spark's workers: `session` chooses this Python, unless the environment names another."""
    name = "PYSPARK_PYTHON"
    given = os.environ.get(name)
    if given is None or shutil.which(given) == sys.executable:
        return SparkFinding(name, given or f"not set: {sys.executable} is taken", True)
    try:
        asked = subprocess.run([given, "-c", _ASK, *_PARTS, "redeliver-mw"], capture_output=True, text=True, timeout=60)
        versions: Mapping[str, str | None] = json.loads(asked.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return SparkFinding(name, f"{given}, which does not run", False, f"Unset {name}, or give a Python that runs")
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    if versions["python"] != own:
        what = f"{given}, which is Python {versions['python']}; this is {own}"
        return SparkFinding(name, what, False, f"Unset {name}, or give a Python {own}")
    missing = [part for part, there in versions.items() if there is None]
    if missing:
        what = f"{given}, which lacks {', '.join(missing)}"
        return SparkFinding(name, what, False, f"Run: {given} -m {_EXTRA}")
    return SparkFinding(name, given, True)
