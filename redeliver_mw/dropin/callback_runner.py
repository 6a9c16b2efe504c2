# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls the user's callback, and takes its result: it returned, it raised, or it settled the message itself."""

from __future__ import annotations

import inspect
import itertools
import logging
import random
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import replace

from ..adapter.capabilities import Capabilities
from ..clock import Clock, Moment, Stamps, SystemClock
from ..context import reset, set_delivery
from ..errors import ConfigError, Reject
from ..failure import describe
from ..journal.consumer_info import ConsumerInfo
from ..message import Delivery, Destination
from ..policy import Accept
from ..redaction import visible
from ..redelivery import ledger
from ..redelivery.commands import Arrived, ConsumerRetired, GenerationLost, HandlerFailed, HandlerSucceeded, NotRun
from ..redelivery.dispatcher import EventDispatcher
from ..redelivery.interceptor import Interceptor
from ..redelivery.ledger import Ledger
from ..redelivery.outbox import CLOSED, SendRules, outbox_for
from ..redelivery.plan import SourcePlan
from .bounded_log import BoundedLog
from .callback_settlements import ACK, RefusedHere, Requeued
from .command_executor import DropinCommandExecutor
from .copy_publisher import CopyPublisher, UserConnection
from .options import DropinOptions
from .run_queue import RunQueue
from .settlement_scope import CallbackRun, SettlementScope
from .window_watch import WindowWatch

log = logging.getLogger("redeliver_mw.dropin")
_orders = itertools.count(1)


