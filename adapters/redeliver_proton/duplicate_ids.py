# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the id by which the broker drops a second try of one copy, and nothing else.

Our copy id alone would do that too well. It is a hash of the message's own id where it has no other past; a
producer that gives every message the same id, and no time, makes equal copy ids day after day, and the broker
remembers some twenty thousand per address over restarts: the copy would be taken for a repetition and dropped. So
each copy id gets a salt: what limbo says of its row, which outlives this program as the row does, else one that lives
as long as its original is unsettled here.
"""

from __future__ import annotations

import itertools
import os
from collections import OrderedDict

from redeliver_mw.message import Delivery, Outgoing

SIZE = 10_000  # salts that are remembered


class DuplicateIdSalts:
    """Keeps the salts of duplicate ids. On the loop's thread."""

    def __init__(self) -> None:
        self._run = os.urandom(6).hex()
        self._numbers = itertools.count(1)
        self._salts: OrderedDict[str, str] = OrderedDict()
        self._of: dict[Delivery, set[str]] = {}

    def duplicate_id(self, out: Outgoing) -> str:
        """Return an id that is the same on every try of a copy while its original is unsettled; empty for no copy."""
        if not out.copy_id:
            return ""
        if out.duplicate_salt:
            return f"{out.copy_id}.{out.duplicate_salt}"
        salt = self._salts.get(out.copy_id)
        if salt is None:
            salt = self._salts[out.copy_id] = f"{self._run}{next(self._numbers):x}"
            if len(self._salts) > SIZE:
                self._salts.popitem(last=False)
        if out.settles is not None:
            self._of.setdefault(out.settles, set()).add(out.copy_id)
        return f"{out.copy_id}.{salt}"

    def settled(self, delivery: Delivery) -> None:
        """Forget a settled delivery: its copies are not tried again, so equal ids are another message's from now on."""
        for copy_id in self._of.pop(delivery, ()):
            self._salts.pop(copy_id, None)

    def lost(self, generation: int) -> None:
        """Keep the salts of a lost generation: its originals come again, and their copies with them."""
        for delivery in [d for d in self._of if d.generation == generation]:
            del self._of[delivery]
