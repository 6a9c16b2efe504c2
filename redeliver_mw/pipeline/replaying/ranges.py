# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sets of positions as text, `0-499,503`: short where they follow each other, as in a ledger they do."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_TEXT: Final = re.compile(r"[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*")
WIDEST: Final = 11  # characters that a position takes at most, its comma included


def write(positions: Collection[int]) -> str:
    """Ascending, each once; empty for none."""
    parts: list[list[int]] = []
    for position in sorted(set(positions)):
        if parts and parts[-1][1] == position - 1:
            parts[-1][1] = position
        else:
            parts.append([position, position])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def read(text: str) -> set[int]:
    """ValueError for what `write` does not write."""
    if not text:
        return set()
    if not isinstance(text, str) or not _TEXT.fullmatch(text):
        raise ValueError(f"{text!r} are no positions")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"{part!r} ends before it begins")
        found.update(range(int(first), int(last or first) + 1))
    return found
