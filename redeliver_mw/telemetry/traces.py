# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes OpenTelemetry spans: one for each run of a handler, and one for each copy that is sent or parked.

Needs the extra `otel`, which is `opentelemetry-api` alone: what becomes of the spans is decided by the tracer provider
of the program. A span is current while its handler runs. It ends when the handler does, and is handed to the tracer
provider once it is known what became of the message. While a message is held there is no span.

A span of a handler has links to the span that the message was produced in, and to the previous attempt:

    producer   ──traceparent──┐───────────────────┐
                              ▼ link              ▼ link
               process orders (attempt 1)   process orders (attempt 2)
                              └── redeliver_trace ──▲ link

The previous attempt is known here while the message is held, and by the header `redeliver_trace` of a copy.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar, Token
from functools import partial
from importlib.metadata import version
from time import time_ns
from typing import Any, Final, Literal, cast, get_args, overload

from ..adapter.capabilities import Settlement
from ..clock import Moment
from ..errors import ConfigError, MissingExtra, Undecodable
from ..failure import Failure, describe
from ..message import Delivery, Destination, Outgoing, SupportsTextLookup, finds_texts
from ..redelivery.commands import RecordAttempt
from ..redelivery.headers import trace_of
from .hook import TelemetrySink
from .span_attributes import (
    NO_ERRORS,
    SCHEMA,
    SETTLEMENTS,
    Attributes,
    SourceAttributes,
    Value,
    consumer_attributes,
    copy_attributes,
    description,
    error_type,
    is_failure,
    message_attributes,
    outcome_attributes,
    raised,
)
from .state import ConsumerDescription, ObservedConsumer

try:
    from opentelemetry import _logs as otel_logs
    from opentelemetry import context as otel_context
    from opentelemetry import propagate
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.context import Context
    from opentelemetry.trace import (
        Link,
        NonRecordingSpan,
        Span,
        SpanContext,
        SpanKind,
        Status,
        StatusCode,
        TraceFlags,
        Tracer,
        TracerProvider,
        TraceState,
        get_current_span,
        get_tracer,
        set_span_in_context,
    )
except ImportError as error:
    raise MissingExtra(
        "opentelemetry-api is not installed",
        where="traces",
        cure='Run: pip install "redeliver-mw[otel]"',
    ) from error

__all__ = ["Traces"]

FirstAttempt = Literal["link", "child"]
Retried = Literal["error", "unset"]

OUTCOME_NS: Final = 60_000_000_000  # after so long the span of a run ends without what became of the message
SWEEP_NS: Final = 1_000_000_000
MOST_COPIES: Final = 10_000  # copies without an answer of which we know how they were sent
W3C_FIELDS: Final = frozenset({"traceparent", "tracestate", "baggage"})
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_PREVIOUS: Final = {"redeliver.link": "previous attempt"}
_ROOT: Final = Context()
_BAGGAGE: Final = W3CBaggagePropagator()


