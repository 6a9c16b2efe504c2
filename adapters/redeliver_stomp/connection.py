# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps one STOMP connection up: opens and closes it, beats, and says what a refusal means.

All of it runs on the adapter's thread; the threads of a connection only bring frames.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from redeliver_mw.adapter.kit.connection_state import without_secret
from redeliver_mw.adapter.kit.reconnect import Reconnector
from redeliver_mw.adapter.kit.timer_heap import LoopTimer
from redeliver_mw.adapter.kit.tls_errors import unavailable
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import BrokerError, ConfigError, CredentialsRefused, RedeliverError
from redeliver_stomp.capabilities import other_product
from redeliver_stomp.frames import RawFrame, encode
from redeliver_stomp.loop import StompLoop
from redeliver_stomp.wire import StompSocket

log = logging.getLogger("redeliver_mw.stomp")

HANDSHAKE_TIMEOUT = 10.0  # seconds for TCP, TLS and CONNECTED together: a silent peer
GOODBYE_TIMEOUT = 1.0  # seconds for the receipt of a DISCONNECT
BLOCKED_PAUSE = 0.005  # seconds until a full socket is tried again
BEAT_GRACE = 2.5  # of the other side's heart-beats may be missing, in intervals
PORT, TLS_PORT = 61613, 61614
HEARTBEAT = 10.0  # seconds
OPTIONS = {"heartbeat"}


