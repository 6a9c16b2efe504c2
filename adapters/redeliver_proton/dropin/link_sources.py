# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads from a link of the user's where it receives from, and whether its messages can be ours."""

from __future__ import annotations

from typing import Any

import proton

from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Destination


def was_wrapped(link: Any) -> bool:
    """Return whether the link was wrapped before its connection was lost; it stays so as long as it lives."""
    return getattr(link, "redeliver_wrapped", False)


def passes_through(link: Any) -> bool:
    """Return whether a link browses, has a reply queue of its own, or is settled by the broker as it sends."""
    source, ours = link.remote_source, link.source
    copying = proton.Terminus.DIST_MODE_COPY in (source.distribution_mode, ours.distribution_mode)
    return copying or bool(ours.dynamic) or link.remote_snd_settle_mode == proton.Link.SND_SETTLED


def source_of(link: Any) -> Destination:
    """Return the source of a link. Raises ConfigError for a subscription whose queue has no name to send to."""
    address = str(link.remote_source.address)
    wanted = _symbols(link.source.capabilities)
    name, colons, queue = address.partition("::")
    if colons and "queue" not in wanted:
        return Destination(name, "topic", queue)
    if "topic" in wanted or link.source.durability:
        if not link.source.durability:
            raise ConfigError(
                "a subscription that ends with its receiver cannot be redelivered to",
                where=address,
                cure="Make it durable, or attach to its queue: topic::subscription",
                code="source-not-possible",
            )
        return Destination(address, "topic", f"{link.connection.container}.{link.name}")
    return Destination(name if name == queue else address)


def _symbols(capabilities: Any) -> set[str]:
    """Return the capabilities of a terminus, which holds them as the driver's own data."""
    found: set[str] = set()
    capabilities.rewind()
    while capabilities.next():
        value = capabilities.get_object()
        found |= {str(one) for one in getattr(value, "elements", None) or [value]}
    capabilities.rewind()
    return found
