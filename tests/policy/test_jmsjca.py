# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the JMSJCA redelivery string: the published examples, the original's own test strings, and its error codes."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from redeliver_mw.errors import PolicyError, Reject
from redeliver_mw.message import Destination
from redeliver_mw.policy import DeadLetter, Discard, Keep, Redeliver, RedeliveryPolicy, load_policies
from redeliver_mw.policy.formats.jmsjca.reader import DEFAULT, JmsjcaError

QUEUE1 = Destination("Queue1")


def milliseconds(text: str, count: int) -> list[float]:
    """Return the delays after failures 1 to `count`, as the handler always fails, up to the end of the message."""
    return list(_delays(RedeliveryPolicy.parse(text, "jmsjca"), count))


def _delays(policy: RedeliveryPolicy, count: int) -> Iterator[float]:
    for failures in range(1, count + 1):
        decision = policy.decide(failures)
        if not isinstance(decision, Redeliver):
            return
        assert decision.base == decision.low == decision.high
        yield round(decision.base * 1000, 6)


def test_the_default_string_delays_longer_and_longer_and_never_ends() -> None:
    expected = [0] * 2 + [25] * 2 + [50] * 5 + [100] * 10 + [1000] * 30 + [5000]
    assert milliseconds(DEFAULT, 50) == expected
    assert sum(expected) == 36_300
    policy = RedeliveryPolicy.parse(DEFAULT)
    assert policy.dead_after is None
    assert policy.targets == ()
    assert policy.decide(1_000_000) == Redeliver(5.0, 5.0, 5.0)


def test_the_default_string_in_the_seed_is_the_one_spelled_out_here() -> None:
    assert DEFAULT == "3:25; 5:50; 10:100; 20:1000; 50:5000"


def test_fifty_move_calls_the_handler_fifty_times() -> None:
    text = "5:1000; 10:5000; 50:move(queue:mydlq)"
    delays = milliseconds(text, 1000)
    assert delays == [0] * 4 + [1000] * 5 + [5000] * 40
    assert sum(delays) == 205_000
    assert len(delays) + 1 == 50  # one call before each delay, and the last one
    end = RedeliveryPolicy.parse(text).decide(50)
    assert isinstance(end, DeadLetter)
    assert end.reason == "exhausted"
    assert [target.resolve(QUEUE1) for target in end.targets] == [Destination("mydlq")]


def test_the_fiftieth_failure_is_moved_when_it_arrives_unseen_by_the_handler() -> None:
    policy = RedeliveryPolicy.parse("50:move(queue:mydlq)")
    assert policy.on_arrival(49) is None
    assert policy.on_arrival(50) == policy.decide(50)
    assert policy.on_arrival(51) == policy.decide(50)


def test_delete_acts_on_arrival_too_and_keeps_nothing() -> None:
    policy = RedeliveryPolicy.parse("5:1000; 10:5000; 50:delete")
    assert policy.decide(49) == Redeliver(5.0, 5.0, 5.0)
    assert policy.decide(50) == Discard("exhausted")
    assert policy.on_arrival(50) == Discard("exhausted")
    assert policy.targets == ()


def test_without_an_end_nothing_happens_on_arrival_however_often_it_failed() -> None:
    assert RedeliveryPolicy.parse(DEFAULT).on_arrival(10**9) is None


def test_a_policy_of_our_own_does_nothing_on_arrival() -> None:
    assert RedeliveryPolicy(dead_after=3).on_arrival(100) is None


def test_the_seed_example_is_moved_to_dlq_queue1_error() -> None:
    policy = RedeliveryPolicy.parse("5:1000; 10:5000; 50:move(queue:dlq$error)")
    assert policy.targets[0].resolve(QUEUE1) == Destination("dlqQueue1error")


def test_the_delays_of_the_original_test_add_up_to_220() -> None:
    delays = milliseconds("5:10; 6:15; 10:30; 15:move(queue:a)", 100)
    assert sum(delays) == 220
    assert len(delays) == 14


@pytest.mark.parametrize("long", [10_000, 6_000])
def test_a_delay_above_5000_is_one_delay_here_where_the_original_bounced_in_pieces(long: int) -> None:
    # there: pieces of at most 5000 ms, uncounted; the sum and the count are the same
    delays = milliseconds(f"5:10; 6:{long}; 10:30; 15:move(queue:a)", 100)
    assert delays == [0] * 4 + [10] + [long] * 4 + [30] * 5


def test_another_string_from_the_same_test_adds_up_to_281() -> None:
    # there the handler itself put this string in force from the first delivery on
    delays = milliseconds("5:11; 6:15; 10:35; 16:move(queue:a)", 100)
    assert sum(delays) == 281
    assert len(delays) == 15


