# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the two reasons for which a test on real parts may be left out, and never in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def not_to_be_had(missing: Exception | str) -> NoReturn:
    """Skip a test, or fail it in CI: what it needs is not here. `missing` says what, and the cure."""
    if os.environ.get("REDELIVER_CI") == "1":
        pytest.fail(str(missing), pytrace=False)
    # At home not everybody has each broker, Java or Docker: the tests that need none of it are still worth running.
    pytest.skip(f"not installed here: {missing}")  # at home only: in CI the test has failed above


def only_if(ours: bool, deed: str) -> None:
    """Skip a test unless the broker is ours.

    The test does what nobody may do to a broker that somebody else runs, which REDELIVER_URL names.
    """
    if not ours:
        # Such a test stops, fills or reconfigures its broker, which would harm whoever else uses that one.
        pytest.skip(f"not ours to {deed}")  # others may use the broker of REDELIVER_URL; CI runs its own
