# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the interceptor's steps do, one method for each `Action` of the table. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..adapter.capabilities import Capabilities, Mechanism
from ..clock import Moment
from ..errors import NotCopyable
from ..message import Destination
from ..redelivery.ledger import Ledger
from .commands import (
    CancelTimer,
    Command,
    Log,
    OrderUpdate,
    PublishAndSettle,
    PublishCopy,
    RecordAttempt,
    RunHandler,
    Settle,
    StartTimer,
)
from .copies import RetryTerms, Transfer, copies_of
from .delays import DelayOptions
from .outbox import sends_of
from .pauses import LIMBO, SourcePauses
from .states import Action, Signal, State, transition
from .tracking import SourcePlan, TrackedDeliveries, TrackedDelivery

TRIES_BEFORE_HALT = 3  # unanswered tries of one target before the subscription pauses
BACK_OFF_FIRST, BACK_OFF_MAX = 0.5, 30.0  # seconds


class Effects(TrackedDeliveries):
    """The effects of steps, as commands; the hold budget; the pauses."""

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
    ) -> None:
        super().__init__(plans, ledgers, capabilities, run_id)
        self._held: defaultdict[Destination, set[int]] = defaultdict(set)
        self._refusing: set[Destination] = set()  # targets of failed transactions: no other shares their fate
        self._pauses = SourcePauses()
        self._out: list[Command] = []
        self._flying: dict[str, TrackedDelivery] = {}  # copy id -> who sent it, not answered yet
        self._awaited: dict[
            str, list[TrackedDelivery]
        ] = {}  # copy id -> redeliveries that sent none, and hear that answer
        self.beside: Counter[Destination] = Counter()  # what else takes room of the hold budget

    @property
    def held(self) -> int:
        """Deliveries that are held now."""
        return sum(map(len, self._held.values()))

    def held_of(self, source: Destination) -> int:
        """Those of one source. From any thread."""
        return len(self._held.get(source, ()))

    def _step(self, story: TrackedDelivery, signal: Signal) -> None:
        """Take the table's step for this signal; a late signal changes nothing."""
        step = transition(story.state, signal)
        if step is None:
            self._out.append(Log("debug", f"{story.delivery!r}: {signal} came when it was {story.state}"))
            return
        if story.state is State.HELD and step.do is not Action.WAIT:
            self._end_hold(story)
        elif story.state is State.BACKING_OFF and signal is not Signal.AGAIN:
            self._out.append(CancelTimer(story.token))
        story.state = step.to
        if story.entry is not None and (step.to is State.ABANDONED or step.do is Action.GIVE_BACK):
            self._expect(story)
        match step.do:
            case Action.ACCEPT:
                self._accept(story)
            case Action.FINISH:
                self._finish(story)
                self._close(story)
            case Action.GIVE_BACK:
                self._out.append(Settle(story.token, story.delivery, "released"))
            case Action.POSTPONE:
                self._out.append(Settle(story.token, story.delivery, "released", story.marks, story.seconds))
            case Action.WAIT:
                self._tell_behind(story, rests=True)
                self._held[story.plan.source].add(story.token)
                self._out.append(StartTimer(story.token, story.seconds))
            case Action.SEND:
                self._send(story)
            case Action.CALL:
                story.delivery.failures = story.past.failures
                self._out.append(RunHandler(story.delivery))
            case Action.NOTE:
                self._note(story, signal)
            case Action.BACK_OFF:
                self._back_off(story)
            case Action.CLOSE | Action.LEAVE:
                self._close(story)
            case Action.NOTHING:
                pass
        self._save(story)

    # -- what steps do ----------------------------------------------------------------------------

    def _accept(self, story: TrackedDelivery) -> None:
        self._out.append(Settle(story.token, story.delivery, "accepted", returns=_is_retry(story.move)))
        self._finish(story)

    def _finish(self, story: TrackedDelivery) -> None:
        """Its end is decided: the ledger knows, and its attempt is told."""
        self._end_entry(story)
        if story.draft is not None:
            self._emit_record(story, story.how if story.move is not None else None)
        self._lift(story.plan.source, story.token)

    def _send(self, story: TrackedDelivery) -> None:
        """Publish every copy that is not confirmed. What cannot be copied exactly is not sent at all."""
        move = story.move
        assert move is not None
        if _is_retry(move):
            self._tell_behind(story, rests=True)
        if story.entry is not None:
            story.entry.verdict = move
        if not story.outs and not self._build(story):
            return self._step(story, Signal.UNCONFIRMED)
        if story.entry is not None:
            story.confirmed |= story.entry.confirmed & story.outs.keys()
        missing = [out for id_of_copy, out in story.outs.items() if id_of_copy not in story.confirmed]
        if not missing or (story.entry is not None and story.entry.done):  # an earlier delivery's answer came late
            return self._step(story, Signal.COMPLETE)
        when = {id_of_copy: move.when(n) for n, id_of_copy in enumerate(story.outs)}
        if self._as_one(story, move):  # what cannot be part of it goes first
            apart = {i for i, (after, due_us) in when.items() if due_us is not None or not self._joins(after)}
            first = [out for out in missing if out.copy_id in apart or out.copy_id in self._flying]
            if not first and story.confirmed <= apart:
                story.wave = story.open = frozenset(out.copy_id for out in missing)
                outs = tuple((out, when[out.copy_id][0]) for out in missing)
                return self._out.append(PublishAndSettle(story.token, story.delivery, outs))
            missing = first or missing
        story.wave = story.open = frozenset(out.copy_id for out in missing)
        for out in missing:
            if (sender := self._flying.setdefault(out.copy_id, story)) is story:
                after, due_us = when[out.copy_id]
                terms = _terms(story) if due_us is not None and _is_retry(move) else None
                self._out.append(PublishCopy(story.token, out, after, due_us, terms))
            else:
                self._await(out.copy_id, story, sender)

    def _await(self, copy_id: str, story: TrackedDelivery, sender: TrackedDelivery) -> None:
        """An earlier delivery's copy is out on a link that lives: sent again, it would be there twice (rule 8)."""
        waiting = self._awaited.setdefault(copy_id, [])
        for earlier in (sender, *waiting):  # of deliveries of one message the newest tells how it ended
            if earlier.entry is not None and earlier.entry is story.entry:
                earlier.draft = None
        waiting.append(story)

    def _joins(self, after: float) -> bool:
        """Whether what the broker is to delay for so long can be part of a transaction."""
        return after <= 0 or self.capabilities.atomic_schedule

    def _as_one(self, story: TrackedDelivery, move: Transfer) -> bool:
        """Whether copies and settle go as one transaction.

        Its abort may give the original back to the broker; so not where that would cost its count (a success has
        none), and not a second time for a message or a target that one has failed for.
        """
        known = bool(move.sends) if story.entry is None or story.nameless else not story.entry.apart
        return self.capabilities.atomic_move and known and self._refusing.isdisjoint(move.targets)

    def _build(self, story: TrackedDelivery) -> bool:
        move = story.move
        assert move is not None
        if move.sends:
            sent = sends_of(story.delivery, story.past, story.lineage, move.sends, self.capabilities)
            story.outs = {out.copy_id: out for out in sent}
            return True
        try:
            outs = copies_of(story.delivery, story.past, story.lineage, move, story.plan.signature, self.capabilities)
        except NotCopyable as reason:
            story.why, story.copyable = str(reason), False
            return False
        story.outs = {out.copy_id: out for out in outs}
        return True

    def _back_off(self, story: TrackedDelivery) -> None:
        """Try the unconfirmed targets again later; pause the source when that has not helped (rule 8)."""
        self._tell_behind(story, rests=True)
        story.tries += 1
        if not story.copyable:
            what = f"{story.delivery!r} cannot be copied exactly: {story.why}. Take that one out by hand"
            self._halt(story.plan.source, story.token, what)
            return
        if story.tries == TRIES_BEFORE_HALT and self._park_instead(story):
            return self._step(story, Signal.AGAIN)
        if story.tries == TRIES_BEFORE_HALT:
            self._say_who_refuses(story)
        seconds = min(BACK_OFF_MAX, BACK_OFF_FIRST * 2 ** min(story.tries - 1, 10))
        self._out.append(StartTimer(story.token, seconds))

    def _say_who_refuses(self, story: TrackedDelivery) -> None:
        missing = [out.target for copy_id, out in story.outs.items() if copy_id not in story.confirmed]
        of = [LIMBO] if story.move is not None and story.move.parked else missing
        why = f"{', '.join(map(str, of))} takes no copy: {story.why or 'no answer'}"
        self._halt(story.plan.source, story.token, why, of=of)

    def _park_instead(self, story: TrackedDelivery) -> bool:
        """What its targets do not take goes into limbo, if there is one and it was not limbo that refused it."""
        move = story.move
        if move is None or move.parked or not self._delay_options(story).limbo:
            return False
        story.move, story.how = replace(move, parked=True), "park"
        return True

    def _note(self, story: TrackedDelivery, signal: Signal) -> None:
        """What came after the delivery was lost: its redelivery will be dealt with accordingly."""
        if story.state is not State.ABANDONED or signal is Signal.CONFIRMED:
            return
        if story.entry is not None and signal is Signal.MOVE:
            story.entry.verdict = story.move
        elif signal is not Signal.HOLD:
            self._end_entry(story)
        if story.draft is not None and signal is not Signal.MOVE:  # a move is told when it is made
            self._emit_record(story, story.how if story.move is not None else None)
        self._close(story)

    def _close(self, story: TrackedDelivery) -> None:
        super()._close(story)
        self._lift(story.plan.source, story.token)
        self._tell_behind(story)

    def _tell_behind(self, story: TrackedDelivery, *, rests: bool = False) -> None:
        """Those that wait for it learn where it is. One that waits for its sender's date lets them go first."""
        if not story.plan.ordered:
            return
        keeps = story.past.last_failed_us is not None or (story.move is not None and story.move.aside)
        leaves = story.state is State.SETTLED and (story.marks is not None or _is_retry(story.move))
        returns = story.lineage if keeps and leaves and not rests else ""
        left = story.state is State.ABANDONED
        self._out.append(OrderUpdate(story.delivery, rests and keeps, returns, story.past.not_before_us, left))

    # -- records ----------------------------------------------------------------------------------

    def _draft(self, story: TrackedDelivery, outcome: Any, at: Moment, **more: Any) -> None:
        """Keep an attempt's record until what it says has happened (rule 12)."""
        past = story.past
        if past.first_attempt_us is None:
            past.first_attempt_us = at.us - round(more.get("ran", 0.0) * 1e6)
        story.draft = RecordAttempt(
            story.delivery, story.plan.signature, replace(past), story.lineage, outcome, at, **{"ran": 0.0, **more}
        )

    def _emit_record(self, story: TrackedDelivery, how: Mechanism | None) -> None:
        assert story.draft is not None
        rests = how is not None and story.draft.outcome in ("redelivered", "kept")
        self._out.append(replace(story.draft, mechanism=how) if rests else story.draft)
        story.draft = None

    # -- budget and pauses ------------------------------------------------------------------------

    def _delay_options(self, story: TrackedDelivery) -> DelayOptions:
        """Return the options of its source as they are now: a window that the driver opens changes them."""
        return self.plans[story.plan.source].ways

    def _places_taken(self, story: TrackedDelivery) -> int:
        """Return how many places of the hold budget others have."""
        source = story.plan.source
        return len(self._held[source]) - (story.token in self._held[source]) + self.beside[source]

    def _end_hold(self, story: TrackedDelivery) -> None:
        self._held[story.plan.source].discard(story.token)
        self._out.append(CancelTimer(story.token))
        if len(self._held[story.plan.source]) <= self._delay_options(story).budget:
            self._lift(story.plan.source, "budget")

    def _halt(
        self,
        source: Destination,
        cause: object,
        reason: str = "the hold budget is full",
        *,
        loud: bool = True,
        of: Sequence[object] = (),
    ) -> None:
        self._out += self._pauses.halt(source, cause, reason, loud=loud, of=of)

    def _lift(self, source: Destination, cause: object) -> None:
        self._out += self._pauses.lift(source, cause)


def _terms(story: TrackedDelivery) -> RetryTerms:
    """Return what its policy says of a message whose retry copy is parked."""
    policy, past, source = story.plan.policy, story.past, story.plan.source
    delay_us = (past.not_before_us or 0) - past.last_failed_us if past.last_failed_us is not None else 0
    port = ",".join(str(target.resolve(source)) for target in policy.targets)
    return RetryTerms(max(delay_us, 0) / 1e6, policy.dead_after or 0, port)


def _is_retry(move: Transfer | None) -> bool:
    return move is not None and move.outcome == "redelivered"
