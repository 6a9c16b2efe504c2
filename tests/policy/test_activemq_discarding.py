# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests ActiveMQ's `discardingDLQBrokerPlugin`, and brokers in OSGi's Blueprint."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import PolicyMap, load_policies

ENTRIES = """<destinationPolicy><policyMap><policyEntries>
  <policyEntry queue="A.>"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DEAD."/></deadLetterStrategy>
  </policyEntry></policyEntries></policyMap></destinationPolicy>"""


def broker(plugins: str, entries: str = ENTRIES) -> str:
    return f"""<beans xmlns="http://www.springframework.org/schema/beans">
<broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true">
<plugins>{plugins}</plugins>
{entries}
</broker></beans>"""


def ends(policies: PolicyMap, name: str, kind: str = "queue") -> str:
    policy = policies.resolve(name, kind)
    return ", ".join(map(str, policy.targets)) or f"{policy.on_dead}, expired: {policy.expiry.action}"


DROPPED = "discard, expired: discard"


@pytest.mark.parametrize(
    "plugin",
    [
        "<discardingDLQBrokerPlugin/>",
        '<discardingDLQBrokerPlugin dropAll="true" dropTemporaryTopics="true" dropTemporaryQueues="true"/>',
        '<discardingDLQBrokerPlugin dropAll="false" dropOnly=".*" reportInterval="1000"/>',
        '<bean xmlns="http://www.springframework.org/schema/beans" id="d"'
        ' class="org.apache.activemq.plugin.DiscardingDLQBrokerPlugin"><property name="dropAll" value="true"/></bean>',
    ],
)
def test_what_drops_all_leaves_no_dead_letter_queue(plugin: str) -> None:
    read = load_policies(broker(plugin), strict=True)
    assert not read.warnings
    for name, kind in (("A.x", "queue"), ("other", "queue"), ("A.x", "topic")):
        assert ends(read, name, kind) == DROPPED
        assert read.resolve(name, kind).dead_after == 7  # a client's six redeliveries


def test_names_are_dropped_and_others_are_not() -> None:
    read = load_policies(
        broker('<discardingDLQBrokerPlugin dropAll="false" dropOnly="A.x  B\\.y C\\..*" reportInterval="0"/>'),
        strict=True,
    )
    assert not read.warnings
    assert [ends(read, name) for name in ("A.x", "B.y", "C.z", "C.z.z")] == [DROPPED] * 4
    assert ends(read, "A.x", "topic") == DROPPED
    assert ends(read, "A.y") == "queue:DEAD.$"
    assert [ends(read, name) for name in ("B", "C", "Cz")] == ["queue:ActiveMQ.DLQ"] * 3


def test_what_stands_inside_a_dropped_name_is_dropped_too() -> None:
    read = load_policies(broker('<discardingDLQBrokerPlugin dropAll="false" dropOnly="A..*"/>', ENTRIES))
    inner = ENTRIES.replace("A.>", "A.b.>")
    below = load_policies(broker('<discardingDLQBrokerPlugin dropAll="false" dropOnly="A..*"/>', inner))
    assert ends(read, "A.b.c") == ends(below, "A.b.c") == DROPPED
    assert ends(read, "A") == "queue:DEAD.$"
    assert ends(below, "A") == "queue:ActiveMQ.DLQ"


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ('dropAll="false" dropOnly="Q.[0-9]{3}"', "cannot be written here"),
        ('dropAll="false" dropOnly="A|B"', "cannot be written here"),
        ('dropAll="false" dropOnly="A.*.b"', "cannot be written here"),
        ('dropAll="false" dropOnly="A*"', "cannot be written here"),
        ('dropOnly="A"', "dropAll"),
        ('dropAll="false"', "drops nothing"),
        ('dropal="false"', "Did you mean dropAll?"),
        ('reprint="1"', "unknown property"),
    ],
)
def test_what_cannot_be_expressed_is_a_finding(attributes: str, told: str) -> None:
    text = broker(f"<discardingDLQBrokerPlugin {attributes}/>")
    assert any("line 3" in warning and told in warning for warning in load_policies(text).warnings)
    with pytest.raises(PolicyError):
        load_policies(text, strict=True)


