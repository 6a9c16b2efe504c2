# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a callback settles itself, and how it may be written, on a real broker.

Each settlement is captured once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from redeliver_mw import RedeliveryPolicy, current_delivery, redeliver
from redeliver_mw.errors import ConfigError, Reject
from redeliver_pika import consume, redelivering
from tests.adapters.pika.dropins import Queues, channel_on, drive, queues, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker
TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)


@pytest.fixture
def q(rabbitmq43: Broker) -> Iterator[Queues]:
    with queues(rabbitmq43) as found:
        yield found


@pytest.fixture
def channel(rabbitmq43: Broker) -> Iterator[BlockingChannel]:
    with channel_on(rabbitmq43) as found:
        yield found


class Seen:
    """Runs `act` as a callback, and remembers the counts that the callback was shown."""

    def __init__(self, act: Callable[..., Any] = lambda *_: None) -> None:
        self.counts: list[int] = []
        self.tags: list[int] = []
        self.act = act

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.counts.append(properties.headers["JMSXDeliveryCount"])
        self.tags.append(method.delivery_tag)
        self.act(channel, method, properties, body)


def nothing_open(channel: Any) -> bool:
    return not vars(channel)["_redeliver_scope"]._open


def closed_and_left(channel: Any, q: Queues, least: int = 0) -> list[str]:
    """Close the consumer's connection, and return what the broker still has: nothing, if all was settled.

    The channel must have stayed healthy.
    """
    assert channel.is_open
    channel.connection.close()
    return q.left(least)


# -- words in the callback --------------------------------------------------------------------------------


def test_an_ack_of_its_own_is_success_and_is_sent_once(q: Queues, channel: BlockingChannel) -> None:
    seen = Seen(lambda ch, m, *_: ch.basic_ack(m.delivery_tag))
    q.put("1", "2")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2)
    channel.connection.process_data_events(0.2)  # a second ack would close the channel
    assert (closed_and_left(channel, q), q.dead()) == ([], [])


def test_a_channel_that_the_callback_got_elsewhere_is_captured_too(q: Queues, channel: BlockingChannel) -> None:
    seen = Seen(lambda _, m, *__: channel.basic_ack(m.delivery_tag))
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: bool(seen.counts))
    channel.connection.process_data_events(0.2)
    assert closed_and_left(channel, q) == []


@pytest.mark.parametrize(
    "give_back",
    [
        lambda ch, m, *_: ch.basic_nack(m.delivery_tag),
        lambda ch, m, *_: ch.basic_reject(m.delivery_tag, requeue=True),
        lambda ch, m, *_: ch.basic_nack(delivery_tag=m.delivery_tag, requeue=True),
    ],
)
def test_a_requeue_is_a_failure(q: Queues, channel: BlockingChannel, give_back: Callable[..., Any]) -> None:
    seen = Seen(give_back)
    q.put("1")
    policy = RedeliveryPolicy(dead_after=2, backoff=0.1, retry_on=KeyError)
    channel.basic_consume(q.name, redelivering(seen, policy=policy, settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2 and nothing_open(channel))
    assert seen.counts == [1, 2]
    [(body, headers)] = q.dead()
    assert (body, headers["redeliver_reason"], headers["redeliver_error_type"]) == (b"1", "exhausted", "Requeued")
    assert closed_and_left(channel, q) == []


@pytest.mark.parametrize(
    "refuse",
    [
        lambda ch, m, *_: ch.basic_nack(m.delivery_tag, requeue=False),
        lambda ch, m, *_: ch.basic_reject(m.delivery_tag, requeue=False),
    ],
)
def test_a_reject_without_requeue_is_dead_lettered_at_once(
    q: Queues, channel: BlockingChannel, refuse: Callable[..., Any]
) -> None:
    seen = Seen(refuse)
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: bool(seen.counts) and nothing_open(channel))
    [(_, headers)] = q.dead()
    assert (seen.counts, headers["redeliver_reason"]) == ([1], "rejected")
    assert headers["redeliver_failures"] == "1"


