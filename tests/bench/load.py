# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures how busy others keep the machine while the bench runs: a machine is seldom one's own."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_TICK: Final = os.sysconf("SC_CLK_TCK")
_IDLE: Final = slice(3, 5)  # of /proc/stat's columns: idle, and waiting for a disk


class Load:
    """Measures how busy others keep the machine, from when this is made on.

    `ours` returns the seconds that the bench itself has worked.
    """

    def __init__(self, ours: Callable[[], float] | None = None) -> None:
        self._ours = ours or worked_s
        self.before = os.getloadavg()[0]
        self._began, self._theirs = time.monotonic(), _busy_s() - self._ours()

    def others(self) -> float:
        """Return how many cores others use, on average."""
        theirs = _busy_s() - self._ours() - self._theirs
        return max(0.0, theirs / max(0.1, time.monotonic() - self._began))


def worked_s() -> float:
    """Return the seconds that this process and all below it have worked, those that have ended included."""
    return sum(_below_us()) / _TICK


def _below_us() -> Iterator[int]:
    """Yield the ticks of this process and of each below it, with those of its children that it has seen the end of."""
    for _, words in processes_below():
        yield sum(map(int, words[11:15]))


def processes_below() -> Iterator[tuple[int, list[str]]]:
    """Yield this process and each below it: its id, and what /proc/ID/stat has of it behind its name."""
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
            yield pid, words


def _busy_s() -> float:
    """Return the seconds that all cores together have worked, or another machine on the same host took from them."""
    columns = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(columns) - sum(columns[_IDLE])) / _TICK
