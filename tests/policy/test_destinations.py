# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests PolicyMap, which says which policy is for which destination."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import Backoff, PolicyMap, RedeliveryPolicy
from redeliver_mw.policy.destinations import REMEMBERED, MapEntry

P, Q, R, S = (RedeliveryPolicy(dead_after) for dead_after in (1, 2, 3, 4))


def test_the_map_of_the_activemq_manual() -> None:
    """The map has a policy for FRED.JOE, another for a tree, and a default."""
    policies = PolicyMap({"FRED.JOE": P, "ORDERS.>": Q}, default=R)
    assert policies.resolve("FRED.JOE") == P
    assert policies.resolve("ORDERS.EU.1") == policies.resolve("ORDERS") == Q
    assert policies.resolve("FRED") == R


def test_without_entries_and_default_it_is_the_default_policy() -> None:
    assert PolicyMap().resolve("x") == PolicyMap({}).resolve("x", "topic") == RedeliveryPolicy()


def test_a_key_may_be_for_queues_or_topics_only() -> None:
    policies = PolicyMap({"queue:A": P, "topic:A": Q, "A": R, "B": S}, default=R)
    assert policies.resolve("A") == P
    assert policies.resolve("A", "topic") == Q
    assert policies.resolve("B") == policies.resolve("B", "topic") == S


def test_a_key_for_one_kind_comes_before_the_same_for_both() -> None:
    assert PolicyMap({"queue:A": P, "A": Q}).resolve("A") == PolicyMap({"A": Q, "queue:A": P}).resolve("A") == P


def test_of_equal_entries_the_last_counts() -> None:
    assert PolicyMap([MapEntry("A", None, P), MapEntry("A", None, Q)]).resolve("A") == Q


def test_one_entry_may_name_several_patterns() -> None:
    policies = PolicyMap({"A,B.*": P}, default=R)
    assert policies.resolve("A") == policies.resolve("B.x") == P
    assert policies.resolve("B") == R


def test_best_in_artemis_syntax_goes_by_its_order() -> None:
    policies = PolicyMap({"#": P, "a.*": Q, "a.b.#": R}, syntax="artemis")
    assert policies.resolve("a.b") == Q
    assert policies.resolve("a.b.c") == R
    assert policies.resolve("x") == P


def test_in_artemis_syntax_a_queue_goes_by_its_address_unless_it_is_named_itself() -> None:
    policies = PolicyMap({"a": P, "a::eu": Q, "b.#": R}, S, syntax="artemis")
    assert policies.resolve("a") == policies.resolve("a::us.x") == P
    assert policies.resolve("a::eu") == Q
    assert policies.resolve("b.x::eu") == R
    assert PolicyMap({"a": P}, S).resolve("a::eu") == S


def test_merge_takes_each_field_from_the_closest_entry_that_sets_it() -> None:
    entries = {">": {"dead_after": 9, "backoff": 5.0}, "A.*": {"backoff": 2.0}, "A.B": {"dead_after": 3}}
    policies = PolicyMap(entries, default=RedeliveryPolicy(1, 1, "queue:dead"), match="merge")
    merged = policies.resolve("A.B")
    assert (merged.dead_after, merged.backoff, str(merged.targets[0])) == (3, Backoff.constant(2), "queue:dead")
    assert policies.resolve("A.C").dead_after == 9


def test_chain_takes_them_in_the_order_in_which_they_are_written() -> None:
    entries = {">": {"dead_after": 9}, "A": {"dead_after": 3, "backoff": 2.0}}
    policy = PolicyMap(entries, match="chain").resolve("A")
    assert (policy.dead_after, policy.backoff) == (9, Backoff.constant(2))


def test_a_whole_policy_ends_a_merge() -> None:
    entries: dict[str, Any] = {">": {"backoff": 5.0}, "A.*": Q, "A.B": {"dead_after": 8}}
    policies = PolicyMap(entries, match="merge")
    assert policies.resolve("A.B") == Q.replace(dead_after=8)
    assert policies.resolve("A.C") == Q


