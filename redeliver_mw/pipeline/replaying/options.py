# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options of a replay, before any connection is made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from ...errors import ConfigError

Size = int | str
"""A number of letters, or a share of them as text, `1%`."""
ShareOrCount = float | str
"""From 0 to 1, or as text, `20%`."""

STOP_AT: Final = 0.2
WAIT: Final = 60.0
BATCH: Final = 500
_MOST_AT_ONCE: Final = 10_000
_PERCENT: Final = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """Holds the options of `replay`, as given."""

    rate: float | None = None
    canary: Size | None = None
    stop_at: ShareOrCount = STOP_AT
    publishers: int | None = None
    journal: str | None = None
    wait: float = WAIT
    batch: int = BATCH

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < math.inf:
            raise ConfigError(
                f"{self.rate} messages a second", where="rate", cure="Give a rate above 0", code="option-value"
            )
        if self.publishers is not None and self.publishers < 1:
            raise ConfigError(
                f"{self.publishers} publishers", where="publishers", cure="Give a number from 1 on", code="option-value"
            )
        if not 0 <= self.wait < math.inf:
            raise ConfigError(
                f"{self.wait} is no time to wait", where="wait", cure="Give seconds, from 0 on", code="option-value"
            )
        if not 1 <= self.batch <= _MOST_AT_ONCE:
            cure = f"Give a number from 1 to {_MOST_AT_ONCE}"
            raise ConfigError(f"{self.batch} letters are no batch", where="batch", cure=cure, code="option-value")
        self.canary_of(1)
        _ = self.share

    @property
    def share(self) -> float:
        """Return `stop_at` as a number from 0 to 1. Raises ConfigError."""
        given = self.stop_at
        share = _percent(given) if isinstance(given, str) else given
        if share is None or not 0 <= share <= 1:
            raise ConfigError(
                f"{given!r} is no share",
                where="stop_at",
                cure="Give one from 0% to 100%, as in 20%",
                code="option-value",
            )
        return share

    def canary_of(self, letters: int) -> int | None:
        """Return the number of letters in the canary, at least one; None without a canary. Raises ConfigError."""
        given = self.canary
        if given is None:
            return None
        share = _percent(given) if isinstance(given, str) else None
        if share is not None and 0 < share <= 1:
            return max(1, math.ceil(share * letters))
        number = int(given) if isinstance(given, int) or given.strip().isdecimal() else 0
        if number < 1:
            raise ConfigError(
                f"{given!r} is no canary", where="canary", cure="Give a number from 1 on, or 1%", code="option-value"
            )
        return min(number, letters)


def _percent(text: str) -> float | None:
    found = _PERCENT.fullmatch(text)
    return float(found[1]) / 100 if found else None
