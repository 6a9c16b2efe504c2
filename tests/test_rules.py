# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""RULES.md names tests that exist, and every rule has one."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = [*HERE.rglob("test_*.py"), *(HERE.parent / "redeliver_mw" / "testing").rglob("*.py")]


def test_every_rule_names_tests_and_every_named_test_exists() -> None:
    known = {name for path in SOURCES for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    rows = re.findall(r"^\| (\d+) \|.*", (HERE / "RULES.md").read_text("utf-8"), re.M)
    assert [int(row) for row in rows] == list(range(1, 15))
    for line in (HERE / "RULES.md").read_text("utf-8").splitlines():
        if re.match(r"\| \d", line):
            named = re.findall(r"`(test_\w+)`", line)
            assert named, line
            assert set(named) <= known, f"no such test: {sorted(set(named) - known)}"
