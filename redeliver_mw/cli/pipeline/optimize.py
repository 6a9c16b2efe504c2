# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Implements `redeliver pipeline optimize`: rewrites the small files of a lake into large ones."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ...errors import ConfigError, counted
from ..arguments import Json
from ..help import example
from .options import telling

if TYPE_CHECKING:
    from ...pipeline.lake.rewriting import Optimized

_SIZE: Final = re.compile(r"(?P<number>\d+)\s*(?P<unit>B|KiB|MiB|GiB)?", re.IGNORECASE)
_UNITS: Final = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}

LakePlace = Annotated[str, typer.Argument(metavar="LAKE", help="The lake's folder, or its address in a bucket")]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", metavar="AGE", help="Only files without a younger record, as in 1d"),
]
TargetSize = Annotated[str, typer.Option("--target-size", metavar="SIZE", help="The size of a new file, as in 64MiB")]
Keep = Annotated[str, typer.Option("--keep", metavar="AGE", help="How long replaced files stay for their readers")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Days that are rewritten at a time")]


def register(group: typer.Typer) -> None:
    """Add the command."""
    group.command("optimize", epilog=example("redeliver pipeline optimize lake --older-than 1d"))(optimize)


def optimize(
    lake: LakePlace,
    older_than: OlderThan = None,
    target_size: TargetSize = "128MiB",
    keep: Keep = "7d",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Rewrite many small files of events and dead letters into few large ones, and remove files replaced long ago."""
    from ...operations.filters.parser import parse_age
    from ...pipeline.lake.optimization import optimize as make_large

    age = 0 if older_than is None else parse_age(older_than, "--older-than")
    size, kept = _size(target_size), parse_age(keep, "--keep")
    with telling("rewriting") as tell:
        done = make_large(lake, older_than_s=age, target_bytes=size, keep_s=kept, workers=workers, progress=tell)
    if as_json:
        print(json.dumps(asdict(done)))
    else:
        print("\n".join(_lines(done)))
    for table, part in (("events", done), ("dead_letters", done.letters)):
        if part is not None and part.logged:
            what = f"{table}/_delta_log is there, and may name old files, none of which is removed"
            print(f"note: {what}. Without that log a later run removes them", file=sys.stderr)


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{text!r} is no size",
            where="--target-size",
            cure="Write a whole number with B, KiB, MiB or GiB, as in 128MiB",
            code="option-value",
        )
    return int(found["number"]) * _UNITS[(found["unit"] or "B").lower()]


def _lines(done: Optimized) -> list[str]:
    """Return sentences for people about what was done, without sentences about nothing."""
    letters = done.letters
    lines = _became(done, "records", "")
    if letters is not None:
        lines += _became(letters, "letters", " of dead letters")
    lines = lines or ["nothing to rewrite"]
    parts = [done] if letters is None else [done, letters]
    removed, kept = sum(part.removed for part in parts), sum(part.kept for part in parts)
    found = [(removed, "old files were removed"), (kept, "old files are kept for now")]
    return lines + [f"{number} {what}" for number, what in found if number]


def _became(done: Optimized, rows: str, whose: str) -> list[str]:
    lines = []
    if done.files_before:
        lines.append(f"{counted(done.files_before, 'small file')}{whose} became {done.files}, with {done.rows} {rows}")
    if done.merged > 1:
        lines.append(f"{done.merged} manifests{whose} became one")
    return lines
