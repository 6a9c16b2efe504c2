# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages of Dramatiq, whose body is a JSON object, and whose dead letters lie in queues named `….XQ`. Pure.

The options of a message hold the traceback of its last retry. A message that failed for the last time is rejected as
the worker received it, so the traceback is that of the failure before the last, and `retries` counts up to there.

Sources: dramatiq/message.py, dramatiq/middleware/retries.py, dramatiq/brokers/rabbitmq.py, dramatiq/common.py
"""

from __future__ import annotations

from .foreign import STACK_CHARS, ForeignLetter, ForeignMessage, name_of, number_of, queue_of, text_of
from .stacks import PrintedStack

NAME = "Dramatiq"
DEAD, DELAYED = ".XQ", ".DQ"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message of Dramatiq, or None."""
    if not message.body_holds(b'"actor_name"', b'"queue_name"', b'"message_id"'):
        return None
    body = message.json
    actor, queue, options = name_of(body.get("actor_name")), name_of(body.get("queue_name")), body.get("options")
    if not (actor and queue and isinstance(options, dict) and isinstance(body.get("args"), list)):
        return None
    dead = message.queue.endswith(DEAD)
    stack = PrintedStack.parse(text_of(options.get("traceback"), STACK_CHARS))
    return ForeignLetter(
        framework=NAME,
        dead=dead,
        source=queue_of(message.queue.removesuffix(DEAD) if dead else queue.removesuffix(DELAYED)),
        task=actor,
        id=name_of(body.get("message_id")),
        attempts=number_of(options.get("retries")) + dead,
        error_type=stack.type if stack else "",
        error_message=stack.message if stack else "",
        stack=stack,
    )
