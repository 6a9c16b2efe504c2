# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests ActiveMQ's languages: the manual's examples, the numbers of ActiveMQ's own tests, and mistakes.

All mistakes of a text are told at once.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import (
    DeadLetter,
    Decision,
    Discard,
    PolicyMap,
    Redeliver,
    RedeliveryPolicy,
    Target,
    load_policies,
)
from redeliver_mw.policy.artemis_delays import ArtemisDelays
from redeliver_mw.policy.backoff import Linear
from redeliver_mw.policy.formats.activemq import reader
from tests.policy.examples import EXAMPLES

BILLING = EXAMPLES["activemq"]


def url(**options: object) -> str:
    return "tcp://localhost:61616?" + "&".join(
        f"jms.redeliveryPolicy.{name}={value}" for name, value in options.items()
    )


def plugin(attributes: str = "", entries: str = "", default: str = "") -> str:
    default = f"<defaultEntry>{default}</defaultEntry>" if default else ""
    return f"""<broker schedulerSupport="true"><plugins><redeliveryPlugin {attributes}><redeliveryPolicyMap>
        <redeliveryPolicyMap><redeliveryPolicyEntries>{entries}</redeliveryPolicyEntries>{default}</redeliveryPolicyMap>
        </redeliveryPolicyMap></redeliveryPlugin></plugins></broker>"""


def client(*entries: str, default: str = "") -> str:
    default = f"<defaultEntry>{default}</defaultEntry>" if default else ""
    inside = f"<redeliveryPolicyEntries>{''.join(entries)}</redeliveryPolicyEntries>{default}"
    return f"<redeliveryPolicyMap>{inside}</redeliveryPolicyMap>"


def endings(*entries: str, default: str = "") -> str:
    default = f"<defaultEntry>{default}</defaultEntry>" if default else ""
    inside = f"<policyEntries>{''.join(entries)}</policyEntries>{default}"
    return f"<broker><destinationPolicy><policyMap>{inside}</policyMap></destinationPolicy></broker>"


def ending(where: str, strategy: str) -> str:
    return f"<policyEntry {where}><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>"


def delays(policy: RedeliveryPolicy, most: int = 20) -> list[int]:
    """Return the milliseconds after failures 1, 2, … of a message that always fails, until it is dead-lettered."""
    decisions = itertools.takewhile(lambda one: isinstance(one, Redeliver), map(policy.decide, range(1, most + 1)))
    return [round(decision.base * 1000) for decision in decisions if isinstance(decision, Redeliver)]


def dead_letter_target(policies: PolicyMap, name: str, kind: str = "queue") -> str | None:
    """Return the destination of a dead letter of that source; None if the message is dropped."""
    decision = policies.resolve(name, kind).end("exhausted")
    if isinstance(decision, Discard):
        return None
    assert isinstance(decision, DeadLetter)
    (target,) = decision.targets
    return str(target.resolve(Destination(name, "topic" if kind == "topic" else "queue")))


def test_the_manuals_url_redelivers_four_times() -> None:
    policies = reader.read("tcp://localhost:61616?jms.redeliveryPolicy.maximumRedeliveries=4")
    assert delays(policies.default) == [1000] * 4
    assert policies.default.dead_after == 5
    assert dead_letter_target(policies, "any") == "queue:ActiveMQ.DLQ"
    assert policies.warnings == ()


def test_the_manuals_plugin_waits_three_seconds_and_then_one() -> None:
    entry = '<redeliveryPolicy queue="SpecialQueue" maximumRedeliveries="3" initialRedeliveryDelay="3000" />'
    default = '<redeliveryPolicy maximumRedeliveries="3" initialRedeliveryDelay="3000" />'
    policies = reader.read(plugin("", entry, default))
    assert delays(policies.resolve("SpecialQueue")) == [3000, 1000, 1000]
    assert policies.resolve("SpecialQueue").version == policies.resolve("Other").version


@pytest.mark.parametrize("text", [BILLING, BILLING.replace("&gt;", ">")])
def test_the_minimal_example_retries_billing_twice_and_dead_letters_it_by_name(text: str) -> None:
    policies = reader.read(text)
    assert delays(policies.resolve("BILLING.eu")) == [1500, 4000]
    assert dead_letter_target(policies, "BILLING.eu") == "queue:DEAD.BILLING.eu"
    assert policies.resolve("BILLING.eu").expired() == Discard("expired")
    assert delays(policies.resolve("OTHER")) == [1000] * 5
    assert dead_letter_target(policies, "OTHER") == "queue:ActiveMQ.DLQ"
    assert isinstance(policies.resolve("OTHER").expired(), DeadLetter)


