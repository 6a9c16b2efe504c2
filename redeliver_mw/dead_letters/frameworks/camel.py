# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages of Apache Camel, as far as its headers reach the broker. Pure.

Camel's dead letter channel keeps the exception, the endpoint and the route of a failure as properties of the exchange,
which stay in the process. They are on a message only if a route, or an `onPrepareFailure`, has copied them into
headers; with the names of the properties they are read here. Camel never writes the queue that it consumed from.

Source: https://camel.apache.org/components/next/eips/dead-letter-channel.html, and `Exchange` in Camel's API
"""

from __future__ import annotations

from .foreign import ForeignLetter, ForeignMessage, text_of
from .stacks import PrintedStack

NAME = "Camel"
FAILURE = ("CamelFailureEndpoint", "CamelFailureRouteId", "CamelExceptionCaught", "CamelExceptionStackTrace")
REDELIVERY = ("CamelRedelivered", "CamelRedeliveryCounter", "CamelRedeliveryMaxCounter")
NO_SOURCE = "Camel does not write the queue that it was consumed from"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message of Camel, or None."""
    dead = message.has(*FAILURE)
    if not dead and not message.has(*REDELIVERY):
        return None
    # An exception that became a header is its own text: the type, a colon, the message, perhaps the stack.
    caught = text_of(message.headers.get("CamelExceptionCaught"))
    raised = PrintedStack.parse(caught)
    return ForeignLetter(
        framework=NAME,
        dead=dead,
        problem=NO_SOURCE,
        task=message.name("CamelFailureRouteId"),
        id=message.message_id,
        attempts=message.number("CamelRedeliveryCounter") + dead,
        error_type=raised.type if raised else "",
        error_message=raised.message if raised else "",
        stack=message.stack("CamelExceptionStackTrace") or raised,
    )
