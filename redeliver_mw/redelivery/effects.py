# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the interceptor's steps do, one method for each `Action` of the table. Pure."""

from __future__ import annotations

import math
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
from .copies import RetryTerms, Transfer, copies_of, limbo_letter
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
        self._apart: defaultdict[Destination, set[int]] = defaultdict(set)  # held or stranded, without a copy
        self._refusing: set[Destination] = set()  # targets of failed transactions: no other shares their fate
        self._mono = 0.0  # of the last input that told the time
        self._pauses = SourcePauses()
        self._out: list[Command] = []
        self._flying: dict[str, TrackedDelivery] = {}  # copy id -> who sent it, not answered yet
        self._awaited: dict[
            str, list[TrackedDelivery]
        ] = {}  # copy id -> redeliveries that sent none, and hear that answer
        self.beside: Counter[Destination] = Counter()  # what else takes room of the hold budget

    @property
    def held(self) -> int:
        """Deliveries that are held or stranded now."""
        return sum(map(len, (*self._held.values(), *self._apart.values())))

    def held_of(self, source: Destination) -> int:
        """Return how many of one source take room of the hold budget. Any thread."""
        return len(self._held.get(source, ()))

    def uncopyable_of(self, source: Destination) -> int:
        """Return how many deliveries of a source are kept here since no copy of them can be made. From any thread."""
        return len(self._apart.get(source, ()))

    def _step(self, story: TrackedDelivery, signal: Signal) -> None:
        """Take the table's step for this signal; a late signal changes nothing."""
        step = transition(story.state, signal)
        if step is None:
            self._out.append(Log("debug", f"{story.delivery!r}: {signal} came when it was {story.state}"))
            return
        if story.state in (State.HELD, State.STRANDED) and step.do is not Action.WAIT:
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
                self._take_place(story)
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
            case Action.STRAND:
                self._strand(story)
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
        """Wait for an earlier delivery's copy that is out on a link that lives: sent again, it would be there twice."""
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
            why = f"{reason.what}. {reason.cure}" if reason.cure else reason.what
            story.why, story.copyable, story.whole = why, False, reason.whole
            return False
        story.outs = {out.copy_id: out for out in outs}
        return True

    def _back_off(self, story: TrackedDelivery) -> None:
        """Try the unconfirmed targets again later; pause the source when that has not helped (failed-target)."""
        if not story.copyable and not story.letter:
            return self._do_without_copy(story)
        self._tell_behind(story, rests=True)
        story.tries += 1
        if story.tries == TRIES_BEFORE_HALT and self._park_instead(story):
            return self._step(story, Signal.AGAIN)
        if story.tries == TRIES_BEFORE_HALT:
            self._say_who_refuses(story)
        seconds = min(BACK_OFF_MAX, BACK_OFF_FIRST * 2 ** min(story.tries - 1, 10))
        self._out.append(StartTimer(story.token, seconds))

    def _say_who_refuses(self, story: TrackedDelivery) -> None:
        missing = {copy_id: out for copy_id, out in story.outs.items() if copy_id not in story.confirmed}
        if story.move is not None and story.move.parked:
            why = f"{LIMBO} takes no copy: {story.why or 'no answer'}"
            return self._halt(story.plan.source, story.token, why, of=[LIMBO])
        refusals = [story.refusals.get(copy_id) or "no answer" for copy_id in missing]
        whys = [f"{out.target} takes no copy: {why}" for out, why in zip(missing.values(), refusals, strict=True)]
        of = [out.target for out in missing.values()]
        return self._halt(story.plan.source, story.token, "; ".join(whys), of=of)

    def _park_instead(self, story: TrackedDelivery) -> bool:
        """What its targets do not take goes into limbo, if there is one and it was not limbo that refused it."""
        move = story.move
        if move is None or move.parked or not self._delay_options(story).limbo:
            return False
        story.move, story.how = replace(move, parked=True), "park"
        return True

    # -- what cannot be copied ----------------------------------------------------------------------

    def _is_unfit(self, story: TrackedDelivery) -> None:
        """The broker, its driver or the limbo will never take this copy as it is."""
        if story.move is not None and story.move.sends:
            return  # no copy: the handler has succeeded, and what it sent is tried again
        if story.move is not None and story.move.parked:
            story.whole = story.letter = False
        story.copyable = False

    def _do_without_copy(self, story: TrackedDelivery) -> None:
        """Let a retry wait here, and a dead letter in limbo; without a limbo it stays unsettled."""
        if _is_retry(story.move):
            self._out.append(StartTimer(story.token, 0.0))
        elif self._write_letter(story):
            self._step(story, Signal.AGAIN)
        else:
            self._step(story, Signal.UNCOPYABLE)

    def _write_letter(self, story: TrackedDelivery) -> bool:
        """Send one dead letter to the limbo for all targets without a copy, or return False if there is no limbo."""
        move = story.move
        if move is None or not story.whole or not self._delay_options(story).letters:
            return False
        letter = limbo_letter(
            story.delivery, story.past, story.lineage, move, story.plan.signature, self.capabilities, story.why
        )
        there = {copy_id: out for copy_id, out in story.outs.items() if copy_id in story.confirmed}
        story.outs = there | {letter.copy_id: letter}
        story.move, story.letter, story.tries = replace(move, parked=True), True, 0
        if story.draft is not None:
            story.draft = replace(story.draft, targets=tuple(out.target for out in there.values()))
        what = f"{_name(story)} cannot be copied exactly: {story.why}. It goes into the limbo as a dead letter"
        self._out.append(Log("warning", what))
        return True

    def _strand(self, story: TrackedDelivery) -> None:
        """Name it once, and leave it unsettled until the broker's ack timeout draws near; others go on."""
        self._take_place(story)
        if story.entry is None or not story.entry.stranded:
            what = f"{_name(story)} has failed for good and cannot be copied exactly: {story.why}. It stays unsettled; "
            kept = "give the consumer a limbo, which keeps it as a dead letter, or " if story.whole else ""
            cure = f"{kept}take it out by hand"
            self._out.append(Log("error", what + cure))
            if story.draft is not None:
                story.draft = replace(story.draft, outcome="kept", targets=())
                self._emit_record(story, None)
        if story.entry is not None:
            story.entry.stranded = True
        story.draft = None
        self._tell_behind(story)
        most, source = self._delay_options(story).keep_at_most, story.plan.source
        if most is not None and "released" in self.capabilities.honours:
            self._out.append(StartTimer(story.token, self._keeps_for(story)))
        if not self._fits_apart(story):
            why = "it has no room for another message that cannot be copied exactly and stays unsettled"
            self._halt(source, "stranded", why)

    def _keeps_for(self, story: TrackedDelivery) -> float:
        """Return for how many seconds yet it may stay unsettled: what can be copied leaves on a copy."""
        most = self._delay_options(story).keep_at_most
        if story.copyable or most is None or "released" not in self.capabilities.honours:
            return math.inf
        return max(0.0, story.since + most - self._mono)

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
        """Keep an attempt's record until what it says has happened (log-after-the-fact)."""
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
        apart = len(self._apart[source]) - (story.token in self._apart[source])
        beside = self.beside[source] + max(0, apart - self._delay_options(story).apart_beyond)
        return len(self._held[source]) - (story.token in self._held[source]) + beside

    def _fits_apart(self, story: TrackedDelivery) -> bool:
        """Return whether it has, or can have, a place among those that cannot be copied."""
        ways, apart = self._delay_options(story), self._apart[story.plan.source]
        others = len(apart) - (story.token in apart)
        within = others < ways.apart_beyond or self._places_taken(story) < ways.budget
        return others < ways.apart and within

    def _has_room(self, story: TrackedDelivery) -> bool:
        if story.state is State.HELD or (not story.copyable and self._fits_apart(story)):
            return True
        shared = story.copyable or self._delay_options(story).apart == 0
        return shared and self._places_taken(story) < self._delay_options(story).budget

    def _take_place(self, story: TrackedDelivery) -> None:
        """Give a message without a copy a place of its own: it stays longer, and must not use up those of others."""
        source = story.plan.source
        if story.copyable or (story.state is State.HELD and self._delay_options(story).apart == 0):
            self._held[source].add(story.token)
        else:
            self._held[source].discard(story.token)
            self._apart[source].add(story.token)

    def _set_apart(self, story: TrackedDelivery) -> bool:
        """Move a held message that turns out to have no copy to such a place, if there is one."""
        apart = not story.copyable and self._fits_apart(story)
        if apart:
            self._take_place(story)
        return apart and self._places_taken(story) < self._delay_options(story).budget

    def _end_hold(self, story: TrackedDelivery) -> None:
        source, ways = story.plan.source, self._delay_options(story)
        self._held[source].discard(story.token)
        self._apart[source].discard(story.token)
        self._out.append(CancelTimer(story.token))
        if len(self._held[source]) <= ways.budget:
            self._lift(source, "budget")
        if len(self._apart[source]) <= ways.apart:
            self._lift(source, "apart")
            self._lift(source, "stranded")

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


def _name(story: TrackedDelivery) -> str:
    """Return the delivery with what an operator can find it by."""
    return f"{story.delivery!r}, message id {story.delivery.message_id!r}, {len(story.delivery.body)} bytes of body,"


def _is_retry(move: Transfer | None) -> bool:
    return move is not None and move.outcome == "redelivered"
