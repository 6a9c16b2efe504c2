# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the minimal examples of the manuals' pages, one for each system."""

EXAMPLES = {
    "jmsjca": "tcp://broker:61613?JMSJCA.redeliveryhandling=2:500; 4:2000; 6:move(same:$.dead)",
    "activemq": """<broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true">
  <plugins><redeliveryPlugin sendToDlqIfMaxRetriesExceeded="true" fallbackToDeadLetter="true">
    <redeliveryPolicyMap><redeliveryPolicyMap>
      <redeliveryPolicyEntries>
        <redeliveryPolicy queue="BILLING.&gt;"
                          maximumRedeliveries="2" initialRedeliveryDelay="1500" redeliveryDelay="4000"/>
      </redeliveryPolicyEntries>
      <defaultEntry><redeliveryPolicy maximumRedeliveries="5"/></defaultEntry>
    </redeliveryPolicyMap></redeliveryPolicyMap>
  </redeliveryPlugin></plugins>
  <destinationPolicy><policyMap><policyEntries><policyEntry queue="BILLING.&gt;">
    <deadLetterStrategy>
      <individualDeadLetterStrategy queuePrefix="DEAD." processExpired="false" processNonPersistent="true"/>
    </deadLetterStrategy>
  </policyEntry></policyEntries></policyMap></destinationPolicy>
</broker>""",
    "patchbay": """<dynamo-message-system><patchbay><message-sink>
  <nucleus-name>/acme/OrderSink</nucleus-name>
  <input-port><input-destination>
    <destination-name>patchbay:/acme/Orders</destination-name><destination-type>Queue</destination-type>
    <redelivery>
      <max-attempts>4</max-attempts><delay>30000</delay><failure-output-port>OrderFailed</failure-output-port>
    </redelivery>
  </input-destination></input-port>
  <redelivery-port><port-name>OrderFailed</port-name>
    <output-destination>
      <destination-name>patchbay:/acme/OrderAlarm</destination-name><destination-type>Queue</destination-type>
    </output-destination>
    <output-destination>
      <destination-name>patchbay:/acme/OrderDead</destination-name><destination-type>Queue</destination-type>
    </output-destination>
  </redelivery-port>
</message-sink></patchbay></dynamo-message-system>""",
    "weblogic": """<weblogic-jms xmlns="http://xmlns.oracle.com/weblogic/weblogic-jms">
  <template name="Slow">
    <delivery-params-overrides><redelivery-delay>7000</redelivery-delay></delivery-params-overrides>
    <delivery-failure-params><redelivery-limit>2</redelivery-limit></delivery-failure-params>
  </template>
  <queue name="Work"><sub-deployment-name>srv1</sub-deployment-name><template>Slow</template>
    <delivery-failure-params>
      <error-destination>WorkErr</error-destination><expiration-policy>Redirect</expiration-policy>
    </delivery-failure-params>
  </queue>
  <queue name="WorkErr"><sub-deployment-name>srv1</sub-deployment-name></queue>
</weblogic-jms>""",
    "artemis": """<address-settings>
  <address-setting match="#">
    <dead-letter-address>DLA</dead-letter-address><max-delivery-attempts>5</max-delivery-attempts>
  </address-setting>
  <address-setting match="shop.orders.#">
    <redelivery-delay>2000</redelivery-delay><redelivery-delay-multiplier>3</redelivery-delay-multiplier>
    <max-redelivery-delay>9000</max-redelivery-delay>
  </address-setting>
  <address-setting match="shop.orders.vip"><max-delivery-attempts>-1</max-delivery-attempts></address-setting>
</address-settings>""",
    "native": """syntax = "artemis"
match = "merge"
[default]
backoff = { initial = 1, multiplier = 2, cap = 60 }
[destinations."orders.#"]
dead_after = 4
[destinations."orders.*.rush"]
backoff = 1
""",
}
