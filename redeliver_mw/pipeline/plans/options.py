# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks a plan's options as far as possible without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ...dead_letters.edits.letter import Letter, Redact, Transform
from ...dead_letters.edits.user_functions import load_function
from ...errors import ConfigError
from ..time_range import TimeBound, TimeRange, span
from .header_edits import parse_edits
from .letter_transform import LetterTransform
from .plan_file import Bodies
from .selection import condition

MAX_GENERATION: Final = 5
_MOST_BUCKETS: Final = 99_999


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """Holds the checked options of `plan`. `edits` as they were given, those of `--unset` with a minus before them."""

    asked: str | None
    span: TimeRange
    changes: LetterTransform
    transform: str | None
    edits: tuple[str, ...]
    ordered: bool
    max_generation: int
    buckets: int | None
    bodies: Bodies
    redact: Redact | None
    redaction: str | None  # its name


def plan_options(
    *,
    where: str | None = None,
    since: TimeBound | None = None,
    until: TimeBound | None = None,
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
    bodies: bool = True,
    redact: str | Redact | None = None,
) -> PlanOptions:
    """Return the checked options. Raises ConfigError if they are invalid. `transform` and `redact` are imported."""
    if max_generation < 1:
        cure = f"Give 1 or more; {MAX_GENERATION} is usual"
        raise ConfigError(
            f"{max_generation} replays are none", where="--max-generation", cure=cure, code="option-value"
        )
    if buckets is not None and not 1 <= buckets <= _MOST_BUCKETS:
        raise ConfigError(
            f"{buckets} is no number of buckets",
            where="--buckets",
            cure=f"Give 1 to {_MOST_BUCKETS}",
            code="option-value",
        )
    where_bodies: Bodies = "plan" if bodies and redact is None else "lake"
    parsed = parse_edits(edits, removals)
    if where_bodies == "lake" and any(one.place == "body" for one in parsed):
        cure = "Leave the bodies in the plan, or edit no body"
        raise ConfigError(
            "an edited body is nowhere but in the plan", where="--no-bodies, --redact", cure=cure, code="option-value"
        )
    return PlanOptions(
        asked=condition(
            where, destinations=destinations, fingerprints=fingerprints, headers=headers, min_attempts=min_attempts
        ),
        span=span(since, until),
        changes=LetterTransform(parsed, load_function(transform, "--transform"), bodies=where_bodies),
        transform=_name(transform),
        edits=(*edits, *(f"-{one}" for one in removals)),
        ordered=ordered,
        max_generation=max_generation,
        buckets=buckets,
        bodies=where_bodies,
        redact=load_function(redact, "--redact"),
        redaction=_name(redact),
    )


def _name(function: str | Callable[[Letter], object] | None) -> str | None:
    if function is None or isinstance(function, str):
        return function
    return f"{function.__module__}:{getattr(function, '__qualname__', repr(function))}"
