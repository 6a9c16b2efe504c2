# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `redelivering`, the drop-in wrapper for proton handlers.

::

    Container(redelivering(MyHandler(), policy=p)).run()

The handler stays as it is. With `auto_accept=True` a message is accepted when `on_message` returns, else when the code
accepts it. When `on_message` raises, the message comes back as the policy says, and after the last failure lies in the
dead-letter queue. All of it runs on the container's thread: no sleep, heart-beats go on.

How: a `MessagingHandler` has an `IncomingMessageHandler` among its `handlers`, which receives, calls `on_message`, and
accepts and settles by itself. `redelivering` takes that one's place and gives the same handler back. Its senders and
its endpoints are not touched; its prefetch stays, and is asked for by halves.

What a user should know:

- The callback's own settlements are captured: `accept` = success, `release` and `modified` = failure, `reject` =
  `Reject`;
  also as `event.delivery.update(...)`, `settle()` and the exceptions `Reject` and `Release`. The first one counts;
  when it accepts and then raises, the exception is logged.
- A delivery that the code joins to a transaction of its own succeeds with the commit, and fails with an abort: see
  `code_transactions`.
- With `prefetch=0` the code gives credit, and one is given here for each message that has left after an exception.
- `KeyboardInterrupt` and `SystemExit` leave the message unsettled and end the program, as they would by hand.
- A callback that closes its receiver or connection and returns gets its message settled first.
- The source is the address that the receiver is attached to; `topic::subscription` is a subscription, with the
  capability `queue` on the receiver's source a queue. A browsing receiver (`Copy()`), a dynamic one, and one whose
  messages come settled pass through untouched.
- Copies go out on links of our own on the same connection; `publisher=` names a companion connection for them. When
  one is not answered within 30 s the shared connection is closed.
- What cannot be right is a ConfigError out of `run()`, when the receiver is attached: nothing was begun.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, TypeVar, Unpack

import proton
from proton.handlers import IncomingMessageHandler, OutgoingMessageHandler
from proton.handlers import Reject as ProtonReject
from proton.handlers import Release as ProtonRelease

from redeliver_mw.callables import is_async
from redeliver_mw.dropin import (
    CallbackRun,
    CallbackRunner,
    CompanionPublisher,
    DropinKeywords,
    DropinOptions,
    RefusedHere,
    Requeued,
)
from redeliver_mw.errors import ConfigError, Reject
from redeliver_mw.message import Destination
from redeliver_proton.brokers.artemis.capabilities import capabilities
from redeliver_proton.brokers.artemis.dialect import ARTEMIS
from redeliver_proton.dropin.connection import ConnectionWatch, ProtonUserConnection
from redeliver_proton.dropin.event_batch import EventBatch, others_listen
from redeliver_proton.dropin.flow_control import CodeCredit, PausingFlow, SendingPart
from redeliver_proton.dropin.link import LinkScope, ShownDelivery
from redeliver_proton.dropin.link_sources import passes_through, source_of, was_wrapped
from redeliver_proton.messages import delivery_of

log = logging.getLogger("redeliver_mw.proton")

H = TypeVar("H")
_CLOSED = proton.Endpoint.LOCAL_CLOSED


class ProtonCallbackRunner(CallbackRunner):
    """Calls one handler, on one connection at a time."""

    _user_connection: ProtonUserConnection

    def __init__(self, incoming: WrappedHandler, user_connection: ProtonUserConnection) -> None:
        super().__init__(
            incoming.terms,
            user_connection,
            incoming.companion or user_connection.publisher,
            _capabilities(user_connection.connection),
        )
        self._incoming = incoming

    @property
    def over(self) -> bool:
        return self._user_connection.finished

    def begin_anew(self) -> None:
        """Begin anew after a lost connection, which may come back: nothing is halted or waits in a turn of the loop."""
        self._incoming.paused.clear()
        self.move_to(self._user_connection, self._publisher)

    def knows(self, source: Destination) -> bool:
        return source in self._plans

    def invoke(self, run: CallbackRun) -> object:
        scope = run.scope
        assert isinstance(scope, LinkScope)
        if scope.code_credit is None:
            self._call(run)
            return None
        before = scope.code_credit.begin(run.delivery.tag)
        try:
            self._call(run)
        except RefusedHere:
            raise
        except Exception:
            scope.code_credit.failed(run.delivery.tag, before, settled=scope.run_of(run.delivery) is None)
            raise
        return None

    def _call(self, run: CallbackRun) -> None:
        try:
            self._incoming.original.on_message(ShownDelivery(run))
        except ProtonReject as error:
            raise Reject(str(error) or "rejected by the callback (Reject)") from error
        except ProtonRelease as error:
            raise Requeued("Release") from error

    def passes(self, error: BaseException) -> bool:
        """Return whether an error ends the container, as an exception does without a wrapper."""
        return isinstance(error, RefusedHere)

    def refused(self, run: CallbackRun, error: RefusedHere) -> None:
        """Leave a message unsettled, in no transaction, whose code asked for what a wrapper cannot do."""
        run.scope.withdraw(run)
        super().refused(run, error)

    def source_halted(self, source: Destination) -> None:
        self._incoming.paused.update(scope.link for scope in self._scopes_of(source))

    def source_resumed(self, source: Destination) -> None:
        for scope in self._scopes_of(source):
            self._incoming.paused.discard(scope.link)
            if scope.code_credit is not None:
                scope.code_credit.resume()
            elif self._incoming.flow is not None:
                self._incoming.flow.again(scope.link)

    def _scopes_of(self, source: Destination) -> list[LinkScope]:
        return [scope for scope in self._user_connection.scopes.values() if scope.source == source]


