# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""An App's limbo at work: what is parked goes in, what is due goes out through the App's own adapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..adapter.protocol import Adapter, OnAnswer, Verdict
from ..clock import Clock
from ..errors import RedeliverError
from ..message import Delivery, Destination, Outgoing, SupportsImages
from ..redelivery.copies import RetryTerms, as_it_was
from ..redelivery.headers import due_now
from ..redelivery.order_places import FoundPlace, OrderPlace
from ..timers import SingleTimer
from . import Limbo, LimboWorker, Parked, Parking
from .store import LEASE, RETRY

DRIVEN_LEASE = 1e6  # seconds: nobody else can be about, and no sign of life has to be given


class LimboService:
    """Opened before anything is consumed, closed when everything is settled.

    `retry`: how often a target may refuse a message before it stays in the tables; None: for about three days.
    `driven`: by a clock that is moved by hand, so there is no thread. `park` may be called from any thread.
    """

    def __init__(
        self, url: str, adapter: Adapter, app_name: str, clock: Clock, *, retry: int | None = None, driven: bool = False
    ) -> None:
        self._adapter, self._driven = adapter, driven
        self._clock = clock
        lease = DRIVEN_LEASE if driven else LEASE
        self._limbo = Limbo(url, app=app_name, broker=adapter.broker, retry=retry or RETRY, clock=clock, lease=lease)
        self._clerk = LimboWorker(self._limbo, self._publish, clock=clock)
        self._open = False
        self._alarm = SingleTimer(adapter.call_later, self._turn)

    def open(self) -> None:
        """ConfigError, LimboError where the database cannot be had."""
        self._limbo.open()
        self._open = True

    def start(self) -> None:
        """From here on what is due is published."""
        if self._driven:
            self._turn()
        else:
            self._clerk.start()

    def park(
        self,
        out: Outgoing,
        due: float,
        answer: OnAnswer,
        /,
        terms: RetryTerms | None = None,
        places: Sequence[OrderPlace] = (),
    ) -> None:
        """Keep it until `due`, seconds since 1970; one answer: `ok` when it is on the disk, and `places` with it."""
        told = (terms.delay, terms.max_attempts, terms.failure_port) if terms is not None else ()
        parking = Parking(out, due, _image(out), *told)
        if places and out.origin is not None:
            parking = replace(parking, places=tuple(places), source=str(out.origin.destination))
        self._clerk.park(parking, answer)
        self._hurry()

    def places(self, source: Destination) -> list[FoundPlace]:
        """Return what an earlier process has remembered of the order of this source. LimboError."""
        return self._limbo.places(source)

    def forget_places(
        self, source: Destination, places: Sequence[tuple[str, int]], then: Callable[[], None] | None = None, /
    ) -> None:
        """Remove places, and call `then`, on another thread. Any thread."""
        self._clerk.forget_places(source, places, then)
        self._hurry()

    def close(self, timeout: float) -> None:
        """What was said is written first."""
        self._alarm.off()
        if self._open:
            self._clerk.stop(timeout)

    def _turn(self) -> None:
        """What the clerk's thread does, and again when the next is due: nobody else changes the database meanwhile."""
        self._alarm.off()
        rest = self._clerk.turn()
        try:
            due = self._limbo.next_due()
        except RedeliverError:  # the clerk has said it
            due = self._clock.now().wall + rest
        if due is None and self._clerk.owes:
            due = self._clock.now().wall + rest
        if due is not None:
            rest = max(min(rest, 0.1), due - self._clock.now().wall)
            self._alarm.set(rest)

    def look(self) -> None:
        """Look at the tables again: somebody may have changed them by SQL. The service's own thread does so anyway."""
        self._hurry()

    def _hurry(self) -> None:
        if self._driven:
            self._alarm.set(0.0)

    def _publish(self, row: Parked) -> None:
        def answered(verdict: Verdict, why: str) -> None:
            if verdict == "ok":
                self._clerk.published(row)
            elif verdict in ("refused", "unfit"):
                self._clerk.failed(row, why)
            else:  # unsent or silent: the broker is away. Not counted, and not tried at once
                self._clerk.back(row)
            self._hurry()

        self._adapter.publish(self._whole(row), answered)

    def _whole(self, row: Parked) -> Outgoing:
        """The copy with what its adapter wants of the original; not that of a body that somebody has repaired."""
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
