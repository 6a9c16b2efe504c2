# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `redelivering`, the drop-in wrapper for listeners of stomp.py, on ActiveMQ Classic.

::

    conn.set_listener("", redelivering(MyListener(), conn, policy=p))  # before conn.subscribe
    conn.subscribe("/queue/orders", id="1", ack="client-individual")

The listener stays as it is. What settles its messages is what settled them before: in the ack mode `auto` returning
from `on_message`, in `client` and `client-individual` the code's own ACK. When `on_message` raises, or the code nacks,
the message comes back as the policy says, and after the last failure lies in the dead-letter queue.

What a user should know:

- `on_message` runs on one thread of ours per connection, one message after the other; so neither a slow callback nor
  a held message stops heart-beats. All other methods of the listener are called where stomp.py calls them.
- `conn.subscribe`, `unsubscribe`, `ack`, `nack`, `begin`, `commit`, `abort` and `disconnect` of this one object are
  taken over. Each subscription gets the ack mode `client-individual` (stomp.py's default, `auto`, gives messages away
  before they are handled), and `activemq.prefetchSize` of 1000 where none is given. Browsers and temporary
  destinations are left alone. A subscription that was made before is an error, logged at its first message.
- The code's own `conn.ack` and `conn.nack` are captured, whenever they come and from whichever thread: ack = success,
  nack = a failure to be retried. They count once; when a callback acks and then raises, the ack counts.
- The code's own transactions: an ACK in one is success when the COMMIT is answered. After an ABORT the code has the
  message in hand again. ActiveMQ takes no NACK in a transaction, so that is refused.
- The callback sees a copy of the frame, with the header `JMSXDeliveryCount`: "1" at the first delivery.
- Bodies of copies are the bytes that came, whatever `auto_decode` makes of them for the callback.
- Copies go out on the same connection; a dead letter and the ack of its original are one transaction. When the
  broker does not answer within 30 s the connection is closed. `publisher=` names a companion connection for copies.
- Longer delays need the broker's scheduler. A message that comes back at once although it was to be delayed is
  noticed: it is held from then on, ten seconds at a time.
- A durable topic subscription (`activemq.subscriptionName`) gets a queue of its own for its retries, which is consumed
  beside it. Retries of a plain topic subscription are held here: a copy would reach all other subscribers.
- Reconnecting is the user's own code, as ever: connect and subscribe again on the same object; counts are kept.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from redeliver_mw.adapter.capabilities import Trust
from redeliver_mw.callables import is_async
from redeliver_mw.dropin import CallbackRun, CallbackRunner, CompanionPublisher, DropinKeywords, DropinOptions
from redeliver_mw.errors import ConfigError, RedeliverError
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.redelivery.delays import hold_budget, hold_limit
from redeliver_stomp.capabilities import NOT_SCHEDULED, capabilities, destination_of
from redeliver_stomp.dropin.channel import ConnectionScope
from redeliver_stomp.dropin.claims import HandedFrame, SubscribedSource
from redeliver_stomp.dropin.connection import RAW
from redeliver_stomp.frames import RawFrame, plain_frame
from redeliver_stomp.messages import READER

log = logging.getLogger("redeliver_mw.stomp")