class WrappedHandler(proton.Handler):
    """Stands where the handler's `IncomingMessageHandler` stood."""

    def __init__(self, original: Any, terms: DropinOptions, companion: CompanionPublisher | None) -> None:
        self.original, self.terms, self.companion = original, terms, companion
        self.returning_settles = terms.returning_settles(bool(getattr(original, "auto_accept", True)))
        self.flow: PausingFlow | None = None  # in front of the handler's own, if it has one
        self.parts: list[Any] = []  # of the handler, that are ours
        self.paused: set[Any] = set()  # links that get no credit
        self._last: dict[
            tuple[str, int], ProtonCallbackRunner
        ] = {}  # of a broker and thread: it goes on with a new connection
        self._logged: set[Any] = set()  # sources whose messages come settled
        self._user_connection: ProtonUserConnection | None = None  # of the last message

    # -- the driver's events ----------------------------------------------------------------------

    def on_reactor_init(self, event: Any) -> None:
        """Watch the connections of a container from its beginning, so that everything that the code does is seen."""
        ConnectionWatch.of(event.container)
        self.on_unhandled("on_reactor_init", event)

    def on_link_remote_open(self, event: Any) -> None:
        self.on_unhandled("on_link_remote_open", event)
        link = event.link
        if link.is_receiver and link.remote_source.address and not passes_through(link):
            runner, source = self._runner(ConnectionWatch.user_connection_of(event)), source_of(link)
            if not runner.knows(source):
                runner.learn(source)

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        scope = self.scope_of(link)
        if (scope is None and not link.is_receiver) or delivery.aborted or not delivery.readable or delivery.partial:
            if scope is None or not delivery.settled or scope.is_promised(delivery):
                self.original.on_delivery(event)  # a delivery that we moved in a transaction is no news for the code
        elif (scope is None and not was_wrapped(link) and passes_through(link)) or delivery.settled:
            self._say_settled(link, delivery)
            self.original.on_delivery(event)
        else:
            event.redeliver_ours = self
            scope = scope or self._open_scope(event, link)
            assert self._user_connection is not None
            self._message(event, delivery, self._user_connection, scope)

    def take_following(self, event: Any) -> None:
        """Take the messages that came with one of ours, after everybody has seen the event of that one."""
        scope, user_connection = self.scope_of(event.link), self._user_connection
        if scope is None or user_connection is None or others_listen(event, (*self.parts, user_connection.watch)):
            return
        behind = EventBatch(event)
        while (came := behind.next()) is not None:
            self._message(event, came, user_connection, scope)
        if self.flow is not None:
            self.flow.on_delivery(event)
        behind.end()

    def on_unhandled(self, method: str, *args: Any) -> None:
        call = getattr(self.original, method, None)
        if call is not None:
            call(*args)

    def is_ours(self, link: Any) -> bool:
        """Return whether the messages of a link are ours to settle."""
        return self.scope_of(link) is not None

    def scope_of(self, link: Any) -> LinkScope | None:
        """Return the scope of a link; the wrapper takes the messages of links that have one."""
        return self._user_connection.scopes.get(link) if self._user_connection is not None else None

    def _open_scope(self, event: Any, link: Any) -> LinkScope:
        user_connection = self._user_connection = ConnectionWatch.user_connection_of(event)
        scope = user_connection.scopes.get(link)
        if scope is None:
            credit = CodeCredit(link, self.paused) if self.flow is None else None
            scope = user_connection.scopes[link] = LinkScope(user_connection, link, source_of(link), credit)
            link.redeliver_wrapped = True
        return scope

    def _message(self, event: Any, came: Any, user_connection: ProtonUserConnection, scope: LinkScope) -> None:
        link = scope.link
        if not user_connection.is_open:
            return  # it came before the connection was lost: the broker has it again
        if (link.state | scope.session.state | user_connection.connection.state) & _CLOSED:
            return  # the user has closed it, which gives the message back, uncounted
        runner = self._runner(user_connection)
        generation = runner.generation(scope, "", scope.source)
        raw = bytes(link.recv(came.pending) or b"")
        link.advance()
        delivery = delivery_of(scope.source, generation, scope.keep(came), raw)
        runner.arrived(CallbackRun(delivery, scope, runner, (event, came), returning_settles=self.returning_settles))

    def _say_settled(self, link: Any, delivery: Any) -> None:
        if delivery.settled and link.remote_source.address not in self._logged:
            self._logged.add(link.remote_source.address)
            log.error("%s: its messages come settled: none can be redelivered", link.remote_source.address)

    # -- who calls --------------------------------------------------------------------------------

    def _runner(self, user_connection: ProtonUserConnection) -> ProtonCallbackRunner:
        found: ProtonCallbackRunner | None = user_connection.runners.get(self)
        if found is None:
            key = (user_connection.ledger_scope, threading.get_ident())
            found = self._last.get(key)
            if found is not None and found.over:
                found.move_to(user_connection, self.companion or user_connection.publisher)
            else:
                found = self._last[key] = ProtonCallbackRunner(self, user_connection)
            user_connection.runners[self] = found
            if self.companion is not None or not self.returning_settles:
                user_connection.watch.listen()
        return found


