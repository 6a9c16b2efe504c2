# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `App(metrics=…)`, and serves the metrics of one App while it runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..telemetry.hook import TelemetrySink
from ..telemetry.page_server import ServedPages, serving
from ..telemetry.served import OPTION, PATH, given_metrics

if TYPE_CHECKING:
    from ..telemetry.prometheus import PrometheusMetrics


class AppMetrics:
    """Holds the metrics of an App, if it has any, and the address that it serves them at, if that is its own task.

    Raises ConfigError for a value that is neither an address nor a PrometheusMetrics, MissingExtra without
    prometheus-client.
    """

    def __init__(self, given: object) -> None:
        self.address, self._metrics = given_metrics(given)
        self._serving = ExitStack()

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
            self._serving.enter_context(serving(ServedPages(self.address, OPTION, {PATH: self.get().page})))

    def close(self) -> None:
        """Stop serving."""
        self._serving.close()
