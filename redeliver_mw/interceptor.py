# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""All stories of one connection: inputs in, commands out. No I/O, no clock, no lock; one caller at a time.

A delivery gets a story when it is more than a first delivery that was handled: it failed, or it comes with a
past. The story's state changes only through the table in `story.py`; what a step asks for is done by
`doing.py`. What is decided here is which signal a story gets: the policy's verdict, and the way a delay is
waited out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from . import counting
from .capabilities import Capabilities
from .commands import (
    Answer, Arrived, Command, Due, Failed, Handled, Input, Left, Lost, Run, Stopping, Written,
)  # fmt: skip
from .copies import Move, Signature, copy_ids
from .delay import Ways, choose
from .doing import Doing, Plan, Story
from .errors import RetryAfter
from .message import Delivery, Destination
from .policy import Accept, DeadLetter, Decision, Discard, Keep, Redeliver
from .ports import Ledger, Moment
from .story import Signal, State

__all__ = ["Interceptor", "Plan", "Signature", "Ways"]

SLACK_US = 2_000  # an arrival this little before its time is on time


class Interceptor(Doing):
    """Feed it inputs in the order in which they happen; carry out what it answers, in order."""

    def __init__(
        self, plans: Mapping[Destination, Plan], ledgers: Mapping[Destination, Ledger], capabilities: Capabilities,
        run_id: str,
    ) -> None:  # fmt: skip
        super().__init__(ledgers, capabilities, run_id)
        self.plans = plans
        self._stopping = False
        self._runs: dict[str, Story] = {}  # ledger key -> abandoned story whose handler still runs
        self._heirs: dict[Delivery, Story] = {}  # that handler's delivery -> the redelivery that waits for it

    def feed(self, x: Input, /) -> Sequence[Command]:
        """What is to be done now. Never raises for anything that a broker, handler or policy can cause."""
        self._out: list[Command] = []
        match x:
            case Arrived():
                self._arrived(x)
            case Handled():
                self._handled(x)
            case Failed():
                self._failed(x)
            case Due():
                self._due(x)
            case Answer():
                self._answered(x)
            case Written():
                self._told(x.token, Signal.WRITTEN)
            case Lost():
                self._lost(x)
            case Left():
                self._left(x.delivery)
            case Stopping():
                self._stop(x.at)
        return self._out

    # -- arrivals ---------------------------------------------------------------------------------

    def _arrived(self, x: Arrived) -> None:
        past = counting.read_past(x.delivery)
        story = self._open(x.delivery, self.plans[x.delivery.destination], past, State.EARLY)
        entry = story.entry
        same = entry is not None and entry.digest == counting.digest(x.delivery)
        if entry is not None and same and (x.delivery.redelivered or past.lineage):
            if entry.done:
                return self._step(story, Signal.DROP)
            if isinstance(entry.verdict, Move):
                return self._resume_move(story, entry.verdict, x.at)
            if (running := self._runs.get(story.key or "")) is not None:
                story.state = State.RUNNING  # the handler that has it is the one of the earlier delivery
                self._heirs[running.delivery] = story
                return None
        self._begin(story, x.at)

    def _resume_move(self, story: Story, move: Move, at: Moment) -> None:
        """Its copies were on their way when it was lost: only the missing ones are sent, its handler is not run."""
        ids = set(copy_ids(story.past, story.lineage, move.targets))
        if story.entry is not None and ids <= story.entry.confirmed:
            return self._step(story, Signal.DROP)
        if move.not_before_us is not None and (schedule := story.plan.ways.schedule) is not None:
            move = replace(move, after=schedule.hop((move.not_before_us - at.us) / 1e6))
        story.move = move
        self._draft(story, move.outcome, at, reason=move.reason, failure=move.failure, targets=move.targets)
        self._step(story, Signal.MOVE)

    def _begin(self, story: Story, at: Moment) -> None:
        """Wait, die, or run: what an arrival, or the end of a hold, leads to."""
        past, policy = story.past, story.plan.policy
        if past.expires_at_us is not None and past.expires_at_us <= at.us:
            return self._verdict(story, policy.expired(), at, 0.0)
        if (rest := self._early_by(story, at)) > 0:
            return self._wait_out(story, rest, at)
        if past.failures and (decision := policy.on_arrival(past.failures)) is not None:
            return self._verdict(story, decision, at, 0.0)
        self._step(story, Signal.RUN)

    def _early_by(self, story: Story, at: Moment) -> float:
        """Seconds until its not-before, never more than this step's own delay (a stepped clock)."""
        past = story.past
        if past.not_before_us is None or past.not_before_us - at.us <= SLACK_US:
            return 0.0
        rest = past.not_before_us - at.us
        if past.last_failed_us is not None:
            rest = min(rest, max(0, past.not_before_us - past.last_failed_us))
        return rest / 1e6

    # -- results of handlers ----------------------------------------------------------------------

    def _story_of_run(self, delivery: Delivery) -> Story | None:
        """The story that a handler's result belongs to: the waiting redelivery's, if there is one."""
        story = self._of.get(delivery)
        if story is not None and story.key is not None and self._runs.get(story.key) is story:
            del self._runs[story.key]
            self._of.pop(delivery, None)
            heir = self._heirs.pop(delivery, None)
            if heir is not None and heir.state is State.RUNNING:
                return heir
        return story

    def _handled(self, x: Handled) -> None:
        if (story := self._story_of_run(x.delivery)) is None:
            return
        self._draft(story, "accepted", x.at, ran=x.ran)
        self._step(story, Signal.HANDLED)

    def _failed(self, x: Failed) -> None:
        story = self._story_of_run(x.delivery)
        if story is None:
            plan = self.plans[x.delivery.destination]
            story = self._open(x.delivery, plan, x.delivery.past, State.RUNNING)
        past = story.past
        uncounted = isinstance(x.error, RetryAfter) and not x.error.count
        past.failures += 0 if uncounted else 1
        first = x.at.us - round(x.ran * 1e6)
        past.first_attempt_us = past.first_attempt_us or first
        if not uncounted:
            past.first_failed_us = past.first_failed_us or x.at.us
        past.last_failed_us = x.at.us
        past.last_error = f"{x.failure.type}: {x.failure.message[:1000]}"
        decision = self._decide(story, x)
        if story.state is State.ABANDONED:  # the broker has it again; the ledger keeps what we learnt
            if isinstance(decision, Redeliver | Keep):
                past.not_before_us = x.at.us + round(decision.base * 1e6)
            return self._close(story)
        self._verdict(story, decision, x.at, x.u, x)

    def _decide(self, story: Story, x: Failed) -> Decision:
        policy, past = story.plan.policy, story.past
        if x.undecodable and not policy.retries(x.error):
            return policy.end("undecodable", past.failures)
        elapsed = (x.at.us - (past.first_attempt_us or x.at.us)) / 1e6
        return policy.decide(past.failures, elapsed, x.error)

    def _verdict(self, story: Story, decision: Decision, at: Moment, u: float, x: Failed | None = None) -> None:
        ran, failure = (x.ran, x.failure) if x else (0.0, story.failure)
        match decision:
            case Accept():
                self._draft(story, "accepted", at, ran=ran, failure=failure, reason="ignored")
                self._step(story, Signal.DROP)
            case Discard():
                self._draft(story, "discarded", at, ran=ran, failure=failure, reason=decision.reason)
                self._step(story, Signal.DROP)
            case DeadLetter():
                targets = tuple(t.resolve(story.plan.source) for t in decision.targets)
                story.move = Move(
                    "dead_lettered", targets, reason=decision.reason, detail=decision.detail, failure=failure
                )
                self._draft(
                    story, "dead_lettered", at, ran=ran, failure=failure, reason=decision.reason, targets=targets
                )
                self._step(story, Signal.MOVE)
            case Redeliver() | Keep():
                delay = decision.draw(Random(u))
                story.failure = failure
                story.past.not_before_us = at.us + round(delay * 1e6)
                outcome = "kept" if isinstance(decision, Keep) else "redelivered"
                self._draft(story, outcome, at, ran=ran, failure=failure, delay=delay, delay_base=decision.base)
                self._wait_out(story, delay, at)

    # -- waiting ----------------------------------------------------------------------------------

    def _wait_out(self, story: Story, rest: float, at: Moment) -> None:
        """Hold it here, give it back later, or let a copy of it wait at the broker (rule 7)."""
        if self._stopping:
            return self._leave(story, at)
        ways = story.plan.ways
        room = story.state is State.HELD or self._room(story.plan) or self._displace(story, at.mono + rest, at)
        way = choose(rest, ways, room=room, nackable=story.key is not None, copyable=story.copyable)
        if way.how == "schedule" and self._send_retry(story, way.seconds, at):
            return
        if way.how == "schedule":  # no exact copy can be made: it is run again here
            way = choose(rest, ways, room=room, nackable=False, copyable=False)
        story.how, story.due, story.seconds = way.how, at.mono + rest, way.seconds
        if story.draft is not None:
            self._emit_record(story, way.how)
        self._step(story, Signal.HOLD)
        if way.pause:
            self._halt(story.plan.source, "budget", loud=False)

    def _send_retry(self, story: Story, after: float, at: Moment) -> bool:
        """Start a retry copy on its way; False when no exact copy can be made."""
        story.move = Move(
            "redelivered", (story.plan.source,), after, not_before_us=story.past.not_before_us, failure=story.failure
        )
        if not self._build(story):
            story.move, story.copyable = None, False
            return False
        story.how = "schedule"
        self._step(story, Signal.MOVE)
        return True

    def _displace(self, story: Story, due: float, at: Moment) -> bool:
        """Let the held delivery that is due last leave by copy, when it is due later than this one."""
        held = [self._stories[token] for token in self._held[story.plan.source]]
        last = max(held, key=lambda s: s.due, default=None)
        schedule = story.plan.ways.schedule
        if last is None or schedule is None or last.due <= due or last.how == "nack" or not last.copyable:
            return False
        hop = schedule.hop(last.due - at.mono)
        return hop > 0 and self._send_retry(last, hop, at)

    def _due(self, x: Due) -> None:
        story = self._stories.get(x.token)
        if story is None:
            return
        if story.state is State.BACKING_OFF:
            return self._step(story, Signal.AGAIN)
        if story.state is not State.HELD:
            return
        rest = story.due - x.at.mono
        if rest > SLACK_US / 1e6:
            return self._wait_out(story, rest, x.at)
        story.past.not_before_us = None
        if story.how == "nack":
            self._step(story, Signal.RELEASE)
        else:
            self._begin(story, x.at)

    # -- answers, losses, the end -----------------------------------------------------------------

    def _answered(self, x: Answer) -> None:
        story = self._stories.get(x.token)
        if story is None:
            return
        story.open.discard(x.copy_id)
        if x.ok:
            story.confirmed.add(x.copy_id)
            if story.entry is not None:
                story.entry.confirmed.add(x.copy_id)
            complete = story.confirmed >= set(story.outs)
            self._step(story, Signal.COMPLETE if complete else Signal.CONFIRMED)
        else:
            story.why = x.why
        if story.state is State.MOVING and not story.open:
            self._step(story, Signal.UNCONFIRMED)
        if story.state is State.ABANDONED and not story.open:
            self._close(story)

    def _left(self, delivery: Delivery) -> None:
        """It is not, or not to the end, run: by our own stop, or because its generation is over."""
        was = self._of.get(delivery)
        if was is None:
            return
        story = self._story_of_run(delivery)
        if story is not None and story is not was:
            self._out.append(Run(story.delivery))  # the redelivery waited for a run that will not come
        else:
            self._step(was, Signal.LEAVE)
        if was.state is State.ABANDONED:
            self._close(was)

    def _told(self, token: int, signal: Signal) -> None:
        if (story := self._stories.get(token)) is not None:
            self._step(story, signal)

    def _lost(self, x: Lost) -> None:
        """Its stories are over; what still runs is remembered, so that a redelivery waits for the result."""
        fresh = [d for d in x.running if d not in self._of]
        for delivery in fresh:
            self._open(delivery, self.plans[delivery.destination], delivery.past, State.RUNNING)
        for story in [s for s in self._stories.values() if s.delivery.generation == x.generation]:
            runs = story.state is State.RUNNING
            self._step(story, Signal.LOST)
            if runs and story.key is not None:
                self._runs.setdefault(story.key, story)

    def _leave(self, story: Story, at: Moment) -> None:
        """We stop: a stamped copy keeps its count and its not-before; else it stays the broker's, unsettled."""
        if story.draft is not None:
            self._emit_record(story, "schedule")
        rest = (story.past.not_before_us or 0) / 1e6 - at.wall
        schedule = story.plan.ways.schedule
        hop = schedule.hop(rest) if schedule is not None and rest > 0 else 0.0
        if not (story.past.failures and story.copyable and self._send_retry(story, hop, at)):
            self._step(story, Signal.LEAVE)

    def _stop(self, at: Moment) -> None:
        self._stopping = True
        for story in list(self._stories.values()):
            if story.state is State.HELD:
                self._leave(story, at)
            elif story.state is State.BACKING_OFF:
                self._step(story, Signal.LEAVE)
