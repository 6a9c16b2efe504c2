# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the interface between redeliver-mw and a driver: `Adapter` below, `Sink` above.

Every method of an adapter is thread-safe and returns at once. Its answers come through callbacks, on a thread of the
adapter's. The adapter settles only deliveries of live generations and drops the others (settle-once); it acks
cumulatively only over deliveries that were each accepted (safe-cumulative-ack); it answers `ok` for a copy only when
the broker has stored the copy (confirm-before-settle).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from ..errors import RedeliverError
from ..message import Delivery, Destination, MessageReader, Outgoing
from ..timers import Cancel
from .capabilities import BrokerLimit, Capabilities, Settlement
from .inspection import Inspection, InspectionRequest

# The outcome of a copy. `refused`: the broker refused it; `unfit`: because of the copy itself, so that every further
# try would be refused too; `unsent`: it was not sent, or we are closing; `silent`: the outcome is unknown.
Verdict = Literal["ok", "refused", "unfit", "unsent", "silent"]
OnAnswer = Callable[[Verdict, str], None]  # the verdict, and the broker's own text for the log
# The outcome of a transaction. `refused`: nothing was sent, and the delivery is unsettled and with us; `abandoned`: the
# broker has the message again, or the broker was silent; `lost`: its link was lost for any other reason, and the answer
# with it.
TransferVerdict = Literal["ok", "refused", "abandoned", "lost"]
OnTransferred = Callable[[TransferVerdict, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Describes how to consume a source; a topic is consumed as the durable subscription that `source` names.

    `prefetch` deliveries may be unsettled at once (>= 1). `ladder` is the longest delay in seconds that scheduled
    copies for this source must support (0: no copies are scheduled).
    """

    source: Destination
    prefetch: int = 100
    exclusive: bool = False  # no other consumer on this source: lets a count survive a nack
    declare: bool = False  # make a missing source
    helpers: bool = True  # make our own helper queues
    ladder: float = 0.0
    selector: str = ""  # in the broker's own language; empty: every message
    postpones: bool = False  # deliveries are released with a delay: refused if the source does not keep it


class Sink(Protocol):
    """Receives an adapter's reports. Called on the adapter's threads; must return quickly and never raise."""

    def connected(self, capabilities: Capabilities, /) -> None:
        """Note that the adapter is connected, now or again. Called before any delivery."""

    def ready(self, source: Destination, generation: int, /) -> None:
        """Note that the source is subscribed to, in this generation; deliveries may follow."""

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        """Take deliveries that have arrived, in the order in which they were delivered."""

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        """Note the end of a generation: the broker has the messages of its deliveries again.

        `error`: why; None if there was no error.
        """

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        """Note an error from which the adapter cannot recover without a person.

        `source`: the source that cannot be consumed; None if the adapter has given up altogether.
        """


class Adapter(Protocol):
    """Is one connection to one broker, with a separate publishing link."""

    @property
    def reader(self) -> MessageReader:
        """Return what reads the driver's messages."""

    @property
    def capabilities(self) -> Capabilities:
        """Return what the broker can do. Exact once the adapter is connected."""

    @property
    def broker(self) -> str:
        """Return host:port/vhost for logs and the journal, without secrets."""

    def start(self, sink: Sink, /) -> None:
        """Connect in the background, and report to `sink` from now on. Called once."""

    def subscribe(self, subscription: Subscription, /) -> None:
        """Consume a source from now on, also after reconnects, until the adapter is closed. Called on any thread."""

    def settle(
        self, settlements: Sequence[tuple[Delivery, Settlement]], /, *, written: Callable[[], None] | None = None
    ) -> None:
        """Settle deliveries, in order. Called on any thread; never waits.

        `written` is called once the settlements were sent, in a live generation. A settlement of a generation that is
        over is dropped (settle-once).
        """

    def publish(self, out: Outgoing, answer: OnAnswer, /, *, after: float = 0.0) -> None:
        """Publish one copy, which is to wait `after` seconds at the broker. One answer, once, on the adapter's thread.

        Called on any thread. Never waits, never raises: a copy that cannot be sent is answered.
        """

    def move(self, delivery: Delivery, outs: Sequence[tuple[Outgoing, float]], answer: OnTransferred, /) -> None:
        """Send each copy after its seconds, and accept the delivery: all or nothing. One answer, once.

        Only where the capabilities have `atomic_move`.
        """

    def check(self, target: Destination, answer: OnAnswer, /, *, declare: bool) -> None:
        """Answer whether copies can be sent to a target, which is made if `declare` and missing. One answer, once."""

    def browse(
        self, source: Destination, limit: int, answer: Callable[[Sequence[Delivery] | RedeliverError], None], /
    ) -> None:
        """Answer with up to `limit` messages of a source, or with an error.

        The messages stay in the source, or are given back to it.
        """

    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None], /) -> None:
        """Answer with the number of messages that are ready in a source, or with an error."""

    def call_later(self, seconds: float, fn: Callable[[], None], /) -> Cancel:
        """Call `fn` once on the adapter's thread after `seconds`, unless the returned function is called before."""

    def close(self, timeout: float = 10.0, /) -> None:
        """Close all connections, and block until they are closed, at most `timeout` seconds.

        Not called on the adapter's thread. The broker has the messages of unsettled deliveries again.
        """


