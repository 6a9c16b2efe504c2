# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a wrapped channel on a real broker: what is seen of it, its transactions, and its own loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import StreamLostError

from redeliver_mw import RedeliveryPolicy
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_pika import consume, redelivering
from tests.adapters.pika.dropins import Queues, channel_on, parameters, queues, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker
ONCE = RedeliveryPolicy(dead_after=1)
TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)
HELD = RedeliveryPolicy(dead_after=9, backoff=5.0)
wrap: Any = redelivering


@pytest.fixture
def q(rabbitmq: Broker) -> Iterator[Queues]:
    with queues(rabbitmq) as found:
        yield found


@pytest.fixture
def channel(rabbitmq: Broker) -> Iterator[Any]:
    with channel_on(rabbitmq) as found:
        yield found


class Seen:
    """Runs `act` as a callback, and remembers what the callback was given."""

    def __init__(self, act: Callable[..., Any] = lambda *_: None) -> None:
        self.bodies: list[str] = []
        self.tags: list[int] = []
        self.act = act

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body.decode())
        self.tags.append(method.delivery_tag)
        self.act(channel, method, properties, body)


def raises(*_: Any) -> None:
    raise KeyError("out of stock")


def had(seen: Seen, count: int) -> Callable[[], bool]:
    return lambda: len(seen.bodies) == count


def turn(channel: Any, seconds: float = 0.1) -> None:
    """Give what is on its way a moment."""
    channel.connection.process_data_events(seconds)


def closed_and_left(channel: Any, q: Queues, least: int = 0) -> list[str]:
    assert channel.is_open
    channel.connection.close()
    return sorted(q.left(least))


def letters(channel: Any, q: Queues, count: int) -> list[str]:
    """Wait in the consumer's own loop for so many dead letters."""
    found: list[str] = []

    def there() -> bool:
        found.extend(body.decode() for body, _ in q.dead())
        return len(found) >= count

    until(channel.connection, there)
    turn(channel)  # so that the confirm of the last one is here, too
    return sorted(found)


# -- what is seen -----------------------------------------------------------------------------------------


def test_the_channel_is_the_same_object_and_what_is_none_of_ours_passes(channel: Any, q: Queues) -> None:
    assert wrap(channel, policy=TWICE) is channel
    channel.exchange_declare(f"{q.name}.x", auto_delete=True)
    channel.queue_bind(q.name, f"{q.name}.x", "k")
    channel.basic_publish(f"{q.name}.x", "k", b"1")
    assert channel.queue_declare(q.name, passive=True).method.message_count in (0, 1)
    assert channel.queue_purge(q.name).method.message_count == 1


def test_the_empty_name_is_the_queue_that_was_declared_last(channel: Any) -> None:
    wrap(channel, policy=TWICE)
    name = channel.queue_declare("", exclusive=True).method.queue
    seen = Seen(
        lambda ch, m, *_: ch.basic_nack(m.delivery_tag) if len(seen.tags) == 1 else ch.basic_ack(m.delivery_tag)
    )
    channel.basic_consume("", seen)
    channel.basic_publish("", name, b"1")
    until(channel.connection, had(seen, 2))
    assert seen.bodies == ["1", "1"]


def test_the_empty_name_without_a_declaration_is_refused(channel: Any) -> None:
    channel.queue_declare("", exclusive=True)
    wrap(channel, policy=TWICE)
    with pytest.raises(ConfigError, match="declared last") as refused:
        channel.basic_consume("", Seen())
    assert refused.value.cure
    assert channel.consumer_tags == []


def test_a_bad_policy_is_refused_before_anything_is_consumed(channel: Any, q: Queues) -> None:
    wrap(channel, policy=RedeliveryPolicy(dead_after=2, dead_letter=f"queue:{q.name}"))
    with pytest.raises((ConfigError, PolicyError)) as refused:
        channel.basic_consume(q.name, Seen())
    assert refused.value.cure
    with pytest.raises(ConfigError):
        next(channel.consume(q.name))
    assert channel.consumer_tags == []


def test_a_coroutine_function_on_a_blocking_channel_is_refused(channel: Any, q: Queues) -> None:
    async def on_message(*_: Any) -> None: ...

    wrap(channel, policy=TWICE)
    with pytest.raises(ConfigError, match="coroutine"):
        channel.basic_consume(q.name, on_message)


