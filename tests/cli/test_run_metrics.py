# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver run --metrics`: one process, several, and at the address of `--health`."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers._process import free_ports
from tests.cli.running import Running, redeliver
from tests.cli.test_run import one_message, shop
from tests.cli.test_run_health import eventually as ready
from tests.cli.test_run_health import is_ready
from tests.cli.test_run_processes import pids

ATTEMPTS = 'redeliver_attempts_total{error_type="",outcome="accepted",source="queue:orders"}'


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def metrics(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        return str(response.read().decode())


def value(text: str, series: str) -> float | None:
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else None


def eventually(port: int, wanted: Callable[[str], bool], seconds: float = 60.0) -> str:
    """Return the first text of the metrics that is wanted."""
    deadline, text = time.monotonic() + seconds, ""
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):  # it does not listen yet
            text = metrics(port)
            if wanted(text):
                return text
        time.sleep(0.1)  # between two scrapes
    raise AssertionError(f"not within {seconds:g} s; last:\n{text}")


def test_one_server_answers_health_and_metrics_at_one_address(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    address = f"127.0.0.1:{port}"
    with Running(tmp_path, "run", "shop:app", "--health", address, "--metrics", address) as running:
        eventually(port, lambda text: value(text, ATTEMPTS) == 1)
        ready(port, is_ready)
        assert running.saw(f"metrics at http://{address}/metrics")
        running.signal()
        assert running.wait(15) == 0


def test_the_supervisor_adds_up_what_its_processes_count_also_those_that_died(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--processes", "2", "--metrics", f"127.0.0.1:{port}") as running:
        eventually(port, lambda text: value(text, ATTEMPTS) == 2)  # each process sends itself a message
        os.kill(pids(running, 2)[2], signal.SIGKILL)
        text = eventually(port, lambda text: value(text, ATTEMPTS) == 3)
        assert value(text, 'redeliver_handler_duration_seconds_count{source="queue:orders"}') == 3
        running.signal()
        assert running.wait(15) == 0


def test_the_address_of_an_app_cannot_serve_several_processes(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    source = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text(source.replace("declare=", f'metrics="127.0.0.1:{port}", declare='))
    done = redeliver(tmp_path, "run", "shop:app", "--processes", "2")
    assert done.returncode == 2
    assert f"redeliver run --metrics 127.0.0.1:{port}" in one_message(done.stderr)
    with Running(tmp_path, "run", "shop:app", "--metrics", f"127.0.0.1:{port}") as running:  # instead of the App
        eventually(port, lambda text: value(text, ATTEMPTS) == 1)
        running.signal()
        assert running.wait(15) == 0


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_taken_port_is_reported_before_anything_is_consumed(tmp_path: Path, processes: tuple[str, ...]) -> None:
    shop(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = redeliver(tmp_path, "run", "shop:app", "--metrics", address, *processes)
    assert done.returncode == 1
    cure = "End what listens there, or name another port"
    assert one_message(done.stderr) == f"error: --metrics {address}: this port is taken. {cure} [port-taken]\n"


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_without_the_extra_the_one_message_names_it(tmp_path: Path, port: int, processes: tuple[str, ...]) -> None:
    shop(tmp_path)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "prometheus_client.py").write_text("raise ImportError('not here')\n")
    done = redeliver(tmp_path, "run", "shop:app", "--metrics", f"127.0.0.1:{port}", *processes)
    assert done.returncode == 2
    assert one_message(done.stderr) == (
        "error: metrics: prometheus-client is not installed. "
        'Run: pip install "redeliver-mw[prometheus]" [extra-not-installed]\n'
    )
