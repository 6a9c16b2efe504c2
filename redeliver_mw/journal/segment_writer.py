# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes lines into segments, with rotation, and keeps lines while the disk refuses them. Used by one thread only."""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from .segments import SegmentFile, recover

_log = logging.getLogger("redeliver_mw.journal")
_BACKLOG: Final = 16 * 1024 * 1024  # bytes of lines that are kept while they cannot be written
_RETRY: Final = 1.0  # seconds between two tries to write while nothing else happens

Fsync = Literal["never", "rotate", "always"]


class SegmentWriter:
    """Writes lines into one segment after the other.

    Lines that the disk refuses wait, up to 16 MiB; `drop(records)` is called for lines beyond that. A trouble is logged
    when it begins and when it is over, never in between. `host` is part of the file names; `clock` is in seconds.
    """

    def __init__(
        self,
        directory: Path,
        host: str,
        *,
        max_bytes: int,
        max_age: float,
        fsync: Fsync,
        clock: Callable[[], float],
        drop: Callable[[int], None],
    ) -> None:
        self.directory, self.host = directory, host
        self._max_bytes, self._max_age, self._fsync = max_bytes, max_age, fsync
        self._clock, self._drop = clock, drop
        self._run = os.urandom(6).hex()
        self._numbers = itertools.count(1)
        self._segment: SegmentFile | None = None
        self._backlog: deque[tuple[bytes, int]] = deque()
        self._backlog_bytes = 0
        self._failing = False

    def write(self, lines: list[bytes]) -> bool:
        """Write `lines` after all lines that wait. Return True if no line waits any more. Never raises OSError."""
        chunk = b"".join(lines)
        if lines and self._backlog and self._backlog_bytes + len(chunk) > _BACKLOG:
            self._drop(len(lines))
        elif lines:
            self._backlog.append((chunk, len(lines)))
            self._backlog_bytes += len(chunk)
        try:
            while self._backlog:
                self._write_oldest()
        except OSError as error:
            self._fail(error)
        else:
            self._heal()
        return not self._backlog

    def due_in(self) -> float | None:
        """Return the seconds until something is due even if no line comes, or None."""
        if self._backlog:
            return _RETRY
        if self._segment is None:
            return None
        return max(0.0, self._segment.opened + self._max_age - self._clock())

    def finish_if_old(self) -> None:
        if self._segment is not None and self._clock() - self._segment.opened >= self._max_age:
            self.finish()

    def finish(self) -> None:
        """End the open segment. A segment that cannot be renamed keeps its lines and is recovered later."""
        segment, self._segment = self._segment, None
        if segment is None:
            return
        try:
            segment.finish(sync=self._fsync != "never")
        except OSError as error:
            self._fail(error)

    def end(self) -> None:
        """Drop the lines that still wait. This is the last call."""
        self.finish()
        self._drop(sum(records for _, records in self._backlog))
        self._backlog.clear()

    def forget(self) -> None:
        """Let go of the open segment without changing it: in a forked child it still belongs to the parent."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.release()

    def _write_oldest(self) -> None:
        chunk, records = self._backlog[0]
        segment = self._segment_for(len(chunk))
        segment.write(chunk, records)
        self._backlog.popleft()
        self._backlog_bytes -= len(chunk)
        if self._fsync == "always":
            segment.sync()

    def _segment_for(self, size: int) -> SegmentFile:
        """Return the open segment if it exists and has room for `size` bytes, else a new one."""
        segment = self._segment
        if segment is not None and not segment.is_there():
            if not segment.released:  # the file is gone, and its lines with it
                self._drop(segment.records)
            self.forget()
        elif segment is not None and segment.size and segment.size + size > self._max_bytes:
            self.finish()
        if self._segment is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            number = next(self._numbers)
            self._segment = SegmentFile(self.directory, self.host, self._run, number, self._clock())
        return self._segment

    def _fail(self, error: OSError) -> None:
        if not self._failing:
            self._failing = True
            _log.error(
                "journal: %s cannot be written: %s. Messages are not affected; make room or give the right "
                "to write there, and it goes on by itself",
                self.directory,
                error,
            )

    def _heal(self) -> None:
        if self._failing:
            self._failing = False
            recover(self.directory, self.host)  # segments that could not be renamed earlier
            _log.warning("journal: %s is written again", self.directory)