def test_queue_is_refused_with_a_channel(channel: Any) -> None:
    with pytest.raises(ConfigError, match="queue=") as refused:
        wrap(channel, policy=TWICE, queue="orders")
    assert refused.value.cure


def test_the_pulling_loop_of_ours_is_refused_on_a_wrapped_channel(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    with pytest.raises(ConfigError, match="wrapped twice"):
        next(iter(consume(channel, q.name, policy=TWICE)))


@pytest.mark.parametrize(("count", "shared", "window"), [(7, False, 7), (0, False, 65535), (3, True, 3)])
def test_the_prefetch_window_is_what_basic_qos_set(count: int, shared: bool, window: int, rabbitmq310: Broker) -> None:
    with queues(rabbitmq310) as q, channel_on(rabbitmq310) as channel:
        wrap(channel, policy=TWICE)
        channel.basic_qos(prefetch_count=count, global_qos=shared)
        consumer = channel.basic_consume(q.name, Seen())
        assert vars(channel)["_redeliver_scope"].window(consumer) == window


def test_a_prefetch_that_is_set_later_is_that_of_later_consumers(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    channel.basic_qos(prefetch_count=5)
    first = channel.basic_consume(q.name, Seen())
    channel.basic_qos(prefetch_count=9)
    second = channel.basic_consume(q.name, Seen())
    scope = vars(channel)["_redeliver_scope"]
    assert (scope.window(first), scope.window(second)) == (5, 9)


def test_after_a_cancel_what_the_code_has_in_hand_can_still_be_acked(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    seen = Seen()
    q.put("1", "2")
    consumer = channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 2))
    channel.basic_cancel(consumer)
    channel.basic_ack(seen.tags[0])
    assert closed_and_left(channel, q, 1) == ["2"]


def test_after_a_cancel_the_same_callback_can_consume_again(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    seen = Seen(lambda ch, m, *_: ch.basic_ack(m.delivery_tag))
    for number in (1, 2, 3):
        consumer = channel.basic_consume(q.name, seen)
        q.put(str(number))
        until(channel.connection, had(seen, number))
        channel.basic_cancel(consumer)
    assert closed_and_left(channel, q) == []


def test_after_a_recover_old_tags_are_dropped_and_the_messages_come_again(
    channel: Any, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    wrap(channel, policy=TWICE)
    seen = Seen()
    q.put("1", "2")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 2))
    channel.basic_recover(requeue=True)
    channel.basic_ack(seen.tags[0])  # of which the broker would close the channel
    until(channel.connection, had(seen, 4))
    assert "too late" in caplog.text
    for tag in seen.tags[2:]:
        channel.basic_ack(tag)
    assert closed_and_left(channel, q) == []


def test_a_cumulative_ack_covers_what_basic_get_took_and_not_what_is_held(channel: Any, q: Queues) -> None:
    def act(_ch: Any, _m: Any, _p: Any, body: bytes) -> None:
        if body == b"held":
            raise KeyError("no")

    wrap(channel, policy=HELD)
    channel.basic_qos(prefetch_count=50)
    seen = Seen(act)
    with queues(q.broker) as other:
        other.put("got", "got too")
        channel.basic_get(other.name)
        channel.basic_consume(q.name, seen)
        q.put("held", "1")
        until(channel.connection, had(seen, 2))
        method, _, _ = channel.basic_get(other.name)
        channel.basic_ack(method.delivery_tag, multiple=True)
        turn(channel)
        assert (closed_and_left(channel, q, 1), other.left()) == (["held"], [])


def test_an_ack_is_written_at_once_as_by_the_driver(channel: Any, q: Queues) -> None:
    """The callback goes on working after its ack; the broker has that already."""
    free: list[str] = []

    def act(ch: Any, method: Any, *_: Any) -> None:
        ch.basic_ack(method.delivery_tag)
        free.append("written" if not ch.connection._impl._get_write_buffer_size() else "waiting")

    wrap(channel, policy=TWICE)
    q.put("1", "2", "3")
    channel.basic_consume(q.name, Seen(act))
    until(channel.connection, lambda: len(free) == 3)
    assert free == ["written"] * 3


@pytest.mark.parametrize("declared_here", [True, False])
def test_the_first_reject_from_a_queue_with_a_dead_letter_exchange_is_logged_once(
    declared_here: bool, channel: Any, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    name, dlx = f"{q.name}.dlx", {"x-dead-letter-exchange": "amq.direct"}
    declaring = channel if declared_here else q.channel
    wrap(channel, policy=RedeliveryPolicy(dead_after=2, dead_letter=f"queue:{q.dlq}"))
    declaring.queue_declare(name, durable=True, arguments=dlx)
    try:
        q.put("1", "2", key=name)
        seen = Seen(lambda ch, m, *_: ch.basic_nack(m.delivery_tag, requeue=False))
        channel.basic_consume(name, seen)
        assert letters(channel, q, 2) == ["1", "2"]
    finally:
        q.channel.queue_delete(name)
    said = [r.getMessage() for r in caplog.records if "dead-letter exchange" in r.getMessage()]
    assert len(said) == 1
    assert ("was declared with" in said[0]) is declared_here


# -- transactions -----------------------------------------------------------------------------------------


def test_nothing_is_settled_before_the_commit_and_everything_by_it(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    channel.tx_select()
    seen = Seen(lambda ch, m, *_: ch.basic_ack(m.delivery_tag) if len(seen.tags) == 3 else None)
    q.put("1", "2", "3", "4")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 4))
    channel.basic_ack(seen.tags[1], multiple=True)
    channel.tx_commit()
    assert closed_and_left(channel, q, 1) == ["4"]


def test_a_second_ack_in_one_transaction_is_dropped_and_the_channel_stays_open(
    channel: Any, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    wrap(channel, policy=TWICE)
    channel.tx_select()
    seen = Seen()
    q.put("1", "2")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 2))
    channel.basic_ack(seen.tags[0])
    channel.basic_ack(seen.tags[0])
    channel.basic_ack(seen.tags[1], multiple=True)
    channel.tx_commit()
    assert len([r for r in caplog.records if "second settlement" in r.getMessage()]) == 1
    assert closed_and_left(channel, q) == []


