# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes any policy as a redelivery string of JMSJCA, and tests what is lost on the way."""

from __future__ import annotations

import pytest

from redeliver_mw.policy import Backoff, Expiry, PolicyMap, RedeliveryPolicy, Target
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.backoff import Linear
from redeliver_mw.policy.formats.jmsjca.reader import DEFAULT, read, read_map
from redeliver_mw.policy.formats.jmsjca.writer import write
from redeliver_mw.policy.stops import AfterFailures, AfterSeconds, AnyStop


def written(policy: RedeliveryPolicy) -> str:
    found = write(PolicyMap(None, policy))
    assert found.lost == ()
    return found.text


def lost(policy: RedeliveryPolicy) -> str:
    found = write(PolicyMap(None, policy))
    assert len(found.lost) == 1
    read(found.text)
    return found.lost[0]


@pytest.mark.parametrize(
    ("policy", "text"),
    [
        (RedeliveryPolicy(), "1:1000; 2:2000; 3:4000; 4:8000; 5:16000; 6:32000; 7:move(queue:DLQ.$)"),
        (RedeliveryPolicy(1), "1:move(queue:DLQ.$)"),
        (RedeliveryPolicy(3, 0, on_dead="discard"), "3:delete"),
        (RedeliveryPolicy(None, [0, 1, 0.5], None), "2:1000; 3:500"),
        (RedeliveryPolicy(4, [1, 0], "topic:dead"), "1:1000; 2:0; 4:move(topic:dead)"),
        (RedeliveryPolicy(3, [1, 2, 9], None), "1:1000; 2:2000"),  # kept: as after the failure before the limit
        (RedeliveryPolicy(None, Backoff.exponential(1, 10, cap=500), None), "1:1000; 2:10000; 3:100000; 4:500000"),
        (RedeliveryPolicy(3, 1, Target("same", " $")), "1:1000; 3:move(same:  $)"),
        (RedeliveryPolicy(5, ActiveMQDelays(3, 1000, 1.5)), "1:3; 2:4; 3:6; 4:9; 5:move(queue:DLQ.$)"),
        (
            RedeliveryPolicy(50_000_000, Backoff.steps({2: 1, 40_000_000: 2}), None, "discard"),
            "2:1000; 40000000:2000; 50000000:delete",
        ),
    ],
)
def test_a_table_of_delays_and_one_end_are_written_exactly(policy: RedeliveryPolicy, text: str) -> None:
    assert written(policy) == text
    again = read(text)
    for failures in range(1, 101):
        ours, theirs = policy.decide(failures), again.decide(failures)
        assert getattr(ours, "base", None) == getattr(theirs, "base", None)
        assert getattr(ours, "targets", None) == getattr(theirs, "targets", None)


@pytest.mark.parametrize("text", ["", DEFAULT, "1:10;2:20;30:delete", "5:move(queue : a)"])
def test_its_own_strings_come_back_as_they_were(text: str) -> None:
    found = write(read_map(text))
    assert (found.text, found.lost) == (text, ())


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (RedeliveryPolicy(3, Backoff.constant(1).jittered(0.1)), "jitter"),
        (RedeliveryPolicy(None, Linear(1, 1), None), "delays after failure 1000"),
        (RedeliveryPolicy(3, 0.0001), "fractions of a millisecond"),
        (RedeliveryPolicy(AnyStop((AfterFailures(3), AfterSeconds(60))), 1), "or dead after 60 s"),
        (RedeliveryPolicy(3, 1, fatal=KeyError), "fatal builtins.KeyError"),
        (RedeliveryPolicy(3, 1, retry_on=KeyError), "retry_on"),
        (RedeliveryPolicy(3, 1, ignore=KeyError), "ignore"),
        (RedeliveryPolicy(3, 1, ["a", "topic:b"]), "the target topic:b"),
        (RedeliveryPolicy(3, 1, "a;b"), "semicolon"),
        (RedeliveryPolicy(3, 1, expiry=Expiry("discard")), "expiry discard"),
        (RedeliveryPolicy(None, 1), "queue:DLQ.$ for rejected and expired messages"),
        (RedeliveryPolicy(None, 1, on_dead="discard"), "discard for rejected and expired messages"),
        (RedeliveryPolicy(60_000_000, 1), "dead after 60000000 failures"),
    ],
)
def test_what_the_string_cannot_say_is_named_and_the_rest_is_written(policy: RedeliveryPolicy, said: str) -> None:
    assert said in lost(policy)


def test_entries_that_differ_from_the_default_are_lost_one_by_one() -> None:
    same, other = RedeliveryPolicy(3, 1), RedeliveryPolicy(4, 1)
    found = write(PolicyMap({"a": same, "b.>": other, "topic:c": other}, same))
    assert found.text == "1:1000; 3:move(queue:DLQ.$)"
    assert sorted(lost.partition(":")[0] for lost in found.lost) == ["b.>", "topic"]


def test_a_discarded_message_that_would_be_discarded_when_it_expires_loses_nothing() -> None:
    assert written(RedeliveryPolicy(3, 0, on_dead="discard", expiry=Expiry("discard"))) == "3:delete"
