# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out, inside the user's own loop, what the interceptor commands.

One `Hands` for each wrapper and connection. All of it runs on the thread of that connection's loop; only answers
of a companion connection come from elsewhere, and only once that loop is gone. A callback is called from where the
driver calls callbacks, never from within a poll: what is to run again waits for the loop's next turn.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from pika.exceptions import AMQPConnectionError

from redeliver_mw import counting
from redeliver_mw.adapter import Verdict
from redeliver_mw.commands import (
    Answer,
    Arrived,
    Due,
    Failed,
    Forget,
    Halt,
    Handled,
    Input,
    Left,
    Lost,
    Record,
    Resume,
    Run,
    Say,
    Settle,
    Store,
    Wait,
    Written,
    carry_out,
)  # fmt: skip
from redeliver_mw.context import reset, set_delivery
from redeliver_mw.errors import ConfigError
from redeliver_mw.failure import describe
from redeliver_mw.interceptor import Interceptor, Plan
from redeliver_mw.message import Destination
from redeliver_mw.ports import Ledger, Moment, SystemClock
from redeliver_mw.recording import Scene, attempt_record, healthy_record
from redeliver_pika._dialects import capabilities, rung_arguments, rung_queue
from redeliver_pika._mapping import READER, delivery_of
from redeliver_pika._post import Post, Shared
from redeliver_pika._seat import ACK, Requeued, Seat, Turn
from redeliver_pika._shown import shown

if TYPE_CHECKING:
    from redeliver_pika._wrapper import Redelivering

log = logging.getLogger("redeliver_mw.pika")


