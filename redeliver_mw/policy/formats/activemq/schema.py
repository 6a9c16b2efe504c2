# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines which elements are allowed where in the XML of ActiveMQ's brokers and clients.

The lists are those of the schemas of ActiveMQ 5.18 and 6.3. Spring's own elements may surround all of it.
"""

from __future__ import annotations

from ..schema import ElementRule, XmlSchema, words
from .options import PROPERTIES

STRATEGIES = ("sharedDeadLetterStrategy", "individualDeadLetterStrategy", "discarding")
_DESTINATIONS = ("queue", "topic", "tempQueue", "tempTopic")
_FACTORIES = ("connectionFactory", "xaConnectionFactory")
_BEAN = frozenset(("bean", "ref"))
_GLOBAL = words(
    """
    abortSlowAckConsumerStrategy abortSlowConsumerStrategy authenticationUser authorizationEntry authorizationMap
    authorizationPlugin axionJDBCAdapter blobJDBCAdapter bytesJDBCAdapter cachedLDAPAuthorizationMap
    cachedMessageGroupMapFactory chainMessageInterceptorStrategy clientIdFilterDispatchPolicy
    compositeDemandForwardingBridge compositeQueue compositeTopic conditionalNetworkBridgeFilterFactory
    connectionDotFilePlugin constantPendingMessageLimitStrategy database-locker db2JDBCAdapter
    defaultIOExceptionHandler defaultJDBCAdapter defaultNetworkBridgeFilterFactory defaultUsageCapacity
    demandForwardingBridge destinationDotFilePlugin destinationEntry destinationPathSeparatorPlugin
    destinationsPlugin discardingDLQBrokerPlugin fileCursor fileDurableSubscriberCursor fileQueueCursor
    filteredDestination filteredKahaDB fixedCountSubscriptionRecoveryPolicy fixedSizedSubscriptionRecoveryPolicy
    forcePersistencyModeBroker forcePersistencyModeBrokerPlugin forwardingBridge h2-jdbc-adapter
    headerMessageInterceptorStrategy hsqldb-jdbc-adapter imageBasedJDBCAdaptor inboundQueueBridge inboundTopicBridge
    informixJDBCAdapter jDBCIOExceptionHandler jaasAuthenticationPlugin jaasCertificateAuthenticationPlugin
    jaasDualAuthenticationPlugin jdbcPersistenceAdapter jmsQueueConnector jmsTopicConnector jobSchedulerUsage
    journalPersistenceAdapter journalPersistenceAdapterFactory journaledJDBC kahaDB lDAPAuthorizationMap
    lastImageSubscriptionRecoveryPolicy ldapNetworkConnector lease-database-locker leaseLockerIOExceptionHandler
    loggingBrokerPlugin mKahaDB managementContext maxdb-jdbc-adapter memoryPersistenceAdapter memoryUsage
    messageGroupHashBucketFactory mirroredQueue multicastNetworkConnector multicastTraceBrokerPlugin
    mysql-jdbc-adapter networkConnector noSubscriptionRecoveryPolicy oldestMessageEvictionStrategy
    oldestMessageWithLowestPriorityEvictionStrategy oracleBlobJDBCAdapter oracleJDBCAdapter outboundQueueBridge
    outboundTopicBridge pListStoreImpl partitionBrokerPlugin pooledConnectionFactory postgresql-jdbc-adapter
    prefetchPolicy prefetchRatePendingMessageLimitStrategy priorityDispatchPolicy priorityNetworkDispatchPolicy
    proxyConnector publishedAddressPolicy queryBasedSubscriptionRecoveryPolicy queue queueDispatchSelector
    reconnectionPolicy retainedMessageSubscriptionRecoveryPolicy roundRobinDispatchPolicy runtimeConfigurationPlugin
    shared-file-locker simpleAuthenticationPlugin simpleAuthorizationMap simpleDispatchPolicy simpleDispatchSelector
    simpleJmsMessageConvertor simpleMessageGroupMapFactory sqlServerJDBCAdapter sslContext statements
    statisticsBrokerPlugin storeCursor storeDurableSubscriberCursor storeUsage streamJDBCAdapter
    strictOrderDispatchPolicy sybase-jdbc-adapter systemUsage taskRunnerFactory tempDestinationAuthorizationEntry
    tempQueue tempTopic tempUsage timeStampingBrokerPlugin timedSubscriptionRecoveryPolicy topic
    traceBrokerPathPlugin transact-database-locker transact-jdbc-adapter transportConnector udpTraceBrokerPlugin
    uniquePropertyMessageEvictionStrategy usageCapacity virtualDestinationInterceptor
    virtualSelectorCacheBrokerPlugin virtualTopic vmCursor vmDurableCursor vmQueueCursor
    """
)
_BROKER = words(
    """
    adminView brokerContext brokerObjectName consumerSystemUsage dataDirectoryFile destinationFactory
    destinationInterceptors destinations ioExceptionHandler jmsBridgeConnectors jobSchedulerStore
    managementContext messageAuthorizationPolicy networkConnectorURIs networkConnectors persistenceAdapter
    persistenceFactory persistenceTaskRunnerFactory producerSystemUsage proxyConnectors regionBroker
    schedulerDirectoryFile services shutdownHooks sslContext startException systemUsage taskRunnerFactory
    tempDataStore tmpDataDirectory transportConnectorURIs transportConnectors vmConnectorURI
    """
)
_PLUGINS = words(
    """
    authorizationPlugin connectionDotFilePlugin destinationDotFilePlugin destinationPathSeparatorPlugin
    destinationsPlugin forcePersistencyModeBroker forcePersistencyModeBrokerPlugin
    jaasAuthenticationPlugin jaasCertificateAuthenticationPlugin jaasDualAuthenticationPlugin loggingBrokerPlugin
    multicastTraceBrokerPlugin partitionBrokerPlugin runtimeConfigurationPlugin simpleAuthenticationPlugin
    statisticsBrokerPlugin timeStampingBrokerPlugin traceBrokerPathPlugin udpTraceBrokerPlugin
    virtualSelectorCacheBrokerPlugin
    """
)
_FACTORY = words(
    """
    blobTransferPolicy clientIdGenerator clientInternalExceptionListener connectionIdGenerator exceptionListener
    prefetchPolicy properties rejectedTaskHandler sessionTaskRunner transformer transportListener trustedPackages
    """
)
_ENTRY = words(
    """
    dispatchPolicy messageEvictionStrategy messageGroupMapFactory messageInterceptorStrategy
    networkBridgeFilterFactory pendingDurableSubscriberPolicy pendingMessageLimitStrategy pendingQueuePolicy
    pendingSubscriberPolicy slowConsumerStrategy subscriptionRecoveryPolicy
    """
)
_SPRING = words("bean property constructor-arg list set map entry array value ref props beans argument reference")
_ANYWHERE = ("broker", "brokerService", *_FACTORIES, "redeliveryPolicyMap", "redeliveryPolicy", "redeliveryPlugin")
# A bean of Spring's may contain any element of ActiveMQ's that is a whole object.
_AROUND = ElementRule((*_ANYWHERE, "policyMap", "policyEntry", *STRATEGIES, *_SPRING), _GLOBAL, open=True)
_POLICY_ITSELF = ElementRule(("destination", "property"))
_STRATEGY = ElementRule(("deadLetterQueue",))
_BROKERS = ElementRule(("plugins", "destinationPolicy"), _BROKER | _BEAN, once=words("plugins destinationPolicy"))
_FACTORIES_PLACE = ElementRule(
    ("redeliveryPolicy", "redeliveryPolicyMap"), _FACTORY | _BEAN, once=words("redeliveryPolicy redeliveryPolicyMap")
)
_MAP = ("redeliveryPolicyEntries", "defaultEntry")

SCHEMA = XmlSchema(
    "activemq",
    "a <redeliveryPolicyMap>, a <redeliveryPolicy> or a <destinationPolicy> with a <policyEntry>",
    ("beans", "blueprint", "bean", *_ANYWHERE, "destinationPolicy", "policyMap"),
    {
        "broker": _BROKERS,
        "brokerService": _BROKERS,
        "plugins": ElementRule(("redeliveryPlugin", "discardingDLQBrokerPlugin"), _PLUGINS | _BEAN),
        "redeliveryPlugin": ElementRule(
            ("redeliveryPolicyMap",), words("adminConnectionContext next"), once=words("redeliveryPolicyMap")
        ),
        "discardingDLQBrokerPlugin": ElementRule(("property",)),
        # The property of a plug-in or a factory that holds the map has the same name as the map; the map alone is
        # accepted too.
        "redeliveryPolicyMap": ElementRule(
            (*_MAP, "redeliveryPolicyMap"), _BEAN, once=frozenset((*_MAP, "redeliveryPolicyMap"))
        ),
        "redeliveryPolicyMap/redeliveryPolicyMap": ElementRule(_MAP, once=frozenset(_MAP)),
        "redeliveryPolicyEntries": ElementRule(("redeliveryPolicy",), _BEAN),
        "redeliveryPolicyMap/defaultEntry": ElementRule(("redeliveryPolicy",), _BEAN, once=words("redeliveryPolicy")),
        "connectionFactory": _FACTORIES_PLACE,
        "xaConnectionFactory": _FACTORIES_PLACE,
        "redeliveryPolicy": _POLICY_ITSELF,
        "connectionFactory/redeliveryPolicy": ElementRule(("redeliveryPolicy", "destination", "property"), _BEAN),
        "xaConnectionFactory/redeliveryPolicy": ElementRule(("redeliveryPolicy", "destination", "property"), _BEAN),
        "destinationPolicy": ElementRule(("policyMap",), _BEAN, once=words("policyMap")),
        "policyMap": ElementRule(
            ("policyEntries", "defaultEntry"), frozenset(("entries",)), once=words("policyEntries defaultEntry")
        ),
        "policyMap/defaultEntry": ElementRule(("policyEntry",), once=words("policyEntry")),
        "policyEntries": ElementRule(("policyEntry",), _BEAN),
        "policyEntry": ElementRule(("deadLetterStrategy", "destination"), _ENTRY, once=words("deadLetterStrategy")),
        "deadLetterStrategy": ElementRule(STRATEGIES, _BEAN, once=frozenset(STRATEGIES)),
        "destination": ElementRule(_DESTINATIONS),
        "deadLetterQueue": ElementRule(_DESTINATIONS),
        **dict.fromkeys(STRATEGIES, _STRATEGY),
        "blueprint": _AROUND,
        **dict.fromkeys(sorted(_SPRING), _AROUND),
    },
    frozenset((*_DESTINATIONS, "destination", "property", "defaultEntry", "plugins", *_SPRING)),
    (
        "activemq.apache.org/schema",
        "activemq.org/config",
        "springframework.org/schema/beans",
        "osgi.org/xmlns/blueprint",
    ),
    PROPERTIES,
    ("deadLetterStrategy",),
)
