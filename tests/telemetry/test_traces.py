# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests spans of handlers and copies on the memory broker: names, attributes, links, what is current, what is an error.

Names and attributes are those of OpenTelemetry's semantic conventions for messaging, v1.44.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, ParentBased, Sampler, SamplingResult
from opentelemetry.trace import SpanKind, StatusCode

from redeliver_mw import App, Breaker, Delivery, Destination, RedeliveryPolicy, RetryAfter
from redeliver_mw.clock import Moment
from redeliver_mw.errors import ConfigError
from redeliver_mw.message import Outgoing
from redeliver_mw.telemetry.hook import TelemetryHook
from redeliver_mw.telemetry.traces import Traces
from redeliver_mw.testing import Faults, MemoryBroker, TestApp, make_delivery, register_broker
from tests.dropin.memory_driver import Consumer, Message
from tests.telemetry.spans import PRODUCER, Spans, links, shown, text

PRODUCER_SPAN = PRODUCER[3:-3]
HEADERS = {"traceparent": PRODUCER, "tracestate": "vendor=1,other=a b", "tenant": "x"}


def app_with(traces: Any, handle: Callable[..., Any], **options: Any) -> App:
    handler = {name: options.pop(name) for name in ("batch", "workers", "decode") if name in options}
    app = App("memory://", traces=traces, **{"policy": RedeliveryPolicy(dead_after=3, backoff=4.0), **options})
    app.handler("orders", **handler)(handle)
    return app


def failing(times: int, error: Exception | None = None) -> Callable[[Delivery], None]:
    left = [times]

    def handle(delivery: Delivery) -> None:
        if left[0]:
            left[0] -= 1
            raise error or ValueError("no stock, password=hunter2")

    return handle


# -- spans of handlers ------------------------------------------------------------------------------------------------


def test_a_healthy_message_has_one_span_with_the_attributes_of_the_conventions() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(0))) as test:
        test.send("orders", b"fine", HEADERS, message_id="m1", correlation_id="c1")
    (span,) = spans.all
    assert (span.name, span.kind, span.status.status_code) == ("process orders", SpanKind.CONSUMER, StatusCode.UNSET)
    assert shown(span) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": "m1",
        "messaging.message.conversation_id": "c1",
        "redeliver.dialect": "memory+rabbitmq",
        "redeliver.attempt": 1,
        "redeliver.outcome": "accepted",
    }
    assert span.parent is None
    assert links(span) == [(PRODUCER_SPAN, "")]
    assert span.links[0].context.is_remote
    assert span.links[0].context.trace_state == {"vendor": "1", "other": "a b"}
    assert not span.events
    assert span.instrumentation_scope is not None
    assert span.instrumentation_scope.name == "redeliver_mw"
    assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_each_attempt_is_a_trace_of_its_own_with_links_to_the_producer_and_to_the_attempt_before() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(2))) as test:
        test.send("orders", b"late", HEADERS)
        assert len(spans.all) == 1, "the first attempt's span has ended, and while the message is held there is none"
        test.advance(3.0)
        assert len(spans.all) == 1
        test.advance(30.0)
    first, second, _ = spans.all
    assert {span.name for span in spans.all} == {"process orders"}
    assert [links(span) for span in spans.all] == [
        [(PRODUCER_SPAN, "")],
        [(PRODUCER_SPAN, ""), (text(first), "previous attempt")],
        [(PRODUCER_SPAN, ""), (text(second), "previous attempt")],
    ]
    assert len({span.context.trace_id for span in spans.all}) == 3
    assert [span.attributes["redeliver.attempt"] for span in spans.all] == [1, 2, 3]
    told = ("redeliver.outcome", "redeliver.mechanism", "redeliver.delay", "error.type")
    assert [[span.attributes.get(name) for name in told] for span in spans.all] == [
        ["redelivered", "hold", 4.0, "ValueError"],
        ["redelivered", "hold", 4.0, "ValueError"],
        ["accepted", None, None, None],
    ]
    assert [span.status.status_code for span in spans.all] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]


