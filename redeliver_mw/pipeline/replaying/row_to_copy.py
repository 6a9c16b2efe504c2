# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A row of a plan to the copy that is sent: the same copy on each try, whoever makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...adapter.protocol import Adapter
from ...dead_letters import Edits, Packed, copy_of
from ...errors import NotCopyable
from ...message import Destination
from .batch_publisher import OutgoingLetter

COLUMNS = (
    "position",
    "rank",
    "dl_id",
    "message_key",
    "group_id",
    "target",
    "dlq",
    "redelivered",
    "letter",
    "body",
    "body_sha256",
    "edited_body",
    "edits",
)


def chain_of(row: Mapping[str, Any], ordered: bool) -> str:
    """What has to go in order; empty for a letter by itself."""
    return (row["group_id"] or "") if ordered else ""


def letter_of(row: Mapping[str, Any], plan_id: str, ordered: bool, adapter: Adapter) -> OutgoingLetter:
    """NotCopyable for what cannot be sent exactly."""
    if row["letter"] is None or row["body"] is None:
        raise NotCopyable("its body is neither in the plan nor, as it was planned, in the lake")
    edits = None
    if row["edits"] or row["edited_body"]:
        headers = json.loads(row["edits"]).get("headers", {}) if row["edits"] else {}
        edits = Edits(row["body"] if row["edited_body"] else None, headers)
    packed = Packed(Destination.parse(row["dlq"]), bool(row["redelivered"]), row["letter"], row["body"])
    out = copy_of(
        packed,
        Destination.parse(row["target"]),
        adapter.reader,
        adapter.capabilities,
        replay_id=plan_id,
        lineage=row["dl_id"],
        known_as=row["message_key"],
        salt=f"{plan_id}.{row['dl_id']}",
        edits=edits,
    )
    return OutgoingLetter(row["position"], out, chain_of(row, ordered))
