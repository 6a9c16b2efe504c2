# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes ActiveMQ Classic behind stomp.py: what it can do, how it names things, what it does not take. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange, Trust
from redeliver_mw.message import Destination
from redeliver_stomp.broker_verbs import TRIED, UNTRIED, verbs

LINE_BYTES = 10_200  # of one header line; the broker closes the connection a little above
HEADERS_MAX = 990  # on one frame, the protocol's own included; 999 were seen to pass
# A value may double its size by escapes: this many bytes always fit in a line.
VALUE_BYTES = 5_000
NAME_BYTES = 3_000  # of a destination: as a private queue's name it may take three times as many
HEADER_BYTES = 256_000  # nothing that the broker counts; several times as much was seen to pass
TICK = 0.5  # of the broker's scheduler, seconds: a copy starts its wait at the next one
NOT_SCHEDULED = "AMQ_SCHEDULED_DELAY"  # still on a message that arrives: nobody waited
SCHEDULED = "scheduledJobId"
# What frames say for themselves, and what the broker made of a message: never a header of a copy.
FRAME_HEADERS = frozenset(
    {
        "destination",
        "subscription",
        "message-id",
        "ack",
        "content-length",
        "content-type",
        "content-encoding",
        "correlation-id",
        "reply-to",
        "type",
        "priority",
        "expires",
        "timestamp",
        "persistent",
        "redelivered",
        "receipt",
        "transaction",
        "JMSXUserID",
    }
)
STRIP = frozenset(
    {
        "destination",
        "subscription",
        "message-id",
        "ack",
        "content-length",
        "expires",
        "persistent",
        "redelivered",
        "receipt",
        "receipt-id",
        "transaction",
        "selector",
        "transformation",
        "transformation-error",
        "scheduledJobId",
        "redeliveryDelay",
        "originalExpiration",
        "originalDeliveryMode",
        "JMSXDeliveryCount",
        "JMSXUserID",
        "JMSXGroupID",
        "JMSXGroupSeq",
        "JMSXGroupFirstForConsumer",
        "_AMQ_DUPL_ID",
        "browser",
    }
)
STRIP_PREFIXES = ("AMQ_SCHEDULED_",)
ORIGINAL = "original-destination"
MESSAGE_TYPE = "amq-msg-type"  # text or bytes, whatever the content-length says; kept on the message
CAUSE = "dlqDeliveryFailureCause"
PRIVATE_PREFIX = "redeliver.retry."  # of the queue that belongs to one durable subscription
_KINDS = {"/queue/": "queue", "/topic/": "topic", "/temp-queue/": "queue", "/remote-temp-queue/": "queue"}
_PLAIN = re.compile(r"[^A-Za-z0-9_.$/-]")


def capabilities(version: str, *, scheduler: bool, dialect: str = "activemq+stomp") -> Capabilities:
    """Return the record of one broker; `scheduler`: it was seen to delay a message."""
    return Capabilities(
        dialect=dialect,
        broker_kind="activemq",
        broker_version=version,
        honours=frozenset({"accepted"}),
        atomic_move=True,
        atomic_schedule=False,  # inside a transaction the job is stored after the commit
        schedule=ScheduleRange(smallest=1.0, lateness=TICK) if scheduler else None,
        exact_headers=True,
        header_bytes=HEADER_BYTES,
        value_bytes=VALUE_BYTES,
        browse="copy",
        depth=True,
        count="flag",
        strip=STRIP,
        strip_prefixes=STRIP_PREFIXES,
        selectors=True,
        shows_group=False,
        marks_returns=False,  # a broker that was killed has forgotten
        queue_address="/queue/{name}",
        topic_address="/topic/{name}",
        subscription_address=f"/queue/{PRIVATE_PREFIX}{{name}}.{{subscription}}",
        death_marks={CAUSE: "{cause}"},
        trust={"schedule": Trust.PROBED},
        verbs=verbs(version),
    )


def records() -> tuple[Capabilities, ...]:
    """Return the record of each version that was tried, and one of all others; for the table of verbs."""
    return tuple(capabilities(version, scheduler=True) for version in (*TRIED, *UNTRIED))


def version_of(headers: Mapping[str, str]) -> str:
    """Return the version in a CONNECTED frame; empty for 5.x releases, which send a placeholder."""
    product, _, version = headers.get("server", "").partition("/")
    return version if product == "ActiveMQ" and version[:1].isdigit() else ""


def other_product(headers: Mapping[str, str]) -> str:
    """Return the product that a CONNECTED frame names, if not ActiveMQ Classic: its verbs would mean something else."""
    product = headers.get("server", "").partition("/")[0]
    return "" if product in ("ActiveMQ", "") else product


def private_queue(source: Destination) -> str:
    """Return the queue of one durable subscription, where its retries go and nobody else's messages."""
    return PRIVATE_PREFIX + ".".join(_spelled(part) for part in (source.name, source.subscription))


def client_id(source: Destination) -> str:
    """Return the client id of a durable subscription; one connection at a time may have it."""
    return "redeliver." + ".".join(_spelled(part) for part in (source.name, source.subscription))


def _spelled(name: str) -> str:
    """Return a name with `%XX` for wildcards and whatever else a queue's name cannot hold."""
    return _PLAIN.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def address(target: Destination) -> str:
    """Return where a copy for `target` is sent: a subscription's goes to its private queue."""
    if target.subscription:
        return f"/queue/{private_queue(target)}"
    return f"/{target.kind}/{target.name}"


def problem(target: Destination) -> str:
    """Return why nothing can be sent to `target`; the text is empty if something can."""
    name = target.name
    if not name.strip():
        return "a destination needs a name"
    if len(name.encode()) + len(target.subscription) > NAME_BYTES:
        return f"a name of more than {NAME_BYTES} bytes: {name[:40]!r}…"
    if target.subscription:
        return ""  # its private queue has a name of ours
    if "," in name:
        return f"{name!r} names several destinations at once"
    if any(part in ("*", ">") for part in name.split(".")):
        return f"{name!r} is a pattern: nothing can be sent to it"
    if "\n" in name or "\r" in name or "\0" in name or "?" in name:
        return f"{name!r} holds a character that ActiveMQ does not take in a name"
    return ""


def destination_of(text: str) -> Destination | None:
    """Read `/queue/x` and `/topic/x`, and the temporary ones; return None for a text that is none of these."""
    for prefix, kind in _KINDS.items():
        if text.startswith(prefix) and len(text) > len(prefix):
            return Destination(text[len(prefix) :], "topic" if kind == "topic" else "queue")
    return None
