# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Takes the steps of tracked deliveries, and collects the commands that follow: one branch for each `Action`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..adapter.capabilities import Mechanism
from ..errors import NotCopyable
from ..message import Destination
from ..timers import SLACK
from .commands import (
    CancelTimer,
    Command,
    CopyAnswered,
    Log,
    OrderUpdate,
    PublishAndSettle,
    PublishCopy,
    RunHandler,
    Settle,
    SettleWritten,
    StartTimer,
    TransactionAnswered,
)
from .copies import RetryTerms, Transfer, copies_of, limbo_letter
from .ledger import TrackedDelivery
from .outbox import sends_of
from .pauses import LIMBO, SourcePauses
from .states import TABLE, Action, Signal, State
from .tracking import TrackedDeliveries

TRIES_BEFORE_HALT = 3  # unanswered tries of one target before the subscription pauses
BACK_OFF_FIRST, BACK_OFF_MAX = 0.5, 30.0  # seconds


class Effects:
    """Changes the state of tracked deliveries, by the table alone, and collects the commands that follow.

    `commands` are those of the present input, in the order of execution; `mono` is the monotonic time of the last input
    that had one, in seconds. Not thread-safe.
    """

    def __init__(self, deliveries: TrackedDeliveries) -> None:
        self.mono = 0.0
        self.pauses = SourcePauses()
        self._deliveries = deliveries
        self._capabilities = deliveries.capabilities
        self.commands: list[Command] = []
        self._refusing: set[Destination] = set()  # targets of failed transactions: no other shares their fate
        self._flying: dict[str, TrackedDelivery] = {}  # copy id -> who sent it, not answered yet
        self._awaited: dict[str, list[TrackedDelivery]] = {}  # copy id -> redeliveries that wait for the same answer

    def step(self, tracked: TrackedDelivery, signal: Signal) -> None:
        """Take the table's step for this signal; a late signal changes nothing."""
        step = TABLE[tracked.state].get(signal)
        if step is None:
            self.commands.append(Log("debug", f"{tracked.delivery!r}: {signal} came when it was {tracked.state}"))
            return
        if tracked.state in (State.HELD, State.STRANDED) and step.do is not Action.WAIT:
            self._end_hold(tracked)
        elif tracked.state is State.BACKING_OFF and signal is not Signal.AGAIN:
            self.commands.append(CancelTimer(tracked.token))
        tracked.state = step.to
        if tracked.entry is not None and (step.to is State.ABANDONED or step.do is Action.GIVE_BACK):
            tracked.expect_return()
        match step.do:
            case Action.ACCEPT:
                self._accept(tracked)
            case Action.FINISH:
                tracked.end_entry()
                self._record_end(tracked)
                self.close(tracked)
            case Action.GIVE_BACK:
                self.commands.append(Settle(tracked.token, tracked.delivery, "released"))
            case Action.POSTPONE:
                self.commands.append(
                    Settle(tracked.token, tracked.delivery, "released", tracked.marks, tracked.seconds)
                )
            case Action.WAIT:
                self._tell_behind(tracked, retries=True)
                tracked.take_place()
                self.commands.append(StartTimer(tracked.token, tracked.seconds))
            case Action.SEND:
                self._send(tracked)
            case Action.CALL:
                tracked.delivery.failures = tracked.past.failures
                self.commands.append(RunHandler(tracked.delivery))
            case Action.NOTE:
                self._note(tracked, signal)
            case Action.BACK_OFF:
                self._back_off(tracked)
            case Action.STRAND:
                self._strand(tracked)
            case Action.CLOSE | Action.LEAVE:
                self.close(tracked)
            case Action.NOTHING:
                pass
        if tracked.ledger.changed is not None:
            _note_change(tracked, tracked.ledger.changed)

    # -- what steps do ----------------------------------------------------------------------------

    def _accept(self, tracked: TrackedDelivery) -> None:
        returns = tracked.end_entry()
        self.commands.append(Settle(tracked.token, tracked.delivery, "accepted", returns=returns))
        self._record_end(tracked)

    def _record_end(self, tracked: TrackedDelivery) -> None:
        """Record the attempt whose end is decided; its source is no longer paused for it."""
        if tracked.draft is not None:
            self.emit_record(tracked, tracked.how if tracked.transfer is not None else None)
        self.lift(tracked.plan.source, tracked.token)

    def _send(self, tracked: TrackedDelivery) -> None:
        """Publish every copy that is not confirmed. A message that cannot be copied exactly is not sent at all."""
        transfer = tracked.transfer
        assert transfer is not None
        if tracked.plan.ordered and tracked.is_retry:
            self._tell_behind(tracked, retries=True)
        if tracked.entry is not None:
            tracked.entry.transfer = transfer
        if not tracked.outs and not self.build_copies(tracked):
            return self.step(tracked, Signal.UNCONFIRMED)
        if tracked.entry is not None:
            tracked.confirmed |= tracked.entry.confirmed & tracked.outs.keys()
        missing = [out for id_of_copy, out in tracked.outs.items() if id_of_copy not in tracked.confirmed]
        if not missing or (tracked.entry is not None and tracked.entry.done):  # an earlier delivery's answer came late
            return self.step(tracked, Signal.COMPLETE)
        when = {id_of_copy: _times(transfer, n) for n, id_of_copy in enumerate(tracked.outs)}
        if self._as_one(tracked, transfer):  # what cannot be part of it goes first
            apart = {i for i, (after, due_us) in when.items() if due_us is not None or not self._joins(after)}
            first = [out for out in missing if out.copy_id in apart or out.copy_id in self._flying]
            if not first and tracked.confirmed <= apart:
                tracked.wave = tracked.open = frozenset(out.copy_id for out in missing)
                outs = tuple((out, when[out.copy_id][0]) for out in missing)
                return self.commands.append(PublishAndSettle(tracked.token, tracked.delivery, outs))
            missing = first or missing
        tracked.wave = tracked.open = frozenset(out.copy_id for out in missing)
        for out in missing:
            if (sender := self._flying.setdefault(out.copy_id, tracked)) is tracked:
                after, due_us = when[out.copy_id]
                terms = _terms(tracked) if due_us is not None and tracked.is_retry else None
                self.commands.append(PublishCopy(tracked.token, out, after, due_us, terms))
            else:
                self._await(out.copy_id, tracked, sender)

    def _await(self, copy_id: str, tracked: TrackedDelivery, sender: TrackedDelivery) -> None:
        """Wait for an earlier delivery's copy that is out on a link that lives: sent again, it would be there twice."""
        waiting = self._awaited.setdefault(copy_id, [])
        for earlier in (sender, *waiting):  # of deliveries of one message the newest tells how it ended
            if earlier.entry is not None and earlier.entry is tracked.entry:
                earlier.draft = None
        waiting.append(tracked)

    def _joins(self, after: float) -> bool:
        """Return whether a copy that the broker delays for `after` seconds can be part of a transaction."""
        return after <= 0 or self._capabilities.atomic_schedule

    def _as_one(self, tracked: TrackedDelivery, transfer: Transfer) -> bool:
        """Return whether copies and settle go as one transaction.

        Its abort may give the original back to the broker; so not where that would cost its count (a success has
        none), and not a second time for a message or a target that one has failed for.
        """
        known = bool(transfer.sends) if tracked.entry is None or tracked.nameless else not tracked.entry.apart
        return self._capabilities.atomic_move and known and self._refusing.isdisjoint(transfer.targets)

    def build_copies(self, tracked: TrackedDelivery) -> bool:
        transfer = tracked.transfer
        assert transfer is not None
        if transfer.sends:
            sent = sends_of(tracked.delivery, tracked.past, tracked.lineage, transfer.sends, self._capabilities)
            tracked.outs = {out.copy_id: out for out in sent}
            return True
        try:
            outs = copies_of(
                tracked.delivery, tracked.past, tracked.lineage, transfer, tracked.plan.signature, self._capabilities
            )
        except NotCopyable as reason:
            why = f"{reason.what}. {reason.cure}" if reason.cure else reason.what
            tracked.why, tracked.copyable, tracked.whole = why, False, reason.whole
            return False
        tracked.outs = {out.copy_id: out for out in outs}
        return True

    def _back_off(self, tracked: TrackedDelivery) -> None:
        """Try the unconfirmed targets again later; pause the source when that has not helped (failed-target)."""
        if not tracked.copyable and not tracked.letter:
            return self._do_without_copy(tracked)
        self._tell_behind(tracked, retries=True)
        tracked.tries += 1
        if tracked.tries == TRIES_BEFORE_HALT and self._park_instead(tracked):
            return self.step(tracked, Signal.AGAIN)
        if tracked.tries == TRIES_BEFORE_HALT:
            self._say_who_refuses(tracked)
        seconds = min(BACK_OFF_MAX, BACK_OFF_FIRST * 2 ** min(tracked.tries - 1, 10))
        self.commands.append(StartTimer(tracked.token, seconds))

    def _say_who_refuses(self, tracked: TrackedDelivery) -> None:
        missing = {copy_id: out for copy_id, out in tracked.outs.items() if copy_id not in tracked.confirmed}
        if tracked.transfer is not None and tracked.transfer.parked:
            why = f"{LIMBO} takes no copy: {tracked.why or 'no answer'}"
            return self.halt(tracked.plan.source, tracked.token, why, of=[LIMBO])
        refusals = [tracked.refusals.get(copy_id) or "no answer" for copy_id in missing]
        whys = [f"{out.target} takes no copy: {why}" for out, why in zip(missing.values(), refusals, strict=True)]
        of = [out.target for out in missing.values()]
        return self.halt(tracked.plan.source, tracked.token, "; ".join(whys), of=of)

    def _park_instead(self, tracked: TrackedDelivery) -> bool:
        """Send to the limbo what targets do not take, if there is a limbo and it was not the limbo that refused."""
        transfer = tracked.transfer
        if transfer is None or transfer.parked or not tracked.budget.options.limbo:
            return False
        tracked.transfer, tracked.how = replace(transfer, parked=True), "park"
        return True

    # -- what cannot be copied ----------------------------------------------------------------------

    def _is_unfit(self, tracked: TrackedDelivery) -> None:
        """Note that the broker, its driver or the limbo will never take this copy as it is."""
        if tracked.transfer is not None and tracked.transfer.sends:
            return  # no copy: the handler has succeeded, and what it sent is tried again
        if tracked.transfer is not None and tracked.transfer.parked:
            tracked.whole = tracked.letter = False
        tracked.copyable = False

    def _do_without_copy(self, tracked: TrackedDelivery) -> None:
        """Let a retry wait here, and a dead letter in limbo; without a limbo it stays unsettled."""
        if tracked.is_retry:
            self.commands.append(StartTimer(tracked.token, 0.0))
        elif self._write_letter(tracked):
            self.step(tracked, Signal.AGAIN)
        else:
            self.step(tracked, Signal.UNCOPYABLE)

    def _write_letter(self, tracked: TrackedDelivery) -> bool:
        """Send one dead letter to the limbo for all targets without a copy, or return False if there is no limbo."""
        transfer = tracked.transfer
        if transfer is None or not tracked.whole or not tracked.budget.options.letters:
            return False
        letter = limbo_letter(
            tracked.delivery,
            tracked.past,
            tracked.lineage,
            transfer,
            tracked.plan.signature,
            self._capabilities,
            tracked.why,
        )
        there = {copy_id: out for copy_id, out in tracked.outs.items() if copy_id in tracked.confirmed}
        tracked.outs = there | {letter.copy_id: letter}
        tracked.transfer, tracked.letter, tracked.tries = replace(transfer, parked=True), True, 0
        if tracked.draft is not None:
            tracked.draft = replace(tracked.draft, targets=tuple(out.target for out in there.values()))
        what = f"{_name(tracked)} cannot be copied exactly: {tracked.why}. It goes into the limbo as a dead letter"
        self.commands.append(Log("warning", what, "copy-impossible"))
        return True

    def _strand(self, tracked: TrackedDelivery) -> None:
        """Log the delivery once, and leave it unsettled until the broker's ack timeout draws near; others go on."""
        tracked.take_place()
        if tracked.entry is None or not tracked.entry.stranded:
            what = f"{_name(tracked)} has failed for good and cannot be copied exactly: {tracked.why}. "
            what += "It stays unsettled; "
            kept = "give the consumer a limbo, which keeps it as a dead letter, or " if tracked.whole else ""
            cure = f"{kept}take it out by hand"
            self.commands.append(Log("error", what + cure, "message-stranded"))
            if tracked.draft is not None:
                tracked.draft = replace(tracked.draft, outcome="kept", targets=())
                self.emit_record(tracked, None)
        if tracked.entry is not None:
            tracked.entry.stranded = True
        tracked.draft = None
        self._tell_behind(tracked)
        most, source = tracked.budget.options.keep_at_most, tracked.plan.source
        if most is not None and "released" in self._capabilities.honours:
            self.commands.append(StartTimer(tracked.token, self.keeps_for(tracked)))
        if not tracked.budget.fits_apart(tracked.token, tracked.budget.options):
            why = "it has no room for another message that cannot be copied exactly and stays unsettled"
            self.halt(source, "stranded", why)

    def keeps_for(self, tracked: TrackedDelivery) -> float:
        """Return for how many more seconds the delivery may stay unsettled: infinite, if it can leave on a copy."""
        if tracked.copyable or "released" not in self._capabilities.honours:
            return math.inf
        most = tracked.budget.options.keep_at_most
        if most is None:
            return math.inf
        left = tracked.since + most - self.mono
        return left if left > SLACK else 0.0  # else a timer for a part of a microsecond is set again and again

    def _note(self, tracked: TrackedDelivery, signal: Signal) -> None:
        """Remember what came after the delivery was lost; its redelivery will be dealt with accordingly."""
        if tracked.state is not State.ABANDONED or signal is Signal.CONFIRMED:
            return
        if tracked.entry is not None and signal is Signal.MOVE:
            tracked.entry.transfer = tracked.transfer
        elif signal is not Signal.HOLD:
            tracked.end_entry()
        if tracked.draft is not None and signal is not Signal.MOVE:  # a transfer is recorded when it is made
            self.emit_record(tracked, tracked.how if tracked.transfer is not None else None)
        self.close(tracked)

    def close(self, tracked: TrackedDelivery) -> None:
        """End the tracking of a delivery: a pause that it caused ends, and those that wait behind it learn of it."""
        self.lift(tracked.plan.source, tracked.token)
        self._tell_behind(tracked)
        self._deliveries.close(tracked)

    def _tell_behind(self, tracked: TrackedDelivery, *, retries: bool = False) -> None:
        """Tell the messages behind it in its key where the delivery is. Before its sender's date they may go first."""
        if not tracked.plan.ordered:
            return
        keeps = tracked.past.last_failed_us is not None or (tracked.transfer is not None and tracked.transfer.aside)
        leaves = tracked.state is State.SETTLED and (tracked.marks is not None or tracked.is_retry)
        returns = tracked.lineage if keeps and leaves and not retries else ""
        left = tracked.state is State.ABANDONED
        self.commands.append(
            OrderUpdate(tracked.delivery, retries and keeps, returns, tracked.past.not_before_us, left)
        )

    # -- answers of brokers --------------------------------------------------------------------------

    def copy_answered(self, x: CopyAnswered) -> None:
        sender = self._flying.get(x.copy_id)
        tracked = self._deliveries.by_token.get(x.token)
        if sender is not None and sender.token == x.token:
            del self._flying[x.copy_id]
        if tracked is not None:
            self._hears(tracked, x)
        for waiting in self._awaited.pop(x.copy_id, ()):
            self._hears(waiting, x)

    def _hears(self, tracked: TrackedDelivery, x: CopyAnswered) -> None:
        tracked.open -= {x.copy_id}
        if x.verdict == "ok":
            tracked.confirmed |= {x.copy_id}
            target = tracked.outs[x.copy_id].target
            self._refusing.discard(target)
            if self.pauses.logged:
                self.pauses.works(LIMBO if tracked.transfer is not None and tracked.transfer.parked else target)
            if tracked.entry is not None:
                tracked.entry.confirmed |= {x.copy_id}
                if tracked.ledger.changed is not None:
                    _note_change(tracked, tracked.ledger.changed)
            complete = tracked.confirmed >= set(tracked.outs)
            self.step(tracked, Signal.COMPLETE if complete else Signal.CONFIRMED)
        else:
            tracked.why, tracked.doubt = x.why, tracked.doubt or x.verdict == "silent"
            tracked.refusals = {**tracked.refusals, x.copy_id: x.why}
            if x.verdict == "unfit":
                self._is_unfit(tracked)
        if tracked.state is State.MOVING and not tracked.open:
            if tracked.wave <= tracked.confirmed:
                self._send(tracked)  # what had to wait for these
            else:
                self.step(tracked, Signal.UNCONFIRMED)
        if tracked.state is State.ABANDONED and not tracked.open:
            self.close(tracked)

    def transaction_answered(self, x: TransactionAnswered) -> None:
        """Take the answer to copies and a settlement that were tried as one transaction.

        A transaction that failed is not tried again as one. A link that was lost says nothing against a transaction,
        unless it is lost again: the link may have died of the transaction. Sent apart, the copy would lead to a second
        dead letter if we were killed before the original is settled.
        """
        tracked = self._deliveries.by_token.get(x.token)
        if tracked is None:
            return
        tracked.open = frozenset()
        if x.verdict == "ok":
            return self.step(tracked, Signal.COMMITTED)
        tracked.why = x.why
        tracked.refusals = {**tracked.refusals, **dict.fromkeys(tracked.outs.keys() - tracked.confirmed, x.why)}
        entry = tracked.entry
        if x.verdict == "lost" and entry is not None and not entry.doubted:
            entry.doubted = True
        else:
            if entry is not None:
                entry.apart = True
            if tracked.transfer is not None:
                self._refusing.update(tracked.transfer.targets)
        self.step(tracked, Signal.UNCONFIRMED if x.verdict == "refused" else Signal.LOST)
        if tracked.state is State.ABANDONED:
            self.close(tracked)

    def settle_written(self, x: SettleWritten) -> None:
        if (tracked := self._deliveries.by_token.get(x.token)) is not None:
            self.step(tracked, Signal.WRITTEN)

    # -- records ----------------------------------------------------------------------------------

    def emit_record(self, tracked: TrackedDelivery, how: Mechanism | None) -> None:
        assert tracked.draft is not None
        retries = how is not None and tracked.draft.outcome in ("redelivered", "kept")
        self.commands.append(replace(tracked.draft, mechanism=how) if retries else tracked.draft)
        tracked.draft = None

    # -- pauses -----------------------------------------------------------------------------------

    def _end_hold(self, tracked: TrackedDelivery) -> None:
        source, budget = tracked.plan.source, tracked.budget
        budget.leave(tracked.token)
        self.commands.append(CancelTimer(tracked.token))
        if not self.pauses.paused:
            return
        options = budget.options
        if len(budget.held) <= options.budget:
            self.lift(source, "budget")
        if len(budget.apart) <= options.apart:
            self.lift(source, "apart")
            self.lift(source, "stranded")

    def halt(
        self,
        source: Destination,
        cause: object,
        reason: str = "the hold budget is full",
        *,
        loud: bool = True,
        of: Sequence[object] = (),
    ) -> None:
        """Pause a source for one more cause; see `SourcePauses.halt`."""
        self.commands += self.pauses.halt(source, cause, reason, loud=loud, of=of)

    def lift(self, source: Destination, cause: object) -> None:
        """End a cause for a pause; without any other the source is resumed."""
        if self.pauses.paused:
            self.commands += self.pauses.lift(source, cause)


