# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads tasks of Celery, which names itself in headers (message protocol 2) or in the body (protocol 1). Pure.

Celery writes no error on a message: the exception of a task is in its result backend, and a task that fails is
acknowledged. A message is dead if the broker dead-lettered it, after `Reject` or when its worker was lost. Celery is
built on kombu, which writes nothing of its own on a message.

Sources: celery/app/amqp.py (`as_task_v2`, `as_task_v1`) and https://docs.celeryq.dev/en/stable/internals/protocol.html
"""

from __future__ import annotations

from .foreign import ForeignLetter, ForeignMessage, name_of, number_of

NAME = "Celery"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a task of Celery, or None."""
    task, id_ = message.name("task"), message.name("id")
    if task and id_ and message.has("argsrepr", "root_id", "lang", "origin"):
        return ForeignLetter(framework=NAME, task=task, id=id_, attempts=message.number("retries"))
    if not message.body_holds(b'"task"', b'"id"', b'"args"', b'"kwargs"', b'"retries"'):
        return None
    body = message.json
    task, id_ = name_of(body.get("task")), name_of(body.get("id"))
    if not (task and id_ and isinstance(body.get("args"), list) and isinstance(body.get("kwargs"), dict)):
        return None
    return ForeignLetter(framework=NAME, task=task, id=id_, attempts=number_of(body.get("retries")))
