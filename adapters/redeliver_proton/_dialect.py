# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What differs between the brokers behind proton: who they are, how they are asked, what their messages mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import proton

from redeliver_mw.capabilities import Capabilities, Limit
from redeliver_mw.errors import RedeliverError
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_mw.registry import BrokerUrl
from redeliver_proton._loop import Loop
from redeliver_proton._once import Salts
from redeliver_proton._route import OnPlace, OnRoute


class Topology(Protocol):
    """What is behind a name at the broker, asked over whatever connection is up. On the loop's thread."""

    def connected(self, loop: Loop, connection: proton.Connection) -> None: ...
    def disconnected(self, error: BaseException) -> None: ...  # every open question is answered
    def route(
        self, target: Destination, answer: OnRoute, *, declare: bool = False, consuming: bool = False
    ) -> None: ...  # how a link to it is attached; made when it is missing and `declare`
    def look_up(self, address: str, answer: OnPlace) -> None: ...  # why a link to it has no credit
    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None]) -> None: ...
    def capabilities_at(
        self, source: Destination, general: Capabilities, answer: Callable[[Capabilities | RedeliverError], None],
        *, declare: bool,
    ) -> None: ...  # fmt: skip
    def limit_at(self, source: Destination, answer: Callable[[Limit], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """One broker behind this driver."""

    title: str  # as people call it
    product: str  # as it calls itself when it opens a connection
    capabilities: Callable[[str], Capabilities]  # by version; "0" before it is known
    too_old: Callable[[str], str]  # why this version cannot be used; empty where it can
    topology: Callable[[], Topology]
    hostname: Callable[[BrokerUrl, str], str]  # what `open` names: the host, or what the broker wants to hear
    delivery: Callable[[Destination, int, int, bytes], Delivery]  # source, generation, tag, message
    encode: Callable[[Outgoing, float, Salts], tuple[bytes, str]]  # after so many seconds; and what a filter sees
    where: Callable[[BrokerUrl], str]  # broker and virtual host, for logs and ledger
