# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages of taskiq on RabbitMQ (taskiq-aio-pika), which have the task's name and id as headers. Pure.

taskiq writes no error on a message. Its queues dead-letter to `taskiq.dead_letter` unless another queue is named, and
the broker's marks tell the source.

Sources: taskiq_aio_pika/broker.py, taskiq/message.py, taskiq/middlewares/simple_retry_middleware.py
"""

from __future__ import annotations

from .foreign import ForeignLetter, ForeignMessage

NAME = "taskiq"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message of taskiq, or None."""
    task, id_ = message.name("task_name"), message.name("task_id")
    if not (task and id_ and message.body_holds(b'"task_name"', b'"task_id"', b'"labels"')):
        return None
    return ForeignLetter(framework=NAME, task=task, id=id_, attempts=message.number("_retries"))
