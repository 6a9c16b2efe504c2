# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads from the managements what brokers themselves do with messages that come back too often. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redeliver_mw.adapter.capabilities import BrokerLimit, Trust

ATTEMPTS = 10  # Artemis, where `max-delivery-attempts` is not set


def unread(why: str) -> BrokerLimit:
    return BrokerLimit(trust=Trust.UNKNOWN, why=why)


def artemis_limit(settings: Mapping[str, Any], *, kept: bool) -> BrokerLimit:
    """Return the limit of an address from its settings. The broker shows only settings that are set.

    The message goes with its last counted return: to the dead-letter address if it is `kept` there, else nowhere.
    """
    attempts = settings.get("maxDeliveryAttempts", ATTEMPTS)
    if not isinstance(attempts, int) or attempts <= 0:
        return BrokerLimit()
    return BrokerLimit(
        returns=attempts,
        dead_letter_to=settings["deadLetterAddress"] if kept else "",
        spelled=f"max-delivery-attempts {attempts}",
    )


def rabbit_limit(queue: Mapping[str, Any]) -> BrokerLimit:
    """Return a queue's limit from its type and arguments; the broker does not show policies, which may change it."""
    if queue.get("type") != "quorum":
        return BrokerLimit()
    arguments = queue.get("arguments") or {}
    limit = arguments.get("x-delivery-limit")
    if not isinstance(limit, int):
        return unread(
            f"{queue.get('name')} has none of its own, and what a policy or the default gives it is not known"
        )
    if limit < 0:
        return BrokerLimit()
    exchange = arguments.get("x-dead-letter-exchange")
    timeout = arguments.get("x-consumer-timeout")
    return BrokerLimit(
        returns=limit + 1,
        dead_letter_to=f"the exchange {str(exchange)!r}" if exchange else "",
        spelled=f"x-delivery-limit {limit}",
        ack_timeout=timeout / 1000 if isinstance(timeout, int) else None,
    )
