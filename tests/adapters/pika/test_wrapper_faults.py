# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in when things break: channels and connections that go, answers that do not come, interrupts."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import StreamLostError

from redeliver_mw import RedeliveryPolicy
from redeliver_pika import publisher, redelivering
from tests.adapters.pika.dropins import Queues, channel_on, parameters, queues, until
from tests.adapters.pika.test_wrapper_settlements import Seen, nothing_open
from tests.brokers import Broker

pytestmark = pytest.mark.broker


@pytest.fixture
def q(rabbitmq43: Broker) -> Iterator[Queues]:
    with queues(rabbitmq43) as found:
        yield found


def fails(times: int) -> Seen:
    """Return a callback that fails `times` times, and then succeeds."""

    def act(*_: Any) -> None:
        if len(seen.counts) <= times:
            raise ValueError("no")

    seen = Seen(act)
    return seen


def break_channel(channel: BlockingChannel) -> None:
    """Make the broker close the channel."""
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.queue_declare("there.is.no.such.queue", passive=True)


def test_a_held_delivery_does_not_stop_heart_beats(rabbitmq: Broker) -> None:
    with queues(rabbitmq) as q, channel_on(rabbitmq, heartbeat=2) as channel:
        seen = fails(1)
        q.put("1")
        policy = RedeliveryPolicy(dead_after=3, backoff=5.0)
        channel.basic_consume(q.name, redelivering(seen, policy=policy, delay="hold", settle="return"))
        began = time.monotonic()
        until(channel.connection, lambda: len(seen.counts) == 2)
        assert time.monotonic() - began >= 5.0
        assert seen.counts == [1, 2]
        assert channel.is_open
        channel.connection.close()
        assert q.left() == []


def test_a_channel_closed_by_the_broker_while_a_message_is_held_keeps_the_count(rabbitmq: Broker) -> None:
    with queues(rabbitmq) as q, channel_on(rabbitmq) as channel:
        seen = fails(2)
        wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=5, backoff=0.5), settle="return")
        q.put("1")
        channel.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: len(seen.counts) == 1)
        failed = time.monotonic()
        break_channel(channel)
        second = channel.connection.channel()
        second.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: len(seen.counts) == 2)
        assert time.monotonic() - failed >= 0.45  # its not-before survived the channel
        until(channel.connection, lambda: len(seen.counts) == 3 and nothing_open(second))
        assert seen.counts == [1, 2, 3]
        assert second.is_open
        channel.connection.close()
        assert (q.left(), q.dead()) == ([], [])


def test_the_count_is_kept_over_a_new_connection(q: Queues, rabbitmq43: Broker) -> None:
    seen = fails(2)
    wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=3, backoff=0.3), settle="return")

    def had(attempts: int) -> bool:
        return len(seen.counts) == attempts

    q.put("1")
    for attempts in (1, 2, 3):
        with channel_on(rabbitmq43) as channel:
            channel.basic_consume(q.name, wrapped)
            until(channel.connection, functools.partial(had, attempts))
    assert (seen.counts, q.left(), q.dead()) == ([1, 2, 3], [], [])


def test_a_stale_ack_is_dropped_and_settles_no_other_message(q: Queues, rabbitmq43: Broker) -> None:
    with channel_on(rabbitmq43) as channel:
        acks: list[Any] = []
        seen = Seen(lambda ch, m, *_: acks.append(functools.partial(ch.basic_ack, m.delivery_tag)))
        wrapped = redelivering(seen, settle="callback")
        q.put("1")
        channel.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: len(acks) == 1)
        break_channel(channel)
        second = channel.connection.channel()
        second.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: len(acks) == 2)
        acks[0]()
        channel.connection.process_data_events(0.2)
        assert second.is_open
        channel.connection.close()
        assert q.left(1) == ["1"]


def test_a_connection_cut_before_the_confirm_of_a_dead_letter_loses_nothing_and_runs_nothing_again(
    q: Queues, rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = fails(9)
    wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=1), settle="return")
    real = publisher.Publisher._confirmed
    cuts: list[Any] = []

    def cut(self: Any, frame: Any) -> None:
        if not cuts:
            cuts.append(frame)
            connection._impl._terminate_stream(StreamLostError("cut by the test"))
        else:
            real(self, frame)

    monkeypatch.setattr(publisher.Publisher, "_confirmed", cut)
    q.put("1")
    connection = pika.BlockingConnection(parameters(rabbitmq43))
    channel = connection.channel()
    channel.basic_consume(q.name, wrapped)
    with pytest.raises(StreamLostError):
        channel.start_consuming()
    assert len(cuts) == 1
    with channel_on(rabbitmq43) as again:
        again.basic_consume(q.name, wrapped)
        until(again.connection, lambda: "_redeliver_scope" in vars(again) and nothing_open(again))
    dead = q.dead()
    assert (seen.counts, q.left()) == ([1], [])
    assert {headers["redeliver_failures"] for _, headers in dead} == {"1"}
    assert len({headers["redeliver_copy_id"] for _, headers in dead}) == 1  # two copies, and one can tell


