# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests RedeliveryPolicy: when it is over, how long its delays are, what wins over what."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError, Reject, RetryAfter
from redeliver_mw.message import Destination
from redeliver_mw.policy import (
    Accept,
    Backoff,
    DeadLetter,
    Discard,
    Expiry,
    Keep,
    PolicyMap,
    Redeliver,
    RedeliveryPolicy,
    Target,
    policy_of,
)

DLQ = (Target("queue", "DLQ.$"),)


def bases(policy: RedeliveryPolicy, count: int) -> list[float]:
    decisions = [policy.decide(failures) for failures in range(1, count + 1)]
    return [d.base for d in decisions if isinstance(d, Redeliver | Keep)]


def test_the_default_policy_delays_1_to_32_seconds_and_dead_letters_at_failure_7() -> None:
    policy = RedeliveryPolicy()
    assert bases(policy, 6) == [1, 2, 4, 8, 16, 32]
    assert policy.decide(6) == Redeliver(32.0, 32.0, 32.0)
    assert policy.decide(7) == DeadLetter(DLQ, "exhausted")
    assert policy.decide(8) == DeadLetter(DLQ, "exhausted")
    assert policy.targets[0].resolve(Destination("orders")) == Destination("DLQ.orders")
    assert (policy.dead_after, policy.longest_delay, policy.language) == (7, 32.0, "native")


def test_dead_after_one_is_never_tried_again() -> None:
    policy = RedeliveryPolicy(dead_after=1)
    assert policy.decide(1) == DeadLetter(DLQ, "exhausted")
    assert policy.longest_delay == 0.0


def test_a_multiplier_of_one_and_a_half_grows() -> None:
    policy = RedeliveryPolicy(dead_after=None, backoff=Backoff.exponential(1, 1.5))
    assert bases(policy, 6) == [1, 1.5, 2.25, 3.375, 5.0625, 7.59375]


def test_asking_twice_does_not_advance_the_delay() -> None:
    policy = RedeliveryPolicy()
    assert [policy.decide(3) for _ in range(5)] == [Redeliver(4.0, 4.0, 4.0)] * 5


