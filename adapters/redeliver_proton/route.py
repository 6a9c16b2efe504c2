# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes how a destination is reached, and what is known of the place behind it. Plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from redeliver_mw.errors import RedeliverError


@dataclass(frozen=True, slots=True)
class RouteQueue:
    """Describes a queue of an address: how the address routes to it, and which messages its filter lets in."""

    name: str
    address: str
    routing: str
    filter: str = ""
    durable: bool = True


@dataclass(frozen=True, slots=True)
class RouteTarget:
    """Describes an address: its queues, and what it does when it is full. `known` is False if nobody answers that."""

    address: str
    queues: tuple[RouteQueue, ...] = ()
    full_policy: str = "PAGE"
    known: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """Describes how a link to a destination is attached: the address, and the capability that says queue or topic."""

    address: str
    capability: str = ""  # empty: the broker asks for none
    only_from: str | None = None  # its queue's filter takes dead letters from this address alone
    filter: str = ""  # of the queue that is named
    postpones: bool = False  # what is given back there may be given back with a delay


OnRouteTarget = Callable[[RouteTarget | RedeliverError], None]
OnRoute = Callable[[Route | RedeliverError], None]
