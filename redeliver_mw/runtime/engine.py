# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Puts an App's parts together and starts them: connect, check everything, and only then consume.

Whatever cannot work is found here, before the first message: a delay that this broker cannot do, a dead-letter target
that is missing or is the source itself, a missing queue.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..adapter.capabilities import Capabilities, SourceCapabilities
from ..adapter.protocol import (
    Adapter,
    Subscription,
    SupportsConnectionReports,
    SupportsScheduleWait,
    ledger_scope_of,
)
from ..clock import Clock, StepWatchingClock
from ..errors import EVENT_CODE, BrokerUnavailable, RedeliverError
from ..flow.breaker_guard import BY as BREAKER
from ..flow.breaker_guard import BreakerGuard
from ..flow.consumer_pauses import ConsumerPauses
from ..flow.sequencer import KeySequencer
from ..journal.consumer_info import ConsumerInfo
from ..journal.recorder import Hook, Recorder, RecordSink
from ..message import Delivery, Destination
from ..policy import RedeliveryPolicy
from ..redelivery import ledger
from ..redelivery.interceptor import Interceptor
from ..redelivery.ledger import Ledger
from ..redelivery.plan import SourcePlan
from ..telemetry.failure_log import FailureLog
from ..telemetry.hook import NO_TELEMETRY, TelemetryHook
from ..telemetry.state import ConsumerDescription, ConsumerState, SourceState
from .connection_health import connection_health, not_subscribed
from .handler import HandlerSpec, build_plan, ordered
from .policy_checks import ladder_of
from .policy_reload import ActivePlans, PolicyReloader
from .runner import Runner, StartGivenUp, StopReport
from .settings import Settings
from .slow_handlers import watch_handlers
from .startup_checks import BrokerQueries, check_targets, source_capabilities, warn_of_limits, warn_of_order
from .target_maker import TargetMaker
from .workers import AsyncPool, InlinePool, LoopThread, PoolListener, ThreadPool, WorkerPool

if TYPE_CHECKING:
    from ..crash_safety.gate import CrashSafetyGate
    from ..limbo.service import LimboService
    from .broker_watch import BrokerWatch
    from .operations_link import OperationsLink
    from .remote_control import RemoteControl

log = logging.getLogger("redeliver_mw")
START_TIMEOUT = 60.0  # seconds, each for connecting, checking and subscribing
# seconds after which a start notices that it was given up: a signal does not wake a thread that waits for a lock
LOOK = 0.1


