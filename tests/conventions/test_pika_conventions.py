# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The pika drop-in keeps what a consumer's code already means, and adds redelivery.

What holds plain and what has to hold wrapped:

==================================================  =========  ===================================================
a consumer of `pika_consumers`, and its variants     plain      wrapped
==================================================  =========  ===================================================
killed with kill -9 in the middle of its work        unacked    unacked messages are back, none is lost
                                                     are back
a window of one, and a message is in work            no other   no other message comes
                                                     comes
an ack later, from a thread                          settles    settles
an ack with multiple=True                            covers     covers what the code has in hand, not what we hold
a callback that returns without a settlement         unsettled  unsettled
a nack later                                         hot loop   a failure: retried, then dead-lettered
a commit, a rollback                                 as it says the same, for our own settlements too
==================================================  =========  ===================================================
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pika
import pytest
from pika.exceptions import StreamLostError

from redeliver_mw import PolicyMap, RedeliveryPolicy
from redeliver_mw.errors import ConfigError
from redeliver_pika import redelivering
from tests.adapters.pika.dropins import Queues, channel_on, parameters, queues, until
from tests.brokers import Broker
from tests.conventions import pika_consumers
from tests.conventions.pika_consumers import AsyncioConsumer, LoopConsumer, Reconnecting, Shop

pytestmark = pytest.mark.broker

ROOT = Path(__file__).parents[2]
FORMS = ("channel", "callback")
ONCE = RedeliveryPolicy(dead_after=1)
TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)
OFTEN = RedeliveryPolicy(dead_after=9, backoff=5.0)  # it is held until the connection is closed
SLOWLY = RedeliveryPolicy(dead_after=9, backoff=1.0)  # the same, and what is delivered again waits for the rest of it
SETTLED = 0.15  # seconds in which a consumer's other threads have written whatever they would write
BasicProperties: Any = pika.BasicProperties  # untyped there
wrap: Any = redelivering  # the first argument is a channel or a callback
LIMIT = 20.0  # seconds; whatever takes longer does not come


@pytest.fixture
def q(rabbitmq: Broker) -> Iterator[Queues]:
    with queues(rabbitmq) as found:
        yield found


