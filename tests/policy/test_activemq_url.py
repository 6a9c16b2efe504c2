# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests mistakes in a connection URL of ActiveMQ: each one is told, and none drops an option in silence."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import PolicyMap, load_policies
from redeliver_mw.policy.formats.activemq.reader import read

OPTION = "jms.redeliveryPolicy."
PLAIN = f"tcp://me:secret@h:1?{OPTION}maximumRedeliveries=4&{OPTION}redeliveryDelay=70&{OPTION}initialRedeliveryDelay=9"


@pytest.mark.parametrize("ampersand", ["&amp;", "&AMP;", "&#38;", "&#x26;", "&amp;amp;"])
def test_an_ampersand_as_xml_has_it_is_read_as_one_and_is_a_finding(ampersand: str) -> None:
    text = PLAIN.replace("&", ampersand)
    found = read(text)
    assert found == read(PLAIN)
    assert found.native == read(PLAIN).native
    assert [warning for warning in found.warnings if "is read as &" in warning]
    with pytest.raises(PolicyError, match="Write & there"):
        read(text, True)


def test_only_some_of_the_ampersands_may_be_escaped() -> None:
    assert read(PLAIN.replace("&", "&amp;", 1)) == read(PLAIN)


def test_a_plain_url_draws_no_finding() -> None:
    assert read(PLAIN, True).warnings == ()


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("jms.RedeliveryPolicy.maximumRedeliveries", "jms.redeliveryPolicy.maximumRedeliveries"),
        ("JMS.redeliveryPolicy.maximumRedeliveries", "jms.redeliveryPolicy.maximumRedeliveries"),
        ("jms.redeliverPolicy.maximumRedelivery", "jms.redeliveryPolicy.maximumRedeliveries"),
        ("jms.redeliveryPolicy", "jms.redeliveryPolicy.maximumRedeliveries"),
        ("jms.nonblockingRedelivery", "jms.nonBlockingRedelivery"),
    ],
)
def test_the_error_for_an_option_that_is_nearly_one_names_its_spelling(option: str, meant: str) -> None:
    with pytest.raises(PolicyError) as raised:
        read(f"tcp://me:secret@h:1?{option}=4")
    assert raised.value.cure == f"Write {meant}"
    assert "secret" not in str(raised.value)
    beside = read(f"{PLAIN}&{option}=4")
    assert [warning for warning in beside.warnings if warning == f"{option} is not read: it is spelled {meant}"]


@pytest.mark.parametrize("url", ["tcp://h:1?{}", "failover:(tcp://a:1,tcp://b:1)?{}"])
def test_the_language_of_a_url_with_a_misspelt_option_is_known(url: str) -> None:
    with pytest.raises(PolicyError) as raised:
        load_policies(url.format("jms.RedeliveryPolicy.maximumRedeliveries=4"))
    assert raised.value.cure == "Write jms.redeliveryPolicy.maximumRedeliveries"


def test_an_option_of_another_policy_of_activemq_is_not_taken_for_a_misspelt_one() -> None:
    assert not read(f"{PLAIN}&jms.prefetchPolicy.all=4").warnings
    with pytest.raises(PolicyError, match="this URL carries no policy"):
        load_policies("tcp://h:1?jms.prefetchPolicy.all=4")


def test_the_error_for_a_url_without_any_such_option_names_what_to_add() -> None:
    with pytest.raises(PolicyError, match=r"Add \?jms\.redeliveryPolicy\.maximumRedeliveries=4"):
        read("tcp://h:1?wireFormat.maxInactivityDuration=0&jms.useAsyncSend=true")


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("5s", 5000), ("250ms", 250), ("250 MS", 250), ("2m", 120_000), ("1h", 3_600_000)]
)
def test_the_error_for_a_delay_with_a_unit_names_its_milliseconds(text: str, milliseconds: int) -> None:
    with pytest.raises(PolicyError, match=f"Write {milliseconds}: a delay is a whole number of milliseconds"):
        read(f"tcp://h:1?{OPTION}redeliveryDelay={text}")


def test_the_error_for_a_delay_that_is_no_number_names_the_unit() -> None:
    with pytest.raises(PolicyError, match="a whole number of milliseconds from"):
        read(f"tcp://h:1?{OPTION}redeliveryDelay=soon")
    with pytest.raises(PolicyError, match="a whole number from"):
        read(f"tcp://h:1?{OPTION}maximumRedeliveries=5s")


def test_two_findings_do_not_hide_each_other() -> None:
    found: PolicyMap = read(f"{PLAIN}&amp;jms.RedeliveryPolicy.redeliveryDelay=4")
    assert len(found.warnings) == 2


@pytest.mark.parametrize(
    "url",
    [
        "tcp://h:61616#jms.redeliveryPolicy.maximumRedeliveries=4",
        "tcp://h:61616;jms.redeliveryPolicy.maximumRedeliveries=4",
        "failover:(tcp://a,tcp://b)?nested.jms.redeliveryPolicy.maximumRedeliveries=4",
    ],
)
def test_a_url_whose_policy_is_no_option_of_it_is_an_error(url: str) -> None:
    with pytest.raises(PolicyError, match="is not among the options of this URL") as raised:
        read(url)
    assert "behind the first ?" in raised.value.cure


def test_an_option_with_something_before_it_is_a_warning_beside_others() -> None:
    options = "nested.jms.redeliveryPolicy.redeliveryDelay=5&jms.redeliveryPolicy.maximumRedeliveries=4"
    policies = read(f"failover:(tcp://a,tcp://b)?{options}")
    assert policies.default.dead_after == 5
    assert "nested.jms.redeliveryPolicy.redeliveryDelay is not read" in policies.warnings[0]
    with pytest.raises(PolicyError, match=r"Write jms\.redeliveryPolicy\.redeliveryDelay"):
        read(f"failover:(tcp://a,tcp://b)?{options}", True)


@pytest.mark.parametrize("on", ["", "&jms.redeliveryPolicy.useCollisionAvoidance=true"])
def test_jitter_that_is_not_switched_on_is_a_warning(on: str) -> None:
    warnings = read(f"tcp://h?jms.redeliveryPolicy.collisionAvoidancePercent=20{on}").warnings
    assert any("collisionAvoidancePercent without useCollisionAvoidance" in line for line in warnings) == (not on)