@pytest.mark.parametrize(
    ("origin", "options", "expected"),
    [
        ("A1", {}, [1000] * 6),
        ("A2", {"useExponentialBackOff": "true"}, [1000, 5000, 25_000, 125_000, 625_000, 3_125_000]),
        (
            "A3",
            {"useExponentialBackOff": "true", "maximumRedeliveryDelay": 60_000},
            [1000, 5000, 25_000, 60_000, 60_000, 60_000],
        ),
        (
            "A4",
            {"useExponentialBackOff": "TRUE", "initialRedeliveryDelay": 3, "backOffMultiplier": 1.5},
            [3, 4, 6, 9, 13, 19],
        ),
        (
            "A5",
            {"useExponentialBackOff": "true", "initialRedeliveryDelay": 1, "backOffMultiplier": "1.5d"},
            [1, 1, 1, 1, 1, 1],
        ),
        (
            "A6",
            {
                "initialRedeliveryDelay": 50,
                "redeliveryDelay": 500,
                "backOffMultiplier": 2,
                "maximumRedeliveryDelay": 60,
                "useExponentialBackOff": "true",
            },
            [50, 500, 500, 500, 500, 500],
        ),
        ("DeadLetterTest", {"maximumRedeliveries": 3}, [1000] * 3),
        ("NoRetryDeadLetterTest", {"maximumRedeliveries": 0}, []),
        (
            "testRepeatedRedelivery..NoCommit",
            {"initialRedeliveryDelay": 0, "redeliveryDelay": 0, "maximumRedeliveries": 4},
            [0, 0, 0, 0],
        ),
        (
            "..NoCommitForwardMessage",
            {"initialRedeliveryDelay": 0, "redeliveryDelay": 0, "maximumRedeliveries": 2},
            [0, 0],
        ),
        ("testDLQHandling", {"initialRedeliveryDelay": 100, "maximumRedeliveries": 2}, [100, 1000]),
        ("testInfinite..", {"initialRedeliveryDelay": 100, "maximumRedeliveries": -1}, [100] + [1000] * 19),
        ("testZeroMaximum..", {"initialRedeliveryDelay": 100, "maximumRedeliveries": 0}, []),
        ("testInitialRedeliveryDelayZero", {"initialRedeliveryDelay": 0, "maximumRedeliveries": 1}, [0]),
        ("testInitialRedeliveryDelayOne", {"initialRedeliveryDelay": 1000, "maximumRedeliveries": 1}, [1000]),
        (
            "testRedeliveryDelayOne",
            {"initialRedeliveryDelay": 0, "redeliveryDelay": 1000, "maximumRedeliveries": 2},
            [0, 1000],
        ),
        (
            "testExponential..NonBlocking",
            {
                "initialRedeliveryDelay": 0,
                "redeliveryDelay": 100,
                "useExponentialBackOff": "true",
                "backOffMultiplier": 2,
                "maximumRedeliveries": 4,
            },
            [0, 100, 200, 400],
        ),
        (
            "testMaximumRedeliveryDelay",
            {
                "initialRedeliveryDelay": 10,
                "redeliveryDelay": 50,
                "useExponentialBackOff": "true",
                "backOffMultiplier": 2,
                "maximumRedeliveryDelay": 1000,
                "maximumRedeliveries": 9,
            },
            [10, 20, 40, 80, 160, 320, 640, 1000, 1000],
        ),
    ],
)
def test_a_url_has_the_delays_of_activemq(origin: str, options: dict[str, object], expected: list[int]) -> None:
    text = url(**options) if options else "tcp://localhost:61616?jms.nonBlockingRedelivery=true"
    policy = reader.read(text).default
    assert delays(policy) == expected
    assert policy.dead_after == (None if len(expected) == 20 else len(expected) + 1)


@pytest.mark.parametrize(
    "jitter",
    [{"collisionAvoidancePercent": 15}, {"collisionAvoidanceFactor": 0.15}, {}],
    ids=["as the program has it", "as the manual has it", "by default"],
)
def test_a7_collision_avoidance_is_15_per_cent_and_never_of_the_first_delay(jitter: dict[str, object]) -> None:
    text = url(initialRedeliveryDelay=100, redeliveryDelay=1000, useCollisionAvoidance="true", **jitter)
    policy = reader.read(text).default
    assert policy.decide(1) == Redeliver(0.1, 0.1, 0.1)
    assert policy.decide(2) == Redeliver(1.0, 0.85, 1.15)


