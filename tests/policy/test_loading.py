# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests load_policies: text, URL or file, told apart by content; one error with place and cure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.policy import PolicyMap, RedeliveryPolicy, load_policies
from redeliver_mw.policy.formats import READERS
from redeliver_mw.policy.loading import detect

TEXT = "3:1000; 6:5000; 8:move(queue:dlq.$)"


def test_a_text_is_the_policy_of_every_destination() -> None:
    policies = load_policies(TEXT)
    assert isinstance(policies, PolicyMap)
    assert policies.resolve("orders") == policies.resolve("prices", kind="topic") == RedeliveryPolicy.parse(TEXT)


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_file_may_end_its_line_and_begin_with_a_mark(tmp_path: Path, ending: str, bom: str) -> None:
    file = tmp_path / "orders.policy"
    file.write_bytes((bom + TEXT + ending).encode())
    assert load_policies(file).resolve("orders").text == TEXT


def test_an_error_in_a_file_names_file_element_and_cure(tmp_path: Path) -> None:
    file = tmp_path / "orders.policy"
    file.write_text("3:1000; 6:soon")
    with pytest.raises(PolicyError) as caught:
        load_policies(file)
    assert str(file) in str(caught.value)
    assert "element 2" in str(caught.value)
    assert caught.value.cure


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="no such file") as caught:
        load_policies(tmp_path / "nothing.txt")
    assert caught.value.where == str(tmp_path / "nothing.txt")
    assert caught.value.cure


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="it is a directory") as caught:
        load_policies(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert caught.value.cure


def test_a_file_that_is_not_utf8_says_where(tmp_path: Path) -> None:
    file = tmp_path / "orders.policy"
    file.write_bytes(b"3:move(queue:\xe9)")
    with pytest.raises(PolicyError, match="not UTF-8, at byte 13"):
        load_policies(file)


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "UTF-8", "utf-8"])
def test_an_xml_file_may_say_in_which_encoding_it_is(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "broker.xml"
    setting = '<address-setting match="#"><dead-letter-address>t\u00f6t</dead-letter-address></address-setting>'
    file.write_bytes(f"<?xml version='1.0' encoding='{encoding}'?>\r\n{setting}".encode(encoding))
    assert str(load_policies(file).resolve("x").targets[0]) == "queue:t\u00f6t"


def test_a_file_in_utf_16_is_read_by_its_mark(tmp_path: Path) -> None:
    file = tmp_path / "broker.xml"
    file.write_bytes('<address-setting match="\u00e9"/>'.encode("utf-16"))
    assert load_policies(file).entries[0].pattern == "\u00e9"


def test_a_file_without_an_end_is_not_read_to_it() -> None:
    with pytest.raises(PolicyError, match="it is a device"):
        load_policies(Path("/dev/zero"))


def test_an_encoding_that_is_not_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "broker.xml"
    file.write_bytes(b'<?xml version="1.0" encoding="UTF-7"?><address-settings/>')
    with pytest.raises(PolicyError, match="it is in UTF-7") as caught:
        load_policies(file)
    assert caught.value.where == str(file)
    assert caught.value.cure


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("3:1000; 6:5000", "jmsjca"),
        ("tcp://h:61616?jms.redeliveryPolicy.maximumRedeliveries=4", "activemq"),
        ('<broker xmlns="http://activemq.apache.org/schema/core"/>', "activemq"),
        ('<?xml version="1.0"?>\n<weblogic-jms xmlns="x"></weblogic-jms>', "weblogic"),
        ("<address-settings></address-settings>", "artemis"),
        ('<address-setting match="#"/>', "artemis"),
        ('<core xmlns="urn:activemq:core"/>', "artemis"),
        ("<dynamo-message-system/>", "patchbay"),
        ("[tool.redeliver]\ndead_after = 3", "native"),
        ("dead_after = 3\n", "native"),
    ],
)
def test_the_language_is_told_by_content(text: str, language: str) -> None:
    assert detect(text) == language


def test_a_language_that_is_not_built_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(READERS, "artemis")
    with pytest.raises(ConfigError, match="artemis is not built yet") as caught:
        load_policies("<address-settings/>")
    assert "jmsjca" in caught.value.cure


def test_a_language_that_nobody_knows_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="'cobol'") as caught:
        load_policies(TEXT, "cobol")
    assert "jmsjca" in caught.value.cure


