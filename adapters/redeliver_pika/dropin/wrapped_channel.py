# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Wraps a channel as a whole: each of its consumers has the policy of its queue.

The channel object is taken over in place, since callbacks, closures and the driver itself keep it. What says which
queue is consumed, how, and what became of a delivery is seen here; everything else passes.

Consumers with `auto_ack=True` and of `amq.rabbitmq.reply-to` pass unchanged. Deliveries of `basic_get` are settled by
the code itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel
from pika.channel import Channel

from redeliver_mw.dropin import DropinOptions, RefusedHere
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Destination
from redeliver_pika.dropin.channel import ChannelScope, is_wrapped
from redeliver_pika.dropin.copies import PikaCompanion
from redeliver_pika.dropin.prefetch import PrefetchCounts
from redeliver_pika.dropin.pull import LoopMessages, Message
from redeliver_pika.dropin.transactions import ChannelTransaction
from redeliver_pika.dropin.wrapper import Redelivering, tell_of_auto_ack

REPLY_TO = "amq.rabbitmq.reply-to"
SERVER_NAMED = "amq.gen-"
DEAD_LETTER_EXCHANGE = "x-dead-letter-exchange"
ARGUMENTS = 4  # where they stand behind the name in `queue_declare(queue, passive, durable, exclusive, auto_delete, …)`


def is_channel(given: object) -> bool:
    """Return whether this is a channel of pika's, of a BlockingConnection or of another one."""
    return isinstance(given, BlockingChannel | Channel)


def wrap_channel(channel: Any, terms: DropinOptions, companion: PikaCompanion | None) -> Any:
    """Take over a channel that has no consumers yet, and return it. Raises ConfigError if it cannot be wrapped."""
    raw = getattr(channel, "_impl", channel)
    scope: ChannelScope | None = vars(channel).get("_redeliver_scope")
    if scope is not None and scope.by_hand is not None:
        raise ConfigError(
            "the channel is wrapped already", where=repr(channel), cure="Wrap each channel once", code="wrapped-twice"
        )
    if raw.is_closed or raw.is_closing:
        raise ConfigError(
            "the channel is closed",
            where=repr(channel),
            cure="Wrap a new one: connection.channel()",
            code="wrapped-too-late",
        )
    if raw._consumers:
        raise ConfigError(
            "the channel has consumers already, and what they were given is not known",
            where=repr(channel),
            cure="Wrap the channel before the first basic_consume",
            code="wrapped-too-late",
        )
    _WrappedChannel(channel, terms, companion)
    return channel


