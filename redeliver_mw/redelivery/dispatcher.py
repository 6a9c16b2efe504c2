# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The loop between inputs and commands: the interceptor is fed one input after the other, in order."""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from ..redaction import redact, visible
from .commands import Command, CommandHandler, Input, execute

log = logging.getLogger("redeliver_mw")


class EventDispatcher:
    """Takes inputs from any thread; what a command leads to is fed after it, never within it.

    `decide` is the interceptor's `feed`. `fed`, if given, is called with `lock` held each time nothing more is
    waiting: a place to wake who waits for that. Whoever holds `lock` feeds several inputs as one.
    """

    def __init__(
        self,
        decide: Callable[[Input], Sequence[Command]],
        hands: CommandHandler,
        fed: Callable[[], object] | None = None,
    ) -> None:
        self._decide, self._hands, self._fed = decide, hands, fed
        self.lock = threading.RLock()
        self._inbox: deque[Input] = deque()
        self._feeding = False

    def feed(self, x: Input) -> None:
        """Feed `x`, and carry out what is commanded; behind what is being dealt with, if called from there."""
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
            execute(self._decide(x), self._hands)
        except Exception as error:  # a fault of ours: the message stays unsettled (doubt-means-unsettled)
            # Its traceback may end in the handler's own error, and in whatever that says.
            told = visible(redact("".join(traceback.format_exception(error))), lines=True)
            log.error("a fault while %s was dealt with; its message stays unsettled\n%s", type(x).__name__, told)
