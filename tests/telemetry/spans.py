# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a tracer provider that keeps its spans, and what tests ask about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

PRODUCER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """Gives a provider, and has every span that has ended."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler) if sampler is not None else TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]


def text(span: Any) -> str:
    """Return the span as `traceparent` has it, without its flags."""
    context = getattr(span, "context", span)
    return f"{context.trace_id:032x}-{context.span_id:016x}"


def links(span: ReadableSpan) -> list[tuple[str, str]]:
    """Return the spans that a span has links to, each with our word for the link."""
    found = []
    for link in span.links:
        about = dict(link.attributes or {})
        found.append((text(link.context), str(about.get("redeliver.link", ""))))
    return found


def shown(span: ReadableSpan) -> dict[str, Any]:
    """Return the attributes of a span, without those that differ from run to run."""
    return {name: value for name, value in (span.attributes or {}).items() if name not in _VARYING}


_VARYING = ("redeliver.lineage", "redeliver.copy_id", "redeliver.fingerprint", "redeliver.replay_id")
