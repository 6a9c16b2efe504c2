# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines places in the lines of keys, as the limbo's database remembers them beyond the end of a process. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class PlaceKind(IntEnum):
    """Tells where a message was when its place was noted."""

    HERE = 0  # the broker has it, and gives it again when we end
    IN_FRONT = 1  # it left by a copy, and its key waits for that
    BEHIND = 2  # it was parked behind one that is being retried


@dataclass(frozen=True, slots=True)
class OrderPlace:
    """Holds the place of one message in the line of its key.

    Within a key a lower `number` comes first. `name` is the message key under which the message, or its copy, comes
    again; empty for a message without an id, of which no copy was made. `due_us` (microseconds since 1970) is when a
    copy comes at the earliest.
    """

    number: int
    key: str
    name: str
    kind: PlaceKind
    due_us: int = 0


@dataclass(frozen=True, slots=True)
class FoundPlace:
    """Holds a place as it was found at a start. `parked`: its copy lies in the limbo, and not at the broker."""

    place: OrderPlace
    parked: bool
