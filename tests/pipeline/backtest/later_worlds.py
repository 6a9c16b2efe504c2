# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds worlds of the gallery that were written when the back-test was done; nothing in it was adjusted to them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redeliver_mw.policy import Backoff, RedeliveryPolicy

from .gallery import (
    ARM,
    DAY,
    JITTERED,
    MONTH,
    STEADY,
    Floats,
    GalleryWorld,
    Maker,
    Month,
    Rng,
    arrivals,
    by_attempt,
    deploy,
    drifting,
    lognormal,
    month_of,
    never,
    outage_world,
    poison_bursts,
    smooth,
)

WIDE = RedeliveryPolicy(7, Backoff.exponential(0.5, 2.5).jittered(0.5))
PATIENT = RedeliveryPolicy(6, Backoff.constant(30).jittered(0.5))
HASTY = RedeliveryPolicy(3, Backoff.constant(1).jittered(0.3))


Healing = Callable[[Rng, Floats], Floats]  # how long messages take to heal, by when they arrive


def law(count: int, draw: Healing, share: float = 0.05) -> Maker:
    def make(rng: Rng, month: int) -> Month:
        at = arrivals(rng, count)
        return month_of(rng, at, never(rng, draw(rng, at), share))

    return make


def gamma(rng: Rng, at: Floats) -> Floats:
    return rng.gamma(0.6, 12.0, len(at))


def weibull(rng: Rng, at: Floats) -> Floats:
    return 6.0 * rng.weibull(0.5, len(at))


def two_humps(rng: Rng, at: Floats) -> Floats:
    return np.where(rng.random(len(at)) < 0.5, rng.exponential(0.5, len(at)), 40.0 + 30.0 * rng.random(len(at)))


def up_to_a_minute(rng: Rng, at: Floats) -> Floats:
    return 60.0 * rng.random(len(at))


def at_the_next(seconds: float) -> Healing:
    """Return the law of a restart every so many seconds on the clock: what failed before the restart recovers then."""

    def draw(rng: Rng, at: Floats) -> Floats:
        return seconds - at % seconds

    return draw


def quick_and_hours(rng: Rng, at: Floats) -> Floats:
    return np.where(rng.random(len(at)) < 0.02, 3600.0 * (1 + rng.random(len(at))), lognormal(rng, len(at), 2.0, 1.0))


def by_hour_of_the_day(rng: Rng, at: Floats) -> Floats:
    noon = np.abs(at % DAY / 3600 - 12.5) < 1.5
    return lognormal(rng, len(at), 4.0, 1.0) * np.where(noon, 5.0, 1.0)


def slow_weekends(rng: Rng, at: Floats) -> Floats:
    return lognormal(rng, len(at), 3.0, 1.2) * np.where(at / DAY % 7 >= 5, 4.0, 1.0)


def over_ten_days(rng: Rng, at: Floats) -> Floats:
    return lognormal(rng, len(at), 4.0, 1.0) * np.exp(0.7 * np.sin(2 * np.pi * at / (10 * DAY)))


def good_and_bad_days(rng: Rng, at: Floats) -> Floats:
    bad = rng.random(31) < 0.3
    return lognormal(rng, len(at), 3.0, 1.0) * np.where(bad[(at / DAY).astype(int)], 6.0, 1.0)


def at_night(rng: Rng, month: int) -> Month:
    """Return a month with four fifths of its messages in one hour of each night."""
    day, batch = arrivals(rng, 500), rng.integers(0, 30, 2000) * DAY + 7200 + 3600 * rng.random(2000)
    at = np.sort(np.concatenate([day, batch]))
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 5.0, 1.3), 0.05))


def one_busy_day(rng: Rng, month: int) -> Month:
    busy = rng.integers(0, 30) * DAY + DAY * rng.random(1500)
    at = np.sort(np.concatenate([arrivals(rng, 1500), busy]))
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 5.0, 1.3), 0.05))


def month_end(rng: Rng, month: int) -> Month:
    at = np.sort(np.concatenate([arrivals(rng, 1200), MONTH - 3 * DAY * rng.random(1200)]))
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 5.0, 1.3), 0.05))


def more_and_more(rng: Rng, month: int) -> Month:
    """Return a month with three times as many messages at its end as at its beginning; each recovers as ever."""
    at = np.sort(MONTH * (np.sqrt(1 + 8 * rng.random(rng.poisson(2500))) - 1) / 2)
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 5.0, 1.3), 0.05))