def test_a_switch_that_is_neither_true_nor_false_is_an_error() -> None:
    with pytest.raises(PolicyError, match="possible"):
        load_policies(broker('<discardingDLQBrokerPlugin dropAll="yes"/>'))


def test_an_element_out_of_its_place_is_reported() -> None:
    text = broker("").replace("<plugins></plugins>", "<discardingDLQBrokerPlugin/>")
    assert any("it belongs in <plugins>" in warning for warning in load_policies(text).warnings)


REDELIVERY = """<redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
<defaultEntry><redeliveryPolicy maximumRedeliveries="2"/></defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap>
</redeliveryPlugin>"""


def test_beside_a_redelivery_plugin_the_order_counts() -> None:
    discarding = "<discardingDLQBrokerPlugin/>"
    above, below = load_policies(broker(discarding + REDELIVERY)), load_policies(broker(REDELIVERY + discarding))
    for read in (above, below):
        assert ends(read, "q") == DROPPED
        assert read.resolve("q").dead_after == 3
    assert not above.warnings
    assert "drops before" in below.warnings[0]


BLUEPRINT = f"""<?xml version="1.0" encoding="UTF-8"?>
<blueprint xmlns="http://www.osgi.org/xmlns/blueprint/v1.0.0"
    xmlns:cm="http://aries.apache.org/blueprint/xmlns/blueprint-cm/v1.0.0"
    xmlns:ext="http://aries.apache.org/blueprint/xmlns/blueprint-ext/v1.0.0"
    xmlns:amq="http://activemq.apache.org/schema/core">
  <ext:property-placeholder/>
  <cm:property-placeholder persistent-id="org.apache.activemq.webconsole"/>
  <type-converters/>
  <reference id="tm" interface="javax.transaction.TransactionManager"/>
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="default" useShutdownHook="false"
      schedulerSupport="true">
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry topic=">" producerFlowControl="true"/>
      <policyEntry queue=">"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix="DLQ."/></deadLetterStrategy>
      </policyEntry></policyEntries></policyMap></destinationPolicy>
    <plugins>{REDELIVERY}</plugins>
    <managementContext><managementContext createConnector="false"/></managementContext>
    <transportConnectors><transportConnector name="openwire" uri="tcp://localhost:61616"/></transportConnectors>
  </broker>
  <bean id="activemqConnectionFactory" class="org.apache.activemq.ActiveMQConnectionFactory">
    <argument value="tcp://localhost:61616"/><property name="userName" value="u"/>
  </bean>
  <service ref="activemqConnectionFactory" interface="javax.jms.ConnectionFactory">
    <service-properties><entry key="name" value="localhost"/></service-properties>
  </service>
</blueprint>"""


def test_a_broker_in_blueprint_is_read_as_one_in_beans() -> None:
    read = load_policies(BLUEPRINT, strict=True)
    assert not read.warnings
    assert read.language == "activemq"
    assert (read.resolve("q").dead_after, ends(read, "q")) == (3, "queue:DLQ.$")


def test_a_mistake_in_blueprint_is_found() -> None:
    for right, wrong in (("redeliveryPlugin", "redelivryPlugin"), ("policyEntries", "policyEntrys")):
        with pytest.raises(PolicyError, match=f"Did you mean {right}"):
            load_policies(BLUEPRINT.replace(right, wrong), strict=True)


def test_a_blueprint_without_a_policy_is_refused() -> None:
    with pytest.raises(PolicyError):
        load_policies('<blueprint xmlns="http://www.osgi.org/xmlns/blueprint/v1.0.0"><bean class="x.Y"/></blueprint>')


@pytest.mark.parametrize(
    "namespace", ["http://camel.apache.org/schema/blueprint", "http://activemq.apache.org/camel/schema/spring"]
)
def test_a_policy_of_camels_beside_a_broker_in_blueprint_is_not_read(namespace: str) -> None:
    handler = '<onException><redeliveryPolicy maximumRedeliveries="77"/></onException>'
    camel = f'<camelContext xmlns="{namespace}"><route>{handler}</route></camelContext>'
    read = load_policies(BLUEPRINT.replace("</blueprint>", f"{camel}</blueprint>"), strict=True)
    assert not read.warnings
    assert read.entries == load_policies(BLUEPRINT).entries