class StompCallbackRunner(CallbackRunner):
    """Calls one wrapped listener, on one connection object. On our thread for that object."""

    def __init__(self, listener: Any, terms: DropinOptions, scope: ConnectionScope, publisher_url: str | None) -> None:
        """Run the callback of a listener in the scope of one connection. `publisher_url` None: copies go out on it."""
        publisher = scope.publisher if publisher_url is None else CompanionPublisher(publisher_url, "activemq+stomp")
        can = replace(capabilities(scope.user_connection.version, scheduler=True), trust={"schedule": Trust.UNKNOWN})
        super().__init__(terms, scope.user_connection, publisher, can)
        self.listener, self._scope = listener, scope
        self._prefetch: dict[Destination, int] = {}
        self._scheduled = True  # as far as is known

    def subscribed(self, to: SubscribedSource) -> None:
        """Check a subscription before it is sent. Raises ConfigError or PolicyError out of the user's `subscribe`."""
        if to.source is not None:
            self._prefetch[to.source] = to.prefetch
            self.learn(to.source)

    def learn(self, source: Destination) -> None:
        """Adapt the plan: a smaller window than usual, or a topic that others hear too, leaves fewer ways to wait."""
        known, can = self.capabilities, self.capabilities
        if source.kind == "topic" and not source.subscription:
            can = replace(can, schedule=None)
        self.capabilities = can
        try:
            super().learn(source)
        finally:
            self.capabilities = known
        plan, prefetch = self._plans[source], self._prefetch.get(source, 2)
        budget, longest = (
            min(plan.ways.budget, hold_budget(prefetch)),
            min(plan.ways.hold_max, hold_limit(prefetch, None)),
        )
        schedule = plan.ways.schedule if self._scheduled else None
        self._plans[source] = replace(plan, ways=replace(plan.ways, budget=budget, hold_max=longest, schedule=schedule))

    def message(self, to: SubscribedSource, frame: Any, raw: RawFrame) -> None:
        """Take one MESSAGE of the connection that is still open."""
        source = to.source or destination_of(frame.headers.get("destination", ""))
        if source is None:
            return log.error("a message without a destination is left alone: %r", raw.head[:200])
        if source not in self._plans:
            self._prefetch.setdefault(source, to.prefetch)
        if NOT_SCHEDULED in frame.headers:
            self._not_scheduled(source)
        try:
            generation = self.generation(self._scope, to.id, source)
        except RedeliverError as error:
            return log.error("%s: its messages stay unsettled: %s", source, error)
        if raw in self._scope.convicts(source):
            return None  # run once, and never to be acked: it stays in its queue
        redelivered = b"\nredelivered:true" in raw.head
        delivery = Delivery(source, generation, self._scope.tag_of(frame.headers), redelivered, raw, READER)
        returning = self.terms.returning_settles(to.ack == "auto")
        self.arrived(CallbackRun(delivery, self._scope, self, HandedFrame(frame, to), returning_settles=returning))

    def begin(self, run: CallbackRun) -> None:
        """Claim the delivery for its callback, before the callback is called."""
        if run.given.claimed:
            self._scope.claims.begin(run)
        super().begin(run)

    def ended(self, run: CallbackRun, error: BaseException | None) -> None:
        """Let the code's settlement on another thread come before how its callback ended."""
        settlement = self._scope.claims.end(run, error)
        if settlement is not None:
            self.code_settled(run, settlement)
        super().ended(run, error)

    def lost(self, generation: int, runs: list[CallbackRun]) -> None:
        """Forget a lost generation, and with the connection the timer of its windows."""
        super().lost(generation, runs)
        if self.over:
            self._windows.stop()  # its timer ends with the connection's thread

    def closing(self, run: CallbackRun) -> None:
        """Settle a message whose callback closes the connection, unless another thread has settled it."""
        with self._scope.claims.lock:
            mine = run.returning_settles and self._scope.claims.take(run)
        if mine:
            super().closing(run)

    def _not_scheduled(self, source: Destination) -> None:
        if not self._scheduled:
            return
        self._scheduled = False
        log.error(
            "%s: a message that was to be delayed was not: the broker's scheduler is off. Set "
            'schedulerSupport="true"; until then messages are held here',
            source,
        )
        for known, plan in list(self._plans.items()):
            self._plans[known] = replace(plan, ways=replace(plan.ways, schedule=None))

    def invoke(self, run: CallbackRun) -> object:
        """Call the listener's `on_message` with a frame that shows our count."""
        frame, to = run.given.frame, run.given.to
        headers = {**frame.headers, "JMSXDeliveryCount": str(run.delivery.delivery_count)}
        if to.id != to.of:  # a retry of a durable subscription's, from its private queue
            headers |= {"destination": to.destination, "subscription": to.of}
        return self.listener.on_message(plain_frame(frame.cmd, headers, frame.body))


