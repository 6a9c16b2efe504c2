# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Announces what happens to messages, sources and connections to sinks: metrics, traces, notifications.

A `TelemetrySink` overrides the moments that it wants to learn of. A `TelemetryHook` stands between the sinks and the
code that handles messages, in an App and in a drop-in wrapper. The hook has one attribute for each moment: a function,
or None if no sink wants that moment, so that a moment that nobody wants costs one comparison.

What is announced for a message that fails once, is held, and is then handled:

    run_begins        the handler is about to be called
    run_ended         the handler has raised
    attempt_recorded  outcome "redelivered", mechanism "hold", delay 4 s
    run_begins        4 s later
    run_ended         the handler has returned
    settled           the broker was told that the message is accepted
    attempt_recorded  outcome "accepted", before or after the line above

For a message that is handled at its first attempt:

    run_begins, run_ended, handled
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..adapter.capabilities import Settlement
from ..clock import Moment
from ..message import Delivery, Destination, Outgoing
from ..redelivery.commands import RecordAttempt
from .state import ObservedConsumer

__all__ = ["MOMENTS", "NO_TELEMETRY", "TelemetryHook", "TelemetrySink"]

log = logging.getLogger("redeliver_mw")


class TelemetrySink:
    """Learns of moments. A subclass overrides the methods of the moments that it wants.

    No method may block. What a method raises is logged once, and changes nothing (log-after-the-fact). Methods are
    called on several threads at the same time; each one says on which.

    `wants_broker_state`: an App is to look every few seconds at its dead-letter queues and its limbo, and to report
    them in its state. `wants_all_run_ends`: False if `run_ended` need not be announced before `handled`, which says
    the same of a message that is handled at its first attempt; that saves a call for almost every message.
    `wants_run_times`: False if `at` and `ran` of these two are not used, which saves two readings of the clock.
    """

    wants_broker_state = False
    wants_all_run_ends = True
    wants_run_times = True

    # -- consumers --------------------------------------------------------------------------------

    def started(self, consumer: ObservedConsumer, /) -> None:
        """Note that an App has assembled its parts, or a drop-in wrapper has its connection. Before its first message.

        `consumer` reports its present state whenever it is asked. A sink that keeps the consumer keeps a weak reference
        to it, because nothing announces the end of a drop-in wrapper.
        """

    def stopped(self, consumer: ObservedConsumer, /) -> None:
        """Note that an App has stopped, after its last message and before its journal is closed."""

    # -- runs of handlers, on the handler's thread, or in its task ----------------------------------

    def run_begins(self, delivery: Delivery, /) -> None:
        """Note that the handler is about to be called with a delivery.

        Called on the handler's thread, or in its task: the handler is called in the same thread and context. One of
        `run_ended` and `run_cancelled` follows, in the same thread and context. A handler with `batch=` has this
        announced for each delivery of a batch.
        """

    def run_goes_on(self, delivery: Delivery, /) -> None:
        """Note that the run goes on in a task of an event loop, which has a copy of the present context.

        Called by drop-in wrappers of coroutines in the context of `run_begins`; what follows is announced in the task.
        """

    def run_ended(self, delivery: Delivery, error: BaseException | None, at: Moment, ran: float, /) -> None:
        """Note that the handler has returned, or raised `error`, after `ran` seconds. Nothing is decided yet.

        An `errors.Undecodable` means that the body could not be decoded and the handler was not called. `ran` is 0 for
        a delivery whose generation was lost meanwhile. `at` and `ran` may both be 0 if no sink wants them.
        """

    def run_cancelled(self, delivery: Delivery, /) -> None:
        """Note that a run has no result, because the App stops or its user's program ends. The message is unsettled."""

    # -- outcomes -----------------------------------------------------------------------------------

    def handled(self, delivery: Delivery, at: Moment, ran: float, /) -> None:
        """Note that a message was handled at its first attempt, and that its settlement was handed to the driver.

        Called on the handler's thread. The journal has one record, or one count, for each call. `at` and `ran`: as of
        `run_ended`.
        """

    def attempt_recorded(self, attempt: RecordAttempt, /) -> None:
        """Note the outcome of every other attempt, after the fact: the copy is confirmed, or the delay has begun.

        Called with the interceptor's lock held, on any thread. The journal has one record for each call. `outcome`,
        `reason`, `failure`, `mechanism`, `delay` and `targets` say what has happened. An outcome "dead_lettered" comes
        once every target has confirmed its copy, or the limbo has it. An attempt need not have called the handler: a
        message that has expired is recorded too.
        """

    # -- copies and settlements, on the thread that hears the broker's answer ------------------------

    def copy_sent(self, copy: Outgoing, after: float, parked: bool, /) -> None:
        """Note that a copy is handed to the driver, or with `parked` to the limbo.

        The copy is to wait `after` seconds at the broker. Copies that are sent in a transaction with their settlement
        are announced one by one.
        """

    def copy_answered(self, copy: Outgoing, verdict: str, why: str, at: Moment, seconds: float, /) -> None:
        """Note the broker's, or the limbo's, answer to a copy, `seconds` after it was handed over.

        `verdict`: "ok" for a confirmed copy; "refused", "unfit", "unsent" or "silent" otherwise, and for a transaction
        "abandoned" or "lost". `why`: the broker's text.
        """

    def parked_copy_answered(self, copy: Outgoing, verdict: str, why: str, at: Moment, seconds: float, /) -> None:
        """Note the broker's answer to a copy that the limbo has sent, `seconds` after it was handed to the driver.

        `verdict` and `why`: as of `copy_answered`. The copy has no `origin`, and may be one of an earlier process.
        """

    def settled(self, delivery: Delivery, settlement: Settlement, at: Moment, seconds: float, /) -> None:
        """Note that the settlement of a delivery was written, `seconds` after it was handed to the driver.

        Not announced for a message that is handled at its first attempt: `handled` is. A settlement that a transaction
        has made is announced as "accepted".
        """

    # -- sources and connections, on any thread -------------------------------------------------------

    def breaker_changed(self, source: Destination, state: str, why: str, seconds: float, /) -> None:
        """Note the new state of a source's breaker.

        `state`: "open", for so many `seconds` and because of `why`, "half-open" or "closed". A breaker whose tried
        message failed is announced as open again.
        """

    def source_paused(self, source: Destination, why: str, loud: bool, /) -> None:
        """Note that no message of a source is handed to its handler. `loud`: a person may have to act.

        Not announced for a pause that a breaker, or the application itself, has asked for.
        """

    def source_resumed(self, source: Destination, /) -> None:
        """Note the end of a pause that was announced."""

    def connected(self, broker: str, /) -> None:
        """Note that the connection to the broker is up, now or again. Not announced by drop-in wrappers."""

    def subscribed(self, source: Destination, at: Moment, /) -> None:
        """Note that a source is consumed, now or again."""

    def subscription_lost(self, source: Destination, error: BaseException | None, /) -> None:
        """Note that a source is no longer consumed, because its connection, channel or link is gone.

        Not announced at the stop of an App.
        """


