# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of the user's handler that the drop-in stands in front of: its flow control, and what looks after its sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import proton

if TYPE_CHECKING:
    from redeliver_proton.dropin.wrapper import WrappedHandler


class PausingFlow(proton.Handler):
    """The handler's own flow control, but for links whose source is paused: what is not taken costs no memory.

    With each message it would ask for the next one, which takes as long as to accept it; here it asks when half of its
    window is used up.
    """

    def __init__(self, flow: Any, incoming: WrappedHandler) -> None:
        self._flow, self._incoming = flow, incoming
        self._enough = getattr(flow, "_window", 0) // 2  # credit with which nobody has to wait

    def on_delivery(self, event: Any) -> None:
        link = event.link
        if link.credit <= self._enough or not self._enough:
            self.on_unhandled("on_delivery", event)

    def again(self, link: Any) -> None:
        """It is paused no longer."""
        self._flow.on_link_flow(SimpleNamespace(link=link))

    def on_unhandled(self, method: str, *args: Any) -> None:
        call = getattr(self._flow, method, None)
        if call is not None and getattr(args[0], "link", None) not in self._incoming.paused:
            call(*args)


class SendingPart(proton.Handler):
    """The handler's own part for what it sends, which has nothing to do with messages that are ours to settle."""

    def __init__(self, original: Any, incoming: WrappedHandler) -> None:
        self._original, self._incoming = original, incoming

    def on_delivery(self, event: Any) -> None:
        if not (vars(event).get("redeliver_ours") or self._incoming.seat_of(event.link) is not None):
            self._original.on_delivery(event)

    def on_unhandled(self, method: str, *args: Any) -> None:
        call = getattr(self._original, method, None)
        if call is not None:
            call(*args)
