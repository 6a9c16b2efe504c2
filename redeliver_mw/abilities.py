# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What can be done at each source, where that is not the same at all of them; and a word on what nobody knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition
from typing import cast

from .adapter import Adapter, Postponing
from .capabilities import Capabilities, Trust
from .delay import Option
from .errors import RedeliverError
from .message import Destination

log = logging.getLogger("redeliver_mw")


def abilities(
    adapter: Adapter, capabilities: Capabilities, sources: Sequence[Destination], *, declare: bool,
    changed: Condition, wait: Callable[[Callable[[], bool]], None],
) -> dict[Destination, Capabilities]:  # fmt: skip
    """The record of each source. Raises what the broker says against one of them.

    `changed` guards what the adapter's thread tells; `wait` returns when it is all there.
    """
    if not capabilities.by_source:
        return dict.fromkeys(sources, capabilities)
    told: dict[Destination, Capabilities | RedeliverError] = {}

    def ask(source: Destination) -> None:
        def answered(found: Capabilities | RedeliverError) -> None:
            with changed:
                told[source] = found
                changed.notify_all()

        cast(Postponing, adapter).capabilities_at(source, answered, declare=declare)

    for source in sources:
        ask(source)
    wait(lambda: len(told) == len(set(sources)))
    found = {}
    for source, one in told.items():
        if isinstance(one, RedeliverError):
            raise one
        found[source] = one
    return found


def warn_of_unknown(capabilities: Capabilities, delay: Option) -> None:
    """Said once, at start (rule 4)."""
    if delay == "nack" and capabilities.trust.get("released") is Trust.UNKNOWN:
        log.warning(
            "delay='nack' on %s %s: a limit of the queue's own counts each return and may act first (rule 13); "
            "make sure that the queues have none",
            capabilities.broker_kind,
            capabilities.broker_version,
        )
