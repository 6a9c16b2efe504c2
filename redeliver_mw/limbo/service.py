# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an App's limbo: stores parked messages, and publishes those that are due through the App's own adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..adapter.protocol import Adapter, OnAnswer, Verdict
from ..clock import Clock, Moment
from ..errors import RedeliverError
from ..message import Delivery, Destination, Outgoing, SupportsImages
from ..redelivery.copies import RetryTerms, as_it_was
from ..redelivery.headers import due_now
from ..redelivery.order_places import FoundPlace, OrderPlace
from ..timers import SingleTimer
from . import Limbo, LimboWorker, Parked, Parking
from .store import LEASE, RETRY

# takes a copy, the broker's verdict and text, the time of that, and how long it took in seconds
OnSent = Callable[[Outgoing, str, str, Moment, float], None]
DRIVEN_LEASE = 1e6  # seconds: with a hand-driven clock no other program is there, and no heartbeat is needed


class LimboService:
    """Parks and publishes for one App. Opened before any message is consumed, closed after all are settled.

    `retry`: how often a target may refuse a message before the message stays in the tables; None: for about three days.
    `driven`: the clock is hand-driven, so there is no thread. `sent` is called with each answer of the broker to a
    message that was due. `park` may be called from any thread.
    """

    def __init__(
        self,
        url: str,
        adapter: Adapter,
        app_name: str,
        clock: Clock,
        *,
        retry: int | None = None,
        driven: bool = False,
        sent: OnSent | None = None,
    ) -> None:
        self._adapter, self._driven, self._sent = adapter, driven, sent
        self._clock = clock
        lease = DRIVEN_LEASE if driven else LEASE
        self._limbo = Limbo(url, app=app_name, broker=adapter.broker, retry=retry or RETRY, clock=clock, lease=lease)
        self._worker = LimboWorker(self._limbo, self._publish, clock=clock)
        self._open = False
        self._alarm = SingleTimer(adapter.call_later, self._run_once)

    def open(self) -> None:
        """Open the database. Raises ConfigError or LimboError if it is not available."""
        self._limbo.open()
        self._open = True

    def start(self) -> None:
        """Begin to publish messages that are due."""
        if self._driven:
            self._run_once()
        else:
            self._worker.start()

    def park(
        self,
        out: Outgoing,
        due: float,
        answer: OnAnswer,
        /,
        terms: RetryTerms | None = None,
        places: Sequence[OrderPlace] = (),
    ) -> None:
        """Keep a message until `due`, in seconds since 1970. Any thread.

        Calls `answer` once, with `ok` as soon as the message and its `places` are on the disk.
        """
        retry = (terms.delay, terms.max_attempts, terms.failure_port) if terms is not None else ()
        parking = Parking(out, due, _image(out), *retry)
        if places and out.origin is not None:
            parking = replace(parking, places=tuple(places), source=str(out.origin.destination))
        self._worker.park(parking, answer)
        self._hurry()

    def places(self, source: Destination) -> list[FoundPlace]:
        """Return the places in the order of this source that an earlier process has stored. Raises LimboError."""
        return self._limbo.places(source)

    def forget_places(
        self, source: Destination, places: Sequence[tuple[str, int]], then: Callable[[], None] | None = None, /
    ) -> None:
        """Remove places, and call `then`, on another thread. Any thread."""
        self._worker.forget_places(source, places, then)
        self._hurry()

    def waiting(self) -> tuple[int, float | None]:
        """Return how many messages wait here, and when the first is due, in seconds since 1970.

        Blocks. Raises LimboError.
        """
        return self._limbo.waiting()

    def close(self, timeout: float) -> None:
        """Close the service after everything that was asked for has been written."""
        self._alarm.off()
        if self._open:
            self._worker.stop(timeout)

    def _run_once(self) -> None:
        """Run the worker once, and again when the next row is due. Only this process changes the database meanwhile."""
        rest = self._worker.run_once()
        try:
            due = self._limbo.next_due()
        except RedeliverError:  # the worker has logged it
            due = self._clock.now().wall + rest
        if due is None and self._worker.owes:
            due = self._clock.now().wall + rest
        if due is not None:
            rest = max(min(rest, 0.1), due - self._clock.now().wall)
            self._alarm.set(rest)

    def look(self) -> None:
        """Look at the tables again after a change by SQL. The service's own thread does so anyway."""
        self._hurry()

    def _hurry(self) -> None:
        if self._driven:
            self._alarm.set(0.0)

    def _publish(self, row: Parked) -> None:
        begun = self._clock.now().mono

        def answered(verdict: Verdict, why: str) -> None:
            if self._sent is not None:
                at = self._clock.now()
                self._sent(row.out, verdict, why, at, at.mono - begun)
            if verdict == "ok":
                self._worker.published(row)
            elif verdict in ("refused", "unfit"):
                self._worker.failed(row, why)
            else:  # unsent or silent: the broker is away. The publish is not counted, and not tried again at once
                self._worker.back(row)
            self._hurry()

        self._adapter.publish(self._whole(row), answered)

    def _whole(self, row: Parked) -> Outgoing:
        """Return the copy with the original's wire image for its adapter.

        A body repaired by hand goes without the image.
        """
        whole = as_it_was(row.out)
        headers = due_now(whole.headers, self._clock.now().us)
        out = replace(whole, headers=headers, duplicate_salt=f"{row.id:x}.{row.parked_us:x}")
        reader = self._adapter.reader
        if row.wire is None or not isinstance(reader, SupportsImages):
            return out
        native = reader.native(row.wire)
        return replace(out, origin=Delivery(out.target, 0, None, False, native, reader))


def _image(out: Outgoing) -> bytes | None:
    if out.origin is None or not isinstance(out.origin.reader, SupportsImages):
        return None
    return out.origin.reader.image(out.origin.native)
