# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tells from its text whether a file holds no test of a stage, so that the stage's workers need not import it.

A test is marked `broker` or `spark` by a `pytestmark` of its file, by a decorator, or because it asks for the fixture
of a broker. Each of these can be seen in the text of its file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ALL_BROKER = re.compile(r"^pytestmark = .*\bmark\.broker\b", re.MULTILINE)
ALL_SPARK = re.compile(r"^pytestmark = .*\bmark\.spark\b", re.MULTILINE)


def may_use_brokers(text: str, fixtures: Iterable[str]) -> bool:
    """Return whether a file may hold tests that are marked `broker`. `fixtures`: those whose use is that mark."""
    return re.search(rf"\bmark\.broker\b|\b(?:{'|'.join(sorted(fixtures))})\b", text) is not None


def holds_none(text: str, expression: str, fixtures: Iterable[str]) -> bool:
    """Return whether no test of a file is chosen by the expression of `-m`. False where that is not certain."""
    terms = expression.split(" and ")
    if not all(re.fullmatch(r"(not )?\w+", term) for term in terms):
        return False
    return (
        ("not broker" in terms and ALL_BROKER.search(text) is not None)
        or ("not spark" in terms and ALL_SPARK.search(text) is not None)
        or ("broker" in terms and not may_use_brokers(text, fixtures))
    )
