# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Wraps pika callbacks, as `redelivering` does.

::

    channel.basic_consume("orders", redelivering(on_message, policy=p))

The callback stays as it is, and its own `basic_ack` settles a message, whenever it comes. When the callback raises,
the message comes back as the policy says, and after the last failure lies in the dead-letter queue. Works on
`BlockingConnection`, `SelectConnection` and `AsyncioConnection` (there also with coroutine functions), inside the
user's own loop: no thread, no sleep, heart-beats go on.

What a user should know:

- The callback's own `basic_ack`, `basic_nack` and `basic_reject` are captured: ack = success, requeue = failure,
  reject without requeue = `Reject`. They count once; when it acks and then raises, the ack counts and the exception
  is logged.
- `KeyboardInterrupt` and `SystemExit` leave the message unsettled and end the program, as they would by hand.
- Copies go out on a channel of our own on the same connection. In a memory alarm the broker blocks that connection
  whole, acks included; `publisher=` names a companion connection for the copies. When a copy is not answered
  within 30 s the shared connection is closed.
- pika decodes header values itself, and not exactly (1.75 becomes 1): copies carry what it decoded, unless the
  user's connection class has `ExactFrames` in front.
- A channel that is consumed with this wrapper has its `basic_ack`, `basic_nack`, `basic_reject` and `close` taken over.
- What cannot be right is a ConfigError out of `start_consuming`, at the first message. On the other connections, whose
  loops often reconnect after an exception, the consumer is cancelled and the error is logged. The message is unsettled.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from types import MethodType
from typing import Any

from pika.exceptions import AMQPConnectionError

from redeliver_mw.callables import is_async
from redeliver_mw.dropin import CallbackRun, CallbackRunner, DropinOptions
from redeliver_mw.errors import ConfigError, LimboError, RedeliverError
from redeliver_mw.message import Destination
from redeliver_pika.capabilities import capabilities
from redeliver_pika.dropin.channel import ChannelScope
from redeliver_pika.dropin.copies import PikaCompanion, SharedConnection
from redeliver_pika.dropin.properties_shown import shown
from redeliver_pika.messages import delivery_of

log = logging.getLogger("redeliver_mw.pika")

Callback = Callable[..., Any]  # (channel, method, properties, body)
_tasks: set[asyncio.Task[None]] = set()  # a loop itself keeps only weak references
_warned_of: set[str] = set()  # consumers with auto_ack that were warned of, by tag, or by queue where that is known


def tell_of_auto_ack(consumer: str) -> None:
    """Log once that there is nothing to add to a consumer with auto_ack."""
    if consumer not in _warned_of:
        _warned_of.add(consumer)
        log.error("auto_ack=True gives messages away before they are handled: none can be redelivered")


class PikaCallbackRunner(CallbackRunner):
    """Calls the callback of one wrapper, a plain one or a coroutine, on the loop of one connection at a time."""

    _user_connection: SharedConnection
    driver_settles = False  # without auto_ack the code itself acks

    def __init__(self, wrapper: Redelivering, shared: SharedConnection) -> None:
        """Run the callback of a wrapper on a connection, by the version and limits of its broker."""
        params, version = shared.raw.params, str((shared.raw.server_properties or {}).get("version", "0"))
        exact = bool(getattr(shared.raw, "exact_headers", False))
        can = capabilities(version, params.frame_max or 131072, exact_headers=exact)
        super().__init__(wrapper.terms, shared, wrapper.companion or shared, can)
        self._wrapper = wrapper
        self.returning_settles = wrapper.terms.returning_settles(self.driver_settles)

    def message(self, scope: ChannelScope, bound: tuple[Any, ...], method: Any, properties: Any, body: bytes) -> None:
        """Take a message from the driver. Raises ConfigError if that cannot be done right; it stays unsettled."""
        source = self._wrapper.source_of(scope, method, properties)
        if self._wrapper.is_async:
            self.check_loop()
        generation = self.generation(scope, method.consumer_tag, source)
        delivery = delivery_of(source, generation, (method, properties, body))
        self.arrived(CallbackRun(delivery, scope, self, bound, returning_settles=self.returning_settles))
        self._flush(scope)

    def check_loop(self) -> None:
        """Raise ConfigError if the callback is a coroutine function, and the connection has no loop for it."""
        if self._wrapper.is_async and self._loop is None:
            raise ConfigError(
                "a coroutine callback needs pika's AsyncioConnection",
                cure="Use it, or a function",
                code="callback-not-usable",
            )

    @property
    def raises(self) -> bool:
        """Return whether an error of the set-up can be raised into the user's own call."""
        return self._user_connection.blocking

    def invoke(self, run: CallbackRun) -> object:
        """Call the callback as pika does: with the channel, and the method, properties and body that show our count."""
        assert isinstance(run.scope, ChannelScope)
        return self._wrapper.callback(*run.given, run.scope.channel, *shown(run.delivery))

    def passes(self, error: BaseException) -> bool:
        """Return whether an error is the end of a blocking connection, which the user's own call has to raise."""
        return self._user_connection.blocking and self.over and isinstance(error, AMQPConnectionError)

    def _flush(self, scope: ChannelScope) -> None:
        """Write the acks of a BlockingConnection, which writes only when it is polled; each ack by hand polls it."""
        connection = self._user_connection
        waits = connection.blocking and connection.is_open and not getattr(scope.channel, "_pending_events", ())
        if waits and connection.raw._get_write_buffer_size():  # an ack of the callback's own was sent at once
            connection.users.process_data_events(0)

    # -- coroutines -------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        loop = getattr(self._user_connection.raw, "ioloop", None)
        return loop if isinstance(loop, asyncio.AbstractEventLoop) else None

    def finish(self, run: CallbackRun, result: object) -> None:
        """Await what a coroutine callback has returned, as a task of the connection's own asyncio loop."""
        loop = self._loop
        if loop is None or not inspect.isawaitable(result):
            return super().finish(run, result)
        run.before = None
        task = loop.create_task(self._await(run, result))  # it inherits the delivery in hand
        self.goes_on(run)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _await(self, run: CallbackRun, result: Awaitable[object]) -> None:
        try:
            await result
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            self.leave(run)
            raise
        except BaseException as error:
            self.ended(run, error)
        else:
            self.ended(run, None)


