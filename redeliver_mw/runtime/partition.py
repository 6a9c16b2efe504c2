# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Assigns sources to the processes of an App. Every process computes the same assignment without coordination."""

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
    """Identifies process `index` (from 0) of `of`."""

    index: int
    of: int

    @property
    def name(self) -> str:
        """Return the name for people, who count from 1."""
        return f"process {self.index + 1}"


class Partition(NamedTuple):
    """Holds what one process consumes, and how many processes have any source to consume."""

    ours: set[Destination]
    processes: int


def partition_sources(
    specs: Iterable[HandlerSpec], share: ProcessShare, settings: Settings, capabilities: Capabilities
) -> Partition:
    """Assign each source that only one process may consume to one process, in turn.

    Every process consumes the other sources.
    """
    specs = list(specs)
    alone = sorted((s.source for s in specs if _is_alone(s, settings, capabilities)), key=str)
    shared = {spec.source for spec in specs} - {*alone}
    ours = {source for n, source in enumerate(alone) if n % share.of == share.index}
    return Partition(shared | ours, share.of if shared else min(share.of, len(alone)))


def _is_alone(spec: HandlerSpec, settings: Settings, capabilities: Capabilities) -> bool:
    """Return whether only one process at a time may consume a source.

    Order by key is kept within a process; a count in the memory of one process is unknown to the others when the
    message is released; and some brokers give a durable subscription to one consumer only.
    """
    subscribed = spec.source.kind == "topic" and not capabilities.shares_subscriptions
    return spec.order is not None or settings.delay == "nack" or subscribed
