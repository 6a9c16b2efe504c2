# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `connect(url)`: the blocking interface, for scripts and for loops that pull.

with connect("rabbitmq://localhost/") as session:
    for delivery in session.deliveries("orders", policy="3:1000; 5:move(queue:dlq.$)"):
        with delivery as message:      # leaving the block is success, an exception is a failure
            handle(message.body)
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from .adapter.capabilities import Capabilities, Settlement
from .adapter.protocol import Adapter, Subscription, Verdict
from .adapter.registry import BrokerUrl, adapter_for, parse_url
from .clock import SystemClock
from .errors import BrokerError, BrokerUnavailable, ConfigError, RedeliverError
from .message import Checking, Delivery, Destination, Outgoing, Properties
from .policy import PolicyMap, RedeliveryPolicy, load_policies, policy_of
from .redelivery.delays import Option
from .redelivery.outbox import body_bytes, header_table
from .runtime.engine import Engine
from .runtime.handler import HandlerSpec
from .runtime.policy_findings import FindingRules
from .runtime.settings import Settings, subscribed
from .runtime.workers import PullPool
from .telemetry.finding_log import log_findings

T = TypeVar("T")
ANSWER_TIMEOUT = 60.0  # seconds; the adapter's own timeout for a silent broker is shorter


def connect(url: str) -> Session:
    """Connect, and return a session that the caller closes (a context manager). Raises ConfigError, BrokerError."""
    return Session(url)


