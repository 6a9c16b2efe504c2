# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The inputs and the commands of the interceptor, as values, and the protocol of whoever executes the commands.

`EventDispatcher` hands each command to a `CommandHandler`: that of an App's runner, a drop-in wrapper, a session or a
simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from ..adapter.capabilities import Mechanism, Settlement
from ..adapter.protocol import Adapter, SupportsDelayedRelease, TransferVerdict, Verdict
from ..clock import Moment
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from .copies import Provenance, RetryTerms
from .outbox import QueuedSend

Token = int  # of one story


# -- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arrived:
    """A delivery that may have a past: redelivered, or with headers of ours.

    `aside_us`: it is parked until then, for an earlier one's sake; microseconds since 1970. 0: it is not.
    """

    delivery: Delivery
    at: Moment
    aside_us: int = 0


@dataclass(frozen=True, slots=True)
class HandlerSucceeded:
    """A handler succeeded, of a delivery with a story or from a lost generation, or with `sends` of its own.

    `ran`: seconds it took.
    """

    delivery: Delivery
    at: Moment
    ran: float = 0.0
    sends: tuple[QueuedSend, ...] = ()


@dataclass(frozen=True, slots=True)
class HandlerFailed:
    """A handler failed. `u` in [0, 1) seeds the drawing of the delay; `undecodable`: it never got to run."""

    delivery: Delivery
    error: BaseException
    failure: Failure
    at: Moment
    u: float
    ran: float = 0.0
    undecodable: bool = False
    counted: bool = True  # False: it was tried to see whether the breaker can close


@dataclass(frozen=True, slots=True)
class NotRun:
    """It is not run, or not to the end: we stop, or its generation is over. It stays unsettled."""

    delivery: Delivery
    at: Moment


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of a story has run out."""

    token: Token
    at: Moment


@dataclass(frozen=True, slots=True)
class CopyAnswered:
    """What became of one copy."""

    token: Token
    copy_id: str
    ok: bool
    why: str
    at: Moment
    silent: bool = False  # nobody knows whether the copy is there
    unfit: bool = False  # it would be refused again, however often it is tried


@dataclass(frozen=True, slots=True)
class TransactionAnswered:
    """What became of a transaction."""

    token: Token
    verdict: TransferVerdict
    why: str
    at: Moment


@dataclass(frozen=True, slots=True)
class SettleWritten:
    """A story's settle is on its way."""

    token: Token


@dataclass(frozen=True, slots=True)
class GenerationLost:
    """A generation is over. `running`: its deliveries that are still in a handler."""

    generation: int
    running: Sequence[Delivery] = ()


@dataclass(frozen=True, slots=True)
class ConsumerRetired:
    """The code cancelled a consumer: nothing of its generation is to be held, and what runs can still be settled."""

    generation: int


@dataclass(frozen=True, slots=True)
class StopRequested:
    """Nothing is to be held any more."""

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
    """Call the handler with this delivery."""

    delivery: Delivery


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Feed `TimerFired(token)` after so many seconds; a new Wait for a token replaces the old one."""

    token: Token
    seconds: float


@dataclass(frozen=True, slots=True)
class CancelTimer:
    """The timer of this token is not needed any more."""

    token: Token


@dataclass(frozen=True, slots=True)
class PublishCopy:
    """Publish this copy, or park it until `due_us` (microseconds since 1970), and feed its `CopyAnswered`."""

    token: Token
    out: Outgoing
    after: float
    due_us: int | None = None
    terms: RetryTerms | None = None  # of a retry copy that is parked


def copy_answered(c: PublishCopy, verdict: Verdict, why: str, at: Moment) -> CopyAnswered:
    """Return what is to be fed for the answer to a `PublishCopy`."""
    return CopyAnswered(c.token, c.out.copy_id, verdict == "ok", why, at, verdict == "silent", verdict == "unfit")


@dataclass(frozen=True, slots=True)
class PublishAndSettle:
    """Publish these copies, each after so many seconds, and accept the original, as one transaction.

    Then feed `TransactionAnswered`.
    """

    token: Token
    delivery: Delivery
    outs: tuple[tuple[Outgoing, float], ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Give our word to the broker, then feed `SettleWritten(token)`.

    With `marks` it is released for `after` seconds, and comes back with these headers; only where the plan's ways
    have `postpone`. `returns`: it is accepted because a retry copy of it is kept, which comes again.
    """

    token: Token
    delivery: Delivery
    word: Settlement
    marks: Mapping[str, str] | None = None
    after: float = 0.0
    returns: bool = False


def send_settlement(adapter: Adapter, c: Settle, written: Callable[[], None]) -> None:
    """Carry out a `Settle`."""
    if c.marks is None:
        adapter.settle(((c.delivery, c.word),), written=written)
    else:
        cast(SupportsDelayedRelease, adapter).postpone(c.delivery, c.marks, c.after, written=written)


@dataclass(frozen=True, slots=True)
class RecordAttempt:
    """One attempt, told after the fact. Seconds, except where `_us` says otherwise."""

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
    """Hand no message of this source to a handler until `ResumeSource`. Said once."""

    source: Destination
    reason: str
    loud: bool = True  # a person may have to act; not for a full hold budget, which passes by itself


@dataclass(frozen=True, slots=True)
class ResumeSource:
    source: Destination


@dataclass(frozen=True, slots=True)
class Log:
    """Something for the log."""

    level: Literal["debug", "info", "warning", "error"]
    text: str


@dataclass(frozen=True, slots=True)
class OrderUpdate:
    """Of an ordered source: what those that wait behind this delivery have to know.

    `rests`: it will be run again here. Else it is over, or, where `returns` is not empty, comes again under that
    message key, not before `not_before_us`. `left`: it was not settled, and is the broker's again.
    """

    delivery: Delivery
    rests: bool = False
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
    """Executes commands. None of these methods blocks or raises."""

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