MATCHED = {"TEST.FOO": 1, "TEST.*": 2, "TEST.>": 3, ">": 4, "TEST.FOO.BAR": 5}


@pytest.mark.parametrize(
    ("name", "chosen"), [("FOO", 4), ("TEST.FOO", 1), ("TEST.D1", 2), ("TEST.FOO.BAR", 5), ("TEST.BAR.FOO", 3)]
)
def test_the_one_best_entry_holds_as_in_destination_map_test(name: str, chosen: int) -> None:
    entries = [
        f'<redeliveryPolicy queue="{pattern}" maximumRedeliveries="{limit}"/>' for pattern, limit in MATCHED.items()
    ]
    for order in (entries, entries[::-1]):
        policies = reader.read(client(*order, default='<redeliveryPolicy maximumRedeliveries="9"/>'))
        assert policies.resolve(name).dead_after == chosen + 1
        assert policies.resolve(name, "topic").dead_after == 10


def test_queues_and_topics_have_entries_of_their_own_as_in_per_destination_test() -> None:
    queues = '<redeliveryPolicy queue=">" maximumRedeliveries="2" initialRedeliveryDelay="0" redeliveryDelay="1000"/>'
    topics = '<redeliveryPolicy topic=">" maximumRedeliveries="3" initialRedeliveryDelay="0" redeliveryDelay="1000"/>'
    policies = reader.read(client(queues, topics))
    assert delays(policies.resolve("a.b")) == [0, 1000]
    assert delays(policies.resolve("a.b", "topic")) == [0, 1000, 1000]


def test_commas_make_one_entry_of_several_destinations() -> None:
    policies = reader.read(client('<redeliveryPolicy queue="A, B.*,topic://C" maximumRedeliveries="0"/>'))
    found = [policies.resolve(*one).dead_after for one in (("A",), ("B.x",), ("C", "topic"), ("C",), ("B",))]
    assert found == [1, 1, 1, 7, 7]


def test_without_a_default_entry_the_connections_policy_holds() -> None:
    entries = client('<redeliveryPolicy queue="A" maximumRedeliveries="1"/>')
    connection = "<redeliveryPolicy><redeliveryPolicy maximumRedeliveries='2'/></redeliveryPolicy>"
    policies = reader.read(f"<beans><connectionFactory>{connection}{entries}</connectionFactory></beans>")
    assert policies.resolve("A").dead_after == 2
    assert policies.resolve("B").dead_after == 3


def test_a_spring_bean_is_a_policy_of_the_connection_too() -> None:
    properties = (
        '<property name="maximumRedeliveries" value="3"/><property name="redeliveryDelay"><value>7</value></property>'
    )
    bean = f'<bean class="org.apache.activemq.RedeliveryPolicy" id="x">{properties}</bean>'
    assert delays(reader.read(f"<beans>{bean}</beans>").default) == [1000, 7, 7]


def test_a_broker_url_in_xml_is_read_as_a_url() -> None:
    inner = "failover:(tcp://a:1,tcp://b:2)?jms.redeliveryPolicy.maximumRedeliveries=1&amp;x=y"
    policies = reader.read(f'<beans><connectionFactory brokerURL="{inner}"/></beans>')
    assert delays(policies.default) == [1000]


def test_a_message_that_comes_in_with_too_many_failures_is_ended_unseen() -> None:
    assert isinstance(reader.read(url(maximumRedeliveries=4)).default.on_arrival(5), DeadLetter)
    assert reader.read(url(maximumRedeliveries=4)).default.on_arrival(4) is None
    unchecked = reader.read(url(maximumRedeliveries=4, preDispatchCheck="false")).default
    assert unchecked.on_arrival(5) is None


def test_the_plugin_of_broker_redelivery_test_waits_four_seconds_and_two() -> None:
    default = '<redeliveryPolicy initialRedeliveryDelay="4000" redeliveryDelay="2000" maximumRedeliveries="2"/>'
    policies = reader.read(plugin("", "", default))
    assert delays(policies.default) == [4000, 2000]
    assert dead_letter_target(policies, "x") == "queue:ActiveMQ.DLQ"


