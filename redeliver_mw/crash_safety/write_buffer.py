# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Buffers ledger changes and finished runs until the next transaction. Not thread-safe."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ..clock import Moment
from .isolation import NONE, Pending, PendingBatch, PendingPlace
from .store import Changes

GRACE = 30.0  # seconds that a line is kept after its settlement was written, which may be lost on its way
BARE: dict[str, Any] = {
    "failures": 0,
    "done": 0,
    "not_before_us": None,
    "first_failed_us": None,
    "last_failed_us": None,
    "last_error": None,
    "digest": None,
    "rest": None,
}


class WriteBuffer:
    """Buffers changes until the next transaction; `written` removes those that the transaction contained."""

    def __init__(self) -> None:
        self.closing = False  # no later transaction follows: lines that are no longer needed go with this one
        self._lines: dict[PendingPlace, dict[str, Any]] = {}
        self._unmarked: set[PendingPlace] = set()
        self._ended: list[int] = []  # batches
        self._over: deque[tuple[float, PendingPlace]] = deque()  # with the time from which a line is no longer needed

    def changed(self, place: PendingPlace, line: dict[str, Any]) -> None:
        self._lines[place] = line

    def settled(self, place: PendingPlace, now: float) -> None:
        self._over.append((now + GRACE, place))

    def ended(self, one: Pending) -> None:
        if one.batch is None:
            self._unmarked.add(one.place)
        elif not one.batch.left:
            self._ended.append(one.batch.number)

    @property
    def next_over(self) -> float:
        return self._over[0][0] if self._over else float("inf")

    def is_due(self, now: Moment) -> bool:
        return bool(self._lines or self._unmarked or self._ended) or self._is_over(now)

    def changes(
        self,
        begun: Iterable[PendingBatch],
        more: Mapping[PendingPlace, dict[str, Any]],
        marks: Mapping[PendingPlace, int],
        now: Moment,
    ) -> Changes:
        """Return the changes to write.

        `more`: lines that are written for their marks, unless they have changed anyway.
        """
        lines = {**more, **self._lines}
        over = [place for at, place in self._over if at <= now.mono or self.closing]
        return Changes(
            lines=[
                BARE
                | line
                | {
                    "source": str(source),
                    "message": key,
                    "mark": marks.get((source, key), NONE),
                    "changed_us": now.us,
                }
                for (source, key), line in lines.items()
            ],
            unmarked=[(str(source), key) for source, key in self._unmarked - lines.keys()],
            over=[(str(source), key) for source, key in over if (source, key) not in marks],
            begun=[(batch.number, str(batch.source), [one.key for one in batch.members]) for batch in begun],
            ended=list(self._ended),
            at_us=now.us,
        )

    def written(self, now: Moment) -> None:
        self._lines.clear()
        self._unmarked.clear()
        self._ended.clear()
        while self._is_over(now):
            self._over.popleft()

    def _is_over(self, now: Moment) -> bool:
        return bool(self._over) and (self.closing or self.next_over <= now.mono)
