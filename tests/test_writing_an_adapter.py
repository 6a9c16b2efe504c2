# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The page on writing an adapter, followed literally: its files in an empty folder, installed, pass the contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.pages import files_of, write_files

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "writing-an-adapter.md").read_text()


def run(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with what was installed into its `site` folder and with this checkout."""
    paths = (folder / "site", REPOSITORY, REPOSITORY / "adapters")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    command = [sys.executable, *argv]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def follow(folder: Path) -> subprocess.CompletedProcess[str]:
    """Do what the page says: its files, its package, its tests."""
    write_files(PAGE, folder)
    # Into a folder of this test's, and without a look at a registry: what the package needs is here.
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", "site")
    installed = run(folder, "-m", "pip", "install", *options, ".")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return run(folder, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "test_wren.py")


def test_the_adapter_of_the_page_passes_the_contract(tmp_path: Path) -> None:
    done = follow(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"^(\d+) passed in", done.stdout, re.MULTILINE)
    assert passed is not None
    assert int(passed[1]) > 100  # the contract and not only the page's own test
    excused = [line for line in done.stdout.splitlines() if line.startswith("excused from the contract")]
    assert len(excused) == 2, done.stdout  # those that the page names


def test_the_page_shows_every_module_that_its_package_has() -> None:
    files = files_of(PAGE)
    packaged = re.findall(r'"(\w+\.py)"', files["pyproject.toml"])
    assert sorted(packaged) == sorted(
        name for name in files if name.startswith("wren_") and name not in ("wren_server.py", "wren_world.py")
    )
