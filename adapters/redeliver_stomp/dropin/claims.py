# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides who settles a delivery: its callback's end, an ACK, a NACK, or a transaction of the code's.

The code settles from any thread, and the callback ends on ours. The first of them claims the run; whatever comes
later is too late. The shared core hears of it on our thread.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from redeliver_mw.dropin import CallbackRun, RefusedHere
from redeliver_mw.message import Destination
from redeliver_mw.redelivery.outbox import QueuedSend


@dataclass(slots=True, eq=False)
class SubscribedSource:
    """Describes one SUBSCRIBE of the user's, or ours beside it.

    `source` is None for a pattern: each message tells its own.
    """

    id: str
    source: Destination | None
    destination: str
    prefetch: int
    of: str  # the id that the user knows
    ack: str  # the mode that the user asked for


@dataclass(slots=True, eq=False)
class CodeTransaction:
    """Holds one transaction of the code's, from its BEGIN or its first ACK until its outcome is known."""

    name: str
    begun_by: int | None = None  # the order of the run whose callback has begun it
    runs: list[CallbackRun] = field(default_factory=list)  # acked in it, in this order
    taken: set[CallbackRun] = field(default_factory=set)  # whose ACK the broker has answered well
    sends: dict[CallbackRun, Sequence[QueuedSend]] = field(default_factory=dict)  # of `delivery.send`
    sent: set[QueuedSend] = field(default_factory=set)  # those that the broker has taken into the transaction
    asked: bool = False  # the COMMIT is written
    committed: bool = False


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
        """Forget the settlements of an earlier run of the same delivery."""
        handed: HandedFrame = run.given
        with self.lock:
            handed.claimed, handed.pending, handed.transaction, handed.raised = False, None, None, None

    def pending(self, run: CallbackRun) -> Exception | None:
        """Return the settlement that another thread gave and that the core has not heard of, once."""
        handed: HandedFrame = run.given
        with self.lock:
            settlement, handed.pending = handed.pending, None
        return settlement

    def end(self, run: CallbackRun, error: BaseException | None) -> Exception | None:
        """Claim the run for the end of its callback, if nobody else has. Return another thread's earlier settlement."""
        handed: HandedFrame = run.given
        if error is None and not run.returning_settles and handed.pending is None:
            return None
        with self.lock:
            settlement, handed.pending = handed.pending, None
            if run.promised:
                handed.raised = None if isinstance(error, RefusedHere) else error
            elif settlement is None:
                handed.claimed = True
        return settlement
