# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Announces copies and settlements: what was handed over, and when it was answered or written.

Each function takes the callback that waits for the answer, and returns the one to hand over in its place. Without a
sink for these moments the functions need not be called.
"""

from __future__ import annotations

from collections.abc import Callable

from ..adapter.protocol import OnAnswer, OnTransferred, TransferVerdict, Verdict
from ..clock import Clock
from ..redelivery.commands import PublishAndSettle, PublishCopy, Settle
from .hook import TelemetryHook


def announcing_copy(hook: TelemetryHook, clock: Clock, c: PublishCopy, answer: OnAnswer) -> OnAnswer:
    """Announce that a copy is sent or parked; the returned callback announces the answer to it first."""
    if hook.copy_sent is not None:
        hook.copy_sent(c.out, c.after, c.due_us is not None)
    answered = hook.copy_answered
    if answered is None:
        return answer
    begun = clock.now().mono

    def announce(verdict: Verdict, why: str) -> None:
        at = clock.now()
        answered(c.out, verdict, why, at, at.mono - begun)
        answer(verdict, why)

    return announce


def announcing_transaction(
    hook: TelemetryHook, clock: Clock, c: PublishAndSettle, answer: OnTransferred
) -> OnTransferred:
    """Announce that copies are sent as one with their settlement; the returned callback announces the answers first."""
    if hook.copy_sent is not None:
        for out, after in c.outs:
            hook.copy_sent(out, after, False)
    answered, settled = hook.copy_answered, hook.settled
    if answered is None and settled is None:
        return answer
    begun = clock.now().mono

    def announce(verdict: TransferVerdict, why: str) -> None:
        at = clock.now()
        seconds = at.mono - begun
        if answered is not None:
            for out, _ in c.outs:
                answered(out, verdict, why, at, seconds)
        if settled is not None and verdict == "ok":
            settled(c.delivery, "accepted", at, seconds)
        answer(verdict, why)

    return announce


def announcing_settlement(
    settled: Callable[..., None], clock: Clock, c: Settle, written: Callable[[], None]
) -> Callable[[], None]:
    """Return a callback that announces, when a settlement is written, how long that took, and then calls `written`.

    `settled` is the hook's.
    """
    begun = clock.now().mono

    def announce() -> None:
        at = clock.now()
        settled(c.delivery, c.settlement, at, at.mono - begun)
        written()

    return announce
