# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes disks that are full, or that have a few kilobytes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.brokers.skips import not_to_be_had


@contextmanager
def small_disk_at(place: Path, size: str = "256k") -> Iterator[Path]:
    """Yield a new folder that is a file system of its own, where one can be mounted."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        not_to_be_had("a file system of its own can be mounted by root only. Run this test as root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path) -> None:
    """Write into this file until the disk says that it is full: OSError."""
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