class Engine:
    """Runs one start of an App, until its stop."""

    def __init__(
        self,
        adapter: Adapter,
        specs: Sequence[HandlerSpec],
        policies: Mapping[Destination, RedeliveryPolicy],
        settings: Settings,
        clock: Clock,
        *,
        journal: RecordSink | None = None,
        hooks: list[Hook] | None = None,
        checked: Callable[[], object] | None = None,
        drive: Callable[[], object] | None = None,
        pool: type[WorkerPool] | None = None,
        telemetry: TelemetryHook = NO_TELEMETRY,
    ) -> None:
        self.adapter, self._specs, self._policies = adapter, specs, policies
        self._settings, self._clock = settings, StepWatchingClock(clock)
        self._drive = drive  # runs everything that is due, in a hand-driven test; None: threads do this
        self._pool_type = pool  # None: chosen by the handler's kind
        self._checked, self._telemetry = checked, telemetry
        self._recorder = Recorder(journal, hooks or [], inline=drive is not None, healthy=settings.journal_healthy)
        self._failures = FailureLog(self._clock) if settings.log_failures else None
        self._changed = threading.Condition()
        self._capabilities: Capabilities | None = None
        self._ready: set[Destination] = set()
        self._error: RedeliverError | None = None
        self._given_up = False
        self._loop_thread: LoopThread | None = None
        self._loop_lock = threading.Lock()
        self._asking = BrokerQueries(adapter, self._changed, self._await)
        self._able: Mapping[Destination, SourceCapabilities] = {}  # the capabilities of each source
        self._renewal: PolicyReloader | None = None
        self._limbo: LimboService | None = None
        self._gate: CrashSafetyGate | None = None
        self._consumers: ConsumerPauses | None = None
        self._control: RemoteControl | None = None
        self._operations: OperationsLink | None = None
        self._watch: BrokerWatch | None = None
        self.runner: Runner | None = None
        self.guard: BreakerGuard | None = None
        self.pools: dict[Destination, WorkerPool] = {}
        self._generations: dict[Destination, int] = {}  # of the consumed sources
        self.started = False

    # -- start ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect and check; return when every source is consumed.

        Raises ConfigError, PolicyError or BrokerError, with nothing started.
        """
        try:
            self.adapter.start(self)
            self._await(lambda: self._capabilities is not None, "connect")
            assert self._capabilities is not None
            self._able = self._abilities(self._capabilities)
            plans = {spec.source: self._plan(spec, self._policies[spec.source]) for spec in self._specs}
            check_targets(self._asking, plans, declare=self._settings.declare != "none")
            self._limbo = self._open_limbo()
            self._renewal = self._assemble(plans, self._capabilities)
            self._link_operations()
            warn_of_order(plans.values(), crash_safe=self._settings.crash_safe)
            if self._checked is not None:
                self._checked()
            for spec in self._specs:
                self._subscribe(spec, plans[spec.source])
            if self._consumers is not None:
                self._consumers.subscribed()
            self._await(lambda: len(self._ready) == len(self._specs), "subscribe")
            self._renewal.start()
            if self._limbo is not None:
                self._limbo.start()
            if self._telemetry.wants_broker_state:
                from .broker_watch import BrokerWatch as Watching  # imports the reader of dead letters

                self._watch = Watching(
                    self.adapter,
                    self._dead_letter_queues,
                    self._limbo,
                    self._clock,
                    letters=None if self._operations is None else self._operations.waiting_letters(),
                    sources=plans.keys(),
                    driven=self._drive is not None,
                )
                self._watch.start()
        except BaseException:
            for pool in self.pools.values():
                pool.stop()
            self._close(5.0)
            raise
        self.started = True
        warn_of_limits(plans.values(), self._able)

    def give_up(self) -> None:
        """Make a start that is under way raise StartGivenUp. Safe in a signal handler."""
        self._given_up = True

    def _abilities(self, capabilities: Capabilities) -> Mapping[Destination, SourceCapabilities]:
        settings = self._settings
        return source_capabilities(
            self._asking,
            capabilities,
            [spec.source for spec in self._specs],
            declare=settings.declare == "all",
            broker_limit=settings.broker_limit,
            ack_timeout=settings.ack_timeout,
        )

    def _plan(self, spec: HandlerSpec, policy: RedeliveryPolicy) -> SourcePlan:
        return build_plan(spec, policy, self._settings, self._able[spec.source])

    def _open_limbo(self) -> LimboService | None:
        if self._settings.limbo is None:
            return None
        from ..limbo.service import LimboService as Opened  # imports SQLAlchemy

        limbo = Opened(
            self._settings.limbo,
            self.adapter,
            self._settings.app_name,
            self._clock,
            retry=self._settings.limbo_delivery_retry,
            driven=self._drive is not None,
            sent=self._telemetry.parked_copy_answered,
        )
        limbo.open()
        return limbo

    def _link_operations(self) -> None:
        """Link to the store, and obey the wishes that hold. Raises ConfigError for a URL that is no store's."""
        if self._settings.operations is None or self.runner is None:
            return
        from .operations_link import OperationsLink as Linked  # imports SQLAlchemy
        from .remote_control import RemoteControl as Controlled

        if self._consumers is None:
            self._consumers = ConsumerPauses(self.runner, self.pools, self.adapter)
        self._control = Controlled(self.pools, self.guard, self._consumers)
        self._operations = Linked(
            self._settings.operations,
            app=self._settings.app_name,
            adapter=self.adapter,
            clock=self._clock,
            control=self._control,
            sources=lambda: self.health()["sources"],
            driven=self._drive is not None,
        )
        self.runner.watch_replays(self._operations)
        self._operations.start()

    def _assemble(self, plans: dict[Destination, SourcePlan], capabilities: Capabilities) -> PolicyReloader:
        ledgers = self._ledgers(plans)
        adapter = self.adapter
        wait = adapter.schedule_wait if isinstance(adapter, SupportsScheduleWait) else None
        interceptor = Interceptor(plans, ledgers, capabilities, uuid.uuid4().hex[:16], wait)
        consumer_info = ConsumerInfo(
            self._settings.app_name, socket.gethostname(), self.adapter.broker, capabilities.broker_kind
        )
        rng = random.Random(self._settings.seed)
        self.runner = Runner(
            self.adapter,
            interceptor,
            self.pools,
            self._recorder,
            consumer_info,
            self._clock,
            rng,
            self._limbo,
            self._gate,
            self._sequencer(plans, interceptor),
            self._failures,
            TargetMaker(adapter, interceptor.plans, self._clock) if self._settings.declare != "none" else None,
            self._telemetry,
        )
        if self._settings.breaker is not None:
            self._consumers = ConsumerPauses(self.runner, self.pools, self.adapter)
            self.guard = BreakerGuard(
                self._settings.breaker,
                plans,
                self.runner,
                self.pools,
                self.adapter,
                self._consumers,
                self._telemetry.breaker_changed,
            )
        for spec in self._specs:
            self.pools[spec.source] = self._pool(spec, self.guard or self.runner)
        if self._gate is not None:
            self._gate.start(self.runner)
        self._recorder.start()
        if self._telemetry.started is not None:
            self._telemetry.started(self)
        for pool in self.pools.values():
            pool.start()
        timeouts = {source: able.ack_timeout for source, able in self._able.items() if able.ack_timeout}
        if timeouts and self._drive is None:
            watch_handlers(self.runner, self.adapter, self._clock, timeouts)
        ladders = {plan.source: ladder_of(plan) for plan in plans.values()}
        stage = ActivePlans(plans, ladders, self._plan, self._settings.declare != "none", self._settings.finding_rules)
        recorder, clock = self._recorder, self._clock
        return PolicyReloader(
            self.adapter, self._specs, stage, recorder, consumer_info, clock, aside=self._drive is None
        )

    def _sequencer(self, plans: Mapping[Destination, SourcePlan], interceptor: Interceptor) -> KeySequencer | None:
        orders = {
            spec.source: ordered(spec, plans[spec.source], self._settings, self._able[spec.source])
            for spec in self._specs
            if spec.order is not None
        }
        if not orders:
            return None
        windows = {spec.source: spec.prefetch for spec in self._specs}
        sequencer = KeySequencer(orders, windows, interceptor, self.adapter, self._clock)
        if self._limbo is not None:
            for source in orders:
                if useless := sequencer.restore(source, self._limbo.places(source)):
                    self._limbo.forget_places(source, useless)
        return sequencer

    def _ledgers(self, plans: Mapping[Destination, SourcePlan]) -> Mapping[Destination, Ledger]:
        """Return the ledgers, which outlive connections; with `crash_safe` they also survive this process."""
        if not self._settings.crash_safe or self._settings.limbo is None:
            scope = ledger_scope_of(self.adapter)
            return {source: ledger.ledger_of(scope, source) for source in plans}
        from ..crash_safety.gate import CrashSafetyGate as Opened
        from ..crash_safety.lookup import PersistentLedger
        from ..crash_safety.store import LedgerStore

        ledgers = {source: PersistentLedger() for source in plans}
        lines = LedgerStore(self._settings.limbo, broker=self.adapter.broker)
        gate = Opened(lines, ledgers, self.adapter, self._clock, driven=self._drive is not None)
        gate.open()
        self._gate = gate
        return ledgers

    def _pool(self, spec: HandlerSpec, listener: PoolListener) -> WorkerPool:
        if self._pool_type is not None:
            return self._pool_type(spec, listener)
        if self._drive is not None:
            return InlinePool(spec, listener)
        if not spec.is_async:
            return ThreadPool(spec, listener, self._loop_of_handlers)
        return AsyncPool(spec, listener, self._loop_of_handlers())

    def _loop_of_handlers(self) -> LoopThread:
        """Return the loop that all async handlers share. Any thread."""
        with self._loop_lock:
            if self._loop_thread is None:
                self._loop_thread = LoopThread()
                self._loop_thread.start()
            return self._loop_thread

    def _subscribe(self, spec: HandlerSpec, plan: SourcePlan) -> None:
        settings, postpones = self._settings, plan.ways.postpone is not None
        subscription = Subscription(
            source=spec.source,
            prefetch=spec.prefetch,
            exclusive=settings.delay == "nack" and not postpones,
            declare=settings.declare == "all",
            helpers=settings.declare != "none",
            ladder=ladder_of(plan),
            selector=spec.selector,
            postpones=postpones,
        )
        self.adapter.subscribe(subscription)

    def _await(self, done: Callable[[], bool], what: str) -> None:
        """Wait until `done()`.

        Raises the adapter's error, StartGivenUp, or BrokerUnavailable after START_TIMEOUT seconds.
        """
        if self._drive is not None:
            self._drive()
        until = time.monotonic() + START_TIMEOUT
        with self._changed:
            while not (done() or self._error or self._given_up) and time.monotonic() < until:
                self._changed.wait(LOOK)
        if self._given_up:
            raise StartGivenUp
        if self._error is not None:
            raise self._error
        if not done():
            raise BrokerUnavailable(
                f"it could not {what} within {START_TIMEOUT:g} s",
                where=self.adapter.broker,
                cure="Is the broker well?",
                code="broker-timeout",
            )

    # -- the adapter's sink -----------------------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        with self._changed:
            self._capabilities = capabilities
            self._changed.notify_all()
        if self.started:
            log.info("%s: connected again", self.adapter.broker)
        if self._telemetry.connected is not None:
            self._telemetry.connected(self.adapter.broker)

    def ready(self, source: Destination, generation: int, /) -> None:
        if self.runner is not None:
            self.runner.ready(source, generation)
        with self._changed:
            self._generations[source] = generation
            self._ready.add(source)
            self._changed.notify_all()
        if self._telemetry.subscribed is not None:
            self._telemetry.subscribed(source, self._clock.now())

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        if self.runner is not None:
            self.runner.arrived(batch)

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        with self._changed:
            gone = [known for known, live in self._generations.items() if live == generation]
            for source in gone:
                del self._generations[source]
        if self.runner is not None:
            self.runner.lost(generation, error)
        if self._telemetry.subscription_lost is not None:
            for source in gone:
                self._telemetry.subscription_lost(source, error)

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        if self.started:
            log.error("%s", error, extra={EVENT_CODE: "source-refused"})
            return
        error.where = error.where or self.adapter.broker
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def look_at_limbo(self) -> None:
        """Let a hand-driven limbo notice changes that SQL has made to its tables."""
        if self._limbo is not None:
            self._limbo.look()

    # -- stop -------------------------------------------------------------------------------------

    def stop(self, timeout: float) -> StopReport:
        """Finish running handlers, in at most `timeout` seconds.

        Afterwards the broker has all unsettled messages again.
        """
        begun = self._clock.now().mono
        runner = self.runner
        assert runner is not None
        runner.begin_stop()
        if self._drive is not None:
            self._drive()
        left = runner.finish(0.0 if self._drive is not None else timeout)
        self._close(min(5.0, max(1.0, timeout)))
        return StopReport(self._clock.now().mono - begun, left, left == 0)

    def _close(self, timeout: float) -> None:
        if self._watch is not None:
            self._watch.stop()
        if self._renewal is not None:
            self._renewal.stop()
        if self._loop_thread is not None:
            self._loop_thread.stop(1.0)
        if self._limbo is not None:
            self._limbo.close(timeout)
        self.adapter.close(timeout)
        if self._gate is not None:
            self._gate.close(timeout)
        if self._operations is not None:
            self._operations.close(min(2.0, timeout))
        if self._failures is not None:
            self._failures.flush()
        if self._telemetry.stopped is not None:
            self._telemetry.stopped(self)
        self._recorder.close(2.0)

    def telemetry_description(self) -> ConsumerDescription:
        """Return the broker and its dialect, and the sources with a handler for batches. Thread-safe."""
        capabilities = self.adapter.capabilities
        batched = frozenset(spec.source for spec in self._specs if spec.batch is not None)
        return ConsumerDescription(capabilities.dialect, capabilities.broker_kind, self.adapter.broker, batched)

    def telemetry_state(self) -> ConsumerState:
        """Return the present state of the sources and connections. Thread-safe."""
        reports = self.adapter.connection_reports() if isinstance(self.adapter, SupportsConnectionReports) else ()
        runner = self.runner
        sources = {} if runner is None else {s: self._state_of(s, pool, runner) for s, pool in list(self.pools.items())}
        connections = {report.role: report.state == "connected" for report in reports}
        seen = self._watch
        if seen is None:
            return ConsumerState(sources, connections)
        return ConsumerState(
            sources,
            connections,
            seen.parked,
            seen.parked_due,
            dict(seen.depths),
            dict(seen.oldest),
            stored=dict(seen.stored),
        )

    def _dead_letter_queues(self) -> set[Destination]:
        plans = self.runner.plans if self.runner is not None else {}
        targets = {target.resolve(source) for source, plan in plans.items() for target in plan.policy.places}
        return {target for target in targets if target.kind == "queue"}

    def _state_of(self, source: Destination, pool: WorkerPool, runner: Runner) -> SourceState:
        why = self._trouble(source) or (self._pause(source, pool) if pool.paused else "")
        return runner.state_of(source, why, self.guard.health(source)["state"] if self.guard is not None else "")

    def health(self) -> dict[str, Any]:
        """Return plain values for probes."""
        runner = self.runner
        stopping = runner is not None and runner.stopping
        connections = connection_health(self.adapter)
        return {
            "started": self.started,
            "stopping": stopping,
            "broker": self.adapter.broker,
            "pid": os.getpid(),
            "handled": runner.handled if runner else 0,
            "connections": connections,
            "sources": {
                str(source): {
                    "waiting": pool.waiting,
                    "behind": runner.waiting(source) if runner else 0,
                    "paused": pool.paused,
                    "paused_by": (self._control.paused_by(source) or None if self._control else None),
                    "uncopyable": runner.uncopyable(source) if runner else 0,
                    "why_paused": self._trouble(source) or None,
                    "breaker": (self.guard.health(source) if self.guard else None),
                    **self._consuming(source, pool, connections, stopping=stopping),
                }
                for source, pool in list(self.pools.items())
            },
        }

    def _trouble(self, source: Destination) -> str:
        return self.runner.why_paused(source) if self.runner is not None else ""

    def _consuming(
        self, source: Destination, pool: WorkerPool, connections: Mapping[str, Any], *, stopping: bool
    ) -> dict[str, Any]:
        subscribed = source in self._generations
        if stopping:
            why = "the app is stopping"
        elif not subscribed:
            why = not_subscribed(self.adapter, source, connections)
        else:
            why = self._trouble(source) or (self._pause(source, pool) if pool.paused else "")
        return {"subscribed": subscribed, "consuming": not why, "why_not_consuming": why or None}

    def _pause(self, source: Destination, pool: WorkerPool) -> str:
        if self._control is not None and (who := self._control.paused_by(source)):
            return f"it was paused by {who}"
        if BREAKER in pool.paused_by and self.guard is not None:
            return f"its breaker is open: {self.guard.health(source)['why']}"
        return "it was paused by the application"
