# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Describes what differs between the brokers behind proton: names, management questions, and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import proton

from redeliver_mw.adapter.capabilities import BrokerLimit, Capabilities
from redeliver_mw.adapter.inspection import Inspection, InspectionRequest
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import RedeliverError
from redeliver_mw.message import Delivery, Destination, Outgoing
from redeliver_proton.duplicate_ids import DuplicateIdSalts
from redeliver_proton.loop import CallLoop
from redeliver_proton.questions import LoopQuestions
from redeliver_proton.route import OnRoute, OnRouteTarget


class BrokerTopology(Protocol):
    """Answers what is behind a name at the broker, over whatever connection is up. On the loop's thread."""

    def connected(self, loop: CallLoop, connection: proton.Connection) -> None: ...
    def disconnected(self, error: BaseException) -> None: ...  # every open question is answered
    def route(
        self, target: Destination, answer: OnRoute, *, declare: bool = False, consuming: bool = False
    ) -> None: ...  # how a link to it is attached; made when it is missing and `declare`
    def look_up(self, address: str, answer: OnRouteTarget) -> None: ...  # why a link to it has no credit
    def depth(self, source: Destination, answer: Callable[[int | RedeliverError], None]) -> None: ...
    def capabilities_at(
        self,
        source: Destination,
        general: Capabilities,
        answer: Callable[[Capabilities | RedeliverError], None],
        *,
        declare: bool,
    ) -> None: ...
    def limit_at(self, source: Destination, answer: Callable[[BrokerLimit], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class BrokerDialect:
    """Describes one broker behind this driver."""

    title: str  # as people call it
    product: str  # as it calls itself when it opens a connection
    capabilities: Callable[[str], Capabilities]  # by version; "0" before it is known
    too_old: Callable[[str], str]  # why this version cannot be used; empty where it can
    topology: Callable[[], BrokerTopology]
    hostname: Callable[[BrokerUrl, str], str]  # what `open` names: the host, or what the broker wants to hear
    delivery: Callable[[Destination, int, int, bytes], Delivery]  # source, generation, tag, message
    encode: Callable[
        [Outgoing, float, DuplicateIdSalts], tuple[bytes, str]
    ]  # after so many seconds; and what a filter sees
    keeps_back: bool  # a message may come with the next credit only, though the link was reported as drained
    where: Callable[[BrokerUrl], str]  # broker and virtual host, for logs and journal
    inspect: Callable[[LoopQuestions, InspectionRequest], Inspection]  # blocks; not on the loop's thread
    ledger_scope: Callable[[BrokerUrl, str], str]  # what a ledger is kept for; with the cluster's name, if it tells one
