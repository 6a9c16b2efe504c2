# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Copies letters into the lake and leaves them in their queue: rows whose owner is the broker."""

from __future__ import annotations

import os
from typing import Final

from ...adapter.capabilities import BrokerLimit, Capabilities, Trust
from ...adapter.registry import adapter_for
from ...dead_letters import BrokerClient
from ...errors import ConfigError
from ...message import Destination
from ..errors import readable_errors
from ..lake.lake import Lake
from ..lake.lake_format import make_writable
from ..manifests import run_after
from .commit import gather, gather_looked
from .manifests import BROKER, current
from .order import Drained
from .rows import run_of
from .staging import LOOKED, TABLE, StagingArea

_DRAIN: Final = "Drain it without peek; `redeliver dead list` shows letters one by one"


def peek(url: str, queue: Destination, lake: str | os.PathLike[str], batch: int) -> Drained:
    """Copy the letters that the queue holds now into the lake, and leave them in the queue.

    Raises ConfigError if the broker cannot be browsed, or if the broker would count the look against a letter that a
    later replay receives and leaves in the queue.
    """
    adapter = adapter_for(url)
    with BrokerClient(adapter) as asking:
        _require_browsing(asking.capabilities, asking.limit(queue), queue)
        found = asking.depth(queue)
        letters = asking.browse(queue, found) if found else ()
    place = Lake(lake, create=True)
    with place.locked(TABLE), readable_errors(place.root):
        make_writable(place.files)
        earlier = gather(place)
        base = current(place.files)
        run = run_after(base.head.generation)
        stage = StagingArea(place.root, lambda: run_of(adapter, run, queue, BROKER), 0, LOOKED)
        kept = 0
        for at in range(0, len(letters), batch):
            some, write = stage.read(0, letters[at : at + batch])
            if some:
                write()
                kept += len(some)
        gathered = gather_looked(place, stage.written, base)
        place.files.remove(f"{LOOKED}/{run}")
    first = earlier.letters if earlier else 0
    return Drained(gathered.run, found, first + gathered.letters, first, gathered.again, len(letters) - kept)


def _require_browsing(capabilities: Capabilities, limit: BrokerLimit | None, queue: Destination) -> None:
    if capabilities.browse != "copy":
        raise ConfigError(
            f"{capabilities.dialect} cannot look without a trace",
            where=str(queue),
            cure=_DRAIN,
            code="browse-not-supported",
        )
    if limit is not None and limit.returns is not None and limit.trust is not Trust.UNKNOWN:
        what = f"its broker lets a letter come back {limit.returns} times only ({limit.spelled})"
        raise ConfigError(
            what,
            where=str(queue),
            cure="Lift that limit for this queue, or drain it without peek",
            code="browse-not-supported",
        )
