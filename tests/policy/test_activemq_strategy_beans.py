# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a dead-letter strategy of ActiveMQ that is written as a bean of Spring's, by its Java class."""

from __future__ import annotations

import pytest

from redeliver_mw.policy import DeadLetter, Discard, PolicyMap, load_policies

CLASS = "org.apache.activemq.broker.region.policy."


def broker(strategy: str) -> PolicyMap:
    return load_policies(
        f"""<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true">
    <plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>
      <redeliveryPolicy maximumRedeliveries="2"/></defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap>
    </redeliveryPlugin></plugins>
    <destinationPolicy><policyMap><policyEntries><policyEntry queue=">"><deadLetterStrategy>
      {strategy}
    </deadLetterStrategy></policyEntry></policyEntries></policyMap></destinationPolicy>
  </broker></beans>""",
        strict=True,
    )


def target(policies: PolicyMap) -> str:
    decision = policies.resolve("orders").decide(3)
    assert isinstance(decision, DeadLetter)
    return ", ".join(str(one.template) for one in decision.targets)


@pytest.mark.parametrize(
    "inside",
    [
        '<property name="queuePrefix" value="DEAD."/>',
        '<property name="queuePrefix"><value>DEAD.</value></property>',
    ],
)
def test_an_individual_strategy_that_is_a_bean(inside: str) -> None:
    policies = broker(f'<bean class="{CLASS}IndividualDeadLetterStrategy">{inside}</bean>')
    assert target(policies) == "DEAD.$"
    assert policies.warnings == ()


@pytest.mark.parametrize(
    "queue",
    [
        '<queue physicalName="GRAVE"/>',
        '<bean class="org.apache.activemq.command.ActiveMQQueue"><constructor-arg value="GRAVE"/></bean>',
        '<bean class="org.apache.activemq.command.ActiveMQQueue"><property name="physicalName" value="GRAVE"/></bean>',
    ],
)
def test_a_shared_strategy_that_is_a_bean(queue: str) -> None:
    bean = f'<bean class="{CLASS}SharedDeadLetterStrategy"><property name="deadLetterQueue">{queue}</property></bean>'
    assert target(broker(bean)) == "GRAVE"


def test_a_discarding_strategy_that_is_a_bean() -> None:
    policies = broker(f'<bean class="{CLASS}DiscardingDeadLetterStrategy"/>')
    assert isinstance(policies.resolve("orders").decide(3), Discard)


def test_a_bean_of_another_class_is_reported() -> None:
    policies = broker('<bean class="com.acme.OurStrategy"/>')
    assert [text for text in policies.warnings if "no strategy known here" in text]
