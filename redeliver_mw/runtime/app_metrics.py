# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `App(metrics=…)`, and serves the metrics of one App while it runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..telemetry.hook import TelemetrySink
from ..telemetry.page_server import ServedPages, ServerAddress, serving

if TYPE_CHECKING:
    from ..telemetry.prometheus import PrometheusMetrics

PATH = "/metrics"


class AppMetrics:
    """Holds the metrics of an App, if it has any, and the address that it serves them at, if that is its own task.

    Raises ConfigError for a value that is neither an address nor a PrometheusMetrics, MissingExtra without
    prometheus-client.
    """

    def __init__(self, given: object) -> None:
        self._metrics: PrometheusMetrics | None = None
        self.address: ServerAddress | None = None
        self._serving = ExitStack()
        if isinstance(given, str):
            self.address = ServerAddress.parse(given, "metrics")
            self.get()
        elif given is not None:
            self._metrics = self._meant(given)

    def _meant(self, given: object) -> PrometheusMetrics:
        from ..telemetry.prometheus import PrometheusMetrics

        if not isinstance(given, PrometheusMetrics):
            raise ConfigError(
                f"metrics={given!r} is neither HOST:PORT nor a PrometheusMetrics",
                cure='Write metrics="127.0.0.1:9400", or metrics=PrometheusMetrics()',
                code="option-value",
            )
        return given

    def get(self) -> PrometheusMetrics:
        """Return the metrics; from now on there are some. Raises MissingExtra."""
        if self._metrics is None:
            from ..telemetry.prometheus import PrometheusMetrics

            self._metrics = PrometheusMetrics()
        return self._metrics

    @property
    def sinks(self) -> list[TelemetrySink]:
        """Return what counts, or nothing if there are no metrics."""
        return [] if self._metrics is None else [self._metrics.tallies]

    def start(self) -> None:
        """Serve the metrics, if there is an address. Raises ConfigError or RedeliverError if it cannot be had."""
        if self.address is not None:
            pages = {PATH: self.get().page}
            self._serving.enter_context(serving(ServedPages(self.address, "metrics", pages)))

    def close(self) -> None:
        """Stop serving."""
        self._serving.close()
