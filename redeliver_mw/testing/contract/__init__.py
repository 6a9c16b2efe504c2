# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the contract: tests that every adapter must pass, and inherits. This is the only package that imports pytest.

    class TestMine(AdapterContract):
        @pytest.fixture
        def world(self) -> Iterator[World]:
            mine = MyWorld()        # raw access to the broker, past the adapter
            yield mine
            mine.close()

A test is excused if the broker's declared `Capabilities` or the harness do not support it; excuses are listed at the
end of the run. A test that is overridden fails the contract, unless the new test is marked `xfail` with a reason. To
see the values of a failed assertion, let your `conftest.py` call
`pytest.register_assert_rewrite("redeliver_mw.testing.contract")` before it imports this.
"""

from __future__ import annotations

from .copying import Copying
from .doubts import Doubts
from .letters import Letters
from .retries import Retries
from .sending import Sending
from .starting import Starting
from .stopping import Stopping
from .targets import TargetCases
from .unsendable import Unsendable
from .world import Raw, World

__all__ = [
    "AdapterContract",
    "Copying",
    "Doubts",
    "Letters",
    "Raw",
    "Retries",
    "Sending",
    "Starting",
    "Stopping",
    "TargetCases",
    "Unsendable",
    "World",
]


class AdapterContract(
    Stopping, Doubts, Sending, Unsendable, Starting, TargetCases, Copying, Letters, Retries
):  # pytest runs the last base first
    """Combines all parts of the contract; the parts may be inherited one by one where another class has the rest."""