def _capabilities(connection: Any) -> Any:
    properties = {str(name): value for name, value in (connection.remote_properties or {}).items()}
    product = str(properties.get("product", ""))
    if product != ARTEMIS.product:
        cure = (
            "Use an App, with rabbitmq+proton, or redeliver_pika's wrapper" if product == "RabbitMQ" else "Use Artemis"
        )
        name = product or "one that does not name its product"
        raise ConfigError(
            f"this broker is {name}, not Artemis", where=str(connection.hostname), cure=cure, code="broker-is-another"
        )
    return capabilities(str(properties.get("version", "0")))


# -- wrapping --------------------------------------------------------------------------------------


def redelivering(handler: H, *, publisher: str | None = None, **options: Unpack[DropinKeywords]) -> H:
    """Make a proton handler's messages redelivered as a policy says. The same handler comes back.

    - `publisher`: a URL for a companion connection on which copies go out.
    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the mark of `@redeliver` on `on_message`, else
      the default policy.
    - `delay`: `auto`, `hold`, `schedule`, or with a limbo `park`.
    - `limbo`: the URL of a database for messages that wait longer than here or at the broker; needs `publisher`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `journal_healthy`: `all`, or with `counts` messages that go well at once are counted, not recorded one by one.
    - `traces`: True for spans by OpenTelemetry's global tracer provider, a TracerProvider, or a Traces with options.
    - `notify`, `notify_secret`: the URL of a webhook and what signs for it, or a function, for a notification of an
      outage and one of its end; or a Notify with options.
    - `app_name`: for records and dead letters; the program's name by default.
    - `settle`: by default as the handler's `auto_accept` says: with True, returning is success; with False, the code's
      own accept, release or reject of `event.delivery` settles the message, whenever and from whichever thread it
      comes. `return` and `callback` say it outright.
    - `hold_max`: deliveries (>= 1) that may be held here at once, each for ten seconds at most.

    ConfigError for what cannot be; PolicyError for a policy that cannot be read.
    """
    on_message = getattr(handler, "on_message", None)
    parts: Any = getattr(handler, "handlers", None)
    if not any(_controls_flow(part) for part in (parts if isinstance(parts, list) else ())):
        # The code gives credit for each message that has left it. What is held would be paid for and still be here.
        options["delay"] = "schedule" if options.get("delay", "auto") == "auto" else options["delay"]
    terms = DropinOptions(publisher=publisher, **options)
    name = f"{handler!r:.200}"
    if isinstance(handler, IncomingMessageHandler) or not callable(on_message) or not isinstance(parts, list):
        raise ConfigError(f"{name} is no handler with on_message", cure=_DERIVE, code="callback-not-usable")
    if any(isinstance(part, WrappedHandler) for part in parts):
        raise ConfigError(f"{name} is wrapped already", cure="Wrap it once", code="wrapped-twice")
    at = next((i for i, part in enumerate(parts) if isinstance(part, IncomingMessageHandler)), None)
    if at is None:
        raise ConfigError(
            f"proton itself would never call on_message of {name}", cure=_DERIVE, code="callback-not-usable"
        )
    if is_async(on_message):
        raise ConfigError(
            f"{name} has a coroutine as on_message: the container cannot await it",
            cure="Use a function",
            code="callback-not-usable",
        )
    companion = None if publisher is None else CompanionPublisher(publisher, "artemis+proton")
    parts[at] = incoming = WrappedHandler(parts[at], terms.on(on_message), companion)
    for i, part in enumerate(parts):
        if _controls_flow(part):
            parts[i] = incoming.flow = PausingFlow(part, incoming.paused)
        elif type(part) is OutgoingMessageHandler:
            parts[i] = SendingPart(part, incoming.is_ours)
    incoming.parts = [part for part in parts if isinstance(part, WrappedHandler | PausingFlow | SendingPart)]
    return handler


def _controls_flow(part: Any) -> bool:
    """Return whether a part of a handler keeps its prefetch window open, as the one of `prefetch=` does."""
    return type(part).__name__ == "FlowController"


_DERIVE = "Derive it from proton.handlers.MessagingHandler"
__all__ = ["redelivering"]
