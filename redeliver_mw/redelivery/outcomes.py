# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What the broker says of the copies that were sent. Pure."""

from __future__ import annotations

from .commands import CopyAnswered, TransactionAnswered
from .effects import Effects
from .pauses import LIMBO
from .states import Signal, State
from .tracking import TrackedDelivery


class CopyOutcomes(Effects):
    """Stories that hear of their copies."""

    def _answered(self, x: CopyAnswered) -> None:
        sender = self._flying.get(x.copy_id)
        story = self._stories.get(x.token)
        if sender is not None and sender.token == x.token:
            del self._flying[x.copy_id]
        if story is not None:
            self._hears(story, x)
        for waiting in self._awaited.pop(x.copy_id, ()):
            self._hears(waiting, x)

    def _hears(self, story: TrackedDelivery, x: CopyAnswered) -> None:
        story.open -= {x.copy_id}
        if x.ok:
            story.confirmed |= {x.copy_id}
            target = story.outs[x.copy_id].target
            self._refusing.discard(target)
            self._pauses.works(LIMBO if story.move is not None and story.move.parked else target)
            if story.entry is not None:
                story.entry.confirmed |= {x.copy_id}
                self._save(story)
            complete = story.confirmed >= set(story.outs)
            self._step(story, Signal.COMPLETE if complete else Signal.CONFIRMED)
        else:
            story.why, story.doubt = x.why, story.doubt or x.silent
            story.refusals = {**story.refusals, x.copy_id: x.why}
            if x.unfit:
                self._is_unfit(story)
        if story.state is State.MOVING and not story.open:
            if story.wave <= story.confirmed:
                self._send(story)  # what had to wait for these
            else:
                self._step(story, Signal.UNCONFIRMED)
        if story.state is State.ABANDONED and not story.open:
            self._close(story)

    def _moved(self, x: TransactionAnswered) -> None:
        """Copies and settle were tried as one. What failed so is not tried so again.

        A link that was lost says nothing against that, unless it is lost again: it may have died of the transaction.
        Sent apart, the copy would lead to a second dead letter if we were killed before the original is settled.
        """
        story = self._stories.get(x.token)
        if story is None:
            return
        story.open = frozenset()
        if x.verdict == "ok":
            return self._step(story, Signal.COMMITTED)
        story.why = x.why
        story.refusals = {**story.refusals, **dict.fromkeys(story.outs.keys() - story.confirmed, x.why)}
        entry = story.entry
        if x.verdict == "lost" and entry is not None and not entry.doubted:
            entry.doubted = True
        else:
            if entry is not None:
                entry.apart = True
            if story.move is not None:
                self._refusing.update(story.move.targets)
        self._step(story, Signal.UNCONFIRMED if x.verdict == "refused" else Signal.LOST)
        if story.state is State.ABANDONED:
            self._close(story)