def test_an_exception_is_recorded_once_and_without_its_secrets() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(1))) as test:
        test.send("orders", b"late")
    (span, *_) = spans.all
    (event,) = span.events
    assert event.name == "exception"
    assert event.timestamp == span.end_time
    assert event.attributes["exception.type"] == "ValueError"
    assert event.attributes["exception.message"] == "no stock, password=***"
    assert "raise error or ValueError" in event.attributes["exception.stacktrace"]
    assert span.status.description == "ValueError: no stock, password=***"
    assert "hunter2" not in span.to_json()


def test_an_exception_is_a_log_record_instead_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry import _logs
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor

    monkeypatch.setenv("OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN", "logs")
    kept, provider, spans = InMemoryLogRecordExporter(), LoggerProvider(), Spans()
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    monkeypatch.setattr(_logs, "get_logger", provider.get_logger)
    with TestApp(app_with(spans.provider, failing(1))) as test:
        test.send("orders", b"late")
    (span, *_), (log,) = spans.all, kept.get_finished_logs()
    record = log.log_record
    assert not span.events
    assert (record.event_name, record.severity_number) == ("messaging.process.exception", _logs.SeverityNumber.WARN)
    assert record.attributes["exception.message"] == "no stock, password=***"
    assert (record.trace_id, record.span_id) == (span.context.trace_id, span.context.span_id)


def test_with_retried_unset_only_the_last_attempt_is_an_error() -> None:
    spans = Spans()
    with TestApp(app_with(Traces(spans.provider, retried="unset"), failing(3))) as test:
        test.send("orders", b"broken")
        test.advance(30.0)
    attempts = spans.named("process orders")
    assert [span.status.status_code for span in attempts] == [StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR]
    assert ["error.type" in span.attributes for span in attempts] == [False, False, True]
    assert [len(span.events) for span in attempts] == [1, 1, 1]


def test_a_handler_that_asks_for_another_time_has_not_failed() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(1, RetryAfter(5.0, count=False)))) as test:
        test.send("orders", b"later")
        test.advance(30.0)
    first, second = spans.all
    assert first.attributes["redeliver.outcome"] == "redelivered"
    assert (first.status.status_code, first.events) == (StatusCode.UNSET, ())
    assert links(second) == [(text(first), "previous attempt")]


def test_the_message_that_is_tried_while_a_breaker_is_half_open_has_not_failed() -> None:
    spans = Spans()
    breaker = Breaker(min_calls=2, window=2, open_for=10.0)
    policy = RedeliveryPolicy(dead_after=9, backoff=1.0)
    with TestApp(app_with(spans.provider, failing(3), breaker=breaker, policy=policy)) as test:
        test.send("orders", b"1")
        test.send("orders", b"2")
        test.advance(60.0)
    reasons = [(span.attributes.get("redeliver.reason"), span.status.status_code) for span in spans.all]
    assert ("breaker", StatusCode.UNSET) in reasons


def test_with_first_child_the_first_attempt_is_in_the_trace_of_its_producer() -> None:
    spans = Spans()
    with TestApp(app_with(Traces(spans.provider, first="child"), failing(1))) as test:
        test.send("orders", b"late", HEADERS)
        test.advance(30.0)
    first, second = spans.all
    assert first.parent is not None
    assert (text(first.parent), links(first)) == (PRODUCER_SPAN, [])
    assert (second.parent, links(second)) == (None, [(PRODUCER_SPAN, ""), (text(first), "previous attempt")])


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "nonsense",
        "00-" + "0" * 32 + "-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
        "ff" + PRODUCER[2:],
        PRODUCER + "-more",
        PRODUCER.upper(),
        7,
        b"\xff\xfe",
        None,
    ],
)
def test_a_traceparent_that_is_none_leads_to_no_link(wrong: object) -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(0))) as test:
        test.send("orders", b"fine", {"traceparent": wrong})
        assert test.depth("orders") == 0
    (span,) = spans.all
    assert links(span) == []


def test_a_traceparent_as_bytes_and_one_of_a_later_version_are_read() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(0))) as test:
        test.send("orders", b"1", {"traceparent": PRODUCER.encode()})
        test.send("orders", b"2", {"traceparent": "cc" + PRODUCER[2:] + "-more"})
    assert [links(span) for span in spans.all] == [[(PRODUCER_SPAN, "")]] * 2


