# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a plan's options mean, as far as that can be told without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...errors import ConfigError
from ..letter import Transform
from ..moments import Moment, Span, span
from .asking import condition
from .changing import Changes
from .editing import parse_edits
from .loading import load_transform

MAX_GENERATION: Final = 5
_MOST_BUCKETS: Final = 99_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Meant:
    """The options of `plan`, checked. `edits` as they were given, those of `--unset` with a minus before them."""

    asked: str | None
    span: Span
    changes: Changes
    transform: str | None
    edits: tuple[str, ...]
    ordered: bool
    max_generation: int
    buckets: int | None


def meant(
    *,
    where: str | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    destinations: Sequence[str] = (),
    fingerprints: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    min_attempts: int | None = None,
    edits: Sequence[str] = (),
    removals: Sequence[str] = (),
    transform: str | Transform | None = None,
    ordered: bool = False,
    max_generation: int = MAX_GENERATION,
    buckets: int | None = None,
) -> Meant:
    """ConfigError for what cannot be meant. `transform` is imported."""
    if max_generation < 1:
        cure = f"Give 1 or more; {MAX_GENERATION} is usual"
        raise ConfigError(f"{max_generation} replays are none", where="--max-generation", cure=cure)
    if buckets is not None and not 1 <= buckets <= _MOST_BUCKETS:
        raise ConfigError(f"{buckets} is no number of buckets", where="--buckets", cure=f"Give 1 to {_MOST_BUCKETS}")
    return Meant(
        asked=condition(
            where, destinations=destinations, fingerprints=fingerprints, headers=headers, min_attempts=min_attempts
        ),
        span=span(since, until),
        changes=Changes(parse_edits(edits, removals), load_transform(transform)),
        transform=_name(transform),
        edits=(*edits, *(f"-{one}" for one in removals)),
        ordered=ordered,
        max_generation=max_generation,
        buckets=buckets,
    )


def _name(transform: str | Transform | None) -> str | None:
    if transform is None or isinstance(transform, str):
        return transform
    return f"{transform.__module__}:{getattr(transform, '__qualname__', repr(transform))}"
