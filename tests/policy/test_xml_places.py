# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""No mistake in an XML policy is silent: every element of each language misspelt, too high and too low."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies
from redeliver_mw.policy.formats import xml
from redeliver_mw.policy.formats.activemq.schema import SCHEMA as ACTIVEMQ
from redeliver_mw.policy.formats.artemis.schema import ARTEMIS
from redeliver_mw.policy.formats.patchbay.schema import SCHEMA as PATCHBAY
from redeliver_mw.policy.formats.schema import MOST_FINDINGS, XmlSchema
from redeliver_mw.policy.formats.weblogic.schema import SCHEMA as WEBLOGIC
from redeliver_mw.policy.formats.xml import Element
from tests.policy.examples import EXAMPLES

SCHEMAS: dict[str, XmlSchema] = {"activemq": ACTIVEMQ, "artemis": ARTEMIS, "patchbay": PATCHBAY, "weblogic": WEBLOGIC}

# every element that bears a policy, each in its place; nothing here is a finding
WHOLE = {
    "activemq": """<beans xmlns="http://www.springframework.org/schema/beans"
  xmlns:amq="http://activemq.apache.org/schema/core">
  <broker xmlns="http://activemq.apache.org/schema/core" schedulerSupport="true">
    <persistenceAdapter><kahaDB directory="d"/></persistenceAdapter>
    <plugins><discardingDLQBrokerPlugin dropAll="false" dropOnly="D"/><redeliveryPlugin>
      <redeliveryPolicyMap><redeliveryPolicyMap>
        <redeliveryPolicyEntries><redeliveryPolicy queue="A" maximumRedeliveries="2"/></redeliveryPolicyEntries>
        <defaultEntry><redeliveryPolicy maximumRedeliveries="5"/></defaultEntry>
      </redeliveryPolicyMap></redeliveryPolicyMap>
    </redeliveryPlugin><statisticsBrokerPlugin/></plugins>
    <destinationPolicy><policyMap><policyEntries>
      <policyEntry queue="A"><pendingMessageLimitStrategy/><deadLetterStrategy>
        <individualDeadLetterStrategy queuePrefix="DEAD."/>
      </deadLetterStrategy></policyEntry>
      <policyEntry queue="B"><pendingMessageLimitStrategy/><deadLetterStrategy>
        <sharedDeadLetterStrategy><deadLetterQueue><queue physicalName="D"/></deadLetterQueue>
        </sharedDeadLetterStrategy>
      </deadLetterStrategy></policyEntry>
      <policyEntry queue="C"><pendingMessageLimitStrategy/><deadLetterStrategy>
        <discarding/>
      </deadLetterStrategy></policyEntry>
    </policyEntries></policyMap></destinationPolicy>
  </broker>
</beans>""",
    "patchbay": EXAMPLES["patchbay"],
    "weblogic": """<weblogic-jms xmlns="http://xmlns.oracle.com/weblogic/weblogic-jms">
  <quota name="q"><policy>FIFO</policy></quota>
  <template name="T"><quota>q</quota>
    <delivery-params-overrides><delivery-mode>Persistent</delivery-mode><priority>3</priority>
      <redelivery-delay>7</redelivery-delay></delivery-params-overrides>
    <delivery-failure-params>
      <redelivery-limit>2</redelivery-limit><expiration-policy>Log</expiration-policy>
      <expiration-logging-policy>%header%</expiration-logging-policy>
    </delivery-failure-params>
    <group-params sub-deployment-name="s"><error-destination>E</error-destination></group-params>
  </template>
  <connection-factory name="F"><jndi-name>f</jndi-name><default-delivery-params>
    <default-redelivery-delay>500</default-redelivery-delay></default-delivery-params></connection-factory>
  <queue name="E"><sub-deployment-name>s</sub-deployment-name></queue>
  <queue name="Q"><sub-deployment-name>s</sub-deployment-name><quota>q</quota><template>T</template>
    <delivery-params-overrides><time-to-live>9</time-to-live></delivery-params-overrides>
    <delivery-failure-params><error-destination>E</error-destination></delivery-failure-params></queue>
  <uniform-distributed-queue name="U"><jndi-name>u</jndi-name><template>T</template></uniform-distributed-queue>
  <uniform-distributed-topic name="V"><jndi-name>v</jndi-name><template>T</template></uniform-distributed-topic>
</weblogic-jms>""",
    "artemis": """<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>b</name>
  <persist-delivery-count-before-delivery>false</persist-delivery-count-before-delivery>
  <address-settings>
    <address-setting match="#">
      <auto-delete-queues>false</auto-delete-queues><max-size-bytes>-1</max-size-bytes>
      <redelivery-delay>2000</redelivery-delay><redelivery-delay-multiplier>3</redelivery-delay-multiplier>
      <redelivery-collision-avoidance-factor>0.5</redelivery-collision-avoidance-factor>
      <max-redelivery-delay>9000</max-redelivery-delay><max-delivery-attempts>5</max-delivery-attempts>
      <dead-letter-address>DLA</dead-letter-address><expiry-address>EXP</expiry-address>
      <auto-create-dead-letter-resources>true</auto-create-dead-letter-resources>
      <auto-create-expiry-resources>true</auto-create-expiry-resources>
      <dead-letter-queue-prefix>a.</dead-letter-queue-prefix><dead-letter-queue-suffix>.b</dead-letter-queue-suffix>
      <expiry-queue-prefix>c.</expiry-queue-prefix><expiry-queue-suffix>.d</expiry-queue-suffix>
    </address-setting>
  </address-settings>
</core></configuration>""",
}