class _WrappedChannel:
    """Stands in for the methods of one channel object. On the thread of its connection's loop."""

    def __init__(self, channel: Any, terms: DropinOptions, companion: PikaCompanion | None) -> None:
        self._channel, self._terms, self._companion = channel, terms, companion
        self._scope = scope = ChannelScope.of(channel)
        self._blocking = scope.raw is not channel
        self._by_hand: set[int] = set()
        scope.by_hand, self._prefetch = self._by_hand, PrefetchCounts()
        scope.prefetch = self._prefetch
        self._declared: str | None = None  # the last queue: the broker takes the empty name for it
        self._wrapped: dict[tuple[str, Any], Redelivering] = {}  # by queue and callback
        self._loops: dict[str, LoopMessages] = {}  # by queue
        self._plain: dict[str, Callable[..., Any]] = {}
        self._take_over("basic_consume", self._basic_consume)
        self._take_over("basic_cancel", self._basic_cancel)
        self._take_over("basic_qos", self._basic_qos)
        self._take_over("basic_get", self._get if self._blocking else self._get_later)
        self._take_over("basic_recover", self._recover if self._blocking else self._recover_later)
        self._take_over("queue_declare", self._declare if self._blocking else self._declare_later)
        self._take_over("tx_select", self._tx_select)
        self._take_over("tx_commit", self._tx_commit if self._blocking else self._tx_commit_later)
        self._take_over("tx_rollback", self._tx_rollback)
        if self._blocking:
            self._take_over("consume", self._consume)

    def _take_over(self, name: str, method: Callable[..., Any]) -> None:
        self._plain[name] = getattr(self._channel, name)
        setattr(self._channel, name, method)

    # -- consumers --------------------------------------------------------------------------------

    def _basic_consume(
        self,
        queue: str,
        on_message_callback: Any,
        auto_ack: bool = False,
        exclusive: bool = False,
        consumer_tag: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        """Consume with the policy of this queue. Raises ConfigError before anything is consumed."""
        if is_wrapped(on_message_callback):
            raise ConfigError(
                "a wrapped callback would be wrapped twice on a wrapped channel",
                where=str(queue),
                cure="Wrap the channel or the callback, not both",
                code="wrapped-twice",
            )
        called = on_message_callback
        if auto_ack:
            called = self._passing(queue, called)
        elif queue != REPLY_TO and callable(called):
            called = self._redelivering(self._named(queue), called)
        tag = self._plain["basic_consume"](queue, called, auto_ack, exclusive, consumer_tag, *args, **kwargs)
        self._prefetch.started(str(tag))
        return tag

    def _passing(self, queue: str, callback: Any) -> Any:
        """Return the callback of a consumer with auto_ack, unchanged; say once that there is nothing to add."""
        if queue != REPLY_TO:
            tell_of_auto_ack(SERVER_NAMED if queue.startswith(SERVER_NAMED) else queue)
        return callback

    def _redelivering(self, queue: str, callback: Any) -> Redelivering:
        """Return the wrapper of this callback for this queue, whose policy is held against the broker first."""
        try:
            found = self._wrapped.get((queue, callback))
        except TypeError:  # a callable without a hash
            return self._learned(Redelivering(callback, self._terms, Destination(queue), self._companion))
        if found is None:
            found = self._learned(Redelivering(callback, self._terms, Destination(queue), self._companion))
            self._wrapped[queue, callback] = found
        return found

    def _learned(self, wrapper: Redelivering) -> Redelivering:
        wrapper.learn(self._channel)
        return wrapper

    def _named(self, queue: str) -> str:
        """Return the name of a queue; the empty name is the queue that was declared last on this channel."""
        if queue or not isinstance(queue, str):
            return queue
        if self._declared is None:
            raise ConfigError(
                "the empty name stands for the queue that was declared last, and no declaration was seen here",
                where=repr(self._channel),
                cure="Give the name that queue_declare returned, or wrap the channel before the queue is declared",
                code="queue-not-known",
            )
        return self._declared

    def _basic_cancel(self, consumer_tag: str = "", *args: Any, **kwargs: Any) -> Any:
        """Cancel as the driver does; what is held for a retry goes back to the broker, what the code has stays."""
        result = self._plain["basic_cancel"](consumer_tag, *args, **kwargs)
        self._prefetch.ended(str(consumer_tag))
        self._scope.retire(consumer_tag)
        return result

    def _basic_qos(
        self, prefetch_size: int = 0, prefetch_count: int = 0, global_qos: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        result = self._plain["basic_qos"](prefetch_size, prefetch_count, global_qos, *args, **kwargs)
        self._prefetch.note_qos(prefetch_count, global_qos)
        return result

    def _consume(
        self,
        queue: str,
        auto_ack: bool = False,
        exclusive: bool = False,
        arguments: dict[str, Any] | None = None,
        inactivity_timeout: float | None = None,
        consumer_tag: str | None = None,
    ) -> Iterator[Message]:
        """Yield messages as the driver's own generator does, a retried one again when its delay is over.

        An acknowledgement, a nack or a reject counts, and nothing else. The driver's generator takes the messages in.
        """
        goes_on = self._channel._queue_consumer_generator is not None
        if auto_ack or queue == REPLY_TO:
            if not goes_on:
                self._passing(queue, None)
            yield from self._plain["consume"](queue, auto_ack, exclusive, arguments, inactivity_timeout, consumer_tag)
            return
        name = self._named(queue)
        loop = self._loops.get(name)
        if loop is None:
            loop = LoopMessages(self._terms, Destination(name), self._companion)
            loop.learn(self._channel)
            self._loops[name] = loop
        if not goes_on:
            consumer_tag = consumer_tag or self._scope.raw._generate_consumer_tag()
            self._prefetch.started(consumer_tag)
        events = self._plain["consume"](queue, auto_ack, exclusive, arguments, 0, consumer_tag)
        yield from loop.messages(self._channel, events, inactivity_timeout)

    # -- deliveries that the code settles by hand -------------------------------------------------

    def _get(self, queue: str, auto_ack: bool = False) -> Any:
        found = self._plain["basic_get"](queue, auto_ack)
        if found[0] is not None and not auto_ack:
            self._by_hand.add(found[0].delivery_tag)
        return found

    def _get_later(self, queue: str, callback: Any, auto_ack: bool = False) -> Any:
        def got(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            if not auto_ack:
                self._by_hand.add(method.delivery_tag)
            callback(channel, method, properties, body)

        return self._plain["basic_get"](queue, got if callable(callback) else callback, auto_ack)

    def _recover(self, requeue: bool = False) -> Any:
        """Abandon what is in hand: every message comes again under another tag, and its old tag is no more."""
        if requeue:
            self._scope.recovered()
        return self._plain["basic_recover"](requeue)

    def _recover_later(self, requeue: bool = False, callback: Any = None) -> Any:
        def recovered(frame: Any) -> None:
            self._scope.recovered()  # also what came meanwhile
            if callback is not None:
                callback(frame)

        if requeue:
            self._scope.recovered()
        return self._plain["basic_recover"](requeue, recovered if requeue else callback)

    # -- queues -----------------------------------------------------------------------------------

    def _declare(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        answer = self._plain["queue_declare"](queue, *args, **kwargs)
        self._note_queue(answer.method.queue, args, kwargs)
        return answer

    def _declare_later(self, queue: str, *args: Any, **kwargs: Any) -> Any:
        *before, callback = args if len(args) > ARGUMENTS + 1 else (*args, kwargs.pop("callback", None))

        def declared(frame: Any) -> None:
            self._note_queue(frame.method.queue, args, kwargs)
            if callback is not None:
                callback(frame)

        if queue and callback is None:  # sent without an answer, as the driver does
            self._note_queue(queue, args, kwargs)
            return self._plain["queue_declare"](queue, *before, **kwargs)
        return self._plain["queue_declare"](queue, *before, callback=declared, **kwargs)

    def _note_queue(self, queue: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._declared = queue
        passive = args[0] if args else kwargs.get("passive", False)
        given = args[ARGUMENTS] if len(args) > ARGUMENTS else kwargs.get("arguments")
        if not passive:
            self._scope.own_dead_letters[queue] = DEAD_LETTER_EXCHANGE in (given or {})

    # -- the code's own transactions --------------------------------------------------------------

    def _tx_select(self, *args: Any, **kwargs: Any) -> Any:
        if self._scope.transaction is None:
            self._scope.transaction = ChannelTransaction(self._scope.raw, self._scope.write_tag)
        return self._plain["tx_select"](*args, **kwargs)

    def _tx_commit(self) -> Any:
        transaction = self._transaction()
        commit = transaction.commit()
        try:
            return self._plain["tx_commit"]()
        finally:
            transaction.tell(commit)

    def _tx_commit_later(self, callback: Any = None) -> Any:
        transaction = self._transaction()
        commit = transaction.commit()

        def answered(frame: Any) -> None:
            transaction.tell(commit)
            if callback is not None:
                callback(frame)

        return self._plain["tx_commit"](answered)

    def _tx_rollback(self, *args: Any, **kwargs: Any) -> Any:
        self._by_hand |= self._transaction().roll_back()
        return self._plain["tx_rollback"](*args, **kwargs)

    def _transaction(self) -> ChannelTransaction:
        found = self._scope.transaction
        if found is None:
            raise RefusedHere(
                "the transaction of this channel was begun before it was wrapped, so its acks are not known",
                where=repr(self._channel),
                cure="Wrap the channel before tx_select",
            )
        return found
