# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns what happens to the deliveries of one connection into commands. No I/O, no clock, no lock.

A delivery is tracked when it is more than a first delivery that was handled: it failed, or it comes with a past. Its
state changes only through the table in `states.py`. `Interceptor` decides which signal a delivery gets, by asking its
policy; `Effects` takes the step and collects the commands; `DelayPlanner` chooses how a delay is waited out;
`TrackedDeliveries` knows the deliveries, and the ledger their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from ..adapter.capabilities import Capabilities
from ..clock import Moment
from ..errors import RetryAfter, is_uncounted
from ..failure import CRASH, trim_utf8
from ..message import Delivery, Destination
from ..policy import Accept, DeadLetter, Decision, Discard, Keep, Redeliver
from . import identity, interop
from .commands import (
    Arrived,
    Command,
    ConsumerRetired,
    CopyAnswered,
    GenerationLost,
    HandlerFailed,
    HandlerSucceeded,
    Input,
    Log,
    NotRun,
    RecordAttempt,
    RunHandler,
    SettleWritten,
    StopRequested,
    TimerFired,
    TransactionAnswered,
)
from .copies import ERROR_BYTES, Transfer
from .delay_planner import SLACK_US, DelayPlanner
from .delays import ScheduleWait
from .effects import Effects
from .headers import read_history_headers
from .ledger import HoldBudget, Ledger, LedgerEntry, TrackedDelivery
from .plan import SourcePlan, plan_of_run
from .states import Signal, State
from .tracking import OrphanedRuns, TrackedDeliveries