def test_the_plugin_drops_dead_messages_if_configured_and_still_dead_letters_expired_ones() -> None:
    default = '<redeliveryPolicy maximumRedeliveries="2"/>'
    policies = reader.read(plugin('sendToDlqIfMaxRetriesExceeded="false"', "", default))
    assert delays(policies.default) == [1000, 1000]
    assert dead_letter_target(policies, "x") is None
    assert policies.default.expired() == DeadLetter((Target("queue", "ActiveMQ.DLQ"),), "expired")


@pytest.mark.parametrize(("fallback", "target"), [("true", "queue:ActiveMQ.DLQ"), ("false", None)])
def test_the_plugin_never_retries_what_it_has_no_policy_for(fallback: str, target: str | None) -> None:
    policies = reader.read(plugin(f'fallbackToDeadLetter="{fallback}"', '<redeliveryPolicy queue="A"/>'))
    assert delays(policies.resolve("B")) == []
    assert dead_letter_target(policies, "B") == target
    assert delays(policies.resolve("A")) == [1000] * 6


@pytest.mark.parametrize("short", ["initialRedeliveryDelay", "redeliveryDelay"])
def test_redelivery_plugin_test_a_delay_of_500_ms_is_refused(short: str) -> None:
    for entry, default in (('queue="A" ', ""), ("", "default")):
        policy = f'<redeliveryPolicy {entry}{short}="500"/>'
        with pytest.raises(PolicyError, match=f"{short} is 500 ms"):
            reader.read(plugin("", "" if default else policy, policy if default else ""))
        assert reader.read(client(policy) if entry else client(default=policy))  # a client may


def test_redelivery_plugin_test_without_a_scheduler_is_a_warning_and_refused_by_strict() -> None:
    text = plugin("", '<redeliveryPolicy queue="A"/>').replace('schedulerSupport="true"', "")
    assert "scheduler" in " ".join(reader.read(text).warnings)
    with pytest.raises(PolicyError, match='Write schedulerSupport="true"'):
        reader.read(text, True)


@pytest.mark.parametrize(
    ("origin", "text", "kind", "target"),
    [
        ("DeadLetterTest", endings(ending('queue="B"', "")), "queue", "queue:ActiveMQ.DLQ"),
        (
            "IndividualDeadLetterTest",
            endings(ending('queue="x"', "<individualDeadLetterStrategy/>")),
            "queue",
            "queue:ActiveMQ.DLQ.Queue.x",
        ),
        (
            "IndividualDeadLetterTest, topics",
            endings(ending('topic="x"', "<individualDeadLetterStrategy/>")),
            "topic",
            "queue:ActiveMQ.DLQ.Topic.x",
        ),
        (
            "a prefix, a suffix",
            endings(ending('queue=">"', '<individualDeadLetterStrategy queuePrefix="a." queueSuffix=".z"/>')),
            "queue",
            "queue:a.x.z",
        ),
        (
            "topics for topics",
            endings(ending('topic=">"', '<individualDeadLetterStrategy useQueueForTopicMessages="false"/>')),
            "topic",
            "topic:ActiveMQ.DLQ.Topic.x",
        ),
        (
            "topics for queues",
            endings(ending('queue=">"', '<individualDeadLetterStrategy useQueueForQueueMessages="false"/>')),
            "queue",
            "topic:ActiveMQ.DLQ.Queue.x",
        ),
        ("DiscardingDeadLetterPolicyTest", endings(ending('queue=">"', "<discarding/>")), "queue", None),
        (
            "one shared queue",
            endings(ending('queue=">"', '<sharedDeadLetterStrategy deadLetterQueue="queue://D"/>')),
            "queue",
            "queue:D",
        ),
        (
            "one shared topic, as an element",
            endings(
                ending(
                    'queue=">"',
                    "<sharedDeadLetterStrategy><deadLetterQueue><topic physicalName='D'/></deadLetterQueue>"
                    "</sharedDeadLetterStrategy>",
                )
            ),
            "queue",
            "topic:D",
        ),
        (
            "a default for queues",
            endings(default=ending("", "<individualDeadLetterStrategy/>")),
            "queue",
            "queue:ActiveMQ.DLQ.Queue.x",
        ),
        (
            "a default for topics",
            endings(default=ending("", "<individualDeadLetterStrategy/>")),
            "topic",
            "queue:ActiveMQ.DLQ.Topic.x",
        ),
        (
            "the best entry has none of its own",
            endings('<policyEntry queue="x"/>', ending('queue=">"', "<discarding/>")),
            "queue",
            "queue:ActiveMQ.DLQ",
        ),
    ],
)
def test_a_dead_message_goes_where_its_strategy_says(origin: str, text: str, kind: str, target: str | None) -> None:
    policies = reader.read(text)
    assert dead_letter_target(policies, "x", kind) == target
    assert delays(policies.resolve("x", kind)) == [1000] * 6


