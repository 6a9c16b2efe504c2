# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the middleware needs from outside, as protocols: clock, ledger, journal, limbo."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from .message import Delivery, Outgoing


class Moment(NamedTuple):
    """One reading of both clocks: `mono` for holds and timeouts, `wall` (since 1970) for headers. Seconds."""

    mono: float
    wall: float

    @property
    def us(self) -> int:
        """Wall time in microseconds."""
        return round(self.wall * 1_000_000)


class Clock(Protocol):
    def now(self) -> Moment: ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Moment:
        return Moment(time.monotonic(), time.time())


class Journal(Protocol):
    """Where attempt records go. Never blocks, never raises (rule 12)."""

    def append(self, record: Any, /) -> None: ...
    def close(self, timeout: float = 5.0) -> None: ...


class Park(Protocol):
    """Where copies wait that neither we nor the broker should hold. Implemented by `keeper.Keeper`."""

    def park(self, out: Outgoing, due: float, answer: Callable[[Any, str], None], /) -> None: ...  # one answer, once


class Ledger(Protocol):
    """What is known of messages of which the broker keeps the original. Implemented by `counting.MemoryLedger`."""

    back: set[str]  # keys of what went back to the broker

    def find(self, key: str, /) -> Any | None: ...
    def open(self, key: str, make: Callable[[], Any], /) -> Any: ...
    def forget(self, key: str, /) -> None: ...
    def save(self, key: str, /) -> None: ...  # its entry has changed
    def over(self, key: str, /) -> None: ...  # its settle is written: another process need not know of it


class Gate(Protocol):
    """Lets deliveries through to their handlers once it is on record that they are there. Implemented by `gate.Gate`.

    Called from any thread; none of these waits.
    """

    def arrived(self, batch: Sequence[Delivery], /) -> None: ...
    def run(self, delivery: Delivery, /) -> None: ...
    def ended(self, delivery: Delivery, /) -> None: ...  # its run, or it will not be run
    def fed(self) -> None: ...  # the interceptor has dealt with an input; its lock is held
    def stop(self) -> list[Delivery]: ...  # lets nothing through from now on; answers what waited