@pytest.mark.parametrize(
    ("template", "source", "target"),
    [
        ("dlq($)", "myQueue", "dlq(myQueue)"),
        ("dlq($)", "lookup://jms/myQueue", "lookup://jms/dlq(myQueue)"),
        ("dlq($)", "lookup://myQueue", "lookup://dlq(myQueue)"),
        ("dlq($-$)", "lookup://myQueue", "lookup://dlq(myQueue-myQueue)"),
        ("dlq($-$)", "myQueue", "dlq(myQueue-myQueue)"),
    ],
)
def test_dollar_is_the_source_and_a_lookup_prefix_stays(template: str, source: str, target: str) -> None:
    policy = RedeliveryPolicy.parse(f"600: move(queue:{template})")
    assert policy.dead_after == 600
    assert policy.targets[0].resolve(Destination(source)).name == target


@pytest.mark.parametrize(
    ("word", "source", "kind"),
    [
        ("queue", "topic", "queue"),
        ("queue", "queue", "queue"),
        ("topic", "queue", "topic"),
        ("topic", "topic", "topic"),
        ("same", "queue", "queue"),
        ("same", "topic", "topic"),
    ],
)
def test_same_is_the_kind_of_the_source_and_the_others_are_themselves(word: str, source: str, kind: str) -> None:
    policy = RedeliveryPolicy.parse(f"3:move({word}:x)")
    assert policy.targets[0].resolve(Destination("s", source)).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        ";",
        "1:0",
        "1:10;",
        "1:10;2:20;",
        "1:10;2:20;30:move(same:dname)",
        "1:10;2:20;30:delete",
        "1:10; 2: 20 ; 3:500",
        "50000000:1",
        "5:move(queue : a)",
        "5:move(queue:a(b)c)",
    ],
)
def test_what_the_original_accepts_is_accepted(text: str) -> None:
    policy = RedeliveryPolicy.parse(text, "jmsjca")
    assert policy.language == "jmsjca"


def test_the_empty_string_tries_again_at_once_for_ever() -> None:
    assert milliseconds("", 500) == [0] * 500


@pytest.mark.parametrize(
    ("text", "code", "element"),
    [
        ("1;", "E102", 1),
        (":1;", "E102", 1),
        ("x;", "E102", 1),
        ("1:1052:20;", "E102", 1),
        ("1::10;20:49;", "E102", 1),
        ("1:10;52:", "E102", 2),
        ("1:10;:20", "E102", 2),
        ("1:10;;2:20", "E102", 2),
        (" 1:10", "E102", 1),
        ("1:10 ", "E102", 1),
        ("1:  10", "E102", 1),
        ("5:MOVE(queue:a)", "E102", 1),
        (";5:10", "E102", 1),
        ("1:-5", "E102", 1),
        ("1:1.5", "E102", 1),
        ("\u0661:10", "E102", 1),  # a digit, but not one of theirs
        ("5:move(queue:a);6:1", "E103", 1),
        ("5:move(queue)", "E104", 1),
        ("5:move(queue:)", "E104", 1),
        ("5:move(same:)", "E104", 1),
        ("5:move( queue:a)", "E104", 1),
        ("5:move(stack:a)", "E104", 1),
        ("1:10;5:move()", "E104", 2),
        ("5:delete;6:1", "E105", 1),
        ("5:1;4:2", "E106", 2),
        ("5:1;5:2", "E107", 2),
        ("1:1;2:99999999999999999999", "E109", 2),
        ("0:10", "E111", 1),
        ("50000001:1", "E112", 1),
        ("9" * 5000 + ":1", "E112", 1),
        ("1" + " " * 200_000 + "x", "E102", 1),  # in no time
        ("1:10;2:20; ", "E102", 3),
    ],
)
def test_what_the_original_refuses_is_refused_with_its_code_and_place(text: str, code: str, element: int) -> None:
    with pytest.raises(PolicyError) as caught:
        RedeliveryPolicy.parse(text, "jmsjca")
    assert isinstance(caught.value, JmsjcaError)
    assert (caught.value.code, caught.value.element) == (code, element)
    assert code in str(caught.value)
    assert f"element {element}" in str(caught.value)
    assert caught.value.cure
    assert len(str(caught.value)) < 400


def test_strict_refuses_what_the_manual_refuses() -> None:
    assert RedeliveryPolicy.parse("3:5000", strict=True).longest_delay == 5.0
    with pytest.raises(PolicyError, match="E109 in element 1"):
        RedeliveryPolicy.parse("3:5001", strict=True)
    assert RedeliveryPolicy.parse("3:5001").longest_delay == 5.001


def test_the_largest_delay_of_the_original_tests_is_taken() -> None:
    assert RedeliveryPolicy.parse("1:2147483647").longest_delay == 2147483.647


