# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A dead letter as a transform gets it, and gives it back. No Spark in here.

::

    def repair(letter):
        order = letter.json()
        if order["total"] == 0:
            return None                                    # left out of the plan
        return letter.changed(json=order | {"currency": "EUR"}, headers={"x-repaired": "1"})
"""

from __future__ import annotations

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
    """One letter. What may be changed is `body`, `headers` and `target`; everything else tells of it.

    `destination` and `target` are a queue's name, or `topic:NAME::SUBSCRIPTION`: where it was consumed from, and where
    it will be sent, which is the same at first. `headers` are texts here, whatever they are on the wire; those
    that nobody changes go out as they were. `failures`: how often its handler failed. `generation`: how often it has
    been replayed. `dead_us`: when it died, microseconds since 1970.
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
        """The body as UTF-8; UnicodeDecodeError where it is not."""
        return self.body.decode("utf-8")

    def json(self) -> Any:
        """The body as JSON; ValueError where it is none."""
        return _json.loads(self.body)

    def changed(
        self,
        *,
        body: bytes | str | None = None,
        json: Any = _UNTOUCHED,
        headers: Mapping[str, Value] | None = None,
        target: str | None = None,
    ) -> Letter:
        """The same letter with another body, as it is or to be written as JSON, and another target.

        `headers` are set beside those it has; None removes one.
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
    """What is to be set, and as None removed, to make the headers of one those of the other.

    TypeError, ValueError for what may not be changed, or is nothing that a header can be.
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
    """As the lake spells it. TypeError, ConfigError, ValueError for what no message is sent back to."""
    if not isinstance(target, str):
        raise TypeError(f"a target is a text, not {target!r}")
    found = Destination.parse(target)
    if found.kind == "topic" and not found.subscription:
        raise ValueError(f"{found} names no subscription: all of them would get it again")
    return found.short
