# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Where a language cannot say the delays of a policy, the number of attempts and the total time are kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redeliver_mw.message import Destination
from redeliver_mw.policy import Backoff, PolicyMap, RedeliveryPolicy
from redeliver_mw.policy.destinations import MapEntry
from redeliver_mw.policy.formats import READERS, WRITERS
from redeliver_mw.policy.stops import AfterFailures, AfterSeconds, AnyStop

POORER = ("activemq", "artemis", "patchbay", "weblogic")
SOURCE = Destination("orders")


def nearest(policy: RedeliveryPolicy, language: str) -> tuple[RedeliveryPolicy, tuple[str, ...]]:
    """Return the policy of `orders` as it is read back, and what was lost."""
    written = WRITERS[language](PolicyMap([MapEntry(SOURCE.name, SOURCE.kind, policy)]))
    return READERS[language](written.text, False).resolve(SOURCE.name), written.lost


def total(policy: RedeliveryPolicy) -> float:
    assert policy.dead_after is not None
    return sum(policy.backoff.span(failures).base for failures in range(1, policy.dead_after))


@pytest.mark.parametrize("language", POORER)
def test_fifty_attempts_over_205_seconds_stay_so(language: str) -> None:
    policy = RedeliveryPolicy.parse("5:1000; 10:5000; 50:move(queue:dlq)")
    assert total(policy) == 205
    found, lost = nearest(policy, language)
    assert found.dead_after == 50
    assert total(found) == pytest.approx(205, rel=1e-3)
    assert any("50 attempts are kept, over " in line for line in lost)


def test_the_shape_is_kept_as_well_as_growth_can_say_it() -> None:
    found, _ = nearest(RedeliveryPolicy.parse("5:1000; 10:5000; 50:move(queue:dlq)"), "activemq")
    delays = [found.backoff.span(failures).base for failures in range(1, 50)]
    assert delays == sorted(delays)
    assert delays[0] < 1
    assert delays[-1] == 5


@pytest.mark.parametrize("language", ["activemq", "artemis"])
def test_an_endless_policy_ends_with_its_last_delay(language: str) -> None:
    found, lost = nearest(RedeliveryPolicy.parse("1:100; 2:7000; 5:60000"), language)
    assert found.backoff.span(1000).base == 60
    assert any("the first 1000 delays come to" in line for line in lost)


delays = st.sampled_from([0, 0.01, 0.25, 1, 5, 60, 3600])


@settings(max_examples=100)
@given(
    table=st.dictionaries(st.integers(1, 60), delays, min_size=1, max_size=4),
    limit=st.integers(1, 80),
    language=st.sampled_from(POORER),
)
def test_attempts_and_total_time_are_kept(table: dict[int, float], limit: int, language: str) -> None:
    policy = RedeliveryPolicy(limit, Backoff.steps(table), "queue:dead")
    found, _ = nearest(policy, language)
    assert found.dead_after == limit
    # a single delay is a whole number of milliseconds, so that each attempt may be half a millisecond off
    assert total(found) == pytest.approx(total(policy), rel=2e-3, abs=0.0005 * limit)


@given(table=st.dictionaries(st.integers(1, 20), delays, min_size=1, max_size=4), language=st.sampled_from(POORER))
@settings(max_examples=30)
def test_the_nearest_is_the_same_each_time(table: dict[int, float], language: str) -> None:
    policy = RedeliveryPolicy(20, Backoff.steps(table), "queue:dead")
    policies = PolicyMap([MapEntry(SOURCE.name, SOURCE.kind, policy)])
    assert WRITERS[language](policies) == WRITERS[language](policies)


@pytest.mark.parametrize("language", [*POORER, "jmsjca"])
def test_an_end_by_time_becomes_the_number_of_failures_that_fit_into_it(language: str) -> None:
    policy = RedeliveryPolicy(AfterSeconds(600), 10, "queue:dead")
    written = WRITERS[language](PolicyMap(None, policy) if language == "jmsjca" else one_entry(policy))
    found = READERS[language](written.text, False).resolve(SOURCE.name)
    assert found.dead_after == 61
    assert total(found) == 600
    assert any("the nearest is 61 failures" in line for line in written.lost)


def test_an_end_by_time_that_never_comes_is_no_end() -> None:
    written = WRITERS["activemq"](one_entry(RedeliveryPolicy(AfterSeconds(600), 0, "queue:dead")))
    assert 'maximumRedeliveries="-1"' in written.text
    assert any("without it a message is tried for ever" in line for line in written.lost)


def test_beside_a_number_of_failures_an_end_by_time_is_left_out() -> None:
    stop = AnyStop((AfterFailures(9), AfterSeconds(600)))
    found, lost = nearest(RedeliveryPolicy(stop, 1, "queue:dead"), "artemis")
    assert found.dead_after == 9
    assert any("the number alone is kept, 9 failures" in line for line in lost)


def test_the_end_by_time_of_a_long_policy_is_found_by_its_last_delay() -> None:
    policy = RedeliveryPolicy(AfterSeconds(50_000), 10, "queue:dead")
    assert nearest(policy, "artemis")[0].dead_after == 5001


def one_entry(policy: RedeliveryPolicy) -> PolicyMap:
    return PolicyMap([MapEntry(SOURCE.name, SOURCE.kind, policy)])


def test_with_fewer_attempts_than_were_meant_the_time_in_all_is_kept() -> None:
    found, lost = nearest(RedeliveryPolicy(200, 2, "queue:dead"), "patchbay")
    assert found.dead_after == 99
    assert total(found) == pytest.approx(398, rel=1e-3)
    assert any("99 attempts over 397.978 s instead of 398 s" in line for line in lost)
