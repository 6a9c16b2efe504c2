# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the arms of a policy: which message is in which, what they are made of, and what is said of them together."""

from __future__ import annotations

import hashlib
import math
import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import Arm, Backoff, Expiry, PolicyMap, RedeliveryPolicy, Target
from redeliver_mw.redelivery.copies import Provenance
from redeliver_mw.redelivery.delays import DelayOptions
from redeliver_mw.redelivery.plan import SourcePlan
from redeliver_mw.runtime.policy_checks import check_together

BASE = RedeliveryPolicy(5, [1, 5], "queue:dead.$")
PATIENT = RedeliveryPolicy(9, 60.0, "queue:dead.$")
TRIED = BASE.replace(arms={"patient": (0.05, PATIENT), "brave": (0.2, {"dead_after": 2})})
KEYS = [f"message {number}" for number in range(20_000)]


def names(policy: RedeliveryPolicy) -> Counter[str]:
    return Counter(policy.of(key).name for key in KEYS)


def within(count: int, share: float) -> bool:
    """Return whether a count is within five standard deviations: once in two million such tests it is not."""
    return abs(count - len(KEYS) * share) < 5 * math.sqrt(len(KEYS) * share * (1 - share))


# -- who is in which ------------------------------------------------------------------------------------


def test_a_message_is_under_one_of_the_policies_and_its_probability_is_recorded() -> None:
    found = {TRIED.of(key) for key in KEYS}
    assert {arm.name: arm.propensity for arm in found} == {"main": 0.75, "brave": 0.2, "patient": 0.05}
    assert {arm.name: arm.policy for arm in found} == {
        "main": BASE,
        "patient": PATIENT,
        "brave": RedeliveryPolicy(2, [1, 5], "queue:dead.$"),
    }


def test_without_arms_everybody_is_under_the_policy_itself() -> None:
    assert BASE.of("any") == Arm("main", 1.0, BASE)
    assert BASE.of("any").policy is BASE
    assert BASE.arms == ()


def test_each_arm_gets_its_share() -> None:
    found = names(TRIED)
    assert within(found["patient"], 0.05)
    assert within(found["brave"], 0.2)
    assert within(found["main"], 0.75)


def test_a_message_keeps_its_arm_however_often_it_is_asked_for() -> None:
    same = BASE.replace(arms={"brave": (0.2, {"dead_after": 2}), "patient": (0.05, PATIENT)})
    assert [TRIED.of(key) for key in KEYS[:500]] == [same.of(key) for key in KEYS[:500]]
    before = random.getstate()
    assert TRIED.of("one") == TRIED.of("one")
    assert random.getstate() == before


def test_the_lot_is_the_one_of_the_manual() -> None:
    """The lot is SHA-256 of VERSION/KEY, of which the first 53 bits are a fraction.

    The arms are in the order of their names, with `main` last.
    """
    for key in KEYS[:300]:
        digest = hashlib.sha256(f"{TRIED.version}/{key}".encode()).hexdigest()
        at = int(bin(int(digest, 16) | 1 << 256)[3:][:53], 2) / 2**53
        assert TRIED.of(key).name == ("brave" if at < 0.2 else "patient" if at < 0.25 else "main")


def test_another_process_puts_the_same_messages_into_the_same_arms() -> None:
    make = "RedeliveryPolicy(3, 1.0, arms={'b': (0.3, {'dead_after': 9}), 'a': (0.3, {'fatal': (KeyError, OSError)})})"
    here = eval(make)  # a constant of this test
    code = f"from redeliver_mw.policy import *; p = {make}; print(*(p.of(str(n)).name for n in range(100)))"
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert there.stdout.split() == [here.of(str(number)).name for number in range(100)]


def test_two_experiments_know_nothing_of_each_other() -> None:
    one, other = (BASE.replace(dead_after=n, arms={"a": (0.2, PATIENT)}) for n in (5, 6))
    both = sum(one.of(key).name == other.of(key).name == "a" for key in KEYS)
    assert within(both, 0.2 * 0.2)


def test_a_key_that_no_text_can_hold_has_an_arm_all_the_same() -> None:
    assert TRIED.of("\udc9d") == TRIED.of("\udc9d")


shares = st.lists(st.floats(0.001, 0.3), min_size=1, max_size=3)


