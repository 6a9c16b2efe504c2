# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Routes what comes on a consuming connection to the source that it is for. On the loop's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import RedeliverError
from redeliver_stomp.connection import StompConnection
from redeliver_stomp.consumer import Consumer
from redeliver_stomp.frames import RawFrame, encode
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.receipts import OnReceipt, Receipts, error_text
from redeliver_stomp.transactions import TransactionRunner

log = logging.getLogger("redeliver_mw.stomp")
OnFrame = Callable[[RawFrame], None]


class ConsumerConnection:
    """Keeps one `StompConnection`, its sources and its transactions. `down` comes after the end of its sources."""

    def __init__(
        self,
        loop: StompLoop,
        url: BrokerUrl,
        role: str,
        *,
        up: Callable[[ConsumerConnection, Mapping[str, str]], None],
        down: Callable[[ConsumerConnection, BaseException], None],
        failed: Callable[[RedeliverError], None],
        patience: Callable[[], float],
        client_id: str = "",
    ) -> None:
        self.loop = loop
        self.sources: list[Consumer] = []
        self._up, self._down = up, down
        self._receipts = Receipts()
        self._routes: dict[bytes, OnFrame] = {}
        self._worded = False  # the broker has sent an ERROR before the connection ended
        self.link = StompConnection(
            loop,
            url,
            role,
            up=lambda headers: self._up(self, headers),
            down=self._lost,
            frames=self._frames,
            failed=failed,
            client_id=client_id,
        )
        self.mover = TransactionRunner(self, patience)

    # -- what goes out ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        self.link.write(data)

    def abort(self, error: BaseException) -> None:
        """Close the connection without a goodbye; it is opened again. `down` is called before this returns."""
        self.link.abort(error)

    def expect(self, answer: OnReceipt) -> str:
        """Return the id for a `receipt` header."""
        return self._receipts.expect(answer)

    def request(self, command: str, headers: list[tuple[str, str]], answer: OnReceipt, body: bytes = b"") -> None:
        """Send a frame that asks for an answer; none comes if the connection is lost before."""
        self.write(encode(command, [*headers, ("receipt", self.expect(answer))], body))

    def route(self, subscription: str, to: OnFrame | None) -> None:
        """Set where the messages of a subscription id go; None: nowhere any more."""
        if to is None:
            self._routes.pop(subscription.encode(), None)
        else:
            self._routes[subscription.encode()] = to

    # -- what comes in ----------------------------------------------------------------------------

    def _frames(self, frames: list[RawFrame]) -> None:
        routes = self._routes
        for frame in frames:
            if frame.head.startswith(b"MESSAGE\n"):
                if (to := routes.get(frame.raw(b"subscription"))) is not None:
                    to(frame)
            elif frame.head.startswith((b"RECEIPT\n", b"ERROR\n")):
                self._answer(frame)
            else:
                log.warning("a frame that nobody knows: %r", frame.head[:80])

    def _answer(self, frame: RawFrame) -> None:
        error = frame.head.startswith(b"ERROR")
        self._worded = self._worded or error
        if not self._receipts.take(frame) and error:
            log.warning("the broker says: %s", error_text(frame))

    def _lost(self, error: BaseException) -> None:
        self._receipts.forget()
        self._routes.clear()
        if isinstance(error, ConnectionError) and not self._worded and not self.link.closing:
            for source in self.sources:
                source.convict()
        self._worded = False
        self._down(self, error)
        self.mover.lost()
