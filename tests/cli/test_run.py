# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver run`: a real process, told to stop by real signals."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
import tomllib
import uuid
from pathlib import Path
from subprocess import TimeoutExpired

import pytest

from redeliver_mw import connect
from tests.brokers import Broker
from tests.cli.running import REPOSITORY, Running, redeliver
from tests.faults.letters import declare

READY = "consuming queue:orders"
# Sends its own messages, since memory:// ends with its process.
SHOP = """
import threading
from redeliver_mw import App, connect

app = App("memory://", declare="all", stop_timeout={stop_timeout})

@app.handler("orders", workers=2)
def on_order(delivery):
    {body}

def feed():
    with connect("memory://") as session:
        session.publish("orders", b"one")

threading.Timer(0.5, feed).start()
"""


def shop(folder: Path, body: str = "print('handled', delivery.text)", stop_timeout: float = 30.0) -> None:
    (folder / "shop.py").write_text(SHOP.format(body=body, stop_timeout=stop_timeout))


def one_message(done_err: str) -> str:
    assert done_err.count("\n") == 1, done_err
    assert done_err.startswith("error: ")
    assert "Traceback" not in done_err
    return done_err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_app_handles_messages_until_a_signal_and_exits_with_0(tmp_path: Path, number: signal.Signals) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("handled one")
        running.signal(number)
        assert running.wait(10) == 0
        assert running.out == "handled one\n"
        assert "stopped after" in running.err


def test_a_signal_lets_the_handler_finish(tmp_path: Path) -> None:
    shop(tmp_path, "print('begun'); import time; time.sleep(2); print('finished')")
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("begun")
        running.signal()
        assert running.wait(15) == 0
        assert running.out == "begun\nfinished\n"
        assert "unsettled: 0" in running.err


def test_a_handler_that_never_returns_is_left_at_the_stop_timeout(tmp_path: Path) -> None:
    shop(tmp_path, "print('begun'); threading.Event().wait()", stop_timeout=1.0)
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("begun")
        running.signal()
        assert running.wait(15) == 0
        assert "unsettled: 1" in running.err


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    shop(tmp_path, "print('begun'); threading.Event().wait()", stop_timeout=600.0)
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("begun")
        stop_at_once(running)
        assert "unsettled: 1" in running.err


def stop_at_once(running: Running) -> None:
    """Check that the first signal alone does not end the command, and end it by a second one.

    There is nothing to wait for but time.
    """
    running.signal()
    with pytest.raises(TimeoutExpired):
        running.wait(1.5)
    running.signal()
    assert running.wait(15) == 0


def test_a_signal_ends_a_start_that_waits_for_the_broker(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from redeliver_mw import App\n"
        "from redeliver_mw.memory import MemoryBroker, register_broker\n"
        "broker = MemoryBroker(name='down')\nbroker.kill()\nregister_broker('down', broker)\n"
        "app = App('memory://down')\napp.handler('orders')(print)\nprint('imported')\n"
    )
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("imported")
        time.sleep(1.0)  # between the import and the wait for the broker nothing can be seen from outside
        running.signal()
        assert running.wait(15) == 0


def test_json_log_lines_are_json_on_stderr(tmp_path: Path) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--log-format", "json") as running:
        assert running.saw("handled one")
        running.signal()
        assert running.wait() == 0
    lines = [json.loads(line) for line in running.err.splitlines()]
    assert {"event", "level", "logger", "timestamp"} <= lines[0].keys()
    assert READY in lines[0]["event"]
    assert {line["logger"] for line in lines} == {"redeliver_mw"}


def test_console_log_lines_have_no_colours_in_a_pipe_and_show_no_password(tmp_path: Path) -> None:
    shop(tmp_path)
    source = (tmp_path / "shop.py").read_text()
    (tmp_path / "shop.py").write_text(
        source + "import logging; logging.getLogger('redeliver_mw.x').warning('rabbitmq://me:hunter2@h/')\n"
    )
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw(READY)
        running.signal()
        assert running.wait() == 0
    assert "warning" in running.err
    assert "\x1b" not in running.err
    assert "hunter2" not in running.err