@given(shares, st.text(max_size=10))
def test_probabilities_come_to_one_and_every_message_has_an_arm(given: list[float], key: str) -> None:
    policy = BASE.replace(arms={f"arm {n}": (share, {"dead_after": n + 1}) for n, share in enumerate(given)})
    assert math.fsum(arm.propensity for arm in policy.apart) == pytest.approx(1.0, abs=1e-15)
    assert policy.of(key) in policy.apart
    assert all(arm.policy.arms == () for arm in policy.apart)


# -- what they are made of ------------------------------------------------------------------------------


def test_a_mapping_is_what_differs_from_the_policy_itself() -> None:
    policy = RedeliveryPolicy(
        5, 1.0, "queue:dead.$", fatal=KeyError, arms={"a": (0.1, {"backoff": [2, 3], "fatal": None})}
    )
    (arm,) = policy.arms
    assert arm == Arm("a", 0.1, RedeliveryPolicy(5, [2, 3], "queue:dead.$"))


def test_questions_to_the_policy_itself_are_those_of_main() -> None:
    assert [TRIED.decide(count) for count in range(1, 9)] == [BASE.decide(count) for count in range(1, 9)]
    assert (TRIED.dead_after, TRIED.targets, TRIED.expired()) == (5, BASE.targets, BASE.expired())
    assert TRIED.alone == BASE
    assert BASE.alone is BASE


def test_what_a_start_has_to_know_is_that_of_all_arms() -> None:
    policy = RedeliveryPolicy(
        3,
        1.0,
        "queue:a",
        arms={
            "far": (0.1, {"dead_letter": ["queue:b", "queue:a"], "backoff": Backoff.constant(100).jittered(0.5)}),
            "late": (0.1, {"expiry": Expiry("redirect", Target("queue", "late"))}),
        },
    )
    assert policy.longest_delay == 150.0
    assert list(map(str, policy.places)) == ["queue:a", "queue:b", "queue:late"]
    assert not policy.goes_on
    assert policy.replace(arms={"keeps": (0.1, {"on_dead": "keep"})}).goes_on
    assert policy.alone.longest_delay == 1.0


def test_an_arm_speaks_the_language_of_its_policy() -> None:
    text = "3:1000; 8:move(queue:dlq.$)"
    jmsjca = RedeliveryPolicy.parse(text)
    (arm,) = BASE.replace(arms={"a": (0.1, jmsjca)}).arms
    assert (arm.policy, arm.policy.language, arm.policy.text) == (jmsjca, "native", text)
    policy = jmsjca.replace(arms={"a": (0.1, PATIENT)})
    assert {one.policy.language for one in policy.apart} == {policy.language} == {"jmsjca"}
    assert policy.alone.native == text


def test_the_same_policy_with_other_keywords_keeps_its_arms() -> None:
    assert TRIED.replace(dead_after=7).arms == TRIED.arms
    assert TRIED.replace(name="x").arms == TRIED.arms
    assert TRIED.replace(arms=None) == BASE
    assert TRIED != BASE
    assert len({TRIED, BASE, TRIED.replace(name="x")}) == 2


def test_the_version_is_that_of_all_arms_and_without_arms_the_one_it_was() -> None:
    assert RedeliveryPolicy().version == "d794211d0577"
    versions = {
        BASE.version,
        TRIED.version,
        BASE.replace(arms={"patient": (0.05, PATIENT)}).version,
        BASE.replace(arms={"patient": (0.06, PATIENT)}).version,
        BASE.replace(arms={"patients": (0.05, PATIENT)}).version,
        BASE.replace(arms={"patient": (0.05, {"backoff": 60.0})}).version,
        BASE.replace(dead_after=6, arms={"patient": (0.05, PATIENT)}).version,
    }
    assert len(versions) == 7
    spelled = {"dead_after": 9, "backoff": 60}
    assert BASE.replace(arms={"patient": (0.05, spelled)}).version in versions


def test_its_text_names_the_arms() -> None:
    assert BASE.replace(arms={"patient": (0.05, {"backoff": 60})}).text == (
        "dead after 5 failures; delay 1: 1 s, 2: 5 s; queue:dead.$; "
        "arm patient (5%): dead after 5 failures; delay 60 s; queue:dead.$"
    )


