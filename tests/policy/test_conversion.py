# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts any language to any: the written text is read as the same decisions, or the writer says what is lost.

All pairs of languages that can be read and written are tried. A random policy is written in the first language,
losses and all; what is read back is a random policy of that language's own, and goes into the second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import product
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination, DestinationKind
from redeliver_mw.policy import (
    Backoff,
    DeadLetter,
    Decision,
    Expiry,
    Keep,
    PolicyMap,
    Redeliver,
    RedeliveryPolicy,
    Target,
)
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.artemis_delays import ArtemisDelays
from redeliver_mw.policy.backoff import Linear
from redeliver_mw.policy.destinations import MapEntry
from redeliver_mw.policy.formats import READERS, WRITERS
from redeliver_mw.policy.stops import AfterFailures, AfterSeconds, AnyStop
from tests.policy.examples import EXAMPLES
from tests.policy.playing import LISTED, Pairs, differing, lost_of

# over all pairs: 500 cases, the same in each run, or as many of chance as REDELIVER_CONVERSIONS says
CASES = os.environ.get("REDELIVER_CONVERSIONS")
EACH = -(-int(CASES or "500") // len(READERS.keys() & WRITERS.keys()) ** 2)
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)  # making a failing policy small takes minutes
FAILURES = range(1, 101)
NOTHING = dict.fromkeys(("patchbay", "weblogic"), RedeliveryPolicy(None, 0, None, expiry=Expiry("discard")))
KINDS: tuple[DestinationKind, ...] = ("queue", "topic")
WRITABLE = sorted(READERS.keys() & WRITERS.keys())
ASKED = (
    *("orders", "orders.eu", "orders.eu.rush", "BILLING", "BILLING.A", "BILLING.A.B", "Work", "WorkErr"),
    *("shop.orders.vip", "shop.orders.x", "shop.orders", "patchbay:/acme/Orders", "/acme/Orders", "x.y.z.z"),
)

milliseconds = st.sampled_from([0, 1, 10, 250, 1000, 1500, 5000, 60_000])
seconds = milliseconds.map(lambda whole: whole / 1000)
multipliers = st.sampled_from([0.5, 1, 1.5, 2, 3, 10])
jitters = st.sampled_from([0.1, 0.15, 0.5, 1])
plain = st.one_of(
    st.builds(Backoff.constant, seconds),
    st.builds(Backoff.listed, st.lists(seconds, min_size=1, max_size=4)),
    st.builds(Backoff.steps, st.dictionaries(st.integers(1, 120), seconds, max_size=4)),
    st.builds(Backoff.exponential, seconds, multipliers, st.none() | seconds),
    st.builds(Linear, seconds, st.sampled_from([-1, 0, 0.5])),
    st.builds(
        ActiveMQDelays,
        milliseconds,
        milliseconds,
        st.none() | multipliers,
        st.none() | milliseconds,
        st.just(0.0) | jitters,
    ),
    st.builds(ArtemisDelays, milliseconds, multipliers, st.none() | milliseconds, st.just(0.0) | jitters),
)
backoffs = st.one_of(
    plain,
    st.builds(Backoff.jittered, plain, jitters),
    st.builds(lambda inner, jitter, cap: inner.jittered(jitter).capped(cap), plain, jitters, seconds),
)
limits = st.integers(1, 12) | st.none() | st.sampled_from([60, 99, 100, 101])
stops = limits.map(AfterFailures) | st.builds(lambda limit: AnyStop((AfterFailures(limit), AfterSeconds(60))), limits)
targets = st.builds(
    Target, st.sampled_from(["queue", "topic", "same"]), st.sampled_from(["DLQ", "DLQ.$", "$.dead", "DLQ.Queue.$"])
)
expiries = st.one_of(
    st.sampled_from([Expiry(), Expiry("discard"), Expiry("log", log="%header%,orderId")]),
    st.builds(
        Expiry, st.just("redirect"), targets, time_to_live=st.none() | st.just(60.0), priority=st.none() | st.just(7)
    ),
)
ends = st.none() | targets | st.lists(targets, min_size=1, max_size=2)
policies = st.builds(
    RedeliveryPolicy,
    limits.map(AfterFailures) | stops,
    backoffs,
    ends,
    st.sampled_from(["dead-letter", "discard", "keep"]),
    expiry=expiries,
    act=st.sampled_from(["failure", "arrival"]),
)