class Interceptor:
    """Takes inputs in the order in which they happen, and answers each with commands, to be executed in order.

    Not thread-safe, except for `awaits`, `budget_of` and `waiting_for_answers`.
    """

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
        schedule_wait: ScheduleWait | None = None,
    ) -> None:
        self.plans = plans
        self._deliveries = TrackedDeliveries(plans, ledgers, capabilities, run_id)
        self._effects = Effects(self._deliveries)
        self._delays = DelayPlanner(self._deliveries, self._effects, schedule_wait)
        self._orphaned = OrphanedRuns()
        self._takes: dict[type[Input], Callable[[Any], None]] = {
            Arrived: self._arrived,
            HandlerSucceeded: self._handled,
            HandlerFailed: self._failed,
            TimerFired: self._due,
            CopyAnswered: self._effects.copy_answered,
            TransactionAnswered: self._effects.transaction_answered,
            SettleWritten: self._effects.settle_written,
            GenerationLost: self._lost,
            NotRun: self._left,
            ConsumerRetired: self._retired,
            StopRequested: self._stop,
        }

    def feed(self, x: Input, /) -> Sequence[Command]:
        """Return what is to be done now. Never raises for anything that a broker, handler or policy can cause."""
        at: Moment | None = getattr(x, "at", None)
        if at is not None:
            self._effects.mono = at.mono
        # What a fault of ours left half done before is dropped, not executed (doubt-means-unsettled).
        commands: list[Command] = []
        self._effects.commands = commands
        self._takes[type(x)](x)
        return commands

    def awaits(self, delivery: Delivery) -> bool:
        """Return whether a delivery without any mark has a past, or a date that is still to come. Any thread."""
        if self.plans[delivery.destination].policy.language == interop.DATED and interop.is_dated(delivery):
            return True
        return self._deliveries.awaits(delivery)

    def budget_of(self, source: Destination) -> HoldBudget:
        """Return the hold budget of a source. Any thread."""
        return self._deliveries.budget_of(source)

    @property
    def waiting_for_answers(self) -> int:
        """Return the number of deliveries that end by themselves once a broker has answered. Any thread."""
        return self._deliveries.waiting_for_answers

    # -- arrivals ---------------------------------------------------------------------------------

    def _arrived(self, x: Arrived) -> None:
        past = read_history_headers(x.delivery)
        claimed = self._deliveries.claim(x.delivery, past, x.at)
        tracked = self._deliveries.open(
            x.delivery, self.plans[x.delivery.destination], past, State.EARLY, claimed, x.at.mono
        )
        entry = tracked.entry
        same = entry is not None and entry.digest == identity.digest(x.delivery)
        marked = x.delivery.redelivered or past.lineage or claimed is not None
        if entry is not None and same and (marked or tracked.expected):
            if entry.done and marked:  # without a mark it may be another message: it is run in doubt
                if entry.returns:  # its key waits for the copy
                    tracked.transfer = Transfer("redelivered", (), aside=True)
                return self._effects.step(tracked, Signal.DROP)
            if isinstance(entry.transfer, Transfer):
                return self._resume_transfer(tracked, entry.transfer, x.at)
            if marked and self._orphaned.waits(tracked):
                return self._effects.step(tracked, Signal.RUNS)
            if entry.crashed:
                return self._crashed(tracked, entry, x.at)
        if x.aside_us and self._delays.set_aside(tracked, x.aside_us, x.at):
            return
        self._begin(tracked, x.at)

    def _crashed(self, tracked: TrackedDelivery, entry: LedgerEntry, at: Moment) -> None:
        """Count the crash that the message caused: a failure like any other, which only the next process can count."""
        entry.crashed, past, at_us = False, tracked.past, at.us
        past.count_failure(at_us, 0.0, f"{CRASH.type}: {CRASH.message}", tracked.delivery.properties.ttl_us)
        tracked.failure = entry.failure = CRASH
        entry.failed_mono = at.mono
        elapsed = (at_us - (past.first_attempt_us or at_us)) / 1e6
        decision = tracked.plan.policy.decide(past.failures, elapsed)
        if isinstance(decision, DeadLetter | Discard | Keep):
            decision = replace(decision, reason="crashed")
        self._verdict(tracked, decision, at, at_us, reason="crashed")

    def _resume_transfer(self, tracked: TrackedDelivery, transfer: Transfer, at: Moment) -> None:
        """Send the missing copies of a message that was lost while its copies were on their way. No handler runs."""
        tracked.transfer = transfer = self._delays.rest_of(transfer, tracked, at)
        tracked.doubt = True
        tracked.how = "hold" if transfer.not_before_us is None else "park" if transfer.parked else "schedule"
        targets = () if transfer.sends else transfer.targets
        _draft(tracked, transfer.outcome, at, reason=transfer.reason, failure=transfer.failure, targets=targets)
        self._effects.step(tracked, Signal.MOVE)

    def _begin(self, tracked: TrackedDelivery, at: Moment) -> None:
        """Wait, dead-letter, or run: what an arrival, or the end of a hold, leads to."""
        past, policy = tracked.past, tracked.plan.policy
        if past.expires_at_us is not None and past.expires_at_us <= at.us:
            return self._verdict(tracked, policy.expired(), at, at.us)
        if (delay := self._delays.early_by(tracked, at)) > 0:
            return self._delays.delay_attempt(tracked, delay, at)
        if past.failures and (decision := policy.on_arrival(past.failures)) is not None:
            return self._verdict(tracked, decision, at, at.us)
        self._effects.step(tracked, Signal.RUN)

    def _begin_again(self, tracked: TrackedDelivery, at: Moment) -> None:
        """Go on after a delay, under the policy that holds now: its file may have changed meanwhile."""
        plan = self.plans[tracked.delivery.destination]
        tracked.plan = plan.for_message(tracked.delivery, tracked.past, tracked.lineage)
        self._begin(tracked, at)

    # -- results of handlers ----------------------------------------------------------------------

    def _tracked_run(self, delivery: Delivery) -> TrackedDelivery | None:
        """Return the delivery that a handler's result belongs to: the waiting redelivery, if there is one."""
        tracked = self._deliveries.by_delivery.get(delivery)
        if tracked is not None and (redelivery := self._orphaned.ended(tracked)) is not None:
            self._effects.close(tracked)
            return redelivery
        return tracked

    def _open_running(self, delivery: Delivery, since: float = 0.0) -> TrackedDelivery:
        """Track a delivery that was not tracked until its handler was over, or the delivery was lost."""
        return self._deliveries.open(
            delivery, plan_of_run(delivery, self.plans), delivery.past, State.RUNNING, since=since
        )

    def _handled(self, x: HandlerSucceeded) -> None:
        tracked = self._tracked_run(x.delivery)
        if tracked is None and x.sends:
            tracked = self._open_running(x.delivery, x.at.mono)
        if tracked is None:
            return
        tracked.plan = plan_of_run(x.delivery, self.plans).for_message(tracked.delivery, tracked.past, tracked.lineage)
        _draft(tracked, "accepted", x.at, ran=x.ran)
        if not x.sends:
            return self._end(tracked, Signal.HANDLED, x.at)
        sends = tuple(sending.decided(x.at.us) for sending in x.sends)
        targets = tuple(dict.fromkeys(sending.out.target for sending in sends))
        tracked.transfer = Transfer("accepted", targets, decided_us=x.at.us, sends=sends)
        self._end(tracked, Signal.MOVE, x.at)

    def _failed(self, x: HandlerFailed) -> None:
        tracked = self._tracked_run(x.delivery)
        if tracked is None:
            tracked = self._open_running(x.delivery, x.at.mono - x.ran)
        else:  # a policy file may have changed, and the handler may have set more
            plan = plan_of_run(x.delivery, self.plans)
            tracked.plan = plan.for_message(tracked.delivery, tracked.past, tracked.lineage)
        past, at_us = tracked.past, x.at.us
        counted = x.counted and not is_uncounted(x.error)
        error = f"{x.failure.type}: {x.failure.message[:1000]}"
        past.count_failure(at_us, x.ran, error, x.delivery.properties.ttl_us, counted=counted)
        past.trace = x.delivery.trace or past.trace
        past.add_attempt(at_us, x.failure.fingerprint, tracked.plan.signature.host)
        # What a later copy says of it; the whole text is the record's alone, and not kept while it is held.
        tracked.failure = replace(x.failure, message=trim_utf8(x.failure.message, ERROR_BYTES), frames=[], text="")
        if tracked.entry is not None:
            tracked.entry.failure, tracked.entry.failed_mono = tracked.failure, x.at.mono
        self._verdict(tracked, self._decide(tracked, x, at_us), x.at, at_us, x.u, x)

    def _decide(self, tracked: TrackedDelivery, x: HandlerFailed, at_us: int) -> Decision:
        policy, past = tracked.plan.policy, tracked.past
        if x.undecodable and not policy.retries(x.error):
            return policy.end("undecodable", past.failures)
        if not x.counted:
            return policy.decide(past.failures, error=RetryAfter(0.0, count=False))
        elapsed = (at_us - (past.first_attempt_us or at_us)) / 1e6
        return policy.decide(past.failures, elapsed, x.error)

    def _verdict(
        self,
        tracked: TrackedDelivery,
        decision: Decision,
        at: Moment,
        at_us: int,
        u: float = 0.0,
        x: HandlerFailed | None = None,
        *,
        reason: str = "",
    ) -> None:
        ran, failure = (x.ran, x.failure) if x else (0.0, tracked.failure)
        draft = partial(_draft, tracked, at=at, ran=ran, failure=failure)
        match decision:
            case Accept():
                draft("accepted", reason="ignored")
                self._end(tracked, Signal.DROP, at)
            case Discard():
                if decision.reason == "expired" and (
                    line := interop.expired_line(tracked.plan.policy, tracked.delivery)
                ):
                    self._effects.commands.append(Log("info", line, "expired-message-dropped"))
                draft("discarded", reason=decision.reason)
                self._end(tracked, Signal.DROP, at)
            case DeadLetter():
                targets = decision.resolve(tracked.plan.source)
                expiry = tracked.plan.policy.expiry if decision.reason == "expired" else None
                tracked.transfer = Transfer(
                    "dead_lettered",
                    targets,
                    reason=decision.reason,
                    detail=decision.detail,
                    failure=failure,
                    lives=expiry.time_to_live if expiry else None,
                    priority=expiry.priority if expiry else None,
                    decided_us=at_us,
                )
                draft("dead_lettered", reason=decision.reason, targets=targets)
                self._end(tracked, Signal.MOVE, at)
            case Redeliver() | Keep():
                delay = decision.draw(Random(u))
                tracked.past.not_before_us = at_us + round(delay * 1e6)
                if x is not None:
                    tracked.past.add_delay(delay)
                outcome = "kept" if isinstance(decision, Keep) else "redelivered"
                reason = reason if x is None or x.counted else "breaker"
                draft(outcome, reason=reason, delay=delay, delay_base=decision.base)
                self._delays.delay_attempt(tracked, delay, at)

    def _end(self, tracked: TrackedDelivery, signal: Signal, at: Moment) -> None:
        """Take the last step of a run, and end the redelivery of a lost delivery too, if it is held here already.

        A redelivery that is held beside a lost run has no mark, and may be another message (own-count): a success does
        not end it.
        """
        redelivery, transfer = tracked.entry.tracked if tracked.entry is not None else None, tracked.transfer
        discarded = tracked.draft is not None and tracked.draft.outcome == "discarded"
        self._effects.step(tracked, signal)
        if redelivery is None or redelivery is tracked or redelivery.state is not State.HELD:
            return
        if transfer is not None:
            self._resume_transfer(redelivery, transfer, at)
        elif discarded:
            self._effects.step(redelivery, Signal.DROP)

    # -- timers, losses, the end --------------------------------------------------------------------

    def _due(self, x: TimerFired) -> None:
        tracked = self._deliveries.by_token.get(x.token)
        if tracked is None:
            return
        if tracked.state is State.STRANDED:
            return self._effects.step(tracked, Signal.RELEASE)
        if tracked.state is State.BACKING_OFF and tracked.transfer is not None:
            if not tracked.copyable and not tracked.letter:  # a retry that has to wait here after all
                return self._begin_again(self._delays.run_here(tracked), x.at)
            if self._delays.nobody_took(tracked, tracked.transfer, x.at):
                self._delays.keep_here(tracked)
                return self._begin_again(tracked, x.at)
            tracked.transfer = self._delays.rest_of(tracked.transfer, tracked, x.at)
            return self._effects.step(tracked, Signal.AGAIN)
        if tracked.state is not State.HELD:
            return
        if not tracked.copyable and self._effects.keeps_for(tracked) <= 0:
            return self._effects.step(tracked, Signal.RELEASE)
        delay = tracked.due - x.at.mono
        if delay > SLACK_US / 1e6:
            return self._delays.delay_attempt(tracked, delay, x.at)
        if tracked.how == "nack":
            if tracked.plan.ways.returned_after == 0:
                tracked.past.not_before_us = None
            self._effects.step(tracked, Signal.RELEASE)
        else:
            tracked.past.not_before_us = None
            self._begin_again(tracked, x.at)

    def _left(self, x: NotRun) -> None:
        """Deal with a delivery that is not run, or not to its end: we stop, or its generation is over."""
        if (was := self._deliveries.by_delivery.get(x.delivery)) is None:
            return
        tracked = self._tracked_run(x.delivery) or was
        if tracked.state is State.ABANDONED:
            self._effects.close(tracked)
        elif self._delays.stopping:
            self._delays.leave(tracked, x.at)  # with the count of its earlier failures
        elif tracked is was:
            self._effects.step(tracked, Signal.LEAVE)
        else:
            # the redelivery waited for a run that will not come
            self._effects.commands.append(RunHandler(tracked.delivery))

    def _lost(self, x: GenerationLost) -> None:
        """End what a lost generation has begun. Handlers that still run are remembered: a redelivery waits for them."""
        fresh = [d for d in x.running if d not in self._deliveries.by_delivery]
        for delivery in fresh:
            self._open_running(delivery)
        for tracked in [s for s in self._deliveries.by_token.values() if s.delivery.generation == x.generation]:
            runs = tracked.state is State.RUNNING
            self._effects.step(tracked, Signal.LOST)
            waits_to_run = tracked.nameless and tracked.delivery not in x.running  # its redelivery takes the count over
            if runs and (waits_to_run or self._orphaned.lost(tracked)):
                self._effects.close(tracked)

    def _retired(self, x: ConsumerRetired) -> None:
        """Give back what is held: the broker would keep it from others until the channel is closed."""
        for tracked in [s for s in self._deliveries.by_token.values() if s.delivery.generation == x.generation]:
            if tracked.state in (State.HELD, State.STRANDED):
                if tracked.draft is not None:
                    self._effects.emit_record(tracked, None)
                self._effects.step(tracked, Signal.RELEASE)

    def _stop(self, x: StopRequested) -> None:
        self._delays.stopping = True
        for tracked in list(self._deliveries.by_token.values()):
            if tracked.state is State.HELD:
                self._delays.leave(tracked, x.at)
            elif tracked.state in (State.BACKING_OFF, State.STRANDED):
                self._effects.step(tracked, Signal.LEAVE)


def _draft(tracked: TrackedDelivery, outcome: Any, at: Moment, **more: Any) -> None:
    """Keep an attempt's record until what it says has happened (log-after-the-fact)."""
    past = tracked.past
    if past.first_attempt_us is None:
        past.first_attempt_us = at.us - round(more.get("ran", 0.0) * 1e6)
    tracked.draft = RecordAttempt(
        tracked.delivery,
        tracked.plan.signature,
        replace(past),
        tracked.lineage,
        outcome,
        at,
        **{"ran": 0.0, **more},
    )
