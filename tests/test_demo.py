# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The demo adds up on every broker, wherever that comes from, and Ctrl-C ends it cleanly."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.brokers import Broker

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO = [sys.executable, str(REPOSITORY / "examples" / "order_service" / "demo.py")]
KINDS = ["rabbitmq", "activemq", "artemis"]
# Twelve messages in each of ten rounds; a stolen card in rounds 0, 3, 6 and 9, an unknown currency in 4 and 9,
# a body that is no JSON in 2 and 6: eight dead letters.
SUM = "120 sent = 112 handled + 8 dead letters, 0 lost"
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f]")


def environment(url: str | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "REDELIVER_URL" and not key.startswith("PYTHON")}
    return kept | {"TERM": "xterm", "COLUMNS": "120"} | ({"REDELIVER_URL": url} if url else {})


def demo(*words: str, url: str | None = None, timeout: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
    argv, env = [*DEMO, *words], environment(url) | more
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=timeout)


def rows(shown: str) -> list[tuple[str, str, str, str]]:
    """Return the cells of the dead letters' table: original destination, reason, failures, class of the error."""
    cells = [[cell.strip() for cell in line.split("│")[1:5]] for line in shown.splitlines() if line[:1] == "│"]
    return [(a.removeprefix("redeliver-demo."), b, c, d.partition(":")[0]) for a, b, c, d in cells]


EIGHT = sorted(
    [("orders", "undecodable", "1", "JSONDecodeError")] * 2
    + [("payments", "exhausted", "4", "CardDeclined")] * 4
    + [("payments", "fatal", "1", "UnknownCurrency")] * 2
)


def test_the_demo_adds_up_on_the_embedded_broker() -> None:
    began = time.monotonic()
    done = demo("--fast")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == SUM
    assert sorted(rows(done.stdout)) == EIGHT
    assert not CONTROL.search(done.stdout)
    assert time.monotonic() - began < 60


def adds_up(broker: Broker) -> None:
    done = demo("--fast", "--broker", broker.kind, url=broker.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "The broker is the one that REDELIVER_URL names"
    assert done.stdout.splitlines()[-1] == SUM
    assert sorted(rows(done.stdout)) == EIGHT
    assert broker.url not in done.stdout  # it has a password in it


@pytest.mark.broker
def test_the_demo_adds_up_on_rabbitmq(rabbitmq: Broker) -> None:
    adds_up(rabbitmq)


@pytest.mark.broker
def test_the_demo_adds_up_on_artemis(artemis244: Broker) -> None:
    adds_up(artemis244)


def test_on_a_terminal_the_table_of_queues_is_live() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*DEMO, "--fast"], env=environment(), stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = read_all(ours)
        assert process.wait(30) == 0
    assert shown.count("failed attempts") > 5  # drawn again and again
    assert "\x1b[" in shown
    assert SUM in shown


def read_all(descriptor: int) -> str:
    found = b""
    try:
        while chunk := os.read(descriptor, 65536):
            found += chunk
    except OSError:
        pass  # what a pty says when its other end is closed
    os.close(descriptor)
    return found.decode()


def interrupted(*words: str, url: str | None = None) -> None:
    """Send Ctrl-C to the demo as soon as messages are handled, and check that the demo ends cleanly."""
    process = subprocess.Popen(
        [*DEMO, *words],
        env=environment(url) | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=ctrl_c_counts,
    )
    killer = threading.Timer(50, process.kill)
    killer.start()
    assert process.stdout is not None
    while "handled" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    killer.cancel()
    assert process.returncode == 130
    assert err == "interrupted; the broker has again what was under way\n"


def ctrl_c_counts() -> None:
    """Let SIGINT interrupt this process. A process that is started in the background ignores SIGINT otherwise."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_ends_the_demo_without_a_traceback() -> None:
    interrupted()


@pytest.mark.broker
@pytest.mark.parametrize("name", ["activemq63", "artemis244"])
def test_ctrl_c_ends_the_demo_on_a_real_broker_too(name: str, request: pytest.FixtureRequest) -> None:
    broker: Broker = request.getfixturevalue(name)
    interrupted("--broker", broker.kind, url=broker.url)


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_broker_is_one_message_and_exit_code_1(kind: str) -> None:
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else can take it
        bound.bind(("127.0.0.1", 0))
        done = demo("--broker", kind, url=f"{kind}://me:secret@127.0.0.1:{bound.getsockname()[1]}/")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {kind}://me@127.0.0.1:")
    assert done.stderr.count("\n") == 1


def test_a_url_of_another_broker_than_asked_for_is_refused() -> None:
    done = demo("--broker", "artemis", url="rabbitmq://me:secret@127.0.0.1:1/")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: REDELIVER_URL begins with 'rabbitmq', and artemis is asked for. Change or unset it\n"
