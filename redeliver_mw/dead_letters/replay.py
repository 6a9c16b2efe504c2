# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one replay of one dead-letter queue, from its first letter to the last that was there at the start.

Nothing here is concurrent: answers of the adapter are queued, and the one thread in `run` takes them off the queue.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue

from ..adapter.capabilities import Capabilities
from ..adapter.protocol import Adapter, Subscription
from ..errors import BrokerUnavailable, ConfigError, DestinationMissing, RedeliverError
from ..message import Delivery, Destination
from .in_flight import HeldLetter, InFlightLetters
from .report import LetterOutcome, ReplayReport, ambiguous, no_such_letter

WINDOW = 500  # letters in hand at once: a letter that is refused or skipped stays in hand until the end
SEARCHED = 10_000  # letters in hand at once when one letter is looked for by its id
QUIET = 2.0  # seconds without any input, after which the broker is asked whether letters are left
QUIET_ROUNDS = 15  # number of such quiet periods, after which the missing letters are left to another replay
QUIET_DRIVES = 100  # number of quiet periods on a hand-driven clock while an answer is due
LAST_WORDS = 5.0  # seconds to wait for answers that are due, once the replay is to stop


class Replay:
    """Replays letters as an adapter's `Sink`, for one call of `run`.

    `limit`: try at most so many letters (>= 1). `only`: the id of one letter, or the beginning of an id. `drive` runs
    what is due on a hand-driven clock, in place of waiting. `tell` is called with each outcome as it comes.
    """

    def __init__(
        self,
        adapter: Adapter,
        dlq: Destination,
        *,
        limit: int | None = None,
        only: str = "",
        replay_id: str = "",
        drive: Callable[[], object] | None = None,
        tell: Callable[[LetterOutcome], None] = lambda outcome: None,
    ) -> None:
        if limit is not None and limit < 1:
            raise ConfigError(
                f"a limit of {limit} replays nothing",
                where="limit",
                cure="Give a number from 1 on",
                code="option-value",
            )
        if dlq.kind == "topic" and not dlq.subscription:
            raise ConfigError(
                f"{dlq} is no queue",
                cure="Name the queue, or topic:NAME::SUBSCRIPTION, of the letters",
                code="destination-kind",
            )
        self.replay_id = replay_id or uuid.uuid4().hex[:16]
        self._adapter, self._dlq, self._only, self._drive = adapter, dlq, only, drive
        self._inputs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        most = 1 if only and limit is None else limit
        self._hand = InFlightLetters(adapter, self.replay_id, most, self._inputs.put, tell)
        self._asked = False
        self._doubt: RedeliverError | None = None  # why the number of letters is not known
        self._prefetch = 0  # 0: not consuming
        self._goal: int | None = None  # letters that were there at the start, where the broker reports a number
        self._quiet = 0
        self._interrupted = False
        self._over = False

    # -- called by others -------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin no further letter, and end the replay. Callable from any thread and from a signal handler."""
        self._interrupted, self._hand.ending = True, "interrupted"
        self._inputs.put(lambda: None)  # wakes the thread in `run`

    def run(self) -> ReplayReport:
        """Replay until all letters that were there at the start have been looked at, then close the adapter.

        Raises BrokerError or ConfigError if the replay cannot begin. Failures of single letters are in the report.
        """
        self._adapter.start(self)
        try:
            while not self._over:
                step = self._next()
                step()
                self._judge()
        finally:
            self._adapter.close(LAST_WORDS)
        hand = self._hand
        again = sum(held.died_again for held in hand.held.values())
        rest = "" if self._interrupted else hand.ending
        return ReplayReport(self.replay_id, hand.outcomes(), again, rest, self._interrupted)

    # -- the adapter's sink: any thread -----------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        self._inputs.put(self._connected)

    def ready(self, source: Destination, generation: int, /) -> None:
        pass

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        self._inputs.put(partial(self._arrived, batch))

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        self._inputs.put(partial(self._hand.forget, generation))

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        self._inputs.put(partial(self._fail, error))

    # -- the one thread ---------------------------------------------------------------------------

    def _next(self) -> Callable[[], None]:
        """Return the next input; after a while without one, check whether letters are left."""
        if self._drive is not None:
            self._drive()
        try:
            step = self._inputs.get(block=self._drive is None, timeout=QUIET)
        except Empty:
            return self._nothing_came
        self._quiet = 0
        return step

    def _connected(self) -> None:
        if self._asked:
            return  # connected again, after a lost connection
        self._asked = True
        if self._adapter.capabilities.depth:
            self._adapter.depth(self._dlq, lambda found: self._inputs.put(partial(self._begin, found)))
        else:
            self._begin(None)

    def _begin(self, found: int | RedeliverError | None) -> None:
        if isinstance(found, DestinationMissing):
            return self._fail(found)
        if isinstance(found, RedeliverError):  # the broker is asked again if the connection was lost just now
            self._asked, self._doubt = False, found
            return
        self._goal = found
        most = SEARCHED if self._only else WINDOW
        self._prefetch = most if found is None else min(found, most)
        if self._prefetch:
            self._adapter.subscribe(Subscription(source=self._dlq, prefetch=self._prefetch, helpers=False))

    def _fail(self, error: RedeliverError) -> None:
        if isinstance(error, DestinationMissing):
            raise missing(self._dlq, self._adapter.broker) from None
        raise error

    def _arrived(self, batch: Sequence[Delivery]) -> None:
        for delivery in batch:
            held = self._hand.take(delivery)
            if held is not None and not held.died_again and (not self._only or held.letter.id == self._only):
                self._hand.attempt(held)

    # -- the end of the replay --------------------------------------------------------------------

    def _judge(self) -> None:
        hand = self._hand
        if self._over or not hand.idle or hand.silent:
            return  # after a long silence, find out whether the publishing link is lost as well
        if hand.ending or hand.enough or self._goal == 0:
            self._over = True
            if self._goal == 0 and self._only:
                raise no_such_letter(self._only, self._dlq, 0)
        elif self._goal is not None and hand.known >= self._goal:
            self._over = not hand.lost and self._searched()  # after a lost link some letters may still come back
        elif 0 < self._prefetch <= len(hand.held) and self._searched():
            hand.ending = f"{len(hand.held)} letters that stay are in the way of the others"
            self._over = True

    def _searched(self) -> bool:
        """Try the letter whose id begins with `only`, after all visible letters were seen.

        Return False if one is on its way.
        """
        hand = self._hand
        if not self._only or hand.tried or hand.outcomes():
            return True
        found: list[HeldLetter] = [held for held in hand.held.values() if held.letter.id.startswith(self._only)]
        if not found:
            raise no_such_letter(self._only, self._dlq, len(hand.held))
        if len({held.letter.id for held in found}) > 1:
            raise ambiguous(self._only, len(found))
        for held in found:
            hand.attempt(held)
        return hand.idle

    def _nothing_came(self) -> None:
        """Ask the broker whether letters are left: other consumers take letters too, and letters expire."""
        self._quiet += 1
        hand = self._hand
        if hand.silent and hand.idle:
            hand.ending, self._over = hand.ending or "the broker does not answer", True
        elif self._drive is not None:
            if hand.idle or self._quiet > QUIET_DRIVES:
                self._finish("")
        elif self._interrupted:
            self._over = QUIET * self._quiet > LAST_WORDS
        elif self._quiet > (QUIET_ROUNDS if self._asked else 1) and hand.idle and (self._asked or self._doubt):
            self._finish(f"nothing came for {QUIET * self._quiet:.0f} s")
        elif self._prefetch and hand.idle and self._adapter.capabilities.depth:
            self._adapter.depth(self._dlq, partial(self._left, self._quiet))

    def _left(self, quiet: int, found: int | RedeliverError) -> None:
        """Queue the answer to "is anything left?". Called on a thread of the adapter."""
        self._inputs.put(partial(self._look, quiet, found))

    def _look(self, quiet: int, found: int | RedeliverError) -> None:
        self._quiet = quiet  # the answer itself does not count as an input
        # Some brokers count the letters in our hands and others do not. Ready letters would have arrived by now.
        if isinstance(found, int) and found <= len(self._hand.held) and self._hand.idle:
            self._finish("")

    def _finish(self, rest: str) -> None:
        if self._doubt is not None and not self._asked:
            raise self._doubt
        if self._prefetch == 0:
            raise BrokerUnavailable("the broker does not answer", where=self._adapter.broker, code="broker-timeout")
        if self._searched() or self._drive is not None:
            self._hand.ending, self._over = self._hand.ending or rest, True


def missing(dlq: Destination, broker: str) -> DestinationMissing:
    """Return the error for a dead-letter queue that does not exist."""
    cure = "Check its name; where no message has died there may be none"
    return DestinationMissing(f"there is no {dlq}", where=broker, cure=cure)
