# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How far the publishers of a run are, read from the ends of their ledger files while they write."""

from __future__ import annotations

import os

from .ledger import FOLDER, LedgerLine, answer_of, parsed


class ReplayProgress:
    """Counts what a run has confirmed and refused so far, and how long its phases were at it.

    `first_us` and `last_us` are the first intent and the last answer of the phase that is under way.
    """

    def __init__(self, folder: str, run: str) -> None:
        self._place, self._run = os.path.join(folder, FOLDER), run
        self._read_to: dict[str, int] = {}
        self.confirmed = self.refused = 0
        self.first_us: int | None = None
        self.last_us: int | None = None
        self._phases_us = 0  # of phases that are over

    @property
    def seconds(self) -> float:
        """Return the time from first letter to last answer, of all phases together: what lies between is no part."""
        return (self._phases_us + self._phase_us) / 1e6

    @property
    def _phase_us(self) -> int:
        return 0 if self.first_us is None or self.last_us is None else max(0, self.last_us - self.first_us)

    def begin_phase(self) -> None:
        """Begin to count the time anew: the canary, or what follows it. OSError."""
        self.look()
        self._phases_us += self._phase_us
        self.first_us = self.last_us = None

    def look(self) -> None:
        """Reads what is new. OSError."""
        for name in os.listdir(self._place) if os.path.isdir(self._place) else ():
            if f".{self._run}-" in name and name.endswith(".jsonl"):
                self._file(os.path.join(self._place, name))

    def _file(self, path: str) -> None:
        with open(path, "rb") as file:
            file.seek(self._read_to.get(path, 0))
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to[path] = self._read_to.get(path, 0) + len(whole)
        for line in whole.splitlines():
            if (said := parsed(line)) is not None:
                self._line(said)

    def _line(self, said: LedgerLine) -> None:
        at_us = int(said["at_us"])
        if "intent" in said:
            self.first_us = at_us if self.first_us is None else min(self.first_us, at_us)
        if "done" in said:
            answer = answer_of(said)
            self.confirmed += len(answer.confirmed)
            self.refused += len(answer.refused)
            self.last_us = at_us if self.last_us is None else max(self.last_us, at_us)