def test_failures_are_shown_with_the_traceback_on_lines_of_its_own(tmp_path: Path) -> None:
    shop(tmp_path, "raise ValueError('no stock, password=hunter2')")
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw(r"\nValueError: no stock")
        running.signal()
        assert running.wait() == 0
    lines = running.err.splitlines()
    [first] = [number for number, line in enumerate(lines) if " failed, F=1: redelivered after " in line]
    assert "[warning  ] queue:orders: " in lines[first]
    assert lines[first + 1] == "Traceback (most recent call last):"
    assert "hunter2" not in running.err


def test_failures_are_json_lines_with_fields(tmp_path: Path) -> None:
    shop(tmp_path, "raise ValueError('no stock')")
    with Running(tmp_path, "run", "shop:app", "--log-format", "json") as running:
        assert running.saw("ValueError")
        running.signal()
        assert running.wait() == 0
    [line] = [json.loads(line) for line in running.err.splitlines() if "ValueError" in line]
    assert (line["level"], line["logger"], line["source"]) == ("warning", "redeliver_mw.failures", "queue:orders")
    assert (line["failures"], line["outcome"], line["mechanism"]) == (1, "redelivered", "hold")
    assert (line["error_type"], line["error"], line["delay"] > 0) == ("ValueError", "no stock", True)
    assert line["exception"].startswith("Traceback (most recent call last):\n")


def test_a_module_that_configures_logging_itself_does_not_double_the_lines(tmp_path: Path) -> None:
    shop(tmp_path)
    with open(tmp_path / "shop.py", "a") as file:
        file.write("import logging; logging.basicConfig(level=logging.DEBUG)\n")
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw(READY)
        running.signal()
        assert running.wait() == 0
    assert running.err.count(READY) == 1


def test_importing_the_library_configures_no_logging(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "shop.py").write_text(
        "import logging\nfrom redeliver_mw import App, connect\n"
        "app = App('memory://', declare='all')\napp.handler('orders')(print)\n"
        "with app: pass\n"
        "assert not logging.getLogger('redeliver_mw').handlers\nassert not logging.getLogger().handlers\n"
        "raise SystemExit(0)\n"
    )
    from subprocess import run as run_process
    from sys import executable

    from tests.cli.running import environment

    assert run_process([executable, "shop.py"], cwd=tmp_path, env=environment(tmp_path)).returncode == 0


def test_an_app_is_named_after_its_module(tmp_path: Path) -> None:
    shop(tmp_path)
    with open(tmp_path / "shop.py", "a") as file:
        file.write("print('named', app.app_name)\n")
    with Running(tmp_path, "run", "shop:app") as running:
        assert running.saw("named shop\n")
        assert running.saw(READY)
        running.signal()
        assert running.wait() == 0


