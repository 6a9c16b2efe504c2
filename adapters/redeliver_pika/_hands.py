# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out, inside the user's own loop, what the interceptor commands.

One for each wrapper and connection. All of it runs on the thread of that connection's loop; only answers of a
companion connection come from elsewhere, and only once that loop is gone. A callback is called from where the
driver calls callbacks, never from within a poll: what is to run again waits for the loop's next turn.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
from collections import deque
from typing import TYPE_CHECKING

from redeliver_mw.adapter import Verdict
from redeliver_mw.commands import (
    Answer,
    Due,
    Forget,
    Halt,
    Input,
    Record,
    Resume,
    Run,
    Say,
    Settle,
    Store,
    Wait,
    Written,
    carry_out,
)
from redeliver_mw.interceptor import Interceptor, Plan
from redeliver_mw.message import Destination
from redeliver_mw.ports import Ledger, Moment, SystemClock
from redeliver_mw.recording import Scene, attempt_record
from redeliver_pika._dialects import capabilities
from redeliver_pika._post import Post, Shared
from redeliver_pika._seat import Seat, Turn

if TYPE_CHECKING:
    from redeliver_pika._wrapper import Redelivering

log = logging.getLogger("redeliver_mw.pika")


class Hands:
    """Feeds the interceptor, and does what it commands. Who calls the callback is `Caller`."""

    def __init__(self, wrapper: Redelivering, shared: Shared) -> None:
        self._wrapper, self._shared = wrapper, shared
        params, version = shared.raw.params, str((shared.raw.server_properties or {}).get("version", "0"))
        self.capabilities = capabilities(
            version, params.frame_max or 131072, exact_headers=bool(getattr(shared.raw, "exact_headers", False))
        )
        self._plans: dict[Destination, Plan] = {}
        self._ledgers: dict[Destination, Ledger] = {}
        self._interceptor = Interceptor(self._plans, self._ledgers, self.capabilities, wrapper.run_id)
        self._scene = Scene(wrapper.app_name, wrapper.host, shared.broker, "rabbitmq")
        self._post: Post = wrapper.companion or shared
        self._recorder = wrapper.recorder
        self._clock, self._rng = SystemClock(), random.Random()
        self._seats: dict[int, Seat] = {}  # by generation
        self._timers: dict[int, int] = {}  # token -> the number of its timer: an older one is out of date
        self._numbers = itertools.count(1)
        self._again: deque[Turn] = deque()  # to be run again, at the loop's next turn
        self._ready: deque[Turn] = deque()  # not run yet: they came while their source was halted
        self._going = False
        self._halted: set[Destination] = set()
        self._inbox: deque[Input] = deque()
        self._feeding = False
        self._lock = threading.RLock()

    @property
    def over(self) -> bool:
        """Its connection is closed."""
        return not self._shared.is_open

    def move_to(self, shared: Shared) -> None:
        """To the connection that took the place of the closed one: what still runs is known here."""
        self._shared, self._halted, self._going = shared, set(), False
        self._post = self._wrapper.companion or shared

    def _now(self) -> Moment:
        return self._clock.now()

    def _call(self, turn: Turn) -> None:
        raise NotImplementedError

    # -- feeding ----------------------------------------------------------------------------------

    def _feed(self, x: Input) -> None:
        """One after the other, in the order in which they come: what a command leads to is fed after it."""
        with self._lock:
            self._inbox.append(x)
            if self._feeding:
                return
            self._feeding = True
            try:
                while self._inbox:
                    self._take(self._inbox.popleft())
            finally:
                self._feeding = False

    def _take(self, x: Input) -> None:
        try:
            carry_out(self._interceptor.feed(x), self)
        except Exception:  # a fault of ours: the message stays unsettled (rule 3)
            log.exception("a fault while %s was dealt with; its message stays unsettled", type(x).__name__)

    # -- what the interceptor commands ------------------------------------------------------------

    def run(self, c: Run) -> None:
        seat = self._seats.get(c.delivery.generation)
        turn = seat.turn(c.delivery) if seat is not None else None
        if turn is not None:
            self._again.append(turn)
            self._go_on()

    def _go_on(self) -> None:
        if not self._going and (self._again or self._ready):
            self._going = True
            self._shared.later(0, self._work)

    def _work(self) -> None:
        """Call the callback with one that waits, at each turn of the loop: the driver gets to its own work between."""
        self._going = False
        turn = self._next()
        try:
            if turn is not None:
                self._call(turn)
        finally:
            if turn is not None:
                self._go_on()

    def _next(self) -> Turn | None:
        """What is run again comes before what has not been run; what is halted stays."""
        for queue in (self._again, self._ready):
            for turn in queue:
                if turn.delivery.destination not in self._halted:
                    queue.remove(turn)
                    return turn
        return None

    def wait(self, c: Wait) -> None:
        number = self._timers[c.token] = next(self._numbers)

        def due() -> None:
            if self._timers.get(c.token) == number:
                del self._timers[c.token]
                self._feed(Due(c.token, self._now()))

        self._shared.later(c.seconds, due)

    def forget(self, c: Forget) -> None:
        self._timers.pop(c.token, None)

    def store(self, c: Store) -> None:
        shared, origin = self._shared, c.out.origin

        def alive() -> bool:
            return origin is None or origin.generation in self._seats

        def answered(verdict: Verdict, why: str) -> None:
            self._feed(Answer(c.token, c.out.copy_id, verdict == "ok", why, self._now()))

        def hop(verdict: Verdict, why: str) -> None:
            shared.hop(lambda: answered(verdict, why))

        self._post.store(c.out, c.after, answered if self._post is shared else hop, alive)

    def settle(self, c: Settle) -> None:
        seat = self._seats.get(c.delivery.generation)
        if seat is not None and seat.settle(c.delivery, c.word):
            self._feed(Written(c.token))

    def record(self, c: Record) -> None:
        if self._recorder.wanted:
            policy = self._plans[c.delivery.destination].policy
            self._recorder.append(attempt_record, c, self._scene, policy)

    def halt(self, c: Halt) -> None:
        self._halted.add(c.source)
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on by itself once that is over", c.source, c.reason)

    def resume(self, c: Resume) -> None:
        self._halted.discard(c.source)
        self._go_on()

    def say(self, c: Say) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text)
