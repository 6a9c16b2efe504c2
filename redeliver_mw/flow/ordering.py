# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes order by key: by which key a handler's messages stay in order, and how strictly.

`key_lanes.py` implements it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..adapter.capabilities import Capabilities
from ..callables import check_plain
from ..errors import ConfigError
from ..message import Delivery, Destination
from ..redelivery.delays import ACK_TIMEOUT_SHARE

GROUP = "JMSXGroupID"  # as a key, also the broker's own group of a message
LONGEST = 90.0  # seconds: the default policy gives a message up after 63

Overflow = Literal["park", "skip"]


@dataclass(frozen=True, slots=True)
class Order:
    """Says by which key messages stay in order, and how strictly. Raises ConfigError if invalid.

    `key`: the name of a header, "JMSXGroupID", or a function of the delivery. Messages without a key, or for which the
    function raises, have no order. Behind a retrying message at most `max_waiting` messages of its key wait (None: as
    many as there is room for, which is half of the prefetch window for all keys), each for at most `max_wait` seconds.
    Messages beyond that are parked (`overflow="park"`, the default with a limbo), or run before the retrying message
    (`overflow="skip"`).
    """

    key: str | Callable[[Delivery], Hashable]
    max_waiting: int | None = field(default=None, kw_only=True)
    max_wait: float | None = field(default=None, kw_only=True)
    overflow: Overflow | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not (callable(self.key) or (isinstance(self.key, str) and self.key)):
            raise _wrong("key", self.key, "neither the name of a header nor a function of a delivery", 'key="customer"')
        if callable(self.key):
            check_plain(self.key, "key")
        if self.max_waiting is not None and not _is_count(self.max_waiting):
            raise _wrong("max_waiting", self.max_waiting, "no whole number from 1 on", "max_waiting=20")
        if self.max_wait is not None and not _is_time(self.max_wait):
            raise _wrong("max_wait", self.max_wait, "no number of seconds above 0", "max_wait=60.0")
        if self.overflow not in (None, "park", "skip"):
            raise _wrong("overflow", self.overflow, "unknown", 'overflow="park" or overflow="skip"')

    @classmethod
    def meant(cls, given: Any) -> Order | None:
        """Return the order of `App.handler(key=…)`, which takes an Order, or a key alone."""
        return given if given is None or isinstance(given, Order) else cls(given)

    def at(self, source: Destination, capabilities: Capabilities, ack_timeout: float | None, *, parks: bool) -> Order:
        """Return the order with its open fields filled in.

        Raises ConfigError if this source cannot be kept in this order.
        """
        if self.key == GROUP and not capabilities.shows_group:
            raise ConfigError(
                f"{capabilities.dialect} does not show the group of a message",
                where=str(source),
                cure="Let producers write it into a header of another name too, and name that one",
                code="order-not-possible",
            )
        most = (ack_timeout or math.inf) * ACK_TIMEOUT_SHARE
        if self.max_wait is not None and self.max_wait > most:
            raise ConfigError(
                f"max_wait={self.max_wait:g} is more than a quarter of the broker's ack timeout",
                where=str(source),
                cure=f"Write max_wait={most:g}, or less",
                code="option-value",
            )
        max_wait = min(LONGEST, most) if self.max_wait is None else self.max_wait
        return replace(self, max_wait=max_wait, overflow=self.overflow or ("park" if parks else "skip"))

    def longest_hold(self, ack_timeout: float | None) -> float:
        """Return the maximum seconds that a message is held while others of its key wait for it."""
        return min(self.max_wait or LONGEST, (ack_timeout or math.inf) * ACK_TIMEOUT_SHARE)

    def key_of(self, delivery: Delivery) -> Hashable:
        """Return the key of this message; None if it has none.

        Raises errors of the key function, and TypeError for a list.
        """
        if not isinstance(self.key, str):
            found = self.key(delivery)
        elif self.key == GROUP and delivery.properties.group_id is not None:
            found = delivery.properties.group_id
        else:
            found = delivery.headers.get(self.key)
        hash(found)
        return found


def _is_count(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int) and value >= 1


def _is_time(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value) and value > 0


def _wrong(name: str, value: object, why: str, cure: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} is {why}", where="key", cure=f"Write {cure}", code="option-value")
