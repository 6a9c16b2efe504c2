# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Computes the outcome of each letter of a plan from its ledger and its files. On the driver, a bucket at a time.

| outcome | is |
|---|---|
| `replayed` | confirmed by the broker |
| `refused` | not accepted, for the reason `why`; the next run tries it again |
| `held back` | an earlier letter of its group was refused |
| `in doubt` | it may have been sent: a publisher died, or the broker did not answer; the next run sends it again |
| `left` | not sent |
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from ..files import sync
from ..plans.plan_file import Plan, path_of
from . import ledger
from .ledger import LedgerRecord

FILE: Final = "outcomes.parquet"
WORDS: Final = ("replayed", "refused", "held back", "in doubt", "left")
_COLUMNS: Final = ["position", "rank", "dl_id", "message_key", "group_id", "target", "dlq", "owner"]
_SCHEMA: Final = pa.schema(
    [
        ("rank", pa.int64()),
        ("dl_id", pa.string()),
        ("message_key", pa.string()),
        ("target", pa.string()),
        ("outcome", pa.string()),
        ("why", pa.string()),
        ("died_again", pa.bool_()),
    ]
)


@dataclass(slots=True)
class ReplayStanding:
    """Sums up the state of a plan.

    `remaining` are the letters of each bucket that are not confirmed; `whys` those refused.
    """

    words: Counter[str] = field(default_factory=Counter)
    targets: Counter[tuple[str, str]] = field(default_factory=Counter)  # by target and outcome
    whys: Counter[tuple[str, str]] = field(default_factory=Counter)  # by target and why
    remaining: dict[int, int] = field(default_factory=dict)
    dlqs: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)

    @property
    def confirmed(self) -> int:
        return self.words["replayed"]


def standing(plan: Plan) -> ReplayStanding:
    """Return the state of all letters. Raises LakeError for a damaged ledger, and OSError."""
    found = ReplayStanding()
    for bucket, table, words, whys in _buckets(plan):
        targets = table["target"].to_pylist()
        found.words.update(words)
        found.targets.update(zip(targets, words, strict=True))
        found.whys.update((targets[n], why) for n, why in enumerate(whys) if why is not None)
        found.remaining[bucket] = sum(word != "replayed" for word in words)
        found.dlqs.update(table["dlq"].unique().to_pylist())
        found.owners.update(table["owner"].unique().to_pylist())
    return found


def first_letters(plan: Plan, number: int) -> tuple[int, dict[int, int]]:
    """Return the first `number` unconfirmed letters: the rank that they are below, and how many in each bucket."""
    found: list[tuple[int, int]] = []
    for bucket, table, words, _ in _buckets(plan):
        ranks = zip(table["rank"].to_pylist(), words, strict=True)
        mine = islice(((rank, bucket) for rank, word in ranks if word != "replayed"), number)
        found = sorted([*found, *mine])[:number]
    return found[-1][0] + 1 if found else 0, dict(Counter(bucket for _, bucket in found))


def unsent(plan: Plan) -> pa.ChunkedArray:
    """Return the `dl_id`s that are not confirmed."""
    found: list[pa.Array] = []
    for _, table, words, _ in _buckets(plan):
        found += table["dl_id"].filter(pa.array([word != "replayed" for word in words], pa.bool_())).chunks
    return pa.chunked_array(found, pa.string())


def looked_at(plan: Plan) -> dict[str, dict[str, str | None]]:
    """Return letters that were sent and only looked at when drained, so are still in their queue.

    By queue, each `dl_id` and the hash of its body; None if the body was edited, as the plan lacks the original hash.
    """
    found: dict[str, dict[str, str | None]] = {}
    for file in plan.files:
        _, table, words, _ = _bucket(plan, file.bucket, [*_COLUMNS, "body_sha256", "edited_body"])
        names = ("dlq", "dl_id", "owner", "body_sha256", "edited_body")
        rows = zip(*(table[name].to_pylist() for name in names), words, strict=True)
        for dlq, dl_id, owner, digest, is_edited, word in rows:
            if owner == "broker" and word == "replayed":
                found.setdefault(dlq, {})[dl_id] = None if is_edited else digest
    return found


def write(plan: Plan, died: Collection[str] | None) -> None:
    """Write the outcome of each letter to PLAN/outcomes.parquet.

    `died`: the keys of those that were dead-lettered again.

    Raises OSError; then an existing file stays unchanged.
    """
    final = os.path.join(plan.folder, FILE)
    new = os.path.join(plan.folder, f"_new-{FILE}")
    with pq.ParquetWriter(new, _SCHEMA, compression="zstd") as file:
        for _, table, words, whys in _buckets(plan):
            again: list[bool | None] = [None] * len(words)
            if died is not None:
                keys = zip(table["message_key"].to_pylist(), table["dl_id"].to_pylist(), words, strict=True)
                again = [(key or dl_id) in died if word == "replayed" else None for key, dl_id, word in keys]
            kept = table.select(["rank", "dl_id", "message_key", "target"])
            for name, values in (("outcome", words), ("why", whys), ("died_again", again)):
                kept = kept.append_column(name, pa.array(values, _SCHEMA.field(name).type))
            file.write_table(kept.cast(_SCHEMA))
    sync(new)
    os.replace(new, final)
    sync(plan.folder)


def _buckets(plan: Plan) -> Iterator[tuple[int, pa.Table, list[str], list[str | None]]]:
    """Yield each bucket's rows without their bodies, the outcome of each, and the reason."""
    tries = ledger.tries(plan.folder)
    for file in plan.files:
        yield _bucket(plan, file.bucket, _COLUMNS, tries.get(file.bucket, ()))


def _bucket(
    plan: Plan, bucket: int, columns: list[str], tries: Collection[str] | None = None
) -> tuple[int, pa.Table, list[str], list[str | None]]:
    table = pq.read_table(os.path.join(plan.folder, path_of(bucket)), columns=columns, partitioning=None)
    paths = ledger.tries(plan.folder).get(bucket, ()) if tries is None else tries
    words, whys = _outcomes(table, ledger.read(paths, plan.plan_id), plan.ordered)
    return bucket, table, words, whys


def _outcomes(table: pa.Table, record: LedgerRecord, ordered: bool) -> tuple[list[str], list[str | None]]:
    positions: list[int] = table["position"].to_pylist()
    groups: list[str | None] = table["group_id"].to_pylist() if ordered else [None] * len(positions)
    words: list[str] = []
    stopped: set[str] = set()
    for position, group in zip(positions, groups, strict=True):
        if position in record.confirmed:
            words.append("replayed")
        elif position in record.refused:
            words.append("refused")
            stopped |= {group} if group else set()
        elif position in record.doubt:
            words.append("in doubt")
        else:
            words.append("held back" if group in stopped else "left")
    return words, [record.refused.get(position) for position in positions]
