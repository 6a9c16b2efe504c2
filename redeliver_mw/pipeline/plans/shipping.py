# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Ships the functions that a user names to the tasks. Importing this module loads no Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from ...dead_letters.edits.letter import Letter


def ship(function: Callable[[Letter], object] | None) -> None:
    """Ship the function's module to the tasks from now on, because executors need not have the file."""
    from pyspark import cloudpickle

    name = getattr(function, "__module__", None)
    module = sys.modules.get(name) if name else None
    if module is None or name == "__main__" or (name or "").partition(".")[0] == "redeliver_mw":
        return
    register: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    register(module)