class CallbackRunner(ABC):
    """Stands between a driver and the user's callback. One for each wrapper and connection.

    A subclass says how the callback is called. For each message it asks `generation(seat, consumer, source)`, makes the
    `Delivery`, and gives `arrived` a `CallbackRun` of it. Scopes tell of settlements and losses. All on the driver's
    thread.
    """

    def __init__(
        self,
        terms: DropinOptions,
        ground: UserConnection,
        post: CopyPublisher,
        capabilities: Capabilities,
        clock: Clock | None = None,
    ) -> None:
        self.terms = terms
        self._ground, self._post = ground, post
        # A transaction needs the link that the delivery came through.
        self.capabilities = (
            replace(capabilities, atomic_move=False, atomic_schedule=False) if post.elsewhere else capabilities
        )
        self.outbox = outbox_for(SendRules(self.capabilities, limbo=terms.limbo is not None))
        self._plans: dict[Destination, SourcePlan] = {}
        self._ledgers: dict[Destination, Ledger] = {}
        self._scopes: dict[int, SettlementScope] = {}  # by generation
        self._consumer = ConsumerInfo(terms.app_name, terms.host, ground.broker, capabilities.broker_kind)
        self._recorder = terms.recorder
        self._clock, self._rng = clock or SystemClock(), random.Random()
        self._stamps = Stamps(self._clock)
        # An id of its own: tokens begin anew with each interceptor, and both together are a message's lineage.
        self._interceptor = Interceptor(
            self._plans, self._ledgers, self.capabilities, uuid.uuid4().hex[:16], self._schedule_wait
        )
        self._queue = RunQueue(self.call, self._later)
        self._executor = DropinCommandExecutor(
            terms,
            ground,
            post,
            self._queue,
            self._scopes,
            self._consumer,
            self._clock,
            lambda x: self._feed(x),
            self.source_halted,
            self.source_resumed,
        )
        self._feed = EventDispatcher(self._interceptor.feed, self._executor).feed
        self._refusals: set[str] = set()  # that were logged
        self._late = BoundedLog(log)
        self._windows = WindowWatch(self._scopes, self._later)

    @property
    def over(self) -> bool:
        """Return whether its connection is closed."""
        return not self._ground.is_open

    def move_to(self, ground: UserConnection, post: CopyPublisher) -> None:
        """Go on with the connection that took the place of the closed one: what still runs is known here."""
        self._ground, self._post = ground, post
        self._executor.move_to(ground, post)
        self._queue.start_over()
        self._windows.stop()

    def _schedule_wait(self, source: Destination, seconds: float) -> float:
        return self._post.schedule_wait(source, seconds)

    def _later(self, seconds: float, fn: Callable[[], None]) -> None:
        self._ground.later(seconds, fn)

    def _now(self) -> Moment:
        return self._clock.now()

    # -- what a subclass says -----------------------------------------------------------------------

    @abstractmethod
    def invoke(self, turn: CallbackRun) -> object:
        """Call the user's callback as the driver would, with what it is to see of `turn.delivery`."""

    def finish(self, turn: CallbackRun, result: object) -> None:
        """The callback returned `result`. To be overridden where the driver's loop can await."""
        if inspect.isawaitable(result):
            self.leave(turn)
            raise ConfigError(
                "the callback returned an awaitable: this driver has no loop for it", code="callback-not-usable"
            )
        self.ended(turn, None)

    def passes(self, error: BaseException) -> bool:
        """Return whether an exception, once it has counted, goes on to the driver, whose own end it tells of."""
        return False

    def source_halted(self, source: Destination) -> None:
        """Note that the callback gets no more of the source's messages. Overridden where the driver has credit."""
        return  # most drivers have none

    def source_resumed(self, source: Destination) -> None:
        """Note that the callback gets the source's messages again. Overridden where the driver has credit."""
        return  # most drivers have none

    # -- messages ---------------------------------------------------------------------------------

    def learn(self, source: Destination) -> None:
        """Hold the policy of a source against this broker: ConfigError, PolicyError for what cannot be had. To be
        called before the first message where the driver tells of a subscription. LimboError for a limbo that cannot be
        opened."""
        plan = self.terms.plan(source, self.capabilities)
        self.terms.log_findings(source)
        if self.terms.limbo is not None:
            self.terms.limbo.open()
        self._ledgers[source] = ledger.ledger_of(self._ground.ledger_scope, source)
        self._plans[source] = plan
        self._post.provide(plan)

    def generation(self, seat: SettlementScope, consumer: Hashable, source: Destination) -> int:
        """Return the generation of this consumer on this seat.

        The source is learned at its first message: if that raises, nothing is to be done with the message, which stays
        unsettled.
        """
        if source not in self._plans:
            self.learn(source)
        generation = seat.generation(consumer, self)
        self._scopes[generation] = seat
        return generation

    def arrived(self, turn: CallbackRun) -> None:
        """Hand a delivery to the callback, at once if it has no past and its source is not halted."""
        turn.seat.take(turn)
        delivery = turn.delivery
        if self._may_have_past(delivery):
            self._learn_window(turn)
            self._feed(Arrived(delivery, self._now()))
        elif delivery.destination in self._queue.halted:
            self._queue.keep(turn)
        else:
            self.call(turn)

    def _may_have_past(self, delivery: Delivery) -> bool:
        """Return whether a delivery is a redelivery, a copy of ours, or a return that carries no mark."""
        marked = delivery.redelivered or delivery.reader.marked(delivery.native)
        return marked or self._interceptor.awaits(delivery)

    # -- calling ----------------------------------------------------------------------------------

    def call(self, turn: CallbackRun) -> None:
        """Call the callback with a delivery, and take its result."""
        self.begin(turn)
        token = set_delivery(turn.delivery)
        try:
            result = self.invoke(turn)
        except (KeyboardInterrupt, SystemExit):
            self.leave(turn)  # the user's program is to end, and the message is the broker's
            raise
        except BaseException as error:
            self.ended(turn, error)
            if self.passes(error):
                raise
        else:
            if result is None:
                self.ended(turn, None)
            else:
                self.finish(turn, result)
        finally:
            reset(token)

    def begin(self, turn: CallbackRun) -> None:
        turn.in_hand = turn.inside = True
        turn.order = next(_orders)
        turn.word, turn.before, turn.since = None, sys.exc_info()[1], time.perf_counter()
        turn.delivery.outbox = self.outbox()

    def ended(self, turn: CallbackRun, error: BaseException | None) -> None:
        """Take the end of a callback; its own settlement, if it gave one, comes before how it ended."""
        turn.inside = False
        word = turn.word
        if word is ACK:
            if error is not None:
                text = "%r was acked by its callback, which raised after that: the ack counts\n%s"
                log.error(text, turn.delivery, _shown(error))
        elif isinstance(error, RefusedHere):
            self.refused(turn, error)
        elif word is not None:
            self._failed(turn, error if error is not None and isinstance(word, Requeued) else word)
        elif error is not None:
            if turn.promised and not turn.seat.withdraw(turn):
                text = "%r: the callback raised, and its transaction has the settlement already: its outcome counts\n%s"
                log.error(text, turn.delivery, _shown(error))
            else:
                self._failed(turn, error)
        elif turn.promised:
            return  # its transaction settles it, or gives it back
        elif turn.returning_settles:
            self._handled(turn)
        else:
            self._windows.begin()

    def leave(self, turn: CallbackRun) -> None:
        """Leave a delivery unsettled: neither success nor failure."""
        turn.in_hand = turn.inside = False
        turn.delivery.outbox = CLOSED
        if turn.delivery.known:
            self._feed(NotRun(turn.delivery, self._now()))

    def _handled(self, turn: CallbackRun) -> None:
        turn.in_hand = False
        delivery, tick = turn.delivery, time.perf_counter()
        ran = tick - turn.since
        sends, delivery.outbox = delivery.outbox.close(), CLOSED
        if delivery.known or sends:
            self._feed(HandlerSucceeded(delivery, self._now(), ran, sends))
        elif turn.seat.settle(delivery, "accepted") and self._recorder.wanted:
            plan = self._plans[delivery.destination]
            self._recorder.healthy(delivery, self._consumer, plan, self._stamps.us(tick), round(ran * 1e6))

    def refused(self, turn: CallbackRun, error: RefusedHere) -> None:
        """Log, once, that the code asked for what a wrapper cannot do. The message did not fail; it stays unsettled."""
        if str(error) not in self._refusals:
            self._refusals.add(str(error))
            log.error("%s", error)
        self.leave(turn)

    def _failed(self, turn: CallbackRun, error: BaseException) -> None:
        turn.in_hand, turn.delivery.outbox = False, CLOSED
        self._learn_window(turn)
        ran = time.perf_counter() - turn.since
        shown = error.__cause__ if isinstance(error, Requeued | Reject) and error.__cause__ is not None else error
        if isinstance(error, Requeued) and shown is not error:
            # The policy decides by the exception, unless it ignores that type: a nack is never turned into an ack.
            decision = self._plans[turn.delivery.destination].policy.decide(1, 0.0, shown)
            error = error if isinstance(decision, Accept) else shown
        self._feed(HandlerFailed(turn.delivery, error, describe(shown), self._now(), self._rng.random(), ran))
        if turn.seat.is_retired(turn.delivery.generation):
            self._feed(ConsumerRetired(turn.delivery.generation))

    def _learn_window(self, turn: CallbackRun) -> None:
        """Let as many be held as fits the prefetch window; nobody tells when the driver opens it further."""
        seat, generation = turn.seat, turn.delivery.generation
        window = seat.window_of(generation)
        if window is None and not (seat.learns_window and not seat.is_retired(generation)):
            return
        plan = self._plans[turn.delivery.destination]
        ways = plan.ways.within(window, seat.most_unsettled(generation), self.terms.hold_budget)
        if ways != plan.ways:
            self._plans[turn.delivery.destination] = replace(plan, ways=ways)

    # -- what seats tell --------------------------------------------------------------------------

    def word(self, turn: CallbackRun, word: Exception) -> None:
        """Take the callback's own ack or reject. An ack is written at once, others are judged after the callback's end.

        A settlement on another thread comes here through `UserConnection.hop`.
        """
        if not turn.in_hand or turn.word is not None:
            why = "it is settled already" if turn.in_hand else "it is settled, held for a retry, or lost"
            self._late.error("%r: a settlement by the code came too late and is dropped: %s", turn.delivery, why)
            return
        turn.word = word
        if word is ACK:
            self._handled(turn)
        elif not turn.inside:
            self._failed(turn, word)

    def closing(self, turn: CallbackRun) -> None:
        if turn.returning_settles:
            self.word(turn, ACK)

    def retired(self, generation: int) -> None:
        """Give back what is held or waits to be run: the code cancelled the consumer."""
        for turn in self._queue.drop(generation):
            if turn.delivery.known:
                self._feed(NotRun(turn.delivery, self._now()))
            turn.seat.settle(turn.delivery, "released")
        self._feed(ConsumerRetired(generation))

    def lost(self, generation: int, turns: list[CallbackRun]) -> None:
        """Forget a lost generation. Only a callback that is not over yet still has a result."""
        self._scopes.pop(generation, None)
        self._post.forget(generation)
        self._queue.drop(generation)
        self._feed(GenerationLost(generation, [t.delivery for t in turns if t.inside and t.in_hand]))
        for turn in turns:
            if not turn.inside and turn.delivery.known:
                self._feed(NotRun(turn.delivery, self._now()))
        if self.terms.failures is not None:
            self.terms.failures.flush()  # the timers of a closed connection never come


def _shown(error: BaseException) -> str:
    """Return the traceback of the user's exception, without secrets and without what would steer a terminal."""
    return visible(describe(error).text.rstrip("\n"), lines=True)
