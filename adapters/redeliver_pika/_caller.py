# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls the callback, and takes what it says: by returning, by raising, by an ack or reject of its own."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any

from pika.exceptions import AMQPConnectionError

from redeliver_mw import counting
from redeliver_mw.commands import Arrived, Failed, Handled, Left, Lost
from redeliver_mw.context import reset, set_delivery
from redeliver_mw.errors import ConfigError
from redeliver_mw.failure import describe
from redeliver_mw.message import Destination
from redeliver_mw.recording import healthy_record
from redeliver_pika._dialects import rung_arguments, rung_queue
from redeliver_pika._hands import Hands
from redeliver_pika._mapping import READER, delivery_of
from redeliver_pika._seat import ACK, Requeued, Seat, Turn
from redeliver_pika._shown import shown

log = logging.getLogger("redeliver_mw.pika")
_tasks: set[asyncio.Task[None]] = set()  # a loop itself keeps only weak references


class Caller(Hands):
    """What the driver calls with each message, and what seats tell of words and losses."""

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
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

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
