# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Every example runs, and prints what its expected_output.txt says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.brokers import Broker

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLES = REPOSITORY / "examples"


def run(name: str, url: str | None = None) -> str:
    """Return the example's output, times and hosts replaced. Its failed attempts are logged on stderr."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("REDELIVER_")}
    path = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "adapters")))
    env |= {"PYTHONPATH": path, "PYTHONWARNINGS": "error"} | ({"REDELIVER_URL": url} if url else {})
    argv = [sys.executable, "main.py"]
    done = subprocess.run(argv, cwd=EXAMPLES / name, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return normal(done.stdout)


def normal(text: str) -> str:
    text = re.sub(r"\b\d+\.\d+ s\b", "<seconds> s", text)
    return re.sub(r"\b(?:localhost|\d+\.\d+\.\d+\.\d+):\d+\b", "<host>", text)


def expected(name: str) -> str:
    return normal((EXAMPLES / name / "expected_output.txt").read_text())


def test_every_example_has_its_three_files_and_a_licence() -> None:
    folders = [folder for folder in EXAMPLES.iterdir() if folder.is_dir() and folder.name != "__pycache__"]
    assert {folder.name for folder in folders} == {
        "quickstart",
        "pika_dropin",
        "stomp_dropin",
        "proton_dropin",
        "order_service",
        "quarter",
        "airflow",
        "notebook",
    }
    for folder in folders:
        for file in ("README.md", "main.py", "expected_output.txt"):
            assert (folder / file).is_file(), folder / file


def test_the_quickstart_is_ten_lines() -> None:
    source = (EXAMPLES / "quickstart" / "main.py").read_text().partition('"""\n')[2]
    lines = [line for line in source.splitlines() if line and not line.startswith(("from ", "@"))]
    assert len(lines) <= 10


@pytest.mark.parametrize("name", ["quickstart", "order_service"])
def test_an_example_runs_without_a_server(name: str) -> None:
    assert run(name) == expected(name)


@pytest.mark.broker
@pytest.mark.parametrize("name", ["pika_dropin", "order_service"])
def test_an_example_runs_on_rabbitmq(name: str, rabbitmq: Broker) -> None:
    assert run(name, rabbitmq.url) == expected(name)


@pytest.mark.broker
@pytest.mark.parametrize("broker", ["activemq63", "artemis244"])
def test_the_order_service_says_the_same_on_every_broker(broker: str, request: pytest.FixtureRequest) -> None:
    found: Broker = request.getfixturevalue(broker)
    assert run("order_service", found.url) == expected("order_service")


@pytest.mark.broker
def test_the_drop_in_example_runs_on_activemq(activemq: Broker) -> None:
    assert run("stomp_dropin", activemq.url) == expected("stomp_dropin")


@pytest.mark.broker
def test_the_drop_in_example_runs_on_artemis(artemis: Broker) -> None:
    assert run("proton_dropin", artemis.url) == expected("proton_dropin")
