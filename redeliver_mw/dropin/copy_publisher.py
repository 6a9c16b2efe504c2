# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes what a wrapper needs of the user's connection: its loop, and a way out for copies."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from ..adapter.protocol import OnAnswer, OnTransferred
from ..message import Delivery, Destination, Outgoing
from ..redelivery.plan import SourcePlan

IsAlive = Callable[[], bool]
NOT_KNOWN = -1.0  # less than any wait


class UserConnection(Protocol):
    """Describes the user's connection, and the thread on which its callbacks run: the driver's thread.

    `broker` is as `Adapter.broker`, for the journal. `ledger_scope` is as the adapter's: the ledger of a source is the
    same for App and drop-in, and for each address of one broker. `later` calls `fn` on the driver's thread, where the
    user's callbacks may run, and not from within. `hop` is called on any thread and calls `fn` on the driver's thread,
    without delay; it calls `fn` right here if that thread is gone.
    """

    @property
    def broker(self) -> str: ...
    @property
    def ledger_scope(self) -> str: ...
    @property
    def is_open(self) -> bool: ...
    def later(self, seconds: float, fn: Callable[[], None], /) -> None: ...
    def hop(self, fn: Callable[[], None], /) -> None: ...


class CopyPublisher(Protocol):
    """Publishes copies; wrappers inherit from this class.

    Only `store` has no default: most brokers need nothing else.
    """

    off_thread: bool = False  # its answers come on a thread that is not the driver's

    def provide(self, plan: SourcePlan) -> None:
        """Make sure of what copies will need, once the first message of their source has come."""
        return  # most brokers need nothing

    def schedule_wait(self, source: Destination, seconds: float) -> float:
        """Return for how many seconds yet no copy that is to wait so long can be scheduled. On the driver's thread.

        `NOT_KNOWN`: that is still to be found out, and a copy waits for it.
        """
        return 0.0  # most brokers delay a copy at once

    @abstractmethod
    def store(self, out: Outgoing, after: float, answer: OnAnswer, alive: IsAlive) -> None:
        """Publish one copy that is to wait `after` seconds at the broker. One answer, once.

        `alive`: the original is still ours; to be asked right before anything is sent. `ok` only when the broker
        keeps the copy (confirm-before-settle); silence on the user's own connection closes it first (failed-target).
        """

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred) -> None:
        """Send these copies and accept the original, all or nothing, as `Adapter.move`. For `atomic_move` only."""
        answer("refused", "there are no transactions here")

    def forget(self, generation: int) -> None:
        """Answer *unsent* every copy of a lost generation that is not written yet.

        That is a copy in a queue, one whose target is looked up, and one that waits in a timer, which may end with the
        connection. Called before the loss is fed.
        """
        return  # a publisher that sends at once has none
