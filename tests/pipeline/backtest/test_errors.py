# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests how exact the back-test is in worlds whose truth is known, and that the table of docs/backtest.md says so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .errors import OUTSIDE, ROUGH, SMOOTH, Errors, measured

PAGE = Path(__file__).resolve().parents[3] / "docs" / "backtest.md"
_ROW = re.compile(r"^\| (?P<name>[^|]+) \|" + r" ([\d.]+) % \|" * 4 + "$", re.MULTILINE)


def on_the_page(name: str) -> list[float]:
    """Return a world's numbers on the page, in per cent: flagged, recovered, attempts, mean time."""
    found = {row["name"]: [float(row[number]) for number in range(2, 6)] for row in _ROW.finditer(PAGE.read_text())}
    return found[name]


def in_per_cent(found: Errors) -> list[float]:
    return [100 * part for part in (found.flagged, found.recovered, found.attempts, found.mean)]


@pytest.mark.parametrize("name", SMOOTH)
def test_where_healing_is_smooth_the_promise_is_kept_and_the_page_says_how_well(name: str) -> None:
    found = measured(SMOOTH[name])
    assert found.flagged == 0
    assert found.recovered < 0.0105
    assert found.attempts < 0.01
    assert found.mean < 0.05
    assert found.bounds < 0.002
    assert in_per_cent(found) == pytest.approx(on_the_page(name), abs=0.1)


@pytest.mark.parametrize("name", ROUGH)
def test_where_it_is_not_rows_are_flagged_or_not_far_off_and_the_page_says_so(name: str) -> None:
    found = measured(ROUGH[name])
    assert found.flagged > 0
    assert max(found.recovered, found.attempts) < 0.04
    assert found.mean < 0.1
    assert found.bounds < 0.002
    assert in_per_cent(found) == pytest.approx(on_the_page(name), abs=0.1)


@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_beyond_the_horizon_the_bounds_hold_the_truth_in_every_world(name: str) -> None:
    assert measured((SMOOTH | ROUGH)[name], OUTSIDE).bounds < 0.002
