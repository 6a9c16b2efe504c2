# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Follows the page on writing an adapter literally: its files, in an empty folder and installed, pass the contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.pages import files_of, write_files

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = (REPOSITORY / "docs" / "writing-an-adapter.md").read_text()


def run(python: Path, folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with this checkout to import from."""
    paths = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "adapters")))
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [str(python), *argv]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def environment_of_its_own(home: Path) -> Path:
    """Return the Python of a new environment, in which all is installed that is installed here."""
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    (site / "as-here.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return python


def follow(folder: Path, python: Path) -> subprocess.CompletedProcess[str]:
    """Do what the page says: its files, its package, its tests."""
    folder.mkdir()
    write_files(PAGE, folder)
    # Without a look at a registry: what the package needs is here.
    options = ("--quiet", "--no-index", "--no-deps", "--no-build-isolation")
    installed = run(python, folder, "-m", "pip", "--python", str(python), "install", *options, "-e", ".")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    return run(python, folder, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "test_wren.py")


def test_the_adapter_of_the_page_passes_the_contract(tmp_path: Path) -> None:
    done = follow(tmp_path / "wren", environment_of_its_own(tmp_path / "environment"))
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