@pytest.mark.parametrize(
    ("arms", "where", "said"),
    [
        ({}, "arms", "no arms"),
        ([("a", 0.1, PATIENT)], "arms", "no arms"),
        ({"main": (0.1, PATIENT)}, "arms", "called main"),
        ({"": (0.1, PATIENT)}, "arms", "no name"),
        ({" a": (0.1, PATIENT)}, "arms", "no name"),
        ({"a\n": (0.1, PATIENT)}, "arms", "no name"),
        ({"a" * 65: (0.1, PATIENT)}, "arms", "no name"),
        ({5: (0.1, PATIENT)}, "arms", "no name"),
        ({"a": (0.0, PATIENT)}, "arms.a", "share is 0.0"),
        ({"a": (1, PATIENT)}, "arms.a", "share is 1"),
        ({"a": (-0.1, PATIENT)}, "arms.a", "share is -0.1"),
        ({"a": (math.nan, PATIENT)}, "arms.a", "share is nan"),
        ({"a": (True, PATIENT)}, "arms.a", "share is True"),
        ({"a": ("5%", PATIENT)}, "arms.a", "share is '5%'"),
        ({"a": (0.5, PATIENT), "b": (0.5, PATIENT)}, "arms", "come to 100%"),
        ({"a": (0.9, PATIENT), "b": (0.2, PATIENT)}, "arms", "come to 110%"),
        ({"a": 0.5}, "arms.a", "no arm"),
        ({"a": "05"}, "arms.a", "no arm"),
        ({"a": (0.5, "3:1000")}, "arms.a", "no policy"),
        ({"a": (0.5, None)}, "arms.a", "no policy"),
        ({"a": (0.5, {"dead_afer": 3})}, "arms.a", "dead_afer"),
        ({"a": (0.5, {"dead_after": 0})}, "arms.a.dead_after", "1 or more"),
        ({"a": (0.5, TRIED)}, "arms.a", "arms of its own"),
        ({"a": (0.5, {"arms": {"b": (0.1, PATIENT)}})}, "arms.a", "arms of its own"),
    ],
)
def test_what_cannot_be_is_refused_with_place_and_cure(arms: Any, where: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        BASE.replace(arms=arms)
    assert caught.value.where == where
    assert said in str(caught.value)
    assert caught.value.cure


# -- by destination -------------------------------------------------------------------------------------


def test_an_entry_has_the_arms_that_it_says_and_none_of_the_default() -> None:
    policies = PolicyMap(
        {
            "a": {"dead_after": 2},
            "b": {"dead_letter": "queue:b", "arms": {"slow": (0.1, {"backoff": 9})}},
            "c": TRIED.replace(dead_after=1),
        },
        default=TRIED,
    )
    assert policies.resolve("other") is TRIED
    assert policies.resolve("a") == BASE.replace(dead_after=2)
    (slow,) = policies.resolve("b").arms
    assert (slow.policy.backoff, list(map(str, slow.policy.targets))) == (Backoff.constant(9), ["queue:b"])
    assert policies.resolve("c").arms == TRIED.arms


def test_where_entries_merge_an_arm_differs_from_what_they_come_to() -> None:
    policies = PolicyMap(
        {"*": {"arms": {"slow": (0.1, {"backoff": 9})}}, "b": {"dead_letter": "queue:b"}, "c": {"arms": None}},
        default=BASE,
        match="merge",
    )
    (slow,) = policies.resolve("b").arms
    assert slow.policy == BASE.replace(dead_letter="queue:b", backoff=9)
    assert policies.resolve("c") == BASE


def test_what_is_wrong_with_the_arms_of_an_entry_is_reported_with_its_name() -> None:
    with pytest.raises(PolicyError) as caught:
        PolicyMap({"b": {"arms": {"slow": (2, PATIENT)}}})
    assert caught.value.where == "b: arms.slow"


# -- at a start -----------------------------------------------------------------------------------------


def test_dead_letters_of_an_arm_may_not_come_back_under_the_policy_of_that_arm() -> None:
    def plan(source: Destination, policy: RedeliveryPolicy) -> SourcePlan:
        signature = Provenance(source, "shop", "host", policy.text, policy.version)
        return SourcePlan(source, policy, DelayOptions("hold", 50, 10.0, None, 60.0), signature)

    orders, dead = Destination("orders"), Destination("elsewhere.orders")
    elsewhere = PATIENT.replace(dead_letter="queue:elsewhere.$")
    tried = plan(orders, BASE.replace(arms={"a": (0.1, elsewhere)}))
    check_together({orders: tried, dead: plan(dead, BASE)})
    with pytest.raises(ConfigError, match="same policy"):
        check_together({orders: tried, dead: plan(dead, elsewhere)})
    with pytest.raises(ConfigError, match="same policy"):
        check_together({orders: tried, dead: tried})