class Session:
    """Is one connection, used by one thread. `deliveries` opens a connection of its own."""

    def __init__(self, url: str) -> None:
        """Connect, and block until the broker has answered. Raises ConfigError, BrokerError."""
        self._url: BrokerUrl = parse_url(url)
        self._url_policy = load_policies(self._url.policy) if self._url.policy else None
        self._condition = threading.Condition()
        self._capabilities: Capabilities | None = None
        self._error: RedeliverError | None = None
        self._arrived: dict[Destination, deque[Delivery]] = {}
        self._engines: list[Engine] = []
        self._adapter: Adapter = adapter_for(self._url)
        self._adapter.start(self)
        try:
            self._wait(lambda: self._capabilities is not None, ANSWER_TIMEOUT)
            if self._capabilities is None:
                raise BrokerUnavailable("the broker does not answer", where=self._adapter.broker, code="broker-timeout")
        except BaseException:
            self._adapter.close(1.0)
            raise

    @property
    def capabilities(self) -> Capabilities:
        """Return the capabilities of this broker."""
        return self._adapter.capabilities

    @property
    def broker(self) -> str:
        """Return the name of this broker for messages, without secrets."""
        return self._adapter.broker

    def deliveries(
        self,
        source: str | Destination,
        *,
        policy: str | Path | RedeliveryPolicy | PolicyMap | None = None,
        prefetch: int = 100,
        delay: Option = "auto",
        declare: str = "own",
        subscription: str | None = None,
        selector: str | None = None,
        timeout: float | None = None,
        app_name: str | None = None,
        limbo: str | None = None,
        log_failures: bool = True,
    ) -> Iterator[Pulled]:
        """Yield deliveries under a policy; held deliveries are yielded again in the same loop.

        The policy of the URL, if there is one, takes the place of `policy`.

        Ends after `timeout` seconds without a delivery (None: never). Leaving the loop leaves the rest unsettled.
        Messages parked in `limbo`, the URL of a database, are published while a loop or an App of this `app_name` runs.
        Failed attempts are logged under `redeliver_mw.failures`, unless `log_failures` is False.
        """
        destination = subscribed(Destination.parse(source), subscription)
        own = policy_of(policy)  # a policy that is not used must be valid too
        given = self._url_policy or own
        spec = HandlerSpec(destination, _nothing, given, 1, prefetch, selector=selector or "")
        settings = Settings(
            app_name=app_name or Path(sys.argv[0] or "python").stem,
            delay=delay,
            declare=declare,
            limbo=limbo,
            log_failures=log_failures,
            finding_rules=FindingRules(allow_hot_loop=True),
        )
        log_findings(settings.finding_rules.check(given, [destination]))
        policies = {destination: given.resolve(destination.name, destination.kind)}
        engine = Engine(adapter_for(self._url), [spec], policies, settings, SystemClock(), pool=PullPool)
        engine.start()
        self._engines.append(engine)
        pool = engine.pools[destination]
        assert isinstance(pool, PullPool)
        try:
            while (delivery := pool.next(timeout)) is not None:
                yield Pulled(delivery, pool)
                pool.leave(delivery)  # if the loop body did not use `with`
        finally:
            self._engines.remove(engine)
            engine.stop(5.0)

    def receive(self, source: str | Destination, timeout: float | None = None) -> Delivery | None:
        """Return the next message, without a policy; None after `timeout` seconds.

        `settle` it, or it stays at the broker.
        """
        destination = Destination.parse(source)
        if destination not in self._arrived:
            self._arrived[destination] = deque()
            self._adapter.subscribe(Subscription(source=destination, prefetch=1))
        waiting = self._arrived[destination]
        self._wait(lambda: bool(waiting), timeout)
        return waiting.popleft() if waiting else None

    def settle(self, delivery: Delivery, word: Settlement = "accepted") -> None:
        """Settle a received delivery as `accepted` or `released`. Raises ConfigError for any other settlement."""
        if word not in self.capabilities.honours:
            raise ConfigError(
                f"{word!r} is not honoured by {self.capabilities.dialect}",
                cure=f"Use one of {', '.join(sorted(self.capabilities.honours))}",
                code="verb-not-honoured",
            )

        def ask(answer: Callable[[bool], None]) -> None:
            self._adapter.settle(((delivery, word),), written=lambda: answer(True))

        self._ask(ask, 5.0)

    def publish(
        self,
        destination: str | Destination,
        body: bytes | str,
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        """Publish a durable message and wait for the broker's confirm. A str is encoded as UTF-8.

        Raises ConfigError for a body or headers of a wrong type, and BrokerError if the driver cannot send the message
        or the broker does not store it.
        """
        target = Destination.parse(destination)
        where = str(target)
        out = Outgoing(target, body_bytes(body, where), header_table(headers, where), Properties(**properties))
        reader = self._adapter.reader
        if isinstance(reader, Checking) and (why := reader.unsendable(out)):
            raise self._refused(out, why)

        def ask(answer: Callable[[tuple[Verdict, str]], None]) -> None:
            self._adapter.publish(out, lambda verdict, why: answer((verdict, why)))

        verdict, why = self._ask(ask, ANSWER_TIMEOUT)
        if verdict != "ok":
            raise self._refused(out, why)

    def _refused(self, out: Outgoing, why: str) -> BrokerError:
        what = f"{out.target} did not take the message: {why}"
        return BrokerError(what, where=self._adapter.broker, code="publish-refused")

    def browse(self, source: str | Destination, limit: int = 100) -> Sequence[Delivery]:
        """Return up to `limit` messages without consuming them.

        Where the broker cannot browse, they are marked redelivered.
        """
        destination = Destination.parse(source)

        def ask(answer: Callable[[Sequence[Delivery] | RedeliverError], None]) -> None:
            self._adapter.browse(destination, limit, answer)

        return self._answer(ask)

    def depth(self, source: str | Destination) -> int:
        """Return the number of messages ready in the queue."""
        destination = Destination.parse(source)

        def ask(answer: Callable[[int | RedeliverError], None]) -> None:
            self._adapter.depth(destination, answer)

        return self._answer(ask)

    def close(self) -> None:
        """Stop what `deliveries` consumes, and close the connection: each takes at most 5 seconds.

        The broker has the messages of unsettled deliveries again.
        """
        for engine in list(self._engines):
            engine.stop(5.0)
        self._adapter.close(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- waiting for the adapter -------------------------------------------------------------------

    def _wait(self, done: Callable[[], bool], timeout: float | None) -> None:
        with self._condition:
            self._condition.wait_for(lambda: done() or self._error is not None, timeout)
        if self._error is not None:
            raise self._error

    def _ask(self, ask: Callable[[Callable[[T], None]], None], timeout: float) -> T:
        found: list[T] = []

        def answer(result: T) -> None:
            with self._condition:
                found.append(result)
                self._condition.notify_all()

        ask(answer)
        self._wait(lambda: bool(found), timeout)
        if not found:
            raise BrokerError("the broker does not answer", where=self._adapter.broker, code="broker-timeout")
        return found[0]

    def _answer(self, ask: Callable[[Callable[[T | RedeliverError], None]], None]) -> T:
        result = self._ask(ask, ANSWER_TIMEOUT)
        if isinstance(result, RedeliverError):
            raise result
        return result

    # -- the adapter's sink -----------------------------------------------------------------------

    def connected(self, capabilities: Capabilities, /) -> None:
        """Note what the broker can do. Called by the adapter, on its thread, at each connect."""
        with self._condition:
            self._capabilities = capabilities
            self._condition.notify_all()

    def ready(self, source: Destination, generation: int, /) -> None:
        """Do nothing: called by the adapter, on its thread, when a source is subscribed to."""

    def arrived(self, batch: Sequence[Delivery], /) -> None:
        """Keep deliveries for `receive`. Called by the adapter, on its thread."""
        with self._condition:
            for delivery in batch:
                self._arrived[delivery.destination].append(delivery)
            self._condition.notify_all()

    def lost(self, generation: int, error: BaseException | None, /) -> None:
        """Forget the deliveries of a lost generation that nobody has received. Called by the adapter, on its thread."""
        with self._condition:
            for waiting in self._arrived.values():
                for delivery in [d for d in waiting if d.generation == generation]:
                    waiting.remove(delivery)

    def failed(self, error: RedeliverError, source: Destination | None, /) -> None:
        """Keep an error, which the next call of the session raises. Called by the adapter, on its thread."""
        with self._condition:
            self._error = error
            self._condition.notify_all()


class Pulled:
    """Wraps one delivery of a pulling loop. As a context manager: leaving the block is success, an exception a failure.

    All attributes of the `Delivery` can be read from this object.
    """

    def __init__(self, delivery: Delivery, pool: PullPool) -> None:
        """Wrap a delivery that is run in `pool`. Made by `Session.deliveries`."""
        self.delivery, self._pool = delivery, pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.delivery, name)

    def __enter__(self) -> Delivery:
        self._pool.enter(self.delivery)
        return self.delivery

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Pass failures to the policy, so that the loop continues.

        Exceptions that end a program are raised, the delivery unsettled.
        """
        if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
            self._pool.leave(self.delivery)
            return False
        self._pool.done(self.delivery, error)
        return True


def _nothing(delivery: Delivery) -> None:
    """Do nothing: a pulling loop has no handler."""
