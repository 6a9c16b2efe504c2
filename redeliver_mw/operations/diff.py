# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares two letters: what is known of them, their headers and their bodies. Secrets are hidden in the result."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..redaction import redact
from .bodies import BodyForm, form_of, text_of
from .listing import ShownLetter, StoredLetter, show
from .store import Store

MOST_BYTES: Final = 2**20  # of each body; what follows is only said to be equal or not
MOST_LINES: Final = 4000  # that differ, of each body, between which single lines are matched
_FIELDS: Final = (
    *("queue", "source", "problem", "reason", "error_type", "error_message", "fingerprint", "app"),
    *("failures", "generation", "replay_id", "message_key", "message_id", "content_type", "state", "body_bytes"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """Is a field or a header that two letters do not have alike; None: one of them does not have it."""

    name: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True)
class LetterDiff:
    """Says how two letters differ.

    `body` holds the lines of a unified diff, of bodies in the form `form`; it is empty if they are equal. `hidden`: the
    bodies differ only where a secret is hidden. `cut`: so many bytes of each were compared line by line, and the rest
    differs if `rest_differs`; 0 means all. `head_differs`: the letters have the same headers as texts, and differ in
    another property or in a part of a header that the store does not list.
    """

    first: StoredLetter
    second: StoredLetter
    fields: Sequence[Difference]
    headers: Sequence[Difference]
    form: BodyForm
    body: Sequence[str]
    hidden: bool
    cut: int
    rest_differs: bool
    head_differs: bool

    @property
    def equal(self) -> bool:
        """Return whether both letters hold the same message."""
        return not (self.headers or self.body or self.hidden or self.rest_differs or self.head_differs)


def diff(store: Store, first_id: str, second_id: str, form: BodyForm | None = None) -> LetterDiff:
    """Compare two letters; `form` None: what suits both bodies.

    Raises ConfigError if a body has not this form, and as `show` does.
    """
    first, second = show(store, first_id), show(store, second_id)
    headers = _differences(first.headers, second.headers)
    one, other = (shown.packed.body[:MOST_BYTES] for shown in (first, second))
    used = form or _common(one, other)
    lines, hidden = _lines(first, second, one, other, used)
    rest = first.packed.body[MOST_BYTES:] != second.packed.body[MOST_BYTES:]
    return LetterDiff(
        first=first.letter,
        second=second.letter,
        fields=_differences(_fields(first.letter), _fields(second.letter)),
        headers=headers,
        form=used,
        body=lines,
        hidden=hidden,
        cut=MOST_BYTES if max(len(first.packed.body), len(second.packed.body)) > MOST_BYTES else 0,
        rest_differs=rest,
        head_differs=first.packed.head != second.packed.head and not headers,
    )


def _common(one: bytes, other: bytes) -> BodyForm:
    forms = {form_of(one), form_of(other)}
    return "hex" if "hex" in forms else "text" if "text" in forms else "json"


def _fields(letter: StoredLetter) -> dict[str, Any]:
    return {name: getattr(letter, name) for name in _FIELDS}


def _differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    names = sorted({*first, *second})
    return [
        Difference(redact(name), _text(first.get(name)), _text(second.get(name)))
        for name in names
        if first.get(name) != second.get(name)
    ]


def _text(value: Any) -> str | None:
    return None if value is None else redact(str(value))


def _lines(first: ShownLetter, second: ShownLetter, one: bytes, other: bytes, form: BodyForm) -> tuple[list[str], bool]:
    if one == other:
        return [], False
    before, after = (redact(text_of(body, form)).splitlines() for body in (one, other))
    names = first.letter.dl_id, second.letter.dl_id
    lines = list(_unified(before, after, *names))
    return lines, not lines


def _unified(before: list[str], after: list[str], name: str, other: str) -> Sequence[str]:
    """Return a unified diff. Between bodies with very many different lines, all of these are one change."""
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if max(len(old), len(new)) <= MOST_LINES:
        return list(difflib.unified_diff(before, after, name, other, lineterm=""))
    head = [f"--- {name}", f"+++ {other}", f"@@ -{start + 1},{len(old)} +{start + 1},{len(new)} @@"]
    return [*head, *(f"-{line}" for line in old), *(f"+{line}" for line in new)]