def test_an_exception_after_a_nack_is_the_reason_of_that_one_failure(q: Queues, channel: BlockingChannel) -> None:
    def act(ch: Any, m: Any, *_: Any) -> None:
        ch.basic_nack(m.delivery_tag)
        raise KeyError("why")

    seen = Seen(act)
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2 and nothing_open(channel))
    [(_, headers)] = q.dead()
    assert (headers["redeliver_failures"], headers["redeliver_error_type"]) == ("2", "KeyError")


def test_an_ack_counts_even_if_the_callback_raises_after_it_which_is_logged(
    q: Queues, channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    def act(ch: Any, m: Any, *_: Any) -> None:
        ch.basic_ack(m.delivery_tag)
        raise ValueError("too late\x1b[2J password=hunter2")

    seen = Seen(act)
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=RedeliveryPolicy(dead_after=1), settle="return"))
    until(channel.connection, lambda: bool(seen.counts))
    channel.connection.process_data_events(0.2)
    assert "the ack counts" in caplog.text
    assert "ValueError: too late" in caplog.text
    assert "hunter2" not in caplog.text
    assert "\x1b" not in caplog.text
    assert (closed_and_left(channel, q), q.dead()) == ([], [])


def test_a_failed_message_that_is_acked_while_it_is_held_stays_held(q: Queues, channel: BlockingChannel) -> None:
    def act(*_: Any) -> None:
        if len(seen.counts) == 1:
            channel.connection.call_later(0.01, lambda: channel.basic_ack(seen.tags[0]))
            raise ValueError("no")

    seen = Seen(act)
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2)
    assert seen.counts == [1, 2]


def test_settlements_of_another_consumers_messages_pass_through(q: Queues, channel: BlockingChannel) -> None:
    with queues(q.broker) as other:
        by_hand: list[bytes] = []

        def plain(ch: Any, method: Any, properties: Any, body: bytes) -> None:
            by_hand.append(body)
            ch.basic_ack(method.delivery_tag)

        seen = Seen()
        channel.basic_consume(other.name, plain)
        channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
        for number in range(3):
            other.put(f"o{number}")
            q.put(f"q{number}")
        until(channel.connection, lambda: len(by_hand) == 3 and len(seen.counts) == 3)
        channel.connection.process_data_events(0.1)
        assert (closed_and_left(channel, q), other.left()) == ([], [])


def test_a_channel_closed_right_after_a_message_has_that_message_settled_first(rabbitmq43: Broker, q: Queues) -> None:
    for close in (lambda ch: ch.close(), lambda ch: ch.connection.close()):
        with channel_on(rabbitmq43, prefetch=1) as channel:
            q.put("1")
            seen = Seen(lambda ch, m, p, b, close=close: close(ch))
            channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
            while channel.is_open:
                channel.connection.process_data_events(0.02)
        assert (seen.counts, q.left(), q.dead()) == ([1], [], [])


def test_a_channel_closed_because_of_an_error_leaves_the_message_to_the_broker(rabbitmq43: Broker, q: Queues) -> None:
    def act(ch: Any, *_: Any) -> None:
        try:
            raise ValueError("no")
        except ValueError:
            ch.close()
            raise

    with channel_on(rabbitmq43) as channel:
        q.put("1")
        channel.basic_consume(q.name, redelivering(Seen(act), policy=TWICE, settle="return"))
        while channel.is_open:
            channel.connection.process_data_events(0.02)
    assert (q.left(1), q.dead()) == (["1"], [])


# -- settle="callback" ------------------------------------------------------------------------------------


def test_with_settle_callback_only_a_later_ack_settles_also_from_another_thread(
    q: Queues, channel: BlockingChannel
) -> None:
    workers: list[threading.Thread] = []

    def work(ch: Any, tag: int, body: bytes, count: int) -> None:
        word = functools.partial(ch.basic_ack if body == b"good" or count == 2 else ch.basic_nack, tag)
        channel.connection.add_callback_threadsafe(word)

    def act(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        if body != b"silent":
            count = properties.headers["JMSXDeliveryCount"]
            workers.append(threading.Thread(target=work, args=(ch, method.delivery_tag, body, count)))
            workers[-1].start()

    seen = Seen(act)
    q.put("good", "silent", "heals")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="callback"))
    until(channel.connection, lambda: sorted(seen.counts) == [1, 1, 1, 2])
    until(channel.connection, lambda: len(vars(channel)["_redeliver_scope"]._open) == 1)
    for thread in workers:
        thread.join()
    assert (closed_and_left(channel, q, 1), q.dead()) == (["silent"], [])


