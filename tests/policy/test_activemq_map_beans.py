# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads maps of policies and the plug-in of ActiveMQ that are written as beans of Spring's or Blueprint's."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import PolicyMap, load_policies

MAP = "org.apache.activemq.broker.region.policy.RedeliveryPolicyMap"
POLICY = "org.apache.activemq.RedeliveryPolicy"
QUEUE = "org.apache.activemq.command.ActiveMQQueue"


def beans(*inside: str) -> PolicyMap:
    spring = "http://www.springframework.org/schema/beans"
    return load_policies(f'<beans xmlns="{spring}">{"".join(inside)}</beans>', strict=True)


def policy(limit: int, *more: str, id_: str = "") -> str:
    named = f' id="{id_}"' if id_ else ""
    own = f'<property name="maximumRedeliveries" value="{limit}"/>'
    return f'<bean class="{POLICY}"{named}>{own}{"".join(more)}</bean>'


ORDERS = '<property name="queue" value="orders"/>'
ENTRIES = '<property name="redeliveryPolicyEntries">{}</property>'
DEFAULT = '<property name="defaultEntry">{}</property>'


@pytest.mark.parametrize(
    "name",
    [
        ORDERS,
        '<property name="queue"><value>orders</value></property>',
        f'<property name="destination"><bean class="{QUEUE}"><constructor-arg value="orders"/></bean></property>',
    ],
)
@pytest.mark.parametrize("several", ["<list>{}</list>", "<set>{}</set>", "{}"])
def test_a_map_of_beans_is_read_as_the_elements_are(name: str, several: str) -> None:
    entries = ENTRIES.format(several.format(policy(3, name)))
    found = beans(f'<bean id="map" class="{MAP}">{entries}{DEFAULT.format(policy(9))}</bean>')
    assert [found.resolve(each).dead_after for each in ("orders", "other")] == [4, 10]


def test_beans_that_are_referred_to_stand_where_they_are_referred_to() -> None:
    entries = ENTRIES.format('<list><ref bean="three"/></list>')
    whole = f'<bean id="map" class="{MAP}">{entries}<property name="defaultEntry" ref="nine"/></bean>'
    found = beans(policy(9, id_="nine"), whole, policy(3, ORDERS, id_="three"))
    assert [found.resolve(each).dead_after for each in ("orders", "other")] == [4, 10]


def test_the_plugin_may_be_a_bean_and_refer_to_its_map() -> None:
    slow = '<property name="redeliveryDelay" value="2000"/>'
    entries = ENTRIES.format(f"<list>{policy(3, ORDERS, slow)}</list>")
    plugin = (
        '<bean class="org.apache.activemq.broker.util.RedeliveryPlugin">'
        '<property name="redeliveryPolicyMap" ref="map"/>'
        '<property name="sendToDlqIfMaxRetriesExceeded" value="false"/></bean>'
    )
    found = beans(f'<bean id="map" class="{MAP}">{entries}</bean>', plugin)
    one = found.resolve("orders")
    assert (one.dead_after, one.on_dead, one.act) == (4, "discard", "failure")


def test_a_bean_that_refers_to_itself_comes_to_an_end() -> None:
    entries = ENTRIES.format('<list><ref bean="map"/></list>')
    with pytest.raises(PolicyError):
        beans(f'<bean id="map" class="{MAP}">{entries}</bean>')


def test_a_misspelt_property_of_a_bean_in_a_map_is_reported() -> None:
    misspelt = '<property name="maximumRedelivries" value="5"/>'
    entries = ENTRIES.format(f"<list>{policy(3, ORDERS, misspelt)}</list>")
    with pytest.raises(PolicyError, match=r"maximumRedelivries.*maximumRedeliveries"):
        beans(f'<bean class="{MAP}">{entries}</bean>')
