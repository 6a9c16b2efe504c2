# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the offsets of hosts' clocks, from handovers between hosts whose true clocks are known; no Spark is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from redeliver_mw.pipeline.host_clocks import LEAST, Handovers, HostClock, HostDay, host_clocks
from redeliver_mw.pipeline.time_range import DAY_US

SECOND = 1_000_000
DAY = 20_500  # since 1970
Waits = Callable[[Generator, int], np.ndarray]
Ways = Sequence[tuple[int, int]]


def short(rng: Generator, n: int) -> np.ndarray:
    """Draw waits of 0.1 s and more, most of them below a second."""
    return 0.1 + rng.exponential(0.4, n)


def heavy(rng: Generator, n: int) -> np.ndarray:
    """Draw waits with a median of 0.5 s, of which one in a hundred lasts for minutes or hours."""
    return 0.5 * rng.pareto(0.9, n) + 0.05


def world(
    rng: Generator,
    ways: Ways,
    each: int,
    clock: Callable[[int, np.ndarray], np.ndarray],
    waits: Waits = short,
    days: int = 1,
) -> Handovers:
    """Draw so many handovers on each way (from, to) on each day, at any time of it.

    `clock` is how far a host is ahead at such seconds since the first day began.
    """
    before = np.repeat([way[0] for way in ways], each * days)
    after = np.repeat([way[1] for way in ways], each * days)
    ends_s = rng.uniform(0, days * 86_400, len(before))
    starts_s = ends_s + waits(rng, len(before))
    ahead = np.array([clock(int(host), at) for host, at in zip(after, starts_s, strict=True)])
    behind = np.array([clock(int(host), at) for host, at in zip(before, ends_s, strict=True)])
    at_us = DAY * DAY_US + np.round((starts_s + ahead) * SECOND).astype(np.int64)
    gap_us = np.round((starts_s + ahead - ends_s - behind) * SECOND).astype(np.int64)
    return Handovers(at_us, before.astype(np.int64), after.astype(np.int64), gap_us)


def ahead_by(*offsets: float) -> Callable[[int, np.ndarray], np.ndarray]:
    return lambda host, _: np.float64(offsets[host])


def both_ways(hosts: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(hosts) for j in range(hosts)]


def days_of(*records: int, days: int = 1) -> list[HostDay]:
    return [HostDay(host, DAY + day, n) for day in range(days) for host, n in enumerate(records)]


def by_host(found: Sequence[HostClock]) -> dict[int, HostClock]:
    assert len({one.host for one in found}) == len(found)
    return {one.host: one for one in found}


def assert_holds(one: HostClock, truth_s: float, *, within_s: float) -> None:
    """Check that the truth lies within the error, and that the error is small."""
    assert one.offset_us is not None
    assert one.error_us is not None
    assert abs(one.offset_us - truth_s * SECOND) <= one.error_us
    assert one.error_us <= within_s * SECOND


def test_a_host_30_s_behind_is_found_to_within_its_error() -> None:
    found = by_host(host_clocks(world(default_rng(1), both_ways(2), 300, ahead_by(0, -30)), days_of(700, 600)))
    assert (found[0].state, found[0].offset_us) == ("in step", 0)
    assert found[1].state == "corrected"
    assert_holds(found[1], -30, within_s=0.25)
    assert found[1].pairs == 600  # 300 each way, and none with itself
    assert (found[1].since_us, found[1].until_us) == (DAY * DAY_US, (DAY + 1) * DAY_US)


def test_the_odd_clock_of_three_is_corrected_also_if_its_host_is_the_busiest() -> None:
    found = by_host(host_clocks(world(default_rng(2), both_ways(3), 100, ahead_by(45, 0, 0.1)), days_of(900, 600, 500)))
    assert [found[host].state for host in range(3)] == ["corrected", "in step", "in step"]
    assert_holds(found[0], 45, within_s=0.3)


def test_hosts_that_never_met_are_compared_along_a_chain() -> None:
    ways = [(0, 1), (1, 0), (1, 2), (2, 1)]
    found = by_host(host_clocks(world(default_rng(3), ways, 100, ahead_by(0, 0, -20)), days_of(500, 400, 300)))
    assert [found[host].state for host in range(3)] == ["in step", "in step", "corrected"]
    assert_holds(found[2], -20, within_s=0.6)


