# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes Javas that only say which version they are."""

from __future__ import annotations

from pathlib import Path


def fake_java(folder: Path, version: str) -> Path:
    """Make a JAVA_HOME whose `java -version` says this version, and return its path."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\n")
    java.chmod(0o755)
    return folder
