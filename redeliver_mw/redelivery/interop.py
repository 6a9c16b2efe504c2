# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads from a message, and writes on it, what another system would, if the policy is in that system's language.

- **jmsjca**: a handler reads `_JMSJCA_RedeliveryCount`, and may set `_JMSJCA_RedeliveryHandling`,
  `_JMSJCA_UserRollbackData…` and `_JMSJCA_StopMessageDelivery`; a moved message carries `_JMSJCA_…` and
  `JMS_Sun_JMSJCA_…`.
- **weblogic**: the sender's own limit, `JMS_BEA_RedeliveryLimit`; the log line of an expired message.
- **patchbay**: the sender's delivery date.

Sources: JMSJCA's user's guide and program, WebLogic's messaging API, ATG's guide to Patch Bay. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..errors import PolicyError
from ..failure import Failure
from ..message import Delivery, Destination
from ..policy import RedeliveryPolicy
from ..redaction import clean, redact, trim_utf8

JMSJCA = ("_JMSJCA_", "JMS_Sun_JMSJCA_")  # the name of a property of a moved message, and the older name
HANDLING = "_JMSJCA_RedeliveryHandling"
ROLLBACK_DATA = "_JMSJCA_UserRollbackData"
STOP = "_JMSJCA_StopMessageDelivery"
COUNT = "_JMSJCA_RedeliveryCount"
DELIVERY_TIME = "JMS_BEA_DeliveryTime"  # milliseconds since 1970, if the sender gave WebLogic a time
TRACE_BYTES = 2048
OWN_POLICIES = ("jmsjca", "weblogic")  # the languages in which a handler or a sender may change the policy of a message
DATED = "patchbay"  # the language whose messages may have a delivery date
LINE_BYTES = 8192  # of the log line of an expired message


def own_policy(policy: RedeliveryPolicy, delivery: Delivery, state: Mapping[str, str]) -> RedeliveryPolicy:
    """Return the policy of this one message, with what its handler or sender set, if the language supports that."""
    if policy.language == "jmsjca" and (text := state.get(HANDLING)) is not None:
        return _handling(text) or policy
    if policy.language == "weblogic":
        return _senders(policy, delivery)
    return policy


def _senders(policy: RedeliveryPolicy, delivery: Delivery) -> RedeliveryPolicy:
    from ..policy.formats.weblogic import reader  # already loaded if such a policy has been read

    if (limit := _whole(_headers(delivery).get(reader.SENDERS_LIMIT))) is not None:
        return reader.with_senders_limit(policy, limit)
    return policy


def is_dated(delivery: Delivery) -> bool:
    """Return whether the sender gave the message a delivery date. Asked where the policy's language is `DATED`."""
    from ..policy.formats.patchbay import reader  # already loaded if such a policy has been read

    return reader.DELIVERY_DATE in _headers(delivery)


def delay_until_due(delivery: Delivery, now: float) -> float:
    """Return the seconds until the sender's delivery date, 0 without one; `now` is wall time, seconds since 1970.

    Asked where the policy's language is `DATED`.
    """
    if not is_dated(delivery):
        return 0.0
    from ..policy.formats.patchbay import reader

    return reader.delay_until_due({reader.DELIVERY_DATE: _whole(delivery.headers[reader.DELIVERY_DATE])}, now)


