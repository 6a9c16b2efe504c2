# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plans how a delay is waited out: held, at the broker, in the limbo, or, at a stop, as a stamped copy.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..adapter.capabilities import Capabilities
from ..clock import Moment
from ..errors import NotCopyable
from ..message import Destination
from ..redelivery.ledger import Ledger
from . import interop
from .copies import Transfer, release_annotations
from .delays import HOLD_MAX_ALONE, DelayOptions, ScheduleWait, choose_delay
from .outcomes import CopyOutcomes
from .states import Signal, State
from .tracking import NO_COPIES, SourcePlan, TrackedDelivery

SLACK_US = 2_000  # an arrival this little before its time is on time
LOOK_UP = 0.05  # seconds that the last place is held while the way of its copy is being looked up


class DelayPlanner(CopyOutcomes):
    """Which way a rest takes, and who leaves when there is no room."""

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
        schedule_wait: ScheduleWait,
    ) -> None:
        super().__init__(plans, ledgers, capabilities, run_id)
        self._schedule_wait = schedule_wait
        self._stopping = False

    def _young(self, story: TrackedDelivery, rest: float) -> float:
        """Return for how many seconds yet what a copy for this rest would wait in is not to be trusted with it."""
        schedule = story.plan.ways.schedule
        hop = schedule.hop(rest) if schedule is not None else 0.0
        return self._schedule_wait(story.plan.source, hop) if hop > 0 else 0.0

    def _early_by(self, story: TrackedDelivery, at: Moment) -> float:
        """Seconds until its sender's date, or until its not-before, then never more than this step's own delay: the
        clock may have been stepped."""
        past = story.past
        if (rest := interop.rest_until_due(story.plan.policy, story.delivery, at.wall)) * 1e6 > SLACK_US:
            past.not_before_us = at.us + round(rest * 1e6)
            return rest
        if past.not_before_us is None or past.not_before_us - at.us <= SLACK_US:
            return 0.0
        step = past.not_before_us - past.last_failed_us if past.last_failed_us is not None else 0
        longest = step if step > 0 else round(self._delay_options(story).longest * 1e6)
        left_us = min(past.not_before_us - at.us, longest)
        past.not_before_us = at.us + left_us  # what is left is counted by this clock from now on
        return left_us / 1e6

    def _returned_later(self, story: TrackedDelivery) -> bool:
        """Return whether the broker keeps it back for longer than others: its counted returns multiply that delay."""
        name = self.capabilities.counted_header
        count = story.delivery.headers.get(name) if name else None
        return isinstance(count, int) and count > 1

    def _wait_out(self, story: TrackedDelivery, rest: float, at: Moment) -> None:
        """Hold it here, give it back later, or let a copy of it wait at the broker or in limbo."""
        if story.state is State.ABANDONED:  # the broker has it again; its not-before stands in the ledger
            return self._step(story, Signal.HOLD)
        if self._stopping:
            return self._leave(story, at)
        ways, taken = self._delay_options(story), self._places_taken(story)
        if story.delivery.in_line:
            ways = ways.in_line()
        last_place = ways.spare is not None and taken >= ways.spare
        young = self._young(story, rest) if story.copyable else 0.0
        if young < 0:  # not known yet: a copy that waits for the look-up would keep the place
            young = LOOK_UP if last_place else 0.0
        if young > 0:  # the limbo if there is one, else it is held here: also where the budget has no place
            ways = replace(ways, schedule=None)
        room = self._has_room(story) or (story.copyable and self._displace(story, at.mono + rest, at))
        if last_place:
            ways = replace(ways, hold_max=min(ways.hold_max, HOLD_MAX_ALONE))
        back_early = story.state is State.EARLY and room  # not given back again at once: clocks may differ
        way = choose_delay(
            rest,
            ways,
            room=room,
            nackable=story.key is not None
            and not story.nameless
            and not (ways.returned_after > 0 and self._returned_later(story)),
            copyable=story.copyable,
            postponable=not back_early and _postponable(story),
        )
        if way.there and self._postpone(story, way.seconds):
            return
        leaves = way.how in ("schedule", "park")
        if leaves and self._send_retry(story, way.seconds, at, parked=way.how == "park"):
            return
        if leaves or way.there:  # no exact copy can be made, nor will it bear our marks: it stays here
            room = self._has_room(story)
            way = choose_delay(rest, ways, room=room, nackable=False, copyable=False)
        elif last_place and way.how == "hold" and _was_held(story) and self._to_the_tail(story, at):
            return
        if young > 0 and way.how == "hold":
            seconds = way.seconds if rest <= ways.hold_max else min(way.seconds, young)
            way = replace(way, seconds=seconds, pause=False)
        end = way.seconds if way.how == "nack" else rest
        seconds = min(way.seconds, self._keeps_for(story)) if way.how == "hold" else way.seconds
        story.how, story.due, story.seconds = way.how, at.mono + end, seconds
        if story.draft is not None:
            self._emit_record(story, way.how)
        self._step(story, Signal.HOLD)
        if way.pause:
            shared = story.copyable or ways.apart == 0
            self._halt(story.plan.source, "budget" if shared else "apart", loud=False)

    def _postpone(self, story: TrackedDelivery, seconds: float) -> bool:
        """Give it back for so long, its count on it; False when there is no room for that on it."""
        move = Transfer("redelivered", (), not_before_us=story.past.not_before_us, failure=story.failure)
        try:
            story.marks = release_annotations(
                story.delivery, story.past, story.lineage, move, story.plan.signature, self.capabilities
            )
        except NotCopyable:
            return False
        story.how, story.seconds = "nack", seconds
        if story.draft is not None:
            self._emit_record(story, "nack")
        self._step(story, Signal.POSTPONE)
        return True

    def _set_aside(self, story: TrackedDelivery, due_us: int, at: Moment) -> bool:
        """Park it, for others' sake; False when no exact copy can be made."""
        was = story.past.not_before_us
        story.past.not_before_us = max(was or 0, due_us)
        if self._send_retry(story, (story.past.not_before_us - at.us) / 1e6, at, parked=True, aside=True):
            return True
        story.past.not_before_us = was
        return False

    def _send_retry(
        self, story: TrackedDelivery, after: float, at: Moment, *, parked: bool = False, aside: bool = False
    ) -> bool:
        """Start a retry copy on its way; False when no exact copy can be made."""
        due_us = story.past.not_before_us or at.us
        story.move = Transfer(
            "redelivered", (story.plan.source,), after, parked, not_before_us=due_us, failure=story.failure, aside=aside
        )
        if not self._build(story):
            story.move, story.copyable = None, False
            return False
        story.how = "park" if parked else "schedule"
        self._step(story, Signal.MOVE)
        return True

    def _to_the_tail(self, story: TrackedDelivery, at: Moment) -> bool:
        """Exchange what was held in the only place that healthy messages may have for a copy at its source's tail."""
        return story.copyable and self._send_retry(story, 0.0, at)

    def _nobody_took(self, story: TrackedDelivery, move: Transfer, at: Moment) -> bool:
        """A retry whose rest is over, and no copy of it is anywhere: its source is full, perhaps of its likes."""
        due = move.not_before_us
        return due is not None and due <= at.us and not (story.confirmed or story.doubt)

    def _keep_here(self, story: TrackedDelivery) -> None:
        """As if it had been held all the time."""
        self._run_here(story).past.not_before_us = None

    def _run_here(self, story: TrackedDelivery) -> TrackedDelivery:
        """Its retry copy is given up: it waits here for what is left of its delay."""
        story.move, story.outs, story.tries, story.how = None, NO_COPIES, 0, "hold"
        if story.entry is not None:
            story.entry.verdict = None
        if story.draft is not None:
            self._emit_record(story, "hold")
        self._lift(story.plan.source, story.token)
        return story

    def _displace(self, story: TrackedDelivery, due: float, at: Moment) -> bool:
        """Let the held delivery that is due last leave by copy, when it is due later than this one."""
        ways = self._delay_options(story)
        held = (self._stories[token] for token in self._held[story.plan.source])
        fit = (s for s in held if s.copyable and s.how != "nack" and (ways.limbo or not s.delivery.in_line))
        last = max(fit, key=lambda s: s.due, default=None)
        if last is None or last.due <= due:
            return False
        rest = last.due - at.mono
        if last.delivery.in_line:
            return self._send_retry(last, rest, at, parked=True)
        if ways.postpone is not None and _postponable(last):
            away = ways.postpone.hop(rest)
            return away > 0 and self._postpone(last, away)
        hop = ways.schedule.hop(rest) if ways.schedule is not None and self._young(last, rest) == 0 else 0.0
        if not (hop or ways.limbo):
            return False
        return self._send_retry(last, hop or rest, at, parked=not hop) or self._set_apart(last)

    def _rest_of(self, move: Transfer, story: TrackedDelivery, at: Moment) -> Transfer:
        """The same copies, sent later than was meant: they wait at the broker for what is left of the delay."""
        schedule = self._delay_options(story).schedule
        if move.sends:
            smallest = self.capabilities.schedule.smallest if self.capabilities.schedule is not None else 0.0
            return replace(move, sends=tuple(sending.later(at.us, smallest) for sending in move.sends))
        if move.not_before_us is None or schedule is None:
            return move
        return replace(move, after=schedule.hop(max(0.0, (move.not_before_us - at.us) / 1e6)))

    def _leave(self, story: TrackedDelivery, at: Moment) -> None:
        """We stop: its count and its not-before stay on it, or on a copy; else it stays the broker's, unsettled."""
        rest = (story.past.not_before_us or 0) / 1e6 - at.wall
        ways = self._delay_options(story)
        if story.delivery.in_line:
            return self._leave_in_line(story, ways, rest, at)
        schedule, postpone = ways.schedule, ways.postpone
        away = postpone is not None and story.past.failures and _postponable(story)
        if away and postpone is not None and self._postpone(story, postpone.hop(max(0.0, rest))):
            return
        ready = schedule is not None and rest > 0 and self._young(story, rest) == 0
        hop = schedule.hop(rest) if schedule is not None and ready else 0.0
        parked = hop == 0 and rest > 0 and ways.limbo
        if story.past.failures and story.copyable and self._send_retry(story, hop, at, parked=parked):
            return
        if story.draft is not None:
            self._emit_record(story, None)
        self._step(story, Signal.LEAVE)

    def _leave_in_line(self, story: TrackedDelivery, ways: DelayOptions, rest: float, at: Moment) -> None:
        """Leave without losing its place in front of its key: into limbo, which remembers that, else back to the front
        of its queue, as it came: its place there counts for more than its count.

        Not by giving it back with its count on it: RabbitMQ puts what is released over AMQP 1.0 at the end of its
        queue, with a delay or without (observed on 4.3.6).
        """
        parks = ways.limbo and story.past.failures > 0 and story.copyable
        if parks and self._send_retry(story, max(0.0, rest), at, parked=True):
            return
        if story.draft is not None:
            self._emit_record(story, None)
        self._step(story, Signal.LEAVE)


def _was_held(story: TrackedDelivery) -> bool:
    """Return whether it has been held for more than a look-up."""
    return story.state is State.HELD and story.seconds > LOOK_UP


def _postponable(story: TrackedDelivery) -> bool:
    """Not what has a lifetime: the broker would end it meanwhile, and our policy would not be asked."""
    return story.past.expires_at_us is None and story.delivery.properties.ttl_us is None