def test_the_span_has_the_destination_of_rabbitmq_with_exchange_routing_key_and_queue() -> None:
    from redeliver_mw.telemetry.span_attributes import SourceAttributes
    from redeliver_mw.telemetry.state import ConsumerDescription

    rabbit = ConsumerDescription("rabbitmq+pika", "rabbitmq", "broker.example:5672/shop")
    names = {}
    for exchange, key in (("", "orders"), ("shop", "orders"), ("shop", "order.new"), ("shop", ""), ("", "")):
        delivery = make_delivery(b"x", destination="orders")
        delivery.reader = _Routed({"exchange": exchange, "routing_key": key})
        names[exchange, key] = SourceAttributes(Destination("orders"), rabbit).of(delivery)
    assert {route: found["messaging.destination.name"] for route, found in names.items()} == {
        ("", "orders"): "orders",
        ("shop", "orders"): "shop:orders",
        ("shop", "order.new"): "shop:order.new:orders",
        ("shop", ""): "shop:orders",
        ("", ""): "orders",
    }
    found = names["shop", "order.new"]
    assert (found["server.address"], found["server.port"]) == ("broker.example", 5672)
    assert found["messaging.rabbitmq.destination.routing_key"] == "order.new"
    artemis = SourceAttributes(
        Destination("prices", "topic", "audit"), ConsumerDescription("artemis+proton", "artemis", "[::1]:5673")
    )
    found = artemis.of(make_delivery(b"x"))
    assert artemis.name == "process prices"
    assert found["messaging.destination.subscription.name"] == "audit"
    assert (found["messaging.system"], found["redeliver.dialect"]) == ("activemq", "artemis+proton")
    assert (found["server.address"], found["server.port"]) == ("::1", 5673)


class _Routed:
    def __init__(self, route: dict[str, str]) -> None:
        self._route = route

    def route(self, native: object) -> dict[str, str]:
        return self._route

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


# -- what is current --------------------------------------------------------------------------------------------------


def test_the_span_and_the_baggage_are_current_in_a_handler_and_only_there() -> None:
    spans, seen = Spans(), []

    def handle(delivery: Delivery) -> None:
        seen.append((text(trace.get_current_span().get_span_context()), baggage.get_baggage("tenant")))

    with TestApp(app_with(spans.provider, handle)) as test:
        test.send("orders", b"fine", HEADERS | {"baggage": "tenant=a"})
        test.send("orders", b"fine", HEADERS)
        assert not trace.get_current_span().get_span_context().is_valid
        assert context.get_current() == {}
    assert seen == [(text(spans.all[0]), "a"), (text(spans.all[1]), None)]


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "tasks"])
def test_the_span_is_current_on_threads_and_in_tasks_beside_each_other(is_async: bool) -> None:
    """Each handler makes a span of its own while others are in theirs: its parent is its own message's span."""
    spans, meeting = Spans(), threading.Barrier(3)
    tracer = spans.provider.get_tracer("user")

    def plain(delivery: Delivery) -> None:
        with tracer.start_as_current_span(f"inside {delivery.text}"):
            meeting.wait(10)

    async def task(delivery: Delivery) -> None:
        with tracer.start_as_current_span(f"inside {delivery.text}"):
            await asyncio.to_thread(meeting.wait, 10)

    name, broker = f"traces-{is_async}", MemoryBroker("rabbitmq")
    broker.declare("orders")
    register_broker(name, broker)
    app = App(f"memory://{name}", traces=spans.provider)
    app.handler("orders", workers=3)(task if is_async else plain)
    with app:
        for n in range(6):
            broker.send("orders", f"{n}".encode(), message_id=f"m{n}")
        deadline = time.monotonic() + 20
        while len(spans.named("process orders")) < 6:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    by_id = {span.context.span_id: span for span in spans.named("process orders")}
    for n in range(6):
        (inside,) = spans.named(f"inside {n}")
        assert inside.parent is not None
        assert by_id[inside.parent.span_id].attributes["messaging.message.id"] == f"m{n}"