def _note_change(tracked: TrackedDelivery, changed: dict[str, bool]) -> None:
    """Note for the database that stores the ledger that the entry of this delivery has changed."""
    if tracked.key is not None and tracked.entry is not None:
        changed[tracked.key] = tracked.state is State.SETTLED and tracked.entry.done  # a released delivery is not over


def _times(transfer: Transfer, n: int) -> tuple[float, int | None]:
    """Return the times of the n-th copy of a transfer.

    These are the seconds that the broker delays it, and from when on limbo may send it (microseconds since 1970, 0: at
    once).
    """
    after, parked, due_us = transfer.after, transfer.parked, transfer.not_before_us
    if transfer.sends:
        sending = transfer.sends[n]
        after, parked, due_us = sending.after, parked or sending.parked, sending.due_us
    return (0.0, due_us or 0) if parked else (after, None)


def _terms(tracked: TrackedDelivery) -> RetryTerms:
    """Return the terms of the policy for a message whose retry copy is parked."""
    policy, past, source = tracked.plan.policy, tracked.past, tracked.plan.source
    delay_us = (past.not_before_us or 0) - past.last_failed_us if past.last_failed_us is not None else 0
    port = ",".join(str(target.resolve(source)) for target in policy.targets)
    return RetryTerms(max(delay_us, 0) / 1e6, policy.dead_after or 0, port)


def _name(tracked: TrackedDelivery) -> str:
    """Return the delivery with what an operator can find it by."""
    return (
        f"{tracked.delivery!r}, message id {tracked.delivery.message_id!r}, {len(tracked.delivery.body)} bytes of body,"
    )
