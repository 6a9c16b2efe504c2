# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ through pika: the adapter behind `rabbitmq://`, and the drop-in wrapper for pika callbacks."""

from redeliver_pika.adapter import PikaAdapter, adapter_from_url
from redeliver_pika.capabilities import records
from redeliver_pika.dropin.pull import consume
from redeliver_pika.dropin.wrapper import redelivering

__all__ = ["PikaAdapter", "adapter_from_url", "consume", "records", "redelivering"]
