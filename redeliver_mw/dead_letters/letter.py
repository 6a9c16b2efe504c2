# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads where a message in a dead-letter queue was consumed from, and why it is there. Pure.

Three kinds of evidence make a dead letter: our header `redeliver_reason`, the marks of a broker that dead-lettered the
message itself, and those of another framework that put the message aside. `original-destination` alone is no evidence:
ActiveMQ's virtual topics put that header on healthy messages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ..adapter.capabilities import Capabilities
from ..message import Delivery, Destination
from ..redelivery.headers import PREFIX, AttemptHistory, read_history
from .frameworks import ForeignLetter, marks_of

Evidence = Literal["ours", "broker", "framework", ""]
NO_LETTER = "no dead letter: no original destination"
_NOBODYS = ForeignLetter(framework="")


class DeadLetterInfo(NamedTuple):
    """Describes one letter without its body.

    `source` is None if it is not known where to send the letter; see `problem`.
    """

    id: str  # our copy id, the message id, or a hash of the contents; letters may share one
    source: Destination | None  # the queue or subscription it was consumed from
    evidence: Evidence  # the kind of evidence that `source` comes from
    problem: str = ""  # why it cannot be sent back; empty when it can
    reason: str = ""  # the header `redeliver_reason` (docs/headers.md), the broker's reason or the framework's
    framework: str = ""  # the framework whose message it is, such as `Celery`; empty if none is recognised
    task: str = ""  # the framework's name of the task, or the type of the message
    failures: int = 0
    error_type: str = ""
    error_message: str = ""
    fingerprint: str = ""  # the same for the same failure; computed from a framework's own stack; empty if unknown
    since: float | None = None  # last failure in seconds since 1970; brokers do not give the time of dead-lettering
    original_message_id: str | None = None
    generation: int = 0  # how often it has been replayed
    replay_id: str = ""  # of the last replay
    body_bytes: int = 0
    history_text: str = ""  # the header `redeliver_history`

    @property
    def history(self) -> AttemptHistory:
        """Return the last attempts, oldest first."""
        return read_history(self.history_text)


def letter_of(delivery: Delivery, capabilities: Capabilities) -> DeadLetterInfo:
    """Return the description of a letter. Never raises for headers that another program wrote."""
    headers = delivery.headers
    reason = _text(headers, "reason")
    death, foreign = marks_of(delivery) if not reason else (None, None)
    evidence: Evidence = "ours" if reason else "broker" if death else "framework" if foreign and foreign.dead else ""
    source = _source_of_ours(headers, capabilities) if reason else death.source if death else None
    if foreign and evidence == "framework":
        source = foreign.source
    # A retry copy that the broker dead-lettered still has our count. Headers that a handler forwarded from elsewhere do
    # not belong to this message.
    counted = evidence == "ours" or (source is not None and _text(headers, "failures_for") == source.full_name)
    own_id = _text(headers, "original_message_id") if evidence else ""
    theirs = foreign if foreign and not counted else _NOBODYS
    return DeadLetterInfo(
        id=_id(delivery, headers, capabilities, theirs.id),
        source=source,
        evidence=evidence,
        problem=_problem(delivery, evidence, source, theirs.problem),
        reason=reason or (death.reason if death else theirs.reason),
        framework=foreign.framework if foreign else "",
        task=foreign.task if foreign else "",
        failures=_number(headers, "failures") if counted else theirs.attempts,
        error_type=_text(headers, "error_type") if counted else theirs.error_type,
        error_message=_text(headers, "error_message") if counted else theirs.error_message,
        fingerprint=_text(headers, "error_fingerprint") if counted else theirs.fingerprint,
        since=_since(headers) if counted else theirs.since,
        original_message_id=own_id or delivery.message_id,
        generation=_number(headers, "generation") if evidence else 0,
        replay_id=_text(headers, "replay_id") if evidence else "",
        body_bytes=len(delivery.body),
        history_text=_text(headers, "history") if counted else "",
    )


def _problem(delivery: Delivery, evidence: Evidence, source: Destination | None, unknown: str) -> str:
    if not evidence or source is None:
        return (unknown if evidence == "framework" else "") or NO_LETTER
    if source == delivery.destination:
        return "it was consumed from this very queue"
    if source.kind == "topic" and not source.subscription:
        return f"{source} names no subscription: all of them would get it again"
    return ""


def _source_of_ours(headers: Mapping[str, Any], capabilities: Capabilities) -> Destination | None:
    """Return the source from our own headers.

    Parts that they omit come from the address that a plain client sends to.
    """
    name, kind = _text(headers, "original_destination"), _text(headers, "original_kind") or "queue"
    address = _plain(headers.get("original-destination", ""))
    if kind == "topic":
        return _subscription(name, _text(headers, "failures_for"), address, capabilities)
    return Destination(name) if name else _parsed(address, capabilities)


def _subscription(name: str, counted_for: str, address: str, capabilities: Capabilities) -> Destination | None:
    topic, _, subscription = counted_for.partition("::")
    if subscription and topic == name:
        return Destination(topic, "topic", subscription)
    words = _words(capabilities.subscription_address, address)
    if words and (words.get("name") or name) and words["subscription"] != name:
        return Destination(words.get("name") or name, "topic", words["subscription"])
    queue = _words(capabilities.queue_address, address)
    if queue and queue["name"] != name and capabilities.queue_address != capabilities.topic_address:
        return Destination(queue["name"])  # a queue that stands for the subscription, without a name of its own
    return Destination(name, "topic") if name else None


def _parsed(address: str, capabilities: Capabilities) -> Destination | None:
    """Return the destination of an `original-destination`; a queue where both kinds are possible."""
    if not address:
        return None
    if words := _words(capabilities.queue_address, address):
        return Destination(words["name"])
    words = _words(capabilities.topic_address, address)
    return Destination(words["name"], "topic") if words else None


def _words(template: str, address: str) -> dict[str, str] | None:
    """Return the values of a template's places, as in `/queue/{name}`; None if the address has another form."""
    pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(template))
    found = re.fullmatch(pattern, address, re.DOTALL)
    return found.groupdict() if found else None


def _id(delivery: Delivery, headers: Mapping[str, Any], capabilities: Capabilities, framework_id: str) -> str:
    if known := _text(headers, "copy_id") or delivery.message_id or framework_id:
        return known
    # Leave out what changes between two looks at the same letter.
    kept = {name: value for name, value in headers.items() if name not in capabilities.strip}
    seed = f"{delivery.destination}\0{sorted(kept.items(), key=repr)!r}\0".encode("utf-8", "backslashreplace")
    return hashlib.sha256(seed + delivery.body).hexdigest()[:32]


def _since(headers: Mapping[str, Any]) -> float | None:
    try:
        when = datetime.fromisoformat(_text(headers, "last_failed_at"))
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _number(headers: Mapping[str, Any], name: str) -> int:
    text = _text(headers, name)
    return min(int(text), 2**31 - 1) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _text(headers: Mapping[str, Any], name: str) -> str:
    value = headers.get(PREFIX + name, "")
    return value if type(value) is str else _plain(value)


def _plain(value: Any) -> str:
    if type(value) is str:
        return value
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