def test_delays_do_not_compound_whatever_was_asked_before() -> None:
    policy = RedeliveryPolicy(dead_after=None)
    for failures in (9, 1, 5, 2):
        policy.decide(failures)
    assert bases(policy, 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_the_first_delay_is_not_below_the_least_one() -> None:
    policy = RedeliveryPolicy(backoff=Backoff.exponential(0.001).capped(60, floor=0.5))
    assert bases(policy, 1) == [0.5]


@pytest.mark.parametrize("failures", [10_000, 10**9])
def test_a_huge_count_of_failures_does_not_overflow(failures: int) -> None:
    capped = RedeliveryPolicy(dead_after=None, backoff=Backoff.exponential(1, 2, cap=60))
    assert capped.decide(failures) == Redeliver(60.0, 60.0, 60.0)
    free = RedeliveryPolicy(dead_after=None, backoff=Backoff.exponential(1, 2)).decide(failures)
    assert isinstance(free, Redeliver)
    assert math.isfinite(free.draw(random.Random(1)))
    assert RedeliveryPolicy(dead_after=None, backoff=Backoff.exponential(0, 2)).decide(failures) == Redeliver(0, 0, 0)


def test_a_number_is_a_constant_and_of_a_list_the_last_repeats() -> None:
    assert bases(RedeliveryPolicy(backoff=2.5), 3) == [2.5, 2.5, 2.5]
    assert bases(RedeliveryPolicy(backoff=[1, 5, 30]), 5) == [1, 5, 30, 30, 30]


def test_reject_is_the_end_and_keeps_its_reason() -> None:
    assert RedeliveryPolicy().decide(1, error=Reject("bad iban")) == DeadLetter(DLQ, "rejected", "bad iban")


def test_retry_after_raises_the_delay_but_never_lowers_it() -> None:
    policy = RedeliveryPolicy()
    assert policy.decide(1, error=RetryAfter(9)) == Redeliver(9.0, 9.0, 9.0)
    assert policy.decide(4, error=RetryAfter(3)) == Redeliver(8.0, 8.0, 8.0)
    jittered = RedeliveryPolicy(backoff=Backoff.constant(10).jittered(0.5))
    assert jittered.decide(1, error=RetryAfter(8)) == Redeliver(10.0, 8.0, 15.0)
    assert jittered.decide(1, error=RetryAfter(20)) == Redeliver(20.0, 20.0, 20.0)


def test_retry_after_does_not_save_from_death() -> None:
    assert RedeliveryPolicy(dead_after=2).decide(2, error=RetryAfter(5)) == DeadLetter(DLQ, "exhausted")


def test_retry_after_that_does_not_count_is_a_wait_even_before_the_first_failure() -> None:
    policy = RedeliveryPolicy(dead_after=2)
    assert policy.decide(0, error=RetryAfter(5, count=False)) == Redeliver(5.0, 5.0, 5.0)
    assert policy.decide(1, error=RetryAfter(0.5, count=False)) == Redeliver(1.0, 1.0, 1.0)
    assert policy.decide(2, error=RetryAfter(5, count=False)) == Redeliver(5.0, 5.0, 5.0)


def test_retry_after_for_ever_is_a_time_of_which_a_date_can_be_made() -> None:
    decision = RedeliveryPolicy().decide(1, error=RetryAfter(math.inf))
    assert isinstance(decision, Redeliver)
    assert decision.draw(random.Random(0)) <= 1e9


def test_signals_are_no_errors_to_fatal_ignore_and_retry_on() -> None:
    policy = RedeliveryPolicy(fatal=Exception, ignore=Exception, retry_on=OSError)
    assert policy.decide(1, error=RetryAfter(3)) == Redeliver(3.0, 3.0, 3.0)
    assert policy.decide(1, error=Reject("x")) == DeadLetter(DLQ, "rejected", "x")


def test_fatal_wins_over_ignore_and_ignore_over_retry_on() -> None:
    policy = RedeliveryPolicy(fatal=KeyError, ignore=LookupError, retry_on=(OSError, LookupError))
    assert policy.decide(1, error=KeyError()) == DeadLetter(DLQ, "fatal")
    assert policy.decide(1, error=IndexError()) == Accept()
    assert policy.decide(1, error=OSError()) == Redeliver(1.0, 1.0, 1.0)
    assert policy.decide(1, error=ValueError()) == DeadLetter(DLQ, "fatal")
    assert policy.decide(9, error=IndexError()) == Accept()
    assert policy.decide(9, error=OSError()) == DeadLetter(DLQ, "exhausted")


def test_an_error_that_nobody_knows_is_only_counted() -> None:
    policy = RedeliveryPolicy(fatal=KeyError, retry_on=OSError)
    assert policy.decide(1) == Redeliver(1.0, 1.0, 1.0)


def test_a_predicate_decides_by_the_error() -> None:
    policy = RedeliveryPolicy(fatal=lambda error: "never" in str(error))
    assert policy.decide(1, error=ValueError("never works")) == DeadLetter(DLQ, "fatal")
    assert policy.decide(1, error=ValueError("works later")) == Redeliver(1.0, 1.0, 1.0)


@pytest.mark.parametrize("rule", ["fatal", "ignore", "retry_on"])
def test_a_predicate_that_raises_lets_the_message_live(rule: str) -> None:
    def broken(error: BaseException) -> bool:
        raise RuntimeError("oops")

    policy = RedeliveryPolicy(**{rule: broken})
    assert policy.decide(1, error=ValueError()) == Redeliver(1.0, 1.0, 1.0)
    assert policy.decide(7, error=ValueError()) == DeadLetter(DLQ, "exhausted")


def test_only_an_error_that_retry_on_names_is_one_that_it_retries() -> None:
    assert RedeliveryPolicy(retry_on=ValueError).retries(UnicodeDecodeError("utf-8", b"", 0, 1, "x"))
    assert not RedeliveryPolicy(retry_on=OSError).retries(ValueError())
    assert not RedeliveryPolicy().retries(ValueError())


@pytest.mark.parametrize("given", [{"dead_letter": None}, {"on_dead": "keep"}])
def test_a_kept_message_goes_on_with_the_last_delay_for_ever(given: dict[str, Any]) -> None:
    policy = RedeliveryPolicy(**given)
    assert policy.targets == ()
    assert policy.decide(6) == Redeliver(32.0, 32.0, 32.0)
    assert policy.decide(7) == Keep(32.0, 32.0, 32.0)
    assert policy.decide(1000) == Keep(32.0, 32.0, 32.0)
    assert policy.longest_delay == 32.0
    assert policy.decide(2, error=Reject("no")) == Keep(2.0, 2.0, 2.0, reason="rejected", detail="no")


def test_a_message_that_is_kept_from_its_first_failure_on_is_still_delayed() -> None:
    policy = RedeliveryPolicy(dead_after=1, dead_letter=None)
    assert policy.decide(1) == Keep(1.0, 1.0, 1.0)
    assert policy.longest_delay == 1.0


def test_discard_keeps_nothing() -> None:
    policy = RedeliveryPolicy(on_dead="discard")
    assert policy.decide(7) == Discard("exhausted")
    assert policy.decide(1, error=Reject("no")) == Discard("rejected", "no")
    assert policy.targets == ()


def test_several_targets_each_get_the_message_once() -> None:
    policy = RedeliveryPolicy(dead_letter=["queue:a", "topic:b", "a", Destination("c"), "same:$.dead"])
    assert policy.targets == (
        Target("queue", "a"),
        Target("topic", "b"),
        Target("queue", "c"),
        Target("same", "$.dead"),
    )


def test_dollar_is_replaced_literally_and_wherever_it_stands() -> None:
    source = Destination("a$1\\b", "topic")
    assert Target("same", "$/$").resolve(source) == Destination("a$1\\b/a$1\\b", "topic")


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"dead_after": 0}, "dead_after"),
        ({"dead_after": -1}, "dead_after"),
        ({"dead_after": 2.5}, "dead_after"),
        ({"dead_after": True}, "dead_after"),
        ({"dead_after": "7"}, "dead_after"),
        ({"backoff": -1}, "backoff"),
        ({"backoff": math.nan}, "backoff"),
        ({"backoff": math.inf}, "backoff"),
        ({"backoff": True}, "backoff"),
        ({"backoff": 1e12}, "backoff"),
        ({"backoff": 10**400}, "backoff"),
        ({"backoff": []}, "backoff"),
        ({"backoff": [1, -1]}, "backoff"),
        ({"backoff": [1, "2"]}, "backoff"),
        ({"backoff": "5"}, "backoff"),
        ({"backoff": None}, "backoff"),
        ({"backoff": lambda failures: 1}, "backoff"),
        ({"dead_letter": ""}, "dead_letter"),
        ({"dead_letter": "queue:"}, "dead_letter"),
        ({"dead_letter": " dlq"}, "dead_letter"),
        ({"dead_letter": []}, "dead_letter"),
        ({"dead_letter": 5}, "dead_letter"),
        ({"on_dead": "forget"}, "on_dead"),
        ({"act": "later"}, "act"),
        ({"expiry": "discard"}, "expiry"),
        ({"retry_on": 5}, "retry_on"),
        ({"retry_on": ()}, "retry_on"),
        ({"fatal": int}, "fatal"),
        ({"fatal": "ValueError"}, "fatal"),
        ({"ignore": (ValueError, 5)}, "ignore"),
    ],
)
def test_what_cannot_be_is_refused_with_place_and_cure(given: dict[str, Any], where: str) -> None:
    with pytest.raises(PolicyError) as caught:
        RedeliveryPolicy(**given)
    assert caught.value.where == where
    assert caught.value.cure