MOMENTS: Final = tuple(name for name, value in vars(TelemetrySink).items() if callable(value) and name[0] != "_")


class TelemetryHook:
    """Passes each moment to the sinks that want it. An attribute is None if no sink does."""

    started: Callable[[ObservedConsumer], None] | None
    stopped: Callable[[ObservedConsumer], None] | None
    run_begins: Callable[[Delivery], None] | None
    run_goes_on: Callable[[Delivery], None] | None
    run_ended: Callable[[Delivery, BaseException | None, Moment, float], None] | None
    run_cancelled: Callable[[Delivery], None] | None
    # the same for the sinks that want it also of a message that is handled at its first attempt
    healthy_run_ended: Callable[[Delivery, BaseException | None, Moment, float], None] | None
    # the same for the others
    tracked_run_ended: Callable[[Delivery, BaseException | None, Moment, float], None] | None
    handled: Callable[[Delivery, Moment, float], None] | None
    attempt_recorded: Callable[[RecordAttempt], None] | None
    copy_sent: Callable[[Outgoing, float, bool], None] | None
    copy_answered: Callable[[Outgoing, str, str, Moment, float], None] | None
    parked_copy_answered: Callable[[Outgoing, str, str, Moment, float], None] | None
    settled: Callable[[Delivery, Settlement, Moment, float], None] | None
    breaker_changed: Callable[[Destination, str, str, float], None] | None
    source_paused: Callable[[Destination, str, bool], None] | None
    source_resumed: Callable[[Destination], None] | None
    connected: Callable[[str], None] | None
    subscribed: Callable[[Destination, Moment], None] | None
    subscription_lost: Callable[[Destination, BaseException | None], None] | None

    def __init__(self, sinks: Sequence[TelemetrySink] = ()) -> None:
        """Take the sinks; each moment reaches them in this order."""
        self.sinks = tuple(sinks)
        for moment in MOMENTS:
            setattr(self, moment, _announcing(sinks, moment))
        self.healthy_run_ended = _announcing([sink for sink in sinks if sink.wants_all_run_ends], "run_ended")
        self.tracked_run_ended = _announcing([sink for sink in sinks if not sink.wants_all_run_ends], "run_ended")

    @property
    def wants_broker_state(self) -> bool:
        """Return whether a sink wants the state of dead-letter queues and limbo."""
        return any(sink.wants_broker_state for sink in self.sinks)

    @property
    def times_runs(self) -> bool:
        """Return whether a sink wants to know when a run ended, or how long it took."""
        wanted = (_wants(sink, "run_ended") or _wants(sink, "handled") for sink in self.sinks if sink.wants_run_times)
        return any(wanted)


def _announcing(sinks: Sequence[TelemetrySink], moment: str) -> Callable[..., None] | None:
    """Return what announces a moment to those sinks that want it, or None."""
    wanted = [_contained(sink, moment) for sink in sinks if _wants(sink, moment)]
    return wanted[0] if len(wanted) == 1 else _each_of(wanted)


def _wants(sink: TelemetrySink, moment: str) -> bool:
    return getattr(type(sink), moment) is not getattr(TelemetrySink, moment)


def _contained(sink: TelemetrySink, moment: str) -> Callable[..., None]:
    """Return the sink's method for a moment, which raises nothing and logs its first error."""
    method: Callable[..., None] = getattr(sink, moment)
    logged: list[bool] = []

    def announce(*values: Any) -> None:
        try:
            method(*values)
        except Exception:
            if not logged:
                logged.append(True)
                log.exception("%s failed in %s; later errors of this kind are not logged", type(sink).__name__, moment)

    return announce


def _each_of(wanted: list[Callable[..., None]]) -> Callable[..., None] | None:
    if not wanted:
        return None

    def announce(*values: Any) -> None:
        for one in wanted:
            one(*values)

    return announce


NO_TELEMETRY: Final = TelemetryHook()