def test_three_ways_in_a_ring_bound_each_clock_from_both_sides() -> None:
    ways = [(0, 1), (1, 2), (2, 0)]
    found = by_host(host_clocks(world(default_rng(4), ways, 100, ahead_by(0, 40, -20)), days_of(500, 400, 300)))
    assert [found[host].state for host in range(3)] == ["in step", "corrected", "corrected"]
    assert_holds(found[1], 40, within_s=0.8)
    assert_holds(found[2], -20, within_s=0.8)


def test_one_way_alone_proves_a_clock_that_is_behind_and_own_waits_say_how_far() -> None:
    ways = [(0, 0), (0, 1)]
    found = by_host(host_clocks(world(default_rng(5), ways, 200, ahead_by(0, -30)), days_of(900, 100)))
    assert found[1].state == "corrected"
    assert_holds(found[1], -30, within_s=0.5)


def test_one_way_alone_proves_nothing_about_a_clock_that_is_ahead() -> None:
    """The other host may as well take over half a minute after the first has died."""
    ways = [(0, 0), (0, 1)]
    found = by_host(host_clocks(world(default_rng(6), ways, 200, ahead_by(0, 30)), days_of(900, 100)))
    assert (found[1].state, found[1].offset_us) == ("unknown", None)


def test_one_way_alone_without_waits_to_compare_with_is_unknown() -> None:
    found = by_host(host_clocks(world(default_rng(7), [(0, 1)], 200, ahead_by(0, -30)), days_of(900, 100)))
    assert found[1].state == "unknown"


@pytest.mark.parametrize("skew_s", [30.0, -30.0, 3.0])
def test_waits_with_a_heavy_tail_do_not_move_an_offset(skew_s: float) -> None:
    for seed in range(50):
        handovers = world(default_rng(seed), both_ways(2), 100, ahead_by(0, skew_s), heavy)
        found = by_host(host_clocks(handovers, days_of(300, 200)))
        assert found[1].state == "corrected"
        assert_holds(found[1], skew_s, within_s=0.5)


def test_waits_that_are_longer_on_one_way_stay_within_the_error() -> None:
    """Waits are 3 s from the first host to the second and 0.1 s back: half the difference would be 1.45 s of skew."""
    there = world(default_rng(8), [(0, 1)], 100, ahead_by(0, 0), lambda rng, n: 3 + rng.exponential(0.1, n))
    back = world(default_rng(9), [(1, 0)], 100, ahead_by(0, 0))
    both = Handovers(*(np.concatenate(pair) for pair in zip(vars(there).values(), vars(back).values(), strict=True)))
    found = by_host(host_clocks(both, days_of(200, 100)))
    assert found[1].state == "in step"
    assert_holds(found[1], 0, within_s=2)


def any_world(seed: int, skew_s: float) -> tuple[Handovers, list[HostDay], np.ndarray]:
    """Draw some ways between two to six hosts.

    Each way has waits of its own, exponential or without a mean, from 10 ms to minutes. Timers are up to 10 ms early.
    Every second host is out by up to `skew_s`, and all hosts are out by up to 50 ms.
    """
    rng = default_rng(seed)
    hosts = int(rng.integers(2, 7))
    ways = rng.permutation(both_ways(hosts))[: int(rng.integers(1, hosts * hosts + 1))]
    clocks = rng.uniform(-0.05, 0.05, hosts) + rng.choice([0, 1], hosts) * rng.uniform(-skew_s, skew_s, hosts)
    parts = []
    for i, j in ways:
        least, more, law = 10 ** rng.uniform(-2, 2), 10 ** rng.uniform(-2, 3), rng.choice(["short", "heavy"])

        def waits(rng: Generator, n: int, least: float = least, more: float = more, law: str = law) -> np.ndarray:
            drawn = rng.exponential(more, n) if law == "short" else more * rng.pareto(0.8, n)
            return least - 0.01 + np.minimum(drawn, 1e6)

        parts.append(world(rng, [(int(i), int(j))], int(rng.integers(1, 120)), ahead_by(*clocks), waits))
    whole = Handovers(*(np.concatenate(arrays) for arrays in zip(*(vars(one).values() for one in parts), strict=True)))
    return whole, days_of(*(int(n) for n in rng.integers(1, 1_000, hosts))), clocks


def test_without_skew_nothing_is_corrected_in_a_thousand_worlds() -> None:
    for seed in range(1_000):
        handovers, days, _ = any_world(seed, 0)
        assert "corrected" not in {one.state for one in host_clocks(handovers, days)}, seed


