# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `App`: handlers and a broker, from start to stop."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from .adapter.protocol import Adapter
from .adapter.registry import BrokerUrl, adapter_for, parse_url
from .callables import check_plain
from .clock import Clock, SystemClock
from .errors import ConfigError
from .flow.breaker import Breaker
from .flow.ordering import Order
from .journal.recorder import Hook, RecordSink, journal_healthy_option
from .journal.records import Healthy
from .message import Delivery, Destination
from .policy import AnyPolicy
from .redelivery.delays import Option
from .runtime.app_metrics import AppMetrics
from .runtime.engine import Engine
from .runtime.handler import HandlerSpec, check_handler
from .runtime.partition import ProcessShare, partition_sources
from .runtime.policy_checks import check_policies
from .runtime.policy_findings import FindingRules
from .runtime.runner import StopReport
from .runtime.settings import (
    PolicyResolver,
    Settings,
    at_least,
    check_batch,
    check_order,
    count,
    read_config,
    subscribed,
    text,
)
from .runtime.signals import run_until_signal
from .telemetry.finding_log import log_findings
from .telemetry.hook import TelemetryHook, TelemetrySink
from .telemetry.trace_option import trace_sinks

if TYPE_CHECKING:
    import asyncio

    from opentelemetry.trace import TracerProvider

    from .notifications.notifier import Notifier
    from .notifications.option import Notify, NotifyFn
    from .telemetry.prometheus import PrometheusMetrics
    from .telemetry.traces import Traces

F = TypeVar("F", bound=Callable[..., Any])


