# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests Artemis' `broker.properties`: the address settings in Java's syntax, and what is told of mistakes in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats.artemis.properties import _OURS
from redeliver_mw.policy.formats.java_properties import Property, properties_of

# in the shape of those that operators give to brokers
REAL = """# address settings of the shop
acceptorConfigurations.amqps.factoryClassName=org.apache.activemq.artemis.core.remoting.impl.netty.NettyAcceptorFactory
acceptorConfigurations.amqps.params.port=5671
addressConfigurations.usa-news.routingTypes=MULTICAST
addressConfigurations.usa-news.queueConfigs.usa-news.address=usa-news
securityRoles."messages.ALL.#".consumer.consume=true
criticalAnalyzer=false
addressSettings.#.deadLetterAddress=DLA
addressSettings.#.autoDeleteAddressesDelay=0
addressSettings."shop.#".maxDeliveryAttempts=4
addressSettings."shop.#".redeliveryDelay=2000
addressSettings."shop.#".redeliveryMultiplier=3
addressSettings."shop.#".maxRedeliveryDelay=9000
addressSettings."shop.vip".maxDeliveryAttempts=-1
"""
XML = """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"><address-settings>
<address-setting match="#"><dead-letter-address>DLA</dead-letter-address></address-setting>
<address-setting match="shop.#"><max-delivery-attempts>4</max-delivery-attempts>
<redelivery-delay>2000</redelivery-delay><redelivery-delay-multiplier>3</redelivery-delay-multiplier>
<max-redelivery-delay>9000</max-redelivery-delay></address-setting>
<address-setting match="shop.vip"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
</address-settings></core></configuration>"""


def test_the_properties_say_what_the_xml_says() -> None:
    read, same = load_policies(REAL), load_policies(XML)
    assert read.language == "artemis"
    for name in ("shop.orders", "shop.vip", "other"):
        assert read.resolve(name) == same.resolve(name)
    policy = read.resolve("shop.orders")
    assert [policy.backoff.span(failures).base for failures in (1, 2, 3)] == [2, 6, 9]
    assert policy.dead_after == 4
    assert not [warning for warning in read.warnings if warning.startswith("line")]


@pytest.mark.parametrize("head", ["addressSettings", "addressesSettings"])
def test_both_spellings_of_the_container_are_read(head: str) -> None:
    assert load_policies(f"{head}.orders.maxDeliveryAttempts=5").resolve("orders").dead_after == 5


def test_java_syntax() -> None:
    text = "# c\n  ! c\n\na=1\nb : 2\n c 3\nd\\ e\\:f\\=g=\\u0041\\t\\\\x\nlong = one, \\\n    two\\\\\nalone\nk==v\n"
    assert [(one.key, one.value) for one in properties_of(text)] == [
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("d e:f=g", "A\t\\x"),
        ("long", "one, two\\"),
        ("alone", ""),
        ("k", "=v"),
    ]
    assert properties_of("x=1\n\n#c\\\ny=\\\n\\\n2\\")[1] == Property("y", "2", 4)
    assert properties_of("x=\\ud83d\\ude00")[0].value == "\U0001f600"


@pytest.mark.parametrize("text", ["a=1\nb=\\u12", "a=1\nb\\uXYZW=1", "a=1\nb=\\ud83d"])
def test_a_broken_escape_names_its_line(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        properties_of(text)
    assert caught.value.where == "line 2"
    assert caught.value.cure


def test_blanks_escapes_and_other_quotes_in_a_name() -> None:
    read = load_policies(
        "key.surround=$$\naddressSettings.$$a.b$$.maxDeliveryAttempts=2\naddressSettings.c\\ d.maxDeliveryAttempts=3\n"
    )
    assert (read.resolve("a.b").dead_after, read.resolve("c d").dead_after) == (2, 3)


@pytest.mark.parametrize("name", sorted(_OURS))
def test_a_misspelt_field_is_found_with_its_name(name: str) -> None:
    for wrong in {name[:-2] + name[-1], name[0] + name[2:], name + "s", _OURS[name]} - {name}:
        text = f"addressSettings.a.maxDeliveryAttempts=3\naddressSettings.a.{wrong}=1\n"
        (told,) = [warning for warning in load_policies(text).warnings if warning.startswith("line 2, ")]
        assert f"did you mean {name}?" in told
        with pytest.raises(PolicyError, match=f"Did you mean {name}"):
            load_policies(text, strict=True)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("adressSettings.b.redeliveryDelay=5", "did you mean addressSettings?"),
        ("addressSetting.b.redeliveryDelay=5", "did you mean addressSettings?"),
        ("addressSettings.b.c.redeliveryDelay=5", 'addressSettings."b.c".redeliveryDelay'),
        ('addressSettings."b.c.redeliveryDelay=5', 'write addressSettings."NAME".FIELD=VALUE'),
        ("addressSettings.b=5", 'write addressSettings."NAME".FIELD=VALUE'),
        ("addressSettings.b=-", "broker.xml"),
        ("addressSettings.a.maxDeliveryAttempts=4", "twice"),
        ("addressSettings.b.deadLetterAddress=DLA ", "blank"),
    ],
)
def test_what_is_no_setting_is_a_finding(line: str, told: str) -> None:
    text = f"addressSettings.a.maxDeliveryAttempts=3\n{line}\n"
    assert any(warning.startswith("line 2, ") and told in warning for warning in load_policies(text).warnings)
    with pytest.raises(PolicyError):
        load_policies(text, strict=True)


def test_of_a_key_that_stands_there_twice_the_later_counts() -> None:
    text = "addressSettings.a.maxDeliveryAttempts=3\naddressesSettings.a.maxDeliveryAttempts=5\n"
    assert load_policies(text).resolve("a").dead_after == 5


@pytest.mark.parametrize("value", ["5s", "1.5", "", "${DELAY}", "99999999999999999999"])
def test_a_value_that_is_no_number_is_refused_with_its_line(value: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policies(f"name=b\naddressSettings.a.redeliveryDelay={value}")
    assert caught.value.where == "line 2, addressSettings.a.redeliveryDelay"


@pytest.mark.parametrize("text", ["", "name=b\n", "# addressSettings.a.redeliveryDelay=5\n", "acceptors.x=1"])
def test_a_file_without_an_address_setting_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broker.properties"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(PolicyError, match=re.escape(str(path))):
        load_policies(path)


def test_a_file_by_its_content_or_its_name(tmp_path: Path) -> None:
    for name in ("broker.properties", "BROKER_XML_ADDRESS_SETTINGS.txt"):
        path = tmp_path / name
        path.write_bytes(REAL.replace("\n", "\r\n").encode())
        assert load_policies(path).resolve("shop.orders").dead_after == 4
    url = tmp_path / "spring.properties"
    url.write_text("tcp://h:61616?jms.redeliveryPolicy.maximumRedeliveries=4", encoding="utf-8")
    assert load_policies(url).language == "activemq"