def test_a_nack_counts_as_a_failure_with_the_commit_and_not_after_a_rollback(channel: Any, q: Queues) -> None:
    wrap(channel, policy=ONCE)
    channel.tx_select()
    seen = Seen()
    q.put("undone", "done")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 2))
    channel.basic_nack(seen.tags[0])
    channel.tx_rollback()
    channel.basic_nack(seen.tags[1])
    channel.tx_commit()
    assert letters(channel, q, 1) == ["done"]
    channel.tx_commit()
    assert closed_and_left(channel, q, 1) == ["undone"]


def test_a_message_from_basic_get_is_unsettled_again_after_a_rollback(channel: Any, q: Queues) -> None:
    wrap(channel, policy=ONCE)
    channel.tx_select()
    q.put("1", "2")
    first, second = channel.basic_get(q.name)[0].delivery_tag, channel.basic_get(q.name)[0].delivery_tag
    channel.basic_ack(first)
    channel.tx_rollback()
    channel.basic_ack(second, multiple=True)
    channel.tx_commit()
    assert closed_and_left(channel, q) == []


def test_an_exception_after_an_ack_that_is_not_committed_withdraws_the_ack(channel: Any, q: Queues) -> None:
    def act(ch: Any, method: Any, *_: Any) -> None:
        ch.basic_ack(method.delivery_tag)
        if len(seen.bodies) < 3:
            raise KeyError("no")
        ch.tx_commit()

    wrap(channel, policy=RedeliveryPolicy(dead_after=5, backoff=0.1))
    channel.basic_qos(prefetch_count=10)
    channel.tx_select()
    seen = Seen(act)
    q.put("1")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 3))
    assert closed_and_left(channel, q) == []