class Redelivering:
    """Is a wrapped callback. Give it to `basic_consume`; several queues, channels and connections may share it."""

    runner_class: type[PikaCallbackRunner] = PikaCallbackRunner
    wraps_for_redelivery = True  # by which it is known wherever it is wrapped again

    def __init__(
        self,
        callback: Callback,
        terms: DropinOptions,
        queue: str | Destination | None,
        publisher: str | PikaCompanion | None,
    ) -> None:
        """Wrap a callback. Raises ConfigError for options that cannot be used.

        `queue` None: the queue is known from the channel or the message. `publisher`: None sends copies on the same
        connection.
        """
        self.callback = self.__wrapped__ = callback
        self.__name__: str = getattr(callback, "__name__", type(callback).__name__)
        self.__doc__ = getattr(callback, "__doc__", None)
        self.terms = terms.on(callback)
        self.is_async = is_async(callback)
        self.companion = PikaCompanion(publisher) if isinstance(publisher, str) else publisher
        if self.terms.traced:
            self._original_callback = self  # as OpenTelemetry's instrumentation marks a callback that has its span
        self._queue = None if queue is None else Destination.parse(queue)
        self._last: dict[
            tuple[str, int], PikaCallbackRunner
        ] = {}  # of a ledger scope and thread: it goes on after a reconnect

    def __call__(self, *args: Any) -> None:
        *bound, channel, method, properties, body = args
        if not hasattr(method, "consumer_tag"):
            raise ConfigError(
                "the result of basic_get was given to a wrapped callback, and what consumes it cannot be known",
                where=repr(self),
                cure="Consume the queue with basic_consume, or call the callback that is not wrapped",
                code="queue-not-known",
            )
        scope = ChannelScope.of(channel)
        if method.consumer_tag in getattr(scope.raw, "_consumers_with_noack", ()):
            self._pass_through(args, method.consumer_tag)
        else:
            runner = self._runner(channel)
            try:
                runner.message(scope, tuple(bound), method, properties, body)
            except (ConfigError, LimboError) as error:
                if runner.raises:
                    raise
                self._refuse(scope, method, error)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind the wrapper to an instance, as a function is bound: `@redelivering(...)` may stand above a method."""
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<redelivering {self.callback!r}>"

    def learn(self, channel: Any) -> None:
        """Hold the policy of the named queue against the broker of this channel, before the first message.

        Raises ConfigError or PolicyError for what cannot be had, and LimboError for a limbo that cannot be opened.
        """
        runner = self._runner(channel)
        runner.check_loop()
        if self._queue is not None:
            runner.learn(self._queue)

    def _runner(self, channel: Any) -> PikaCallbackRunner:
        shared = SharedConnection.of(channel.connection)
        runner: PikaCallbackRunner | None = shared.runners.get(self)
        if runner is None:
            key = (shared.ledger_scope, threading.get_ident())
            runner = self._last.get(key)
            if runner is not None and runner.over:
                runner.move_to(shared, self.companion or shared)
            else:
                runner = self._last[key] = self.runner_class(self, shared)
            shared.runners[self] = runner
        return runner

    def _pass_through(self, args: tuple[Any, ...], consumer_tag: str) -> None:
        """Call the callback for a message that was consumed with auto_ack.

        The broker forgot the message when it sent it. To refuse the message would lose it.
        """
        tell_of_auto_ack(consumer_tag)
        self.callback(*args)

    def _refuse(self, scope: ChannelScope, method: Any, error: RedeliverError) -> None:
        """Stop a consumer that cannot be served, in a loop that would reconnect for ever if this were raised into it.

        Its messages stay unsettled until the channel is closed.
        """
        log.error("the consumer %s is cancelled, and its messages stay unsettled: %s", method.consumer_tag, error)
        scope.raw.basic_cancel(method.consumer_tag)

    def source_of(self, scope: ChannelScope, method: Any, properties: Any) -> Destination:
        """Return the queue. Raises ConfigError if it is not known; nothing is done with the message."""
        if self._queue is not None:
            return self._queue
        found = scope.sources.get(method.consumer_tag)
        if found is None:
            copied = "CC" in (properties.headers or {})  # sent to several queues; the routing key names one of them
            if method.exchange or copied:
                way = "with a CC header" if copied else f"through the exchange {method.exchange!r}"
                raise ConfigError(
                    f"a message came {way}, and the driver does not say its queue",
                    where=repr(self),
                    cure='Name it: redelivering(..., queue="orders")',
                    code="queue-not-known",
                )
            found = scope.sources[method.consumer_tag] = Destination(method.routing_key)
        return found
