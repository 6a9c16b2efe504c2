# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses how a delay is waited out: held here, released, scheduled at the broker, or parked in limbo. Pure.

`delay_options` is called once at start and refuses what this broker cannot do; `choose_delay` is called for each delay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ..adapter.capabilities import Capabilities, Mechanism, ScheduleRange
from ..errors import ConfigError, PolicyError
from ..message import Destination

Option = Literal["auto", "hold", "nack", "schedule", "park"]
OPTIONS = ("auto", "hold", "nack", "schedule", "park")

# For how many more seconds no copy with this delay can be scheduled for a source. Called from any thread.
ScheduleWait = Callable[[Destination, float], float]

HOLD_MAX = 10.0  # the longest hold in seconds (no-head-of-line-blocking)
HOLD_MAX_ALONE = 1.0  # with a prefetch of one, because nothing else runs meanwhile
ACK_TIMEOUT_SHARE = 0.25  # of the broker's ack timeout
APART_MOST = 8  # the most deliveries of one source that are kept here because they cannot be copied
GIVE_BACK_SHARE = 0.5  # of the broker's ack timeout: a message that cannot be copied is released before this has passed
PASSING_CURE = "consume a queue with a name of its own (no queues are made for one that the broker named), or "


@dataclass(frozen=True, slots=True)
class DelayOptions:
    """Holds what was checked at start for one source."""

    option: Option
    budget: int  # deliveries that may be held at the same time
    hold_max: float  # seconds, each
    schedule: ScheduleRange | None
    longest: float  # seconds, the policy's longest delay
    postpone: ScheduleRange | None = None  # by releasing with a delay, at this source
    limbo: bool = False  # whether there is a limbo to park in
    returned_after: float = 0.0  # seconds for which the broker itself delays a returned message
    # places of the budget for holds of `hold_max`; other holds last at most a second. None: all places
    spare: int | None = None
    apart: int = 0  # deliveries that may be kept here at once because they cannot be copied
    apart_beyond: int = 0  # those of these places that are beyond the budget
    keep_at_most: float | None = None  # seconds that a message that cannot be copied is kept unsettled; None: no limit
    letters: bool = False  # whether there is a limbo for dead letters that cannot be copied
    hold_in_line: float = 0.0  # seconds of hold for a message for which others of its key wait; 0: as any other

    def in_line(self) -> DelayOptions:
        """Return these options for a message that has a place in the line of its key.

        The message is held for as long as the others may wait for it, because a copy at the broker has no place that
        survives this process. A copy in the limbo has one.
        """
        schedule = None if self.limbo else self.schedule
        return replace(self, hold_max=max(self.hold_max, self.hold_in_line), schedule=schedule)

    def within(self, window: int | None, unsettled: int, budget: int) -> DelayOptions:
        """Return these options for a prefetch window that only the driver knows.

        - `window`: deliveries that the broker lets a consumer have unsettled, if that is known.
        - `unsettled`: the most deliveries that were unsettled at once: an unknown window is at least that large. Its
          last place is taken for a second only, because healthy messages may have no other place.
        - `budget`: deliveries that may be held at the same time in a large window.
        """
        if window is None:
            held, spare = max(1, unsettled), max(0, unsettled - 1)
            apart, beyond = min(APART_MOST, (spare + 1) // 2), 0
        else:
            held = hold_budget(window)
            spare = held if window > 1 else 0
            apart, beyond = places_apart(window)
        held = min(budget, held)
        return replace(self, budget=held, spare=min(spare, held), apart=apart, apart_beyond=beyond)


@dataclass(frozen=True, slots=True)
class DelayChoice:
    """Holds one choice: the mechanism, the seconds of this hop, whether the source has to pause, and who waits."""

    how: Mechanism
    seconds: float
    pause: bool = False
    there: bool = False  # for a nack: the broker waits with the message, instead of this process


def hold_budget(prefetch: int) -> int:
    """Return half of the prefetch window, so that healthy messages keep the other half; 1 for a prefetch of one."""
    return max(1, prefetch // 2)


def places_apart(prefetch: int) -> tuple[int, int]:
    """Return the places for deliveries that cannot be copied, and how many of these are closed to held ones.

    These are at most half of what the hold budget leaves of the prefetch window: healthy messages keep the other half.
    A window of two has one place for both, a window of one has none.
    """
    beyond = min(APART_MOST, (prefetch - hold_budget(prefetch)) // 2)
    return (max(1, beyond) if prefetch > 1 else 0), beyond


def hold_limit(prefetch: int, ack_timeout: float | None) -> float:
    """Return how long one hold may last, in seconds."""
    limit = HOLD_MAX if prefetch > 1 else HOLD_MAX_ALONE
    return min(limit, ack_timeout * ACK_TIMEOUT_SHARE) if ack_timeout else limit


def delay_options(
    source: Destination,
    capabilities: Capabilities,
    *,
    option: Option,
    prefetch: int,
    longest: float,
    ack_timeout: float | None,
    exclusive: bool = False,
    helpers: bool = True,
    limbo: bool = False,
    returned_after: float = 0.0,
) -> DelayOptions:
    """Return the options for `source`. Raises PolicyError if the policy's longest delay is not possible safely."""
    if option not in OPTIONS:
        raise ConfigError(
            f"delay={option!r} is unknown", cure=f"Choose one of {', '.join(OPTIONS)}", code="option-value"
        )
    if option == "park" and not limbo:
        raise ConfigError(
            "delay='park' needs a limbo, and none is given",
            cure='Give one: limbo="sqlite:///limbo.db"',
            code="limbo-required",
        )
    limit = hold_limit(prefetch, ack_timeout)
    passing = bool(capabilities.passing_prefix) and source.name.startswith(capabilities.passing_prefix)
    helpers = helpers and not passing
    schedule = _reach(capabilities.schedule, longest) if option in ("auto", "schedule") and helpers else None
    postpone = capabilities.delayed_release if option in ("auto", "nack") else None
    here = f"{source} on {capabilities.dialect}"
    if option == "nack" and postpone is None:
        _check_nack(here, capabilities, exclusive)
    if option == "schedule" and (capabilities.schedule is None or not helpers):
        raise PolicyError(
            "this broker cannot delay a copy safely", where=here, cure="Use delay='auto'", code="delay-not-possible"
        )
    parks = limbo and option in ("auto", "park")
    apart, beyond = places_apart(prefetch)
    if longest > limit and schedule is None and postpone is None and not parks:
        raise PolicyError(
            f"the policy waits up to {longest:g} s, but here a message may be held for {limit:g} s at most "
            f"and neither scheduled copies nor a limbo are to be had",
            where=here,
            cure=f"Shorten the delays to {limit:g} s, raise the prefetch above 1, or "
            + (PASSING_CURE if passing else "")
            + (capabilities.delay_cure or "use delay='auto' with limbo=, or on a broker that can schedule"),
            code="delay-not-possible",
        )
    return DelayOptions(
        option,
        hold_budget(prefetch),
        limit,
        schedule,
        longest,
        postpone,
        parks,
        returned_after,
        apart=apart,
        apart_beyond=beyond,
        keep_at_most=ack_timeout * GIVE_BACK_SHARE if ack_timeout else None,
        letters=limbo,
    )


def _reach(schedule: ScheduleRange | None, longest: float) -> ScheduleRange | None:
    """Return only the rungs that this policy can use: no others are declared."""
    if schedule is None or not schedule.rungs:
        return schedule
    rungs = tuple(rung for rung in schedule.rungs if rung <= longest)
    return ScheduleRange(rungs, schedule.smallest) if rungs else None


def _check_nack(here: str, capabilities: Capabilities, exclusive: bool) -> None:
    if "released" not in capabilities.honours or not capabilities.released_uncounted:
        raise PolicyError(
            "giving a message back counts towards the broker's own limit here, or is not honoured",
            where=here,
            cure="Use delay='auto'",
            code="delay-not-possible",
        )
    if not exclusive:
        raise PolicyError(
            "delay='nack' needs the source for itself: the count would not survive another consumer",
            where=here,
            cure="Use delay='auto'",
            code="delay-not-possible",
        )


def choose_delay(
    delay: float, ways: DelayOptions, *, room: bool, nackable: bool, copyable: bool = True, postponable: bool = False
) -> DelayChoice:
    """Return how the next attempt is delayed by `delay` seconds.

    `room`: the hold budget has a free place. `nackable`: the message has an id that survives its return. `copyable`: an
    exact copy can be made. `postponable`: the message can be released with a delay, if that is available here.
    """
    leaves = delay > ways.hold_max or not room
    if ways.postpone is not None and postponable and (ways.option == "nack" or leaves):
        away = ways.postpone.hop(delay)
        if away > 0:
            return DelayChoice("nack", away, there=True)
    before = delay - ways.returned_after  # the broker's own delay is part of the delay
    if ways.option == "nack" and nackable and ways.postpone is None and before >= 0 and delay <= ways.hold_max:
        return DelayChoice("nack", before, pause=not room)
    if ways.option == "park" and copyable and delay > 0:
        return DelayChoice("park", delay)
    if ways.schedule is not None and copyable and (ways.option == "schedule" or leaves):
        hop = ways.schedule.hop(delay)
        if hop > 0:
            return DelayChoice("schedule", hop)
    if ways.limbo and copyable and leaves:
        return DelayChoice("park", delay)
    return DelayChoice("hold", min(delay, ways.hold_max), pause=not room)
