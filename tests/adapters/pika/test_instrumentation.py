# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests copies beside instrumentation of `basic_publish`: each copy keeps the headers of its original."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.channel import Channel

from redeliver_mw import App, RedeliveryPolicy
from redeliver_pika import redelivering
from tests.adapters.pika.dropins import Queues, channel_on, queues, until
from tests.brokers import Broker

pytestmark = pytest.mark.broker

ONCE = RedeliveryPolicy(dead_after=1)
USERS = {"traceparent": "the user's", "n": 1}


@pytest.fixture
def q(rabbitmq: Broker) -> Iterator[Queues]:
    with queues(rabbitmq) as found:
        yield found


def injecting(publish: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a `basic_publish` as opentelemetry-instrumentation-pika 0.66b1 does: it replaces the trace header."""

    @functools.wraps(publish)
    def basic_publish(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(("exchange", "routing_key", "body", "properties", "mandatory"), args[-5:], strict=False))
        given |= kwargs
        properties: Any = given.get("properties") or pika.BasicProperties()
        properties.headers = {**(properties.headers or {}), "traceparent": "the instrumentation's"}
        return publish(*args[:-5], **given | {"properties": properties})

    return basic_publish


def on_each_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each channel object a `basic_publish` of its own, as OpenTelemetry's instrumentation does."""
    real = pika.connection.Connection.channel

    def channel(self: Any, *args: Any, **kwargs: Any) -> Any:
        opened = real(self, *args, **kwargs)
        opened.__setattr__("basic_publish", injecting(opened.basic_publish))
        return opened

    monkeypatch.setattr(pika.connection.Connection, "channel", channel)


def on_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the method of the class, as others do."""
    real = Channel.basic_publish

    @functools.wraps(real)
    def basic_publish(self: Any, *args: Any, **kwargs: Any) -> Any:
        return injecting(functools.partial(real, self))(*args, **kwargs)

    monkeypatch.setattr(Channel, "basic_publish", basic_publish)


@pytest.fixture(params=["each channel", "the class", "opentelemetry"])
def instrument(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Switch one kind of instrumentation on, until the test is over."""
    if request.param == "opentelemetry":
        sdk = pytest.importorskip("opentelemetry.sdk.trace")
        instrumentor = pytest.importorskip("opentelemetry.instrumentation.pika").PikaInstrumentor()
        yield lambda: instrumentor.instrument(tracer_provider=sdk.TracerProvider())
        instrumentor.uninstrument()
    else:
        yield functools.partial(
            {"each channel": on_each_channel, "the class": on_the_class}[request.param], monkeypatch
        )


def assert_untouched(q: Queues) -> None:
    [(_, headers)] = q.dead()
    assert (headers["traceparent"], headers["n"]) == ("the user's", 1)
    assert headers["redeliver_failures"] == "1"


def test_copies_of_the_drop_in_keep_the_users_trace_header(
    instrument: Callable[[], None], rabbitmq: Broker, q: Queues
) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("out of stock")

    q.put("1", headers=USERS)
    instrument()
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, redelivering(fails, queue=q.name, policy=ONCE))
        until(
            channel.connection, lambda: q.there(q.dlq) and q.channel.queue_declare(q.dlq, True).method.message_count > 0
        )
        assert_untouched(q)


def test_copies_of_an_app_keep_the_users_trace_header(
    instrument: Callable[[], None], rabbitmq: Broker, q: Queues
) -> None:
    q.put("1", headers=USERS)
    instrument()
    app, failed = App(rabbitmq.url), threading.Event()

    @app.handler(q.name, policy=ONCE)
    def fails(_: Any) -> None:
        failed.set()
        raise KeyError("out of stock")

    app.start()
    try:
        assert failed.wait(10)
    finally:
        app.stop(10)
    assert_untouched(q)


# -- OpenTelemetry's instrumentation beside our own traces -------------------------------------------------------------

PRODUCER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACED = {"traceparent": PRODUCER, "tracestate": "vendor=1", "n": 1}
VARYING = ("_at", "_trace", "_history")  # ends of names of headers whose values differ from run to run


@pytest.fixture
def spans() -> Any:
    pytest.importorskip("opentelemetry.sdk.trace")
    from tests.telemetry.spans import Spans

    return Spans()


@contextlib.contextmanager
def instrumented(spans: Any, *, really: bool = True) -> Iterator[None]:
    instrumentor = pytest.importorskip("opentelemetry.instrumentation.pika").PikaInstrumentor()
    if really:
        instrumentor.instrument(tracer_provider=spans.provider)
    try:
        yield
    finally:
        if really:
            instrumentor.uninstrument()


def fail_twice_in_an_app(rabbitmq: Broker, q: Queues, **options: Any) -> None:
    app, over = App(rabbitmq.url, policy=RedeliveryPolicy(dead_after=2, backoff=0.1), **options), threading.Event()

    @app.handler(q.name)
    def fails(delivery: Any) -> None:
        if delivery.failures:
            over.set()
        raise KeyError("out of stock")

    with app:
        assert over.wait(10)


def fail_twice_in_a_drop_in(rabbitmq: Broker, q: Queues, **options: Any) -> None:
    def fails(*_: Any) -> None:
        raise KeyError("out of stock")

    policy = RedeliveryPolicy(dead_after=2, backoff=0.1)
    with channel_on(rabbitmq) as channel:
        channel.basic_consume(q.name, redelivering(fails, queue=q.name, policy=policy, **options))
        until(
            channel.connection, lambda: q.there(q.dlq) and q.channel.queue_declare(q.dlq, True).method.message_count > 0
        )


@pytest.mark.parametrize("fail_twice", [fail_twice_in_an_app, fail_twice_in_a_drop_in], ids=["App", "drop-in"])
def test_beside_instrumentation_no_span_is_doubled(
    fail_twice: Callable[..., None], spans: Any, rabbitmq43: Broker
) -> None:
    with queues(rabbitmq43) as q:
        q.put("1", headers=TRACED)
        with instrumented(spans):
            fail_twice(rabbitmq43, q, traces=spans.provider)
        names = sorted(span.name.replace(q.name, "orders") for span in spans.all)
        assert names == ["process orders", "process orders", "send DLQ.orders"]
        assert {span.instrumentation_scope.name for span in spans.all} == {"redeliver_mw"}


def stable(headers: dict[str, Any]) -> dict[str, Any]:
    return {name: "…" if name.endswith(VARYING) else value for name, value in headers.items()}


@pytest.mark.parametrize("fail_twice", [fail_twice_in_an_app, fail_twice_in_a_drop_in], ids=["App", "drop-in"])
def test_copies_have_the_same_headers_with_instrumentation_and_traces_on_and_off(
    fail_twice: Callable[..., None], spans: Any, rabbitmq43: Broker
) -> None:
    found = {}
    with queues(rabbitmq43) as q:
        for instruments, traces in ((False, False), (True, False), (False, True), (True, True)):
            q.put("1", headers=TRACED)
            with instrumented(spans, really=instruments):
                fail_twice(rabbitmq43, q, traces=spans.provider if traces else None)
            [(_, headers)] = q.dead()
            found[instruments, traces] = stable(headers)
    plain = found[False, False]
    assert {name: plain[name] for name in TRACED} == TRACED
    assert found[True, False] == plain
    assert found[False, True] == found[True, True] == plain | {"redeliver_trace": "…"}
