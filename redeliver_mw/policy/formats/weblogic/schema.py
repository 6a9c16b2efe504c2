# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines which elements are allowed where in a JMS module of WebLogic."""

from __future__ import annotations

from ..schema import ElementRule, XmlSchema, words

DESTINATIONS = ("queue", "topic", "uniform-distributed-queue", "uniform-distributed-topic")
FAILURE = ("error-destination", "redelivery-limit", "expiration-policy", "expiration-logging-policy")
OVERRIDES = ("delivery-mode", "time-to-live", "priority", "redelivery-delay")
PARTS = ("template", *DESTINATIONS, "connection-factory")

_MODULE = words(
    """
    version notes name quota destination-key foreign-server distributed-queue distributed-topic
    saf-imported-destinations saf-remote-context saf-error-handling
    """
)
_PARAMS = words(
    """
    notes destination-key thresholds message-logging-params attach-sender production-paused-at-startup
    insertion-paused-at-startup consumption-paused-at-startup maximum-message-size quota default-unit-of-order
    saf-export-policy multicast topic-subscription-params messaging-performance-preference
    unit-of-work-handling-policy incomplete-work-expiration-time default-targeting-enabled
    """
)
_OF_A_DESTINATION = words(
    """
    jndi-name local-jndi-name jms-create-destination-identifier load-balancing-policy unit-of-order-routing
    forward-delay forwarding-policy reset-delivery-count-on-forward
    """
)
_FACTORY = words(
    """
    name notes sub-deployment-name default-targeting-enabled jndi-name local-jndi-name client-params
    transaction-params flow-control-params load-balancing-params security-params
    """
)
_OF_A_FACTORY = words(
    """
    default-delivery-mode default-time-to-deliver default-time-to-live default-priority send-timeout
    default-compression-threshold default-unit-of-order
    """
)
_BLOCKS = ("delivery-params-overrides", "delivery-failure-params", "sub-deployment-name", "name")
_ONCE = words("delivery-params-overrides delivery-failure-params")
_DESTINATION = ElementRule((*_BLOCKS, "template"), _PARAMS | _OF_A_DESTINATION, once=_ONCE)

SCHEMA = XmlSchema(
    "weblogic",
    'a <queue name="..."> or <topic name="..."> with <delivery-failure-params>',
    ("weblogic-jms", *PARTS),
    {
        "weblogic-jms": ElementRule(PARTS, _MODULE),
        "template": ElementRule((*_BLOCKS, "group-params"), _PARAMS, once=_ONCE),
        **{f"{name}/template": ElementRule() for name in DESTINATIONS},
        **dict.fromkeys(DESTINATIONS, _DESTINATION),
        "delivery-failure-params": ElementRule(FAILURE, words("template-bean")),
        "delivery-params-overrides": ElementRule(OVERRIDES, words("time-to-deliver template-bean")),
        "group-params": ElementRule(("sub-deployment-name", "error-destination")),
        "connection-factory": ElementRule(
            ("default-delivery-params",), _FACTORY, once=words("default-delivery-params")
        ),
        "default-delivery-params": ElementRule(("default-redelivery-delay",), _OF_A_FACTORY),
    },
    frozenset(("name", "sub-deployment-name", "template", "queue", "topic", "connection-factory")),
    ("weblogic-jms", "bea.com"),
    elements=("template", *FAILURE, *OVERRIDES, "default-redelivery-delay"),
)
