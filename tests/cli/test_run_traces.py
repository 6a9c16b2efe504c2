# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver run --traces`: handlers run in spans of the tracer provider, in one process and in several."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import Running
from tests.cli.test_run import shop

PROVIDER = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
"""


@pytest.mark.parametrize("processes", [(), ("--processes", "2")], ids=["one process", "two processes"])
@pytest.mark.parametrize("traces", [(), ("--traces",)], ids=["off", "on"])
def test_a_handler_runs_in_a_span_if_traces_are_on(
    processes: tuple[str, ...], traces: tuple[str, ...], tmp_path: Path
) -> None:
    shop(tmp_path, "print('recording:', trace.get_current_span().is_recording())")
    file = tmp_path / "shop.py"
    file.write_text(PROVIDER + file.read_text())
    with Running(tmp_path, "run", "shop:app", *processes, *traces) as running:
        assert running.saw(f"recording: {bool(traces)}\n"), running.err
        running.signal()
        assert running.wait(15) == 0
