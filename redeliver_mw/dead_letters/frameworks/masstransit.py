# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages of MassTransit, which sends failed ones to `…_error` and unhandled ones to `…_skipped`. Pure.

The error is in headers `MT-Fault-…`, and `MT-Reason` is `fault` or `dead-letter`. A replay keeps these headers, as
Particular's ServiceControl connector for MassTransit does: MassTransit writes them anew at the next failure.

Sources: MassTransit.Abstractions/MessageHeaders.cs; `SetExceptionHeaders` in MassTransit; MassTransitFailureAdapter.cs
and MassTransitConverter.cs in github.com/Particular/ServiceControl.Connector.MassTransit
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from ...message import Destination
from .foreign import ForeignLetter, ForeignMessage, name_of, queue_of, text_items

NAME = "MassTransit"
ENVELOPE = "application/vnd.masstransit"
SUFFIXES = ("_error", "_skipped")
REASON, INPUT, TYPE, MESSAGE = "MT-Reason", "MT-Fault-InputAddress", "MT-Fault-ExceptionType", "MT-Fault-Message"
_URN = "urn:message:"


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message of MassTransit, or None."""
    marked = message.has(REASON, TYPE, MESSAGE)
    # The content type is asked for last: that decodes all properties of a message.
    envelope = message.body_holds(b'"messageType"') and message.content_type.startswith(ENVELOPE)
    if not (marked or envelope):
        return None
    dead = marked or message.queue.endswith(SUFFIXES)
    fault = message.has(TYPE, MESSAGE)
    body = message.json if envelope else {}
    types = text_items(body.get("messageType"))
    return ForeignLetter(
        framework=NAME,
        dead=dead,
        source=_source(message) if dead else None,
        reason=message.name(REASON),
        task=message.name("MT-Fault-MessageType") or (types[0].removeprefix(_URN).replace(":", ".") if types else ""),
        id=name_of(body.get("messageId")) or message.message_id,
        attempts=(message.number("MT-Fault-RetryCount") + 1) if fault else 0,
        since=message.time("MT-Fault-Timestamp"),
        error_type=message.name(TYPE),
        error_message=message.error(MESSAGE),
        stack=message.stack("MT-Fault-StackTrace"),
    )


def _source(message: ForeignMessage) -> Destination | None:
    """Return the queue at the end of the input address, such as `rabbitmq://host/vhost/orders?durable=true`.

    Without an address, the queue is the one that the error queue is named after.
    """
    address = message.name(INPUT).partition("?")[0]
    if queue := queue_of(unquote(re.split(r"[/:]", address)[-1])):
        return queue
    named = next((message.queue.removesuffix(s) for s in SUFFIXES if message.queue.endswith(s)), "")
    return queue_of(named)
