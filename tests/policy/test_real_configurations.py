# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Configurations in the shape of real ones draw no warning: nothing that a product knows is unknown here.

Each file has the elements and the nesting of its original, and values of our own; what only repeats is left out. Where
the original says nothing of redelivery, or names no error destination, the smallest policy is added. Few modules of
WebLogic are public: five are what WebLogic writes of a public model or script, which names the same settings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.policy import load_policies

FOLDER = Path(__file__).parent / "real_configurations"

# what each has the shape of
SHAPES = {
    "activemq/default.xml": "the activemq.xml that ActiveMQ 6 comes with",
    "activemq/demo.xml": "ActiveMQ 6, examples/conf/activemq-demo.xml",
    "activemq/dynamic-network.xml": "ActiveMQ 6, examples/conf/activemq-dynamic-network-broker1.xml",
    "activemq/individual-dead-letters.xml": "ActiveMQ 6, its tests' broker/policy/individual-dlq.xml",
    "activemq/cursors.xml": "ActiveMQ 6, its tests' broker/policy/cursor.xml",
    "activemq/two-ways-to-log-in.xml": "ActiveMQ 6, its tests' JaasDualAuthenticationNetworkBridge.xml, one of two",
    "activemq/statistics-of-a-network.xml": "ActiveMQ 6, its tests' localBroker-advancedNetworkStatistics.xml",
    "activemq/policies-of-topics.xml": "ActiveMQ 6, its tests' xbean/activemq-policy.xml",
    "activemq/virtual-topics.xml": "ActiveMQ 6, its tests' broker/virtual/virtual-topic-network-test.xml, one of two",
    "activemq/database.xml": "ActiveMQ 6, examples/conf/activemq-jdbc-performance.xml",
    "artemis/mirror.xml": "Artemis 2.45, its smoke tests' brokerConnect/mirrorSecurityA/broker.xml",
    "artemis/federation.xml": "Artemis 2.45, its smoke tests' brokerConnect/federationA/broker.xml",
    "artemis/replication.xml": "Artemis 2.45, its smoke tests' replicated-failback-primary1/broker.xml",
    "artemis/delivery-count.xml": "Artemis 2.45, its smoke tests' infinite-redelivery/broker.xml",
    "artemis/limits-of-paging.xml": "Artemis 2.45, its smoke tests' jmx-rbac-broker-security/broker.xml",
    "artemis/bridge.xml": "Artemis 2.45, its smoke tests' bridgeTransfer/serverA/broker.xml",
    "artemis/hornetq-dead-letter.xml": "HornetQ 2.4, examples/jms/dead-letter, hornetq-configuration.xml",
    "artemis/hornetq-many-settings.xml": "HornetQ 2.4, its tests' ConfigurationTest-full-config.xml",
    "artemis/wildfly-messaging-activemq.xml": "JBoss EAP 7.3, standalone-full.xml",
    "artemis/jboss-hornetq.xml": "JBoss AS 7.1 with GateIn 3.6, standalone-full.xml",
    "patchbay/one-source.xml": "ATG, dynamoMessagingSystem.xml of a training project, one source",
    "patchbay/sources-and-registry.xml": "ATG, dynamoMessagingSystem.xml of the Dynamusic 2 training project",
    "patchbay/sources-sinks-filters.xml": "ATG 10.1, Programming Guide, Declaring Message Sources, Sinks, and Filters",
    "patchbay/destinations.xml": "ATG 2007.3, Programming Guide, Connecting to Destinations",
    "patchbay/ports.xml": "ATG 2007.3, Programming Guide, Using Messaging Ports",
    "patchbay/scenario-of-links.xml": "ATG 10.1, Personalization Programming Guide, Putting It All Together",
    "patchbay/importer.xml": "ATG 11.3.2, Web Services guide, Patch Bay Configuration",
    "patchbay/foreign-provider.xml": "ATG 10.1, the provider of the DTD of dynamoMessagingSystem.xml",
    "patchbay/fulfilment.xml": "ATG 10.2, Programming Guide, Configuring Failed Message Redelivery",
    "patchbay/source-of-global-events.xml": "ATG 9.3, Personalization Guide, Configuring the Message Source",
    "weblogic/cluster-module.xml": "the module of the example of a Puppet class of Above Property",
    "weblogic/factory-and-distributed-queue.xml": "the module of a model in the Kubernetes operator's documentation",
    "weblogic/queue-of-a-demonstration.xml": "the module that the script of brunoborges/oraclecloud-demo makes",
    "weblogic/store-and-forward-queues.xml": "the module that hanafiepaulus/DS-JMS-WLSTScript makes, queues of int2_v2",
    "weblogic/balanced-queue.xml": "the module that a script for a cluster makes: a factory, a queue in turns",
    "weblogic/overrides-in-a-cluster.xml": "WebLogic, an override in the Kubernetes operator's sitconfig tests",
    "weblogic/overrides-by-environment.xml": "WebLogic, an override in the Kubernetes operator's configoverridesset2",
    "weblogic/queue-of-an-application.xml": "WebLogic 9.0, weblogic-jms.xml in the tests of Windup's rules",
    "weblogic/queue-topic-factory.xml": "WebLogic, payments-jms.xml in the tests of a collector of descriptors",
    "weblogic/every-element.xml": "no file: the elements of WebLogic 10.3.1's descriptor, as NetBeans lists them",
}


