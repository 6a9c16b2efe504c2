# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Recognises dead letters of other frameworks: which one wrote a message, where it came from, and what failed. Pure.

Each module reads one framework and has one function `read`, which returns a `ForeignLetter`, or None for a message of
another origin. Headers and bodies are another program's: they may hold anything, and no reader raises for them.
"""

from __future__ import annotations

import re

from ...adapter.capabilities import Capabilities
from ...message import Death, Delivery, Destination, Outgoing
from ...redelivery.copies import replay_copy
from ...redelivery.headers import PREFIX
from . import camel, celery, dramatiq, masstransit, nservicebus, spring, taskiq
from .foreign import ForeignLetter, ForeignMessage, ForeignReader

__all__ = ["READERS", "ForeignLetter", "ForeignMessage", "marks_of", "recognise", "sent_back"]

READERS: tuple[ForeignReader, ...] = (
    masstransit.read,  # before NServiceBus: ServiceControl's connector puts headers of both on a message of MassTransit
    nservicebus.read,
    spring.read,
    celery.read,
    dramatiq.read,
    taskiq.read,
    camel.read,
)

# Queues in which a framework lets healthy messages wait. A message that expired there was moved on, and is not dead.
_DELAY_QUEUES = re.compile(r"celery_delayed_\d+|nsb\.(?:v\d+\.)?delay-level-\d+")


def recognise(delivery: Delivery) -> ForeignLetter | None:
    """Return what the framework wrote on a message; None if no reader recognises it. Never raises."""
    message = ForeignMessage(delivery)
    return next((found for read in READERS if (found := read(message)) is not None), None)


def marks_of(delivery: Delivery) -> tuple[Death | None, ForeignLetter | None]:
    """Return the broker's marks as far as they tell of a death, and what the framework wrote on the message.

    There are no marks where the framework put the message aside later than the broker moved it: a framework's copy may
    carry the marks of the delays before it. A queue that *rejected* a message was its last consumer, whichever
    framework had it before. For a dead letter of ours both are None.
    """
    if f"{PREFIX}reason" in delivery.headers:
        return None, None
    found, death = recognise(delivery), delivery.reader.death(delivery.native)
    if death is not None and death.reason == "expired":
        delay = _DELAY_QUEUES.fullmatch(death.source.name) is not None
        death = None if delay or (found is not None and found.dead) else death
    return death, found


def sent_back(
    delivery: Delivery,
    source: Destination,
    capabilities: Capabilities,
    *,
    replay_id: str,
    lineage: str,
    known_as: str | None = None,
) -> Outgoing:
    """Return a dead letter as it is replayed.

    If its framework put it aside, the headers are left out that the framework's own tool would leave out. The arguments
    are those of `replay_copy`. Raises NotCopyable as for other copies.
    """
    death, found = marks_of(delivery)
    return replay_copy(
        delivery,
        source,
        capabilities,
        replay_id=replay_id,
        lineage=lineage,
        known_as=known_as,
        without=found.drops if found and death is None else (),
    )