class Callback:
    """Runs `act` as a user's callback, and keeps what it was given."""

    def __init__(self, act: Callable[..., Any] = lambda *_: None) -> None:
        self.bodies: list[str] = []
        self.counts: list[int] = []
        self.tags: dict[str, int] = {}
        self.act = act

    def __call__(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self.bodies.append(body.decode())
        self.counts.append((properties.headers or {}).get("JMSXDeliveryCount", 1))
        self.tags[body.decode()] = method.delivery_tag
        self.act(channel, method, properties, body)


def acks(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
    channel.basic_ack(method.delivery_tag)


def raises(*_: Any) -> None:
    raise KeyError("out of stock")


def start(form: str, channel: Any, queue: str, callback: Any, **options: Any) -> Any:
    """Consume `queue` with the channel or the callback wrapped; return the channel to go on with."""
    if form == "channel":
        channel = wrap(channel, **options)
        channel.basic_consume(queue, callback)
    else:
        channel.basic_consume(queue, wrap(callback, **{"queue": queue} | options))
    return channel


def had(seen: Callback, attempts: int) -> Callable[[], bool]:
    return lambda: len(seen.bodies) == attempts


def wait(channel: Any, done: Callable[[], bool]) -> None:
    until(channel.connection, done, LIMIT)


def settle_down(channel: Any) -> None:
    """Give what is on its way a moment; nothing is expected to come of it."""
    channel.connection.process_data_events(0.1)


def left(channel: Any, q: Queues, least: int = 0) -> list[str]:
    """Close the consumer's connection, and take what the broker still has."""
    assert channel.is_open
    channel.connection.close()
    return sorted(q.left(least))


def a_letter_is_there(q: Queues, count: int = 1) -> bool:
    """Return whether so many dead letters can be taken; the consumer's own loop must not stop before."""
    return q.there(q.dlq) and q.channel.queue_declare(q.dlq, passive=True).method.message_count >= count


def dead(q: Queues, count: int) -> list[tuple[bytes, dict[str, Any]]]:
    """Take so many dead letters."""
    found: list[tuple[bytes, dict[str, Any]]] = []
    deadline = time.monotonic() + LIMIT
    while len(found) < count and time.monotonic() < deadline:
        found += q.dead()
        q.connection.process_data_events(0.01)
    return found


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged by us as an error."""
    ours = [r for r in caplog.records if r.name.startswith("redeliver")]
    return [r.getMessage() for r in ours if r.levelno >= logging.ERROR]


# -- kill -9 in the middle of work ------------------------------------------------------------------------


class Running:
    """Runs one consumer of `pika_consumers` as a process, and keeps the lines that it printed."""

    def __init__(self, name: str, broker: Broker, queue: str, wrapping: str, middle: int) -> None:
        user, password = quote(broker.user, safe=""), quote(broker.password, safe="")
        url = f"amqp://{user}:{password}@{broker.host}:{broker.port}/%2F"
        words = [sys.executable, "-m", "tests.conventions.pika_consumers", name, "--url", url, "--queue", queue]
        words += ["--middle", str(middle), *([] if wrapping == "plain" else ["--wrapped", wrapping])]
        path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
        self.process = subprocess.Popen(
            words,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,  # what is read ahead would be lost to `communicate`
        )
        self.lines: list[list[str]] = []

    def until(self, word: str, message: int) -> None:
        """Read until the process says so; fail with its traceback if it ends before."""
        assert self.process.stdout is not None
        timer = threading.Timer(30, self.process.kill)
        timer.start()
        for line in self.process.stdout:
            self.lines.append(line.decode().split())
            if self.lines[-1] == [word, str(message)]:
                break
        timer.cancel()
        if not self.lines or self.lines[-1] != [word, str(message)]:
            self.process.kill()
            said = f"{self.lines[-3:]} {self.process.communicate()[1].decode()[-600:]}"
            pytest.fail(f"the consumer did not get to its work: {said}", pytrace=False)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        rest, _ = self.process.communicate()
        self.lines += [line.decode().split() for line in rest.splitlines()]

    def told(self, what: str) -> list[str]:
        return [body for word, *bodies in self.lines if word == what for body in bodies]


def killed_in_the_middle(name: str, broker: Broker, wrapping: str, window: int) -> None:
    """Kill a consumer within message 3, or, where it owes acks, after message 6; check what the broker still has."""
    owes = name in ("every_fifth", "without_ack_on_purpose")
    messages = [str(n) for n in range(7)]
    with queues(broker) as q:
        results = f"{q.name}.results"
        q.channel.queue_declare(results, durable=True)
        q.put(*messages)
        consumer = Running(name, broker, q.name, wrapping, -1 if owes else 3)
        try:
            consumer.until(*("got", 6) if owes else ("middle", 3))
            time.sleep(SETTLED)
        finally:
            consumer.kill()
        acked = consumer.told("acked")
        unacked = [m for m in messages if m not in acked and m not in consumer.told("acking")]
        found = sorted(q.left(len(unacked)))
        assert set(found) >= set(unacked), "messages that were not acked are lost"
        assert q.dead() == []
        assert set(found).isdisjoint(acked), "messages that were acked are back"
        assert len(consumer.told("got")) - len(acked) <= window, "the window is larger than the code's prefetch"
        q.channel.queue_delete(results)


WINDOWS = {  # how many messages the code may have in hand: its prefetch, or all of them
    "consume": 1,
    "asynchronous_consumer": 1,
    "asyncio_consumer": 1,
    "basic_consumer_threaded": 1,
    "thread_pool": 4,
    "nack_in_except": 1,
    "transactional": 1,
}
KILLED = [
    *((name, wrapping) for name in pika_consumers.EXAMPLES for wrapping in ("plain", "channel")),
    *((name, wrapping) for name in pika_consumers.VARIANTS for wrapping in ("plain", "channel")),
    *((name, "callback") for name in ("consume", "basic_consumer_threaded")),
    *((name, "callback") for name in ("thread_pool", "every_fifth", "without_ack_on_purpose")),
]


@pytest.mark.parametrize(("name", "wrapping"), KILLED)
def test_a_consumer_killed_in_the_middle_of_work_loses_no_unacked_message(
    name: str, wrapping: str, rabbitmq310: Broker
) -> None:
    killed_in_the_middle(name, rabbitmq310, wrapping, WINDOWS.get(name, 7))


# -- row 1: settlements after the callback has returned ---------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_callback_that_returns_without_a_settlement_leaves_its_message_unsettled(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    seen = Callback()
    q.put("1", "2")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: len(seen.bodies) == 2)
        settle_down(channel)
        assert left(channel, q, 2) == ["1", "2"]


@pytest.mark.parametrize("form", FORMS)
def test_with_a_prefetch_of_one_the_next_message_comes_only_after_the_late_ack(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    seen, may_ack = Callback(), threading.Event()

    def later(connection: Any, channel: Any, tag: int) -> None:
        may_ack.wait()
        with contextlib.suppress(pika.exceptions.AMQPError):  # the test has failed, and closed it
            connection.add_callback_threadsafe(functools.partial(channel.basic_ack, tag))

    def act(channel: Any, method: Any, *_: Any) -> None:
        if len(seen.bodies) == 1:
            threading.Thread(target=later, args=(channel.connection, channel, method.delivery_tag)).start()
        else:
            channel.basic_ack(method.delivery_tag)

    seen.act = act
    q.put("1", "2")
    try:
        with channel_on(rabbitmq, prefetch=1) as channel:
            channel = start(form, channel, q.name, seen, policy=TWICE)
            wait(channel, lambda: bool(seen.bodies))
            settle_down(channel)
            assert seen.bodies == ["1"]
            may_ack.set()
            wait(channel, lambda: len(seen.bodies) == 2)
            settle_down(channel)
            assert (left(channel, q), q.dead()) == ([], [])
    finally:
        may_ack.set()


@pytest.mark.parametrize("form", FORMS)
def test_a_late_nack_is_a_failure_that_is_retried(form: str, rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, properties: Any, _: bytes) -> None:
        settle = channel.basic_ack if len(seen.bodies) > 1 else channel.basic_nack
        channel.connection.call_later(0, functools.partial(settle, method.delivery_tag))

    seen = Callback(act)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: len(seen.bodies) == 2)
        settle_down(channel)
        assert (seen.counts, left(channel, q), q.dead()) == ([1, 2], [], [])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("verb", ["basic_nack", "basic_reject"])
def test_a_late_reject_without_requeue_is_dead_lettered(form: str, verb: str, rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, *_: Any) -> None:
        reject = functools.partial(getattr(channel, verb), method.delivery_tag, requeue=False)
        channel.connection.call_later(0, reject)

    seen = Callback(act)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: a_letter_is_there(q))
        [(body, headers)] = dead(q, 1)
        settle_down(channel)
        assert (body, headers["redeliver_reason"], seen.counts) == (b"1", "rejected", [1])
        assert left(channel, q) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_cumulative_ack_covers_what_the_code_has_in_hand_and_not_what_is_held(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    def act(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if body == b"held":
            raise ValueError("no")
        if body == b"5th":
            channel.basic_ack(method.delivery_tag, multiple=True)

    seen = Callback(act)
    q.put("1", "2", "held", "4", "5th", "after")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=OFTEN)
        wait(channel, lambda: len(seen.bodies) == 6)
        settle_down(channel)
        assert (left(channel, q, 2), q.dead()) == (["after", "held"], [])


@pytest.mark.parametrize("form", FORMS)
def test_a_cumulative_nack_of_everything_fails_what_the_code_has_in_hand(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    def act(channel: Any, _method: Any, _: Any, body: bytes) -> None:
        if body == b"held":
            raise ValueError("no")
        if body == b"last":
            channel.basic_nack(0, multiple=True, requeue=False)

    seen = Callback(act)
    q.put("1", "held", "2", "last")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=OFTEN)
        wait(channel, lambda: len(seen.bodies) == 4 and a_letter_is_there(q, 3))
        assert sorted(body for body, _ in dead(q, 3)) == [b"1", b"2", b"last"]
        settle_down(channel)
        assert left(channel, q, 1) == ["held"]


@pytest.mark.parametrize("form", FORMS)
def test_a_settlement_that_comes_after_its_message_has_failed_is_logged_as_an_error_and_settles_nothing(
    form: str, rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Callback(raises)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=OFTEN)
        wait(channel, lambda: bool(seen.bodies))
        before = len(errors(caplog))
        channel.basic_ack(seen.tags["1"])
        settle_down(channel)
        assert len(errors(caplog)) == before + 1
        assert left(channel, q, 1) == ["1"]


@pytest.mark.parametrize("form", FORMS)
def test_a_second_settlement_of_one_message_is_logged_as_an_error_and_the_channel_stays_open(
    form: str, rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Callback(acks)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: bool(seen.bodies))
        channel.basic_nack(seen.tags["1"], requeue=False)
        settle_down(channel)
        assert len(errors(caplog)) == 1
        assert (left(channel, q), q.dead()) == ([], [])


def test_a_channel_closed_right_after_an_unacked_message_gives_it_back(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(lambda channel, *_: channel.close())
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start("channel", channel, q.name, seen, policy=TWICE)
        while channel.is_open:
            channel.connection.process_data_events(0.02)
    assert (seen.bodies, q.left(1)) == (["1"], ["1"])


@pytest.mark.parametrize("form", FORMS)
def test_with_settle_return_the_end_of_the_callback_is_success(form: str, rabbitmq: Broker, q: Queues) -> None:
    seen = Callback()
    q.put("1", "2")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, seen, policy=TWICE, settle="return")
        wait(channel, lambda: len(seen.bodies) == 2)
        settle_down(channel)
        assert (left(channel, q), q.dead()) == ([], [])


@pytest.mark.parametrize("form", FORMS)
def test_auto_ack_is_passed_through_and_logged_once(
    form: str, rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    seen = Callback()
    q.put("1", "2")
    with channel_on(rabbitmq) as channel:
        if form == "channel":
            channel = wrap(channel, policy=TWICE)
            channel.basic_consume(q.name, seen, auto_ack=True)
        else:
            channel.basic_consume(q.name, wrap(seen, policy=TWICE), auto_ack=True)
        wait(channel, lambda: len(seen.bodies) == 2)
        assert left(channel, q) == []
    assert len([r for r in caplog.records if "auto_ack" in r.getMessage()]) == 1


# -- the wrapped channel ----------------------------------------------------------------------------------


def test_each_consumer_on_a_wrapped_channel_has_the_policy_of_its_queue(rabbitmq: Broker, q: Queues) -> None:
    with queues(rabbitmq) as other, channel_on(rabbitmq) as channel:
        policy = PolicyMap({q.name: ONCE}, default=TWICE)
        one, two = Callback(raises), Callback(raises)
        channel = wrap(channel, policy=policy)
        channel.basic_consume(q.name, one)
        channel.basic_consume(queue=other.name, on_message_callback=two)
        q.put("1")
        other.put("2")
        wait(channel, lambda: len(two.bodies) == 2 and a_letter_is_there(q) and a_letter_is_there(other))
        assert [h["redeliver_failures"] for _, h in (*dead(q, 1), *dead(other, 1))] == ["1", "2"]
        settle_down(channel)
        assert (left(channel, q), other.left()) == ([], [])


def test_a_message_through_an_exchange_needs_no_queue_on_a_wrapped_channel(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(raises)
    q.channel.queue_bind(q.name, "amq.topic", "shop.*")
    q.put("1", exchange="amq.topic", key="shop.eu")
    with channel_on(rabbitmq) as channel:
        channel = start("channel", channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: len(seen.bodies) == 2 and a_letter_is_there(q))
        [(_, headers)] = dead(q, 1)
        assert (seen.counts, headers["original-destination"]) == ([1, 2], q.name)
        settle_down(channel)
        assert left(channel, q) == []


def test_a_request_with_direct_reply_to_passes_through_a_wrapped_channel(rabbitmq: Broker, q: Queues) -> None:
    replies: list[bytes] = []
    with channel_on(rabbitmq) as channel, channel_on(rabbitmq) as server:
        channel = wrap(channel, policy=TWICE)
        channel.basic_consume("amq.rabbitmq.reply-to", lambda c, m, p, body: replies.append(body), auto_ack=True)
        channel.basic_publish("", q.name, b"ask", BasicProperties(reply_to="amq.rabbitmq.reply-to"))
        taken: Any = next(server.consume(q.name))
        method, properties, _ = taken
        server.basic_publish("", properties.reply_to, b"answer")
        server.basic_ack(method.delivery_tag)
        wait(channel, lambda: replies == [b"answer"])


def test_what_basic_get_took_is_settled_by_hand_on_a_wrapped_channel(rabbitmq: Broker, q: Queues) -> None:
    q.put("1", "2")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        method, _, _ = channel.basic_get(q.name)
        channel.basic_ack(method.delivery_tag)
        method, _, _ = channel.basic_get(q.name)
        channel.basic_nack(method.delivery_tag)
        assert left(channel, q, 1) == ["2"]


def test_in_the_channels_own_loop_a_nacked_message_comes_round_again_and_dies_after_its_last_failure(
    rabbitmq: Broker, q: Queues
) -> None:
    counts: list[tuple[bytes, int]] = []
    q.put("good", "bad")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        for method, properties, body in channel.consume(q.name, inactivity_timeout=0.5):
            if method is None:
                break
            counts.append((body, properties.headers["JMSXDeliveryCount"]))
            settle = channel.basic_ack if body == b"good" else channel.basic_nack
            settle(method.delivery_tag)
        channel.cancel()
        assert counts == [(b"good", 1), (b"bad", 1), (b"bad", 2)]
        assert [body for body, _ in dead(q, 1)] == [b"bad"]
        assert left(channel, q) == []


def test_an_exception_that_leaves_the_channels_own_loop_leaves_its_message_unsettled(
    rabbitmq: Broker, q: Queues
) -> None:
    def loop() -> None:
        for method, _, body in loop_channel.consume(q.name):
            if body == b"2":
                raise ValueError("no")
            loop_channel.basic_ack(method.delivery_tag)

    q.put("1", "2", "3")
    with channel_on(rabbitmq) as channel:
        loop_channel: Any = wrap(channel, policy=TWICE)
        with pytest.raises(ValueError, match="no"):
            loop()
        assert (left(channel, q, 2), q.dead()) == (["2", "3"], [])


def test_in_the_channels_own_loop_nothing_is_yielded_after_the_inactivity_timeout_as_in_plain_pika(
    rabbitmq: Broker, q: Queues
) -> None:
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        assert next(channel.consume(q.name, inactivity_timeout=0.05)) == (None, None, None)
        channel.cancel()


def test_after_a_cancel_what_was_held_is_given_back(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(raises)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=OFTEN)
        channel.basic_qos(prefetch_count=50)  # so that it is known how many may be held
        consumer = channel.basic_consume(q.name, seen)
        wait(channel, lambda: bool(seen.bodies))
        channel.basic_cancel(consumer)
        settle_down(channel)
        assert (seen.counts, q.left(1)) == ([1], ["1"])
        assert channel.is_open


# -- row 3: the queue is not known ------------------------------------------------------------------------


def test_an_unknown_queue_is_a_config_error_out_of_start_consuming(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(acks)
    q.channel.queue_bind(q.name, "amq.fanout")
    q.put("1", exchange="amq.fanout")
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, wrap(seen, policy=TWICE))
        with pytest.raises(ConfigError, match="queue="):
            channel.start_consuming()
        assert (seen.bodies, left(channel, q, 1), q.dead()) == ([], ["1"], [])


@pytest.mark.parametrize("consumer_class", [LoopConsumer, AsyncioConsumer])
def test_an_unknown_queue_cancels_a_reconnecting_consumer_once_and_is_logged_once(
    consumer_class: type[LoopConsumer], rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []

    def say(what: str, body: bytes) -> None:
        lines.append(what)
        if what == "connected":
            loop = made[-1].connection.ioloop
            loop.call_later(0.3, made[-1].stop)

    def make() -> LoopConsumer:
        made.append(consumer_class(Shop(parameters(q.broker), q.name, -1, "callback", {"policy": TWICE}, say)))
        return made[-1]

    made: list[LoopConsumer] = []
    q.channel.queue_bind(q.name, "amq.fanout")
    q.put("1", "2", exchange="amq.fanout")
    Reconnecting(make, rounds=5).run()
    for consumer in made:
        consumer.close_loop()
    assert lines == ["connected"]
    assert len([e for e in errors(caplog) if "queue" in e]) == 1
    assert q.left(2) == ["1", "2"]


# -- row 4: the prefetch window ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_with_a_prefetch_of_one_healthy_messages_wait_a_second_at_most(form: str, rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, _: Any, body: bytes) -> None:
        times.setdefault(body, time.monotonic())
        if body == b"bad":
            raise ValueError("no")
        channel.basic_ack(method.delivery_tag)

    times: dict[bytes, float] = {}
    q.put("bad", "good")
    with channel_on(rabbitmq, prefetch=1) as channel:
        channel = start(form, channel, q.name, Callback(act), policy=RedeliveryPolicy(dead_after=3, backoff=8.0))
        until(channel.connection, lambda: b"good" in times or time.monotonic() > times.get(b"bad", 1e99) + 6, 20)
        assert b"good" in times, "the healthy message waits behind the retrying one"
        assert times[b"good"] - times[b"bad"] < 4.0  # a second, and what a busy machine adds; less than the delay
        settle_down(channel)
        channel.connection.close()
    assert q.dead() == []
    for rung in (1, 2, 4, 8):
        q.channel.queue_delete(f"redeliver.retry.{q.name}.{rung}s")


# -- row 5: the channel's own transactions ----------------------------------------------------------------


def commits(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
    if body == b"bad":
        raise ValueError("no")
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()


def test_the_ack_of_a_dead_letter_takes_effect_with_the_next_commit(rabbitmq: Broker, q: Queues) -> None:
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=ONCE)
        channel.tx_select()
        seen = Callback(commits)
        channel.basic_consume(q.name, seen)
        q.put("bad")
        wait(channel, lambda: a_letter_is_there(q))
        assert len(dead(q, 1)) == 1
        settle_down(channel)
        q.put("good")
        wait(channel, lambda: len(seen.bodies) == 2)
        assert (left(channel, q), q.dead()) == ([], [])


def test_without_a_commit_the_dead_letters_original_stays_at_the_broker(rabbitmq: Broker, q: Queues) -> None:
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=ONCE)
        channel.tx_select()
        channel.basic_consume(q.name, Callback(commits))
        q.put("bad")
        wait(channel, lambda: a_letter_is_there(q))
        assert len(dead(q, 1)) == 1
        settle_down(channel)
        assert left(channel, q, 1) == ["bad"]


def test_the_ack_of_a_dead_letter_is_written_again_after_a_rollback(rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if body == b"undo":
            channel.tx_rollback()
        commits(channel, method, properties, body)

    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=ONCE)
        channel.tx_select()
        seen = Callback(act)
        channel.basic_consume(q.name, seen)
        q.put("bad")
        wait(channel, lambda: a_letter_is_there(q))
        assert len(dead(q, 1)) == 1
        settle_down(channel)
        q.put("undo")
        wait(channel, lambda: len(seen.bodies) == 2)
        q.put("good")
        wait(channel, lambda: len(seen.bodies) == 3)
        assert (left(channel, q), q.dead()) == ([], [])


def test_after_a_rollback_of_its_ack_the_delivery_is_in_the_codes_hands_again(rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, properties: Any, body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        channel.tx_rollback()
        if body == b"2":
            channel.basic_ack(method.delivery_tag)
            channel.tx_commit()

    seen = Callback(act)
    q.put("1", "2")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        channel.tx_select()
        channel.basic_consume(q.name, seen)
        wait(channel, lambda: len(seen.bodies) == 2)
        settle_down(channel)
        assert (left(channel, q, 1), q.dead()) == (["1"], [])


def test_an_exception_after_a_rollback_is_a_failure_of_its_message(rabbitmq: Broker, q: Queues) -> None:
    def act(channel: Any, method: Any, *_: Any) -> None:
        channel.basic_publish("", q.dlq, b"undone")
        channel.basic_ack(method.delivery_tag)
        if len(seen.bodies) == 1:
            channel.tx_rollback()
            raise KeyError("out of stock")
        channel.tx_commit()

    seen = Callback(act)
    q.channel.queue_declare(q.dlq, durable=True)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        channel.tx_select()
        channel.basic_consume(q.name, seen)
        wait(channel, lambda: len(seen.bodies) == 2)
        settle_down(channel)
        assert (seen.counts, left(channel, q)) == ([1, 2], [])
        assert [body for body, _ in dead(q, 1)] == [b"undone"]  # that of the second attempt alone


@pytest.mark.parametrize("form", FORMS)
def test_a_transaction_selected_before_the_wrapping_is_refused_at_the_first_commit(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    refusals: list[ConfigError] = []

    def act(channel: Any, method: Any, *_: Any) -> None:
        channel.basic_ack(method.delivery_tag)
        try:
            channel.tx_commit()
        except ConfigError as error:
            refusals.append(error)
            raise

    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel.tx_select()
        channel = start(form, channel, q.name, Callback(act), policy=ONCE)
        with contextlib.suppress(ConfigError):
            wait(channel, lambda: bool(refusals))
        assert len(refusals) == 1
        settle_down(channel)
        assert (left(channel, q, 1), q.dead()) == (["1"], [])


# -- row 7: a CC header -----------------------------------------------------------------------------------


def test_a_message_that_came_by_its_cc_header_is_dead_lettered_as_one_of_the_queue_it_was_consumed_from(
    rabbitmq: Broker, q: Queues
) -> None:
    with queues(rabbitmq) as other, channel_on(rabbitmq) as channel:
        seen = Callback(raises)
        q.put("1", key=other.name, headers={"CC": [q.name]})
        channel = start("channel", channel, q.name, seen, policy=TWICE)
        wait(channel, lambda: len(seen.bodies) == 2 and a_letter_is_there(q))
        [(_, headers)] = dead(q, 1)
        assert headers["original-destination"] == q.name
        settle_down(channel)
        assert (left(channel, q), other.left(1), other.dead()) == ([], ["1"], [])


def test_a_cc_header_and_no_named_queue_is_a_config_error_and_the_message_stays(rabbitmq: Broker, q: Queues) -> None:
    with queues(rabbitmq) as other, channel_on(rabbitmq) as channel:
        seen = Callback(raises)
        q.put("1", key=other.name, headers={"CC": [q.name]})
        channel.basic_consume(q.name, wrap(seen, policy=ONCE))
        with pytest.raises(ConfigError, match="queue="):
            until(channel.connection, lambda: q.there(q.dlq) or other.there(other.dlq), 1.0)
        assert (seen.bodies, left(channel, q, 1), other.dead()) == ([], ["1"], [])


# -- row 8: messages without an id ------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_count_of_a_message_without_an_id_survives_its_connection(form: str, rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(raises)
    wrapped = wrap(seen, queue=q.name, policy=SLOWLY)
    q.put("1", message_id=None)
    for attempts in (1, 2, 3):
        with channel_on(rabbitmq) as channel:
            if form == "channel":
                start(form, channel, q.name, seen, policy=SLOWLY)
            else:
                channel.basic_consume(q.name, wrapped)
            wait(channel, had(seen, attempts))
            channel.connection.close()
    assert (seen.counts, q.left(1), q.dead()) == ([1, 2, 3], ["1"], [])


def test_of_identical_messages_without_an_id_each_count_is_taken_over_once(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(raises)
    wrapped = wrap(seen, queue=q.name, policy=SLOWLY)
    q.put("same", "same", message_id=None)
    for attempts in (2, 4):
        with channel_on(rabbitmq) as channel:
            channel.basic_consume(q.name, wrapped)
            wait(channel, had(seen, attempts))
            channel.connection.close()
    assert (sorted(seen.counts), q.left(2)) == ([1, 1, 2, 2], ["same", "same"])


def test_a_fresh_message_without_an_id_begins_at_one_and_clears_no_count(rabbitmq: Broker, q: Queues) -> None:
    seen = Callback(raises)
    wrapped = wrap(seen, queue=q.name, policy=SLOWLY)
    q.put("same", message_id=None)
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, wrapped)
        wait(channel, lambda: len(seen.bodies) == 1)
        q.put("same", message_id=None)
        wait(channel, lambda: len(seen.bodies) == 2)
        channel.connection.close()
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, wrapped)
        wait(channel, lambda: len(seen.bodies) == 4)
        channel.connection.close()
    assert (sorted(seen.counts), q.left(2)) == ([1, 1, 2, 2], ["same", "same"])


# -- row 9: a nack in an except block ---------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("requeue", [True, False])
def test_the_exception_in_hand_is_the_error_of_a_nack_in_an_except_block(
    form: str, requeue: bool, rabbitmq: Broker, q: Queues
) -> None:
    def act(channel: Any, method: Any, *_: Any) -> None:
        try:
            raises()
        except KeyError:
            channel.basic_nack(method.delivery_tag, requeue=requeue)

    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = start(form, channel, q.name, Callback(act), policy=ONCE)
        wait(channel, lambda: a_letter_is_there(q))
        [(_, headers)] = dead(q, 1)
        reason = "exhausted" if requeue else "rejected"
        assert (headers["redeliver_reason"], headers["redeliver_error_type"]) == (reason, "KeyError")
        assert "out of stock" in headers["redeliver_error_message"]
        settle_down(channel)
        assert left(channel, q) == []


# -- row 10 -----------------------------------------------------------------------------------------------


def test_the_first_reject_says_that_the_queues_own_dead_letter_exchange_is_not_used(
    rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    own = f"{q.name}.own"
    q.channel.queue_declare(own, durable=True)
    queue = f"{q.name}.with-dlx"
    dlx = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": own}
    q.channel.queue_declare(queue, durable=True, arguments=dlx)
    try:
        q.put("1", "2", key=queue)
        with channel_on(rabbitmq) as channel:
            seen = Callback(lambda ch, m, *_: ch.basic_reject(m.delivery_tag, requeue=False))
            start("callback", channel, queue, seen, policy=TWICE)
            wait(channel, lambda: len(seen.bodies) == 2)
            settle_down(channel)
            channel.connection.close()
        _, _, in_own = q.channel.basic_get(own, auto_ack=True)
        ours = [r.getMessage() for r in caplog.records if r.name.startswith("redeliver")]
        assert in_own is not None or len([text for text in ours if "dead-letter exchange" in text]) == 1
    finally:
        for name in (own, queue, f"DLQ.{queue}"):
            q.channel.queue_delete(name)


def test_a_server_named_queue_leaves_no_durable_helper_queues_behind(rabbitmq: Broker, q: Queues) -> None:
    policy = RedeliveryPolicy(dead_after=3, backoff=(0.1, 20.0), dead_letter=f"queue:{q.dlq}")
    seen, cures = Callback(raises), ["-"]
    with channel_on(rabbitmq) as channel:
        name = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(name, "amq.fanout")
        rungs = [f"redeliver.retry.{name}.{rung}s" for rung in (1, 2, 4, 8, 16)]
        try:
            start("callback", channel, name, seen, policy=policy)
            q.channel.basic_publish("amq.fanout", "", b"1")
            wait(channel, lambda: len(seen.bodies) == 2)
        except ConfigError as refused:
            cures.append(refused.cure)
        channel.connection.process_data_events(0.3)
        channel.connection.close()
    behind = [rung for rung in rungs if q.there(rung)]
    for rung in behind:
        q.channel.queue_delete(rung)
    assert (behind, [cure for cure in cures if not cure]) == ([], [])


def test_a_basic_get_result_given_to_a_wrapped_callback_is_handled_or_refused_with_the_cure(
    rabbitmq: Broker, q: Queues
) -> None:
    seen, cures = Callback(acks), ["-"]
    wrapped = wrap(seen, policy=TWICE, queue=q.name)
    q.put("1")
    with channel_on(rabbitmq) as channel:
        method, properties, body = channel.basic_get(q.name)
        try:
            wrapped(channel, method, properties, body)
        except ConfigError as refused:
            cures.append(refused.cure)
            assert left(channel, q, 1) == ["1"]
        else:
            settle_down(channel)
            assert (seen.bodies, left(channel, q)) == (["1"], [])
    assert all(cures)


def test_the_first_dead_letter_and_the_first_rungs_are_no_reason_for_the_driver_to_warn(
    rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    q.put("1")
    policy = RedeliveryPolicy(dead_after=2, backoff=(20.0,), fatal=KeyError)
    with channel_on(rabbitmq) as channel:
        start("callback", channel, q.name, Callback(raises), policy=policy)
        wait(channel, lambda: a_letter_is_there(q))
        channel.connection.process_data_events(0.3)
        channel.connection.close()
    for rung in (1, 2, 4, 8, 16):
        q.channel.queue_delete(f"redeliver.retry.{q.name}.{rung}s")
    warned = [r for r in caplog.records if r.name.startswith("pika") and "404" in r.getMessage()]
    of_the_test = q.connection._impl  # which looks for the queue, too
    assert [
        r.getMessage() for r in warned if getattr(cast(Any, r.args)[-1], "connection", None) is not of_the_test
    ] == []


# -- rows 11 and 12: connections that go ------------------------------------------------------------------


def test_copies_that_wait_for_the_ladder_do_not_hold_up_their_messages_after_the_connection_was_lost(
    rabbitmq: Broker, q: Queues
) -> None:
    def act(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if seen.bodies.count(body.decode()) == 1:
            raise ValueError("no")
        channel.basic_ack(method.delivery_tag)

    seen = Callback(act)
    messages = [str(n) for n in range(5)]
    wrapped = wrap(seen, queue=q.name, policy=RedeliveryPolicy(dead_after=3, backoff=1.0), delay="schedule")
    q.put(*messages)
    connection = pika.BlockingConnection(parameters(rabbitmq))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume(q.name, wrapped)
    until(connection, lambda: len(seen.bodies) == 5, LIMIT)
    connection.process_data_events(0.5)
    connection._impl._terminate_stream(StreamLostError("cut by the test"))
    with pytest.raises(StreamLostError):
        channel.start_consuming()
    with channel_on(rabbitmq, prefetch=5) as again:
        again.basic_consume(q.name, wrapped)
        until(again.connection, lambda: len(seen.bodies) == 10, 14)
        settle_down(again)
        q.channel.queue_delete(f"redeliver.retry.{q.name}.1s")
        assert (sorted(seen.bodies[5:]), left(again, q), q.dead()) == (messages, [], [])


@pytest.mark.parametrize("form", FORMS)
def test_the_count_is_kept_when_the_next_connection_goes_to_another_address_of_the_cluster(
    form: str, rabbitmq: Broker, q: Queues
) -> None:
    seen = Callback(raises)
    wrapped = wrap(seen, queue=q.name, policy=SLOWLY)
    q.put("1")
    for attempts, host in ((1, "127.0.0.1"), (2, "localhost"), (3, "127.0.0.1")):
        given = parameters(rabbitmq)
        given.host = host
        with pika.BlockingConnection(given) as connection:
            channel = connection.channel()
            if form == "channel":
                start(form, channel, q.name, seen, policy=SLOWLY)
            else:
                channel.basic_consume(q.name, wrapped)
            until(connection, had(seen, attempts), LIMIT)
    assert (seen.counts, q.left(1)) == ([1, 2, 3], ["1"])


# -- beside auto-instrumentation --------------------------------------------------------------------------


def test_copies_keep_the_users_trace_header_beside_instrumentation_of_basic_publish(
    rabbitmq: Broker, q: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instrumentation of OpenTelemetry gives each channel object a `basic_publish` of its own, as here."""
    real = pika.connection.Connection.channel

    def instrumented(self: Any, *args: Any, **kwargs: Any) -> Any:
        channel = real(self, *args, **kwargs)
        publish = channel.basic_publish

        def basic_publish(
            exchange: str, routing_key: str, body: bytes, properties: Any = None, mandatory: bool = False
        ) -> Any:
            properties = properties or BasicProperties()
            properties.headers = {**(properties.headers or {}), "traceparent": "the instrumentation's"}
            return publish(exchange, routing_key, body, properties, mandatory)

        channel.__setattr__("basic_publish", basic_publish)
        return channel

    q.put("1", headers={"traceparent": "the user's", "n": 1})
    monkeypatch.setattr(pika.connection.Connection, "channel", instrumented)
    with channel_on(rabbitmq) as channel:
        channel = start("callback", channel, q.name, Callback(raises), policy=ONCE)
        wait(channel, lambda: a_letter_is_there(q))
        [(_, headers)] = dead(q, 1)
        assert (headers["traceparent"], headers["n"]) == ("the user's", 1)
        assert headers["redeliver_failures"] == "1"
        channel.connection.close()


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_an_unknown_settle_is_refused_when_wrapping(form: str, rabbitmq: Broker) -> None:
    with channel_on(rabbitmq) as channel, pytest.raises(ConfigError, match="settle") as refused:
        wrap(channel if form == "channel" else raises, policy=TWICE, settle="never")
    assert refused.value.cure


def test_a_channel_that_is_wrapped_twice_is_refused(rabbitmq: Broker) -> None:
    with channel_on(rabbitmq) as channel:
        wrapped = wrap(channel, policy=TWICE)
        for again in (wrapped, channel):
            with pytest.raises(ConfigError) as refused:
                wrap(again, policy=TWICE)
            assert refused.value.cure
        assert channel.is_open


def test_a_wrapped_callback_on_a_wrapped_channel_is_refused_before_it_consumes(rabbitmq: Broker, q: Queues) -> None:
    q.put("1")
    with channel_on(rabbitmq) as channel:
        channel = wrap(channel, policy=TWICE)
        with pytest.raises(ConfigError) as refused:
            channel.basic_consume(q.name, wrap(acks, policy=TWICE, queue=q.name))
        assert refused.value.cure
        assert left(channel, q, 1) == ["1"]


def test_a_closed_channel_is_refused(rabbitmq: Broker) -> None:
    with channel_on(rabbitmq) as channel:
        channel.close()
        with pytest.raises(ConfigError, match="closed") as refused:
            wrap(channel, policy=TWICE)
    assert refused.value.cure


def test_a_channel_that_has_consumers_already_is_refused(rabbitmq: Broker, q: Queues) -> None:
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, acks)
        with pytest.raises(ConfigError, match="consume") as refused:
            wrap(channel, policy=TWICE)
        assert refused.value.cure
        q.put("1")
        settle_down(channel)
        assert left(channel, q) == []


def test_a_cumulative_ack_over_wrapped_and_bare_consumers_of_one_channel_is_an_error_and_settles_nothing(
    rabbitmq: Broker, q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    with queues(rabbitmq) as other, channel_on(rabbitmq) as channel:
        seen, raised = Callback(), []

        def bare(ch: Any, method: Any, _properties: Any, _body: bytes) -> None:
            try:
                ch.basic_ack(method.delivery_tag, multiple=True)
            except ConfigError as error:
                raised.append(error)

        by_hand = Callback(bare)
        start("callback", channel, q.name, seen, policy=TWICE)
        q.put("ours")
        wait(channel, lambda: bool(seen.bodies))
        channel.basic_consume(other.name, by_hand)
        other.put("bare")
        wait(channel, lambda: bool(by_hand.bodies))
        settle_down(channel)
        assert len(raised) + len(errors(caplog)) >= 1
        assert (left(channel, q, 1), other.left(1)) == (["ours"], ["bare"])