def test_policy_and_strategy_are_each_the_best_of_their_own_map() -> None:
    entries = client(
        '<redeliveryPolicy queue="A.*" maximumRedeliveries="1"/>',
        '<redeliveryPolicy queue="A.b.>" maximumRedeliveries="2"/>',
    )
    strategies = endings(
        ending('queue="*.b"', '<sharedDeadLetterStrategy deadLetterQueue="D1"/>'),
        ending('queue="A.>"', '<sharedDeadLetterStrategy deadLetterQueue="D2"/>'),
    )
    policies = reader.read(f"<beans>{entries}{strategies}</beans>")
    found = {
        name: (policies.resolve(name).dead_after, dead_letter_target(policies, name))
        for name in ("A", "A.x", "A.b", "A.b.c", "B.b", "C")
    }
    assert found == {
        "A": (7, "queue:D2"),
        "A.x": (2, "queue:D2"),
        "A.b": (2, "queue:D1"),  # of patterns that overlap, the first by its letters
        "A.b.c": (3, "queue:D2"),
        "B.b": (7, "queue:D1"),
        "C": (7, "queue:ActiveMQ.DLQ"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (url(maximumRedeliverys=4), "Did you mean maximumRedeliveries?"),
        (url(maximumRedeliveries="four"), "Give a whole number"),
        (url(maximumRedeliveries=2**31), "Give a whole number"),
        (url(redeliveryDelay="9" * 5000), "Give a whole number"),
        (url(backOffMultiplier="NaN"), "Give a number"),
        (url(backOffMultiplier="1e999"), "Give a number"),
        (url(useExponentialBackOff="yes"), "Use true or false"),
        (url(collisionAvoidancePercent=15, collisionAvoidanceFactor=0.15), "Leave one out"),
        (url(maximumRedeliveries="%FF"), "no UTF-8"),
        ("failover:(tcp://a:1?jms.redeliveryPolicy.maximumRedeliveries=1,tcp://b:2)", "closing parenthesis"),
        ("tcp://user:secret@localhost:61616", "no policy of ActiveMQ"),
        (url(maximumRedeliveries="1" * 100_000), "a URL of more than 100000 characters"),
        (client("<redeliveryPolicy/>"), "it does not say for which destination"),
        (client('<redeliveryPolicy queue="A.>.B"/>'), "> is not the end"),
        (client('<redeliveryPolicy queue=""/>'), "empty"),
        (client('<redeliveryPolicy queue="A"/>', '<redeliveryPolicy queue="A"/>'), "a second entry for queue A"),
        (client('<redeliveryPolicy queue="A" redeliveryDelay="${delay}"/>'), "placeholders are not looked up"),
        (endings(ending('queue="A"', '<individualDeadLetterStrategy queuePrefix="a$"/>')), "without a \\$"),
        ("<broker", "not XML"),
        ("<!DOCTYPE x [<!ENTITY e 'e'>]><broker>&e;</broker>", "document type"),
    ],
)
def test_what_is_wrong_is_reported_with_its_cure(text: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        reader.read(text)
    assert "secret" not in str(caught.value)


def test_everything_that_is_wrong_is_reported_at_once_with_its_place() -> None:
    with pytest.raises(PolicyError) as caught:
        reader.read(BILLING.replace('"1500"', '"15"').replace('"4000"', '"4 s"').replace('"5"', '"five"'))
    told = str(caught.value)
    assert "3 problems" in told
    assert "line 5, column 9, <redeliveryPolicy>" in told
    assert "line 8, column 21, <redeliveryPolicy>" in told


@pytest.mark.parametrize(
    "text",
    [
        url(maximumRedeliveries=-2),
        url(redeliveryDelay=-1),
        url(maximumRedeliveryDelay=-5),
        url(collisionAvoidanceFactor=0.1),
        client('<redeliveryPolicy queue="A" maximumRedeliverys="1"/>'),
        plugin('sendToDlq="false"'),
        endings(ending('queue="A"', '<discarding dropAll="true"/>')),
    ],
)
def test_what_activemq_takes_and_does_not_do_is_a_warning_and_refused_by_strict(text: str) -> None:
    assert reader.read(text).warnings
    with pytest.raises(PolicyError):
        reader.read(text, True)


@pytest.mark.parametrize(
    "text",
    [
        client('<redeliveryPolicy tempQueue="true"/>'),
        endings(ending('queue="A"', '<sharedDeadLetterStrategy expiration="5000"/>')),
        endings(ending('queue="A"', '<sharedDeadLetterStrategy processNonPersistent="false"/>')),
        endings(ending('topic="A"', '<individualDeadLetterStrategy destinationPerDurableSubscriber="true"/>')),
        endings(ending('queue="A"', "<bean/>")),  # a strategy of the application's own
        "tcp://h:1?jms.redeliverypolicy.maximumRedeliveries=1&jms.redeliveryPolicy.redeliveryDelay=1",
    ],
)
def test_what_is_not_done_here_is_a_warning(text: str) -> None:
    assert len(reader.read(text, True).warnings) == 1


def test_the_text_that_goes_into_headers_holds_no_password() -> None:
    policies = reader.read("tcp://h:1?user=me&password=secret&jms.redeliveryPolicy.maximumRedeliveries=4")
    assert policies.default.text == policies.native == "jms.redeliveryPolicy.maximumRedeliveries=4"
    assert reader.read(policies.native).default.dead_after == 5


policies_here = st.builds(
    RedeliveryPolicy,
    st.none() | st.integers(1, 120),
    st.sampled_from(
        [url(useExponentialBackOff="true", backOffMultiplier=1.7, useCollisionAvoidance="true"), url(redeliveryDelay=3)]
    ).map(lambda text: reader.read(text).default.backoff),
    st.sampled_from(["queue:DEAD", "topic:a.$.z", "same:$", "same:D", "queue:<&>\"'"]),
    st.sampled_from(["dead-letter", "discard"]),
)
maps = st.builds(
    PolicyMap,
    st.dictionaries(st.sampled_from(["A", "A.*", "A.>", "queue:*.b", "topic:>", "B.<&>"]), policies_here),
    policies_here,
)


@given(maps)
def test_reading_what_was_written_gives_the_same_decisions(policies: PolicyMap) -> None:
    written = reader.write(policies)
    again = reader.read(written.text)
    assert written.lost == ()
    assert again.warnings == ()
    for name, kind in itertools.product(["A", "A.b", "A.b.c", "x.b", "x", "B.<&>"], ["queue", "topic"]):
        source = Destination(name, "topic" if kind == "topic" else "queue")
        before, after = policies.resolve(name, kind), again.resolve(name, kind)
        for failures in (*range(1, 20), 100):
            assert resolved(before.decide(failures), source) == resolved(after.decide(failures), source)


def resolved(decision: Decision, source: Destination) -> object:
    """Return the destinations that a dead letter's targets are for this source, and any other decision as it is."""
    return [one.resolve(source) for one in decision.targets] if isinstance(decision, DeadLetter) else decision


def test_delays_of_another_language_are_written_as_the_recurrence_that_has_them() -> None:
    policies = PolicyMap({}, RedeliveryPolicy(5, [0.5, 1.5, 4.5, 9.0], "DEAD"))
    written = reader.write(policies)
    assert written.lost == ()
    assert delays(reader.read(written.text).default) == [500, 1500, 4500, 9000]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (RedeliveryPolicy(9, [1.0, 7.0, 2.0], "D"), "delays"),
        (RedeliveryPolicy(9, 0.0005, "D"), "fractions of a millisecond"),
        (RedeliveryPolicy(9, 1.0, ["D", "E"]), "the target queue:E"),
        (RedeliveryPolicy(9, 1.0, "$.$"), "the target queue:\\$.\\$"),
        (RedeliveryPolicy(9, 1.0, "D", fatal=ValueError), "no rules by exception"),
        (RedeliveryPolicy(2**40, 1.0, "D"), "at most 2147483648"),
    ],
)
def test_what_activemq_cannot_say_is_listed_and_the_nearest_written(policy: RedeliveryPolicy, said: str) -> None:
    written = reader.write(PolicyMap({"A": policy}))
    assert any(one.startswith("queue:A: ") for one in written.lost)
    with pytest.raises(PolicyError, match=said):
        raise PolicyError("; ".join(written.lost))
    assert reader.read(written.text).resolve("A").dead_after is not None


