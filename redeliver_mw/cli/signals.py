# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, and SIGTERM, as the wish that a command ends in good order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` at the first SIGINT or SIGTERM; KeyboardInterrupt at the second. The main thread only.

    A command prints what it has done inside of this, so that an interruption at the last moment does not take its
    report away. Where Spark runs this is entered after it, since Spark hears SIGINT for itself.
    """
    told = False

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if told:
            raise KeyboardInterrupt
        told = True
        stop()

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
