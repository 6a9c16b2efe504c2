# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Looks into a queue without taking anything, on a connection of its own. On the loop's thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redeliver_mw.adapter.kit.timer_heap import LoopTimer
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerError, ConfigError, RedeliverError
from redeliver_mw.message import Destination
from redeliver_stomp.capabilities import address, problem
from redeliver_stomp.connection import StompConnection
from redeliver_stomp.frames import RawFrame, encode
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.receipts import error_text

SILENCE = 30.0  # seconds without a message, after which it is given up
_ID = "browse"
OnEnd = Callable[[RedeliverError | None], None]


class Browser:
    """Hands each message of `source` to `seen` until that says enough, or the end is reached; then `end`, once."""

    def __init__(
        self, loop: StompLoop, url: BrokerUrl, source: Destination, seen: Callable[[RawFrame], bool], end: OnEnd
    ) -> None:
        self._loop, self._source, self._seen, self._end = loop, source, seen, end
        self._done = False
        self._timer: LoopTimer | None = None
        self._link = StompConnection(
            loop, url, "browse", up=self._up, down=self._down, frames=self._frames, failed=self._finish
        )

    def open(self) -> None:
        if self._source.kind == "topic" and not self._source.subscription:
            self._finish(
                ConfigError(
                    f"{self._source} keeps nothing that could be looked at",
                    cure="Name a queue",
                    code="browse-not-supported",
                )
            )
        elif why := problem(self._source):
            self._finish(ConfigError(why, where=str(self._source), cure="Name one queue", code="browse-not-supported"))
        else:
            self._link.open()

    def close(self) -> None:
        """Give up the browsing, because we are closing."""
        self._finish(BrokerError("the connection is being closed", code="connection-lost"))

    def _up(self, _headers: Mapping[str, str]) -> None:
        headers = [("id", _ID), ("destination", address(self._source)), ("browser", "true"), ("ack", "auto")]
        self._link.write(encode("SUBSCRIBE", headers))
        self._wait()

    def _frames(self, frames: list[RawFrame]) -> None:
        self._wait()
        for frame in frames:
            if self._done:
                return
            if frame.head.startswith(b"ERROR"):
                self._finish(
                    BrokerError(f"{self._source} cannot be browsed: {error_text(frame)}", code="browse-failed")
                )
            elif frame.head.startswith(b"MESSAGE"):
                last = frame.raw(b"browser") == b"end" and frame.raw(b"message-id") == b"0"
                if last or self._seen(frame):
                    self._finish(None)

    def _down(self, error: BaseException) -> None:
        self._finish(BrokerError(f"{self._source} could not be browsed to its end: {error}", code="browse-failed"))

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        late = BrokerError(f"{self._source} cannot be browsed: nothing came for {SILENCE:g} s", code="browse-failed")
        self._timer = self._loop.call_later(SILENCE, lambda: self._finish(late))

    def _finish(self, error: RedeliverError | None) -> None:
        if self._done:
            return
        self._done = True
        if self._timer is not None:
            self._timer.cancel()
        self._link.cut(ConnectionAbortedError("seen enough"))  # nothing of it is ours: no goodbye is needed
        self._end(error)
