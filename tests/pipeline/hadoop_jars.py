# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Fetches Spark's S3 client, hadoop-aws of Spark's own Hadoop, by Maven into the cache folder of the brokers.

The client's pom asks for all of Amazon's SDK in one jar of half a gigabyte. The jars here are the parts that the client
uses in these tests, in the versions of Hadoop's own parent pom.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pyspark

from tests.brokers import _install
from tests.brokers._maven import _maven

_CURE = "Install Maven and Java 17, or let the tests install them as root"
_ONLY = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.apache.hadoop</groupId>
    <artifactId>hadoop-project</artifactId>
    <version>{version}</version>
    <relativePath/>
  </parent>
  <artifactId>jars</artifactId>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""


def hadoop_version() -> str:
    """Return the version of the Hadoop that Spark brings."""
    jars = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return next(found[1] for jar in jars if (found := re.fullmatch(r"hadoop-client-api-(.+)\.jar", jar.name)))


def s3_client() -> list[Path]:
    """Return the client's jars; the first call fetches them (about 20 MB)."""
    version = hadoop_version()
    final = _install.cache_folder() / f"hadoop-aws-{version}-1"
    if not final.is_dir():
        with _install.only_one(final.name):
            if not final.is_dir():
                _fetch(version, final)
    return [jar for jar in sorted(final.glob("*.jar")) if not jar.name.startswith("slf4j")]  # Spark has that itself


def _fetch(version: str, final: Path) -> None:
    maven = _maven(_CURE)
    building = final.with_name(f"{final.name}.building-{os.getpid()}")
    try:
        building.mkdir()
        (building / "pom.xml").write_text(_POM.format(version=version, dependencies="\n".join(_dependencies(version))))
        options = ["-B", "-U", "-Dstyle.color=never", "-f", str(building / "pom.xml")]
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={building}"]
        what = f"fetching hadoop-aws {version} with Maven"
        _install.run([maven, *options, *goal], what, _CURE, progress=True, causes=("[FATAL]", "[ERROR]"))
        os.rename(building, final)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _dependencies(version: str) -> list[str]:
    sdk = "${aws-java-sdk-v2.version}"
    accelerator = "${amazon-s3-analyticsaccelerator-s3.version}"
    parts = [("org.apache.hadoop", "hadoop-aws", version, _ONLY)]
    parts += [("software.amazon.awssdk", name, sdk, "") for name in ("s3", "s3-transfer-manager", "sts")]
    parts += [("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", accelerator, _ONLY)]
    return [
        f"    <dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{number}</version>{more}<scope>runtime</scope></dependency>"
        for group, name, number, more in parts
    ]
