# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The seam between redeliver-mw and a driver: `Adapter` below, `Sink` above.

Every method of an adapter may be called from any thread and returns at once. Its answers come through callbacks, on a
thread of the adapter's. It settles only deliveries of live generations and drops the others (settle-once); it acks
cumulatively only over deliveries that it was told are accepted (safe-cumulative-ack); it answers `ok` for a copy only
when the broker keeps it (confirm-before-settle).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ..errors import RedeliverError
from ..message import Delivery, Destination, MessageReader, Outgoing
from ..timers import Cancel
from .capabilities import BrokerLimit, Capabilities, Settlement

# Of a copy. `refused`: the broker said no; `unfit`: because of the copy itself, so that every further try would be
# refused, too; `unsent`: it was not asked, or we are closing; `silent`: nobody knows.
Verdict = Literal["ok", "refused", "unfit", "unsent", "silent"]
OnAnswer = Callable[[Verdict, str], None]  # the verdict, and for the log what the broker said
# Of a transaction. `refused`: nothing was sent, and the delivery is unsettled and ours; `abandoned`: it is the
# broker's again, or the broker was silent; `lost`: its link was lost for whatever other reason, and the answer with it.
TransferVerdict = Literal["ok", "refused", "abandoned", "lost"]
OnTransferred = Callable[[TransferVerdict, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """How a source is to be consumed; a topic as the durable subscription that `source` names.

    `prefetch` deliveries may be unsettled at once (>= 1). `ladder` is the longest delay in seconds that
    scheduled copies for this source must be able to wait (0: none are wanted).
    """

    source: Destination
    prefetch: int = 100
    exclusive: bool = False  # no other consumer on this source: lets a count survive a nack
    declare: bool = False  # make the source when it is missing
    helpers: bool = True  # make our own helper queues
    ladder: float = 0.0
    selector: str = ""  # in the broker's own language; empty: every message
    postpones: bool = False  # deliveries are given back with a delay: refused where the source does not keep it


class Sink(Protocol):
    """What an adapter tells. Called on the adapter's threads; must return quickly and never raises."""

    def connected(self, capabilities: Capabilities, /) -> None: ...  # at each (re)connect, before any delivery
    def ready(self, source: Destination, generation: int, /) -> None: ...  # subscribed; deliveries may follow
    def arrived(self, batch: Sequence[Delivery], /) -> None: ...
    def lost(
        self, generation: int, error: BaseException | None, /
    ) -> None: ...  # its deliveries are the broker's again
    def failed(self, error: RedeliverError, source: Destination | None, /) -> None: ...  # not without a person


class Adapter(Protocol):
    """One connection to one broker, with a publishing link beside it."""

    @property
    def reader(self) -> MessageReader: ...  # of its driver's messages
    @property
    def capabilities(self) -> Capabilities: ...
    @property
    def broker(self) -> str: ...  # host:port/vhost, for logs and journal; no secrets
    def start(self, sink: Sink, /) -> None: ...
    def subscribe(self, subscription: Subscription, /) -> None: ...
    def settle(
        self, words: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None: ...  # `written`: the words are on their way, in a live generation
    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None: ...  # one answer, once
    def move(
        self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /
    ) -> None: ...  # send these copies, each after so many seconds, and accept the delivery: all or nothing
    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None: ...
    def browse(
        self, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None], /
    ) -> None: ...
    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None], /) -> None: ...
    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel: ...
    def close(self, timeout: float = 10.0, /) -> None: ...  # blocks until closed; not from the adapter's thread


@runtime_checkable
class SupportsLadderExtension(Protocol):
    """An adapter whose scheduled copies need something made for them, and that can make more of it while it consumes.

    `prolong`: copies for this source, which is subscribed to, must be able to wait `seconds` from now on.
    """

    def prolong(self, source: Destination, seconds: float, answer: OnAnswer, /) -> None: ...  # one answer, once


class SupportsDelayedRelease(Adapter, Protocol):
    """Of a dialect with `delayed_release` at some of its sources: its capabilities are `by_source`."""

    def capabilities_at(
        self, source: Destination, answer: Callable[[Capabilities | RedeliverError], None], /, *, declare: bool
    ) -> None: ...  # what can be done there; `declare`: it is made when it is missing
    def postpone(
        self, delivery: Delivery, marks: Mapping[str, str], after: float, /, *, written: Callable[[], None]
    ) -> None: ...  # release it, uncounted, for `after` seconds; it comes back with these headers in place of ours


@runtime_checkable
class SupportsLimits(Protocol):
    """An adapter that can read what the broker itself does with messages of a source that come back too often.

    One answer, once. What cannot be read is no error: `Trust.UNKNOWN`, and why. The source need not be there yet.
    """

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None: ...


@runtime_checkable
class SupportsScheduleWait(Protocol):
    """An adapter whose delayed copies wait in something that is not to be trusted with them as soon as it is there.

    `schedule_wait`: for how many seconds yet no copy that is to wait `seconds` can be scheduled for this source; its
    messages are held or parked meanwhile. From any thread.
    """

    def schedule_wait(self, source: Destination, seconds: float, /) -> float: ...


@runtime_checkable
class SupportsLedgerScope(Protocol):
    """An adapter whose ledger is kept for more than one host and port: a cluster, or a list of hosts.

    A count outlives the connection, and the next one may go to another node.
    """

    @property
    def ledger_scope(self) -> str: ...  # known once the adapter is connected; no secrets


def ledger_scope_of(adapter: Adapter) -> str:
    """Return what the ledgers of this adapter are kept for: its scope if it has one, else its broker."""
    return adapter.ledger_scope if isinstance(adapter, SupportsLedgerScope) else adapter.broker


@runtime_checkable
class SupportsPause(Protocol):
    """An adapter that can stop taking messages of a source, while its generation and what is unsettled in it live on.

    `rest`: `rested` is called when nothing more comes, at most once. A source stays at rest, also through reconnects,
    until `go_on`.
    """

    def rest(self, source: Destination, rested: Callable[[], None], /) -> None: ...
    def go_on(self, source: Destination, /) -> None: ...


class ConnectionReport(NamedTuple):
    """Describes what one connection of an adapter does. Texts hold no secrets; an empty one says nothing."""

    role: str  # such as "consume" or "publish"
    state: str  # "connecting", "connected" or "closed"
    since: float  # in this state: seconds, wall time
    last_error: str = ""  # also of an earlier connection
    last_error_at: float = 0.0  # seconds, wall time; 0: there was none
    blocked: str = ""  # why the broker takes nothing from it although it is connected


@runtime_checkable
class SupportsConnectionReports(Protocol):
    """An adapter that tells how its connections fare. Both may be called from any thread, and do no I/O."""

    def connection_reports(self) -> Sequence[ConnectionReport]: ...
    def source_trouble(self, source: Destination, /) -> str: ...  # why it is not consumed although we are connected
