# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides who settles a delivery: its callback's end, an ACK, a NACK, or a transaction of the code's.

The code settles from any thread, and the callback ends on ours. The first of them claims the run; whatever comes
later is too late. The shared core hears of it on our thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redeliver_mw.dropin import CallbackRun, RefusedHere

if TYPE_CHECKING:
    from redeliver_stomp.dropin.channel import SubscribedSource
    from redeliver_stomp.dropin.code_transactions import CodeTransaction


@dataclass(slots=True, eq=False)
class HandedFrame:
    """Holds the frame of one run, and who has settled the run. Each run has one as its `given`."""

    frame: Any  # stomp.py's
    to: SubscribedSource
    claimed: bool = False
    pending: Exception | None = None  # a settlement from another thread, of which the core has not heard
    transaction: CodeTransaction | None = None
    raised: BaseException | None = None  # by the callback, while a transaction has the settlement


class Claims:
    """Decides who settles each run of one connection. Thread-safe; hold `lock` to claim several runs at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def take(self, run: CallbackRun) -> bool:
        """Claim a run that the code has in hand; False if it is claimed already. With `lock` held."""
        handed: HandedFrame = run.given
        if not run.in_hand or handed.claimed:
            return False
        handed.claimed = True
        return True

    def begin(self, run: CallbackRun) -> None:
        """Forget what was said in an earlier run of the same delivery."""
        handed: HandedFrame = run.given
        with self.lock:
            handed.claimed, handed.pending, handed.transaction, handed.raised = False, None, None, None

    def pending(self, run: CallbackRun) -> Exception | None:
        """Return the settlement that another thread gave and that the core has not heard of, once."""
        handed: HandedFrame = run.given
        with self.lock:
            word, handed.pending = handed.pending, None
        return word

    def end(self, run: CallbackRun, error: BaseException | None) -> Exception | None:
        """Claim the run for the end of its callback, if nobody else has. Return what another thread said before."""
        handed: HandedFrame = run.given
        if error is None and not run.returning_settles and handed.pending is None:
            return None
        with self.lock:
            word, handed.pending = handed.pending, None
            if run.promised:
                handed.raised = None if isinstance(error, RefusedHere) else error
            elif word is None:
                handed.claimed = True
        return word
