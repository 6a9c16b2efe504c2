# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes label values of texts that come from elsewhere: in one line, not too long, and not too many of them."""

from __future__ import annotations

import threading
from typing import Final

from ..redaction import trim_utf8

LABEL_BYTES = 200
OTHER: Final = "other"
FORMS = 10  # texts that are remembered for each label value, since several may lead to the same one


def label(text: str) -> str:
    """Return a text as a label value: in one line, and at most 200 bytes long."""
    return trim_utf8("".join(c if c.isprintable() else " " for c in text[: 2 * LABEL_BYTES]), LABEL_BYTES)


class BoundedLabel:
    """Gives the first `most` different values a label value of their own, and all later ones `other`. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}  # text -> label value
        self._values: set[str] = set()
        self._making = threading.Lock()

    def of(self, text: str) -> str:
        """Return the label value of a text."""
        if (known := self._known.get(text)) is not None:
            return known
        value = label(text) or OTHER
        with self._making:
            if value not in self._values and len(self._values) >= self._most:
                return OTHER
            self._values.add(value)
            if len(self._known) < FORMS * self._most:
                self._known[text] = value
            return value
