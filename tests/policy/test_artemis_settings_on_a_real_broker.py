# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Loads settings that `convert --to artemis` wrote into a real Artemis: they apply to the queues that were meant.

The broker is asked by its management what it does with an address. Expected numbers are those of the source language:
ActiveMQ counts redeliveries, Artemis deliveries, so its number is one more; delays are milliseconds in all three.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats import WRITERS
from tests.brokers import broker

pytestmark = pytest.mark.broker

ACTIVEMQ = """<broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true"><plugins>
  <redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap>
    <redeliveryPolicyEntries>
      <redeliveryPolicy queue="orders" maximumRedeliveries="4" initialRedeliveryDelay="2000" redeliveryDelay="2000"/>
      <redeliveryPolicy queue="billing.&gt;" maximumRedeliveries="4" initialRedeliveryDelay="1500"
        redeliveryDelay="1500" useExponentialBackOff="true" backOffMultiplier="3" maximumRedeliveryDelay="9000"/>
    </redeliveryPolicyEntries>
    <defaultEntry>
      <redeliveryPolicy maximumRedeliveries="6" initialRedeliveryDelay="1000" redeliveryDelay="1000"/>
    </defaultEntry>
  </redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins></broker>"""
WEBLOGIC = """<weblogic-jms>
  <queue name="Orders"><delivery-params-overrides><redelivery-delay>3000</redelivery-delay></delivery-params-overrides>
    <delivery-failure-params><redelivery-limit>7</redelivery-limit>
      <expiration-policy>Redirect</expiration-policy><error-destination>OrdersErr</error-destination>
    </delivery-failure-params></queue>
  <queue name="OrdersErr"/>
</weblogic-jms>"""
CASES: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "activemq": (
        ACTIVEMQ,
        {
            "orders": {"maxDeliveryAttempts": 5, "redeliveryDelay": 2000},
            "billing.eu": {
                "maxDeliveryAttempts": 5,
                "redeliveryDelay": 1500,
                "redeliveryMultiplier": 3.0,
                "maxRedeliveryDelay": 9000,
            },
            "anything.else": {"maxDeliveryAttempts": 7, "redeliveryDelay": 1000},
        },
    ),
    "weblogic": (
        WEBLOGIC,
        {"Orders": {"maxDeliveryAttempts": 8, "redeliveryDelay": 3000, "deadLetterAddress": "OrdersErr"}},
    ),
    "jmsjca": (
        "1:1000; 5:move(queue:Dead)",
        {"some.queue": {"maxDeliveryAttempts": 5, "redeliveryDelay": 1000, "deadLetterAddress": "Dead"}},
    ),
}


@pytest.mark.parametrize("language", CASES)
def test_what_convert_writes_applies_to_the_queues_that_were_meant(language: str) -> None:
    source, expected = CASES[language]
    written = WRITERS["artemis"](load_policies(source, language=language)).text
    found = re.search(r"<address-settings>(.*)</address-settings>", written, re.DOTALL)
    assert found is not None
    with broker("artemis", version="2.44", address_settings=found[1]) as own:
        for address, settings in expected.items():
            told = json.loads(own.ctl("broker", "getAddressSettingsAsJSON", address))
            assert {name: told.get(name) for name in settings} == settings, address
