# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the inputs and the commands of the interceptor, as values, and the protocol of the commands' executor.

`EventDispatcher` passes each command to a `CommandHandler`, which belongs to an App's runner, a drop-in wrapper, a
session or a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from ..adapter.capabilities import Mechanism, Settlement
from ..adapter.protocol import TransferVerdict, Verdict
from ..clock import Moment
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from .copies import Provenance, RetryTerms
from .outbox import QueuedSend

Token = int  # of one tracked delivery


# -- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """Reports a delivery that may have history: redelivered, or with headers of ours.

    `aside_us`: the delivery is parked until then, because an earlier message of its key comes first; microseconds since
    1970. 0: it is not parked.
    """

    delivery: Delivery
    at: Moment
    aside_us: int = 0


@dataclass(frozen=True, slots=True)
class HandlerSucceeded:
    """Reports that a handler succeeded.

    The delivery is a tracked one, one of a lost generation, or one with `sends` of its own.

    `ran`: seconds that the handler took.
    """

    delivery: Delivery
    at: Moment
    ran: float = 0.0
    sends: tuple[QueuedSend, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """Reports that a handler failed.

    `u` in [0, 1) seeds the random delay; `undecodable`: the handler was not called.
    """

    delivery: Delivery
    error: BaseException
    failure: Failure
    at: Moment
    u: float
    ran: float = 0.0
    undecodable: bool = False
    counted: bool = True  # False: the run was a test whether the breaker can close


@dataclass(frozen=True, slots=True)
class NotRun:
    """Reports that a delivery is not run, or not to the end, because we stop or its generation is over.

    It stays unsettled.
    """

    delivery: Delivery
    at: Moment


@dataclass(frozen=True, slots=True)
class TimerFired:
    """Reports that the timer of a tracked delivery has fired."""

    token: Token
    at: Moment


@dataclass(frozen=True, slots=True)
class CopyAnswered:
    """Reports the outcome of one copy."""

    token: Token
    copy_id: str
    verdict: Verdict
    why: str
    at: Moment


@dataclass(frozen=True, slots=True)
class TransactionAnswered:
    """Reports the outcome of a transaction."""

    token: Token
    verdict: TransferVerdict
    why: str
    at: Moment


@dataclass(frozen=True, slots=True)
class SettleWritten:
    """Reports that the settlement of a tracked delivery was sent."""

    token: Token


@dataclass(frozen=True, slots=True)
class GenerationLost:
    """Reports that a generation is over. `running`: its deliveries that are still in a handler."""

    generation: int
    running: Sequence[Delivery] = ()


@dataclass(frozen=True, slots=True)
class ConsumerRetired:
    """Reports that the user's code cancelled a consumer.

    None of its deliveries may be held, and running ones can still be settled.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Reports that no delivery may be held any more."""

    at: Moment


Input = (
    Arrived
    | HandlerSucceeded
    | HandlerFailed
    | NotRun
    | TimerFired
    | CopyAnswered
    | TransactionAnswered
    | SettleWritten
    | GenerationLost
    | ConsumerRetired
    | StopRequested
)


# -- commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunHandler:
    """Asks to call the handler with this delivery."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Asks to feed `TimerFired(token)` after this many seconds; a new timer for a token replaces the old one."""

    token: Token
    seconds: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """Asks to cancel the timer of this token."""

    token: Token


@dataclass(frozen=True, slots=True)
class PublishCopy:
    """Asks to publish this copy, or to park it until `due_us`, and to feed its `CopyAnswered`.

    `due_us` is in microseconds since 1970.
    """

    token: Token
    out: Outgoing
    after: float
    due_us: int | None = None
    terms: RetryTerms | None = None  # of a parked retry copy


@dataclass(frozen=True, slots=True)
class PublishAndSettle:
    """Asks to publish these copies, each after its seconds, and to accept the original, as one transaction.

    Afterwards `TransactionAnswered` is fed.
    """

    token: Token
    delivery: Delivery
    outs: tuple[tuple[Outgoing, float], ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Asks to settle a delivery at the broker, and then to feed `SettleWritten(token)`.

    With `marks` the delivery is released for `after` seconds, and the message returns with these headers; only if the
    plan's options have `postpone`. `returns`: the delivery is accepted because a retry copy of its message is stored,
    which will be delivered again.
    """

    token: Token
    delivery: Delivery
    settlement: Settlement
    marks: Mapping[str, str] | None = None
    after: float = 0.0
    returns: bool = False


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """Holds one attempt, reported after the fact. Seconds, except where `_us` says otherwise."""

    delivery: Delivery
    signature: Provenance
    past: Past
    key: str
    outcome: Literal["accepted", "redelivered", "dead_lettered", "discarded", "kept", "released"]
    at: Moment
    ran: float
    reason: str = ""
    failure: Failure | None = None
    mechanism: Mechanism | None = None
    delay: float | None = None
    delay_base: float | None = None
    targets: tuple[Destination, ...] = ()


@dataclass(frozen=True, slots=True)
class PauseSource:
    """Asks to hand no message of this source to a handler until `ResumeSource`. Given once."""

    source: Destination
    reason: str
    loud: bool = True  # a person may have to act; False for a full hold budget, which frees itself


@dataclass(frozen=True, slots=True)
class ResumeSource:
    """Asks to hand messages of this source to handlers again, after a `PauseSource`."""

    source: Destination


@dataclass(frozen=True, slots=True)
class Log:
    """Asks to write a line to the log. `event`: the code of what the line reports."""

    level: Literal["debug", "info", "warning", "error"]
    text: str
    event: str = ""


@dataclass(frozen=True, slots=True)
class OrderUpdate:
    """Tells the messages of an ordered source that wait behind this delivery what became of it.

    `retries`: the message will be run again here. Otherwise the message is finished, or, if `returns` is not empty, it
    will be delivered again under that message key, not before `not_before_us`. `left`: the delivery was not settled,
    and the broker has the message again.
    """

    delivery: Delivery
    retries: bool = False
    returns: str = ""
    not_before_us: int | None = None
    left: bool = False


Command = (
    RunHandler
    | StartTimer
    | CancelTimer
    | PublishCopy
    | PublishAndSettle
    | Settle
    | RecordAttempt
    | PauseSource
    | ResumeSource
    | Log
    | OrderUpdate
)


class CommandHandler(Protocol):
    """Executes commands. No method blocks or raises."""

    def run(self, c: RunHandler, /) -> None: ...
    def wait(self, c: StartTimer, /) -> None: ...
    def forget(self, c: CancelTimer, /) -> None: ...
    def store(self, c: PublishCopy, /) -> None: ...
    def transact(self, c: PublishAndSettle, /) -> None: ...
    def settle(self, c: Settle, /) -> None: ...
    def record(self, c: RecordAttempt, /) -> None: ...
    def halt(self, c: PauseSource, /) -> None: ...
    def resume(self, c: ResumeSource, /) -> None: ...
    def say(self, c: Log, /) -> None: ...
    def place(self, c: OrderUpdate, /) -> None: ...
