# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the Java that Spark would run on here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final, NamedTuple

from ..errors import ConfigError

OLDEST: Final = 17
CURE: Final = "Install Java 17 or 21, and let JAVA_HOME or the PATH lead to it"


class Java(NamedTuple):
    """Describes a `java` that can be run: its path and its main version, 8 for `1.8`."""

    path: str
    version: int


def find_java() -> Java | None:
    """Return the `java` that Spark starts: JAVA_HOME's, otherwise the PATH's. None if there is none that can be run."""
    home = os.environ.get("JAVA_HOME")
    path = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if path is None:
        return None
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return Java(path, int(found[1])) if found else None


def require_java() -> Java:
    """Return the Java.

    Raises ConfigError, with the cure, if Java is missing or Spark 4 does not run on this version.
    """
    java = find_java()
    if java is None:
        place = os.environ.get("JAVA_HOME", "")
        raise ConfigError(
            "no Java was found", where=f"JAVA_HOME={place}" if place else "PATH", cure=CURE, code="java-missing"
        )
    if java.version < OLDEST:
        raise ConfigError(
            f"Java {java.version} is too old for Spark 4", where=java.path, cure=CURE, code="java-missing"
        )
    return java