def test_what_is_corrected_in_a_thousand_worlds_with_skew_is_never_worse_afterwards() -> None:
    """The errors are measured against the host that all clocks are told against.

    The offsets come from bounds on both sides, and not from a bound on one side and usual waits.
    """
    corrected = 0
    for seed in range(1_000):
        handovers, days, clocks = any_world(seed, 100)
        found = by_host(host_clocks(handovers.where(handovers.before != handovers.after), days))
        zero = next(one.host for one in found.values() if one.offset_us == one.error_us == 0)
        for one in found.values():
            if one.state == "corrected":
                truth_s = clocks[one.host] - clocks[zero]
                assert_holds(one, truth_s, within_s=abs(truth_s) + 0.1)
                corrected += 1
    assert corrected > 100


def test_a_clock_that_is_set_back_in_the_middle_is_corrected_on_both_sides() -> None:
    def clock(host: int, at_s: np.ndarray) -> np.ndarray:
        return np.where((host == 1) & (at_s < 0.7 * 86_400), -30.0, 0.0)

    found = host_clocks(world(default_rng(10), both_ways(2), 4_000, clock), days_of(700, 600))
    parts = [one for one in found if one.host == 1]
    assert [one.until_us for one in parts[:-1]] == [one.since_us for one in parts[1:]]
    assert (parts[0].since_us, parts[-1].until_us) == (DAY * DAY_US, (DAY + 1) * DAY_US)
    step_us = DAY * DAY_US + round(0.7 * DAY_US)
    for one in parts:
        if one.until_us <= step_us:
            assert one.state == "corrected"
            assert_holds(one, -30, within_s=0.5)
        elif one.since_us >= step_us:
            assert one.state == "in step"
        else:
            assert one.state == "unknown"
            assert one.until_us - one.since_us <= DAY_US // 64


def test_a_clock_that_drifts_is_followed_in_steps_that_hold_the_truth_in_their_middle() -> None:
    found = host_clocks(
        world(default_rng(11), both_ways(2), 4_000, lambda host, at: host * (-40 + at / 86_400 * 20)), days_of(700, 600)
    )
    parts = [one for one in found if one.host == 1]
    assert len(parts) > 4
    for one in parts:
        middle_s = ((one.since_us + one.until_us) / 2 - DAY * DAY_US) / SECOND
        assert one.state == "corrected"
        assert one.offset_us == pytest.approx((-40 + middle_s / 86_400 * 20) * SECOND, abs=SECOND)


def test_with_too_few_handovers_it_is_unknown_and_with_just_enough_it_is_known() -> None:
    for each, state in ((LEAST - 1, "unknown"), (LEAST, "corrected")):
        found = by_host(host_clocks(world(default_rng(12), [(0, 1), (1, 0)], each, ahead_by(0, -30)), days_of(90, 80)))
        assert found[1].state == state


def test_without_any_handover_only_the_clock_that_all_are_compared_with_is_in_step() -> None:
    none = np.zeros(0, np.int64)
    found = by_host(host_clocks(Handovers(none, none, none, none), days_of(5, 9)))
    assert {host: (one.state, one.offset_us, one.pairs) for host, one in found.items()} == {
        0: ("unknown", None, 0),
        1: ("in step", 0, 0),
    }
    assert host_clocks(Handovers(none, none, none, none), []) == []


def test_quiet_days_take_what_all_days_together_tell() -> None:
    handovers = world(default_rng(13), [(0, 1), (1, 0)], 10, ahead_by(0, -30), days=30)  # ten each way on each day
    found = host_clocks(handovers, days_of(40, 20, days=30))
    assert len(found) == 60
    assert {one.state for one in found if one.host == 1} == {"corrected"}
    for one in found:
        assert_holds(one, -30 * one.host, within_s=0.4)


