# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the letters that a replay keeps unsettled, and their copies that are not confirmed yet. Not thread-safe.

Where the broker can, copy and settlement go out as one transaction, so a crash leaves exactly one of them. On other
brokers, and after a transaction has failed, a letter is in `held` until its copy is confirmed, then in `settling` until
the settlement is written. A lost link removes letters from both, because the broker delivers them again. The state of
their copies is kept.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..adapter.protocol import Adapter, TransferVerdict, Verdict
from ..errors import NotCopyable
from ..message import Delivery, Outgoing
from ..redelivery.identity import digest
from .frameworks import sent_back
from .letter import DeadLetterInfo, letter_of
from .report import LetterFate, LetterOutcome

UNCONFIRMED = 50  # copies that may wait for a confirm at once
_DOUBT = "the connection was lost before the answer, and it has not been seen since: it may have been sent back"


@dataclass(slots=True, eq=False)
class HeldLetter:
    """Holds a letter in hand. `delivery` is None after the broker has the letter again, which may come back."""

    delivery: Delivery | None
    letter: DeadLetterInfo
    key: object  # one for each letter; the same key when the same copy of ours comes again
    outcome: LetterOutcome | None = None
    died_again: bool = False  # the letter is of a message that this replay sent


class InFlightLetters:
    """Settles letters and publishes their copies.

    `post` queues an adapter's answers for the thread that owns this object.

    At most `limit` letters are tried. `tell` is called with each outcome.
    """

    def __init__(
        self,
        adapter: Adapter,
        replay_id: str,
        limit: int | None,
        post: Callable[[Callable[[], None]], None],
        tell: Callable[[LetterOutcome], None],
    ) -> None:
        self._adapter, self._replay_id, self._limit = adapter, replay_id, limit
        self._post, self._tell = post, tell
        self.held: dict[Delivery, HeldLetter] = {}
        self.settling: dict[Delivery, HeldLetter] = {}
        self.done: list[LetterOutcome] = []
        self.tried = 0
        self.lost = False  # a link was lost: letters may come a second time
        self.silent = False  # a copy has no answer: no further copy is sent, unless the link turns out to be lost
        self.ending = ""  # reason that no further letter is begun
        self._waiting: deque[HeldLetter] = deque()  # to be published
        self._flying: dict[object, HeldLetter] = {}  # published and without an answer, by key
        self._confirmed: set[object] = set()  # keys
        # Ids and digests of letters whose transaction has failed. Their copies are sent first, then the letters are
        # settled.
        self._apart: set[tuple[str, bytes]] = set()
        self._doubtful: dict[
            object, HeldLetter
        ] = {}  # the end of a transaction is not known, and the letter was not seen since

    @property
    def enough(self) -> bool:
        """Return whether as many letters were tried as were asked for."""
        return self._limit is not None and self.tried >= self._limit

    @property
    def _at_end(self) -> bool:
        return bool(self.ending) or self.silent or self.enough

    @property
    def idle(self) -> bool:
        """Return whether every published copy has its answer and every settlement is written."""
        return not self._flying and not self.settling

    @property
    def known(self) -> int:
        """Return the number of letters, of those that were there at the start, that have been seen."""
        return len(self.done) + sum(not held.died_again for held in self.held.values())

    def take(self, delivery: Delivery) -> HeldLetter | None:
        """Return the held letter for an arrival; None for one whose copy is published or confirmed already."""
        letter = letter_of(delivery, self._adapter.capabilities)
        identity = (letter.id, digest(delivery))
        self._doubtful.pop(identity, None)
        # Letters that a broker made may be identical in all that can be compared; ours are not.
        key = identity if letter.evidence == "ours" else object()
        if self.lost and self._seen(delivery, key):
            return None
        held = self.held[delivery] = HeldLetter(delivery, letter, key)
        held.died_again = letter.replay_id == self._replay_id
        return held

    def attempt(self, held: HeldLetter) -> None:
        """Send the letter back as soon as there is room."""
        if held.letter.problem:
            self._end(held, "skipped", held.letter.problem)
        else:
            self._waiting.append(held)
            self._publish()

    def forget(self, generation: int) -> None:
        """Forget the letters of a lost generation: the broker has them again and delivers them again."""
        self.lost, self.silent = True, False
        for place in (self.held, self.settling):
            for delivery in [d for d in place if d.generation == generation]:
                held = place.pop(delivery)
                held.delivery = None
                self.tried -= held.outcome is not None and held.outcome.fate == "refused"
        self._waiting = deque(held for held in self._waiting if held.delivery is not None)

    def outcomes(self) -> list[LetterOutcome]:
        """Return the outcomes of all letters that were tried or judged."""
        stayed = [held.outcome for held in self.held.values() if held.outcome is not None]
        flying = [LetterOutcome(held.letter, "refused", "no answer yet") for held in self._flying.values()]
        return (
            self.done + stayed + flying + [LetterOutcome(h.letter, "refused", _DOUBT) for h in self._doubtful.values()]
        )

    # -- inside -----------------------------------------------------------------------------------

    def _seen(self, delivery: Delivery, key: object) -> bool:
        """Return whether this is a letter with a published copy that came back because a link was lost."""
        if key in self._confirmed:
            self._adapter.settle([(delivery, "accepted")])
            return True
        flying = self._flying.get(key)
        if flying is None or flying.delivery is not None:
            return False
        flying.delivery = delivery
        self.held[delivery] = flying
        return True

    def _publish(self) -> None:
        while self._waiting and len(self._flying) < UNCONFIRMED and not self._at_end:
            if self._waiting[0].key in self._flying:  # two letters with the same copy: one after the other
                return
            held = self._waiting.popleft()
            if held.delivery is not None:
                self.tried += 1
                self._send(held, held.delivery)

    def _send(self, held: HeldLetter, delivery: Delivery) -> None:
        source, own = held.letter.source, uuid.uuid4().hex
        assert source is not None  # a letter without a source has a problem
        try:
            out = sent_back(delivery, source, self._adapter.capabilities, replay_id=self._replay_id, lineage=own)
        except NotCopyable as error:
            return self._end(held, "refused", str(error))
        self._flying[held.key] = held
        if self._adapter.capabilities.atomic_move and not self._is_apart(held, delivery):
            self._adapter.move(delivery, [(out, 0.0)], partial(self._post_moved, held, delivery, out))
        else:
            self._store(held, out)

    def _is_apart(self, held: HeldLetter, delivery: Delivery) -> bool:
        """Return whether a transaction has failed for this letter, also before a connection was lost with it."""
        return bool(self._apart) and (held.letter.id, digest(delivery)) in self._apart

    def _store(self, held: HeldLetter, out: Outgoing) -> None:
        self._adapter.publish(out, lambda verdict, why: self._post(partial(self._answered, held, verdict, why)))

    def _post_moved(
        self, held: HeldLetter, delivery: Delivery, out: Outgoing, verdict: TransferVerdict, why: str
    ) -> None:
        self._post(partial(self._moved, held, delivery, out, verdict))

    def _moved(self, held: HeldLetter, delivery: Delivery, out: Outgoing, verdict: TransferVerdict) -> None:
        """Take a transaction's outcome.

        `refused`: the letter is still in hand; `abandoned`: it will come back, or has.
        """
        if verdict != "ok":
            self._apart.add((held.letter.id, digest(delivery)))
        if verdict == "refused" and held.delivery is delivery:
            return self._store(held, out)
        del self._flying[held.key]
        if verdict == "ok":
            self.held.pop(delivery, None)
            self._replayed(held)
        elif held.delivery is None or held.delivery is delivery:
            self.held.pop(delivery, None)
            held.delivery, self.lost = None, True
            self._doubtful[held.letter.id, digest(delivery)] = held
            self.tried -= 1
        else:
            self.tried -= 1
            self._waiting.append(held)
        self._publish()

    def _answered(self, held: HeldLetter, verdict: Verdict, why: str) -> None:
        del self._flying[held.key]
        if verdict == "ok":
            self._confirm(held)
        else:
            if held.delivery is None:  # the broker has the letter again: it is judged anew when it comes back
                self.tried -= 1
            else:
                self.silent = self.silent or verdict == "silent"
                self._end(held, "refused", f"{held.letter.source} did not take it: {why or verdict}")
        self._publish()

    def _replayed(self, held: HeldLetter) -> None:
        self._confirmed.add(held.key)
        self.done.append(LetterOutcome(held.letter, "replayed"))
        self._tell(self.done[-1])

    def _confirm(self, held: HeldLetter) -> None:
        self._replayed(held)
        if (delivery := held.delivery) is not None:
            self.settling[delivery] = self.held.pop(delivery)
            written = partial(self._post, partial(self._written, delivery))
            self._adapter.settle([(delivery, "accepted")], written=written)

    def _written(self, delivery: Delivery) -> None:
        self.settling.pop(delivery, None)

    def _end(self, held: HeldLetter, fate: LetterFate, why: str) -> None:
        held.outcome = LetterOutcome(held.letter, fate, why)
        self._tell(held.outcome)