def test_a_batch_has_one_span_with_a_link_for_each_message() -> None:
    spans, seen = Spans(), []

    def handle(batch: list[Delivery]) -> None:
        seen.append((len(batch), text(trace.get_current_span().get_span_context())))
        if len(batch) > 1:
            raise ValueError("not together")

    app = app_with(spans.provider, handle, batch=5)
    with TestApp(app) as test:
        app.pause("orders")
        for n in range(3):
            test.send(
                "orders", f"{n}".encode(), {"traceparent": f"00-{n + 1:032x}-{n + 1:016x}-01"}, message_id=f"m{n}"
            )
        app.resume("orders")
        test.advance(30.0)
    assert [size for size, _ in seen] == [3, 1, 1, 1]
    batch, *alone = spans.all
    assert text(batch) == seen[0][1]
    assert [span.attributes["messaging.batch.message_count"] for span in spans.all] == [3, 1, 1, 1]
    assert links(batch) == [(f"{n + 1:032x}-{n + 1:016x}", "") for n in range(3)]
    assert [dict(link.attributes or {}).get("messaging.message.id") for link in batch.links[1:]] == ["m1", "m2"]
    assert (batch.attributes["redeliver.outcome"], batch.status.status_code) == ("redelivered", StatusCode.ERROR)
    for n, span in enumerate(alone):
        assert links(span) == [(f"{n + 1:032x}-{n + 1:016x}", ""), (text(batch), "previous attempt")]


def test_a_message_of_a_batch_that_cannot_be_decoded_has_a_span_of_its_own() -> None:
    spans = Spans()

    def decode(body: bytes) -> int:
        return int(body)

    app = app_with(spans.provider, lambda batch: None, batch=5, decode=decode)
    with TestApp(app) as test:
        app.pause("orders")
        for body in (b"1", b"x", b"2"):
            test.send("orders", body)
        app.resume("orders")
        assert not trace.get_current_span().get_span_context().is_valid
    found = [
        (span.attributes["messaging.batch.message_count"], span.status.status_code)
        for span in spans.named("process orders")
        if "messaging.batch.message_count" in span.attributes
    ]
    assert found == [(2, StatusCode.UNSET)]
    (wrong,) = [span for span in spans.named("process orders") if span.status.status_code is StatusCode.ERROR]
    assert wrong.attributes["error.type"] == "ValueError"


def test_a_run_without_a_result_has_a_span_that_says_so() -> None:
    spans = Spans()
    hook = TelemetryHook([Traces(spans.provider).sink()])
    assert hook.run_begins is not None
    assert hook.run_cancelled is not None
    delivery = make_delivery(b"x", destination="orders")
    hook.run_begins(delivery)
    hook.run_cancelled(delivery)
    (span,) = spans.all
    assert (span.attributes["redeliver.outcome"], span.status.status_code) == ("unsettled", StatusCode.UNSET)
    assert not trace.get_current_span().get_span_context().is_valid


# -- copies -----------------------------------------------------------------------------------------------------------


