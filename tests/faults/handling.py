# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds what every consumer of the fault tests does with a message, and its policy."""

from __future__ import annotations

import os
import time

from redeliver_mw import RedeliveryPolicy

DELAYS = [0.2, 0.3, 0.4]  # seconds after the first, second and third failure
POLICY = RedeliveryPolicy(dead_after=4, backoff=DELAYS)
PREFETCH = 40
PAUSE = 0.3  # seconds, before a consumer that lost its broker tries again


class Log:
    """Writes each run as a line, with one system call, so that a kill leaves whole lines.

    The lines are `begin BODY COUNT SECONDS` and, when the run succeeds, `done` with the same; the seconds are the
    machine's monotonic clock.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(self, body: str, count: int) -> None:
        """Work for 5 ms on a message.

        A body `poison:ID` always fails, `heal:N:ID` succeeds at its N-th attempt, and any other body succeeds at once.
        """
        kind, _, rest = body.partition(":")
        os.write(self._file, f"begin {body} {count} {time.monotonic()}\n".encode())
        time.sleep(0.005)
        if kind == "poison":
            raise ValueError(f"{rest} is poison")
        if kind == "heal" and count < int(rest.partition(":")[0]):
            raise ConnectionError(f"{rest} is not well yet")
        os.write(self._file, f"done {body} {count} {time.monotonic()}\n".encode())
