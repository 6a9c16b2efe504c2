# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests Patch Bay's dynamoMessagingSystem.xml: the manual's examples, the rules drawn from it, and what is wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import DeadLetter, Discard, PolicyMap, Redeliver, RedeliveryPolicy, Target
from redeliver_mw.policy.formats.patchbay import reader, writer
from tests.policy.examples import EXAMPLES

ORDERS = EXAMPLES["patchbay"]

FULFILLMENT = """<message-sink>
  <nucleus-name>/fulfillment/OrderFulfiller</nucleus-name>
  <input-port>
    <input-destination>
      <destination-name>patchbay:/Fulfillment/SubmitOrder</destination-name>
      <destination-type>Topic</destination-type>
      <durable-subscriber-name>
        OrderFulfiller-SubmitOrder
      </durable-subscriber-name>
      <redelivery>
       <max-attempts>3</max-attempts>
       <delay>60000</delay>
       <failure-output-port>FulfillmentError</failure-output-port>
      </redelivery>
    </input-destination>
  </input-port>
  <redelivery-port>
    <port-name>FulfillmentError</port-name>
    <output-destination>
      <destination-name>patchbay:/Fulfillment/ErrorNotification</destination-name>
      <destination-type>Queue</destination-type>
    </output-destination>
  </redelivery-port>
</message-sink>"""


def test_p1_three_attempts_a_minute_apart_and_then_the_failure_port() -> None:
    policy = reader.read(FULFILLMENT).resolve("patchbay:/Fulfillment/SubmitOrder", "topic")
    assert [policy.decide(failures) for failures in (1, 2)] == [Redeliver(60.0, 60.0, 60.0)] * 2
    assert policy.decide(3) == DeadLetter((Target("queue", "patchbay:/Fulfillment/ErrorNotification"),), "exhausted")
    assert policy.on_arrival(3) is None


def test_p2_one_attempt_is_no_redelivery() -> None:
    policy = reader.read(ORDERS.replace("<max-attempts>4<", "<max-attempts>1<")).resolve("patchbay:/acme/Orders")
    assert isinstance(policy.decide(1), DeadLetter)


def test_p3_every_output_destination_of_the_port_gets_one() -> None:
    policy = reader.read(ORDERS).resolve("patchbay:/acme/Orders")
    assert [policy.decide(failures) for failures in (1, 2, 3)] == [Redeliver(30.0, 30.0, 30.0)] * 3
    end = policy.decide(4)
    assert isinstance(end, DeadLetter)
    names = [str(target.resolve(Destination("patchbay:/acme/Orders"))) for target in end.targets]
    assert names == ["queue:patchbay:/acme/OrderAlarm", "queue:patchbay:/acme/OrderDead"]


def test_p5_without_redelivery_it_is_tried_again_at_once_and_for_ever() -> None:
    start, end = ORDERS.index("<redelivery>"), ORDERS.index("</redelivery>") + len("</redelivery>")
    policies = reader.read(ORDERS[:start] + ORDERS[end:])
    for name in ("patchbay:/acme/Orders", "not in the file"):
        policy = policies.resolve(name)
        assert policy.decide(10**6) == Redeliver(0.0, 0.0, 0.0)
        assert policy.dead_after is None


def test_p6_a_delivery_date_is_waited_for_and_never_missed() -> None:
    now = 1_700_000_000.25
    in_an_hour = {reader.DELIVERY_DATE: int(now * 1000) + 3_600_000}
    assert reader.delay_until_due(in_an_hour, now) == 3600.0
    assert reader.delay_until_due(in_an_hour, now + 3600) == 0.0
    assert reader.delay_until_due(in_an_hour, now + 9000) == 0.0
    assert reader.delay_until_due({}, now) == 0.0


@pytest.mark.parametrize("strange", ["soon", None, True, 1.5, b"1", -(10**400)])
def test_a_delivery_date_that_is_none_is_not_waited_for(strange: object) -> None:
    assert reader.delay_until_due({reader.DELIVERY_DATE: strange}, 1_700_000_000.0) == 0.0


def test_a_delivery_date_beyond_all_dates_is_as_far_as_any_delay() -> None:
    assert reader.delay_until_due({reader.DELIVERY_DATE: 10**400}, 1_700_000_000.0) == 1e9


