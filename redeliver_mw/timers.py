# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides a timer that can be cancelled from any thread, and a restartable one-shot timer."""

from __future__ import annotations

from collections.abc import Callable

Cancel = Callable[[], None]  # cancels a timer; thread-safe, and may be called more than once
SLACK = 1e-6  # seconds: the largest difference between two floats that counts as none


def cancellable(fn: Callable[[], None]) -> tuple[Callable[[], None], Cancel]:
    """Return `fn` wrapped for a loop, and a function that disarms it.

    This is for loops whose timers cannot be cancelled from another thread.
    """
    wanted = True

    def cancel() -> None:
        nonlocal wanted
        wanted = False

    def due() -> None:
        if wanted:
            fn()

    return due, cancel


class SingleTimer:
    """Calls `fn` once after a delay that can be set anew.

    Stands in for the worker thread when a test drives the clock by hand.
    """

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Cancel], fn: Callable[[], None]) -> None:
        self._call_later, self._fn = call_later, fn
        self._cancel: Cancel | None = None

    @property
    def is_set(self) -> bool:
        return self._cancel is not None

    def set(self, seconds: float) -> None:
        """Call `fn` after this many seconds, and cancel any earlier call."""
        self.off()
        self._cancel = self._call_later(seconds, self._fire)

    def off(self) -> None:
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _fire(self) -> None:
        self._cancel = None
        self._fn()
