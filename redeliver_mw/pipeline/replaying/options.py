# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Checks the options of a replay, before any connection is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ...dead_letters.sending.limits import (
    STOP_AT,
    ShareOrCount,
    Size,
    canary_of,
    check_rate,
    check_wait,
    share_of,
)
from ...errors import ConfigError

WAIT: Final = 60.0
BATCH: Final = 500
_MOST_AT_ONCE: Final = 10_000


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
        check_rate(self.rate)
        if self.publishers is not None and self.publishers < 1:
            raise ConfigError(
                f"{self.publishers} publishers", where="publishers", cure="Give a number from 1 on", code="option-value"
            )
        check_wait(self.wait)
        if not 1 <= self.batch <= _MOST_AT_ONCE:
            cure = f"Give a number from 1 to {_MOST_AT_ONCE}"
            raise ConfigError(f"{self.batch} letters are no batch", where="batch", cure=cure, code="option-value")
        self.canary_of(1)
        _ = self.share

    @property
    def share(self) -> float:
        """Return `stop_at` as a number from 0 to 1. Raises ConfigError."""
        return share_of(self.stop_at)

    def canary_of(self, letters: int) -> int | None:
        """Return the number of letters in the canary, at least one; None without a canary. Raises ConfigError."""
        return canary_of(self.canary, letters)
