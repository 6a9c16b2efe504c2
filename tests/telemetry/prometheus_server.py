# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a real Prometheus for the tests, and its promtool, from Debian's package, whose service is never started."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.brokers import BrokerMissing
from tests.brokers._install import apt_install, say
from tests.brokers._process import free_ports
from tests.brokers.skips import not_to_be_had

CURE = "Run `python -m tests.brokers fetch` as root, or install Debian's package prometheus"
T = TypeVar("T")


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`, which is installed now if it is not here yet. BrokerMissing."""
    found = shutil.which(name)
    if found is None:
        apt_install("prometheus", CURE, service="prometheus.service")
        found = shutil.which(name)
    if found is None:
        raise BrokerMissing(f"{name} is not here after the installation", CURE)
    return found


def fetch() -> None:
    """Install Prometheus. Raises BrokerMissing if that fails."""
    say(f"Prometheus is here ({program('prometheus')})")


def promtool(*arguments: str, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool with `given` on its standard input; a test without it is left out at home, and fails in CI."""
    try:
        path = program("promtool")
    except BrokerMissing as missing:
        not_to_be_had(missing)
    return subprocess.run(
        [path, *arguments], cwd=cwd, input=given, check=False, capture_output=True, text=True, timeout=120
    )


class Prometheus:
    """Asks a running Prometheus on 127.0.0.1 for values and alerts."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def query(self, expression: str) -> dict[frozenset[tuple[str, str]], float]:
        """Return the present values of an expression by their labels, without name, job and instance."""
        found = self._get(f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}")
        ignored = {"__name__", "job", "instance"}
        return {
            frozenset((k, v) for k, v in one["metric"].items() if k not in ignored): float(one["value"][1])
            for one in found["data"]["result"]
        }

    def firing(self) -> set[str]:
        """Return the names of the alerts that are firing."""
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def eventually(self, what: Callable[[], T], is_good: Callable[[T], bool], seconds: float) -> T:
        """Return the first value of `what()` that is good."""
        deadline = time.monotonic() + seconds
        while not is_good(found := what()):
            assert time.monotonic() < deadline, f"not within {seconds:g} s; last: {found}"
            time.sleep(0.2)  # between two questions
        return found

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._base + path, timeout=10) as response:
            return json.load(response)


@contextmanager
def prometheus(folder: Path, target: str, rules: str) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes `target`, as HOST:PORT, every second, and evaluates these rules every second."""
    try:
        path = program("prometheus")
    except BrokerMissing as missing:
        not_to_be_had(missing)
    (port,) = free_ports(1)
    (folder / "rules.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        f"rule_files: [{folder}/rules.yml]\n"
        f"scrape_configs: [{{job_name: shop, static_configs: [{{targets: ['{target}']}}]}}]\n"
    )
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
    }
    with (
        open(folder / "log", "wb") as log,
        subprocess.Popen(
            [path, *(f"--{k}={v}" for k, v in options.items())], stdout=log, stderr=log, stdin=subprocess.DEVNULL
        ) as process,
    ):
        try:
            _wait_until_ready(port, process, folder / "log")
            yield Prometheus(port)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()[-2000:]
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5) as response:
            if response.status == 200:
                return
        time.sleep(0.1)  # it is starting
    raise AssertionError(f"Prometheus is not ready: {log.read_text()[-2000:]}")
