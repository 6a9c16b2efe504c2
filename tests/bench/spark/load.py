# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Processor time: what the bench has taken, with the JVM and the workers below it, and what others took meanwhile.

A machine is seldom one's own. What a clock on the wall shows grows with what others do on it; processor time hardly.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = slice(3, 5)  # of /proc/stat's columns: idle, and waiting for a disk


def processor_s() -> float:
    """Seconds of this process and of all below it, also of those that have ended."""
    parents, spent = dict[int, int](), dict[int, int]()
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            told = place.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(place.parent.name)] = int(told[1])
        spent[int(place.parent.name)] = sum(map(int, told[11:15]))
    return sum(ticks for pid, ticks in spent.items() if _is_below(pid, parents)) / _TICK


def _is_below(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()


class Load:
    """How busy others keep the machine, from when this is made."""

    def __init__(self) -> None:
        self.before = os.getloadavg()[0]
        self._began, self._busy, self._ours = time.monotonic(), _busy_s(), processor_s()

    def others(self) -> float:
        """So many cores, on average."""
        theirs = (_busy_s() - self._busy) - (processor_s() - self._ours)
        return max(0.0, theirs / (time.monotonic() - self._began))


def _busy_s() -> float:
    """Seconds that all cores together have worked, or another machine on the same host took from them."""
    columns = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(columns) - sum(columns[_IDLE])) / _TICK
