# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Measures processor time: what the bench takes, with the JVM and the workers below it, and what others take meanwhile.

A machine is seldom one's own. The time of a clock on the wall grows with what others do on the machine; processor time
hardly does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from tests.bench import load

_TICK: Final = os.sysconf("SC_CLK_TCK")


class _Meter:
    """Adds up what processes do between two looks.

    What a process did between the last look and its end is lost: Spark ends workers that had nothing to do for a
    minute.
    """

    def __init__(self) -> None:
        self._ticks, self._seen = 0, dict[tuple[int, str], int]()

    def seconds(self) -> float:
        now = dict(_below_us())
        self._ticks += sum(ticks - self._seen.get(process, 0) for process, ticks in now.items())
        self._seen = now
        return self._ticks / _TICK


_meter: Final = _Meter()


def processor_s() -> float:
    """Return the seconds that this process and all below it have worked; never fewer than the last time."""
    return _meter.seconds()


class Load(load.Load):
    """Measures how busy others keep the machine, from when this is made on."""

    def __init__(self) -> None:
        super().__init__(processor_s)


def _below_us() -> Iterator[tuple[tuple[int, str], int]]:
    """Yield this process and those below it: the id, when the process began, and the ticks of its own work."""
    for pid, words in load.processes_below():
        yield (pid, words[19]), int(words[11]) + int(words[12])