@pytest.mark.parametrize(
    "make",
    [
        lambda: Backoff.exponential(-1),
        lambda: Backoff.exponential(1, -2),
        lambda: Backoff.exponential(1, math.nan),
        lambda: Backoff.exponential(1, 2, cap=math.inf),
        lambda: Backoff.constant(1).jittered(1.5),
        lambda: Backoff.steps({0: 1.0}),
    ],
)
def test_a_backoff_that_cannot_be_is_refused(make: Any) -> None:
    with pytest.raises(PolicyError) as caught:
        make()
    assert caught.value.where == "backoff"
    assert caught.value.cure


def test_expired_messages_go_where_dead_ones_go_unless_told_otherwise() -> None:
    assert RedeliveryPolicy().expired() == DeadLetter(DLQ, "expired")
    assert RedeliveryPolicy(dead_letter=None).expired() == Discard("expired")
    assert RedeliveryPolicy(expiry=Expiry("discard")).expired() == Discard("expired")
    late = Target("queue", "late")
    assert RedeliveryPolicy(expiry=Expiry("redirect", late)).expired() == DeadLetter((late,), "expired")
    logged = Expiry("log", log="%header%, %properties%,orderId")
    assert logged.fields == ("%header%", "%properties%", "orderId")
    assert RedeliveryPolicy(expiry=logged).expired() == Discard("expired")