def names_change(rng: Rng, month: int) -> Month:
    """Return a month in whose middle another failure takes the place of the first, and recovers as the first did."""
    at = arrivals(rng, 2500)
    kind = ((at > MONTH / 2) ^ bool(month)).astype(np.int64)
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 5.0, 1.3), 0.05), fingerprint=kind)


def bad_last_week(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    late = (month > 0) | (at > MONTH - 7 * DAY)
    return month_of(rng, at, never(rng, lognormal(rng, len(at), 2.0, 1.0) * np.where(late, 15.0, 1.0), 0.05))


def two_hosts(rng: Rng, month: int) -> Month:
    at = arrivals(rng, 2500)
    slow = rng.random(len(at)) < 0.5
    heals = lognormal(rng, len(at), 3.0, 1.0) * np.where(slow, 8.0, 1.0)
    return month_of(rng, at, never(rng, heals, 0.05), failing_s=np.where(slow, 2.0, 0.01))


def untrusted(share: float) -> Maker:
    def make(rng: Rng, month: int) -> Month:
        made = smooth(3000)(rng, month)
        made.untrusted = rng.random(len(made.arrive)) < share
        return made

    return make


def later_worlds() -> tuple[GalleryWorld, ...]:
    """Return the worlds that were written when the back-test was done.

    Most are played under a policy with jitter or with an arm, since one fixed schedule is seldom advised against.
    """
    one = GalleryWorld
    return (
        one("gamma, jitter", "judged", law(2500, gamma), policy=JITTERED),
        one("weibull, wide jitter", "judged", law(2500, weibull), policy=WIDE),
        one("two humps, wide jitter", "judged", law(2500, two_humps), policy=WIDE),
        one("up to a minute, patient", "judged", law(2500, up_to_a_minute), policy=PATIENT),
        one("up to a minute, patient, fewer attempts", "judged", law(2500, up_to_a_minute), PATIENT, "fewer-attempts"),
        one("a restart every 30 s", "judged", law(2500, at_the_next(30.0)), policy=WIDE),
        one("a restart every minute, an arm", "judged", law(4000, at_the_next(60.0), 0.1), arm=ARM),
        one("2 % take hours", "judged", law(2500, quick_and_hours, 0.0), policy=JITTERED),
        one("slow at noon, wide jitter", "judged", law(2500, by_hour_of_the_day), policy=WIDE),
        one("slow weekends, jitter", "judged", law(2500, slow_weekends), policy=JITTERED),
        one("waves of ten days, jitter", "judged", law(2500, over_ten_days), policy=JITTERED),
        one("good and bad days, jitter", "judged", law(2500, good_and_bad_days), policy=JITTERED),
        one("a batch each night, jitter", "judged", at_night, policy=JITTERED),
        one("one busy day, jitter", "judged", one_busy_day, policy=JITTERED),
        one("busy at the end of the month, jitter", "judged", month_end, policy=JITTERED),
        one("more and more messages, jitter", "judged", more_and_more, policy=JITTERED),
        one("failures change their names, jitter", "judged", names_change, policy=JITTERED),
        one("two hosts, one slow, jitter", "judged", two_hosts, policy=JITTERED),
        one("two hosts, one slow, an arm", "judged", two_hosts, arm=ARM),
        one("100 outages of 30 s, jitter", "judged", outage_world(100, 30.0), policy=JITTERED),
        one("30 outages among others, an arm", "judged", outage_world(30, 120.0, background=2500), arm=ARM),
        one("8 outages of half an hour, jitter", "judged", outage_world(8, 1800.0, each=150), policy=JITTERED),
        one("bursts of poison, an arm", "judged", poison_bursts, arm=ARM),
        one("timeouts of 30 s, jitter", "judged", smooth(failing_s=30.0, median=40.0), policy=JITTERED),
        one("heavy durations, an arm", "judged", smooth(4000, failing_s=2.0, heavy=True), arm=ARM),
        one("a broker that is 5 s late", "judged", smooth(late_s=5.0)),
        one("a broker that is 0.2 s late, jitter", "judged", smooth(late_s=0.2), policy=JITTERED),
        one("hasty, few attempts", "judged", smooth(), policy=HASTY),
        one("steady with jitter, fewer attempts", "judged", smooth(median=20.0), PATIENT, "fewer-attempts"),
        one("patient, sooner wanted", "judged", smooth(median=8.0), PATIENT, "sooner"),
        one("150 messages, wide jitter", "judged", smooth(150), policy=WIDE),
        one("20 000 messages, jitter", "judged", smooth(20_000), policy=JITTERED),
        one("200 messages, an arm", "judged", smooth(200), arm=ARM),
        one("two policies with jitter, one after the other", "judged", smooth(), policy=JITTERED, before=STEADY),
        one("nothing ever heals, jitter", "judged", smooth(share=1.0), JITTERED, "fewer-attempts"),
        one("half of the times not known, jitter", "judged", untrusted(0.5), policy=JITTERED),
        one("healing slower, 1.5 times, an arm", "judged", drifting(1.5), arm=ARM),
        one("healing slower, 5 times, an arm", "not judged", drifting(5.0), arm=ARM),
        one("healing quicker, 5 times, jitter", "not judged", drifting(0.2), policy=JITTERED),
        one("a bad last week, jitter", "not judged", bad_last_week, policy=JITTERED),
        one("a deploy in the middle, jitter", "not judged", deploy(2.0, 30.0), policy=JITTERED),
        one("by the attempt, two policies", "not judged", by_attempt, before=STEADY),
        one("retries prolong long outages, an arm", "unseen", outage_world(60, 60.0, each=40, harm_s=0.1), arm=ARM),
        one("retries prolong outages, jitter", "unseen", outage_world(80, 20.0, each=40, harm_s=0.05), JITTERED),
    )


# -- written when faults that the worlds above showed were mended -----------------------------------------------------


def log_logistic(rng: Rng, at: Floats) -> Floats:
    odds = rng.random(len(at))
    return 5.0 * (odds / (1 - odds)) ** (1 / 1.6)


def three_humps(rng: Rng, at: Floats) -> Floats:
    middle = np.array([1.0, 10.0, 45.0])[rng.integers(0, 3, len(at))]
    return middle * np.exp(0.15 * rng.standard_normal(len(at)))


def late_and_narrow(rng: Rng, at: Floats) -> Floats:
    return 25.0 + 3.0 * rng.standard_normal(len(at))


def slow_hour(rng: Rng, month: int) -> Month:
    """Return a month with an hour of each day in which nothing recovers before the hour ends."""
    at = arrivals(rng, 3000)
    left = 3600.0 - at % DAY
    heals = lognormal(rng, len(at), 3.0, 1.2)
    return month_of(rng, at, never(rng, np.where(left > 0, np.maximum(left, heals), heals), 0.03))


def rare_and_slow(rng: Rng, month: int) -> Month:
    """Return a month with another failure, one in ten, which takes minutes and whose attempts wait for a timeout."""
    at = arrivals(rng, 3000)
    kind = (rng.random(len(at)) < 0.1).astype(np.int64)
    heals = np.where(kind == 1, lognormal(rng, len(at), 90.0, 0.7), lognormal(rng, len(at), 2.0, 1.0))
    return month_of(rng, at, never(rng, heals, 0.02), fingerprint=kind, failing_s=np.where(kind == 1, 20.0, 0.02))


def sudden_poison(rng: Rng, month: int) -> Month:
    """Return a month in which many more messages never recover from the third week on: 25 % of them, and 2 % before."""
    at = arrivals(rng, 2500)
    late = (month > 0) | (at > MONTH / 2)
    heals = lognormal(rng, len(at), 4.0, 1.2)
    return month_of(rng, at, np.where(rng.random(len(at)) < np.where(late, 0.25, 0.02), np.inf, heals))


def fresh_worlds() -> tuple[GalleryWorld, ...]:
    one = GalleryWorld
    return (
        one("log-logistic, jitter", "judged", law(2500, log_logistic), policy=JITTERED),
        one("log-logistic, an arm", "judged", law(4000, log_logistic), arm=ARM),
        one("three humps, wide jitter", "judged", law(2500, three_humps), policy=WIDE),
        one("three humps, an arm", "judged", law(4000, three_humps), arm=ARM),
        one("late and narrow, wide jitter", "judged", law(2500, late_and_narrow), policy=WIDE),
        one(
            "late and narrow, patient, fewer attempts", "judged", law(2500, late_and_narrow), PATIENT, "fewer-attempts"
        ),
        one("an hour of each day, jitter", "judged", slow_hour, policy=JITTERED),
        one("one in ten is slow, wide jitter", "judged", rare_and_slow, policy=WIDE),
        one("one in ten is slow, an arm", "judged", rare_and_slow, arm=ARM),
        one("sudden poison, wide jitter", "not judged", sudden_poison, policy=WIDE),
        one("sudden poison, an arm", "not judged", sudden_poison, arm=ARM),
        one("healing quicker, 4 times, an arm", "not judged", drifting(0.25), arm=ARM),
    )