def test_a_dead_letter_carries_its_last_attempt_and_the_trace_headers_as_they_came() -> None:
    spans = Spans()
    with TestApp(app_with(spans.provider, failing(3))) as test:
        test.send("orders", b"broken", HEADERS)
        test.advance(30.0)
        (letter,) = test.dead_letters("orders")
    *_, last = spans.named("process orders")
    assert {name: letter.headers[name] for name in HEADERS} == HEADERS
    assert letter.headers["redeliver_trace"][:53] == f"00-{text(last)}-"
    assert last.attributes["redeliver.outcome"] == "dead_lettered"
    (sent,) = spans.named("send DLQ.orders")
    assert (sent.kind, sent.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert sent.parent is not None
    assert (text(sent.parent), links(sent)) == (text(last), [(PRODUCER_SPAN, "")])
    assert shown(sent) == {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "DLQ.orders",
        "redeliver.dialect": "memory+rabbitmq",
        "redeliver.reason": "exhausted",
    }


def test_a_refused_copy_has_a_span_that_is_an_error() -> None:
    spans, faults = Spans(), Faults()
    app = app_with(spans.provider, failing(1), policy=RedeliveryPolicy(dead_after=1))
    with TestApp(app, faults=faults) as test:
        (target,) = app.dead_letter_targets("orders")
        faults.refuse(target, times=1)
        test.send("orders", b"broken")
        test.advance(20.0)
    refused, taken = spans.named(f"send {target.name}")
    assert (refused.attributes["error.type"], refused.status.status_code) == ("refused", StatusCode.ERROR)
    assert taken.status.status_code is StatusCode.UNSET


def test_links_lead_through_the_limbo_a_dead_letter_and_a_replay(tmp_path: Path) -> None:
    spans = Spans()
    policy = RedeliveryPolicy(dead_after=2, backoff=600.0)
    options = {"limbo": f"sqlite:///{tmp_path}/limbo.db", "delay": "park"}
    with TestApp(app_with(spans.provider, failing(2), policy=policy, **options)) as test:
        test.send("orders", b"broken", HEADERS)
        test.advance(700.0)
        assert test.replay("orders").count("replayed") == 1
        test.advance(1.0)
    first, second, third = spans.named("process orders")
    assert [links(span) for span in (first, second, third)] == [
        [(PRODUCER_SPAN, "")],
        [(PRODUCER_SPAN, ""), (text(first), "previous attempt")],
        [(PRODUCER_SPAN, ""), (text(second), "previous attempt")],
    ]
    assert [span.attributes["redeliver.outcome"] for span in (first, second, third)] == [
        "redelivered",
        "dead_lettered",
        "accepted",
    ]
    assert third.attributes["redeliver.generation"] == 1
    assert "redeliver.replay_id" in third.attributes
    (parked,), (sent,) = spans.named("park orders"), spans.named("send orders")
    assert (parked.kind, text(parked.parent)) == (SpanKind.INTERNAL, text(first))
    assert (sent.parent, links(sent)) == (None, [(PRODUCER_SPAN, ""), (text(first), "previous attempt")])


def test_only_attempts_that_are_recorded_are_linked() -> None:
    class Second(Sampler):
        """Records every second span."""

        n = 0

        def should_sample(self, *values: Any, **named: Any) -> SamplingResult:
            self.n += 1
            return SamplingResult(Decision.DROP if self.n % 2 else Decision.RECORD_AND_SAMPLE)

        def get_description(self) -> str:
            return "every second one"

    spans = Spans(ParentBased(Second()))
    policy = RedeliveryPolicy(dead_after=9, backoff=4.0)
    with TestApp(app_with(spans.provider, failing(3), policy=policy)) as test:
        test.send("orders", b"late")
        test.advance(60.0)
    second, fourth = spans.all
    assert [span.attributes["redeliver.attempt"] for span in spans.all] == [2, 4]
    assert [links(second), links(fourth)] == [[], [(text(second), "previous attempt")]]


def test_without_a_recorded_attempt_copies_have_no_header_and_no_span() -> None:
    spans = Spans(ParentBased(ALWAYS_OFF))
    with TestApp(app_with(spans.provider, failing(3))) as test:
        test.send("orders", b"broken", HEADERS)
        test.advance(30.0)
        (letter,) = test.dead_letters("orders")
    assert "redeliver_trace" not in letter.headers
    assert {name: letter.headers[name] for name in HEADERS} == HEADERS
    assert not spans.all


def test_a_settlement_has_a_span_if_that_is_asked_for() -> None:
    spans = Spans()
    with TestApp(app_with(Traces(spans.provider, settle_spans=True), failing(1))) as test:
        test.send("orders", b"late")
        test.advance(30.0)
        test.send("orders", b"fine")
    attempts, acks = spans.named("process orders"), spans.named("ack orders")
    assert [text(ack.parent) for ack in acks] == [text(attempts[1]), text(attempts[2])]
    assert {ack.kind for ack in acks} == {SpanKind.CLIENT}
    assert shown(acks[0])["messaging.operation.type"] == "settle"


# -- drop-ins ---------------------------------------------------------------------------------------------------------


def test_a_drop_in_wrapper_makes_the_same_spans() -> None:
    spans, seen, left = Spans(), [], [2]

    def callback(message: Message) -> None:
        seen.append(text(trace.get_current_span().get_span_context()))
        if left[0]:
            left[0] -= 1
            raise ValueError("no stock")

    consumer = Consumer(callback, traces=spans.provider, policy=RedeliveryPolicy(dead_after=2, backoff=4.0))
    consumer.put("late")
    consumer.clock.advance(4.0)
    assert not trace.get_current_span().get_span_context().is_valid
    first, second = spans.named("process orders")
    assert seen == [text(first), text(second)]
    assert links(second) == [(text(first), "previous attempt")]
    assert [span.attributes["redeliver.outcome"] for span in (first, second)] == ["redelivered", "dead_lettered"]
    assert text(spans.named("send DLQ.orders")[0].parent) == text(second)


def test_a_callback_that_settles_by_itself_has_a_span_with_its_outcome() -> None:
    spans = Spans()
    kept: list[Message] = []

    def callback(message: Message) -> None:
        if message.text == "ack":
            message.ack()
        elif message.text == "nack":
            message.nack()
        else:
            kept.append(message)

    consumer = Consumer(callback, traces=spans.provider, settle="callback", policy=RedeliveryPolicy(backoff=4.0))
    consumer.put("ack", "nack", "later")
    assert [span.attributes["redeliver.outcome"] for span in spans.all] == ["accepted", "redelivered"]
    assert [span.status.status_code for span in spans.all] == [StatusCode.UNSET, StatusCode.ERROR]
    kept[0].ack()
    assert spans.all[2].attributes["redeliver.outcome"] == "accepted"


def test_a_span_whose_outcome_is_not_heard_of_ends_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spans, now = Spans(), [time.time_ns()]
    monkeypatch.setattr("redeliver_mw.telemetry.traces.time_ns", lambda: now[0])
    consumer = Consumer(lambda message: None, traces=spans.provider, settle="callback")
    consumer.put("never settled")
    assert not spans.all
    now[0] += 61_000_000_000
    consumer.put("next")
    (span,) = spans.all
    assert "redeliver.outcome" not in span.attributes


# -- options, and what it costs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["yes", 1, object(), App])
def test_traces_that_cannot_be_made_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"traces=.* is not True, a TracerProvider or a Traces"):
        App("memory://", traces=wrong)


