# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines which elements are allowed where in ATG's `dynamoMessagingSystem.xml`."""

from __future__ import annotations

from ..schema import ElementRule, XmlSchema, words

REDELIVERY = ("max-attempts", "delay", "failure-output-port")
_NOTES = words("description display-name display-name-resource icon")
_NAMES = ("destination-name", "destination-type")
_SINK = ("input-port", "redelivery-port")

SCHEMA = XmlSchema(
    "patchbay",
    "a <message-sink> with an <input-port> and its <input-destination>",
    ("dynamo-message-system", "patchbay", "patch-bay", "message-sink", "message-filter"),
    {
        "dynamo-message-system": ElementRule(("patchbay", "patch-bay"), _NOTES | words("local-jms message-registry")),
        **dict.fromkeys(
            ("patchbay", "patch-bay"),
            ElementRule(
                ("message-sink", "message-filter"),
                _NOTES | words("provider message-source message-registry local-jms allow-duplicate-queue-names"),
            ),
        ),
        "message-sink": ElementRule(_SINK, _NOTES | words("nucleus-name")),
        "message-filter": ElementRule(_SINK, _NOTES | words("nucleus-name output-port")),
        "input-port": ElementRule(("input-destination",), _NOTES | words("port-name")),
        "input-destination": ElementRule(
            ("redelivery", *_NAMES),
            _NOTES | words("provider-name message-selector no-local durable-subscriber-name"),
            once=words("redelivery"),
        ),
        "redelivery": ElementRule(REDELIVERY, _NOTES),
        "redelivery-port": ElementRule(("port-name", "output-destination"), _NOTES),
        "output-destination": ElementRule(
            _NAMES, _NOTES | words("provider-name delivery-mode priority time-to-live persistent")
        ),
    },
    frozenset(("port-name", "output-destination", *_NAMES, "patchbay", "patch-bay")),
    elements=(*REDELIVERY, *_NAMES, "port-name"),
)