@st.composite
def armed(draw: st.DrawFn) -> RedeliveryPolicy:
    """Draw a policy with arms."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c d"]), min_size=1, max_size=2, unique=True))
    share = st.sampled_from([0.05, 0.1, 0.3])
    return draw(policies).replace(arms={name: (draw(share), draw(policies)) for name in names})


@st.composite
def maps(draw: st.DrawFn) -> PolicyMap:
    syntax = draw(st.sampled_from(["activemq", "artemis"]))
    rest = ">" if syntax == "activemq" else "#"
    patterns = [rest, f"orders.{rest}", "orders.*", "*.eu", "orders.eu", "orders", "*.*.rush", f"*.eu.{rest}"]
    keys = draw(
        st.lists(st.tuples(st.sampled_from(patterns), st.sampled_from([None, None, *KINDS])), max_size=3, unique=True)
    )
    entries = [MapEntry(pattern, kind, draw(policies)) for pattern, kind in keys]
    return PolicyMap(entries, draw(policies), syntax=syntax)


class Near(NamedTuple):
    """Holds a delay in seconds, and equals any other one within some tolerance."""

    delay: float
    within: float

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Near) and abs(self.delay - other.delay) <= self.within

    __hash__ = None


@st.composite
def maps_with_arms(draw: st.DrawFn) -> PolicyMap:
    plain = draw(maps())
    entries = [MapEntry(entry.pattern, entry.kind, draw(armed() | st.just(entry.given))) for entry in plain.entries]
    match = draw(st.sampled_from(["best", "merge", "chain"]))
    return PolicyMap(entries, draw(armed()), syntax=plain.syntax, match=match)


def told(decision: Decision, source: Destination) -> tuple[object, ...]:
    """Return what happens to the message. A message that is kept comes again, as one that is redelivered."""
    match decision:
        case Redeliver(base, low, high) | Keep(base, low, high):
            # a system that counts whole milliseconds cuts what jitter adds or takes to one
            return "rest", Near(base, 1e-6), Near(low, 0.001001), Near(high, 0.001001)
        case DeadLetter(goals):
            return "dead-letter", {goal.resolve(source) for goal in goals}
    return (type(decision).__name__,)


def assert_same(ours: PolicyMap, theirs: PolicyMap, names: Iterable[str] = ASKED) -> None:
    """Check that the decisions after 1 to 100 failures and the expiry are the same, for each name and kind."""
    compared: dict[tuple[int, int], list[tuple[int, Decision, Decision]]] = {}
    for name, kind in product(names, KINDS):
        source = Destination(name, kind)
        one, other = ours.resolve(name, kind), theirs.resolve(name, kind)
        pair = id(one), id(other)
        if pair not in compared:
            compared[pair] = list(unequal(one, other))
        for at, mine, yours in compared[pair]:
            assert told(mine, source) == told(yours, source), (str(source), at, one, other)


def unequal(one: RedeliveryPolicy, other: RedeliveryPolicy) -> Iterator[tuple[int, Decision, Decision]]:
    """Yield after how many failures (0: when it expires) the policies decide in words that are not the very same."""
    if one == other:
        return  # all that a decision is made of is compared by value
    decided = [(failures, one.decide(failures), other.decide(failures)) for failures in FAILURES]
    for at, mine, yours in [*decided, (0, one.expired(), other.expired())]:
        if mine != yours:
            yield at, mine, yours


def converted(policies: PolicyMap, language: str) -> tuple[PolicyMap, tuple[str, ...]]:
    """Write policies and read them again; return the result and what was lost.

    Whatever is lost, the text can be read.
    """
    written = WRITERS[language](policies)
    try:
        found = READERS[language](written.text, False)
    except PolicyError as error:
        # a language that names each destination says nothing of none; a text without a policy is refused
        if "no policy of" not in error.what:
            raise
        found = PolicyMap({}, NOTHING[language], language=language)
    assert found.language == language
    return found, written.lost


@pytest.mark.parametrize("target", WRITABLE)
@pytest.mark.parametrize("source", WRITABLE)
@settings(
    max_examples=EACH,
    phases=UNSHRUNK,
    derandomize=not CASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(policies=maps())
def test_whatever_differs_is_listed_as_lost(source: str, target: str, policies: PolicyMap) -> None:
    said, lost = converted(policies, source)
    assert_listed(policies, said, lost)
    again, missing = converted(said, target)
    event(f"{'all' if not missing else 'part'} of it can be written")
    assert_listed(said, again, missing)


def assert_listed(ours: PolicyMap, theirs: PolicyMap, lines: tuple[str, ...]) -> None:
    """Check that each side that differs is listed for its destination, and that each line is about such a side."""
    lost = [lost_of(line) for line in lines]
    names = dict.fromkeys((*ASKED, *(name for one in lost for name in one.examples)))
    seen: set[str] = set()
    known: Pairs = {}
    for name, kind in product(names, KINDS):
        one, other = ours.resolve(name, kind), theirs.resolve(name, kind)
        for side in differing(one, other, Destination(name, kind), theirs.language, known):
            about = [each.line for each in lost if side in each.sides and each.speaks_of(name, kind)]
            assert about or side not in LISTED, (f"{kind}:{name}: {side} differs and is not listed", one, other, lines)
            seen.update(about)
    assert set(lines) <= seen, ("listed, and nothing differs", set(lines) - seen, ours, theirs)


@pytest.mark.parametrize("target", sorted(WRITERS))
@pytest.mark.parametrize("source", sorted(READERS.keys() & EXAMPLES.keys()))
def test_the_minimal_example_of_each_manual_is_written_in_every_language(source: str, target: str) -> None:
    policies = READERS[source](EXAMPLES[source], False)
    said, lost = converted(policies, target)
    if not lost:
        assert_same(policies, said)


@pytest.mark.parametrize("language", WRITABLE)
def test_a_text_comes_back_from_its_own_language_without_loss(language: str) -> None:
    policies = READERS[language](EXAMPLES[language], False)
    said, lost = converted(policies, language)
    assert lost == ()
    assert_same(policies, said)


@pytest.mark.parametrize("language", sorted(WRITERS.keys() - {"native"}))
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(policies=maps_with_arms())
def test_where_a_language_has_no_arms_each_is_lost_and_the_policy_itself_is_written(
    language: str, policies: PolicyMap
) -> None:
    written = WRITERS[language](policies)
    arms = [
        arm
        for policy in (policies.default, *(e.given for e in policies.entries))
        if isinstance(policy, RedeliveryPolicy)
        for arm in policy.arms
    ]
    assert sum(": the arm " in line for line in written.lost) == len(arms)
    alone = [
        MapEntry(entry.pattern, entry.kind, entry.given.alone)
        for entry in policies.entries
        if isinstance(entry.given, RedeliveryPolicy)
    ]
    plain = PolicyMap(alone, policies.default.alone, syntax=policies.syntax, match=policies.match)
    again = WRITERS[language](plain)
    assert (again.text, again.lost) == (written.text, written.lost[len(arms) :])


@given(policies=maps() | maps_with_arms())
@settings(max_examples=100)
def test_our_own_language_loses_nothing_of_any_policy(policies: PolicyMap) -> None:
    written = WRITERS["native"](policies)
    assert written.lost == ()
    found = READERS["native"](written.text, False)
    for name, kind in product(ASKED, KINDS):
        assert found.resolve(name, kind) == policies.resolve(name, kind)