SETTING = '<address-setting match="#"><dead-letter-address>D</dead-letter-address></address-setting>'


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (f"<!-- see <beans> and <weblogic-jms> -->{SETTING}", "artemis"),
        (f"<?xml version='1.0'?>\n<!-- <broker/> -->\n<!-- 2 -->{SETTING}", "artemis"),
        (f"\ufeff\n{SETTING}", "artemis"),
        (
            "<weblogic-jms><notes>tcp://h?jms.redeliveryPolicy.maximumRedeliveries=4</notes></weblogic-jms>",
            "weblogic",
        ),
        (
            "<weblogic-jms><notes>tcp://h?JMSJCA.redeliveryhandling=3:1000</notes></weblogic-jms>",
            "weblogic",
        ),
        ("<weblogic-jms><notes><![CDATA[<beans>]]></notes></weblogic-jms>", "weblogic"),
        ('<c:configuration xmlns:c="urn:activemq"/>', "artemis"),
        ('<configuration xmlns="urn:hornetq"/>', "artemis"),
        ("<configuration><core/></configuration>", "artemis"),
        ("<configuration><adress-settings/></configuration>", "artemis"),
        ("<deployment><address-settings/></deployment>", "artemis"),
        ('<beans xmlns="http://www.springframework.org/schema/beans"/>', "activemq"),
        ('<a:broker xmlns:a="http://activemq.apache.org/schema/core"/>', "activemq"),
        ('<template name="T"><delivery-failure-params/></template>', "weblogic"),
        ('<queue name="Q"><delivery-failure-param/></queue>', "weblogic"),
        ('<server xmlns="urn:jboss:domain:20.0"/>', "artemis"),
        ("<redeliveryPolicy/>", "activemq"),
        ("<redelivery/>", "patchbay"),
        ("<delivery-failure-params/>", "weblogic"),
    ],
)
def test_the_language_of_xml_is_told_by_its_root(text: str, language: str) -> None:
    assert detect(text) == language


@pytest.mark.parametrize(
    "text",
    [
        "<html><body/></html>",
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><!-- <beans> --></project>',
        "<configuration><appender name='a'/><root level='info'/></configuration>",
        "<configuration/>",
        '<configuration xmlns="urn:other"><appender/></configuration>',
        '<beans xmlns="http://xmlns.jcp.org/xml/ns/javaee"/>',
        "<project><description>tcp://h?jms.redeliveryPolicy.maximumRedeliveries=4</description></project>",
        "<queue name='Q'/>",
        "<server><Service/></server>",
        "<domain xmlns='http://xmlns.oracle.com/weblogic/domain'/>",
    ],
)
def test_xml_of_nobody_is_refused_with_the_roots_that_are_read(text: str) -> None:
    with pytest.raises(PolicyError, match="no policy of a known system") as caught:
        load_policies(text)
    assert "line 1, column 1" in caught.value.where
    for root in ("broker", "address-settings", "weblogic-jms", "patchbay"):
        assert root in caught.value.cure


def test_a_misspelt_root_says_its_name() -> None:
    with pytest.raises(PolicyError, match="Did you mean <address-settings>"):
        load_policies(f"<adress-settings>{SETTING}</adress-settings>")
    found = load_policies(f"<adress-settings>{SETTING}</adress-settings>", "artemis")
    assert "<adress-settings>: passed over; did you mean address-settings?" in found.warnings[0]


@pytest.mark.parametrize("text", ["policies.toml", "/etc/redeliver/orders.xml", "./orders", "conf/orders.policy"])
def test_a_text_that_looks_like_a_path_is_told_from_a_policy(text: str) -> None:
    with pytest.raises(PolicyError, match="looks like a file"):
        load_policies(text)


def test_parse_refuses_what_is_several_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    several = PolicyMap({"orders": RedeliveryPolicy(3)})
    monkeypatch.setitem(READERS, "jmsjca", lambda text, strict: several)
    assert load_policies(TEXT).resolve("orders").dead_after == 3
    with pytest.raises(ConfigError, match="load_policies"):
        RedeliveryPolicy.parse(TEXT)


@pytest.mark.parametrize("language", sorted(READERS))
def test_half_a_character_is_refused_in_every_language(language: str) -> None:
    with pytest.raises(PolicyError, match="line 2: half a character") as caught:
        load_policies("3:1000; 8:move(queue:dlq)\n<a b='\ud83d'/>", language)
    str(caught.value).encode()


@pytest.mark.parametrize("given", [5, None, b"3:1000", {}, {"a": RedeliveryPolicy()}])
def test_what_is_neither_a_text_nor_a_file_is_refused(given: Any) -> None:
    with pytest.raises(PolicyError, match="no policy text and no file") as refused:
        load_policies(given)
    assert "Path" in refused.value.cure
