# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides when a connection is opened, when it is opened again, and when a first connect is given up.

An adapter's connection knows how its driver connects and what its broker's refusals mean. What follows from them is
here, once for all adapters::

    open() -> connect() -> opened() ... ended(was_open=True)  -> down(error), and open() again soon
                        -> ended(was_open=False)              -> the next host after a pause, or failed(error)
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable

from ...errors import BrokerUnavailable, ConfigError, RedeliverError
from ...timers import Cancel, cancellable
from ..registry import BrokerUrl
from .connection_state import ConnectionState
from .host_rotation import HostRotation
from .tls_errors import WrongPort, WrongPortCheck

AFTER_A_LOSS = 0.05  # seconds until a connection that was open is opened again
LASTING = 10.0  # seconds: a connection that has been open for so long was not lost early
EARLY_PAUSE, LONGEST_EARLY_PAUSE = 0.2, 5.0  # seconds: the longest pause after the second early loss; it doubles


class Reconnector:
    """Keeps one connection up: hosts in turn, back-off with jitter, and the end of a first connect.

    `connect` begins to connect to `host`; it may raise ConfigError, as for a TLS file. `down` is called after an open
    connection has ended, and the last one after `close`. `meaning` says what an error of a failed attempt means. With
    `failed`, a first connect that does not come about is given up and reported; without it, attempts go on for ever.
    All methods and callbacks run on the adapter's I/O thread.
    """

    def __init__(
        self,
        url: BrokerUrl,
        role: str,
        log: logging.Logger,
        *,
        usual_port: int,
        call_later: Callable[[float, Callable[[], None]], object],
        connect: Callable[[], None],
        down: Callable[[BaseException], None],
        meaning: Callable[[BaseException], RedeliverError],
        failed: Callable[[RedeliverError], None] | None = None,
        greeting: bytes = b"",
    ) -> None:
        self.state = ConnectionState(url.text, role, log, secret=url.password, caller_reports_first=failed is not None)
        self.closing = False
        self.was_up = False  # a first connect has come about
        self._busy = False  # it is open, or an attempt goes on
        self._hosts = HostRotation(url, usual_port)
        self._port_check = WrongPortCheck(url, call_later, greeting)
        self._call_later, self._connect, self._down = call_later, connect, down
        self._meaning, self._failed = meaning, failed
        self._cancel: Cancel | None = None  # takes back the next attempt
        self._opened_at = 0.0
        self._early_losses = 0  # connections in succession that were lost soon after they were opened

    @property
    def host(self) -> tuple[str, int]:
        """Return the host and port to connect to."""
        return self._hosts.host

    @property
    def host_index(self) -> int:
        """Return the place in the URL of the host to connect to, from 0."""
        return self._hosts.index

    def open(self) -> None:
        """Begin to connect to the next host; nothing while it is open or being opened, and once it is closed."""
        if self.closing or self._busy:
            return
        self._take_back()
        self._busy = True
        self.state.connecting()
        try:
            self._connect()
        except ConfigError as error:
            self._busy = False
            self._not_open(error)

    def opened(self) -> None:
        """Note that the connection is open."""
        self.was_up = True
        self._opened_at = time.monotonic()
        self._hosts.succeeded()
        self.state.connected()

    def ended(self, error: BaseException, *, was_open: bool) -> None:
        """Take the end of a connection, or of an attempt, and see to what follows."""
        self._busy = False
        if was_open or self.closing:
            if not self.closing:
                self.state.lost(error)
            self._down(error)
            self._again(self._pause_after_a_loss())
            return
        meaning = self._meaning(error)
        if self.was_up or type(meaning) is not BrokerUnavailable:
            self._not_open(meaning)
        else:
            self.check_port(lambda wrong: self._not_open(meaning if wrong is None else self._meaning(wrong)))

    def close(self) -> None:
        """Open nothing any more; what is open is closed by the caller."""
        self.closing = True
        self.state.closed()

    def check_port(self, answer: Callable[[WrongPort | None], None]) -> None:
        """Answer, once that is known, whether the host's port speaks TLS where we do not, or the other way round."""
        self._port_check.begin(*self._hosts.host, answer)

    def _pause_after_a_loss(self) -> float:
        """Return a pause that grows with each early loss after the first.

        A broker may end each connection to which it gives a certain message, and count that as a delivery of whatever
        the connection held.
        """
        lasted = time.monotonic() - self._opened_at
        self._early_losses = 0 if lasted >= LASTING else self._early_losses + 1
        if self._early_losses < 2:
            return AFTER_A_LOSS
        longest = min(LONGEST_EARLY_PAUSE, EARLY_PAUSE * 2 ** min(self._early_losses - 2, 16))
        return AFTER_A_LOSS + random.uniform(longest / 2, longest)

    def _not_open(self, meaning: RedeliverError) -> None:
        """Note that an attempt has failed: plan the next one, or report the error if this was the last."""
        if self.closing:
            return
        error = self._hosts.failed(meaning)
        self.state.failed(error)
        if self._failed is not None and not self.was_up and self._hosts.is_hopeless(error):
            self._failed(error)
        else:
            self._again(self._hosts.pause)

    def _again(self, seconds: float) -> None:
        if not self.closing:
            self._take_back()
            due, self._cancel = cancellable(self.open)
            self._call_later(seconds, due)

    def _take_back(self) -> None:
        cancel, self._cancel = self._cancel, None
        if cancel is not None:
            cancel()
