# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to ActiveMQ Classic through stomp.py: the adapter behind `activemq://`, and the drop-in for listeners."""

from redeliver_stomp.adapter import StompAdapter, adapter_from_url
from redeliver_stomp.capabilities import records
from redeliver_stomp.dropin.wrapper import redelivering

__all__ = ["StompAdapter", "adapter_from_url", "records", "redelivering"]
