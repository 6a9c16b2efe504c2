# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""All stories of one connection: inputs in, commands out. No I/O, no clock, no lock; one caller at a time.

A delivery gets a story when it is more than a first delivery that was handled: it failed, or it comes with a
past. The story's state changes only through the table in `story.py`; what a step asks for is done by
`doing.py`. What is decided here is which signal a story gets: the policy's verdict, and the way a delay is
waited out.
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
from ..redelivery.ledger import Ledger
from . import history, interop, ledger
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
    RunHandler,
    SettleWritten,
    StopRequested,
    TimerFired,
    TransactionAnswered,
)
from .copies import ERROR_BYTES, Transfer
from .delay_planner import SLACK_US, DelayPlanner
from .delays import ScheduleWait, schedules_at_once
from .orphaned_runs import OrphanedRuns
from .states import Signal, State
from .tracking import SourcePlan, TrackedDelivery


class Interceptor(DelayPlanner):
    """Feed it inputs in the order in which they happen; carry out what it answers, in order."""

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
        schedule_wait: ScheduleWait = schedules_at_once,
    ) -> None:
        super().__init__(plans, ledgers, capabilities, run_id, schedule_wait)
        self._heirs = OrphanedRuns()
        self._takes: dict[type[Input], Callable[[Any], None]] = {
            Arrived: self._arrived,
            HandlerSucceeded: self._handled,
            HandlerFailed: self._failed,
            TimerFired: self._due,
            CopyAnswered: self._answered,
            TransactionAnswered: self._moved,
            SettleWritten: self._written,
            GenerationLost: self._lost,
            NotRun: self._left,
            ConsumerRetired: self._retired,
            StopRequested: self._stop,
        }

    def feed(self, x: Input, /) -> Sequence[Command]:
        """What is to be done now. Never raises for anything that a broker, handler or policy can cause."""
        self._out: list[Command] = []
        if (at := getattr(x, "at", None)) is not None:
            self._mono = at.mono
        self._takes[type(x)](x)
        return self._out

    def awaits(self, delivery: Delivery) -> bool:
        """Whether a delivery without any mark is no new one, or one whose date is still to come. From any thread."""
        return interop.is_dated(self.plans[delivery.destination].policy, delivery) or super().awaits(delivery)

    # -- arrivals ---------------------------------------------------------------------------------

    def _arrived(self, x: Arrived) -> None:
        past = ledger.read_history_headers(x.delivery)
        claimed = self._claim(x.delivery, past, x.at)
        story = self._open(x.delivery, self.plans[x.delivery.destination], past, State.EARLY, claimed, x.at.mono)
        entry = story.entry
        same = entry is not None and entry.digest == ledger.digest(x.delivery)
        marked = x.delivery.redelivered or past.lineage or claimed is not None
        if entry is not None and same and (marked or story.expected):
            if entry.done and marked:  # without a mark it may be another message: it is run in doubt
                if entry.returns:  # its key waits for the copy
                    story.move = Transfer("redelivered", (), aside=True)
                return self._step(story, Signal.DROP)
            if isinstance(entry.verdict, Transfer):
                return self._resume_move(story, entry.verdict, x.at)
            if marked and self._heirs.waits(story):
                return self._step(story, Signal.RUNS)
            if entry.crashed:
                return self._crashed(story, entry, x.at)
        if x.aside_us and self._set_aside(story, x.aside_us, x.at):
            return
        self._begin(story, x.at)

    def _crashed(self, story: TrackedDelivery, entry: ledger.LedgerEntry, at: Moment) -> None:
        """It killed a process of ours: a failure like any other, of which only the next process can tell."""
        entry.crashed, past = False, story.past
        error = f"{CRASH.type}: {CRASH.message}"
        ledger.count_failure(past, story.delivery.properties.ttl_us, at.us, 0.0, error, counted=True)
        story.failure = entry.failure = CRASH
        elapsed = (at.us - (past.first_attempt_us or at.us)) / 1e6
        decision = story.plan.policy.decide(past.failures, elapsed)
        if isinstance(decision, DeadLetter | Discard | Keep):
            decision = replace(decision, reason="crashed")
        self._verdict(story, decision, at, 0.0, reason="crashed")

    def _resume_move(self, story: TrackedDelivery, move: Transfer, at: Moment) -> None:
        """Its copies were on their way when it was lost: only the missing ones are sent, its handler is not run."""
        story.move = move = self._rest_of(move, story, at)
        story.doubt = True
        story.how = "hold" if move.not_before_us is None else "park" if move.parked else "schedule"
        targets = () if move.sends else move.targets
        self._draft(story, move.outcome, at, reason=move.reason, failure=move.failure, targets=targets)
        self._step(story, Signal.MOVE)

    def _begin(self, story: TrackedDelivery, at: Moment) -> None:
        """Wait, die, or run: what an arrival, or the end of a hold, leads to."""
        past, policy = story.past, story.plan.policy
        if past.expires_at_us is not None and past.expires_at_us <= at.us:
            return self._verdict(story, policy.expired(), at, 0.0)
        if (rest := self._early_by(story, at)) > 0:
            return self._wait_out(story, rest, at)
        if past.failures and (decision := policy.on_arrival(past.failures)) is not None:
            return self._verdict(story, decision, at, 0.0)
        self._step(story, Signal.RUN)

    def _begin_again(self, story: TrackedDelivery, at: Moment) -> None:
        """Go on after a delay under the policy that holds now: its file may have changed meanwhile."""
        plan = self.plans[story.delivery.destination]
        story.plan = plan.for_message(story.delivery, story.past, story.lineage)
        self._begin(story, at)

    # -- results of handlers ----------------------------------------------------------------------

    def _story_of_run(self, delivery: Delivery) -> TrackedDelivery | None:
        """The story that a handler's result belongs to: the waiting redelivery's, if there is one."""
        story = self._of.get(delivery)
        if story is not None and (heir := self._heirs.ended(story)) is not None:
            self._close(story)
            return heir
        return story

    def _open_running(self, delivery: Delivery, since: float = 0.0) -> TrackedDelivery:
        """Of a delivery that had no story until its handler was over, or is lost."""
        return self._open(delivery, self._plan_of_run(delivery), delivery.past, State.RUNNING, since=since)

    def _plan_of_run(self, delivery: Delivery) -> SourcePlan:
        """Return what held for its source when its attempt began; now, if that is not known."""
        plan: SourcePlan = delivery.plan or self.plans[delivery.destination]
        return plan

    def _handled(self, x: HandlerSucceeded) -> None:
        story = self._story_of_run(x.delivery)
        if story is None and x.sends:
            story = self._open_running(x.delivery, x.at.mono)
        if story is None:
            return
        story.plan = self._plan_of_run(x.delivery).for_message(story.delivery, story.past, story.lineage)
        self._draft(story, "accepted", x.at, ran=x.ran)
        if not x.sends:
            return self._end(story, Signal.HANDLED, x.at)
        sends = tuple(sending.decided(x.at.us) for sending in x.sends)
        targets = tuple(dict.fromkeys(sending.out.target for sending in sends))
        story.move = Transfer("accepted", targets, decided_us=x.at.us, sends=sends)
        self._end(story, Signal.MOVE, x.at)

    def _failed(self, x: HandlerFailed) -> None:
        story = self._story_of_run(x.delivery)
        if story is None:
            story = self._open_running(x.delivery, x.at.mono - x.ran)
        past = story.past
        uncounted = not x.counted or is_uncounted(x.error)
        ledger.count_failure(
            past,
            x.delivery.properties.ttl_us,
            x.at.us,
            x.ran,
            f"{x.failure.type}: {x.failure.message[:1000]}",
            counted=not uncounted,
        )
        past.history = history.added(past.history, x.at.us, x.failure.fingerprint, story.plan.signature.host)
        # What a later copy says of it; the whole text is the record's alone, and not kept while it is held.
        story.failure = replace(x.failure, message=trim_utf8(x.failure.message, ERROR_BYTES), frames=[], text="")
        if story.entry is not None:
            story.entry.failure = story.failure
        plan = self._plan_of_run(x.delivery)  # a policy file may have changed, and the handler may have said more
        story.plan = plan.for_message(story.delivery, past, story.lineage)
        self._verdict(story, self._decide(story, x), x.at, x.u, x)

    def _decide(self, story: TrackedDelivery, x: HandlerFailed) -> Decision:
        policy, past = story.plan.policy, story.past
        if x.undecodable and not policy.retries(x.error):
            return policy.end("undecodable", past.failures)
        if not x.counted:
            return policy.decide(past.failures, error=RetryAfter(0.0, count=False))
        elapsed = (x.at.us - (past.first_attempt_us or x.at.us)) / 1e6
        return policy.decide(past.failures, elapsed, x.error)

    def _verdict(
        self,
        story: TrackedDelivery,
        decision: Decision,
        at: Moment,
        u: float,
        x: HandlerFailed | None = None,
        *,
        reason: str = "",
    ) -> None:
        ran, failure = (x.ran, x.failure) if x else (0.0, story.failure)
        draft = partial(self._draft, story, at=at, ran=ran, failure=failure)
        match decision:
            case Accept():
                draft("accepted", reason="ignored")
                self._end(story, Signal.DROP, at)
            case Discard():
                if decision.reason == "expired" and (line := interop.expired_line(story.plan.policy, story.delivery)):
                    self._out.append(Log("info", line))
                draft("discarded", reason=decision.reason)
                self._end(story, Signal.DROP, at)
            case DeadLetter():
                targets = tuple(t.resolve(story.plan.source) for t in decision.targets)
                expiry = story.plan.policy.expiry if decision.reason == "expired" else None
                story.move = Transfer(
                    "dead_lettered",
                    targets,
                    reason=decision.reason,
                    detail=decision.detail,
                    failure=failure,
                    lives=expiry.time_to_live if expiry else None,
                    priority=expiry.priority if expiry else None,
                    decided_us=at.us,
                )
                draft("dead_lettered", reason=decision.reason, targets=targets)
                self._end(story, Signal.MOVE, at)
            case Redeliver() | Keep():
                delay = decision.draw(Random(u))
                story.past.not_before_us = at.us + round(delay * 1e6)
                if x is not None:
                    story.past.history = history.rested(story.past.history, delay)
                outcome = "kept" if isinstance(decision, Keep) else "redelivered"
                reason = reason if x is None or x.counted else "breaker"
                draft(outcome, reason=reason, delay=delay, delay_base=decision.base)
                self._wait_out(story, delay, at)

    def _end(self, story: TrackedDelivery, signal: Signal, at: Moment) -> None:
        """Of a delivery that is lost it is the end of its redelivery, too, if that rests here already.

        One that rests beside a lost run has no mark, and may be another message (own-count): a success does not end it.
        """
        heir, move = story.entry.story if story.entry is not None else None, story.move
        discarded = story.draft is not None and story.draft.outcome == "discarded"
        self._step(story, signal)
        if heir is None or heir is story or heir.state is not State.HELD:
            return
        if move is not None:
            self._resume_move(heir, move, at)
        elif discarded:
            self._step(heir, Signal.DROP)

    # -- timers, losses, the end --------------------------------------------------------------------

    def _due(self, x: TimerFired) -> None:
        story = self._stories.get(x.token)
        if story is None:
            return
        if story.state is State.STRANDED:
            return self._step(story, Signal.RELEASE)
        if story.state is State.BACKING_OFF and story.move is not None:
            if not story.copyable and not story.letter:  # a retry that has to wait here after all
                return self._begin_again(self._run_here(story), x.at)
            if self._nobody_took(story, story.move, x.at):
                self._keep_here(story)
                return self._begin_again(story, x.at)
            story.move = self._rest_of(story.move, story, x.at)
            return self._step(story, Signal.AGAIN)
        if story.state is not State.HELD:
            return
        if self._keeps_for(story) <= 0:
            return self._step(story, Signal.RELEASE)
        rest = story.due - x.at.mono
        if rest > SLACK_US / 1e6:
            return self._wait_out(story, rest, x.at)
        if story.how == "nack":
            if story.plan.ways.returned_after == 0:
                story.past.not_before_us = None
            self._step(story, Signal.RELEASE)
        else:
            story.past.not_before_us = None
            self._begin_again(story, x.at)

    def _left(self, x: NotRun) -> None:
        """It is not, or not to the end, run: by our own stop, or because its generation is over."""
        if (was := self._of.get(x.delivery)) is None:
            return
        story = self._story_of_run(x.delivery) or was
        if story.state is State.ABANDONED:
            self._close(story)
        elif self._stopping:
            self._leave(story, x.at)  # with the count of its earlier failures
        elif story is was:
            self._step(story, Signal.LEAVE)
        else:
            self._out.append(RunHandler(story.delivery))  # the redelivery waited for a run that will not come

    def _written(self, x: SettleWritten) -> None:
        if (story := self._stories.get(x.token)) is not None:
            self._step(story, Signal.WRITTEN)

    def _lost(self, x: GenerationLost) -> None:
        """Its stories are over; what still runs is remembered, so that a redelivery waits for the result."""
        fresh = [d for d in x.running if d not in self._of]
        for delivery in fresh:
            self._open_running(delivery)
        for story in [s for s in self._stories.values() if s.delivery.generation == x.generation]:
            runs = story.state is State.RUNNING
            self._step(story, Signal.LOST)
            waits_to_run = story.nameless and story.delivery not in x.running  # its redelivery takes the count over
            if runs and (waits_to_run or self._heirs.lost(story)):
                self._close(story)

    def _retired(self, x: ConsumerRetired) -> None:
        """Give back what is held: the broker would keep it from others until the channel is closed."""
        for story in [s for s in self._stories.values() if s.delivery.generation == x.generation]:
            if story.state in (State.HELD, State.STRANDED):
                if story.draft is not None:
                    self._emit_record(story, None)
                self._step(story, Signal.RELEASE)

    def _stop(self, x: StopRequested) -> None:
        self._stopping = True
        for story in list(self._stories.values()):
            if story.state is State.HELD:
                self._leave(story, x.at)
            elif story.state in (State.BACKING_OFF, State.STRANDED):
                self._step(story, Signal.LEAVE)