def told(text: str, language: str | None = None, *, strict: bool = False) -> str:
    """Return all that is said of a text: its warnings or the error."""
    try:
        return "\n".join(load_policies(text, language, strict=strict).warnings)
    except PolicyError as error:
        return str(error)


def written(element: Element, around: str = "") -> str:
    """Return the element as text again."""
    namespace = f" xmlns={quoteattr(element.namespace)}" if element.namespace != around else ""
    attributes = "".join(f" {name}={quoteattr(value)}" for name, value in element.attributes.items())
    inner = "".join(written(child, element.namespace) for child in element.children)
    return f"<{element.name}{namespace}{attributes}>{element.text}{inner}</{element.name}>"


def bearing(language: str) -> Iterator[tuple[int, Element, Element, Element | None, XmlSchema]]:
    """Yield every element that bears a policy: its number, the element, its parent, the parent's parent, the schema."""
    root, schema = xml.parse(WHOLE[language]), SCHEMAS[language]
    waiting: list[tuple[Element, Element | None]] = [(root, None)]
    number = 0
    while waiting:
        parent, above = waiting.pop(0)
        for child in parent.children:
            waiting.append((child, parent))
            if child.name in schema.telling:
                yield number, child, parent, above, schema
                number += 1


CASES = [(language, number) for language in WHOLE for number, *_ in bearing(language)]


def case(language: str, number: int) -> tuple[Element, Element, Element, Element | None, XmlSchema]:
    root = xml.parse(WHOLE[language])
    # the same walk over a tree of its own, which the test may change
    waiting: list[tuple[Element, Element | None]] = [(root, None)]
    schema, at = SCHEMAS[language], 0
    while True:
        parent, above = waiting.pop(0)
        for child in parent.children:
            waiting.append((child, parent))
            if child.name in schema.telling:
                if at == number:
                    return root, child, parent, above, schema
                at += 1


@pytest.mark.parametrize("language", sorted(WHOLE))
def test_what_stands_in_its_place_is_no_finding(language: str) -> None:
    assert "place" not in told(WHOLE[language], strict=True)
    assert "passed over" not in told(WHOLE[language])
    assert load_policies(WHOLE[language], strict=True).language == language
    assert load_policies(written(xml.parse(WHOLE[language]))).entries == load_policies(WHOLE[language]).entries