def test_a_confirm_that_does_not_come_closes_the_connection_and_the_message_stays(
    q: Queues, rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = fails(9)
    monkeypatch.setattr(publisher.Publisher, "_confirmed", lambda *_: None)
    given = publisher.Publisher.__init__.__kwdefaults__ or {}
    monkeypatch.setattr(publisher.Publisher.__init__, "__kwdefaults__", given | {"patience": 0.5})
    q.put("1")
    connection = pika.BlockingConnection(parameters(rabbitmq43))
    channel = connection.channel()
    channel.basic_consume(q.name, redelivering(seen, policy=RedeliveryPolicy(dead_after=1), settle="return"))
    with pytest.raises(StreamLostError):
        channel.start_consuming()
    assert (seen.counts, q.left(1)) == ([1], ["1"])


def test_a_closed_channel_of_ours_is_opened_again_for_the_next_copy(q: Queues, rabbitmq43: Broker) -> None:
    seen = fails(9)
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(q.name, redelivering(seen, policy=RedeliveryPolicy(dead_after=1), settle="return"))
        q.put("1")
        until(channel.connection, lambda: len(seen.counts) == 1 and nothing_open(channel))
        ours = vars(channel.connection)["_redeliver_shared"]._publisher._channel
        ours.queue_declare("there.is.no.such.queue", passive=True)
        until(channel.connection, lambda: bool(ours.is_closed))
        q.put("2")
        until(channel.connection, lambda: len(seen.counts) == 2 and nothing_open(channel))
    assert ([body for body, _ in q.dead()], q.left()) == ([b"1", b"2"], [])


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_in_a_callback_ends_the_program_and_leaves_the_message(
    q: Queues, rabbitmq43: Broker, end: type[BaseException]
) -> None:
    def act(*_: Any) -> None:
        raise end

    seen = Seen(act)
    q.put("1")
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(q.name, redelivering(seen, policy=RedeliveryPolicy(dead_after=1), settle="return"))
        with pytest.raises(end):
            channel.start_consuming()
    assert (seen.counts, q.left(1), q.dead()) == ([1], ["1"], [])


def test_an_interrupt_of_a_run_again_leaves_the_message_with_its_count(q: Queues, rabbitmq43: Broker) -> None:
    def act(*_: Any) -> None:
        if len(seen.counts) == 1:
            raise ValueError("no")
        if len(seen.counts) == 2:
            raise KeyboardInterrupt

    seen = Seen(act)
    wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=3, backoff=0.1), settle="return")
    q.put("1")
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(q.name, wrapped)
        with pytest.raises(KeyboardInterrupt):
            channel.start_consuming()
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(q.name, wrapped)
        until(channel.connection, lambda: len(seen.counts) == 3)
    assert (seen.counts, q.left()) == ([1, 2, 2], [])


def test_a_callback_whose_connection_breaks_under_it_hears_of_it_and_the_failure_counts(
    q: Queues, rabbitmq43: Broker
) -> None:
    def act(ch: Any, *_: Any) -> None:
        if len(seen.counts) == 1:
            ch.connection._impl._terminate_stream(StreamLostError("cut by the test"))
            ch.connection.process_data_events()

    seen = Seen(act)
    wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=3, backoff=0.1), settle="return")
    q.put("1")
    connection = pika.BlockingConnection(parameters(rabbitmq43))
    channel = connection.channel()
    channel.basic_consume(q.name, wrapped)
    with pytest.raises(StreamLostError):
        channel.start_consuming()
    with channel_on(rabbitmq43) as again:
        again.basic_consume(q.name, wrapped)
        until(again.connection, lambda: len(seen.counts) == 2)
    assert (seen.counts, q.left()) == ([1, 2], [])


