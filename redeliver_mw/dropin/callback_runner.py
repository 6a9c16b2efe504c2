# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls the callback, and takes what it says: by returning, by raising, by an ack or reject of its own."""

from __future__ import annotations

import inspect
import itertools
import logging
import sys
import time
from abc import abstractmethod
from collections.abc import Hashable
from dataclasses import replace

from ..context import reset, set_delivery
from ..errors import ConfigError, Reject
from ..failure import describe
from ..message import Destination
from ..policy import Accept
from ..redelivery import ledger
from ..redelivery.commands import Arrived, ConsumerRetired, GenerationLost, HandlerFailed, HandlerSucceeded, NotRun
from ..redelivery.outbox import CLOSED
from .callback_settlements import ACK, RefusedHere, Requeued
from .command_handler import CommandHandling
from .settlement_scope import CallbackRun, SettlementScope

log = logging.getLogger("redeliver_mw.dropin")
_orders = itertools.count(1)


class CallbackRunner(CommandHandling):
    """What the driver calls with each message, and what seats tell of words and losses.

    A subclass says how the callback is called. For each message it asks `generation(seat, consumer, source)`,
    makes the `Delivery`, and gives `arrived` a `CallbackRun` of it. All on the driver's thread.
    """

    @abstractmethod
    def invoke(self, turn: CallbackRun) -> object:
        """Call the user's callback as the driver would, with what it is to see of `turn.delivery`."""

    def finish(self, turn: CallbackRun, result: object) -> None:
        """The callback returned `result`. To be overridden where the driver's loop can await."""
        if inspect.isawaitable(result):
            self.leave(turn)
            raise ConfigError("the callback returned an awaitable: this driver has no loop for it")
        self.ended(turn, None)

    def passes(self, error: BaseException) -> bool:
        """Whether an exception, once it has counted, goes on to the driver: the driver's own word of its end."""
        return False

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
        """Of this consumer on this seat. At the first message of a source it is learned: when that raises, nothing
        is to be done with the message, which stays unsettled."""
        if source not in self._plans:
            self.learn(source)
        generation = seat.generation(consumer, self)
        self._seats[generation] = seat
        return generation

    def arrived(self, turn: CallbackRun) -> None:
        """Hand it to the callback, at once if it has no past and its source is not halted."""
        turn.seat.take(turn)
        delivery = turn.delivery
        if self._has_past(delivery):
            self._learn_window(turn)
            self._feed(Arrived(delivery, self._now()))
        elif self._halted and delivery.destination in self._halted:
            self._ready.append(turn)
        else:
            self.call(turn)

    # -- calling ----------------------------------------------------------------------------------

    def call(self, turn: CallbackRun) -> None:
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
        """The callback is over; its own word, if it gave one, comes before how it ended."""
        turn.inside = False
        word = turn.word
        if word is ACK:
            if error is not None:
                text = "%r was acked by its callback, which raised after that: the ack counts"
                log.error(text, turn.delivery, exc_info=error)
        elif isinstance(error, RefusedHere):
            self.refused(turn, error)
        elif word is not None:
            self._failed(turn, error if error is not None and isinstance(word, Requeued) else word)
        elif error is not None:
            if turn.promised and not turn.seat.withdraw(turn):
                text = "%r: the callback raised, and its transaction has the settlement already: its outcome counts"
                log.error(text, turn.delivery, exc_info=error)
            else:
                self._failed(turn, error)
        elif turn.promised:
            return  # its transaction settles it, or gives it back
        elif turn.returning_settles:
            self._handled(turn)
        else:
            self._windows.begin()

    def leave(self, turn: CallbackRun) -> None:
        """Neither success nor failure: it stays unsettled."""
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
            self._recorder.healthy(delivery, self._scene, plan, self._stamps.us(tick), round(ran * 1e6))

    def refused(self, turn: CallbackRun, error: RefusedHere) -> None:
        """The code asked for what a wrapper cannot do: no failure of the message, which stays unsettled."""
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
        """The callback's own ack or reject. An ack is written at once, the others are judged when it is over.

        A word that is said on another thread comes here through `Ground.hop`.
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
        """The code cancelled a consumer: what is held, or waits to be run, goes back to the broker."""
        waiting = [t for t in (*self._again, *self._ready) if t.delivery.generation == generation]
        self._drop(generation)
        for turn in waiting:
            if turn.delivery.known:
                self._feed(NotRun(turn.delivery, self._now()))
            turn.seat.settle(turn.delivery, "released")
        self._feed(ConsumerRetired(generation))

    def lost(self, generation: int, turns: list[CallbackRun]) -> None:
        """Only of a callback that is not over yet a result will come; a word after that may never."""
        self._seats.pop(generation, None)
        self._post.forget(generation)
        self._drop(generation)
        self._feed(GenerationLost(generation, [t.delivery for t in turns if t.inside and t.in_hand]))
        for turn in turns:
            if not turn.inside and turn.delivery.known:
                self._feed(NotRun(turn.delivery, self._now()))
        if self.terms.failures is not None:
            self.terms.failures.flush()  # the timers of a closed connection never come
