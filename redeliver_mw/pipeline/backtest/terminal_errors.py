# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""How messages ended, by fingerprint: the error's name, and which errors no policy tries again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from .observations import ObservationRow

AT_ONCE: Final = frozenset({"rejected", "undecodable"})


class TerminalErrors(NamedTuple):
    """As `History` takes them."""

    error_types: dict[str, str]
    at_once: frozenset[str]


def ends_of(rows: Iterable[ObservationRow]) -> TerminalErrors:
    """From rows with `fingerprint`, `error_type` and `reason`: of `messages`, each combination once or more.

    An error is tried again by no policy if all its messages ended as rejected or undecodable.
    """
    types: dict[str, str] = {}
    reasons: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        fingerprint = row["fingerprint"] or ""
        reasons[fingerprint].add(row["reason"])
        if row["error_type"]:
            types.setdefault(fingerprint, row["error_type"])
    return TerminalErrors(types, frozenset(name for name, found in reasons.items() if found <= AT_ONCE))