class Hands:
    """The callback's caller, and the hands of the interceptor."""

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
        self._again: deque[Turn] = deque()  # to be run again, at the loop's next turn
        self._ready: deque[Turn] = deque()  # not run yet: they came while their source was halted
        self._going = False
        self._halted: set[Destination] = set()
        self._tasks: set[asyncio.Task[None]] = set()
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

    # -- messages ---------------------------------------------------------------------------------

    def message(self, seat: Seat, bound: tuple[Any, ...], method: Any, properties: Any, body: bytes) -> None:
        """What the driver calls. ConfigError where nothing can be done right: the message stays unsettled."""
        source = self._wrapper.source_of(seat, method)
        if source not in self._plans:
            self._learn(source)
        generation = seat.generation(method.consumer_tag, self)
        self._seats[generation] = seat
        delivery = delivery_of(source, generation, (method, properties, body))
        turn = Turn(delivery, seat, self, bound)
        seat.take(turn)
        if delivery.redelivered or READER.marked(delivery.native):
            self._feed(Arrived(delivery, self._now()))
        elif self._halted and source in self._halted:
            self._ready.append(turn)
        else:
            self._call(turn)
        self._flush(seat)

    def _learn(self, source: Destination) -> None:
        """The first message of a source: its policy is held against this broker, its ladder is made."""
        if self._wrapper.is_async and not isinstance(self._loop, asyncio.AbstractEventLoop):
            raise ConfigError("a coroutine callback needs pika's AsyncioConnection", cure="Use it, or a function")
        plan = self._wrapper.plan(source, self.capabilities)
        self._ledgers[source] = counting.ledger_of(self._shared.broker, source)
        self._plans[source] = plan
        for rung in plan.ways.schedule.rungs if plan.ways.schedule else ():
            self._post.prepare(rung_queue(source, rung), rung_arguments(source, rung))

    @property
    def _loop(self) -> Any:
        return getattr(self._shared.raw, "ioloop", None)

    def _flush(self, seat: Seat) -> None:
        """A BlockingConnection writes only when it is polled; by hand each ack does that."""
        if self._shared.blocking and self._shared.is_open and not getattr(seat.channel, "_pending_events", ()):
            self._shared.users.process_data_events(0)

    def _now(self) -> Moment:
        return self._clock.now()

    # -- calling ----------------------------------------------------------------------------------

    def _call(self, turn: Turn) -> None:
        self.begin(turn)
        token = set_delivery(turn.delivery)
        try:
            result = self._wrapper.callback(*turn.bound, turn.seat.channel, *shown(turn.delivery))
        except (KeyboardInterrupt, SystemExit):
            self.leave(turn)  # the user's program is to end, and the message is the broker's
            raise
        except BaseException as error:
            self.ended(turn, error)
            if self._shared.blocking and not self._shared.is_open and isinstance(error, AMQPConnectionError):
                raise  # the driver's own word that its loop is over
        else:
            if result is not None and inspect.isawaitable(result):
                self._spawn(turn, result)
            else:
                self.ended(turn, None)
        finally:
            reset(token)

    def begin(self, turn: Turn) -> None:
        turn.in_hand = turn.inside = True
        turn.word, turn.before, turn.since = None, sys.exc_info()[1], time.perf_counter()

    def _spawn(self, turn: Turn, result: Any) -> None:
        if not isinstance(self._loop, asyncio.AbstractEventLoop):
            self.leave(turn)
            raise ConfigError("the callback returned an awaitable: that needs pika's AsyncioConnection")
        turn.before = None
        task = self._loop.create_task(self._await(turn, result))  # it inherits the delivery in hand
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _await(self, turn: Turn, result: Awaitable[object]) -> None:
        try:
            await result
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            self.leave(turn)
            raise
        except BaseException as error:
            self.ended(turn, error)
        else:
            self.ended(turn, None)

    def ended(self, turn: Turn, error: BaseException | None) -> None:
        """The callback is over; its own word, if it gave one, comes before how it ended."""
        turn.inside = False
        word = turn.word
        if word is ACK:
            if error is not None:
                text = "%r was acked by its callback, which raised after that: the ack counts"
                log.error(text, turn.delivery, exc_info=error)
        elif word is not None:
            self._failed(turn, error if error is not None and isinstance(word, Requeued) else word)
        elif error is not None:
            self._failed(turn, error)
        elif self._wrapper.settle == "return":
            self._handled(turn)

    def leave(self, turn: Turn) -> None:
        """Neither success nor failure: it stays unsettled."""
        turn.in_hand = turn.inside = False
        if turn.delivery.known:
            self._feed(Left(turn.delivery, self._now()))

    def _handled(self, turn: Turn) -> None:
        turn.in_hand = False
        delivery, ran = turn.delivery, time.perf_counter() - turn.since
        if delivery.known:
            self._feed(Handled(delivery, self._now(), ran))
        elif turn.seat.settle(delivery, "accepted") and self._recorder.wanted:
            policy = self._plans[delivery.destination].policy
            self._recorder.append(healthy_record, delivery, self._scene, policy, self._now().us, round(ran * 1e6))

    def _failed(self, turn: Turn, error: BaseException) -> None:
        turn.in_hand = False
        ran = time.perf_counter() - turn.since
        self._feed(Failed(turn.delivery, error, describe(error), self._now(), self._rng.random(), ran))

    # -- what seats tell --------------------------------------------------------------------------

    def word(self, turn: Turn, word: Exception) -> None:
        """The callback's own ack or reject. An ack is written at once, the others are judged when it is over."""
        if not turn.in_hand or turn.word is not None:
            log.debug("%r has its word already: a further one is dropped", turn.delivery)
            return
        turn.word = word
        if word is ACK:
            self._handled(turn)
        elif not turn.inside:
            self._failed(turn, word)

    def closing(self, turn: Turn) -> None:
        if self._wrapper.settle == "return":
            self.word(turn, ACK)

    def lost(self, generation: int, turns: list[Turn]) -> None:
        """Only of a callback that is not over yet a result will come; a word after that may never."""
        self._seats.pop(generation, None)
        self._post.forget(generation)
        self._again = deque(t for t in self._again if t.delivery.generation != generation)
        self._ready = deque(t for t in self._ready if t.delivery.generation != generation)
        self._feed(Lost(generation, [t.delivery for t in turns if t.inside and t.in_hand]))
        for turn in turns:
            if not turn.inside and turn.delivery.known:
                self._feed(Left(turn.delivery, self._now()))

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
        number = self._timers[c.token] = self._timers.get(c.token, 0) + 1

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
