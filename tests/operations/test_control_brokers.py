# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests Apps on real brokers that operators pause, resume and give an open breaker: nothing is lost or run twice."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.cli.main import run
from redeliver_mw.operations import Store
from redeliver_mw.operations.control import control_breaker, control_source, known_apps
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.running import Running
from tests.cli.test_run_processes import eventually, is_alive
from tests.dead_letters.many_letters import depth
from tests.faults.letters import declare
from tests.operations.replaying import became, headers, sent
from tests.operations.test_collect_brokers import THREE

pytestmark = pytest.mark.broker


@pytest.mark.parametrize("name", THREE)
def test_a_running_app_obeys_and_loses_nothing(
    name: str, request: pytest.FixtureRequest, file_store: Store, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(name)
    queue = "controlled.orders"
    declare(broker, queue)
    runs: Counter[str] = Counter()
    failing = threading.Event()
    app = App(
        broker.url,
        policy=RedeliveryPolicy(5, 2.0),
        breaker=True,
        app_name="shop",
        operations=f"sqlite:///{tmp_path}/store.db",
        log_failures=False,
    )

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        runs[delivery.text] += 1
        if failing.is_set() and runs[delivery.text] == 1:
            raise ConnectionError("not now")

    def source() -> dict[str, Any]:
        found: dict[str, Any] = app.health()["sources"][f"queue:{queue}"]
        return found

    def soon(what: Callable[[], bool]) -> None:
        assert eventually(what), (source(), runs, depth(broker, queue))

    with app, connect(broker.url) as session:

        def send(*texts: str) -> None:
            for text in texts:
                session.publish(queue, text.encode())

        send("a", "b")
        soon(lambda: runs.keys() == {"a", "b"})
        soon(lambda: known_apps(file_store) == ["shop"])
        failing.set()
        send("held")  # waits here for its second attempt when the pause comes
        soon(lambda: runs["held"] == 1)
        failing.clear()
        control_source(file_store, "shop", "pause", queue, who="ada@host")
        soon(lambda: source()["paused_by"] == "ada@host")
        before = runs.total()
        send("c", "d", "e")
        if broker.kind != "activemq":  # STOMP cannot give back: there they are kept
            soon(lambda: depth(broker, queue) == 3)
        assert (runs.total(), source()["consuming"]) == (before, False)
        control_source(file_store, "shop", "resume", queue, who="ada@host")
        soon(lambda: runs.keys() == {"a", "b", "held", "c", "d", "e"} and runs["held"] == 2)

        replay = sent(file_store, "first")
        session.publish(queue, b"replayed", headers=headers(replay, "first", queue))
        soon(lambda: became(file_store, replay) == {"first": "recovered"})

        control_breaker(file_store, "shop", "open", who="ada@host")
        soon(lambda: source()["breaker"]["state"] == "open")
        send("f", "g")
        if broker.kind != "activemq":
            soon(lambda: depth(broker, queue) == 2)
        assert not runs.keys() & {"f", "g"}
        control_breaker(file_store, "shop", "auto", who="ada@host")
        soon(lambda: runs.keys() >= {"f", "g"})
        soon(lambda: source()["breaker"]["state"] == "closed")
    assert {text: count for text, count in runs.items() if count != 1} == {"held": 2}
    assert depth(broker, queue) == 0


SHOP = """
from redeliver_mw import App

app = App({url!r}, breaker=True, operations={store!r})

@app.handler("controlled.processes")
def on_order(delivery):
    print("handled", delivery.text, flush=True)
"""


def test_every_process_of_an_app_obeys_also_one_that_is_started_again(
    rabbitmq43: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, store = "controlled.processes", f"sqlite:///{tmp_path}/store.db"
    declare(rabbitmq43, queue)
    (tmp_path / "shop.py").write_text(SHOP.format(url=rabbitmq43.url, store=store))
    monkeypatch.setenv("REDELIVER_STORE", store)

    def status() -> list[dict[str, Any]]:
        assert run(["control", "shop", "status", "--json"]) in (0, 1, 2)
        out = capsys.readouterr().out
        found: list[dict[str, Any]] = json.loads(out.splitlines()[-1]) if out else []
        return found

    def paused() -> list[int]:
        return [one["pid"] for one in status() if not one["sources"][0]["consuming"] and is_alive(one["pid"])]

    with Running(tmp_path, "run", "shop:app", "--processes", "2") as running:
        assert eventually(lambda: len(status()) == 2, 90), running.err
        assert run(["control", "shop", "pause", queue]) == 0
        assert "shop: pause queue:controlled.processes; 2 running processes" in capsys.readouterr().out
        assert eventually(lambda: len(paused()) == 2)
        with connect(rabbitmq43.url) as session:
            for n in range(10):
                session.publish(queue, b"%d" % n)
        killed = paused()[0]
        os.kill(killed, signal.SIGKILL)
        assert eventually(lambda: len(paused()) == 2 and killed not in paused(), 90), running.err
        assert "handled" not in running.out
        assert run(["control", "shop", "resume", queue]) == 0
        assert eventually(lambda: running.out.count("handled") == 10, 30), running.err
        running.signal()
        assert running.wait(30) == 0
    who = re.findall(r"queue:controlled.processes is paused: (\S+@\S+) asked for that", running.err)
    assert len(who) == 3
    assert {one["state"] for one in status()} == {"stopped"}
