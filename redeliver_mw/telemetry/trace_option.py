# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads `traces=` of an App or a drop-in wrapper. Imports OpenTelemetry only if there are to be traces."""

from __future__ import annotations

from .hook import TelemetrySink


def trace_sinks(given: object) -> list[TelemetrySink]:
    """Return what makes the spans: one sink, or none if `given` is None or False.

    Raises ConfigError for a value that is not one of True, a TracerProvider and a Traces, and MissingExtra without
    opentelemetry-api.
    """
    if given is None or given is False:
        return []
    from .traces import Traces

    return [Traces.meant(given).sink()]
