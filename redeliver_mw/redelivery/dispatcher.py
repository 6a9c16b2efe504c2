# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Feeds the interceptor one input after the other, and hands each of its commands to whoever executes them."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence

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

    `decide` is the interceptor's `feed`. `fed`, if given, is called with `lock` held each time no more inputs are
    waiting: a place to wake whoever waits for that. A thread that holds `lock` feeds several inputs as one.
    """

    def __init__(
        self,
        decide: Callable[[Input], Sequence[Command]],
        executor: CommandHandler,
        fed: Callable[[], object] | None = None,
    ) -> None:
        self._decide, self._executor, self._fed = decide, executor, fed
        self.lock = threading.RLock()
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

    def _take(self, x: Input) -> None:
        try:
            for command in self._decide(x):
                self._execute(command)
        except Exception as error:  # a fault of ours: the message stays unsettled (doubt-means-unsettled)
            # Its traceback may end in the handler's own error, and in whatever that says.
            text = visible(redact("".join(traceback.format_exception(error))), lines=True)
            log.error("a fault while %s was dealt with; its message stays unsettled\n%s", type(x).__name__, text)

    def _execute(self, c: Command) -> None:
        executor = self._executor
        match c:
            case RunHandler():
                executor.run(c)
            case StartTimer():
                executor.wait(c)
            case CancelTimer():
                executor.forget(c)
            case PublishCopy():
                executor.store(c)
            case PublishAndSettle():
                executor.transact(c)
            case Settle():
                executor.settle(c)
            case RecordAttempt():
                executor.record(c)
            case PauseSource():
                executor.halt(c)
            case ResumeSource():
                executor.resume(c)
            case Log():
                executor.say(c)
            case OrderUpdate():
                executor.place(c)
