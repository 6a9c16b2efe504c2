# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads messages of NServiceBus, which sends failed ones to a queue that is named `error` by default. Pure.

`NServiceBus.FailedQ` names the queue that the message was consumed from. A replay leaves out the headers that
ServiceControl removes when it retries a message.

Sources: https://docs.particular.net/nservicebus/messaging/headers, ExceptionHeaderHelper.cs in NServiceBus, and
src/ServiceControl/Recoverability/Retrying/HeaderFilter.cs in github.com/Particular/ServiceControl
"""

from __future__ import annotations

from datetime import UTC, datetime

from .foreign import ForeignLetter, ForeignMessage, queue_of

NAME = "NServiceBus"
FAILED, INFO = "NServiceBus.FailedQ", "NServiceBus.ExceptionInfo."
DROPPED = (
    "NServiceBus.Retries",
    FAILED,
    "NServiceBus.TimeOfFailure",
    INFO,
    "NServiceBus.Timeout.Expire",
    "ServiceControl.EditOf",
)  # beginnings of names


def read(message: ForeignMessage, /) -> ForeignLetter | None:
    """Return a message of NServiceBus, or None."""
    if not message.has(FAILED, "NServiceBus.EnclosedMessageTypes", "NServiceBus.MessageId"):
        return None
    dead = bool(message.name(FAILED))
    return ForeignLetter(
        framework=NAME,
        dead=dead,
        source=queue_of(message.name(FAILED)),
        task=message.name("NServiceBus.EnclosedMessageTypes").partition(",")[0].partition(";")[0],
        id=message.name("NServiceBus.MessageId") or message.message_id,
        since=_failed_at(message.name("NServiceBus.TimeOfFailure")),
        error_type=message.name(f"{INFO}ExceptionType"),
        error_message=message.error(f"{INFO}Message"),
        stack=message.stack(f"{INFO}StackTrace"),
        drops=tuple(name for name in message.headers if name.startswith(DROPPED)) if dead else (),
    )


def _failed_at(text: str) -> float | None:
    """Return the time of a text such as `2026-01-01 12:00:00:123456 Z`, in seconds since 1970."""
    try:
        return datetime.strptime(text, "%Y-%m-%d %H:%M:%S:%f Z").replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
