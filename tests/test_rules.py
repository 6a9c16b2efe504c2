# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""docs/rules.md names tests that exist, and every rule has one."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
SOURCES = [*HERE.rglob("test_*.py"), *(HERE.parent / "redeliver_mw" / "testing").rglob("*.py")]
RULES = [
    "confirm-before-settle",
    "settle-once",
    "doubt-means-unsettled",
    "only-honoured-verbs",
    "exact-copies",
    "own-count",
    "no-head-of-line-blocking",
    "failed-target",
    "header-budget",
    "pure-policy",
    "contained-exceptions",
    "log-after-the-fact",
    "broker-limits",
    "safe-cumulative-ack",
]


def test_every_rule_names_tests_and_every_named_test_exists() -> None:
    known = {name for path in SOURCES for name in re.findall(r"def (test_\w+)", path.read_text("utf-8"))}
    _, *sections = re.split(r"^## ", (HERE.parent / "docs" / "rules.md").read_text("utf-8"), flags=re.M)
    assert [section.partition("\n")[0] for section in sections] == RULES
    for section in sections:
        named = re.findall(r"`(test_\w+)`", section)
        assert named, section
        assert set(named) <= known, f"no such test: {sorted(set(named) - known)}"


def test_no_code_speaks_of_a_rule_by_a_number() -> None:
    root = HERE.parent
    files = [path for top in ("redeliver_mw", "adapters", "tests") for path in (root / top).rglob("*.py")]
    found = [
        f"{path.relative_to(root)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"\brules? \d", line, re.I)
    ]
    assert found == []
