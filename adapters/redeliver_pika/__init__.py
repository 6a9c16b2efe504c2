# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Connects to RabbitMQ through pika: the adapter behind `rabbitmq://`, and the drop-in for channels and callbacks."""

from redeliver_pika.adapter import PikaAdapter, adapter_from_url
from redeliver_pika.capabilities import records
from redeliver_pika.dropin.pull import consume
from redeliver_pika.dropin.redelivering import redelivering

__all__ = ["PikaAdapter", "adapter_from_url", "consume", "records", "redelivering"]
