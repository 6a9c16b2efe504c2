# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plans how a delay is waited out: held, at the broker, in the limbo, or, at a stop, as a stamped copy.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from ..clock import Moment
from ..errors import NotCopyable
from . import interop
from .copies import Transfer, release_annotations
from .delays import HOLD_MAX_ALONE, DelayOptions, ScheduleWait, choose_delay
from .effects import Effects
from .ledger import NO_COPIES, TrackedDelivery
from .states import Signal, State
from .tracking import TrackedDeliveries

SLACK_US = 2_000  # an arrival this little before its time is on time
LOOK_UP = 0.05  # seconds that the last place is held while the way of its copy is being looked up


class DelayPlanner:
    """Decides which way a delay is waited out, and which delivery leaves when there is no room. Not thread-safe.

    After `stopping` is set nothing is held any more: each delay is left to the broker or the limbo. Without a
    `schedule_wait`, scheduled copies wait in queues that can be trusted as soon as they exist.
    """

    def __init__(self, deliveries: TrackedDeliveries, effects: Effects, schedule_wait: ScheduleWait | None) -> None:
        self.stopping = False
        self._deliveries, self._effects = deliveries, effects
        self._capabilities = deliveries.capabilities
        self._schedule_wait = schedule_wait

    def _young(self, tracked: TrackedDelivery, delay: float) -> float:
        """Return for how many seconds yet what a copy for this delay would wait in is not to be trusted with it."""
        schedule = tracked.plan.ways.schedule
        if self._schedule_wait is None or schedule is None:
            return 0.0
        hop = schedule.hop(delay)
        return self._schedule_wait(tracked.plan.source, hop) if hop > 0 else 0.0

    def early_by(self, tracked: TrackedDelivery, at: Moment) -> float:
        """Return the seconds until its sender's date, or until its not-before.

        The latter are never more than this step's own delay: the clock may have been stepped.
        """
        past = tracked.past
        if tracked.plan.policy.language == interop.DATED:
            delay = interop.delay_until_due(tracked.delivery, at.wall)
            if delay * 1e6 > SLACK_US:
                past.not_before_us = at.us + round(delay * 1e6)
                return delay
        if past.not_before_us is None or past.not_before_us - at.us <= SLACK_US:
            return 0.0
        step = past.not_before_us - past.last_failed_us if past.last_failed_us is not None else 0
        longest = step if step > 0 else round(tracked.budget.options.longest * 1e6)
        left_us = min(past.not_before_us - at.us, longest)
        # What is left is counted by this clock from now on, and so is the failure: their distance is asked for again.
        due_us = at.us + left_us
        if past.last_failed_us is not None:
            past.last_failed_us += due_us - past.not_before_us
        past.not_before_us = due_us
        return left_us / 1e6

    def _returned_later(self, tracked: TrackedDelivery) -> bool:
        """Return whether the broker keeps it back for longer than others: its counted returns multiply that delay."""
        name = self._capabilities.counted_header
        count = tracked.delivery.headers.get(name) if name else None
        return isinstance(count, int) and count > 1

    def delay_attempt(self, tracked: TrackedDelivery, delay: float, at: Moment) -> None:
        """Hold the delivery, give it back later, or let a copy wait at the broker or in the limbo."""
        if tracked.state is State.ABANDONED:  # the broker has it again; its not-before stands in the ledger
            return self._effects.step(tracked, Signal.HOLD)
        if self.stopping:
            return self.leave(tracked, at)
        ways = options = tracked.budget.options
        taken = tracked.budget.taken(tracked.token, options)
        if tracked.delivery.in_line:
            ways = ways.in_line()
        last_place = ways.spare is not None and taken >= ways.spare
        room = tracked.has_room(options) or (tracked.copyable and self._displace(tracked, at.mono + delay, at))
        young = self._young(tracked, delay) if self._schedule_wait is not None and tracked.copyable else 0.0
        if young < 0:  # not known yet: a copy that waits for the look-up would keep the place
            young = LOOK_UP if last_place else 0.0
        if young > 0:  # the limbo if there is one, else it is held here: also where the budget has no place
            ways = replace(ways, schedule=None)
        if last_place:
            ways = replace(ways, hold_max=min(ways.hold_max, HOLD_MAX_ALONE))
        back_early = tracked.state is State.EARLY and room  # not given back again at once: clocks may differ
        way = choose_delay(
            delay,
            ways,
            room=room,
            nackable=tracked.key is not None
            and not tracked.nameless
            and not (ways.returned_after > 0 and self._returned_later(tracked)),
            copyable=tracked.copyable,
            postponable=ways.postpone is not None and not back_early and _postponable(tracked),
        )
        if way.there and self._postpone(tracked, way.seconds):
            return
        leaves = way.how in ("schedule", "park")
        if leaves and self._send_retry(tracked, way.seconds, at, parked=way.how == "park"):
            return
        if leaves or way.there:  # no exact copy can be made, nor will it bear our marks: it stays here
            room = tracked.has_room(options)
            way = choose_delay(delay, ways, room=room, nackable=False, copyable=False)
        elif way.how == "hold" and (
            (last_place and _was_held(tracked) and self._to_the_tail(tracked, at))
            or (_outlasts(tracked, options, at.mono + way.seconds) and self._leave_on_a_copy(tracked, delay, at))
        ):
            return
        if young > 0 and way.how == "hold":
            seconds = way.seconds if delay <= ways.hold_max else min(way.seconds, young)
            way = replace(way, seconds=seconds, pause=False)
        end = way.seconds if way.how == "nack" else delay
        seconds = min(way.seconds, self._effects.keeps_for(tracked)) if way.how == "hold" else way.seconds
        tracked.how, tracked.due, tracked.seconds = way.how, at.mono + end, seconds
        if tracked.draft is not None:
            self._effects.emit_record(tracked, way.how)
        self._effects.step(tracked, Signal.HOLD)
        if way.pause:
            shared = tracked.copyable or ways.apart == 0
            self._effects.halt(tracked.plan.source, "budget" if shared else "apart", loud=False)

    def _postpone(self, tracked: TrackedDelivery, seconds: float) -> bool:
        """Give the delivery back for so many seconds, with its count; False if its headers have no room for that."""
        transfer = Transfer("redelivered", (), not_before_us=tracked.past.not_before_us, failure=tracked.failure)
        try:
            tracked.marks = release_annotations(
                tracked.delivery, tracked.past, tracked.lineage, transfer, tracked.plan.signature, self._capabilities
            )
        except NotCopyable:
            return False
        tracked.how, tracked.seconds = "nack", seconds
        if tracked.draft is not None:
            self._effects.emit_record(tracked, "nack")
        self._effects.step(tracked, Signal.POSTPONE)
        return True

    def set_aside(self, tracked: TrackedDelivery, due_us: int, at: Moment) -> bool:
        """Park the delivery behind an earlier message of its key; False when no exact copy can be made."""
        was = tracked.past.not_before_us
        tracked.past.not_before_us = max(was or 0, due_us)
        if self._send_retry(tracked, (tracked.past.not_before_us - at.us) / 1e6, at, parked=True, aside=True):
            return True
        tracked.past.not_before_us = was
        return False

    def _send_retry(
        self, tracked: TrackedDelivery, after: float, at: Moment, *, parked: bool = False, aside: bool = False
    ) -> bool:
        """Start a retry copy on its way; False when no exact copy can be made."""
        due_us = tracked.past.not_before_us or at.us
        tracked.transfer = Transfer(
            "redelivered",
            (tracked.plan.source,),
            after,
            parked,
            not_before_us=due_us,
            failure=tracked.failure,
            aside=aside,
        )
        if not self._effects.build_copies(tracked):
            tracked.transfer, tracked.copyable = None, False
            return False
        tracked.how = "park" if parked else "schedule"
        self._effects.step(tracked, Signal.MOVE)
        return True

    def _to_the_tail(self, tracked: TrackedDelivery, at: Moment) -> bool:
        """Exchange what was held in the only place that healthy messages may have for a copy at its source's tail."""
        return tracked.copyable and self._send_retry(tracked, 0.0, at)

    def _leave_on_a_copy(self, tracked: TrackedDelivery, delay: float, at: Moment) -> bool:
        """Exchange a delivery that the broker would soon take back for a copy, which waits or is held anew."""
        ways = tracked.budget.options
        ready = ways.schedule is not None and self._young(tracked, delay) == 0
        hop = ways.schedule.hop(delay) if ways.schedule is not None and ready else 0.0
        parked = hop == 0 and ways.limbo
        return self._send_retry(tracked, delay if parked else hop, at, parked=parked)

    def nobody_took(self, tracked: TrackedDelivery, transfer: Transfer, at: Moment) -> bool:
        """Return whether the delay is over and no copy was taken, e.g. because the source is full of other retries."""
        due = transfer.not_before_us
        return due is not None and due <= at.us and not (tracked.confirmed or tracked.doubt)

    def keep_here(self, tracked: TrackedDelivery) -> None:
        """Go on as if the delivery had been held all the time."""
        self.run_here(tracked).past.not_before_us = None

    def run_here(self, tracked: TrackedDelivery) -> TrackedDelivery:
        """Give the retry copy up: the delivery waits here for what is left of its delay."""
        tracked.transfer, tracked.outs, tracked.tries, tracked.how = None, NO_COPIES, 0, "hold"
        if tracked.entry is not None:
            tracked.entry.transfer = None
        if tracked.draft is not None:
            self._effects.emit_record(tracked, "hold")
        self._effects.lift(tracked.plan.source, tracked.token)
        return tracked

    def _displace(self, tracked: TrackedDelivery, due: float, at: Moment) -> bool:
        """Let the held delivery that is due last leave by copy, when it is due later than this one."""
        ways = tracked.budget.options
        held = (self._deliveries.by_token[token] for token in tracked.budget.held)
        fit = (s for s in held if s.copyable and s.how != "nack" and (ways.limbo or not s.delivery.in_line))
        last = max(fit, key=lambda s: s.due, default=None)
        if last is None or last.due <= due:
            return False
        delay = last.due - at.mono
        if last.delivery.in_line:
            return self._send_retry(last, delay, at, parked=True)
        if ways.postpone is not None and _postponable(last):
            away = ways.postpone.hop(delay)
            return away > 0 and self._postpone(last, away)
        hop = ways.schedule.hop(delay) if ways.schedule is not None and self._young(last, delay) == 0 else 0.0
        if not (hop or ways.limbo):
            return False
        return self._send_retry(last, hop or delay, at, parked=not hop) or _set_apart(last)

    def rest_of(self, transfer: Transfer, tracked: TrackedDelivery, at: Moment) -> Transfer:
        """Return the same copies, sent later than was meant: they wait at the broker for what is left of the delay."""
        schedule = tracked.budget.options.schedule
        if transfer.sends:
            smallest = self._capabilities.schedule.smallest if self._capabilities.schedule is not None else 0.0
            return replace(transfer, sends=tuple(sending.later(at.us, smallest) for sending in transfer.sends))
        if transfer.not_before_us is None or schedule is None:
            return transfer
        return replace(transfer, after=schedule.hop(max(0.0, (transfer.not_before_us - at.us) / 1e6)))

    def leave(self, tracked: TrackedDelivery, at: Moment) -> None:
        """End a delivery at a stop: its count and its not-before stay on it, or on a copy; else it stays unsettled."""
        delay = (tracked.past.not_before_us or 0) / 1e6 - at.wall
        ways = tracked.budget.options
        if tracked.delivery.in_line:
            return self._leave_in_line(tracked, ways, delay, at)
        schedule, postpone = ways.schedule, ways.postpone
        away = postpone is not None and tracked.past.failures and _postponable(tracked)
        if away and postpone is not None and self._postpone(tracked, postpone.hop(max(0.0, delay))):
            return
        ready = schedule is not None and delay > 0 and self._young(tracked, delay) == 0
        hop = schedule.hop(delay) if schedule is not None and ready else 0.0
        parked = hop == 0 and delay > 0 and ways.limbo
        if tracked.past.failures and tracked.copyable and self._send_retry(tracked, hop, at, parked=parked):
            return
        if tracked.draft is not None:
            self._effects.emit_record(tracked, None)
        self._effects.step(tracked, Signal.LEAVE)

    def _leave_in_line(self, tracked: TrackedDelivery, ways: DelayOptions, delay: float, at: Moment) -> None:
        """Let a message leave without losing its place in front of its key.

        It goes into limbo, which remembers the place, else back to the front of its queue, as it came: its place there
        counts for more than its count.

        Not by giving it back with its count on it: RabbitMQ puts what is released over AMQP 1.0 at the end of its
        queue, with a delay or without (observed on 4.3.6).
        """
        parks = ways.limbo and tracked.past.failures > 0 and tracked.copyable
        if parks and self._send_retry(tracked, max(0.0, delay), at, parked=True):
            return
        if tracked.draft is not None:
            self._effects.emit_record(tracked, None)
        self._effects.step(tracked, Signal.LEAVE)


def _was_held(tracked: TrackedDelivery) -> bool:
    """Return whether it has been held for more than a look-up."""
    return tracked.state is State.HELD and tracked.seconds > LOOK_UP


def _outlasts(tracked: TrackedDelivery, options: DelayOptions, until: float) -> bool:
    """Return whether it would be unsettled for too long by then: many short holds may follow each other.

    A message that is in front of its key stays, because its copy would be behind it.
    """
    most = options.keep_at_most
    return most is not None and tracked.copyable and not tracked.delivery.in_line and until > tracked.since + most


def _postponable(tracked: TrackedDelivery) -> bool:
    """Return whether a message has no lifetime and can be postponed.

    The broker would end a message with a lifetime meanwhile, and our policy would not be asked.
    """
    return tracked.past.expires_at_us is None and tracked.delivery.properties.ttl_us is None


def _set_apart(tracked: TrackedDelivery) -> bool:
    """Move a held delivery that turns out to have no copy to a place apart; return whether that made room."""
    options = tracked.budget.options
    apart = not tracked.copyable and tracked.budget.fits_apart(tracked.token, options)
    if apart:
        tracked.take_place()
    return apart and tracked.budget.taken(tracked.token, options) < options.budget
