# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines a dead letter as a transform receives and returns it. No Spark.

::

    def repair(letter):
        order = letter.json()
        if order["total"] == 0:
            return None                                    # left out of the plan
        return letter.changed(json=order | {"currency": "EUR"}, headers={"x-repaired": "1"})
"""

from __future__ import annotations

import inspect
import json as _json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from ...message import Destination
from ...redelivery.headers import PREFIX

Value = str | int | float | bool | None
_UNTOUCHED: Final = ...  # `None` is a JSON value
_OPEN: Final = {"body", "headers", "target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Holds one letter. A transform may change `body`, `headers` and `target`; all other fields describe the letter.

    `destination` and `target` are a queue's name, or `topic:NAME::SUBSCRIPTION`: the message's source, and the letter's
    target, which are the same at first. `headers` are texts here, whatever their types on the wire; headers without a
    change go out with their original types. `failures`: how often the handler has failed. `generation`: how often the
    letter has been replayed. `dead_us`: when the message was dead-lettered, in microseconds since 1970.
    """

    dl_id: str
    destination: str
    target: str
    body: bytes
    headers: Mapping[str, Value]
    dlq: str = ""
    broker: str = ""
    content_type: str | None = None
    message_key: str | None = None
    message_id: str | None = None
    group_id: str | None = None
    dead_us: int = 0
    failures: int = 0
    generation: int = 0
    reason: str | None = None
    error_type: str | None = None
    error_fingerprint: str | None = None

    @property
    def text(self) -> str:
        """Return the body as UTF-8. Raises UnicodeDecodeError if it is not valid UTF-8."""
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """Return the body as JSON. Raises ValueError if it is not valid JSON."""
        return _json.loads(self.body)

    def changed(
        self,
        *,
        body: bytes | str | None = None,
        json: Any = _UNTOUCHED,
        headers: Mapping[str, Value] | None = None,
        target: str | None = None,
    ) -> Letter:
        """Return the same letter with another body, given as it is or as a JSON value, and another target.

        `headers` are added to the existing headers; None removes one.
        """
        if json is not _UNTOUCHED:
            if body is not None:
                raise TypeError("a letter has one body: give `body` or `json`")
            body = _json.dumps(json, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        kept = {name: value for name, value in {**self.headers, **(headers or {})}.items() if value is not None}
        return replace(
            self,
            body=self.body if body is None else body.encode() if isinstance(body, str) else body,
            headers=kept,
            target=self.target if target is None else target,
        )


Transform = Callable[[Letter], Letter | None]
"""Gives the letter, changed or not, or None to leave it out of the plan."""

Redact = Callable[[Letter], bytes | str | None]
"""Gives what people may see of a letter's body; None for nothing of it."""


def header_edits(before: Letter, after: Letter) -> dict[str, Value]:
    """Return the headers to set, and with None those to remove, to turn the headers of `before` into those of `after`.

    Raises TypeError or ValueError for a header that may not be changed, or a value that no header can have.
    """
    for one in fields(Letter):
        if one.name not in _OPEN and getattr(before, one.name) != getattr(after, one.name):
            raise ValueError(f"{one.name} tells of the letter, and cannot be changed")
    edits: dict[str, Value] = {name: None for name in before.headers if name not in after.headers}
    edits |= {name: value for name, value in after.headers.items() if before.headers.get(name) != value}
    for name, value in edits.items():
        if not isinstance(name, str) or not name or not isinstance(value, Value):
            raise TypeError(f"a header is a name and a text, a number or a truth, not {name!r}: {value!r}")
        if name.startswith(PREFIX):
            raise ValueError(f"the header {name} is ours: it says what becomes of the message")
    return edits


def checked_target(target: object) -> str:
    """Return the target in the lake's spelling.

    Raises TypeError, ConfigError or ValueError for a target to which no message can be sent back.
    """
    if not isinstance(target, str):
        raise TypeError(f"a target is a text, not {target!r}")
    found = Destination.parse(target)
    if found.kind == "topic" and not found.subscription:
        raise ValueError(f"{found} names no subscription: all of them would get it again")
    return found.short


@dataclass(frozen=True, slots=True)
class LetterChanges:
    """Holds what a transform or an editor has changed. `target`: where the letter goes, changed or not.

    `body` is None if it was not changed; `headers` are to be set, and those with None to be removed.
    """

    target: str
    body: bytes | None
    headers: Mapping[str, Value]


def changes_of(before: Letter, after: object) -> LetterChanges:
    """Return the changes that a user's function has made.

    Raises TypeError, ValueError or ConfigError if it returned no letter, or one that cannot be sent.
    """
    if inspect.iscoroutine(after):
        after.close()
        raise TypeError("the transform is async: write a plain function")
    if not isinstance(after, Letter):
        raise TypeError(f"the transform gave {type(after).__name__}, and not the letter or None")
    if not isinstance(after.body, bytes):
        raise TypeError(f"the body is {type(after.body).__name__}, and not bytes")
    headers, is_edited = header_edits(before, after), after.body != before.body
    target = before.target if after.target == before.target else checked_target(after.target)
    return LetterChanges(target, after.body if is_edited else None, headers)
