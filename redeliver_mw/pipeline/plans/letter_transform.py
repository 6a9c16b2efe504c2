# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the user's edits and transform to a letter, once. An exception does not lose the letter. No Spark."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...dead_letters.edits.letter import Letter, Transform, changes_of
from ...redaction import redact
from .eligibility import FAILED, TRANSFORM
from .header_edits import Edit, edited
from .plan_file import Bodies

READ: Final = (
    "dl_id",
    "original_destination",
    "dlq",
    "broker",
    "headers",
    "body",
    "content_type",
    "message_key",
    "message_id",
    "group_id",
    "dead_us",
    "failures",
    "generation",
    "reason",
    "error_type",
    "error_fingerprint",
)
# `body` and its hash are null if the body was not changed.
MADE: Final = (
    "dl_id STRING, target STRING, body BINARY, body_sha256 STRING, edited_body BOOLEAN, edits STRING, why STRING, "
    "detail STRING"
)
_NAMES: Final = tuple(column.split()[0] for column in MADE.split(", "))
_LONG: Final = 300  # characters that are kept of an exception's text


@dataclass(frozen=True, slots=True)
class LetterTransform:
    """Changes each letter: first the edits, in their order, then the transform.

    If the bodies stay in the lake, no body can be changed, because a changed body is stored in the plan only.
    """

    edits: tuple[Edit, ...] = ()
    transform: Transform | None = None
    bodies: Bodies = "plan"

    def __bool__(self) -> bool:
        return bool(self.edits) or self.transform is not None

    def made_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of MADE, which contains the error if the user's code raises one."""
        before = letter_in(row)
        try:
            after: Letter | None = edited(before, self.edits)
            if self.transform is not None and after is not None:
                after = self.transform(after)
            if after is None:
                return _left_out(before, TRANSFORM, None)
            made = _made(before, after)
            if made["edited_body"] and self.bodies == "lake":
                raise ValueError("its body was changed, and the plan holds no bodies")
            return made
        except (Exception, SystemExit) as error:  # the user's code: one letter with an error is no reason to stop
            what = " ".join(f"{type(error).__name__}: {error}".split())
            return _left_out(before, FAILED, redact(what)[:_LONG])


def letter_in(row: Mapping[str, Any]) -> Letter:
    """Return the letter of a row with the columns READ, as a user's function receives it."""
    given = {name: row[name] for name in READ if name != "original_destination"}
    for name in ("failures", "generation"):
        given[name] = given[name] or 0
    destination = row["original_destination"]
    return Letter(**given | {"headers": dict(row["headers"] or ()), "destination": destination, "target": destination})


def _made(before: Letter, after: object) -> dict[str, Any]:
    changes = changes_of(before, after)
    return {
        "dl_id": before.dl_id,
        "target": changes.target,
        "edited_body": changes.body is not None,
        "why": None,
        "detail": None,
        "body": changes.body,
        "body_sha256": None if changes.body is None else hashlib.sha256(changes.body).hexdigest(),
        "edits": json.dumps({"headers": changes.headers}, allow_nan=False) if changes.headers else None,
    }


def _left_out(before: Letter, why: str, detail: str | None) -> dict[str, Any]:
    return dict.fromkeys(_NAMES) | {"dl_id": before.dl_id, "edited_body": False, "why": why, "detail": detail}
