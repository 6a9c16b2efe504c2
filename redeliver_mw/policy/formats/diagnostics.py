# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Collects all problems of a text, to report them together."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from ...errors import PolicyError

SHOWN = 10


class Diagnostics:
    """Collects problems while a reader continues; `close()` raises one PolicyError if there are any."""

    def __init__(self) -> None:
        self._errors: list[PolicyError] = []
        self._warnings: dict[str, PolicyError | None] = {}

    def add(self, what: str, *, where: str = "", cure: str = "", code: str) -> None:
        """Add a problem; `code` is that of its PolicyError."""
        self._errors.append(PolicyError(what, where=where, cure=cure, code=code))

    def take(self, error: PolicyError, *, where: str = "") -> None:
        """Add an existing error as a problem; `where` is put in front of its own place."""
        place = f"{where}: {error.where}" if where and error.where else where or error.where
        self.add(error.what, where=place, cure=error.cure, code=error.code)

    def warn(self, text: str) -> None:
        """Add a warning about a valid setting that may not be what was meant; the same text is added once."""
        self._warnings.setdefault(text, None)

    def suspect(self, text: str, error: PolicyError) -> None:
        """Warn; if there are other problems, this may be their cause, and is reported with them as this error."""
        self._warnings[text] = error

    def nearest(self, word: str, allowed: Iterable[str]) -> str | None:
        """Return `nearest()` if its result will be shown, otherwise None.

        Among the names of a long file the search takes long.
        """
        return nearest(word, allowed) if len(self._errors) < SHOWN else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings in the order in which they came."""
        return tuple(self._warnings)

    def __bool__(self) -> bool:
        return bool(self._errors)

    def close(self) -> None:
        """Do nothing if there was no problem.

        Raises one PolicyError otherwise: the problem, or the first ten of them.
        """
        if not self._errors:
            return
        errors = [error for error in self._warnings.values() if error is not None] + self._errors
        if len(errors) == 1:
            raise errors[0]
        text = "; ".join(f"({at}) {error}" for at, error in enumerate(errors[:SHOWN], 1))
        more = len(errors) - SHOWN
        raise PolicyError(
            f"{len(errors)} problems: {text}" + (f"; and {more} more" if more > 0 else ""), code="policy-problems"
        )


def nearest(word: str, allowed: Iterable[str], alike: float = 0.6) -> str | None:
    """Return the allowed word with the most similar spelling; None if none is as similar as `alike`, from 0 to 1."""
    plain = {one.lower(): one for one in allowed}
    found = difflib.get_close_matches(word[:100].lower(), plain, n=1, cutoff=alike)
    return plain[found[0]] if found else None
