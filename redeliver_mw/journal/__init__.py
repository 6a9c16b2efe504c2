# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the journal, one line for each attempt, on a thread of its own; and reads the journal.

Names are loaded when they are first used: a program without a journal loads no writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .segments import read_healthy_counts, read_policy_changes, read_segments
    from .writer import Journal

__all__ = ["Journal", "read_healthy_counts", "read_policy_changes", "read_segments"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Load a public name on its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "writer" if name == "Journal" else "segments"
        value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
        return value