def test_a_message_that_expires_is_dropped_since_patch_bay_does_not_look() -> None:
    assert reader.read(ORDERS).resolve("patchbay:/acme/Orders").expired() == Discard("expired")


def test_a_filter_has_redelivery_too_and_sinks_have_ports_of_their_own() -> None:
    other = ORDERS.replace("message-sink", "message-filter").replace("acme/", "other/")
    policies = reader.read(f"<all>{ORDERS}{other.replace('<delay>30000', '<delay>5')}</all>")
    assert policies.resolve("patchbay:/acme/Orders").decide(1) == Redeliver(30.0, 30.0, 30.0)
    assert policies.resolve("patchbay:/other/Orders").decide(1) == Redeliver(0.005, 0.005, 0.005)
    assert policies.resolve("patchbay:/other/Orders").targets[0].template == "patchbay:/other/OrderAlarm"


def test_kinds_are_apart() -> None:
    assert reader.read(FULFILLMENT).resolve("patchbay:/Fulfillment/SubmitOrder", "queue").dead_after is None


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("<max-attempts>4</max-attempts>", "", "line 5, column 5, <redelivery>: max-attempts is missing"),
        ("<delay>30000</delay>", "", "delay is missing"),
        ("<max-attempts>4<", "<max-attempts>0<", "'0' is not possible here. Give a whole number from 1"),
        ("<max-attempts>4<", "<max-attempts>-1<", "from 1"),
        ("<max-attempts>4<", "<max-attempts>four<", "from 1"),
        ("<delay>30000<", "<delay>-5<", "from 0"),
        ("<delay>30000<", "<delay>1e3<", "from 0"),
        ("-port>OrderFailed<", "-port>OrderFaild<", "Did you mean OrderFailed?"),
        ("<destination-type>Queue<", "<destination-type>Que<", "Did you mean Queue?"),
        ("<destination-type>Queue</destination-type>", "", "destination-type is missing"),
        ("acme/OrderDead", "acme/$", "a \\$ in the name"),
        ("patchbay:/acme/Orders", "A.>", "is no name"),
        ("<port-name>OrderFailed</port-name>", "", "a port without a name"),
        ("</patchbay>", "", "not XML"),
    ],
)
def test_what_is_wrong_is_reported_with_its_cure(old: str, new: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        reader.read(ORDERS.replace(old, new))


def test_a_port_that_leads_nowhere_is_refused() -> None:
    with pytest.raises(PolicyError, match="leads nowhere"):
        reader.read(FULFILLMENT.replace("output-destination", "output"))


def test_two_sinks_that_differ_about_one_topic_are_refused_and_two_that_agree_are_not() -> None:
    assert reader.read(f"<all>{FULFILLMENT}{FULFILLMENT}</all>").entries
    with pytest.raises(PolicyError, match="another redelivery of topic"):
        reader.read(f"<all>{FULFILLMENT}{FULFILLMENT.replace('60000', '1')}</all>")


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(PolicyError, match="3 problems"):
        reader.read(ORDERS.replace(">4<", ">0<").replace(">30000<", "><").replace("OrderDead", "$"))


def test_a_hundred_attempts_are_more_than_the_originals_table_can_count() -> None:
    text = ORDERS.replace(">4<", ">100<")
    assert reader.read(text).resolve("patchbay:/acme/Orders").dead_after == 100
    with pytest.raises(PolicyError, match="from 1 to 99"):
        reader.read(text, True)


def test_an_unknown_element_inside_redelivery_is_a_warning_and_elsewhere_it_is_passed_over() -> None:
    text = ORDERS.replace("<delay>", "<max-attempt>3</max-attempt><delay>").replace(
        "<patchbay>", "<patchbay><provider/>"
    )
    assert reader.read(text).warnings == ("line 6, column 37, <max-attempt>: passed over; did you mean max-attempts?",)


def test_its_own_text_is_given_back_as_it_was() -> None:
    assert writer.write(reader.read(ORDERS)).text == ORDERS


names = ["A", "B.<&>", "patchbay:/x"]
ends = st.sampled_from([("queue:D",), ("same:dead.$", "topic:<&>"), ("queue:lookup://$",)])
fixed = st.builds(
    lambda limit, delay, targets: reader.FOR_EVER.replace(dead_after=limit, backoff=delay / 1000, dead_letter=targets),
    st.integers(1, 99),
    st.integers(0, 100_000),
    ends,
)
keys = [*names, "queue:A", "topic:A", "topic:patchbay:/x"]
maps = st.builds(PolicyMap, st.dictionaries(st.sampled_from(keys), fixed), st.just(reader.FOR_EVER))


@given(maps)
def test_reading_what_was_written_gives_the_same_decisions(policies: PolicyMap) -> None:
    written = writer.write(policies)
    again = reader.read(written.text, True) if policies.entries else policies
    assert written.lost == ()
    assert again.warnings == ()
    for source in [Destination(name, kind) for name in names for kind in ("queue", "topic")]:
        before, after = (each.resolve(source.name, source.kind) for each in (policies, again))
        for failures in range(1, 101):
            assert _resolved(before, failures, source) == _resolved(after, failures, source)


def _resolved(policy: RedeliveryPolicy, failures: int, source: Destination) -> object:
    decision = policy.decide(failures)
    return [target.resolve(source) for target in decision.targets] if isinstance(decision, DeadLetter) else decision


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (RedeliveryPolicy(9, [1.0, 2.0], "D", expiry=reader.FOR_EVER.expiry), "one delay for all"),
        (RedeliveryPolicy(None, 1.0, None), "there are no delays"),
        (RedeliveryPolicy(100, 0.0, "D", expiry=reader.FOR_EVER.expiry), "at most 99"),
        (RedeliveryPolicy(9, 1.0, None, "discard"), "has to go somewhere"),
        (RedeliveryPolicy(9, 1.0, "D"), "what expires is dropped"),
        (RedeliveryPolicy(9, 1.0, "D", fatal=KeyError, expiry=reader.FOR_EVER.expiry), "rules by exception"),
        (RedeliveryPolicy(9, 0.0005, "D", expiry=reader.FOR_EVER.expiry), "fractions"),
    ],
)
def test_what_patch_bay_cannot_say_is_listed_and_the_nearest_written(policy: RedeliveryPolicy, said: str) -> None:
    written = writer.write(PolicyMap({"queue:A": policy}, reader.FOR_EVER))
    assert len(written.lost) == 1
    assert written.lost[0].startswith("queue:A: ")
    assert said in written.lost[0]
    assert reader.read(written.text, True).entries


