# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Processor time: what the bench takes, with the JVM and the workers below it, and what others take meanwhile.

A machine is seldom one's own. What a clock on the wall shows grows with what others do on it; processor time hardly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = slice(3, 5)  # of /proc/stat's columns: idle, and waiting for a disk


class _Meter:
    """Adds up what processes do between two looks. Of one that ends, what it did since the last look is lost: Spark
    ends workers that had nothing to do for a minute."""

    def __init__(self) -> None:
        self._ticks, self._seen = 0, dict[tuple[int, str], int]()

    def seconds(self) -> float:
        now = dict(_below_us())
        self._ticks += sum(ticks - self._seen.get(process, 0) for process, ticks in now.items())
        self._seen = now
        return self._ticks / _TICK


_meter: Final = _Meter()


def processor_s() -> float:
    """Seconds that this process has worked, and all below it; never fewer than the last time."""
    return _meter.seconds()


class Load:
    """How busy others keep the machine, from when this is made."""

    def __init__(self) -> None:
        self.before = os.getloadavg()[0]
        self._began, self._theirs = time.monotonic(), _busy_s() - processor_s()

    def others(self) -> float:
        """So many cores, on average."""
        theirs = _busy_s() - processor_s() - self._theirs
        return max(0.0, theirs / (time.monotonic() - self._began))


def _below_us() -> Iterator[tuple[tuple[int, str], int]]:
    """This process and those below it, each by its id and when it began, and the ticks that it has worked itself."""
    told = dict[int, list[str]]()
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            told[int(place.parent.name)] = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
    for pid, words in told.items():
        above = pid
        while above in told and above != os.getpid():
            above = int(told[above][1])
        if above == os.getpid():
            yield (pid, words[19]), int(words[11]) + int(words[12])


def _busy_s() -> float:
    """Seconds that all cores together have worked, or another machine on the same host took from them."""
    columns = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(columns) - sum(columns[_IDLE])) / _TICK