def test_a_coroutine_that_outlives_its_connection_is_not_run_twice_at_once(q: Queues, rabbitmq43: Broker) -> None:
    calls: list[int] = []

    async def main() -> None:
        finish, both = asyncio.Event(), asyncio.Event()

        async def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            calls.append(properties.headers["JMSXDeliveryCount"])
            await finish.wait()

        wrapped = redelivering(on_message, policy=RedeliveryPolicy(dead_after=3, backoff=0.1), settle="return")
        first = await connected(wrapped)
        while not calls:
            await asyncio.sleep(0.01)
        first._terminate_stream(StreamLostError("cut by the test"))
        second = await connected(wrapped)
        await asyncio.sleep(0.5)
        finish.set()
        await asyncio.sleep(0.3)
        second.add_on_close_callback(lambda *_: both.set())
        second.close()
        await both.wait()

    async def connected(wrapped: Any) -> AsyncioConnection:
        ready = asyncio.Event()

        def opened(channel: Any) -> None:
            channel.basic_consume(q.name, wrapped, callback=lambda _: ready.set())

        connection = AsyncioConnection(
            parameters(rabbitmq43),
            on_open_callback=lambda c: c.channel(on_open_callback=opened),
        )
        await ready.wait()
        return connection

    q.put("1")
    asyncio.run(main())
    assert (calls, q.left()) == ([1], [])


def test_a_cancelled_coroutine_leaves_its_message_unsettled(q: Queues, rabbitmq43: Broker) -> None:
    async def main() -> None:
        begun, closed = asyncio.Event(), asyncio.Event()

        async def on_message(*_: Any) -> None:
            begun.set()
            await asyncio.sleep(60)

        def opened(channel: Any) -> None:
            channel.basic_consume(
                q.name, redelivering(on_message, policy=RedeliveryPolicy(dead_after=1), settle="return")
            )

        connection = AsyncioConnection(
            parameters(rabbitmq43),
            on_open_callback=lambda c: c.channel(on_open_callback=opened),
            on_close_callback=lambda *_: closed.set(),
        )
        await begun.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.1)
        connection.close()
        await closed.wait()

    q.put("1")
    asyncio.run(main())
    assert (q.left(1), q.dead()) == (["1"], [])


def test_a_target_that_takes_nothing_pauses_the_source_and_what_waits_is_run_when_it_does(
    q: Queues, rabbitmq43: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    q.channel.queue_declare(q.dlq, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    got: list[bytes] = []

    def on_message(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        got.append(body)
        if body == b"failing":
            raise ValueError("no")

    q.put("failing")
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(q.name, redelivering(on_message, policy=RedeliveryPolicy(dead_after=1), settle="return"))
        until(channel.connection, lambda: "is paused" in caplog.text)
        q.put("waits")
        channel.connection.process_data_events(0.3)
        assert got == [b"failing"]
        q.channel.queue_delete(q.dlq)  # declared again, without a limit, before the next try
        until(channel.connection, lambda: got == [b"failing", b"waits"])
        assert channel.is_open
    assert ([body for body, _ in q.dead()], q.left()) == ([b"failing"], [])
    assert len([r for r in caplog.records if "is paused" in r.getMessage()]) == 1


def test_a_deleted_queue_ends_the_generation_and_nothing_more_is_settled(
    q: Queues, rabbitmq43: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    seen = fails(1)
    q.put("1")
    with channel_on(rabbitmq43) as channel:
        channel.basic_consume(
            q.name, redelivering(seen, policy=RedeliveryPolicy(dead_after=3, backoff=0.3), settle="return")
        )
        until(channel.connection, lambda: len(seen.counts) == 1)
        q.channel.queue_delete(q.name)
        channel.connection.process_data_events(0.6)
        channel.connection.process_data_events(0.6)
        assert (seen.counts, channel.is_open) == ([1], True)
    assert not [r for r in caplog.records if r.name.startswith("redeliver_mw")]


def test_a_killed_broker_gives_back_what_was_held_with_its_count(rabbitmq310: Broker) -> None:
    with queues(rabbitmq310) as q:
        seen = fails(1)
        wrapped = redelivering(seen, policy=RedeliveryPolicy(dead_after=3, backoff=5.0), settle="return")
        q.put("1")
        rabbitmq310.sync()
        connection = pika.BlockingConnection(parameters(rabbitmq310))
        channel = connection.channel()
        channel.basic_consume(q.name, wrapped)
        until(connection, lambda: len(seen.counts) == 1)
        rabbitmq310.kill()
        with pytest.raises((pika.exceptions.AMQPError, OSError)):
            channel.start_consuming()
        rabbitmq310.start()
        with channel_on(rabbitmq310) as again:
            again.basic_consume(q.name, wrapped)
            until(again.connection, lambda: len(seen.counts) == 2)
        assert seen.counts == [1, 2]
        q.reconnect()
        assert q.left() == []