def test_patterns_and_a_default_are_lost() -> None:
    written = writer.write(PolicyMap({"A.*": RedeliveryPolicy()}))
    assert [one.partition(":")[0] for one in written.lost] == ["A.*", "default"]


PIECES = [
    "<message-sink>",
    "</message-sink>",
    "<input-destination>",
    "</input-destination>",
    "<redelivery>",
    "</redelivery>",
    "<destination-name>A</destination-name>",
    "<destination-type>Topic</destination-type>",
    "<delay>1</delay>",
    "<max-attempts>3</max-attempts>",
    "<max-attempts/>",
    "<failure-output-port>P</failure-output-port>",
    "<redelivery-port>",
    "</redelivery-port>",
    "<port-name>P</port-name>",
    "<output-destination>",
    "</output-destination>",
    "<delay>x</delay>",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join), st.booleans())
def test_nothing_but_a_policy_error_comes_out(text: str, strict: bool) -> None:
    with contextlib.suppress(PolicyError):
        reader.read(f"<dynamo-message-system>{text}</dynamo-message-system>", strict)


def test_two_ports_of_one_name_that_lead_elsewhere_are_an_error() -> None:
    text = EXAMPLES["patchbay"]
    start, end = text.index("<redelivery-port>"), text.index("</redelivery-port>") + len("</redelivery-port>")
    port = text[start:end]
    assert reader.read(text.replace(port, port + port)).entries == reader.read(text).entries
    other = port.replace("</destination-name>", "2</destination-name>", 1)
    with pytest.raises(PolicyError, match=r"a second port .*\. Leave one out"):
        reader.read(text.replace(port, port + other))