def test_every_file_says_what_it_has_the_shape_of() -> None:
    assert {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.xml")} == set(SHAPES)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_a_configuration_in_the_shape_of_a_real_one_draws_no_warning(name: str) -> None:
    policies = load_policies((FOLDER / name).read_text(encoding="utf-8"), strict=True)
    assert policies.warnings == ()
    assert policies.language == name.partition("/")[0]


# how often a message may fail, and where it goes then ($ is its queue): what the file says, or the product's default
POLICIES = {
    "activemq/default.xml": ("orders", 7, "queue:ActiveMQ.DLQ"),
    "activemq/individual-dead-letters.xml": ("orders.new", 7, "queue:dead.$"),
    "artemis/delivery-count.xml": ("orders", 6, "queue:dead"),
    "artemis/mirror.xml": ("orders", 10, "queue:dead"),
    "artemis/hornetq-dead-letter.xml": ("orders", 4, "queue:dead"),
    "artemis/wildfly-messaging-activemq.xml": ("orders", 10, "queue:dead"),
    "patchbay/one-source.xml": ("patchbay:/shop/Orders", 3, "queue:patchbay:/shop/FailedOrders"),
    "weblogic/queue-of-an-application.xml": ("Orders", 5, "queue:Dead"),
    "weblogic/every-element.xml": ("Orders", 5, "queue:Dead"),
}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_the_policy_among_all_the_rest_is_read(name: str) -> None:
    queue, failures, target = POLICIES[name]
    policy = load_policies((FOLDER / name).read_text(encoding="utf-8"), strict=True).resolve(queue)
    assert policy.dead_after == failures
    assert str(policy.targets[0]) == target


@pytest.mark.parametrize(
    ("name", "element", "misspelt"),
    [
        ("activemq/dynamic-network.xml", "deadLetterStrategy", "deadLeterStrategy"),
        ("artemis/bridge.xml", "redelivery-delay", "redelivry-delay"),
        ("artemis/jboss-hornetq.xml", "dead-letter-address", "dead-leter-address"),
        ("patchbay/scenario-of-links.xml", "redelivery-port", "redelivry-port"),
        ("weblogic/every-element.xml", "redelivery-limit", "redelivry-limit"),
    ],
)
def test_a_misspelt_element_among_all_the_rest_is_found(name: str, element: str, misspelt: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    text = text.replace(f"<{element}>", f"<{misspelt}>").replace(f"</{element}>", f"</{misspelt}>")
    with pytest.raises(PolicyError, match=f"id you mean {element}"):
        load_policies(text, strict=True)