def test_an_app_may_lie_in_a_package_and_in_another_object(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    shop(tmp_path / "pack")
    with open(tmp_path / "pack" / "shop.py", "a") as file:
        file.write("class Apps: first = app\n")
    with Running(tmp_path, "run", "pack.shop:Apps.first") as running:
        assert running.saw(READY)
        running.signal()
        assert running.wait() == 0


SLIPS = [
    ("shop", "names no app", "Write MODULE:APP"),
    ("shop:", "names no app", "Write MODULE:APP"),
    ("shop.py:app", "no module 'shop.py'", "Did you mean 'shop'?"),
    ("other:app", "no module 'other'", "Check name and folder"),
    ("shp:app", "no module 'shp'", "Did you mean 'shop'?"),
    ("shop:ap", "shop.py: module 'shop' has no 'ap'", "Did you mean 'app'?"),
    ("shop:App", "'App' is no App, but the class App", "Name the App: shop:app"),
    ("shop:on_order", "'on_order' is no App, but of type function", "Name the App: shop:app"),
    ("shop:app.handler", "'app.handler' is no App", "Name the App: shop:app"),
    ("raising:app", "raising.py:3: importing 'raising' raises JSONDecodeError: ", "Mend that line"),
    ("wrong:app", "wrong.py:1: importing 'wrong' raises SyntaxError", "Mend that line"),
    ("missing:app", "missing.py:2: importing 'missing' raises ModuleNotFoundError", "Mend that line"),
    ("leaving:app", "leaving.py:1: importing 'leaving' raises SystemExit: 0", "Mend that line"),
]


@pytest.mark.parametrize(("target", "what", "cure"), SLIPS, ids=[slip[0] for slip in SLIPS])
def test_a_slip_in_module_app_is_one_message_with_place_and_cure(
    tmp_path: Path, target: str, what: str, cure: str
) -> None:
    (tmp_path / "shop.py").write_text(SHOP.partition("def feed")[0].format(body="...", stop_timeout=1))
    (tmp_path / "raising.py").write_text("import json\n\njson.loads('{')\n")
    (tmp_path / "wrong.py").write_text("def f(:\n")
    (tmp_path / "missing.py").write_text("\nimport there_is_no_such_module\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(0)\n")
    done = redeliver(tmp_path, "run", target)
    assert done.returncode == 2
    assert what in one_message(done.stderr)
    assert cure in done.stderr
    assert done.stdout == ""


def test_an_unknown_log_format_is_refused(tmp_path: Path) -> None:
    shop(tmp_path)
    done = redeliver(tmp_path, "run", "shop:app", "--log-format", "xml")
    assert done.returncode == 2
    assert "'console', 'json'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_version_is_that_of_the_project(tmp_path: Path) -> None:
    wanted = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    done = redeliver(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"redeliver-mw {wanted}\n")


@pytest.mark.parametrize("scheme", ["rabbitmq", "activemq", "artemis"])
def test_a_signal_ends_a_start_that_waits_for_a_peer_who_never_speaks(tmp_path: Path, scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "shop.py").write_text(
            f"from redeliver_mw import App\napp = App('{scheme}://{place}')\napp.handler('orders')(print)\n"
        )
        with Running(tmp_path, "run", "shop:app") as running:
            peer, _ = silent.accept()
            running.signal(signal.SIGINT)
            assert running.wait(15) == 0
            peer.close()
    assert "Traceback" not in running.err


@pytest.mark.broker
@pytest.mark.parametrize("there", ["rabbitmq310", "activemq63", "artemis244"])
def test_sigterm_stops_a_consumer_and_nothing_is_lost(
    tmp_path: Path, request: pytest.FixtureRequest, there: str
) -> None:
    broker: Broker = request.getfixturevalue(there)
    queue = f"run-{uuid.uuid4().hex[:8]}"
    (tmp_path / "shop.py").write_text(
        "import os, time\nfrom redeliver_mw import App\napp = App()\n"
        f"@app.handler({queue!r}, prefetch=20)\n"
        "def on(delivery):\n    time.sleep(0.2)\n    print('handled', delivery.text)\n"
    )
    declare(broker, queue)
    with connect(broker.url) as session:
        for number in range(60):
            session.publish(queue, str(number).encode())
    with Running(tmp_path, "run", "shop:app", extra={"REDELIVER_URL": broker.url}) as running:
        assert running.saw(f"consuming queue:{queue}")
        assert running.saw("handled 5\n")
        running.signal()
        assert running.wait(60) == 0
    handled = [int(number) for number in re.findall(r"handled (\d+)", running.out)]
    with connect(broker.url) as session:
        left = [int(found.body) for found in session.browse(queue)]
    assert left
    assert sorted(handled + left) == list(range(60))  # no one twice, no one lost
    assert broker.password not in running.err.replace(f"{broker.user}@", "")
