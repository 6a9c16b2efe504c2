# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls the user's callback, and takes its result: it returned, it raised, or it settled the message itself."""

from __future__ import annotations

import inspect
import itertools
import logging
import random
import sys
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import replace

from ..adapter.capabilities import Capabilities
from ..clock import Clock, Moment, SystemClock
from ..context import in_hand
from ..errors import EVENT_CODE, ConfigError, Reject
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
from ..redelivery.outbox import CLOSED, Outbox, SendRules, close_outbox
from ..redelivery.plan import SourcePlan
from ..telemetry.state import ConsumerDescription, ConsumerState, SourceState
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

    A subclass says how the callback is called. For each message it asks `generation(scope, consumer, source)`, makes
    the `Delivery`, and gives `arrived` a `CallbackRun` of it. Scopes tell of settlements and losses. All on the
    driver's thread.
    """

    def __init__(
        self,
        terms: DropinOptions,
        connection: UserConnection,
        publisher: CopyPublisher,
        capabilities: Capabilities,
        clock: Clock | None = None,
    ) -> None:
        self.terms = terms
        self._user_connection, self._publisher = connection, publisher
        # A transaction needs the link that the delivery came through.
        self.capabilities = (
            replace(capabilities, atomic_move=False, atomic_schedule=False) if publisher.off_thread else capabilities
        )
        self.send_rules = SendRules(self.capabilities, limbo=terms.limbo is not None)
        self._plans: dict[Destination, SourcePlan] = {}
        self._ledgers: dict[Destination, Ledger] = {}
        self._scopes: dict[int, SettlementScope] = {}  # by generation
        self._sources: dict[int, Destination] = {}  # by generation
        self._consumer = ConsumerInfo(terms.app_name, terms.host, connection.broker, capabilities.broker_kind)
        self._recorder, self._telemetry = terms.recorder, terms.telemetry
        self._clock, self._rng = clock or SystemClock(), random.Random()
        # An id of its own: tokens begin anew with each interceptor, and both together are a message's lineage.
        self._interceptor = Interceptor(
            self._plans, self._ledgers, self.capabilities, uuid.uuid4().hex[:16], self._schedule_wait
        )
        self._queue = RunQueue(self.call, self._later)
        self._executor = DropinCommandExecutor(
            terms,
            connection,
            publisher,
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
        if self._telemetry.started is not None:
            self._telemetry.started(self)

    @property
    def over(self) -> bool:
        """Return whether its connection is closed."""
        return not self._user_connection.is_open

    def move_to(self, connection: UserConnection, publisher: CopyPublisher) -> None:
        """Go on with the connection that took the place of the closed one: what still runs is known here."""
        self._user_connection, self._publisher = connection, publisher
        self._executor.move_to(connection, publisher)
        self._queue.start_over()
        self._windows.stop()

    def telemetry_description(self) -> ConsumerDescription:
        """Return the broker and its dialect. Any thread."""
        return ConsumerDescription(
            self.capabilities.dialect, self.capabilities.broker_kind, self._user_connection.broker
        )

    def telemetry_state(self) -> ConsumerState:
        """Return the present state of the sources and of the user's connection. Any thread."""
        halted = self._queue.halted
        sources = {}
        for source, plan in list(self._plans.items()):
            budget = self._interceptor.budget_of(source)
            paused = "its messages cannot leave, or too many are held" if source in halted else ""
            held, taken, size = budget.counts()
            version = plan.signature.policy_version
            unsettled = sum(len(scope.unsettled(n)) for n, scope in self._live(source))
            sources[source] = SourceState(max(0, unsettled - held), held, taken, size, paused, policy_version=version)
        return ConsumerState(sources, {"consume": self._user_connection.is_open})

    def _live(self, source: Destination) -> list[tuple[int, SettlementScope]]:
        """Return the live generations of a source, with their scopes. Any thread."""
        return [(n, scope) for n, scope in list(self._scopes.items()) if self._sources.get(n) == source]

    def _schedule_wait(self, source: Destination, seconds: float) -> float:
        return self._publisher.schedule_wait(source, seconds)

    def _later(self, seconds: float, fn: Callable[[], None]) -> None:
        self._user_connection.later(seconds, fn)

    def _now(self) -> Moment:
        return self._clock.now()

    # -- what a subclass says -----------------------------------------------------------------------

    @abstractmethod
    def invoke(self, run: CallbackRun) -> object:
        """Call the user's callback as the driver would, with what it is to see of `run.delivery`."""

    def finish(self, run: CallbackRun, result: object) -> None:
        """End a run whose callback returned `result`. A subclass overrides this where the driver's loop can await."""
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()  # else Python warns of it, too
            self.leave(run)
            raise ConfigError(
                "the callback returned an awaitable: this driver has no loop for it", code="callback-not-usable"
            )
        self.ended(run, None)

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
        """Hold the policy of a source against this broker: ConfigError, PolicyError for what cannot be had.

        To be called before the first message where the driver tells of a subscription. LimboError for a limbo that
        cannot be opened.
        """
        plan = self.terms.plan(source, self.capabilities)
        self.terms.log_findings(source)
        if self.terms.limbo is not None:
            self.terms.limbo.open()
        self._ledgers[source] = ledger.ledger_of(self._user_connection.ledger_scope, source)
        self._plans[source] = plan
        self._publisher.provide(plan)

    def generation(self, scope: SettlementScope, consumer: Hashable, source: Destination) -> int:
        """Return the generation of this consumer in this scope.

        The source is learned at its first message: if that raises, nothing is to be done with the message, which stays
        unsettled.
        """
        if source not in self._plans:
            self.learn(source)
        generation = scope.generation(consumer, self)
        if generation not in self._scopes:
            self._scopes[generation], self._sources[generation] = scope, source
            if self._telemetry.subscribed is not None:
                self._telemetry.subscribed(source, self._now())
        return generation

    def arrived(self, run: CallbackRun) -> None:
        """Hand a delivery to the callback, at once if it has no past and its source is not halted."""
        run.scope.take(run)
        delivery = run.delivery
        if self._may_have_past(delivery):
            self._learn_window(run)
            self._feed(Arrived(delivery, self._now()))
        elif delivery.destination in self._queue.halted:
            self._queue.keep(run)
        else:
            self.call(run)

    def _may_have_past(self, delivery: Delivery) -> bool:
        """Return whether a delivery is a redelivery, a copy of ours, or a return that carries no mark."""
        marked = delivery.redelivered or delivery.reader.marked(delivery.native)
        return marked or self._interceptor.awaits(delivery)

    # -- calling ----------------------------------------------------------------------------------

    def call(self, run: CallbackRun) -> None:
        """Call the callback with a delivery, and take its result."""
        self.begin(run)
        token = in_hand.set(run.delivery)
        try:
            result = self.invoke(run)
        except (KeyboardInterrupt, SystemExit):
            self.leave(run)  # the user's program is to end, and the message is the broker's
            raise
        except BaseException as error:
            self.ended(run, error)
            if self.passes(error):
                raise
        else:
            if result is None:
                self.ended(run, None)
            else:
                self.finish(run, result)
        finally:
            in_hand.reset(token)

    def begin(self, run: CallbackRun) -> None:
        run.in_hand = run.inside = True
        run.order = next(_orders)
        run.settlement, run.before, run.since = None, sys.exc_info()[1], self._now().mono
        run.delivery.outbox = Outbox(self.send_rules)
        run.announced = True
        if self._telemetry.run_begins is not None:
            self._telemetry.run_begins(run.delivery)

    def goes_on(self, run: CallbackRun) -> None:
        """Announce that the run goes on in a task, which was just made."""
        if self._telemetry.run_goes_on is not None:
            self._telemetry.run_goes_on(run.delivery)

    def ended(self, run: CallbackRun, error: BaseException | None) -> None:
        """Take the end of a callback; its own settlement, if it gave one, comes before how it ended."""
        run.inside = run.announced = False
        if self._telemetry.healthy_run_ended is not None:
            at = self._now()
            self._telemetry.healthy_run_ended(run.delivery, error, at, at.mono - run.since)
        settlement = run.settlement
        if settlement is ACK:
            if error is not None:
                text = "%r was acked by its callback, which raised after that: the ack counts\n%s"
                log.error(text, run.delivery, _shown(error))
        elif isinstance(error, RefusedHere):
            self.refused(run, error)
        elif settlement is not None:
            self._failed(run, error if error is not None and isinstance(settlement, Requeued) else settlement)
        elif error is not None:
            if run.promised and not run.scope.withdraw(run):
                text = "%r: the callback raised, and its transaction has the settlement already: its outcome counts\n%s"
                log.error(text, run.delivery, _shown(error))
            else:
                self._failed(run, error)
        elif run.promised:
            return  # its transaction settles it, or gives it back
        elif run.returning_settles:
            self._handled(run)
        else:
            self._windows.begin()

    def leave(self, run: CallbackRun) -> None:
        """Leave a delivery unsettled: neither success nor failure."""
        self._announce_no_result(run)
        run.in_hand = run.inside = False
        run.delivery.outbox = CLOSED
        if run.delivery.known:
            self._feed(NotRun(run.delivery, self._now()))

    def _announce_no_result(self, run: CallbackRun) -> None:
        if run.announced and self._telemetry.run_cancelled is not None:
            self._telemetry.run_cancelled(run.delivery)
        run.announced = False

    def _handled(self, run: CallbackRun) -> None:
        run.in_hand = False
        delivery, at = run.delivery, self._now()
        ran = at.mono - run.since
        sends, delivery.outbox = close_outbox(delivery), CLOSED
        if delivery.known or sends:
            if self._telemetry.tracked_run_ended is not None:
                self._telemetry.tracked_run_ended(delivery, None, at, ran)
            self._feed(HandlerSucceeded(delivery, at, ran, sends))
        elif run.scope.settle(delivery, "accepted"):
            if self._telemetry.handled is not None:
                self._telemetry.handled(delivery, at, ran)
            if self._recorder.wanted:
                plan = self._plans[delivery.destination]
                self._recorder.healthy(delivery, self._consumer, plan, at.us, round(ran * 1e6))

    def refused(self, run: CallbackRun, error: RefusedHere) -> None:
        """Log, once, that the code asked for what a wrapper cannot do. The message did not fail; it stays unsettled."""
        if str(error) not in self._refusals:
            self._refusals.add(str(error))
            log.error("%s", error, extra={EVENT_CODE: "request-refused"})
        self.leave(run)

    def _failed(self, run: CallbackRun, error: BaseException) -> None:
        run.in_hand, run.delivery.outbox = False, CLOSED
        self._learn_window(run)
        at = self._now()
        shown = error.__cause__ if isinstance(error, Requeued | Reject) and error.__cause__ is not None else error
        if isinstance(error, Requeued) and shown is not error:
            # The policy decides by the exception, unless it ignores that type: a nack is never turned into an ack.
            decision = self._plans[run.delivery.destination].policy.decide(1, 0.0, shown)
            error = error if isinstance(decision, Accept) else shown
        ran = at.mono - run.since
        if self._telemetry.tracked_run_ended is not None:
            self._telemetry.tracked_run_ended(run.delivery, error, at, ran)
        self._feed(HandlerFailed(run.delivery, error, describe(shown), at, self._rng.random(), ran))
        if run.scope.is_retired(run.delivery.generation):
            self._feed(ConsumerRetired(run.delivery.generation))

    def _learn_window(self, run: CallbackRun) -> None:
        """Let as many be held as fits the prefetch window; nobody tells when the driver opens it further."""
        scope, generation = run.scope, run.delivery.generation
        window = scope.window_of(generation)
        if window is None and not (scope.learns_window and not scope.is_retired(generation)):
            return
        plan = self._plans[run.delivery.destination]
        ways = plan.ways.within(window, scope.most_unsettled(generation), self.terms.hold_budget)
        if ways != plan.ways:
            self._plans[run.delivery.destination] = replace(plan, ways=ways)

    # -- what scopes tell -------------------------------------------------------------------------

    def code_settled(self, run: CallbackRun, settlement: Exception) -> None:
        """Take the callback's own ack or reject. An ack is written at once, others are judged after the callback's end.

        A settlement on another thread comes here through `UserConnection.hop`.
        """
        if not run.in_hand or run.settlement is not None:
            why = "it is settled already" if run.in_hand else "it is settled, held for a retry, or lost"
            self._late.error("%r: a settlement by the code came too late and is dropped: %s", run.delivery, why)
            return
        run.settlement = settlement
        if settlement is ACK:
            self._handled(run)
        elif not run.inside:
            self._failed(run, settlement)

    def closing(self, run: CallbackRun) -> None:
        if run.returning_settles:
            self.code_settled(run, ACK)

    def retired(self, generation: int) -> None:
        """Give back what is held or waits to be run: the code cancelled the consumer."""
        for run in self._queue.drop(generation):
            if run.delivery.known:
                self._feed(NotRun(run.delivery, self._now()))
            run.scope.settle(run.delivery, "released")
        self._feed(ConsumerRetired(generation))

    def lost(self, generation: int, runs: list[CallbackRun]) -> None:
        """Forget a lost generation. Only a callback that is not over yet still has a result."""
        self._scopes.pop(generation, None)
        source = self._sources.pop(generation, None)
        self._publisher.forget(generation)
        self._queue.drop(generation)
        self._feed(GenerationLost(generation, [t.delivery for t in runs if t.inside and t.in_hand]))
        for run in runs:
            if not run.inside:
                self._announce_no_result(run)
                if run.delivery.known:
                    self._feed(NotRun(run.delivery, self._now()))
        if self._telemetry.subscription_lost is not None and source is not None:
            self._telemetry.subscription_lost(source, None)
        if self.terms.failures is not None:
            self.terms.failures.flush()  # the timers of a closed connection never come


def _shown(error: BaseException) -> str:
    """Return the traceback of the user's exception, without secrets and without what would steer a terminal."""
    return visible(describe(error).text.rstrip("\n"), lines=True)