class Redelivering:
    """Is a wrapped listener. Give it to `set_listener` of the same connection; one counts for each connection."""

    def __init__(self, listener: Any, connection: Any, terms: DropinOptions, publisher: str | None) -> None:
        """Wrap a listener for a connection; it becomes the owner of what arrives there."""
        self.listener = listener
        self._scope = ConnectionScope.of(connection)
        self._runner = StompCallbackRunner(listener, terms, self._scope, publisher)
        self._scope.owner = self._runner
        self._inbox: deque[tuple[SubscribedSource, Any, RawFrame, int]] = deque()
        self._called = False  # our thread will look into the inbox

    def __getattr__(self, name: str) -> Any:
        """Return the listener's own method for whatever else stomp.py calls.

        stomp.py does not call methods that the listener does not have.
        """
        return getattr(self.listener, name)

    def __repr__(self) -> str:
        return f"<redelivering {self.listener!r}>"

    def on_disconnected(self) -> None:
        """Note the loss of the connection, then tell the listener. Called on the receiver thread."""
        self._scope.user_connection.disconnected()
        on_disconnected = getattr(self.listener, "on_disconnected", None)
        if on_disconnected is not None:
            on_disconnected()

    def on_message(self, frame: Any) -> None:
        """Hand the message over to our thread. Called on the receiver thread."""
        scope = self._scope
        name = frame.headers.get("subscription")
        to, raw = scope.subscriptions.get(name), getattr(frame, RAW, None)
        if to is None or raw is None:
            if name not in scope.retired and (to is not None or scope.passes(frame)):
                self.listener.on_message(frame)
            return
        self._inbox.append((to, frame, raw, scope.user_connection.epoch))
        if not self._called:  # else what is there by then goes along
            self._called = True
            scope.user_connection.hop(self._come)

    def _come(self) -> None:
        """Take the messages that have come until now. On our thread."""
        self._called = False
        user_connection = self._scope.user_connection
        try:
            for _ in range(len(self._inbox)):
                user_connection.guarded(partial(self._take, *self._inbox.popleft()))
        finally:
            if self._inbox and not self._called:  # a fault with one of them is not the others'
                self._called = True
                user_connection.hop(self._come)

    def _take(self, to: SubscribedSource, frame: Any, raw: RawFrame, epoch: int) -> None:
        scope = self._scope
        current = scope.user_connection.epoch == epoch and not scope.user_connection.leaving
        if current and scope.subscriptions.get(to.id) is to and scope.owner is self._runner:
            self._runner.message(to, frame, raw)


def redelivering(
    listener: Any, connection: Any, *, publisher: str | None = None, **options: Unpack[DropinKeywords]
) -> Redelivering:
    """Wrap a listener of stomp.py's for `connection.set_listener`, before `connection.subscribe`.

    - `publisher`: a URL for a companion connection on which copies go out.
    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the `@redeliver` mark of `on_message`, else the
      default policy.
    - `delay`: `auto`, `hold`, `schedule`, or with a limbo `park`.
    - `limbo`: the URL of a database for messages that wait longer than here or at the broker; needs `publisher`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `journal_healthy`: `all`, or with `counts` messages that go well at once are counted, not recorded one by one.
    - `traces`: True for spans by OpenTelemetry's global tracer provider, a TracerProvider, or a Traces with options.
    - `notify`, `notify_secret`: the URL of a webhook and what signs for it, or a function, for a notification of an
      outage and one of its end; or a Notify with options.
    - `app_name`: for records and dead letters; the program's name by default.
    - `settle`: by default as the subscription's ack mode says: with `auto`, returning is success; with `client` and
      `client-individual`, the code's own `conn.ack` or `conn.nack` settles the message, whenever and from whichever
      thread it comes. `return` and `callback` say it outright.
    - `hold_max`: deliveries (>= 1) that may be held here at once, each for ten seconds at most.

    ConfigError for what cannot be; PolicyError for a policy that cannot be read. From `subscribe` a PolicyError for one
    that cannot be had there.
    """
    if isinstance(listener, Redelivering):
        raise ConfigError(f"{listener!r:.200} is wrapped already", cure="Wrap a listener once", code="wrapped-twice")
    if not callable(getattr(listener, "on_message", None)):
        raise ConfigError(
            f"{listener!r:.200} has no on_message",
            cure="Give a listener of stomp.py's kind",
            code="callback-not-usable",
        )
    if is_async(listener.on_message):
        raise ConfigError(
            f"{listener!r:.200} has a coroutine as on_message: stomp.py cannot await it",
            cure="Use a function",
            code="callback-not-usable",
        )
    terms = DropinOptions(publisher=publisher, **options).on(listener.on_message)
    return Redelivering(listener, connection, terms, publisher)