@pytest.mark.parametrize("make", [lambda: Expiry("redirect"), lambda: Expiry("discard", Target("queue", "x"))])
def test_redirect_and_its_target_go_together(make: Any) -> None:
    with pytest.raises(PolicyError, match="redirect"):
        make()


def test_the_longest_delay_counts_jitter_and_the_failures_that_can_be() -> None:
    growing = Backoff.exponential(1, 2)
    assert RedeliveryPolicy(dead_after=11, backoff=growing).longest_delay == 512.0
    assert RedeliveryPolicy(dead_after=None, backoff=growing.capped(90)).longest_delay == 90.0
    assert RedeliveryPolicy(dead_after=3, backoff=growing.jittered(0.5)).longest_delay == 3.0
    assert RedeliveryPolicy(dead_after=3, backoff=[5, 1, 9]).longest_delay == 5.0
    assert RedeliveryPolicy(dead_after=5000, backoff=[5, 1, 9]).longest_delay == 9.0
    assert math.isfinite(RedeliveryPolicy(dead_after=None, backoff=growing).longest_delay)


def test_the_order_of_cap_and_jitter_is_the_order_of_writing() -> None:
    growing = Backoff.exponential(1000, 1)
    jitter_then_cap = RedeliveryPolicy(backoff=growing.jittered(0.5).capped(1200))
    assert jitter_then_cap.decide(1) == Redeliver(1000.0, 500.0, 1200.0)
    cap_then_jitter = RedeliveryPolicy(backoff=growing.capped(800).jittered(0.5))
    assert cap_then_jitter.decide(1) == Redeliver(800.0, 400.0, 1200.0)


def test_the_first_delay_is_left_as_it_is_if_so_configured() -> None:
    policy = RedeliveryPolicy(backoff=Backoff.constant(10).jittered(0.2, first=False))
    assert policy.decide(1) == Redeliver(10.0, 10.0, 10.0)
    assert policy.decide(2) == Redeliver(10.0, 8.0, 12.0)


def test_the_version_is_that_of_the_behaviour_not_of_the_name() -> None:
    one, same = RedeliveryPolicy(backoff=[1, 2], name="a"), RedeliveryPolicy(backoff=(1.0, 2.0), name="b")
    assert one.version == same.version
    assert one == same
    assert len(one.version) == 12
    assert set(one.version) <= set("0123456789abcdef")
    changes: list[dict[str, Any]] = [
        {"dead_after": 8},
        {"backoff": [1, 3]},
        {"dead_letter": "x"},
        {"on_dead": "discard"},
        {"on_dead": "keep"},
        {"fatal": ValueError},
        {"retry_on": ValueError},
        {"ignore": ValueError},
        {"act": "arrival"},
        {"expiry": Expiry("discard")},
    ]
    versions = {one.replace(**change).version for change in changes}
    assert len(versions | {one.version}) == len(changes) + 1


def test_the_version_is_the_same_in_another_process() -> None:
    make = "RedeliveryPolicy(dead_after=3, backoff=Backoff.exponential(1, 1.5).jittered(.1), fatal=(KeyError, OSError))"
    here = eval(make)  # a constant of this test
    code = f"from redeliver_mw.policy import *; print({make}.version)"
    there = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)},
    )
    assert there.stdout.strip() == here.version


def test_the_text_fits_a_header_and_is_one_line() -> None:
    long = RedeliveryPolicy(backoff=[float(n) for n in range(1, 500)])
    assert len(long.text) == 500
    assert RedeliveryPolicy().text == "dead after 7 failures; delay 1 s times 2 up to 60 s; queue:DLQ.$"
    assert RedeliveryPolicy.parse("  ", "jmsjca").text == "never dead; delay 0 s; keep"
    native = "1:10;\n2:20"
    assert RedeliveryPolicy.parse(native).text == "1:10; 2:20"


def test_a_policy_serves_where_a_map_of_policies_does() -> None:
    policy = RedeliveryPolicy(dead_after=3)
    assert policy_of(policy) is policy
    assert policy_of(policy).resolve("orders", "queue") is policy
    assert policy_of(None).resolve("orders") == RedeliveryPolicy()
    assert policy_of("5:delete").resolve("orders") == RedeliveryPolicy.parse("5:delete")
    chosen = PolicyMap({}, default=policy)
    assert policy_of(chosen) is chosen
    with pytest.raises(PolicyError, match="no policy"):
        policy_of(5)