def heartbeat_of(url: BrokerUrl) -> float:
    """Return the seconds between heart-beats, 0 for none. Raises ConfigError if the option cannot be read."""
    text = url.options.get("heartbeat", str(HEARTBEAT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or not (seconds == 0 or seconds >= 0.1):
        raise ConfigError(
            f"heartbeat={text!r} is no number of seconds",
            where=url.text,
            cure="Write heartbeat=10",
            code="broker-url-option",
        )
    return seconds


class StompConnection:
    """Opens, and opens again after each loss until `close`. Callbacks run on the loop's thread.

    With `failed`, a first connect that does not come about is given up and reported; without it, tried for ever.
    `frame` gets what comes, batch by batch, between `up` and `down`.
    """

    def __init__(
        self,
        loop: StompLoop,
        url: BrokerUrl,
        role: str,
        *,
        up: Callable[[Mapping[str, str]], None],
        down: Callable[[BaseException], None],
        frames: Callable[[list[RawFrame]], None],
        failed: Callable[[RedeliverError], None] | None = None,
        client_id: str = "",
    ) -> None:
        url.check_options(OPTIONS)
        self._loop, self._url, self._role, self._client_id = loop, url, role, client_id
        self._up, self._frames = up, frames
        url.tls_context()  # a mistake in the URL is reported at once
        self._beat = heartbeat_of(url)
        if "\0" in f"{url.user}{url.password}":
            raise ConfigError(
                "a user or password with a NUL cannot be sent",
                where=url.text,
                cure="Change it",
                code="broker-url-syntax",
            )
        self._reconnector = Reconnector(
            url,
            role,
            log,
            usual_port=TLS_PORT if url.flag("tls") else PORT,
            call_later=loop.call_later,
            connect=self._connect,
            down=down,
            meaning=self._meaning,
            failed=failed,
        )
        self.state = self._reconnector.state
        self.is_open = False
        self._wire: StompSocket | None = None
        self._inbox: deque[tuple[StompSocket, list[RawFrame] | BaseException]] = deque()
        self._called = False  # `_take` is on its way
        self._outbox: deque[bytes] = deque()
        self._refusal: RedeliverError | None = None
        self._timers: list[LoopTimer] = []
        self._heard = self._spoke = 0.0
        self._goodbye = ""

    def open(self) -> None:
        """Begin to connect to the next host."""
        self._reconnector.open()

    @property
    def closing(self) -> bool:
        return self._reconnector.closing

    def _connect(self) -> None:
        host, port = self._reconnector.host
        self._refusal, self._goodbye = None, ""
        self._outbox.clear()
        tls = self._url.tls_context()  # a certificate may have been renewed
        wire = self._wire = StompSocket(host, port, tls, received=self._post, gone=self._post)
        late = TimeoutError(f"{wire.where} accepts connections and does not answer")
        self._timers = [self._loop.call_later(HANDSHAKE_TIMEOUT, lambda: self._give_up(wire, late))]
        wire.open(self._hello(host))

    def close(self) -> None:
        """Close the connection for good, with a goodbye if there is somebody to answer it."""
        self._reconnector.close()
        if self.is_open:
            self._goodbye = "goodbye"
            self.write(encode("DISCONNECT", [("receipt", self._goodbye)]))
            wire = self._wire
            self._timers.append(self._loop.call_later(GOODBYE_TIMEOUT, lambda: self._give_up(wire, None)))
        elif self._wire is not None:
            self._give_up(self._wire, ConnectionAbortedError("we are closing"))

    def abort(self, reason: BaseException) -> None:
        """Cut it: the peer is not to be asked for a goodbye. `down` is called before this returns."""
        self._give_up(self._wire, reason)

    def cut(self, reason: BaseException) -> None:
        """Close for good without a goodbye."""
        self._reconnector.close()
        self._give_up(self._wire, reason)

    @property
    def is_closed(self) -> bool:
        return self._wire is None

    def write(self, data: bytes) -> None:
        """Send at the end of this turn, with all else that is written in it."""
        self._outbox.append(data)
        self._loop.at_end_of_turn(self._flush)

    # -- from the connection's threads ----------------------------------------------------------------------

    def _post(self, wire: StompSocket, what: list[RawFrame] | BaseException) -> None:
        self._inbox.append((wire, what))
        if not self._called:  # asked after the append, and cleared before the reading: nothing stays behind
            self._called = True
            self._loop.call(self._take)

    # -- on the loop's thread -------------------------------------------------------------------------------

    def _take(self) -> None:
        """Take all frames that have come, in one wake-up."""
        self._called = False
        frames: list[RawFrame] = []
        while self._inbox:
            wire, what = self._inbox.popleft()
            if wire is not self._wire:
                continue
            self._heard = time.monotonic()
            if isinstance(what, BaseException):
                self._hand_over(frames)
                frames = []
                self._give_up(wire, what)
            else:
                frames += what
        self._hand_over(frames)

    def _hand_over(self, frames: list[RawFrame]) -> None:
        if not self.is_open and frames:
            frames = self._greeted(frames)
        if self._goodbye and any(f.cmd == "RECEIPT" and f.raw(b"receipt-id") == self._goodbye.encode() for f in frames):
            self._give_up(self._wire, None)
        elif frames and self.is_open:
            self._frames(frames)

    def _greeted(self, frames: list[RawFrame]) -> list[RawFrame]:
        """Take the answer to CONNECT, and return the frames behind it."""
        first, *rest = frames
        if first.cmd == "CONNECTED" and (other := other_product(first.headers)):
            self._refusal = ConfigError(
                f"this broker is {other}, not ActiveMQ Classic",
                where=self._url.text,
                cure="Use its own scheme",
                code="broker-is-another",
            )
            self._give_up(self._wire, ConnectionRefusedError(self._refusal.what))
            return []
        if first.cmd == "CONNECTED":
            self._stop_timers()
            self.is_open = True
            self._reconnector.opened()
            self._begin_beats(first.headers.get("heart-beat", "0,0"))
            self._up(first.headers)
            return rest
        if first.cmd == "ERROR":
            self._refusal = self._meaning_of_error(first)
            self._give_up(self._wire, ConnectionRefusedError(self._refusal.what))
        return []

    def _give_up(self, wire: StompSocket | None, error: BaseException | None) -> None:
        """Report once that this connection is over, for whatever reason."""
        if wire is None or wire is not self._wire:
            return
        was_open, self._wire, self.is_open = self.is_open, None, False
        self._stop_timers()
        self._outbox.clear()
        wire.cut()
        self._reconnector.ended(error or ConnectionAbortedError("we are closing"), was_open=was_open)

    def _flush(self) -> None:
        """Write all frames that wait at once. Bytes that the socket does not take wait on."""
        wire = self._wire
        if wire is None or not self._outbox:
            return
        data = b"".join(self._outbox) if len(self._outbox) > 1 else self._outbox[0]
        self._outbox.clear()
        try:
            done = wire.write(data)
        except OSError as error:
            self._give_up(wire, error)
            return
        self._spoke = time.monotonic()
        if done < len(data):
            self._outbox.append(data[done:])
            self._loop.call_later(BLOCKED_PAUSE, lambda: self._loop.at_end_of_turn(self._flush))

    # -- heart-beats ----------------------------------------------------------------------------------------

    def _hello(self, host: str) -> bytes:
        """Return the CONNECT frame, whose values are escaped.

        ActiveMQ unescapes the values of a CONNECT, too, against the letter of STOMP 1.2 (seen on 5.18 and 6.3).
        """
        beat = f"{round(self._beat * 1000)},{round(self._beat * 1000)}"
        user, password = self._url.user, self._url.password
        given = {
            "accept-version": "1.2",
            "host": host,
            "heart-beat": beat,
            "login": user,
            "passcode": password,
            "client-id": self._client_id or None,
            "connection-name": f"redeliver-mw ({self._role})",
        }
        return encode("CONNECT", [(name, value) for name, value in given.items() if value is not None])

    def _begin_beats(self, offered: str) -> None:
        theirs, ours = (int(part) / 1000 if part.strip().isdigit() else 0.0 for part in f"{offered},0".split(",")[:2])
        self._heard = self._spoke = time.monotonic()
        wire = self._wire
        if self._beat and ours:
            self._beat_every(max(self._beat, ours) * 0.9, lambda every: self._speak(wire, every))
        if self._beat and theirs:
            self._beat_every(max(self._beat, theirs), lambda every: self._listen(wire, every))

    def _beat_every(self, every: float, fn: Callable[[float], None]) -> None:
        self._timers.append(self._loop.call_later(every / 2, lambda: fn(every)))

    def _speak(self, wire: StompSocket | None, every: float) -> None:
        if wire is self._wire and self.is_open:
            if time.monotonic() - self._spoke >= every / 2 and not self._outbox:
                self.write(b"\n")
            self._again(every, lambda: self._speak(wire, every))

    def _listen(self, wire: StompSocket | None, every: float) -> None:
        if wire is self._wire and self.is_open:
            if time.monotonic() - self._heard > every * BEAT_GRACE:
                self._give_up(wire, TimeoutError(f"nothing was heard for {every * BEAT_GRACE:g} s"))
            else:
                self._again(every, lambda: self._listen(wire, every))

    def _again(self, every: float, fn: Callable[[], None]) -> None:
        self._timers = [t for t in self._timers if t.waits] + [self._loop.call_later(every / 2, fn)]

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers = []

    # -- meanings -------------------------------------------------------------------------------------------

    def _meaning(self, error: BaseException) -> RedeliverError:
        text = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return self._refusal or unavailable(error, self._url, text)

    def _meaning_of_error(self, error: RawFrame) -> RedeliverError:
        """Return what the ERROR to our CONNECT means."""
        text = error.headers.get("message", "") or error.body.decode("utf-8", "replace").partition("\n")[0]
        where = self._url.text
        if "already connected" in text:
            return BrokerError(
                f"another client consumes as {self._client_id!r}: {text[:200]}",
                where=where,
                cure="Stop the other one, or give this handler another subscription name",
                code="source-in-use",
            )
        return CredentialsRefused(
            f"the broker refuses this user or password ({without_secret(text, self._url.password)[:200]})",
            where=where,
            cure="Check both",
        )