@pytest.mark.parametrize("wrong", [{"first": "parent"}, {"retried": True}, {"tracer_provider": "x"}])
def test_options_of_traces_that_cannot_be_used_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Traces(**wrong)


def test_without_traces_nothing_of_opentelemetry_is_imported_and_no_moment_is_wanted() -> None:
    code = """
import sys
from redeliver_mw import App
app = App("memory://")
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
from redeliver_mw.telemetry.hook import MOMENTS, TelemetryHook
hook = TelemetryHook([*app._metrics.sinks, *app._tracing, *app._sinks])
assert all(getattr(hook, moment) is None for moment in MOMENTS)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_without_opentelemetry_the_extra_is_named() -> None:
    code = """
import sys
sys.modules["opentelemetry"] = None
from redeliver_mw import App
from redeliver_mw.errors import MissingExtra
try:
    App("memory://", traces=True)
except MissingExtra as error:
    assert "redeliver-mw[otel]" in error.cure, error.cure
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_true_and_traced_use_the_global_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = Spans()
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", spans.provider)
    with TestApp(app_with(True, failing(0))) as test:
        test.send("orders", b"fine")
    app = app_with(None, failing(0))
    app.traced()
    with TestApp(app) as test:
        test.send("orders", b"fine")
    assert [span.name for span in spans.all] == ["process orders"] * 2


def test_a_failing_tracer_provider_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Sampler):
        def should_sample(self, *values: Any, **named: Any) -> SamplingResult:
            raise OSError("no sampler")

        def get_description(self) -> str:
            return "broken"

    app = app_with(TracerProvider(sampler=Broken()), failing(0))
    with TestApp(app) as test:
        for n in range(3):
            test.send("orders", f"{n}".encode())
        assert test.depth("orders") == 0
    assert [r.getMessage() for r in caplog.records if "SpanMaker" in r.getMessage()] == [
        "SpanMaker failed in run_begins; later errors of this kind are not logged"
    ]


def test_the_answers_of_a_broker_to_copies_that_nobody_traced_are_ignored() -> None:
    spans = Spans()
    hook = TelemetryHook([Traces(spans.provider).sink()])
    assert hook.copy_answered is not None
    assert hook.parked_copy_answered is not None
    copy = Outgoing(Destination("orders"), b"x", {})
    hook.copy_answered(copy, "ok", "", Moment(0.0, 0.0), 0.0)
    hook.parked_copy_answered(copy, "ok", "", Moment(0.0, 0.0), 0.0)
    assert not spans.all