class App:
    """Consumes from one broker, with redelivery.

    Times are in seconds. `start`, `stop`, `pause`, `resume` and `health` may be called from any thread; handlers are
    registered before the start.

    - `url`: the broker URL; else the variable `REDELIVER_URL`.
    - `policy`: any policy text, a RedeliveryPolicy or a PolicyMap, for handlers that have none of their own.
    - `strict_policies`: refuse a policy for what would otherwise be a warning.
    - `allow_hot_loop`: start also with a policy that retries for ever and without a delay.
    - `limbo`: the URL of a database for parked messages, such as `sqlite:///limbo.db`.
    - `limbo_delivery_retry`: how often a target may refuse a parked message before that message is given up; None: 84
      times, which takes about three days.
    - `operations`: the URL of the store of dead letters and operations, such as `sqlite:///store.db`. The App writes
      there what became of replayed messages, and obeys `redeliver control`.
    - `journal`: a folder for the journal; None: no journal is written.
    - `journal_healthy`: with `counts`, messages that are handled at the first attempt are counted instead of written
      one by one.
    - `log_failures`: False if failed attempts are not to be logged.
    - `delay`: how a message waits, `auto`, `hold`, `nack`, `schedule` or `park`.
    - `crash_safe`: count also the failures of handlers that kill their process; needs `limbo`.
    - `breaker`: a Breaker, its options as a mapping, or True for its defaults.
    - `prefetch`, `workers`: of a handler that is registered without its own.
    - `ack_timeout`: for how long the broker leaves a delivery unsettled; None: as the broker reports it, else 1800 on
      RabbitMQ and no limit elsewhere.
    - `stop_timeout`: for how long a stop waits for running handlers.
    - `declare`: what is made if it is missing: `own`, dead-letter targets and helper queues; `all`, sources too;
      `none`, nothing.
    - `broker_limit`: the broker's own limit of deliveries, where the broker does not report it; 0: it has none.
    - `app_name`: the name in records and dead letters; None: the name of the program.
    - `metrics`: where to serve metrics for Prometheus, as `127.0.0.1:9400`, or a PrometheusMetrics that is served
      elsewhere; None: there are none.
    - `traces`: True for spans by OpenTelemetry's global tracer provider, a TracerProvider, or a Traces with options;
      None: there are none.
    - `notify`: the URL of a webhook, or a function, for a notification when dead letters, new failures, an open breaker
      or a paused source begin, and one when they are over; or a Notify with options; None: there are none.
    - `notify_secret`: what signs notifications to a webhook; else the variable `REDELIVER_NOTIFY_SECRET`.

    Raises ConfigError for an option that cannot be used, and PolicyError for a policy that cannot be read.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        policy: AnyPolicy | None = None,
        strict_policies: bool = False,
        allow_hot_loop: bool = False,
        limbo: str | None = None,
        limbo_delivery_retry: int | None = None,
        operations: str | None = None,
        journal: str | os.PathLike[str] | None = None,
        journal_healthy: Healthy = "all",
        log_failures: bool = True,
        delay: Option = "auto",
        crash_safe: bool = False,
        breaker: Breaker | Mapping[str, Any] | bool | None = None,
        prefetch: int = 100,
        workers: int = 1,
        ack_timeout: float | None = None,
        stop_timeout: float = 30.0,
        declare: Literal["own", "all", "none"] = "own",
        broker_limit: int | None = None,
        app_name: str | None = None,
        metrics: str | PrometheusMetrics | None = None,
        traces: bool | TracerProvider | Traces | None = None,
        notify: str | NotifyFn | Notify | None = None,
        notify_secret: str | None = None,
    ) -> None:
        """Take the options; nothing is connected, and nothing is read from the broker yet.

        Raises ConfigError for an option that cannot be used, PolicyError for a policy that cannot be read.
        """
        given = url or os.environ.get("REDELIVER_URL")
        if not given:
            raise ConfigError(
                "no broker URL was given", cure="Write App(url), or set REDELIVER_URL", code="url-missing"
            )
        self._url: BrokerUrl = parse_url(given)
        self._policies = PolicyResolver(self._url.policy, policy, strict=bool(strict_policies))
        if journal is not None and not isinstance(journal, str | os.PathLike):
            what = f"journal={journal!r:.200} is no folder"
            raise ConfigError(what, cure='Write journal="journal/"', code="option-value")
        self._journal = journal
        self._settings = Settings(
            app_name=text("app_name", app_name, 'Write app_name="orders"') or Path(sys.argv[0] or "python").stem,
            delay=delay,
            declare=declare,
            ack_timeout=ack_timeout,
            limbo=text("limbo", limbo, 'Write limbo="sqlite:///limbo.db"'),
            limbo_delivery_retry=limbo_delivery_retry,
            operations=text("operations", operations, 'Write operations="sqlite:///store.db"'),
            crash_safe=bool(crash_safe),
            breaker=Breaker.meant(breaker),
            broker_limit=broker_limit,
            journal_healthy=journal_healthy_option(journal_healthy, journal),
            log_failures=log_failures,
            finding_rules=FindingRules(bool(strict_policies), bool(allow_hot_loop)),
        )
        self._prefetch = count("prefetch", prefetch)
        self._workers = count("workers", workers)
        self.stop_timeout = float(at_least("stop_timeout", stop_timeout, 0))
        self._specs: dict[Destination, HandlerSpec] = {}
        self._hooks: list[Hook] = []
        self._tracing = trace_sinks(traces)
        self._sinks: list[TelemetrySink] = []
        self._metrics = AppMetrics(metrics)
        self._notify_secret = notify_secret
        self._notifier = self._notifier_for(notify)
        self._checked: Callable[[], object] | None = None
        self._adapter: Adapter | None = None  # set early if its capabilities were needed before the start
        self._engine: Engine | None = None
        self._over = threading.Event()
        self._given_up = False
        self._report: StopReport | None = None
        self._stopping = threading.Lock()

    @classmethod
    def from_config(cls, file: str | os.PathLike[str] = "pyproject.toml", **arguments: Any) -> App:
        """Return an App from `[tool.redeliver.app]`.

        Arguments override the environment (`REDELIVER_URL`), which overrides the file.
        """
        found = read_config(Path(file))
        try:
            return cls(**(found | arguments))
        except TypeError as error:
            raise ConfigError(
                f"[tool.redeliver.app]: {error}", where=str(file), cure="See App's options", code="app-settings-file"
            ) from None

    # -- handlers ---------------------------------------------------------------------------------

    def handler(
        self,
        source: str | Destination,
        *,
        policy: AnyPolicy | None = None,
        workers: int | None = None,
        prefetch: int | None = None,
        key: str | Callable[[Delivery], Hashable] | Order | None = None,
        decode: Callable[[bytes], Any] | None = None,
        subscription: str | None = None,
        selector: str | None = None,
        batch: int | None = None,
    ) -> Callable[[F], F]:
        """Register the decorated function, plain or async, for a source; it stays an ordinary function.

        Up to `workers` calls run at the same time, each on a thread (plain) or as a task (async). Up to `prefetch`
        deliveries may be unsettled at once. With `decode` the handler gets `(decoded, delivery)`. A topic is consumed
        through the durable `subscription` of that name, which the broker keeps filled while nobody consumes. A
        `selector`, in the broker's own language, lets only some messages arrive. Messages of one `key`, the name of a
        header or a function of the delivery, run one after the other, in their order; an `Order` limits how far this
        goes. With `batch` the handler gets a list of the deliveries that have arrived, at most `batch` of them.
        """
        destination = subscribed(Destination.parse(source), subscription)
        if destination in self._specs:
            raise ConfigError(
                "two handlers for one source", where=str(destination), cure="Register one", code="handler-twice"
            )
        if self._engine is not None:
            raise ConfigError(
                "the app is started",
                where=str(destination),
                cure="Register handlers before the start",
                code="app-state",
            )

        order = Order.meant(key)
        if order is not None:
            check_order(order, destination, self._settings)
        window = self._prefetch if prefetch is None else count("prefetch", prefetch)
        if batch is not None:
            check_batch(batch, destination, window)

        def register(fn: F) -> F:
            chosen = self._policies.of(policy, fn)
            pool = self._workers if workers is None else count("workers", workers)
            spec = HandlerSpec(destination, fn, chosen, pool, window, decode, selector or "", order, batch)
            check_handler(spec)
            self._specs[destination] = spec
            return fn

        return register

    def on_attempt(self, fn: Hook) -> Hook:
        """Call `fn` with every AttemptRecord, on a thread of its own. Exceptions from `fn` are logged.

        Raises ConfigError for what is no plain function.
        """
        check_plain(fn, "on_attempt")
        self._hooks.append(fn)
        return fn

    def measured(self) -> PrometheusMetrics:
        """Return the App's metrics, which the caller serves: the App does not serve them itself. Before the start.

        An App without `metrics=` counts from now on. Raises MissingExtra without prometheus-client.
        """
        self._metrics.address = None
        return self._metrics.get()

    def traced(self) -> None:
        """Make spans by OpenTelemetry's global tracer provider, unless the App has `traces=`. Before the start.

        Raises MissingExtra without opentelemetry-api.
        """
        self._tracing = self._tracing or trace_sinks(True)

    def notified(self, url: str) -> None:
        """Send notifications to this webhook, whatever the App has for `notify=`. Before the start.

        Raises ConfigError for a URL that cannot be a webhook's, or a secret that cannot sign.
        """
        self._notifier = self._notifier_for(url)

    def _notifier_for(self, notify: object) -> Notifier | None:
        if notify is None and not self._notify_secret:
            return None
        from .notifications.notifier import notifier_for

        return notifier_for(notify, self._notify_secret, self._settings.app_name)

    @property
    def sources(self) -> list[Destination]:
        """Return every source that has a handler."""
        return list(self._specs)

    @property
    def dialect(self) -> str:
        """Return the URL's dialect, such as `rabbitmq+pika`."""
        return self._url.dialect

    @property
    def place(self) -> str:
        """Return the broker URL without its password."""
        return self._url.text

    @property
    def app_name(self) -> str:
        """Return the name that journal records and dead letters carry."""
        return self._settings.app_name

    @property
    def is_started(self) -> bool:
        """Return whether the start has begun; it stays true after a stop."""
        return self._engine is not None

    @property
    def is_over(self) -> bool:
        """Return whether the app has stopped, or has ended with an error."""
        return self._over.is_set()

    def give_up(self) -> None:
        """End a start that is under way, or yet to come, with StartGivenUp. Safe in a signal handler."""
        self._given_up = True
        if self._engine is not None:
            self._engine.give_up()

    def hurry(self) -> None:
        """Make a stop that is under way stop waiting. Safe in a signal handler."""
        if self._engine is not None and self._engine.runner is not None:
            self._engine.runner.hurry()
        if self._notifier is not None:
            self._notifier.hurry()

    def url_option(self, name: str) -> str | None:
        """Return an option of the broker URL, or None."""
        return self._url.options.get(name)

    def dead_letter_targets(self, source: str | Destination) -> list[Destination]:
        """Return the dead-letter targets of this source. Raises ConfigError for a source without a handler."""
        destination = Destination.parse(source)
        if destination not in self._specs:
            raise ConfigError(
                f"no handler for {source}", cure="Name a source that has a handler", code="handler-missing"
            )
        policy = self._specs[destination].policy.resolve(destination.name, destination.kind)
        return [target.resolve(destination) for target in policy.places]

    def divide(self, share: ProcessShare, checked: Callable[[], object] | None = None) -> int:
        """Keep only the sources that this one of several processes is to consume; return how many processes have any.

        Called before the start. `checked` is called during the start when everything is checked, and before the first
        message can come.
        """
        self._checked = checked
        if self._metrics.address is not None and share.of > 1:
            raise ConfigError(
                f"{share.of} processes cannot serve their metrics at one address",
                where=f"metrics={self._metrics.address}",
                cure=f"Let their supervisor do it: redeliver run --metrics {self._metrics.address}",
                code="option-value",
            )
        check_policies({s.source: s.policy.resolve(s.source.name, s.source.kind) for s in self._specs.values()})
        self._adapter = adapter_for(self._url)
        ours, processes = partition_sources(self._specs.values(), share, self._settings, self._adapter.capabilities)
        self._specs = {source: spec for source, spec in self._specs.items() if source in ours}
        return processes

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect, check, and consume on background threads. Raises ConfigError or BrokerError with the obstacle."""
        self._start(self._adapter or adapter_for(self._url), SystemClock())

    def _start(self, adapter: Adapter, clock: Clock, drive: Callable[[], object] | None = None) -> None:
        if self._engine is not None:
            raise ConfigError("the app is started already", cure="Make another App for another run", code="app-state")
        if not self._specs:
            raise ConfigError(
                "no handler is registered", cure='Write @app.handler("orders") above a function', code="handler-missing"
            )
        policies = {s.source: s.policy.resolve(s.source.name, s.source.kind) for s in self._specs.values()}
        log_findings(self._findings())
        settings = replace(self._settings, seed=0) if drive else self._settings
        self._engine = Engine(
            adapter,
            list(self._specs.values()),
            policies,
            settings,
            clock,
            journal=self._open_journal(),
            hooks=self._hooks,
            checked=self._checked,
            drive=drive,
            telemetry=TelemetryHook([*self._metrics.sinks, *self._tracing, *self._notify_sinks(), *self._sinks]),
        )
        if self._given_up:
            self._engine.give_up()
        try:
            self._metrics.start()
            self._engine.start()
            if self._notifier is not None:
                later = None if drive is None else adapter.call_later
                self._notifier.start(clock, self._settings.operations, later)
        except BaseException:
            self._engine = None
            self._metrics.close()
            raise

    def _notify_sinks(self) -> list[TelemetrySink]:
        return [] if self._notifier is None else [self._notifier.sink]

    def _findings(self) -> list[str]:
        """Return what is to be logged about the policies. Raises PolicyError for a policy that is refused."""
        sources: dict[int, list[Destination]] = {}
        policies = {id(spec.policy): spec.policy for spec in self._specs.values()}
        for spec in self._specs.values():
            sources.setdefault(id(spec.policy), []).append(spec.source)
        rules = self._settings.finding_rules
        return [text for key, policy in policies.items() for text in rules.check(policy, sources[key])]

    def _open_journal(self) -> RecordSink | None:
        if self._journal is None:
            return None
        from .journal.writer import Journal as FileJournal

        return FileJournal(self._journal)

    def stop(self, timeout: float | None = None) -> StopReport:
        """Finish running handlers, in at most `timeout` seconds (default: `stop_timeout`).

        A second call returns the same report.
        """
        with self._stopping:
            if self._report is None:
                if self._engine is None:
                    raise ConfigError("the app is not started", cure="Call start() first", code="app-state")
                self._report = self._engine.stop(self.stop_timeout if timeout is None else timeout)
                if self._notifier is not None:
                    self._notifier.close()
                self._metrics.close()
                self._over.set()
            return self._report

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the app is stopped; return False if `timeout` seconds have passed before that."""
        return self._over.wait(timeout)

    def run(self, handle_signals: bool = True) -> StopReport:
        """Start, and continue until SIGTERM or SIGINT; a second signal stops at once and leaves the rest unsettled.

        A signal during the start gives up the start. Raises ConfigError and BrokerError as `start` does.
        """
        return run_until_signal(self, handle_signals)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        import asyncio

        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled, so whatever it has started, or is about to start, is stopped.
            undone = asyncio.ensure_future(self._undo_start(starting))
            while not undone.done():
                with suppress(asyncio.CancelledError):  # cancelled again while the App stops
                    await asyncio.shield(undone)
            raise
        return self

    async def _undo_start(self, starting: asyncio.Future[None]) -> None:
        """Let a start that nobody awaits any more end, and stop whatever it has started."""
        import asyncio

        self.give_up()
        await asyncio.wait([starting])
        if starting.exception() is None:
            await asyncio.to_thread(self.stop)
        self._given_up = False

    async def __aexit__(self, *_: object) -> None:
        import asyncio

        await asyncio.to_thread(self.stop)

    def pause(self, source: str | Destination) -> None:
        """Stop handing messages of this source to its handler; the prefetch window fills."""
        self._pool(source).pause()

    def resume(self, source: str | Destination) -> None:
        """Continue after `pause`. An open breaker does not wait any longer: one message is tried."""
        self._pool(source).resume()
        if self._engine is not None and self._engine.guard is not None:
            self._engine.guard.try_one(Destination.parse(source))

    def _pool(self, source: str | Destination) -> Any:
        pools = self._engine.pools if self._engine is not None else {}
        try:
            return pools[Destination.parse(source)]
        except KeyError:
            raise ConfigError(
                f"no started handler for {source}", cure="Name a source that has a handler", code="handler-missing"
            ) from None

    def health(self) -> dict[str, Any]:
        """Return plain values for a probe, about the App, each connection and each source. Thread-safe.

        `connections` reports for each whether it is `connected`, since when, and its last error; `sources` reports for
        each whether its messages are handed out (`consuming`), and if not, why. The page on health lists all names.
        """
        return self._engine.health() if self._engine is not None else {"started": False}
