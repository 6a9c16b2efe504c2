# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Gives the broker credit, as the handler's own flow control or the code itself does; and sends for the handler."""

from __future__ import annotations

from collections.abc import Callable, Set
from types import SimpleNamespace
from typing import Any

import proton


class PausingFlow(proton.Handler):
    """Is the handler's own flow control, but gives no credit to links whose source is paused, to spare memory.

    With each message it would ask for the next one, which takes as long as to accept it; here it asks when half of its
    window is used up.
    """

    def __init__(self, flow: Any, paused: Set[Any]) -> None:
        """Keep the handler's flow control, and `paused`: the links that get no credit, as they are at any time."""
        self._flow, self._paused = flow, paused
        self._enough = getattr(flow, "_window", 0) // 2  # credit with which nobody has to wait

    def on_delivery(self, event: Any) -> None:
        link = event.link
        if link.credit <= self._enough or not self._enough:
            self.on_unhandled("on_delivery", event)

    def again(self, link: Any) -> None:
        """Let the driver give credit to a link that is paused no longer."""
        self._flow.on_link_flow(SimpleNamespace(link=link))

    def on_unhandled(self, method: str, *args: Any) -> None:
        call = getattr(self._flow, method, None)
        if call is not None and getattr(args[0], "link", None) not in self._paused:
            call(*args)


class CodeCredit:
    """Counts the credit that the code gives to a link, as a handler with `prefetch=0` does after each success.

    A callback that ended by an exception could not ask for the next message. When its message has left, as a copy or a
    dead letter, one credit is given here; unless the code gave some within that callback. After a release, a reject or
    an abort the code gives credit as it does without the wrapper.
    """

    def __init__(self, link: Any, paused: Set[Any]) -> None:
        self._link, self._paused = link, paused
        self._owed: set[int] = set()  # tags of messages that failed by an exception, until they have left
        self._unpaid = 0  # while the source is paused
        self.window = 1  # the most that were unsettled and asked for at once

    def arrived(self, unsettled: int) -> None:
        """Learn the window from a message that has arrived; `unsettled` includes it."""
        self.window = max(self.window, unsettled + int(self._link.credit))

    def begin(self, tag: int) -> int:
        """Return the credit with which a callback begins."""
        self._owed.discard(tag)
        return int(self._link.credit)

    def failed(self, tag: int, before: int, *, settled: bool) -> None:
        """Note that a callback ended with an exception. `settled`: its message has left already."""
        if self._link.credit > before:
            return
        if settled:
            self._pay()
        else:
            self._owed.add(tag)

    def succeeded(self, tag: int) -> None:
        """Note that the code's transaction is committed: the code hears of it, and can give credit."""
        self._owed.discard(tag)

    def left(self, tag: int) -> None:
        """Note that a message is settled."""
        if tag in self._owed:
            self._owed.discard(tag)
            self._pay()

    def resume(self) -> None:
        """Pay the credit that waited while the source was paused."""
        unpaid, self._unpaid = self._unpaid, 0
        for _ in range(unpaid):
            self._pay()

    def _pay(self) -> None:
        if self._link in self._paused:
            self._unpaid += 1
        elif self._link.state & proton.Endpoint.LOCAL_ACTIVE:
            self._link.flow(1)


class SendingPart(proton.Handler):
    """Is the handler's own part for what it sends, which has nothing to do with messages that are ours to settle."""

    def __init__(self, original: Any, is_ours: Callable[[Any], bool]) -> None:
        """Keep the handler's part, and `is_ours`, which tells whether the messages of a link are ours to settle."""
        self._original, self._is_ours = original, is_ours

    def on_delivery(self, event: Any) -> None:
        if not (vars(event).get("redeliver_ours") or self._is_ours(event.link)):
            self._original.on_delivery(event)

    def on_unhandled(self, method: str, *args: Any) -> None:
        call = getattr(self._original, method, None)
        if call is not None:
            call(*args)