def test_its_own_text_is_given_back_as_it_was() -> None:
    assert reader.write(reader.read(BILLING)).text == BILLING


PIECES = [
    "<beans>",
    "</beans>",
    "<broker schedulerSupport='true'>",
    "</broker>",
    "<redeliveryPlugin>",
    "</redeliveryPlugin>",
    "<redeliveryPolicyMap>",
    "</redeliveryPolicyMap>",
    "<redeliveryPolicyEntries>",
    "</redeliveryPolicyEntries>",
    "<redeliveryPolicy queue='A.>' maximumRedeliveries='3'/>",
    "<redeliveryPolicy topic='*' redeliveryDelay='x'/>",
    "<defaultEntry>",
    "</defaultEntry>",
    "<redeliveryPolicy/>",
    "<destinationPolicy>",
    "</destinationPolicy>",
    "<policyEntries>",
    "</policyEntries>",
    "<policyEntry queue='A'>",
    "</policyEntry>",
    "<deadLetterStrategy>",
    "</deadLetterStrategy>",
    "<discarding/>",
    "<individualDeadLetterStrategy queuePrefix='$'/>",
    "<sharedDeadLetterStrategy deadLetterQueue=''/>",
    "<bean class='a.RedeliveryPolicy'>",
    "</bean>",
    "<property/>",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join), st.booleans())