@runtime_checkable
class SupportsLadderExtension(Protocol):
    """Is an adapter whose scheduled copies need helper queues, and that can make more of them while it consumes.

    `prolong`: copies for this source, which is subscribed to, must be able to wait `seconds` from now on.
    """

    def prolong(self, source: Destination, seconds: float, answer: OnAnswer, /) -> None:
        """Make what copies need to wait so long for this source. One answer, once."""


class SupportsDelayedRelease(Adapter, Protocol):
    """Is an adapter of a dialect with `delayed_release` at some of its sources: its capabilities are `by_source`."""

    def capabilities_at(
        self, source: Destination, answer: Callable[[Capabilities | RedeliverError], None], /, *, declare: bool
    ) -> None:
        """Answer with the capabilities at a source, or with an error. `declare`: make the source if it is missing."""

    def postpone(
        self, delivery: Delivery, marks: Mapping[str, str], after: float, /, *, written: Callable[[], None]
    ) -> None:
        """Release a delivery, uncounted, for `after` seconds.

        The message returns with the headers `marks` in place of ours. `written` as for `settle`.
        """


@runtime_checkable
class SupportsLimits(Protocol):
    """Is an adapter that can read what the broker itself does with messages of a source that return too often.

    There is one answer, once. A limit that cannot be read is no error: the answer is `Trust.UNKNOWN`, and why. The
    source need not exist yet.
    """

    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None], /) -> None:
        """Answer with the limit of the broker at this source."""


@runtime_checkable
class SupportsInspection(Protocol):
    """Is an adapter that can find out how its broker and some of its queues are set up, for `redeliver doctor`."""

    def inspect(self, request: InspectionRequest, /) -> Inspection:
        """Return what the broker shows, and with `request.probe` what a probe shows. Blocks; on no adapter's thread.

        The adapter is connected. A probe uses queues of its own and removes them, also after an error or an interrupt;
        no message of a queue in the request is consumed or changed. What cannot be seen is reported as unknown. Raises
        BrokerError only if the connection is lost.
        """


@runtime_checkable
class SupportsScheduleWait(Protocol):
    """Is an adapter whose delayed copies wait in queues that cannot be trusted immediately after they were made.

    `schedule_wait`: for how many more seconds no copy with a delay of `seconds` can be scheduled for this source; its
    messages are held or parked meanwhile. Thread-safe.
    """

    def schedule_wait(self, source: Destination, seconds: float, /) -> float:
        """Return the seconds, 0 or more, until a copy that waits so long can be scheduled for this source."""


@runtime_checkable
class SupportsLedgerScope(Protocol):
    """Is an adapter whose ledger is kept for more than one host and port: a cluster, or a list of hosts.

    A count outlives the connection, and the next connection may go to another node.
    """

    @property
    def ledger_scope(self) -> str:
        """Return what names the ledgers, without secrets. Known once the adapter is connected."""


def ledger_scope_of(adapter: Adapter) -> str:
    """Return the scope of this adapter's ledgers: its ledger scope if it has one, else its broker."""
    return adapter.ledger_scope if isinstance(adapter, SupportsLedgerScope) else adapter.broker


@runtime_checkable
class SupportsPause(Protocol):
    """Is an adapter that can stop taking messages of a source.

    Its generation and its unsettled deliveries stay valid.

    `rest`: `rested` is called when no more messages arrive, at most once. A source stays stopped, also through
    reconnects, until `go_on`.
    """

    def rest(self, source: Destination, rested: Callable[[], None], /) -> None:
        """Stop taking messages of a source. Called on any thread."""

    def go_on(self, source: Destination, /) -> None:
        """Take messages of a source again. Called on any thread."""


class ConnectionReport(NamedTuple):
    """Describes the state of one connection of an adapter.

    Texts hold no secrets, and are empty if there is nothing to report.
    """

    role: str  # such as "consume" or "publish"
    state: str  # "connecting", "connected" or "closed"
    since: float  # in this state: seconds, wall time
    last_error: str = ""  # may be of an earlier connection
    last_error_at: float = 0.0  # seconds, wall time; 0: there was none
    blocked: str = ""  # why the broker accepts nothing from the connection although it is connected
    last_error_code: str = ""  # of `last_error`, if it is an error of redeliver-mw


@runtime_checkable
class SupportsConnectionReports(Protocol):
    """Is an adapter that reports the state of its connections. Both methods are thread-safe. No I/O."""

    def connection_reports(self) -> Sequence[ConnectionReport]:
        """Return the state of each connection."""

    def source_trouble(self, source: Destination, /) -> str:
        """Return why the source is not consumed although the adapter is connected; empty if it is."""