def test_a_cumulative_ack_covers_all_that_the_callback_has_and_nothing_that_is_held(
    q: Queues, channel: BlockingChannel
) -> None:
    def act(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"held":
            raise ValueError("no")
        if body == b"last":
            ch.basic_ack(method.delivery_tag, multiple=True)

    seen = Seen(act)
    q.put("1", "2", "held", "3", "last")
    policy = RedeliveryPolicy(dead_after=2, backoff=5.0)
    channel.basic_consume(q.name, redelivering(seen, policy=policy, settle="callback"))
    until(channel.connection, lambda: len(seen.counts) == 5)
    channel.connection.process_data_events(0.1)
    assert (closed_and_left(channel, q, 1), q.dead()) == (["held"], [])


def test_a_cumulative_nack_fails_each_of_them(q: Queues, channel: BlockingChannel) -> None:
    def act(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"last":
            ch.basic_nack(0, multiple=True, requeue=False)

    q.put("1", "2", "last")
    channel.basic_consume(q.name, redelivering(Seen(act), policy=TWICE, settle="callback"))
    until(channel.connection, lambda: q.there(q.dlq) and nothing_open(channel))
    assert sorted(body for body, _ in q.dead()) == [b"1", b"2", b"last"]


# -- how a callback may be written ------------------------------------------------------------------------


def test_functions_methods_partials_and_callables_are_wrapped_and_decorated(
    q: Queues, channel: BlockingChannel
) -> None:
    got: list[str] = []

    class Service:
        def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(f"method {body.decode()} {current_delivery().message_id}")

        @redelivering(policy=TWICE, settle="return")
        def decorated(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(f"decorated method {body.decode()}")

        def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
            got.append(f"callable {body.decode()}")

    @redelivering(policy=TWICE, settle="return")
    def function(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append(f"function {body.decode()}")

    def with_shop(shop: str, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append(f"{shop} {body.decode()}")

    service = Service()
    for number, callback in enumerate(
        [
            redelivering(service.on_message, settle="return"),
            service.decorated,
            redelivering(service, settle="return"),
            function,
            redelivering(functools.partial(with_shop, "partial"), settle="return"),
        ]
    ):
        q.put(str(number))
        consumer = channel.basic_consume(q.name, callback)
        until(channel.connection, lambda number=number: len(got) == number + 1)
        channel.basic_cancel(consumer)
    assert got == ["method 0 0", "decorated method 1", "callable 2", "function 3", "partial 4"]
    with pytest.raises(LookupError):
        current_delivery()
    assert closed_and_left(channel, q) == []


def test_the_argument_wins_over_the_mark_and_the_mark_over_the_default(q: Queues, channel: BlockingChannel) -> None:
    @redeliver(RedeliveryPolicy(dead_after=1, dead_letter=f"queue:{q.dlq}"))
    def marked(*_: Any) -> None:
        raise ValueError("no")

    def attempts_of(wrapped: Any) -> str:
        q.put("1")
        consumer = channel.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: q.there(q.dlq) and nothing_open(channel))
        channel.basic_cancel(consumer)
        [(_, headers)] = q.dead()
        q.channel.queue_delete(q.dlq)
        return str(headers["redeliver_failures"])

    assert attempts_of(redelivering(marked, settle="return")) == "1"
    assert attempts_of(redelivering(marked, policy=TWICE, settle="return")) == "2"


def test_a_reject_raised_by_the_callback_is_dead_lettered_with_its_reason(q: Queues, channel: BlockingChannel) -> None:
    def on_message(*_: Any) -> None:
        raise Reject("no such order")

    q.put("1", headers={"n": 1, "deep": {"list": [1, "two"]}}, correlation_id="c")
    channel.basic_consume(q.name, redelivering(on_message, settle="return"))
    until(channel.connection, lambda: q.there(q.dlq) and nothing_open(channel))
    [(_, headers)] = q.dead()
    assert headers["redeliver_error_message"] == "no such order"
    assert (headers["n"], headers["deep"]) == (1, {"list": [1, "two"]})


# -- pull -------------------------------------------------------------------------------------------------


def test_in_a_pull_loop_messages_can_be_settled_without_a_block_and_held_ones_come_again(
    q: Queues, channel: BlockingChannel
) -> None:
    q.put("ack", "reject", "requeue")
    counts: list[tuple[str, int]] = []
    for d in consume(channel, q.name, policy=TWICE, inactivity_timeout=0.5):
        if not d:
            break
        assert d.delivery is not None
        counts.append((d.delivery.text, d.delivery.delivery_count))
        {"ack": d.ack, "reject": d.reject, "requeue": d.requeue if len(counts) < 4 else d.ack}[d.delivery.text]()
    assert counts == [("ack", 1), ("reject", 1), ("requeue", 1), ("requeue", 2)]
    assert (closed_and_left(channel, q), [body for body, _ in q.dead()]) == ([], [b"reject"])


def test_leaving_a_pull_loop_cancels_the_consumer_and_leaves_the_rest_unsettled(
    q: Queues, channel: BlockingChannel
) -> None:
    q.put("1", "2", "3")
    for d in consume(channel, q.name, policy=TWICE):
        with d as (_, _, body):
            assert body == b"1"
        break
    assert channel.consumer_tags == []
    assert closed_and_left(channel, q, 2) == ["2", "3"]


def test_an_interrupt_in_a_pull_block_goes_through_and_leaves_the_message(q: Queues, channel: BlockingChannel) -> None:
    def loop() -> None:
        for d in consume(channel, q.name, policy=TWICE):
            with d:
                raise KeyboardInterrupt

    q.put("1")
    with pytest.raises(KeyboardInterrupt):
        loop()
    assert (closed_and_left(channel, q, 1), q.dead()) == (["1"], [])


# -- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"limbo": "sqlite://"},
        {"crash_safe": True},
        {"delay": "nack"},
        {"delay": "park"},
        {"delay": "soon"},
        {"settle": "never"},
        {"hold_max": 0},
        {"hold_max": True},
        {"publisher": "memory://"},
    ],
)
def test_options_that_cannot_be_are_refused_when_wrapping(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        redelivering(lambda *_: None, **options)
    if "settle" not in options:
        with pytest.raises(ConfigError):
            list(consume(None, "q", **options))


def test_a_message_through_an_exchange_needs_the_queue_to_be_named(q: Queues, channel: BlockingChannel) -> None:
    seen = Seen()
    q.channel.queue_bind(q.name, "amq.fanout")
    q.put("1", exchange="amq.fanout")
    consumer = channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    with pytest.raises(ConfigError, match="queue="):
        until(channel.connection, lambda: False)
    assert seen.counts == []
    channel.basic_cancel(consumer)
    channel.basic_recover(requeue=True)
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, queue=q.name, settle="return"))
    until(channel.connection, lambda: bool(seen.counts))
    assert closed_and_left(channel, q) == []


@pytest.mark.parametrize(
    "options",
    [
        {"policy": RedeliveryPolicy(backoff=60.0), "delay": "hold"},
        {"policy": RedeliveryPolicy(backoff=1.0, dead_letter="queue:$")},
    ],
)
def test_a_policy_that_cannot_be_had_here_ends_the_loop_at_the_first_message_and_loses_nothing(
    q: Queues, channel: BlockingChannel, options: dict[str, Any]
) -> None:
    seen = Seen()
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, **options))
    with pytest.raises(ConfigError):
        channel.start_consuming()
    assert (seen.counts, closed_and_left(channel, q, 1)) == ([], ["1"])