def test_a_commit_whose_answer_is_lost_settles_nothing_for_us(rabbitmq: Broker, q: Queues) -> None:
    """The message comes again with its count, whatever the broker made of the commit."""
    counts: list[int] = []

    def act(ch: Any, method: Any, properties: Any, _: bytes) -> None:
        counts.append(properties.headers["JMSXDeliveryCount"])
        if len(counts) == 1:
            raise KeyError("no")
        ch.basic_ack(method.delivery_tag)
        if len(counts) == 2:
            ch.connection._impl._terminate_stream(StreamLostError("cut by the test"))
        ch.tx_commit()

    q.put("1")
    policy = RedeliveryPolicy(dead_after=9, backoff=0.1)
    for _ in range(2):
        with channel_on(rabbitmq) as channel, contextlib.suppress(pika.exceptions.AMQPError):
            wrap(channel, policy=policy)
            channel.basic_qos(prefetch_count=10)
            channel.tx_select()
            channel.basic_consume(q.name, act)
            attempts = 2 if len(counts) < 2 else 3
            until(channel.connection, lambda attempts=attempts: len(counts) == attempts)
            turn(channel)
    assert (counts, q.left(), q.dead()) == ([1, 2, 2], [], [])


def test_when_acks_of_ours_fill_the_window_it_is_logged_that_a_commit_is_waited_for(
    channel: Any, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    wrap(channel, policy=ONCE)
    channel.basic_qos(prefetch_count=2)
    channel.tx_select()
    channel.basic_consume(q.name, raises)
    q.put("1", "2", "3")
    assert letters(channel, q, 2) == ["1", "2"]
    until(channel.connection, lambda: "tx_commit" in caplog.text)
    channel.tx_commit()
    assert letters(channel, q, 1) == ["3"]
    channel.tx_commit()
    assert closed_and_left(channel, q) == []


def test_with_settle_return_the_end_of_a_callback_is_settled_by_the_next_commit(channel: Any, q: Queues) -> None:
    wrap(channel, policy=ONCE, settle="return")
    channel.tx_select()
    seen = Seen()
    q.put("1", "2")
    channel.basic_consume(q.name, seen)
    until(channel.connection, had(seen, 2))
    channel.tx_commit()
    q.put("3")
    until(channel.connection, had(seen, 3))
    channel.tx_rollback()
    assert closed_and_left(channel, q, 1) == ["3"]


class Loop:
    """Consumes on a SelectConnection or AsyncioConnection, whose channel is wrapped while it opens."""

    def __init__(self, connection_class: Any, broker: Broker, queue: str, on_message: Any, **options: Any) -> None:
        self.queue, self.on_message, self.options = queue, on_message, options
        self.channel: Any = None
        self.answers: list[str] = []
        loop = {"custom_ioloop": asyncio.new_event_loop()} if connection_class is AsyncioConnection else {}
        self.connection = connection_class(parameters(broker), on_open_callback=self.opened, **loop)

    def opened(self, connection: Any) -> None:
        self.channel = wrap(connection.channel(on_open_callback=self.consume), **self.options)

    def consume(self, channel: Any) -> None:
        channel.basic_qos(prefetch_count=10)
        channel.tx_select(lambda _: self.answers.append("selected"))
        channel.basic_consume(self.queue, self.on_message)

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20

        def look() -> None:
            if done() or time.monotonic() > deadline:
                self.connection.ioloop.stop()
            else:
                self.connection.ioloop.call_later(0.02, look)

        self.connection.ioloop.call_later(0.02, look)
        run = getattr(self.connection.ioloop, "run_forever", None) or self.connection.ioloop.start
        run()
        assert done(), "it took too long"

    def unsettled(self) -> list[bytes]:
        """Return the messages that neither the code nor the wrapper has settled, committed or not."""
        return [run.delivery.body for run in vars(self.channel)["_redeliver_scope"]._open.values()]

    def close(self) -> None:
        self.connection.close()
        self.until(lambda: self.connection.is_closed)
        self.connection.ioloop.close()


@pytest.mark.parametrize("connection_class", [pika.SelectConnection, AsyncioConnection])
def test_commits_and_rollbacks_without_waiting_for_their_answers_are_kept_apart(
    connection_class: Any, q: Queues
) -> None:
    def act(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"bad":
            raise KeyError("no")
        if body == b"undone":
            channel.basic_ack(method.delivery_tag)
            channel.tx_rollback(lambda _: loop.answers.append("rolled back"))
            return
        channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        channel.basic_publish("", q.name, b"lost")
        channel.tx_rollback()
        channel.tx_commit(lambda _: loop.answers.append("committed"))

    seen = Seen(act)
    q.put("1", "bad", "undone", "2", "3")
    loop = Loop(connection_class, q.broker, q.name, seen, policy=ONCE)
    loop.until(lambda: loop.answers.count("committed") == 3 and loop.unsettled() == [b"undone"])
    q.put("4")
    loop.until(lambda: loop.answers.count("committed") == 4)
    loop.close()
    assert (q.left(1), [body for body, _ in q.dead()]) == (["undone"], [b"bad"])
    assert loop.answers.count("rolled back") == 1


def test_a_coroutine_that_commits_on_an_asyncio_connection_is_served(q: Queues) -> None:
    async def act(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == 1:
            raise KeyError("no")
        channel.tx_commit(lambda _: loop.answers.append("committed"))

    bodies: list[bytes] = []
    q.put("1")
    loop = Loop(AsyncioConnection, q.broker, q.name, act, policy=TWICE)
    loop.until(lambda: "committed" in loop.answers)
    loop.close()
    assert (bodies, q.left(), q.dead()) == ([b"1", b"1"], [], [])


# -- the channel's own loop -------------------------------------------------------------------------------


def test_a_loop_is_resumed_with_what_it_had_not_yielded_and_ends_with_a_cancel(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    q.put("1", "2", "3", "4")
    bodies: list[bytes] = []
    for method, _, body in channel.consume(q.name):
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        break
    with pytest.raises(ValueError, match="different params"):
        next(channel.consume("another"))
    for method, _, body in channel.consume(q.name):
        bodies.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(bodies) == 3:
            assert channel.cancel() == 0  # as the driver says
    assert bodies == [b"1", b"2", b"3"]
    assert channel.consumer_tags == []
    assert closed_and_left(channel, q, 1) == ["4"]


def test_a_cancel_gives_back_a_message_that_is_due_again_and_was_not_yielded(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    channel.basic_qos(prefetch_count=10)
    q.put("1")
    for method, _, _ in channel.consume(q.name):
        channel.basic_nack(method.delivery_tag)
        break
    channel.connection.sleep(0.3)
    channel.cancel()
    assert (closed_and_left(channel, q, 1), q.dead()) == (["1"], [])


def test_a_nack_in_the_loops_except_block_carries_its_exception(channel: Any, q: Queues) -> None:
    wrap(channel, policy=ONCE)
    q.put("1")
    for method, _, _ in channel.consume(q.name, inactivity_timeout=0.3):
        if method is None:
            break
        try:
            raises()
        except KeyError:
            channel.basic_nack(method.delivery_tag)
    [(_, headers)] = q.dead()
    assert headers["redeliver_error_type"] == "KeyError"
    channel.cancel()
    assert closed_and_left(channel, q) == []


def test_a_loop_with_auto_ack_passes(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    q.put("1")
    _, properties, body = next(channel.consume(q.name, auto_ack=True))
    assert (body, properties.headers) == (b"1", None)
    channel.cancel()
    assert closed_and_left(channel, q) == []


def test_a_loop_with_a_transaction_commits_each_message(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    channel.basic_qos(prefetch_count=5)
    channel.tx_select()
    q.put("1", "bad", "2")
    bodies = []
    for method, _, body in channel.consume(q.name, inactivity_timeout=0.4):
        if method is None:
            break
        bodies.append(body)
        (channel.basic_nack if body == b"bad" else channel.basic_ack)(method.delivery_tag)
        channel.tx_commit()
    channel.tx_commit()
    assert bodies == [b"1", b"bad", b"2", b"bad"]
    assert [body for body, _ in q.dead()] == [b"bad"]
    assert closed_and_left(channel, q) == []


def test_a_loop_whose_consumer_the_broker_cancels_ends(channel: Any, q: Queues) -> None:
    wrap(channel, policy=TWICE)
    name = f"{q.name}.gone"
    q.channel.queue_declare(name)
    for method, _, _ in channel.consume(name, inactivity_timeout=0.1):
        assert method is None
        q.channel.queue_delete(name)
    assert channel.is_open
