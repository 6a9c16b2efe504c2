# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Collects spans over OTLP/HTTP, as the exporter of the SDK sends them, and keeps them."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, slots=True)
class Received:
    """Holds one span as it came: ids as hex digits, and links as pairs of a span's id and its attributes."""

    service: str
    name: str
    kind: int
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: list[tuple[str, dict[str, Any]]]
    events: list[str]
    status: int
    begun: int


@dataclass
class Collector:
    """Has every span that came to `endpoint`."""

    endpoint: str = ""
    spans: list[Received] = field(default_factory=list)
    wait: float = 0.0  # seconds before each answer

    def until(self, done: Callable[[list[Received]], bool], timeout: float = 30.0) -> list[Received]:
        deadline = time.monotonic() + timeout
        while not done(list(self.spans)):
            assert time.monotonic() < deadline, [span.name for span in self.spans]
            time.sleep(0.02)
        return list(self.spans)


@contextmanager
def collecting(wait: float = 0.0) -> Iterator[Collector]:
    collector = Collector(wait=wait)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            collector.spans += received(ExportTraceServiceRequest.FromString(body))
            time.sleep(collector.wait)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            with suppress(ConnectionError):  # an exporter that was shut down does not wait for it
                self.wfile.write(answer)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        collector.endpoint = f"http://127.0.0.1:{server.server_port}/v1/traces"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield collector
        server.shutdown()


def received(request: ExportTraceServiceRequest) -> list[Received]:
    found = []
    for resource in request.resource_spans:
        service = _plain(resource.resource.attributes).get("service.name", "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                links = [(link.span_id.hex(), _plain(link.attributes)) for link in span.links]
                found.append(
                    Received(
                        service,
                        span.name,
                        span.kind,
                        span.trace_id.hex(),
                        span.span_id.hex(),
                        span.parent_span_id.hex(),
                        _plain(span.attributes),
                        links,
                        [event.name for event in span.events],
                        span.status.code,
                        span.start_time_unix_nano,
                    )
                )
    return found


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def picture(spans: list[Received], queue: str) -> str:
    """Return the spans as text, a line for each, in order of time. The queue is called `orders`."""
    names = {span.id: _called(span) for span in spans}
    lines = []
    for span in sorted(spans, key=lambda span: span.begun):
        from_ = [names[id_] for id_, _ in span.links if id_ in names]
        inside = names.get(span.parent, "")
        about = f"in {inside}" if inside else ""
        links = f"links: {', '.join(from_)}" if from_ and not inside else ""
        told = _told(span).replace(queue, "orders")
        lines.append(f"{span.service:10}{told:54}{about or links}".rstrip())
    return "\n".join(lines)


def _called(span: Received) -> str:
    generation = span.attributes.get("redeliver.generation", 0)
    if "redeliver.attempt" not in span.attributes:
        return "the producer" if span.kind == 4 else span.name
    return f"attempt {span.attributes['redeliver.attempt']}" + (" after the replay" if generation else "")


def _told(span: Received) -> str:
    about = [
        _called(span) if "redeliver.attempt" in span.attributes else "",
        span.attributes.get("redeliver.outcome", ""),
        span.attributes.get("redeliver.mechanism", ""),
    ]
    return ", ".join([span.name, *filter(None, about)])