class Traces:
    """Says how an App, or a drop-in wrapper, makes spans.

    Give it to `App(traces=…)` or to a drop-in wrapper, which also take `True` and a TracerProvider for its defaults.

        app = App("amqp://localhost", traces=Traces(retried="unset"))

    - `tracer_provider`: makes the spans; None: OpenTelemetry's global one.
    - `first`: with `child` the first attempt is a child of the producer's span, in the producer's trace; with `link` it
      is a trace of its own, as later attempts always are, with a link to the producer's span.
    - `retried`: with `unset` a failed attempt that is followed by another one is not marked as an error.
    - `settle_spans`: make a span for each settlement as well.

    Raises ConfigError for an option that cannot be used.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        *,
        first: FirstAttempt = "link",
        retried: Retried = "error",
        settle_spans: bool = False,
    ) -> None:
        """Take the options. Raises ConfigError for an option that cannot be used."""
        if tracer_provider is not None and not isinstance(tracer_provider, TracerProvider):
            raise _refused(f"tracer_provider={tracer_provider!r:.200} is no TracerProvider")
        if first not in get_args(FirstAttempt):
            raise _refused(f'first={first!r:.200} is neither "link" nor "child"')
        if retried not in get_args(Retried):
            raise _refused(f'retried={retried!r:.200} is neither "error" nor "unset"')
        self.tracer_provider = tracer_provider
        self.first: FirstAttempt = first
        self.retried: Retried = retried
        self.settle_spans = bool(settle_spans)

    @classmethod
    def meant(cls, given: object) -> Traces:
        """Return the traces that `given` stands for. Raises ConfigError if it stands for none."""
        if isinstance(given, Traces):
            return given
        if given is True:
            return cls()
        if isinstance(given, TracerProvider):
            return cls(given)
        raise _refused(f"traces={given!r:.200} is not True, a TracerProvider or a Traces")

    def sink(self) -> TelemetrySink:
        """Return what makes the spans of one App or drop-in wrapper."""
        return _SettlementTracer(self) if self.settle_spans else SpanMaker(self)


def _refused(what: str) -> ConfigError:
    return ConfigError(
        what, where="traces", cure="Write traces=True, or traces=Traces(…) with its options", code="option-value"
    )


class HandlerSpan:
    """Holds one run of a handler whose span has not ended, with one delivery, or with those of a batch.

    - `token`: None if the span is current no more, or only in a task; else it is current in `thread`.
    - `begun`: of a batch: at least one of its deliveries has ended, so no other joins it.
    - `ended_ns`: when the handler ended, in nanoseconds since 1970; 0 while it runs.
    - `outcomes`: what became of the deliveries, as far as it is known; None: handled at the first attempt.
    - `about`: the attributes of the first delivery of a batch, which the span gets if there is no other.
    """

    batched = False
    begun = False
    ended_ns = 0
    error: BaseException | None = None
    outcomes: tuple[RecordAttempt | None, ...] = ()
    about: Attributes | None = None

    def __init__(self, span: Span, token: Token[Context], delivery: Delivery) -> None:
        self.span, self.recording = span, span.is_recording()
        self.token: Token[Context] | None = token
        self.thread = threading.get_ident()
        self.deliveries = [delivery]

    @property
    def is_known(self) -> bool:
        """Return whether it is known what became of every delivery."""
        return self.ended_ns > 0 and len(self.outcomes) >= len(self.deliveries)


class SpanMaker(TelemetrySink):
    """Makes the spans of one App or drop-in wrapper. Thread-safe."""

    wants_run_times = False

    def __init__(self, options: Traces) -> None:
        self._options = options
        self._tracer: Tracer = get_tracer(
            "redeliver_mw", version("redeliver-mw"), options.tracer_provider, schema_url=SCHEMA
        )
        self._first_is_child = options.first == "child"
        self._other_formats = bool(set(propagate.get_global_textmap().fields) - W3C_FIELDS)
        self._exceptions_as_logs = "logs" in os.environ.get("OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN", "")
        self._consumer: ConsumerDescription | None = None
        self._common = consumer_attributes(None)
        self._sources: dict[Destination, SourceAttributes] = {}
        self._batched: frozenset[Destination] = frozenset()
        self._runs: dict[Delivery, HandlerSpan] = {}
        self._copies: dict[str, tuple[float, bool]] = {}  # by copy id: its delay, and whether it is parked
        self._batch: ContextVar[HandlerSpan | None] = ContextVar(
            "redeliver_mw.batch", default=None
        )  # of a thread, or a task
        self._lock = threading.Lock()
        self._sweep_ns = 0

    def started(self, consumer: ObservedConsumer, /) -> None:
        self._consumer = consumer.telemetry_description()
        self._common = consumer_attributes(self._consumer)
        self._batched = self._consumer.batched
        self._sources = {}

    def stopped(self, consumer: ObservedConsumer, /) -> None:
        self._sweep(time_ns() + OUTCOME_NS)

    # -- runs ---------------------------------------------------------------------------------------

    def run_begins(self, delivery: Delivery, /) -> None:
        earlier = self._runs.pop(delivery, None)
        if earlier is not None and earlier.ended_ns:
            self._end(earlier)
        if delivery.destination in self._batched:
            self._gather(delivery)
        else:
            self._runs[delivery] = self._begin(delivery, batched=False)

    def run_goes_on(self, delivery: Delivery, /) -> None:
        run = self._runs.get(delivery)
        if run is not None:
            _leave(run)

    def run_ended(self, delivery: Delivery, error: BaseException | None, at: Moment, ran: float, /) -> None:
        run = self._runs.get(delivery)
        if run is None:
            return
        if run.batched and isinstance(error, Undecodable):
            run = self._apart(run, delivery)
        run.begun = True
        _leave(run)
        if not run.recording:
            self._runs.pop(delivery, None)
            return
        now = time_ns()
        with self._lock:
            if not run.ended_ns:
                run.ended_ns, run.error = now, error
            known = run.is_known
        if known:
            self._finish(run)
        if now > self._sweep_ns:
            self._sweep_ns = now + SWEEP_NS
            self._sweep(now)

    def run_cancelled(self, delivery: Delivery, /) -> None:
        run = self._runs.pop(delivery, None)
        if run is None:
            return
        _leave(run)
        if run.recording:
            run.span.set_attributes(_single(run) | {"redeliver.outcome": "unsettled"})
            run.span.end()

    def handled(self, delivery: Delivery, at: Moment, ran: float, /) -> None:
        run = self._runs.get(delivery)
        if run is None:
            return
        if run.batched or not run.ended_ns:
            self._learn(delivery, None)
        elif self._runs.pop(delivery, None) is run:  # the usual end, which needs no lock
            run.span.set_attribute("redeliver.outcome", "accepted")
            run.span.end(run.ended_ns)

    def attempt_recorded(self, attempt: RecordAttempt, /) -> None:
        self._learn(attempt.delivery, attempt)

    def _learn(self, delivery: Delivery, attempt: RecordAttempt | None) -> None:
        """Note what became of a delivery; the span of its run may end now."""
        run = self._runs.get(delivery)
        if run is None:
            return
        with self._lock:
            run.outcomes += (attempt,)
            known = run.is_known
        if known:
            self._finish(run)

    def _begin(self, delivery: Delivery, *, batched: bool) -> HandlerSpan:
        header = _text_of(delivery) if finds_texts(type(delivery.reader)) else delivery.headers.get
        previous, parent, first = delivery.past.trace if delivery.known else "", _ROOT, None
        if self._first_is_child and not (previous or delivery.failures):
            first = self._producer(delivery, header)
            if first is not None:
                parent = set_span_in_context(NonRecordingSpan(first), _ROOT)
        links = () if first is not None else _Links(self._producer, delivery, header, previous)
        source = self._sources.get(delivery.destination) or self._source(delivery.destination)
        about = _Attributes(source, delivery, whole=not batched)
        span = self._tracer.start_span(source.name, parent, SpanKind.CONSUMER, attributes=about, links=links)
        carried = header("baggage")
        baggage = _BAGGAGE.extract({"baggage": str(carried)}, otel_context.get_current()) if carried else None
        run = HandlerSpan(span, otel_context.attach(set_span_in_context(span, baggage)), delivery)
        if run.recording:
            delivery.trace = _text(span.get_span_context())
            if not about.is_read:  # the sampler has not handed them on
                span.set_attributes(about)
            if batched:
                run.about = message_attributes(delivery)
        return run

    def _source(self, source: Destination) -> SourceAttributes:
        found = self._sources.get(source)
        if found is None:
            found = self._sources[source] = SourceAttributes(source, self._consumer)
        return found

    def _producer(self, delivery: Delivery, header: Callable[[str], object]) -> SpanContext | None:
        """Return the span that the message was produced in."""
        if (text := header("traceparent")) is not None:
            return _span_context(text, header("tracestate"))
        if not self._other_formats:
            return None
        found = get_current_span(propagate.extract(_Carrier(delivery.headers), _ROOT)).get_span_context()
        return found if found.is_valid else None

    def _finish(self, run: HandlerSpan) -> None:
        """End the span of a run of which all is known, once."""
        with self._lock:
            found = [self._runs.pop(delivery, None) for delivery in run.deliveries]
        if run in found:
            self._end(run)

    def _sweep(self, now: int) -> None:
        """End the spans of runs that were over long ago, and of which nothing more was heard."""
        waiting = {id(run): run for run in list(self._runs.values())}
        for run in waiting.values():
            if run.ended_ns and now - run.ended_ns >= OUTCOME_NS:
                self._finish(run)

    def _end(self, run: HandlerSpan) -> None:
        """End the span of a run, with what is known of it."""
        span, last = run.span, run.outcomes[-1] if run.outcomes else None
        about = _single(run)
        if len(run.deliveries) == 1:
            if run.outcomes:
                about |= outcome_attributes(last)
        elif len(outcomes := {"accepted" if one is None else one.outcome for one in run.outcomes}) == 1:
            about["redeliver.outcome"] = outcomes.pop()
        if run.batched:
            about["messaging.batch.message_count"] = len(run.deliveries)
        span.set_attributes(about)
        error, failure = raised(run.error), None if last is None else last.failure
        if error is not None or (failure is not None and last is not None and last.outcome != "accepted"):
            self._set_error(run, error, failure or describe(cast(BaseException, error)), last)
        span.end(run.ended_ns)

    def _set_error(
        self, run: HandlerSpan, error: BaseException | None, failure: Failure, last: RecordAttempt | None
    ) -> None:
        outcome, reason = ("", "") if last is None else (last.outcome, last.reason)
        retried = outcome in ("redelivered", "released")
        if reason in NO_ERRORS or (retried and error is not None and not is_failure(error)):
            return
        cause = error if error is None or error.__cause__ is None or failure.type == type(error).__name__ else None
        kind = failure.type if cause is None else error_type(cause)
        self._record(run, kind, failure)
        if not (retried and self._options.retried == "unset"):
            run.span.set_attribute("error.type", kind)
            run.span.set_status(Status(StatusCode.ERROR, description(kind, failure.message)))

    def _record(self, run: HandlerSpan, kind: str, failure: Failure) -> None:
        """Record the exception, once, as an event of the span, or as a log record where the environment says so."""
        about = {"exception.type": kind, "exception.message": failure.message, "exception.stacktrace": failure.text}
        if not self._exceptions_as_logs:
            run.span.add_event("exception", about, run.ended_ns)
            return
        record = otel_logs.LogRecord(
            timestamp=run.ended_ns,
            context=set_span_in_context(run.span, _ROOT),
            severity_number=otel_logs.SeverityNumber.WARN,
            attributes=about,
            event_name="messaging.process.exception",
        )
        otel_logs.get_logger("redeliver_mw", version("redeliver-mw"), schema_url=SCHEMA).emit(record)

    # -- batches --------------------------------------------------------------------------------------

    def _gather(self, delivery: Delivery) -> None:
        """Begin the span of a batch with its first delivery; later ones of the same batch join it, with their links."""
        run = self._batch.get()
        if run is None or run.begun or run.token is None or run.deliveries[0].destination != delivery.destination:
            run = self._begin(delivery, batched=True)
            run.batched = True
            self._batch.set(run)
        else:
            run.deliveries.append(delivery)
            if run.recording:
                delivery.trace = _text(run.span.get_span_context())
                producer = self._producer(delivery, delivery.headers.get)
                if producer is not None:
                    about = message_attributes(delivery)
                    run.span.add_link(producer, about)
        self._runs[delivery] = run

    def _apart(self, batch: HandlerSpan, delivery: Delivery) -> HandlerSpan:
        """Take a delivery that cannot be decoded out of its batch, and give it a span of its own."""
        batch.deliveries.remove(delivery)
        if not batch.deliveries:  # the batch's own span is never ended: there is no such batch
            _leave(batch)
            batch.begun = True
        run = self._runs[delivery] = self._begin(delivery, batched=False)
        return run

    # -- copies -----------------------------------------------------------------------------------------

    def copy_sent(self, copy: Outgoing, after: float, parked: bool, /) -> None:
        if after or parked:
            if len(self._copies) >= MOST_COPIES:
                self._copies.clear()
            self._copies[copy.copy_id] = (after, parked)

    def copy_answered(self, copy: Outgoing, verdict: str, why: str, at: Moment, seconds: float, /) -> None:
        after, parked = self._copies.pop(copy.copy_id, (0.0, False))
        parent = copy.settles.trace if copy.settles is not None else ""
        if not parent and not trace_of(copy.headers):
            return  # no attempt of the message was recorded
        about = copy_attributes(self._common, copy, "park" if parked else "send")
        if after:
            about["redeliver.delay"] = after
        self._send_span(copy, parent, about, verdict, why, seconds)

    def parked_copy_answered(self, copy: Outgoing, verdict: str, why: str, at: Moment, seconds: float, /) -> None:
        if trace_of(copy.headers):
            self._send_span(copy, "", copy_attributes(self._common, copy, "send"), verdict, why, seconds)

    def _send_span(
        self, copy: Outgoing, parent: str, about: Attributes, verdict: str, why: str, seconds: float
    ) -> None:
        """Make the span of a copy: a child of the attempt that it follows, or with a link to an attempt elsewhere."""
        links = []
        if (found := _span_context(copy.headers.get("traceparent"))) is not None:
            links.append(Link(found))
        if not parent and (found := _span_context(trace_of(copy.headers))) is not None:
            links.append(Link(found, _PREVIOUS))
        name = f"{about['messaging.operation.name']} {copy.target.name}"
        kind = SpanKind.CLIENT if about["messaging.operation.name"] == "send" else SpanKind.INTERNAL
        self._past_span(name, kind, parent, about, links, seconds, "" if verdict == "ok" else verdict, why)

    def _past_span(
        self,
        name: str,
        kind: SpanKind,
        parent: str,
        about: Attributes,
        links: Iterable[Link],
        seconds: float,
        error: str = "",
        why: str = "",
    ) -> None:
        """Make a span that has just ended, `seconds` after its begin. `parent`: the text of a span here, or empty."""
        now = time_ns()
        within = _span_context(parent, remote=False)
        context = _ROOT if within is None else set_span_in_context(NonRecordingSpan(within), _ROOT)
        begin = now - max(0, round(seconds * 1e9))
        span = self._tracer.start_span(name, context, kind, attributes=about, links=list(links), start_time=begin)
        if error and span.is_recording():
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR, description(error, why)))
        span.end(now)


class _SettlementTracer(SpanMaker):
    """Makes spans of settlements as well."""

    def handled(self, delivery: Delivery, at: Moment, ran: float, /) -> None:
        self._settled(delivery, "accepted", 0.0)
        super().handled(delivery, at, ran)

    def settled(self, delivery: Delivery, settlement: Settlement, at: Moment, seconds: float, /) -> None:
        self._settled(delivery, settlement, seconds)

    def _settled(self, delivery: Delivery, settlement: Settlement, seconds: float) -> None:
        if not delivery.trace:
            return
        verb = SETTLEMENTS[settlement]
        about = {
            **self._source(delivery.destination).of(delivery),
            "messaging.operation.name": verb,
            "messaging.operation.type": "settle",
            "redeliver.settlement": settlement,
        }
        if (message_id := delivery.message_id) is not None:
            about["messaging.message.id"] = message_id
        name = f"{verb} {delivery.destination.name}"
        self._past_span(name, SpanKind.CLIENT, delivery.trace, about, (), seconds)


class _Links(Sequence[Link]):
    """Holds the links of a span. They are read from the message only if the sampler, or the span, asks for them."""

    def __init__(
        self,
        producer: Callable[[Delivery, Callable[[str], object]], SpanContext | None],
        delivery: Delivery,
        header: Callable[[str], object],
        previous: str,
    ) -> None:
        self._found: list[Link] | None = None
        self._producer, self._delivery, self._header, self._previous = producer, delivery, header, previous

    def _read(self) -> list[Link]:
        if self._found is None:
            self._found = []
            if (producer := self._producer(self._delivery, self._header)) is not None:
                self._found.append(Link(producer))
            if self._previous and (context := _span_context(self._previous)) is not None:
                self._found.append(Link(context, _PREVIOUS))
        return self._found

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Link]:
        return iter(self._read())

    @overload
    def __getitem__(self, index: int) -> Link: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Link]: ...
    def __getitem__(self, index: int | slice) -> Link | Sequence[Link]:
        return self._read()[index]


class _Attributes(Mapping[str, Value]):
    """Holds the attributes of an attempt. They are read from the message only if the sampler, or the span, asks.

    Without `whole` only those that the messages of a batch have in common.
    """

    def __init__(self, source: SourceAttributes, delivery: Delivery, *, whole: bool) -> None:
        self._source, self._delivery, self._whole = source, delivery, whole
        self._found: Attributes | None = None

    @property
    def is_read(self) -> bool:
        return self._found is not None

    def _read(self) -> Attributes:
        if self._found is None:
            of_source = self._source.of(self._delivery)
            self._found = {**of_source, **message_attributes(self._delivery)} if self._whole else of_source
        return self._found

    def items(self) -> ItemsView[str, Value]:  # which is what a span asks for; the inherited one takes longer
        return self._read().items()

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __getitem__(self, name: str) -> Value:
        return self._read()[name]


def _single(run: HandlerSpan) -> Attributes:
    """Return the attributes of the message of a batch of one; others have theirs from the begin, or on their links."""
    return dict(run.about or {}) if len(run.deliveries) == 1 else {}


def _leave(run: HandlerSpan) -> None:
    """Make the span of a run current no more. Nothing to do in another thread, in which it is not."""
    token, run.token = run.token, None
    if token is not None and run.thread == threading.get_ident():
        otel_context.detach(token)


class _Carrier(dict[str, str]):
    """Holds the headers that are text, as propagators read them."""

    def __init__(self, headers: dict[str, Any]) -> None:
        super().__init__({name: value for name, value in headers.items() if isinstance(value, str)})


def _text_of(delivery: Delivery) -> Callable[[str], str | None]:
    """Return what finds the text of one header of a delivery."""
    return partial(cast(SupportsTextLookup, delivery.reader).header_text, delivery.native)


def _span_context(text: object, state: object = None, *, remote: bool = True) -> SpanContext | None:
    """Return the span of a `traceparent`; None if it is not of W3C's form. `state`: the `tracestate` beside it."""
    if isinstance(text, bytes):
        text = text.decode("latin-1")
    found = _TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace_id, span_id = int(found[2], 16), int(found[3], 16)
    if not trace_id or not span_id:
        return None
    states = TraceState.from_header([state]) if isinstance(state, str) and state else None
    return SpanContext(trace_id, span_id, remote, TraceFlags(int(found[4], 16)), states)


def _text(context: SpanContext) -> str:
    """Return a span in the form of `traceparent`."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