delays = st.floats(min_value=0, max_value=1e6)
leaves = st.one_of(
    st.builds(Backoff.constant, delays),
    st.builds(Backoff.listed, st.lists(delays, min_size=1, max_size=5)),
    st.builds(Backoff.exponential, delays, st.floats(min_value=0, max_value=10)),
)
backoffs = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Backoff.jittered, inner, st.floats(min_value=0, max_value=1), first=st.booleans()),
        st.builds(Backoff.capped, inner, delays, delays),
        st.builds(lambda a, b: a + b, inner, inner),
    ),
    max_leaves=4,
)
counts = st.one_of(st.integers(1, 50), st.integers(1, 10**7))


@given(backoffs, counts, st.integers())
def test_every_draw_lies_within_the_range_and_the_range_below_the_longest(
    backoff: Backoff, failures: int, seed: int
) -> None:
    policy = RedeliveryPolicy(dead_after=None, backoff=backoff)
    decision = policy.decide(failures)
    assert isinstance(decision, Redeliver)
    assert 0 <= decision.low <= decision.high <= policy.longest_delay
    rng = random.Random(seed)
    for _ in range(5):
        assert decision.low <= decision.draw(rng) <= decision.high


@given(backoffs, counts, st.one_of(st.none(), st.integers(1, 60)), st.integers())
def test_decide_is_pure(backoff: Backoff, failures: int, dead_after: int | None, seed: int) -> None:
    policy = RedeliveryPolicy(dead_after=dead_after, backoff=backoff)
    before = random.getstate()
    first = policy.decide(failures)
    assert policy.decide(failures) == first
    assert random.getstate() == before
    if isinstance(first, Redeliver):
        again = policy.decide(failures)
        assert isinstance(again, Redeliver)
        assert first.draw(random.Random(seed)) == again.draw(random.Random(seed))


@given(backoffs, counts, delays, st.integers())
def test_no_delay_is_below_the_least_one(backoff: Backoff, failures: int, least: float, seed: int) -> None:
    decision = RedeliveryPolicy(dead_after=None, backoff=backoff.capped(1e9, floor=least)).decide(failures)
    assert isinstance(decision, Redeliver)
    assert decision.low >= least
    assert decision.draw(random.Random(seed)) >= least


@given(backoffs, st.integers(1, 40))
def test_the_longest_delay_of_a_mortal_policy_is_met(backoff: Backoff, dead_after: int) -> None:
    policy = RedeliveryPolicy(dead_after=dead_after, backoff=backoff)
    met = [d.high for f in range(1, dead_after) if isinstance(d := policy.decide(f), Redeliver)]
    assert policy.longest_delay == max(met, default=0.0)


def test_a_name_that_no_text_can_hold_has_a_version_all_the_same() -> None:
    assert RedeliveryPolicy(3, 1.0, "queue:\udc9d").version != RedeliveryPolicy(3, 1.0, "queue:x").version


def test_a_delay_is_the_same_however_often_and_late_it_is_asked_for() -> None:
    policy = RedeliveryPolicy(None, Backoff.exponential(1.0, 2.0, cap=1000.0))
    wanted = [min(2.0 ** (failures - 1), 1000.0) for failures in range(1, 301)]
    for _ in range(2):
        assert [decision.base for n in range(1, 301) if isinstance(decision := policy.decide(n), Redeliver)] == wanted
    assert policy.decide(3, error=RetryAfter(50.0)) == Redeliver(50.0, 50.0, 50.0)
    assert policy.decide(3) == Redeliver(4.0, 4.0, 4.0)


def test_a_copy_with_other_delays_decides_by_its_own_and_one_with_the_same_delays_as_before() -> None:
    policy = RedeliveryPolicy(5, Backoff.exponential(1, 2))
    assert policy.decide(3) == Redeliver(4.0, 4.0, 4.0)
    other, longer = policy.replace(backoff=Backoff.exponential(10, 3)), policy.replace(dead_after=9)
    assert other.decide(3) == Redeliver(90.0, 90.0, 90.0)
    assert (longer.decide(3), longer.decide(8)) == (Redeliver(4.0, 4.0, 4.0), Redeliver(128.0, 128.0, 128.0))
    assert isinstance(policy.decide(8), DeadLetter)
    assert policy.decide(3) == Redeliver(4.0, 4.0, 4.0)