def test_fields_of_another_language_are_built_by_its_own_function() -> None:
    def build(fields: Mapping[str, Any]) -> RedeliveryPolicy:
        return RedeliveryPolicy(fields.get("tries", 10), fields.get("wait", 0))

    policies = PolicyMap({"#": {"tries": 5}, "a": {"wait": 2}}, P, syntax="artemis", match="merge", build=build)
    assert policies.resolve("a") == RedeliveryPolicy(5, 2)
    with pytest.raises(PolicyError, match="whole policy among fields"):
        PolicyMap({"a": P}, match="merge", build=build)


@pytest.mark.parametrize(
    ("entries", "what"),
    [
        ({"A": "5:delete"}, "is no policy"),
        ({"A.>.B": P}, "is not the end"),
        ({"": P}, "empty destination pattern"),
        ({"queue:": P}, "empty destination pattern"),
        ({1: P}, "is no destination pattern"),
        ({"A": {"dead_after": 0}}, "0"),
        ({"A": {"dead_aftr": 1}}, "dead_aftr"),
    ],
)
def test_a_wrong_entry_is_refused_and_named(entries: Any, what: str) -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyMap(entries)
    assert what in str(caught.value)
    assert caught.value.cure


@pytest.mark.parametrize("option", [{"default": "5:delete"}, {"syntax": "rabbitmq"}, {"match": "first"}])
def test_a_wrong_option_is_refused(option: Any) -> None:
    with pytest.raises(PolicyError):
        PolicyMap({}, **option)


def test_maps_are_compared_by_value_and_can_be_sent_to_another_process() -> None:
    policies = PolicyMap({"A": P, "B": {"dead_after": 2}}, default=Q)
    policies.resolve("A")
    assert policies == PolicyMap({"A": P, "B": {"dead_after": 2}}, default=Q) == pickle.loads(pickle.dumps(policies))
    assert hash(policies) == hash(PolicyMap({"A": P, "B": {"dead_after": 2}}, default=Q))
    assert policies != PolicyMap({"A": P}, default=Q)


def test_what_is_given_may_change_afterwards() -> None:
    fields = {"dead_after": 2}
    policies = PolicyMap({"A": fields})
    fields["dead_after"] = 5
    assert policies.resolve("A").dead_after == 2


def test_what_was_found_is_remembered_in_bounds() -> None:
    policies = PolicyMap({"A.*": P})
    assert policies.resolve("A.0") is policies.resolve("A.0")
    for number in range(REMEMBERED + 10):
        policies.resolve(f"A.{number}")
    assert len(policies._found) <= REMEMBERED
    assert policies.resolve("A.0") == P


def test_the_entries_that_speak_of_a_name_can_be_asked_for() -> None:
    policies = PolicyMap({">": {}, "A": {"dead_after": 2}}, match="merge")
    assert [str(entry) for entry in policies.matching("A")] == ["A", ">"]
    assert [str(entry) for entry in PolicyMap({">": P, "queue:A": Q}).matching("A")] == ["queue:A"]
    assert PolicyMap({"A": P}).matching("B") == ()


def test_names_longer_and_shorter_than_any_pattern_find_theirs_among_many() -> None:
    long = ".".join("abcdefghij")  # more words than are told apart at once
    other = f"{long}.k"
    given = {f"x{n}.*.orders": RedeliveryPolicy(n) for n in range(1, 500)}
    given |= {long: RedeliveryPolicy(601), other: RedeliveryPolicy(602), "a.>": RedeliveryPolicy(603)}
    policies = PolicyMap(given, RedeliveryPolicy(604))
    asked = {"x7.eu.orders": 7, "x499.*.orders": 499, "x7.orders": 604, long: 601, other: 602, f"{other}.l": 603}
    asked |= {"a": 603, "": 604, "*": 604}
    assert {name: policies.resolve(name).dead_after for name in asked} == asked
