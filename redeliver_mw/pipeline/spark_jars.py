# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the versions of Spark, of its Hadoop and of Hadoop's S3 client, by the names of their jars. Starts no Java.

The S3 client, `hadoop-aws`, works only beside the Hadoop of its own version. With another one a job ends in a
`NoSuchMethodError` or `ClassNotFoundException`, at its first access to a bucket.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

CLIENT: Final = "org.apache.hadoop:hadoop-aws"
_PACKAGE: Final = re.compile(rf"(?:^|,)\s*{re.escape(CLIENT)}:(?P<version>[^,\s]+)")
_SDK: Final = re.compile(r"(?:bundle|s3)-2\.\d.*\.jar")  # of Amazon, which the client calls


@dataclass(frozen=True, slots=True)
class SparkJars:
    """Describes the jars of a Spark: where it is, its version and that of its Hadoop, empty if they are not known.

    `clients` are the versions of the S3 client that its jobs would load, by where they were found. `sdk` is False if
    a client was found as a jar and Amazon's part of it was not.
    """

    home: str
    spark: str = ""
    hadoop: str = ""
    clients: dict[str, str] = field(default_factory=dict)
    sdk: bool = True


def look(settings: Mapping[str, str] | None = None) -> SparkJars | None:
    """Return what is in Spark's folder and what its settings name; None if there is no Spark.

    `settings` are those of a job, beside the ones in `spark-defaults.conf`.
    """
    if (home := _home()) is None:
        return None
    asked = {**_defaults(home), **(settings or {})}
    jars = [path.name for path in sorted((home / "jars").glob("*.jar"))]
    named = [part.strip() for part in asked.get("spark.jars", "").split(",") if part.strip()]
    clients: dict[str, str] = {}
    found = _PACKAGE.search(asked.get("spark.jars.packages", ""))
    if found:
        clients["spark.jars.packages"] = found["version"]
    for where, names in (("spark.jars", named), (str(home / "jars"), jars)):
        if version := _version(names, "hadoop-aws"):
            clients[where] = version
    sdk = found is not None or not clients or any(_SDK.fullmatch(os.path.basename(one)) for one in (*named, *jars))
    spark = _version(jars, r"spark-core_[\d.]+")
    return SparkJars(str(home), spark, _version(jars, "hadoop-client-api"), clients, sdk)


def _home() -> Path | None:
    """Return the folder of the Spark that would be started: SPARK_HOME's, otherwise that of the package."""
    if given := os.environ.get("SPARK_HOME"):
        return Path(given)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def _version(jars: Iterable[str], name: str) -> str:
    found = (re.fullmatch(rf"{name}-(\d[\w.+-]*)\.jar", os.path.basename(jar)) for jar in jars)
    return next((one[1] for one in found if one), "")


def _defaults(home: Path) -> dict[str, str]:
    path = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf", "spark-defaults.conf")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return {}
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in lines if not line.lstrip().startswith("#"))
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