def test_every_element_that_bears_a_policy_is_among_the_cases() -> None:
    for language, schema in SCHEMAS.items():
        tried = {element.name for _, element, *_ in bearing(language)}
        missing = schema.telling - tried
        assert missing <= {"message-filter", *schema.roots}, language


@pytest.mark.parametrize(("language", "number"), CASES)
def test_a_misspelt_element_says_its_right_name(language: str, number: int) -> None:
    name = case(language, number)[1].name
    for dropped in range(1, len(name)):
        root, element, *_ = case(language, number)
        element.name = name[:dropped] + name[dropped + 1 :]
        if element.name in SCHEMAS[language].homes:
            continue
        text = written(root)
        said = told(text)
        assert any(wrong.where in said for wrong in xml.parse(text).find(element.name))
        assert f"id you mean {name}?" in said
        with pytest.raises(PolicyError, match="an unknown element"):
            load_policies(text, strict=True)


def test_an_element_that_is_misspelt_in_a_wrong_place_says_its_nearest_name_and_its_place() -> None:
    sink = "<message-sink><nucleus-name>/a</nucleus-name><redelivry/></message-sink>"
    assert "Did you mean redelivery? It belongs in <input-destination>" in told(sink)


@pytest.mark.parametrize(("language", "number"), CASES)
def test_an_element_one_level_too_high_says_where_it_belongs(language: str, number: int) -> None:
    root, element, parent, above, schema = case(language, number)
    if above is None or element.name in schema.place("", above.name).ours:
        return
    parent.children = [child for child in parent.children if child is not element]
    above.children.append(element)
    out_of_place(written(root), element, schema)


@pytest.mark.parametrize(("language", "number"), CASES)
def test_an_element_one_level_too_low_says_where_it_belongs(language: str, number: int) -> None:
    """The element is put inside each of its neighbours, ours or not."""
    count = len(case(language, number)[2].children)
    for at in range(count):
        root, element, parent, _, schema = case(language, number)
        into = parent.children[at]
        if into is element or element.name in schema.place(parent.name, into.name).ours:
            continue
        parent.children = [child for child in parent.children if child is not element]
        into.children.append(element)
        out_of_place(written(root), element, schema)


@pytest.mark.parametrize(("language", "number"), CASES)
def test_an_element_inside_itself_says_where_it_belongs(language: str, number: int) -> None:
    root, element, parent, _, schema = case(language, number)
    if element.name in schema.place(parent.name, element.name).ours:
        return
    copy = case(language, number)[1]
    element.children, element.text = [copy], ""
    out_of_place(written(root), element, schema)


@pytest.mark.parametrize(("language", "number"), CASES)
def test_a_value_that_is_given_twice_says_so(language: str, number: int) -> None:
    root, element, parent, _, schema = case(language, number)
    if language == "activemq" or element.children or schema.place(parent.name, element.name).ours:
        return
    parent.children.append(case(language, number)[1])
    said = told(written(root))
    assert "a second one; leave one out" in said or "a second element of this name. Leave one out" in said
    with pytest.raises(PolicyError, match="a second element of this name"):
        load_policies(written(root), strict=True)


@pytest.mark.parametrize(("language", "number"), CASES)
def test_a_part_alone_is_read_or_says_where_it_belongs(language: str, number: int) -> None:
    element, schema = case(language, number)[1], SCHEMAS[language]
    said = told(written(element), language)
    if element.name not in schema.roots:
        assert f"<{element.name}>" in said
        assert "t belongs in <" in said


def out_of_place(text: str, element: Element, schema: XmlSchema) -> None:
    said = told(text)
    homes = schema.homes[element.name]
    assert f"<{element.name}>: out of its place; it belongs in <" in said or (
        f"<{element.name}>: an element out of its place. It belongs in <" in said
    )
    assert any(f"t belongs in <{home}>" in said for home in homes)
    assert "line 1, column " in said
    with pytest.raises(PolicyError, match="an element out of its place"):
        load_policies(text, strict=True)


