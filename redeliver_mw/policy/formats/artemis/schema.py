# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines which elements are allowed where in Artemis' and its relatives' configuration files.

The files are `broker.xml`, `hornetq-configuration.xml`, and WildFly's `standalone.xml`.

The lists are those of Artemis 2.44's own schema, and what HornetQ 2.4 and JBoss Messaging 2 have in addition.
"""

from __future__ import annotations

from ..schema import ElementRule, XmlSchema, words

DELAYS = ("redelivery-delay", "max-redelivery-delay")
FLAGS = ("auto-create-dead-letter-resources", "auto-create-expiry-resources")
AFFIXES = ("dead-letter-queue-prefix", "dead-letter-queue-suffix", "expiry-queue-prefix", "expiry-queue-suffix")
ADDRESSES = ("dead-letter-address", "expiry-address")
NUMBERS = ("redelivery-delay-multiplier", "redelivery-collision-avoidance-factor")
FIELDS = (*DELAYS, *NUMBERS, "max-delivery-attempts", *ADDRESSES, *FLAGS, *AFFIXES)
COUNTED_BEFORE = "persist-delivery-count-before-delivery"

_CORE = words(
    """
    acceptors address-queue-scan-period addresses allow-failback amqp-use-core-subscription-naming
    async-connection-execution-enabled authentication-cache-size authorization-cache-size backup backup-group-name
    bindings-directory bridges broadcast-groups broker-connections broker-plugins check-for-live-server
    cluster-connections cluster-password cluster-user clustered configuration-file-refresh-period connection-routers
    connection-ttl-check-interval connection-ttl-override connector-services connectors create-bindings-dir
    create-journal-dir critical-analyzer critical-analyzer-check-period critical-analyzer-policy
    critical-analyzer-timeout discovery-groups disk-scan-period diverts failback-delay failover-on-shutdown
    federations file-deployment-enabled global-max-messages global-max-size
    global-max-size-percent-of-jvm-max-memory graceful-shutdown-enabled graceful-shutdown-timeout grouping-handler
    ha-policy id-cache-size internal-naming-prefix jms-configuration jmx-domain jmx-management-enabled
    jmx-use-broker-name journal-buffer-size journal-buffer-timeout journal-compact-min-files
    journal-compact-percentage journal-datasync journal-device-block-size journal-directory
    journal-file-open-timeout journal-file-size journal-lock-acquisition-timeout journal-max-io journal-min-files
    journal-pool-files journal-retention-directory journal-sync-non-transactional journal-sync-transactional
    journal-type large-message-sync large-messages-directory literal-match-markers live-connector-ref
    log-delegate-factory-class-name log-journal-write-rate management-address management-message-rbac
    management-notification-address management-rbac-prefix mask-password max-disk-usage max-redelivery-records
    max-saved-replicated-journal-size memory-measure-interval memory-warning-threshold message-counter-enabled
    message-counter-max-day-history message-counter-sample-period message-expiry-scan-period
    message-expiry-thread-priority metrics metrics-plugin min-disk-free mirror-ack-manager-page-attempts
    mirror-ack-manager-queue-attempts mirror-ack-manager-retry-delay mirror-ack-manager-warn-unacked
    mirror-page-transaction mqtt-session-scan-interval mqtt-session-state-persistence-timeout
    mqtt-subscription-persistence-enabled name network-check-NIC network-check-URL-list network-check-list
    network-check-period network-check-ping-command network-check-ping6-command network-check-timeout
    node-manager-lock-directory page-max-concurrent-io page-sync-timeout paging-directory password-codec
    perf-blast-pages persist-id-cache persistence-enabled populate-validated-user purge-page-folders
    queue-activation-timeout queues read-whole-page reject-empty-validated-user remoting-incoming-interceptors
    remoting-interceptors remoting-outgoing-interceptors replication-clustername resolve-protocols
    resource-limit-settings run-sync-speed-test scheduled-thread-pool-max-size security-enabled
    security-invalidation-interval security-settings security-store server-dump-interval shared-store store
    suppress-session-notifications system-property-prefix temporary-queue-namespace thread-pool-max-size
    transaction-timeout transaction-timeout-scan-period uuid-namespace view-permission-method-match-pattern
    wild-card-routing-enabled wildcard-addresses
    """
)
_SETTING = words(
    """
    address-full-policy auto-create-addresses auto-create-jms-queues auto-create-jms-topics auto-create-queues
    auto-delete-addresses auto-delete-addresses-delay auto-delete-addresses-skip-usage-check
    auto-delete-created-queues auto-delete-jms-queues auto-delete-jms-topics auto-delete-queues
    auto-delete-queues-delay auto-delete-queues-message-count auto-delete-queues-skip-usage-check clustered
    config-delete-addresses config-delete-diverts config-delete-queues default-address-routing-type
    default-consumer-window-size default-consumers-before-dispatch default-delay-before-dispatch
    default-exclusive-queue default-group-buckets default-group-first-key default-group-rebalance
    default-group-rebalance-pause-dispatch default-last-value-key default-last-value-queue default-max-consumers
    default-non-destructive default-purge-on-no-consumers default-queue-routing-type default-ring-size
    disk-full-policy distribution-policy-class drop-messages-when-full enable-ingress-timestamp enable-metrics
    expiry-delay id-cache-size initial-queue-buffer-size last-value-queue management-browse-page-size
    management-message-attribute-size-limit max-expiry-delay max-read-page-bytes max-read-page-messages
    max-size-bytes max-size-bytes-reject-threshold max-size-messages message-counter-history-day-limit
    min-expiry-delay no-expiry page-full-policy page-limit-bytes page-limit-messages page-max-cache-size
    page-size-bytes prefetch-page-bytes prefetch-page-messages redistribution-delay retroactive-message-count
    send-to-dla-on-no-route slow-consumer-check-period slow-consumer-policy slow-consumer-threshold
    slow-consumer-threshold-measurement-unit
    """
)
_OURS = ("address-settings", COUNTED_BEFORE)
_PLACES = {
    "core": ElementRule(_OURS, _CORE, once=words("address-settings")),
    "address-settings": ElementRule(("address-setting",)),
    "address-setting": ElementRule(FIELDS, _SETTING),
}
_ROOTS = ("configuration", "core", "address-settings", "address-setting")
_NEEDED = '<address-settings> with an <address-setting match="...">'
_BESIDE = words("jms web")

ARTEMIS = XmlSchema(
    "artemis",
    _NEEDED,
    _ROOTS,
    {"configuration": ElementRule(("core",), _BESIDE, once=words("core")), **_PLACES},
    frozenset(("core",)),
    ("urn:activemq", "urn:hornetq", "urn:jboss"),
    elements=FIELDS,
)
# There the settings are directly in the root.
HORNETQ = XmlSchema(
    "artemis",
    _NEEDED,
    (*_ROOTS, "deployment"),
    {
        "configuration": ElementRule(("core", *_OURS), _CORE | _BESIDE, once=words("core address-settings")),
        "deployment": ElementRule(("core", *_OURS), _CORE | _BESIDE, once=words("core address-settings")),
        **_PLACES,
    },
    frozenset(("core",)),
    ARTEMIS.namespaces,
    elements=FIELDS,
)
_AROUND = ElementRule(
    ("profiles", "profile", "subsystem", "server", "hornetq-server", *_OURS, "address-setting"), open=True
)
# standalone.xml and domain.xml of JBoss and WildFly: the messaging subsystem among all others.
WILDFLY = XmlSchema(
    "artemis",
    "an <address-setting> in the messaging subsystem",
    ("server", "domain"),
    {
        "address-settings": _PLACES["address-settings"],
        "address-setting": _PLACES["address-setting"],
        **dict.fromkeys(("domain", "profiles", "profile", "subsystem", "server", "hornetq-server"), _AROUND),
    },
    frozenset(("profiles", "profile", "subsystem", "server", "hornetq-server")),
    ("urn:jboss:domain:messaging",),
)