def jmsjca_dead_letter_headers(
    delivery: Delivery, source: Destination, failures: int, failure: Failure | None, original: Mapping[str, str]
) -> dict[str, str]:
    """Return the headers that JMSJCA writes on a moved message: each property under its new and old name, none empty.

    The values are strings, which a JMS client may read as numbers. `original` holds `redeliver_original_*` as first
    seen.
    """
    us = delivery.properties.timestamp_us
    found = {
        "RedeliveryCount": str(failures),
        "OriginalDestinationName": source.name,
        "OriginalDestinationType": f"javax.jms.{source.kind.capitalize()}",
        "OriginalTimestamp": "" if us is None else str(us // 1000),
        "OriginalJMSMessageID": original.get("redeliver_original_message_id", ""),
        "OriginalJMSCorrelationID": original.get("redeliver_original_correlation_id", ""),
        "SubscriberName": source.subscription,
    }
    if failure is not None:
        found["ExceptionClass"] = failure.type
        found["ExceptionMessage"] = trim_utf8(failure.message, TRACE_BYTES)
        found["ExceptionStackTrace"] = trim_utf8(failure.text, TRACE_BYTES)
    for name, text in delivery.past.state.items():
        if name.startswith(ROLLBACK_DATA):
            found[name.removeprefix(JMSJCA[0])] = text
    return {start + name: text for name, text in found.items() if text for start in JMSJCA}


def expired_line(policy: RedeliveryPolicy, delivery: Delivery) -> str:
    """Return the log line for an expired message that is dropped; empty if the policy does not ask for one."""
    if policy.expiry.action != "log":
        return ""
    properties = {**delivery.headers, "JMSXDeliveryCount": delivery.past.failures + 1}
    logged = policy.expiry.logged(_jms_headers(delivery, policy), properties)
    text = ", ".join(f"{name}={_text(value)}" for name, value in logged.items() if value is not None)
    return trim_utf8(f"{delivery.destination}: an expired message is dropped: {redact(clean(text))}", LINE_BYTES)


class JmsjcaProperties:
    """Offers the properties through which a handler talks to JMSJCA: `delivery.headers["_JMSJCA_…"]`, while it runs.

    `begin` is called before a run and `ended` after it, on the thread of that run. Between them the handler reads
    `_JMSJCA_RedeliveryCount` (an int, F before this run) and the strings that it kept, and may set: a redelivery string
    for this message from now on, strings to keep between attempts, a true value to stop the delivery of messages. The
    values that it set are its `state` afterwards, and copies carry them like any state; the headers are restored.
    `begun` are the runs in progress: what stood in the headers before.
    """

    def __init__(self) -> None:
        self.begun: dict[Delivery, dict[str, Any]] = {}

    def begin(self, delivery: Delivery) -> None:
        headers = _headers(delivery)
        self.begun[delivery] = {name: value for name, value in headers.items() if name.startswith(JMSJCA[0])}
        for name in self.begun[delivery]:
            del headers[name]
        headers[COUNT] = delivery.failures
        if delivery.known:
            headers.update((n, text) for n, text in delivery.past.state.items() if n.startswith(JMSJCA[0]))

    def ended(self, delivery: Delivery) -> tuple[bool, str]:
        """Return whether the handler asked to stop, and what is wrong with the string that it set, if anything is."""
        if (before := self.begun.pop(delivery, None)) is None:
            return False, ""
        headers = _headers(delivery)
        given = {name: headers.pop(name) for name in list(headers) if name.startswith(JMSJCA[0])}
        headers.update(before)
        wrong = ""
        if (text := given.get(HANDLING)) is not None and _handling(str(text)) is None:
            wrong = str(given.pop(HANDLING))
        kept = {name: str(value) for name, value in given.items() if name == HANDLING or name.startswith(ROLLBACK_DATA)}
        if kept:
            delivery.state.update(kept)
        return _is_true(given.get(STOP)), wrong


def _headers(delivery: Delivery) -> dict[str, Any]:
    """Return the headers, or none if they cannot be read, because the callers must not raise."""
    try:
        return delivery.headers
    except Exception:
        return {}


@lru_cache(maxsize=256)
def _handling(text: str) -> RedeliveryPolicy | None:
    try:
        return RedeliveryPolicy.parse(text, "jmsjca")
    except PolicyError:
        return None


def _jms_headers(delivery: Delivery, policy: RedeliveryPolicy) -> dict[str, object]:
    """Return the standard headers and WebLogic's own by their JMS names, as far as they are known here.

    Times are in milliseconds. JMSDeliveryTime is the time of sending for a message that was sent without a delay.
    """
    p = delivery.properties
    sent = None if p.timestamp_us is None else p.timestamp_us // 1000
    later = _whole(_headers(delivery).get(DELIVERY_TIME))
    return {
        "JMSMessageID": delivery.message_id,
        "JMSCorrelationID": delivery.correlation_id,
        "JMSDestination": str(delivery.destination),
        "JMSTimestamp": sent,
        "JMSDeliveryMode": None if p.persistent is None else "PERSISTENT" if p.persistent else "NON_PERSISTENT",
        "JMSDeliveryTime": sent if later is None else later,
        "JMSRedeliveryLimit": -1 if policy.dead_after is None else policy.dead_after - 1,
        "JMSExpiration": None if p.expires_at_us is None else p.expires_at_us // 1000,
        "JMSPriority": p.priority,
        "JMSReplyTo": p.reply_to,
        "JMSType": p.type,
        "JMSRedelivered": delivery.redelivered,
    }


def _text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _whole(value: object) -> int | None:
    """Return a whole number as the broker passes it: STOMP has only text."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    if isinstance(value, str):
        digits = value.removeprefix("-")
        return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    return value


def _is_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")