EMPTY = [
    '<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core"/></configuration>',
    "<address-settings/>",
    '<beans xmlns="http://www.springframework.org/schema/beans"/>',
    '<broker xmlns="http://activemq.apache.org/schema/core"><destinationPolicy/></broker>',
    "<weblogic-jms/>",
    '<weblogic-jms><connection-factory name="F"/></weblogic-jms>',
    "<dynamo-message-system/>",
    "<patchbay><message-sink/></patchbay>",
]


@pytest.mark.parametrize("text", EMPTY)
@pytest.mark.parametrize("strict", [False, True])
def test_a_file_that_holds_no_policy_is_an_error(text: str, strict: bool) -> None:
    with pytest.raises(PolicyError, match="no policy of") as caught:
        load_policies(text, strict=strict)
    assert "line 1, column 1" in caught.value.where
    assert caught.value.cure.startswith("Write ")


@pytest.mark.parametrize(
    "text",
    [
        "<weblogic-jms><queue name='Q'/></weblogic-jms>",
        "<template name='T'><delivery-failure-params><redelivery-limit>2</redelivery-limit></delivery-failure-params>"
        "</template>",
        EXAMPLES["patchbay"].replace("redelivery>", "description>"),
    ],
)
def test_a_file_whose_destinations_say_nothing_of_redelivery_is_a_warning(text: str) -> None:
    assert "tried again" in told(text)


CAMEL = """<beans xmlns="http://www.springframework.org/schema/beans">
  <broker xmlns="http://activemq.apache.org/schema/core"><destinationPolicy><policyMap><policyEntries>
    <policyEntry topic="&gt;"><pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="1"/>
    </pendingMessageLimitStrategy></policyEntry></policyEntries></policyMap></destinationPolicy>
    <shutdownHooks><bean xmlns="http://www.springframework.org/schema/beans" class="x.Hook"/></shutdownHooks>
    <sslContext><sslContext keyStore="k"/></sslContext>
  </broker>
  <bean id="factory" class="org.apache.activemq.ActiveMQConnectionFactory"><property name="userName" value="u"/></bean>
  <camelContext xmlns="http://camel.apache.org/schema/spring"><errorHandler id="e" type="DeadLetterChannel">
    <redeliveryPolicy maximumRedeliveries="77"/></errorHandler></camelContext>
  <import resource="jetty.xml"/>
</beans>"""


def test_another_products_policy_beside_activemqs_is_not_read_and_no_finding() -> None:
    policies = load_policies(CAMEL, strict=True)
    assert policies.warnings == ()
    assert policies.resolve("A").dead_after == 7


def test_a_property_that_is_written_as_an_element_says_so() -> None:
    text = "<redeliveryPolicy><maximumRedeliveries>3</maximumRedeliveries></redeliveryPolicy>"
    assert 'write it as an attribute, maximumRedeliveries="..."' in told(text)


HORNETQ = """<configuration xmlns="urn:hornetq">
  <clustered>true</clustered><acceptors/>
  <address-settings><address-setting match="jms.queue.A"><dead-letter-address>jms.queue.D</dead-letter-address>
  </address-setting></address-settings></configuration>"""


@pytest.mark.parametrize("namespace", [' xmlns="urn:hornetq"', ""])
def test_hornetqs_settings_stand_in_the_root(namespace: str) -> None:
    text = HORNETQ.replace(' xmlns="urn:hornetq"', namespace)
    assert "place" not in told(text)
    assert "passed" not in told(text)
    artemis = HORNETQ.replace("hornetq", "activemq")
    assert "<address-settings>: out of its place; it belongs in <core>" in told(artemis)