def test_days_on_which_other_hosts_are_busy_are_measured_against_the_same_clock() -> None:
    """Host 2 is 30 s behind. Hosts 0, 1 and 2 are busy on the first day, and hosts 2 and 3 on the second."""
    first = world(default_rng(14), both_ways(3), 50, ahead_by(0, 0, -30))
    second = world(default_rng(15), [(2, 3), (3, 2)], 50, ahead_by(0, 0, -30, -30))
    both = Handovers(
        np.concatenate([first.at_us, second.at_us + DAY_US]),
        np.concatenate([first.before, second.before]),
        np.concatenate([first.after, second.after]),
        np.concatenate([first.gap_us, second.gap_us]),
    )
    days = [*days_of(900, 800, 700), HostDay(2, DAY + 1, 100), HostDay(3, DAY + 1, 100)]
    for one in host_clocks(both, days):
        assert_holds(one, -30 if one.host >= 2 else 0, within_s=0.8)
        assert one.state == ("corrected" if one.host >= 2 else "in step")


def many_hosts(rng: Generator, hosts: int, n: int, clock: Callable[[int], float]) -> Handovers:
    """Draw handovers between any two of many hosts, on one day."""
    before, after = rng.integers(0, hosts, n), rng.integers(0, hosts, n)
    ahead = np.array([clock(host) for host in range(hosts)])
    ends_s, waits_s = rng.uniform(100, 86_000, n), 1 + rng.exponential(2, n)
    at_us = DAY * DAY_US + np.round((ends_s + waits_s + ahead[after]) * SECOND).astype(np.int64)
    return Handovers(at_us, before, after, np.round((waits_s + ahead[after] - ahead[before]) * SECOND).astype(np.int64))


def test_many_hosts_of_which_no_two_met_often_are_measured_by_groups_that_have_one_clock() -> None:
    """Of 300 hosts a third is 30 s behind, and there are 15,000 handovers: one on every sixth way."""
    handovers = many_hosts(default_rng(18), 300, 15_000, lambda host: -30 if host % 3 == 0 else 0)
    for one in host_clocks(handovers, days_of(*range(100, 400))):
        assert one.state == ("corrected" if one.host % 3 == 0 else "in step")
        assert_holds(one, -30 if one.host % 3 == 0 else 0, within_s=1.5)


def test_many_hosts_in_step_are_never_corrected_however_their_waits_are() -> None:
    for seed in range(200):
        rng = default_rng(seed)
        handovers = many_hosts(rng, 60, 4_000, lambda _: 0)
        slow = 10 ** rng.uniform(-1, 3, 60)  # each host takes up what comes as late as it is used to
        handovers.gap_us[:] += np.round(slow[handovers.after] * rng.pareto(1, 4_000).clip(0, 1e4) * SECOND).astype(
            np.int64
        )
        found = host_clocks(handovers, days_of(*range(100, 160)))
        assert "corrected" not in {one.state for one in found}, seed


def test_a_clock_that_drifts_among_many_hosts_is_followed_against_all_of_them_together() -> None:
    rng = default_rng(19)
    handovers = many_hosts(rng, 20, 30_000, lambda _: 0)
    drift_us = 20 * (handovers.at_us - DAY * DAY_US) / DAY_US * SECOND
    ahead = (handovers.after == 4).astype(int) - (handovers.before == 4)
    handovers.gap_us[:] += np.round(ahead * drift_us).astype(np.int64)
    parts = [one for one in host_clocks(handovers, days_of(*range(100, 120))) if one.host == 4]
    known = [one for one in parts if one.offset_us is not None]
    assert sum(one.until_us - one.since_us for one in known) > 0.9 * DAY_US
    for one in known:
        assert one.offset_us == pytest.approx(20 * ((one.since_us + one.until_us) / 2 / DAY_US - DAY) * SECOND, abs=2e6)


def test_one_in_twenty_gaps_that_are_wrong_do_no_harm() -> None:
    handovers = world(default_rng(16), both_ways(2), 200, ahead_by(0, -30))
    handovers.gap_us[::21] -= 3_600 * SECOND  # a count was lost: what is taken for the next attempt was an earlier one
    found = by_host(host_clocks(handovers, days_of(700, 600)))
    assert found[1].state == "corrected"
    assert_holds(found[1], -30, within_s=0.4)


def test_two_machines_with_one_name_are_unknown() -> None:
    rng = default_rng(17)
    handovers = world(rng, both_ways(3), 300, ahead_by(0, 0, 0))
    own = (handovers.before == 2) | (handovers.after == 2)
    handovers.gap_us[own] += rng.choice([-30, 0, 30], own.sum()) * SECOND
    found = host_clocks(handovers, days_of(700, 600, 500))
    assert {one.state for one in found if one.host == 2} == {"unknown"}
    assert {one.state for one in found if one.host < 2} == {"in step"}
