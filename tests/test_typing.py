# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the types that users see: some code has to pass a strict check, and some has to be refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<what>.*)$", re.MULTILINE)


def mypy(file: str) -> dict[int, str]:
    """Return what mypy refuses in a file: line to message. Errors in other files are left to `make types`."""
    argv = [sys.executable, "-m", "mypy", "--no-error-summary", file]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=280)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = ERROR.finditer(done.stdout)
    return {int(error["line"]): error["what"] for error in found if Path(error["file"]) == Path(file)}


def test_the_public_interface_as_users_write_it_passes_a_strict_check() -> None:
    assert mypy("tests/typing/api.py") == {}


def test_misuse_is_refused_on_the_very_lines_that_say_so() -> None:
    file = "tests/typing/rejects.py"
    lines = (REPOSITORY / file).read_text().splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# expect: error")}
    refused = mypy(file)
    assert expected
    assert refused.keys() - expected == set(), refused
    assert {lines[number - 1] for number in expected - refused.keys()} == set()