WILDFLY = """<server xmlns="urn:jboss:domain:20.0"><extensions><extension module="x"/></extensions><profile>
  <subsystem xmlns="urn:jboss:domain:logging:8.0"><console-handler name="C"/></subsystem>
  <subsystem xmlns="urn:jboss:domain:messaging-activemq:13.1"><server name="default"><security elytron-domain="a"/>
    <address-setting name="jms.queue.A" dead-letter-address="jms.queue.DLQ" max-delivery-attempts="3"
                     redelivery-delay="1000" redelivery-multiplier="2" max-size-bytes="1"/>
    <jms-queue name="A" entries="java:/jms/queue/A"/></server></subsystem></profile></server>"""


def test_the_messaging_subsystem_of_wildfly_is_read_among_the_others() -> None:
    policies = load_policies(WILDFLY, strict=True)
    policy = policies.resolve("A")
    assert policy.dead_after == 3
    assert [policy.backoff.span(failures).base for failures in (1, 2)] == [1.0, 2.0]
    assert str(policy.targets[0]) == "queue:DLQ"
    assert len(policies.warnings) == 1
    wrong = WILDFLY.replace("max-delivery-attempts", "max-delivery-atempts")
    assert "max-delivery-atempts is passed over; did you mean max-delivery-attempts?" in told(wrong)
    with pytest.raises(PolicyError, match="Did you mean max-delivery-attempts"):
        load_policies(wrong, strict=True)


def test_a_foreign_name_in_a_foreign_place_is_unknown() -> None:
    setting = "<address-setting match='#'><acceptors/></address-setting>"
    assert "<acceptors>: passed over" in told(setting)
    assert "<broker-conections>: passed over; did you mean broker-connections?" in told(
        f'<core xmlns="urn:activemq:core"><broker-conections/><address-settings>{setting}</address-settings></core>'
    )


@pytest.mark.timeout(20)
def test_a_file_full_of_unknown_elements_is_reported_in_no_time() -> None:
    inner = "".join(f"<unknown-{number}/>" for number in range(40_000))
    said = told(f"<address-setting match='#'>{inner}</address-setting>")
    assert said.count("passed over") == MOST_FINDINGS
    setting = "<address-settings><address-setting match='#'/></address-settings>"
    assert "passed over" not in told(f"<core><acceptors>{inner}</acceptors>{setting}</core>")


