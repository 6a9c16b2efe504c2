# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""20 000 histories in which things go wrong; whichever is bad is told as a story. `make prove` runs a million."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.plan import Fault, plan_of
from tests.simulation.run import failures_in, fault_of, tell
from tests.simulation.shrink import smaller

HISTORIES, CHUNKS = 20_000, 20
EACH = HISTORIES // CHUNKS


@pytest.mark.parametrize("first", range(0, HISTORIES, EACH))
def test_nothing_is_lost_and_no_rule_broken_whatever_goes_wrong(first: int) -> None:
    bad = failures_in(first, first + EACH)
    assert not bad, f"{len(bad)} of {EACH} histories, the first of them:\n{tell(bad[0])[0]}"
