# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Copies the messages that stay in a limbo into the table `dead_letters`: rows of the source `limbo`. No Spark.

A message stays if the limbo does not publish it by itself any more: its target has refused it too often, or it is a
dead letter that could not be copied. Messages that wait for their next attempt are only counted.

The limbo is never changed, and it owns all of its messages. So the rows are a snapshot: the next copy of the same limbo
replaces all of them in one step, and no plan takes them, because the limbo would still have what a replay has sent.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ...dead_letters import stored_text
from ...message import Destination
from ...redaction import redact
from ...redelivery.headers import PREFIX
from ..errors import readable_errors
from ..lake.lake import Lake
from ..lake.lake_format import make_writable
from ..manifests import now_us, run_after
from ..schemas import LIMBO

if TYPE_CHECKING:
    import pyarrow as pa

    from ...limbo.admin import StayingMessage

_PATIENCE: Final = 30.0  # seconds for another program's lock: no message waits for this reader


@dataclass(frozen=True, slots=True)
class LimboCopied:
    """Sums up a copy of a limbo: `letters` are rows now, in place of `before` rows; `waiting` messages are none.

    `run` is None if there was nothing to do.
    """

    run: str | None
    letters: int
    before: int
    waiting: int


def copy_limbo(url: str, lake: str | os.PathLike[str]) -> LimboCopied:
    """Copy what stays in a limbo into the lake, which is created if necessary, in place of the copy before.

    All rows become visible in one step. Raises ConfigError for an invalid URL or lake, LimboError, and LakeError.
    """
    from ...limbo import LimboAdmin
    from ..lake.parquet_writer import DayWriter
    from .manifests import Gathered, current, doubts_of, publish, remove_dead, unpublished
    from .rows import LETTERS
    from .staging import TABLE

    with LimboAdmin(url, busy_timeout=_PATIENCE) as admin:
        place = Lake(lake, create=True)
        owner = f"{LIMBO} {admin.place}"
        with place.locked(TABLE), readable_errors(place.root):
            make_writable(place.files)
            base = current(place.files)
            remove_dead(place.files, base, alone=place.files.is_folder)
            run = run_after(base.head.generation)
            old = [one for one in base.manifests if one.owner == owner]
            before = sum(file.rows for one in old for file in one.files)
            with unpublished(place.files, base, run):
                writer = DayWriter(place.root, run, 0, LETTERS, table=TABLE, by="dead_us")
                try:
                    waiting, found = admin.staying()
                    for messages in found:
                        writer.add(_table([_row(one, admin.place, run) for one in messages]))
                    files = writer.close()
                finally:
                    writer.drop()
                place.files.sync([file.path for file in files])
            letters = sum(file.rows for file in files)
            if not old and not files:
                return LimboCopied(None, 0, 0, waiting)
            manifest = Gathered(run, now_us(), owner, files, letters=letters, doubts=doubts_of(base.manifests))
            publish(place.files, base, run, [*(one for one in base.manifests if one.owner != owner), manifest])
    return LimboCopied(run, letters, before, waiting)


def _table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    from .rows import LETTERS

    return pa.Table.from_pylist(list(rows), schema=LETTERS)


def _row(found: StayingMessage, place: str, run: str) -> dict[str, Any]:
    message, out = found.message, found.message.out
    headers = {stored_text(name): stored_text(value) for name, value in out.headers.items()}
    properties, body = out.properties, bytes(out.body)
    return {
        "dl_id": f"{LIMBO}-{hashlib.sha256(place.encode()).hexdigest()[:12]}-{message.id}",
        "message_key": message.lineage or None,
        "original_destination": _short(message.source),
        "dlq": LIMBO,
        "broker": found.broker,
        "dead_us": message.parked_us or round(message.due * 1e6),
        "failures": message.failures,
        "error_fingerprint": headers.get(PREFIX + "error_fingerprint") or None,
        "error_type": headers.get(PREFIX + "error_type") or None,
        "reason": message.reason or headers.get(PREFIX + "reason") or None,
        "headers": list(headers.items()),
        "content_type": None if properties.content_type is None else stored_text(properties.content_type),
        "body": body,
        "body_sha256": hashlib.sha256(body).hexdigest(),
        "body_bytes": len(body),
        "source": LIMBO,
        "drain_run_id": run,
        "staged_us": now_us(),
        "owner": LIMBO,
        "dialect": LIMBO,
        "message_id": None if properties.message_id is None else stored_text(properties.message_id),
        "group_id": None if properties.group_id is None else stored_text(properties.group_id),
        "generation": message.generation,
        "replay_id": headers.get(PREFIX + "replay_id") or None,
        "problem": _problem(found, place),
        "redelivered": False,
        "letter": None,
    }


def _problem(found: StayingMessage, place: str) -> str:
    """Return where the message is, why it stays there, and how it gets out."""
    message = found.message
    why = redact(message.last_error) or message.problem
    return (
        f"it is in the limbo, {found.state}, for {message.out.target}{why and ': '}{why}; "
        f"send it with `redeliver limbo release {place} --id {message.id}`"
    )


def _short(source: str) -> str:
    return stored_text(Destination.parse(source).short) if source else ""
