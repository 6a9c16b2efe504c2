# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Is the publishing link of a `MemoryAdapter`: there is one answer for each copy, or silence, which ends the link."""

from __future__ import annotations

import functools
import itertools
from collections import deque

from ..adapter.protocol import OnAnswer, Verdict
from ..errors import BrokerUnavailable
from ..message import Outgoing
from .broker import MemoryBroker
from .clock import ClockLoop
from .link import MemoryLink


class Publisher:
    """Publishes copies. Belongs to the adapter's loop. `timeout`: seconds until a missing answer counts as silence."""

    def __init__(self, broker: MemoryBroker, loop: ClockLoop, timeout: float) -> None:
        self._broker, self._loop, self._timeout = broker, loop, timeout
        self._link: MemoryLink | None = None
        self._keys = itertools.count(1)
        self._unanswered: dict[int, OnAnswer] = {}
        # copies that wait for the end of a memory alarm
        self._waiting: deque[tuple[Outgoing, OnAnswer, float]] = deque()

    def open(self, link: MemoryLink) -> None:
        self._link = link
        self.flush()

    def publish(self, out: Outgoing, answer: OnAnswer, after: float) -> None:
        if self._link is None:
            answer("silent", "not connected")
        elif self._broker.blocked:
            self._waiting.append((out, answer, after))
        else:
            self._send(out, answer, after)

    def flush(self) -> None:
        """Send the copies that waited, unless there is an alarm (again)."""
        while self._waiting and self._link is not None and not self._broker.blocked:
            self._send(*self._waiting.popleft())

    def lost(self, why: str) -> None:
        """Report the loss of the link: each copy without an answer may have been stored or not."""
        self._link = None
        unanswered = list(self._unanswered.values()) + [answer for _, answer, _ in self._waiting]
        self._unanswered.clear()
        self._waiting.clear()
        for answer in unanswered:
            answer("silent", why)

    def close(self) -> None:
        self.lost("closed")

    def _send(self, out: Outgoing, answer: OnAnswer, after: float) -> None:
        key = next(self._keys)
        self._unanswered[key] = answer
        if self._link is None or not self._link.is_open:
            return None  # already cut; the call of `lost` follows
        fault = self._broker.faults.take(out.target, "refuse", "missing", "silence", "late")
        if fault is not None and fault.kind in ("refuse", "missing"):
            return self._answer(key, "refused", fault.text)
        refused = ""
        if fault is None or fault.stored:
            try:
                refused = self._broker.store(out.target, out.body, out.headers, out.properties, after=after)
            except BrokerUnavailable:
                return None  # the call of `lost` follows
        if fault is None:
            return self._answer(key, "refused" if refused else "ok", refused)
        self._loop.call_later(self._timeout, functools.partial(self._give_up, key))
        if fault.kind == "late":
            verdict: Verdict = "refused" if refused else "ok"
            self._loop.call_later(fault.seconds, functools.partial(self._answer, key, verdict, refused))
        return None

    def _answer(self, key: int, verdict: Verdict, text: str) -> None:
        answer = self._unanswered.pop(key, None)
        if answer is not None:
            answer(verdict, text)

    def _give_up(self, key: int) -> None:
        """Close the link first, so that no late answer can come, and open another one."""
        if key not in self._unanswered:
            return
        if self._broker.blocked:  # the timeout does not run during an alarm
            self._loop.call_later(self._timeout, functools.partial(self._give_up, key))
            return
        link = self._link
        self.lost(f"no answer within {self._timeout:g} s")
        if link is not None:
            self.open(link)