REAL_SHAPES = {
    "broker.xml of Artemis 2.44": """<configuration xmlns="urn:activemq" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xmlns:xi="http://www.w3.org/2001/XInclude" xsi:schemaLocation="urn:activemq /schema/artemis-configuration.xsd">
  <core xmlns="urn:activemq:core" xsi:schemaLocation="urn:activemq:core ">
    <name>0.0.0.0</name><persistence-enabled>true</persistence-enabled><max-redelivery-records>1</max-redelivery-records>
    <journal-type>NIO</journal-type><paging-directory>data/paging</paging-directory>
    <journal-retention-directory period="7" unit="DAYS">data/retention</journal-retention-directory>
    <journal-datasync>true</journal-datasync><disk-scan-period>5000</disk-scan-period>
    <max-disk-usage>90</max-disk-usage><critical-analyzer>true</critical-analyzer>
    <page-sync-timeout>4</page-sync-timeout><global-max-messages>-1</global-max-messages>
    <acceptors><acceptor name="stomp">tcp://0.0.0.0:61613?protocols=STOMP;useEpoll=true</acceptor></acceptors>
    <security-settings><security-setting match="#"><permission type="send" roles="amq"/></security-setting>
    </security-settings>
    <address-settings>
      <address-setting match="activemq.management.#">
        <dead-letter-address>DLQ</dead-letter-address><expiry-address>ExpiryQueue</expiry-address>
        <redelivery-delay>0</redelivery-delay><max-size-bytes>-1</max-size-bytes>
        <message-counter-history-day-limit>10</message-counter-history-day-limit>
        <address-full-policy>PAGE</address-full-policy>
        <auto-create-queues>true</auto-create-queues><auto-create-addresses>true</auto-create-addresses>
      </address-setting>
      <address-setting match="#">
        <dead-letter-address>DLQ</dead-letter-address><expiry-address>ExpiryQueue</expiry-address>
        <redelivery-delay>0</redelivery-delay>
        <auto-create-queues>true</auto-create-queues><auto-create-addresses>true</auto-create-addresses>
        <auto-delete-queues>false</auto-delete-queues><auto-delete-addresses>false</auto-delete-addresses>
        <page-size-bytes>10M</page-size-bytes><max-size-bytes>-1</max-size-bytes>
        <max-size-messages>-1</max-size-messages><max-read-page-messages>-1</max-read-page-messages>
        <max-read-page-bytes>20M</max-read-page-bytes><page-limit-bytes>-1</page-limit-bytes>
        <page-limit-messages>-1</page-limit-messages>
      </address-setting>
    </address-settings>
    <addresses><address name="DLQ"><anycast><queue name="DLQ"/></anycast></address></addresses>
    <broker-plugins><broker-plugin class-name="x.LoggingActiveMQServerPlugin"><property key="A" value="true"/>
    </broker-plugin></broker-plugins>
  </core>
</configuration>""",
    "activemq.xml of ActiveMQ 6": """<beans xmlns="http://www.springframework.org/schema/beans">
  <bean class="org.springframework.beans.factory.config.PropertyPlaceholderConfigurer">
    <property name="locations"><value>file:${activemq.conf}/credentials.properties</value></property></bean>
  <broker xmlns="http://activemq.apache.org/schema/core" brokerName="localhost" dataDirectory="${activemq.data}">
    <destinationPolicy><policyMap><policyEntries><policyEntry topic="&gt;">
      <pendingMessageLimitStrategy><constantPendingMessageLimitStrategy limit="1000"/></pendingMessageLimitStrategy>
    </policyEntry></policyEntries></policyMap></destinationPolicy>
    <managementContext><managementContext createConnector="false"/></managementContext>
    <persistenceAdapter><kahaDB directory="${activemq.data}/kahadb"/></persistenceAdapter>
    <systemUsage><systemUsage><memoryUsage><memoryUsage percentOfJvmHeap="70"/></memoryUsage>
      <storeUsage><storeUsage limit="100 gb"/></storeUsage><tempUsage><tempUsage limit="50 gb"/></tempUsage>
    </systemUsage></systemUsage>
    <plugins><authorizationPlugin><map><authorizationMap><authorizationEntries>
      <authorizationEntry queue="&gt;" read="a" write="a" admin="a"/></authorizationEntries>
      <defaultEntry><authorizationEntry read="a"/></defaultEntry></authorizationMap></map></authorizationPlugin>
    </plugins>
    <transportConnectors><transportConnector name="stomp" uri="stomp://0.0.0.0:61613"/></transportConnectors>
    <shutdownHooks><bean xmlns="http://www.springframework.org/schema/beans" class="x.Hook"/></shutdownHooks>
  </broker>
  <import resource="jetty.xml"/>
</beans>""",
    "a module of WebLogic": """<weblogic-jms xmlns="http://xmlns.oracle.com/weblogic/weblogic-jms"
  xmlns:sec="http://xmlns.oracle.com/weblogic/security">
  <notes>see tcp://h?jms.redeliveryPolicy.maximumRedeliveries=4 and &lt;beans&gt;</notes>
  <connection-factory name="F"><default-targeting-enabled>true</default-targeting-enabled><jndi-name>jms/F</jndi-name>
    <client-params><acknowledge-policy>All</acknowledge-policy></client-params>
    <transaction-params><xa-connection-factory-enabled>true</xa-connection-factory-enabled></transaction-params>
    <security-params><attach-jmsx-user-id>false</attach-jmsx-user-id></security-params></connection-factory>
  <foreign-server name="X"><foreign-destination name="D"><local-jndi-name>l</local-jndi-name></foreign-destination>
  </foreign-server>
  <queue name="E"><sub-deployment-name>s</sub-deployment-name><jndi-name>jms/E</jndi-name></queue>
  <queue name="Q"><sub-deployment-name>s</sub-deployment-name>
    <thresholds><bytes-high>9</bytes-high></thresholds>
    <delivery-params-overrides><delivery-mode>Persistent</delivery-mode><redelivery-delay>5000</redelivery-delay>
    </delivery-params-overrides>
    <delivery-failure-params><error-destination>E</error-destination><redelivery-limit>3</redelivery-limit>
      <expiration-policy>Redirect</expiration-policy></delivery-failure-params>
    <jndi-name>jms/Q</jndi-name></queue>
  <distributed-queue name="D"><distributed-queue-member name="Q"><weight>1</weight></distributed-queue-member>
  </distributed-queue>
  <saf-imported-destinations name="S"><saf-queue name="R"><remote-jndi-name>r</remote-jndi-name>
    <time-to-live-default>0</time-to-live-default></saf-queue></saf-imported-destinations>
</weblogic-jms>""",
    "dynamoMessagingSystem.xml": """<dynamo-message-system><patchbay>
  <provider><provider-name>sqldms</provider-name><supports-transactions>true</supports-transactions>
    <initial-context-factory>/atg/dynamo/messaging/SqlJmsInitialContextFactory</initial-context-factory></provider>
  <message-source><nucleus-name>/acme/Source</nucleus-name><output-port><port-name>DEFAULT</port-name>
    <output-destination><provider-name>sqldms</provider-name><destination-name>patchbay:/acme/Orders</destination-name>
      <destination-type>Queue</destination-type></output-destination></output-port></message-source>
  <message-sink><nucleus-name>/acme/Sink</nucleus-name><input-port><port-name>IN</port-name><input-destination>
    <provider-name>sqldms</provider-name><destination-name>patchbay:/acme/Orders</destination-name>
    <destination-type>Queue</destination-type><message-selector>a = 1</message-selector>
    <redelivery><max-attempts>3</max-attempts><delay>60000</delay><failure-output-port>F</failure-output-port>
    </redelivery></input-destination></input-port>
    <redelivery-port><port-name>F</port-name><output-destination>
      <destination-name>patchbay:/acme/Dead</destination-name><destination-type>Queue</destination-type>
    </output-destination></redelivery-port></message-sink>
  </patchbay><local-jms><jndi-prefix>/local</jndi-prefix><queue-name>/a</queue-name></local-jms>
  <message-registry><message-family><message-family-name>f</message-family-name><message-type><jms-type>t</jms-type>
    <message-class>x.Y</message-class></message-type></message-family></message-registry>
</dynamo-message-system>""",
}


