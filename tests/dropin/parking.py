# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks at the limbo of a drop-in on a real broker: which attempts were parked, what is in the limbo, and its end."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import RedeliveryPolicy
from redeliver_mw.dropin import DropinLimbo
from redeliver_mw.limbo import LimboAdmin, Parked

POLICY = RedeliveryPolicy(3, 0.5)


class Kept:
    """Keeps the records that it is given, in the place of a journal."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def append(self, work: Any, /) -> None:
        make, *given = work
        self.records.append(make(*given))

    def close(self, timeout: float = 5.0) -> None: ...

    @property
    def ways(self) -> list[str | None]:
        """Return the mechanism of each attempt."""
        return [record.mechanism for record in self.records]


@contextmanager
def parking(folder: Path, publisher: str, journal: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Yield options of a drop-in that parks for every delay. Its limbo is closed as at the program's end."""
    opened: list[Any] = []
    monkeypatch.setattr(atexit, "register", opened.append)
    try:
        yield {
            "policy": POLICY,
            "delay": "park",
            "limbo": f"sqlite:///{folder / 'limbo.db'}",
            "publisher": publisher,
            "journal": journal,
        }
    finally:
        for close in opened:
            if isinstance(getattr(close, "__self__", None), DropinLimbo):
                close()


def letters(folder: Path) -> list[Parked]:
    """Return the dead letters that the limbo keeps, whole."""
    if not (folder / "limbo.db").exists():
        return []
    with LimboAdmin(f"sqlite:///{folder / 'limbo.db'}") as limbo:
        return limbo.show(100) if limbo.counts()["dead letter"] else []
