# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Which of several processes of one App consumes what. Each works it out for itself, and all come to the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ..adapter.capabilities import Capabilities
from ..message import Destination
from .handler import HandlerSpec
from .settings import Settings


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """Process `index` (from 0) of `of`."""

    index: int
    of: int

    @property
    def name(self) -> str:
        """For people, who count from 1."""
        return f"process {self.index + 1}"


class Partition(NamedTuple):
    """What one process consumes, and how many processes have anything to consume."""

    ours: set[Destination]
    processes: int


def partition_sources(
    specs: Iterable[HandlerSpec], share: ProcessShare, settings: Settings, capabilities: Capabilities
) -> Partition:
    """A source that one process at a time must have is given to one, in turn; the others are everybody's."""
    specs = list(specs)
    alone = sorted((s.source for s in specs if _is_alone(s, settings, capabilities)), key=str)
    shared = {spec.source for spec in specs} - {*alone}
    ours = {source for n, source in enumerate(alone) if n % share.of == share.index}
    return Partition(shared | ours, share.of if shared else min(share.of, len(alone)))


def _is_alone(spec: HandlerSpec, settings: Settings, capabilities: Capabilities) -> bool:
    """Order by key is kept within a process; a count that stands in one's memory is known to nobody else when the
    message goes back; and some brokers give a durable subscription to one consumer."""
    subscribed = spec.source.kind == "topic" and not capabilities.shares_subscriptions
    return spec.order is not None or settings.delay == "nack" or subscribed