def test_nothing_but_a_policy_error_comes_out_of_any_xml(text: str, strict: bool) -> None:
    with contextlib.suppress(PolicyError):
        reader.read(f"<beans>{text}</beans>", strict)


names = st.sampled_from([*reader.PROPERTIES, "x"]) | st.text(max_size=5)
values = st.sampled_from(["1", "-1", "true", "1e9", "99999999999999999999", "%", "%ff", "&", "?", ")"]) | st.text()


@given(st.lists(st.tuples(names, values)), st.booleans())
def test_nothing_but_a_policy_error_comes_out_of_any_url(options: list[tuple[str, str]], strict: bool) -> None:
    text = "tcp://h:1?" + "&".join(f"jms.redeliveryPolicy.{name}={value}" for name, value in options)
    try:
        policy = reader.read(text, strict).default
    except PolicyError:
        return
    for failures in (1, 2, 50):
        decision = policy.decide(failures)
        if isinstance(decision, Redeliver):
            assert decision.low <= decision.draw(random.Random(1)) <= decision.high


@pytest.mark.timeout(20)
def test_maps_whose_patterns_all_overlap_are_refused_before_they_take_long() -> None:
    def names(word: str) -> str:
        return ",".join(".".join("*" if n >> bit & 1 else word for bit in range(11)) for n in range(1200))

    with pytest.raises(PolicyError, match="overlap too often"):
        reader.read(
            f"""<b><redeliveryPolicyMap><redeliveryPolicyEntries><redeliveryPolicy queue="{names("a")}"/>
            </redeliveryPolicyEntries></redeliveryPolicyMap><destinationPolicy><policyEntries>
            <policyEntry queue="{names("b")}"><deadLetterStrategy><discarding/></deadLetterStrategy></policyEntry>
            </policyEntries></destinationPolicy></b>"""
        )


@pytest.mark.parametrize(
    "kept",
    [
        RedeliveryPolicy(1, ArtemisDelays(10, 0.5, None, 0.15), None),
        RedeliveryPolicy(None, Linear(0.01, -1).jittered(0.15), None),
    ],
)
def test_the_jitter_of_a_message_that_is_kept_at_its_first_failure_is_not_lost_in_silence(
    kept: RedeliveryPolicy,
) -> None:
    assert any("jitter" in line for line in reader.write(PolicyMap({}, default=kept)).lost)


@pytest.mark.parametrize("name", ["backOffMultiplier=3", "maximumRedeliveryDelay=9000"])
def test_growth_without_exponential_back_off_is_a_finding(name: str) -> None:
    url = f"tcp://h?jms.redeliveryPolicy.{name}"
    (finding,) = load_policies(url).warnings
    assert name.partition("=")[0] in finding
    assert "useExponentialBackOff" in finding
    assert load_policies(f"{url}&jms.redeliveryPolicy.useExponentialBackOff=true").warnings == ()


BESIDE = """<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true"><plugins><redeliveryPlugin>
    <redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
      <redeliveryPolicy maximumRedeliveries="4" initialRedeliveryDelay="2000" redeliveryDelay="2000"/>
    </defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker>
  <connectionFactory xmlns="http://activemq.apache.org/schema/core"><redeliveryPolicy>
    <redeliveryPolicy maximumRedeliveries="LIMIT"/></redeliveryPolicy></connectionFactory></beans>"""


