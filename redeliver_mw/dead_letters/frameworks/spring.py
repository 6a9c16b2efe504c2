# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages that Spring AMQP republished after a failure, also through Spring Cloud Stream. Pure.

`RepublishMessageRecoverer` writes the exchange and the routing key, and no queue. The queue is known if the message
came through the default exchange, where the routing key is its name, and from the dead-letter queues of Spring Cloud
Stream, which are named `….dlq`. Spring has no tool that sends messages back; the programs in its documentation keep
the headers, and so does a replay. The next failure writes them anew.

Sources: RepublishMessageRecoverer.java in github.com/spring-projects/spring-amqp, and
https://docs.spring.io/spring-cloud-stream/reference/rabbit/rabbit_dlq.html
"""

from __future__ import annotations

from ...message import Destination
from .foreign import ForeignLetter, ForeignMessage, queue_of
from .stacks import PrintedStack

NAME = "Spring AMQP"
STACK, MESSAGE = "x-exception-stacktrace", "x-exception-message"
EXCHANGE, KEY = "x-original-exchange", "x-original-routingKey"
SUFFIX = ".dlq"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message that Spring AMQP republished, or None."""
    if not (message.has(STACK, MESSAGE) and message.has(EXCHANGE, KEY)):
        return None
    stack = message.stack(STACK)
    source = _source(message)
    return ForeignLetter(
        framework=NAME,
        dead=True,
        source=source,
        problem="" if source else _unknown(message),
        task=message.name("__TypeId__"),
        id=message.message_id,
        error_type=_type(stack),
        error_message=message.error(MESSAGE) or (stack.message if stack else ""),
        stack=stack,
    )


def _source(message: ForeignMessage) -> Destination | None:
    if EXCHANGE in message.headers and message.headers[EXCHANGE] in ("", b"", None):
        return queue_of(message.name(KEY))
    return queue_of(message.queue.removesuffix(SUFFIX)) if message.queue.endswith(SUFFIX) else None


def _unknown(message: ForeignMessage) -> str:
    return (
        f"{NAME} wrote the exchange {message.name(EXCHANGE)!r} and the routing key {message.name(KEY)!r}, "
        "but not the queue that it was consumed from"
    )


def _type(stack: PrintedStack | None) -> str:
    """Return the type that the message header is about: that of the cause, where there is one.

    The raised exception is a wrapper of Spring's own.
    """
    return (stack.cause_type or stack.type) if stack else ""