@pytest.mark.parametrize("name", sorted(REAL_SHAPES))
def test_a_configuration_in_the_shape_of_a_real_one_draws_no_warning(name: str) -> None:
    assert load_policies(REAL_SHAPES[name], strict=True).warnings == ()


LIMIT = "<delivery-failure-params><redelivery-limit>{}</redelivery-limit></delivery-failure-params>"
ENTRIES = '<redeliveryPolicyEntries><redeliveryPolicy queue="{}"/></redeliveryPolicyEntries>'
BOTH_ENTRIES = ENTRIES.format("a") + ENTRIES.format("b")
ATTEMPTS = "<max-attempts>9</max-attempts><delay>0</delay><failure-output-port>F</failure-output-port>"
SETTING = '<address-setting match="{}"><max-delivery-attempts>3</max-delivery-attempts></address-setting>'
SETTINGS = f"<address-settings>{SETTING}</address-settings>"
POLICY_MAP, END_OF_MAP = (
    "<destinationPolicy><policyMap><policyEntries>",
    "</policyEntries></policyMap></destinationPolicy>",
)
SINK = EXAMPLES["patchbay"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("delivery-failure-params", f"<queue name='Q'>{LIMIT.format(3)}{LIMIT.format(5)}</queue>"),
        ("delivery-failure-params", f"<template name='T'>{LIMIT.format(3)}{LIMIT.format(5)}</template>"),
        ("redeliveryPolicyEntries", f"<redeliveryPolicyMap>{BOTH_ENTRIES}</redeliveryPolicyMap>"),
        (
            "redeliveryPolicy",
            '<redeliveryPolicyMap><defaultEntry><redeliveryPolicy maximumRedeliveries="5"/>'
            '<redeliveryPolicy maximumRedeliveries="7"/></defaultEntry></redeliveryPolicyMap>',
        ),
        (
            "deadLetterStrategy",
            f"{POLICY_MAP}<policyEntry queue='a'><deadLetterStrategy><discarding/></deadLetterStrategy>"
            "<deadLetterStrategy><sharedDeadLetterStrategy deadLetterQueue='X'/></deadLetterStrategy></policyEntry>"
            f"{END_OF_MAP}",
        ),
        ("address-settings", f'<core xmlns="urn:activemq:core">{SETTINGS.format("a")}{SETTINGS.format("b")}</core>'),
        ("redelivery", SINK.replace("</redelivery>", f"</redelivery><redelivery>{ATTEMPTS}</redelivery>", 1)),
    ],
)
def test_a_part_that_may_stand_there_only_once_says_so(name: str, text: str) -> None:
    assert f"<{name}>: a second one; leave one out" in told(text)
    with pytest.raises(PolicyError, match="a second element of this name"):
        load_policies(text, strict=True)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        (
            '<address-setting match="a" max-delivery-attempts="3"/>',
            "max-delivery-attempts=... is passed over; write it as an element, <max-delivery-attempts>",
        ),
        (
            '<address-setting match="a" max-delivery-attempt="3"/>',
            "max-delivery-attempt=... is passed over; write it as an element, <max-delivery-attempts>",
        ),
        (
            '<weblogic-jms><queue name="Q" template="T"/></weblogic-jms>',
            "template=... is passed over; write it as an element, <template>",
        ),
        (
            '<weblogic-jms><queue name="Q" redelivery-limit="2"/></weblogic-jms>',
            "write it as an element, <redelivery-limit> in <delivery-failure-params>",
        ),
        (
            f"{POLICY_MAP}<policyEntry queue='a' deadLetterStrategy='#x'/>{END_OF_MAP}",
            "deadLetterStrategy=... is passed over; write it as an element, <deadLetterStrategy>",
        ),
    ],
)
def test_an_element_that_is_written_as_an_attribute_says_so(text: str, finding: str) -> None:
    assert finding in told(text)
    with pytest.raises(PolicyError, match="is no attribute"):
        load_policies(text, strict=True)


def test_the_attributes_of_wildfly_are_no_finding_where_a_setting_stands_alone() -> None:
    setting = '<address-setting xmlns="urn:jboss:domain:messaging-activemq:13.0" name="#" max-delivery-attempts="3"/>'
    assert "attribute" not in told(setting)
    assert "element" not in told(setting)
    assert load_policies(setting).resolve("a").dead_after == 3


@pytest.mark.parametrize("name", ["address-settings", "address", "setting"])
def test_a_setting_of_wildfly_by_another_name_is_found(name: str) -> None:
    wrong = f'<{name} name="jms.queue.B" max-delivery-attempts="4"/>'
    text = WILDFLY.replace("<address-setting ", f"{wrong}<address-setting ")
    assert f"<{name}>: passed over with its max-delivery-attempts. Did you mean <address-setting>?" in told(text)
    with pytest.raises(PolicyError, match="is none of its attributes"):
        load_policies(text, strict=True)