def test_a_coroutine_callback_needs_the_asyncio_connection(q: Queues, channel: BlockingChannel) -> None:
    async def on_message(*_: Any) -> None: ...

    q.put("1")
    channel.basic_consume(q.name, redelivering(on_message, settle="return"))
    with pytest.raises(ConfigError, match="AsyncioConnection"):
        channel.start_consuming()
    assert closed_and_left(channel, q, 1) == ["1"]


def test_a_coroutine_that_a_callback_returns_to_a_blocking_connection_is_refused_and_its_message_stays(
    q: Queues, channel: BlockingChannel
) -> None:
    async def on_message(*_: Any) -> None: ...

    q.put("1")
    channel.basic_consume(q.name, redelivering(lambda *given: on_message(*given), settle="return"))
    with pytest.raises(ConfigError, match="no loop for it"):
        channel.start_consuming()
    assert closed_and_left(channel, q, 1) == ["1"]


def test_a_callback_that_runs_a_coroutine_function_in_a_loop_of_its_own_is_a_plain_one(
    q: Queues, channel: BlockingChannel
) -> None:
    ran: list[bytes] = []

    async def on_message(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        await asyncio.sleep(0)
        ran.append(body)

    @functools.wraps(on_message)
    def in_a_loop(*given: Any) -> None:
        asyncio.run(on_message(*given))

    q.put("1", "2")
    channel.basic_consume(q.name, redelivering(in_a_loop, settle="return"))
    until(channel.connection, lambda: len(ran) == 2)
    assert (ran, closed_and_left(channel, q)) == ([b"1", b"2"], [])


def test_a_generator_function_as_callback_is_refused() -> None:
    def on_message(*_: Any) -> Iterator[int]:
        yield 1

    with pytest.raises(ConfigError, match="generator function") as refused:
        redelivering(on_message)
    assert refused.value.cure


def test_auto_ack_is_logged_once_and_passed_through(
    q: Queues, channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []
    q.put("1", "2")
    channel.basic_consume(q.name, redelivering(lambda ch, m, p, b: got.append(b), settle="return"), auto_ack=True)
    until(channel.connection, lambda: len(got) == 2)
    said = [r for r in caplog.records if "auto_ack" in r.getMessage() and r.levelno == logging.ERROR]
    assert (len(said), closed_and_left(channel, q)) == (1, [])


def test_a_header_that_the_callback_made_uncopyable_does_not_lose_the_message(
    q: Queues, channel: BlockingChannel
) -> None:
    def act(ch: Any, m: Any, properties: Any, b: bytes) -> None:
        properties.headers["deep"]["socket"] = object()
        if len(seen.counts) == 1:
            raise ValueError("no")

    seen = Seen(act)
    q.put("1", headers={"deep": {}})
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, delay="schedule", settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2 and nothing_open(channel))
    assert (seen.counts, closed_and_left(channel, q)) == ([1, 2], [])


def test_select_connections_capture_settlements_too(rabbitmq43: Broker, q: Queues) -> None:
    channels: list[Any] = []

    def act(ch: Any, m: Any, p: Any, b: bytes) -> None:
        channels.append(ch)
        (ch.basic_ack if b == b"1" else ch.basic_nack)(m.delivery_tag)

    seen = Seen(act)
    q.put("1", "2")
    drive("select", rabbitmq43, q.name, seen, lambda: len(channels) == 3 and nothing_open(channels[0]), policy=TWICE)
    assert sorted(seen.counts) == [1, 1, 2]
    assert ([body for body, _ in q.dead()], q.left()) == ([b"2"], [])


def test_what_a_callback_sends_goes_out_only_with_its_success(q: Queues, channel: BlockingChannel) -> None:
    def act(*_: Any) -> None:
        delivery = current_delivery()
        delivery.send(q.dlq, f"from run {delivery.delivery_count}")
        if delivery.delivery_count == 1:
            raise ValueError("it has sent, and fails")

    seen = Seen(act)
    q.put("1")
    channel.basic_consume(q.name, redelivering(seen, policy=TWICE, settle="return"))
    until(channel.connection, lambda: len(seen.counts) == 2 and nothing_open(channel))
    assert [body for body, _ in q.dead()] == [b"from run 2"]
    assert closed_and_left(channel, q) == []
