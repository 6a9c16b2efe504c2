# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows the metrics to Prometheus: as a collector in a registry, as text, and as an ASGI application.

Needs the extra `prometheus`. The values are read when Prometheus asks for them, from a `Tallies` that every message is
counted in, or from what the processes of a supervisor have reported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from ..errors import ConfigError, MissingExtra
from .families import BOUNDS, FAMILIES, MetricFamily
from .page_server import Answer
from .samples import HistogramValue, Labels, Samples, Value
from .tallies import Tallies

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
except ImportError as error:
    raise MissingExtra(
        "prometheus-client is not installed",
        where="metrics",
        cure='Run: pip install "redeliver-mw[prometheus]"',
    ) from error

__all__ = ["PrometheusMetrics", "metrics_app"]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PrometheusMetrics:
    """Holds the metrics of one program in a Prometheus registry. Thread-safe.

    Give it to `App(metrics=…)`, or to a drop-in wrapper; several Apps and wrappers may share it.

        metrics = PrometheusMetrics()
        app = App("amqp://localhost", metrics=metrics)

    - `registry`: the registry to show the metrics in; None: one of its own. The global registry of prometheus-client is
      `prometheus_client.REGISTRY`.
    - `samples`: where the values come from; None: from `tallies`, in which an App counts.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, samples: Callable[[], Samples] | None = None
    ) -> None:
        """Register the metrics. Raises ConfigError if the registry has them already."""
        self.tallies = Tallies()
        self.registry = CollectorRegistry() if registry is None else registry
        self._samples = samples or self.tallies.samples
        try:
            self.registry.register(self)
        except ValueError:
            raise ConfigError(
                "this registry has the metrics of redeliver-mw already",
                where="metrics",
                cure="Make one PrometheusMetrics for a registry, and give it to every App and wrapper",
                code="option-value",
            ) from None

    def describe(self) -> Iterable[Metric]:
        """Return every metric without values. Called by the registry."""
        return (_metric(family, {}) for family in FAMILIES)

    def collect(self) -> Iterator[Metric]:
        """Return every metric with its values. Called by the registry."""
        samples = self._samples()
        for family in FAMILIES:
            if values := samples.get(family.name):
                yield _metric(family, values)

    def text(self, accept: str = "") -> tuple[bytes, str]:
        """Return all metrics of the registry, and their content type, in the format that `accept` asks for."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def page(self, accept: str) -> Answer:
        """Return the answer of `/metrics`."""
        return Answer(HTTPStatus.OK, *self.text(accept))


class MetricsApp:
    """Answers every HTTP request with the metrics. An ASGI application."""

    def __init__(self, metrics: PrometheusMetrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            return
        headers: Mapping[bytes, bytes] = dict(scope.get("headers") or ())
        get, head = scope["method"] == "GET", scope["method"] == "HEAD"
        body, content_type = b"use GET\n", "text/plain; charset=utf-8"
        if get or head:
            body, content_type = self._metrics.text(headers.get(b"accept", b"").decode("latin-1"))
        fields = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
        if not (get or head):
            fields.append((b"allow", b"GET, HEAD"))
        await send({"type": "http.response.start", "status": 200 if get or head else 405, "headers": fields})
        await send({"type": "http.response.body", "body": b"" if head else body})


def metrics_app(metrics: PrometheusMetrics) -> MetricsApp:
    """Return an ASGI application that answers with the metrics, to be mounted, as in `Mount("/metrics", …)`."""
    return MetricsApp(metrics)


def _metric(family: MetricFamily, values: Mapping[Labels, Value]) -> Metric:
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for labels, value in values.items():
            if isinstance(value, HistogramValue):
                histogram.add_metric(labels, _buckets(value), value.sum)
        return histogram
    of_kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
    metric = of_kind(family.name, family.help, labels=family.labels)
    for labels, value in values.items():
        if not isinstance(value, HistogramValue):
            metric.add_metric(labels, value)
    return metric


def _buckets(value: HistogramValue) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus has them: each one counts also what fell into those before it."""
    found, total = [], 0
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), value.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
