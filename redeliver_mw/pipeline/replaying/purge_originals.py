# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters that were only looked at lie in their queue still: those that are confirmed at their target come off it.

The queue is consumed once. A letter is accepted only if it is one that the ledger has confirmed, told by its `dl_id`
and by what it is; in doubt it stays, as do all others, which go back to the broker in the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ...adapter.protocol import Adapter
from ...adapter.registry import adapter_for
from ...dead_letters import BrokerClient, QueueDrain
from ...errors import NotCopyable
from ...message import Delivery, Destination
from ..draining.rows import LetterRows, run_of
from ..plans.plan_file import Plan
from .outcomes import looked_at

WINDOW: Final = 10_000  # letters in hand at once: those that stay are in hand until the end
_ORDINAL: Final = re.compile(r"([0-9a-f]{32})-[0-9]+")  # of letters that are alike in all that makes the id


def remove_confirmed(plan: Plan, url: str) -> int:
    """How many letters came off their queues. BrokerError; those that stay are told by the next run."""
    gone = 0
    for dlq, sent in looked_at(plan).items():
        queue = Destination.parse(dlq)
        with BrokerClient(adapter_for(url)) as asking:
            found = asking.depth(queue)
        if found:
            adapter = adapter_for(url)
            known = _Known(adapter, queue, sent)
            gone += QueueDrain(adapter, queue, known, quota=found, batch=WINDOW).run().kept
    return gone


class _Known:
    """The `Keeper` of a share: it keeps, so to say, what its target has."""

    def __init__(self, adapter: Adapter, queue: Destination, sent: dict[str, str | None]) -> None:
        self._adapter, self._queue = adapter, queue
        self._sent = sent  # dl_id -> hash of the body, None where it was edited
        self._alike: dict[str, list[str]] = {}
        for dl_id in sent:
            if found := _ORDINAL.fullmatch(dl_id):
                self._alike.setdefault(found[1], []).append(dl_id)

    def keep(self, generation: int, letters: Sequence[Delivery], /) -> Sequence[Delivery]:
        rows = LetterRows(run_of(self._adapter, "", self._queue, "broker"))
        readable = [letter for letter in letters if self._add(rows, letter)]
        told = rows.table().select(["dl_id", "body_sha256", "known_by"]).to_pylist()
        return [letter for letter, row in zip(readable, told, strict=True) if self._taken(**row)]

    def sure(self, batches: int, /) -> None:
        pass

    def lost(self) -> None:
        pass

    def _add(self, rows: LetterRows, letter: Delivery) -> bool:
        try:
            rows.add(letter)
        except NotCopyable:
            return False  # it was never looked at
        return True

    def _taken(self, dl_id: str, body_sha256: str, known_by: str) -> bool:
        """Whether it is one that was sent. Each counts once, but for a copy of ours, which is the same again."""
        if known_by == "copy" and dl_id in self._sent and self._sent[dl_id] in (None, body_sha256):
            return True
        for one in (dl_id, *self._alike.get(dl_id, ())):
            if self._sent.get(one) == body_sha256:
                del self._sent[one]
                return True
        return False
