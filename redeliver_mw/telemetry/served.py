# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the option `metrics=` of Apps and drop-in wrappers, and serves the metrics of all wrappers of this process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .hook import TelemetrySink
from .page_server import PageServer, ServedPages, ServerAddress

if TYPE_CHECKING:
    from .prometheus import PrometheusMetrics

OPTION = "metrics"
PATH = "/metrics"

_served: dict[ServerAddress, PrometheusMetrics] = {}  # of drop-in wrappers, until the process ends
_serving = threading.Lock()


def given_metrics(given: object) -> tuple[ServerAddress | None, PrometheusMetrics | None]:
    """Return the address to serve metrics at, and the metrics.

    Raises ConfigError for a value that is neither an address nor a PrometheusMetrics, MissingExtra without
    prometheus-client.
    """
    if given is None:
        return None, None
    address = ServerAddress.parse(given, OPTION) if isinstance(given, str) else None
    from .prometheus import PrometheusMetrics  # needs an extra

    if address is not None:
        return address, PrometheusMetrics()
    if not isinstance(given, PrometheusMetrics):
        raise ConfigError(
            f"metrics={given!r} is neither HOST:PORT nor a PrometheusMetrics",
            cure='Write metrics="127.0.0.1:9400", or metrics=PrometheusMetrics()',
            code="option-value",
        )
    return None, given


def metrics_sinks(given: object) -> list[TelemetrySink]:
    """Return what counts for a drop-in wrapper, and serve it: wrappers with the same address share one server.

    Nothing announces the end of the last wrapper, so the server lives until the process ends. Raises ConfigError or
    RedeliverError for an address that cannot be had, and as `given_metrics` does.
    """
    address, metrics = given_metrics(given)
    if address is not None:
        with _serving:
            if address not in _served:
                assert metrics is not None
                PageServer(ServedPages(address, OPTION, {PATH: metrics.page})).start()
                _served[address] = metrics
            metrics = _served[address]
    return [] if metrics is None else [metrics.tallies]
