# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds the interceptor one input after the other, and hands each of its commands to whoever executes them."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..redaction import redact, visible
from .commands import (
    CancelTimer,
    Command,
    CommandHandler,
    Input,
    Log,
    OrderUpdate,
    PauseSource,
    PublishAndSettle,
    PublishCopy,
    RecordAttempt,
    ResumeSource,
    RunHandler,
    Settle,
    StartTimer,
)

log = logging.getLogger("redeliver_mw")


class EventDispatcher:
    """Takes inputs from any thread. An input that a command leads to is fed after the present one, never within it.

    `decide` is the interceptor's `feed`. Each time no more inputs are waiting, `fed`, if given, is called with `lock`
    held, and who waits for `idle` is woken. A thread that holds `lock` feeds several inputs as one.
    """

    def __init__(
        self,
        decide: Callable[[Input], Sequence[Command]],
        executor: CommandHandler,
        fed: Callable[[], object] | None = None,
    ) -> None:
        self._decide, self._fed = decide, fed
        self._executes: dict[type[Command], Callable[[Any], None]] = {
            RunHandler: executor.run,
            StartTimer: executor.wait,
            CancelTimer: executor.forget,
            PublishCopy: executor.store,
            PublishAndSettle: executor.transact,
            Settle: executor.settle,
            RecordAttempt: executor.record,
            PauseSource: executor.halt,
            ResumeSource: executor.resume,
            Log: executor.say,
            OrderUpdate: executor.place,
        }
        self.lock = threading.RLock()
        self.idle = threading.Condition(self.lock)
        self._inbox: deque[Input] = deque()
        self._feeding = False

    def feed(self, x: Input) -> None:
        """Feed `x`, and execute its commands; after the input that is being dealt with, if called from there."""
        with self.lock:
            self._inbox.append(x)
            if self._feeding:
                return
            self._feeding = True
            try:
                while self._inbox:
                    self._take(self._inbox.popleft())
            finally:
                self._feeding = False
                if self._fed is not None:
                    self._fed()
                self.idle.notify_all()

    def _take(self, x: Input) -> None:
        try:
            for command in self._decide(x):
                self._executes[type(command)](command)
        except Exception as error:  # a fault of ours: the message stays unsettled (doubt-means-unsettled)
            # Its traceback may end in the handler's own error, and in whatever that says.
            text = visible(redact("".join(traceback.format_exception(error))), lines=True)
            log.error("a fault while %s was dealt with; its message stays unsettled\n%s", type(x).__name__, text)
