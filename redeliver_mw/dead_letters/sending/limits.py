# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the limits that a replay is given: its rate, its canary, and the share at which it stops. Pure."""

from __future__ import annotations

import math
import re
from typing import Final

from ...errors import ConfigError

Size = int | str
"""Is a number of letters, or a share of them as text, `1%`."""
ShareOrCount = float | str
"""Is a share: a number from 0 to 1, or a text such as `20%`."""

STOP_AT: Final = 0.2
JUDGED: Final = 100  # letters that must be sent before the share of those dead-lettered again is meaningful
REFUSED_IN_A_ROW: Final = 100  # after that no further letter is tried, because it would probably be refused, too
_PERCENT: Final = re.compile(r"\s*([0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%\s*")


def check_rate(rate: float | None) -> None:
    """Raise ConfigError for a rate that nothing can be sent at."""
    if rate is not None and not 0 < rate < math.inf:
        raise ConfigError(f"{rate} messages a second", where="rate", cure="Give a rate above 0", code="option-value")


def check_wait(wait: float) -> None:
    """Raise ConfigError for seconds that nobody can wait."""
    if not 0 <= wait < math.inf:
        raise ConfigError(
            f"{wait} is no time to wait", where="wait", cure="Give seconds, from 0 on", code="option-value"
        )


def share_of(given: ShareOrCount) -> float:
    """Return the share at which a replay stops as a number from 0 to 1. Raises ConfigError."""
    share = _percent(given) if isinstance(given, str) else given
    if share is None or not 0 <= share <= 1:
        raise ConfigError(
            f"{given!r} is no share",
            where="stop_at",
            cure="Give one from 0% to 100%, as in 20%",
            code="option-value",
        )
    return share


def canary_of(given: Size | None, letters: int) -> int | None:
    """Return the number of letters in the canary, at least one; None without a canary. Raises ConfigError."""
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


def too_many(died: int, sent: int, share: float, least: int = JUDGED) -> str:
    """Return why a replay must stop if too many sent letters were dead-lettered again; otherwise an empty text.

    Fewer than `least` sent letters say nothing.
    """
    if sent < least or died <= share * sent:
        return ""
    return f"{died} of {sent} letters died again, more than {share:.0%}"


def _percent(text: str) -> float | None:
    found = _PERCENT.fullmatch(text)
    return float(found[1]) / 100 if found else None