@pytest.mark.parametrize("encode", [str, quote, lambda text: quote(text, safe=":();$")])
def test_a_url_carries_the_string_raw_or_percent_encoded(encode: object) -> None:
    text = "2:500; 4:2000; 6:move(same:$.dead)"
    assert callable(encode)
    url = f"tcp://me:secret@broker:61613?JMSJCA.redeliveryhandling={encode(text)}"
    policy = RedeliveryPolicy.parse(url)
    assert policy == RedeliveryPolicy.parse(text)
    assert policy.text == text
    assert "secret" not in repr(policy)


def test_other_options_around_it_in_the_url_are_left_alone() -> None:
    url = "stcms://host:18007?a=b&JMSJCA.redeliveryhandling=5:1000; 10:5000&c=7:delete"
    assert RedeliveryPolicy.parse(url).text == "5:1000; 10:5000"


def test_a_plus_in_a_url_is_a_plus() -> None:
    url = "tcp://h?JMSJCA.redeliveryhandling=3:move(queue:a+b)"
    assert RedeliveryPolicy.parse(url).targets[0].template == "a+b"


def test_bytes_in_a_url_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(PolicyError, match="UTF-8"):
        RedeliveryPolicy.parse("tcp://h?JMSJCA.redeliveryhandling=3:move(queue:%ff)")


@pytest.mark.parametrize("language", [None, "jmsjca"])
def test_a_url_without_a_policy_is_refused_and_its_password_not_shown(language: str | None) -> None:
    with pytest.raises(PolicyError, match="carries no policy") as caught:
        RedeliveryPolicy.parse("amqp://me:secret@host/", language)
    assert "secret" not in str(caught.value)


def test_a_million_failures_without_a_table_entry_for_each_cost_nothing() -> None:
    policy = RedeliveryPolicy.parse("1:10; 50000000:delete")
    assert policy.longest_delay == 0.01
    assert policy.decide(49_999_999) == Redeliver(0.01, 0.01, 0.01)
    assert policy.decide(50_000_000) == Discard("exhausted")


def test_a_rejected_message_of_a_string_without_an_end_is_kept() -> None:
    assert RedeliveryPolicy.parse("3:1000").decide(4, error=Reject("no")) == Keep(
        1.0, 1.0, 1.0, reason="rejected", detail="no"
    )


@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        ("1;", "no colon", "3:1000"),
        (":1", "no count", "such as 3:1"),
        ("x:1", "'x' is no whole number", "Count failures"),
        ("1:10;52:", "nothing stands behind the colon", "move(queue:NAME)"),
        ("1:10;;2:20", "between two separators", "one of the ;"),
        ("1:1052:20", "two entries", "Write a ;"),
        ("3:5s", "'5s' is no whole number of milliseconds", "Write 3:5000"),
        ("3:1.5 s", "no whole number of milliseconds", "Write 3:1500"),
        ("3:2min", "no whole number of milliseconds", "Write 3:120000"),
        (" 3:10", "a blank", "Write 3:10"),
        ("3 :10", "a blank", "Write 3:10"),
        ("3:Delete", "neither a delay nor delete nor move", "3:delete"),
        ("3:MOVE(queue:a)", "neither a delay nor delete nor move", "3:move(queue:NAME)"),
        ("3:move queue:a", "not in brackets", "3:move(queue:NAME)"),
        ("3:banana", "'banana' is neither", "milliseconds, delete or move"),
    ],
)
def test_each_way_to_miss_an_entry_has_words_of_its_own(text: str, what: str, cure: str) -> None:
    with pytest.raises(JmsjcaError) as refused:
        RedeliveryPolicy.parse(text, "jmsjca")
    assert refused.value.code == "E102"
    assert what in refused.value.what
    assert cure in refused.value.cure


def test_two_places_in_one_move_are_one_name_and_a_finding() -> None:
    policies = load_policies("3:move(queue:a, queue:b)")
    assert policies.default.targets[0].resolve(Destination("s")).name == "a, queue:b"
    (finding,) = policies.warnings
    assert "is one queue" in finding


@pytest.mark.parametrize("text", ["JMSJCA.redeliveryhandling = 3:1000", "jmsjca.RedeliveryHandling=3:1000"])
def test_another_spelling_of_the_option_says_the_right_one(text: str) -> None:
    with pytest.raises(PolicyError, match="is not how JMSJCA's option is spelled") as refused:
        load_policies(text)
    assert "JMSJCA.redeliveryhandling=" in refused.value.cure


def test_what_a_url_says_twice_or_in_two_languages_is_a_warning() -> None:
    url = "tcp://h?JMSJCA.redeliveryhandling=3:25"
    assert not load_policies(url).warnings
    twice = load_policies(f"{url}&JMSJCA.redeliveryhandling=4:25")
    assert "stands there twice, and the first one counts" in twice.warnings[0]
    both = load_policies(f"{url}&jms.redeliveryPolicy.maximumRedeliveries=4")
    assert "jms.redeliveryPolicy is not read beside JMSJCA.redeliveryhandling" in both.warnings[0]