@pytest.mark.parametrize(("limit", "findings"), [("0", 0), ("1", 1), ("-1", 1)])
def test_a_consumers_limit_of_0_beside_the_plugin_is_as_its_manual_says(limit: str, findings: int) -> None:
    policies = load_policies(BESIDE.replace("LIMIT", limit))
    assert len([text for text in policies.warnings if "client's own policies" in text]) == findings
    assert policies.resolve("orders").dead_after == 5


def in_a_bean(inner: str) -> str:
    bean = f'<bean class="org.apache.activemq.RedeliveryPolicy">{inner}</bean>'
    return f'<beans xmlns="http://www.springframework.org/schema/beans">{bean}</beans>'


@pytest.mark.parametrize(
    ("inner", "finding"),
    [
        ('<propery name="maximumRedeliveries" value="3"/>', "<propery> is not known in a bean of this class"),
        (
            '<property name="maximumRedeliveries" value="3"/><property name="maximumRedeliveries" value="5"/>',
            "maximumRedeliveries stands there twice, and the last one counts",
        ),
    ],
)
def test_a_mistake_in_a_bean_of_springs_is_found(inner: str, finding: str) -> None:
    assert any(finding in line for line in load_policies(in_a_bean(inner)).warnings)
    with pytest.raises(PolicyError, match=finding.partition(",")[0]):
        load_policies(in_a_bean(inner), strict=True)


@pytest.mark.parametrize(
    "inner",
    [
        "",
        "<redeliveryPolicyMap/>",
        "<redeliveryPolicyMap><redeliveryPolicyMap><redeliveryPolicyEntries/></redeliveryPolicyMap></redeliveryPolicyMap>",
        "<redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry/></redeliveryPolicyMap></redeliveryPolicyMap>",
    ],
)
def test_a_plugin_without_any_policy_is_a_finding(inner: str) -> None:
    text = f"<redeliveryPlugin>{inner}</redeliveryPlugin>"
    assert any("there is no policy in it" in line for line in load_policies(text).warnings)
    with pytest.raises(PolicyError, match="there is no policy in it"):
        load_policies(text, strict=True)


def test_two_strategies_of_one_entry_are_a_finding() -> None:
    text = (
        '<destinationPolicy><policyMap><policyEntries><policyEntry queue="a"><deadLetterStrategy><discarding/>'
        '<sharedDeadLetterStrategy deadLetterQueue="X"/></deadLetterStrategy></policyEntry></policyEntries>'
        "</policyMap></destinationPolicy>"
    )
    assert any("a second strategy beside <discarding>, which counts" in line for line in load_policies(text).warnings)


def test_entries_beside_the_inner_map_are_found() -> None:
    default = '<defaultEntry><redeliveryPolicy maximumRedeliveries="1"/></defaultEntry>'
    inner = f"<redeliveryPolicyMap>{default}</redeliveryPolicyMap>"
    entries = '<redeliveryPolicyEntries><redeliveryPolicy queue="a" maximumRedeliveries="3"/></redeliveryPolicyEntries>'
    text = f"<redeliveryPolicyMap>{inner}{entries}</redeliveryPolicyMap>"
    assert any("It belongs in the inner <redeliveryPolicyMap>" in line for line in load_policies(text).warnings)
    with pytest.raises(PolicyError, match="out of its place"):
        load_policies(text, strict=True)


PROPERTY = '<property name="maximumRedeliveries" value="3"/>'


@pytest.mark.parametrize(
    "text",
    [
        in_a_bean("").replace("</beans>", f"{PROPERTY}</beans>"),
        in_a_bean(f'<property name="redeliveryDelay" value="5">{PROPERTY}</property>'),
    ],
)
def test_a_property_that_is_in_no_bean_of_a_policy_is_found(text: str) -> None:
    assert load_policies(text).default.dead_after == 7
    assert any("It belongs in the <bean> of a RedeliveryPolicy" in line for line in load_policies(text).warnings)


def test_a_bean_of_camels_class_of_that_name_is_not_read() -> None:
    text = in_a_bean(PROPERTY)
    camels = text.replace("org.apache.activemq.RedeliveryPolicy", "org.apache.camel.processor.RedeliveryPolicy")
    both = text.replace("</beans>", camels.partition(">")[2].replace('"3"', '"77"'))
    assert load_policies(both, strict=True).default.dead_after == 4
    with pytest.raises(PolicyError, match="no policy of activemq"):
        load_policies(camels)
