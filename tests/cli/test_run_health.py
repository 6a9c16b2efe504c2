# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver run --health`: what a probe is told, of real brokers that go away and of processes that die."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from redeliver_mw import connect
from redeliver_mw.telemetry.page_server import MOST_CLIENTS, PATIENCE
from tests.brokers import Broker
from tests.brokers._process import free_ports
from tests.brokers.rabbitmq import RabbitMQ
from tests.brokers.skips import only_if
from tests.cli.running import Running, redeliver
from tests.cli.test_run import one_message, shop
from tests.cli.test_run_processes import is_alive, pids
from tests.faults.letters import declare

PORTS = {"rabbitmq43": "port", "activemq63": "stomp_port", "artemis244": "amqp_port"}


class Answer(NamedTuple):
    """Holds the answer that a probe got."""

    status: int
    body: dict[str, Any]

    @property
    def whys(self) -> str:
        return "\n".join(f"{one['what']}: {one['why']}" for one in self.body["not_ready"])


def get(port: int, path: str, method: str = "GET") -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        assert response.headers["Content-Type"] == "application/json"
        return Answer(response.status, json.loads(response.read() or b"{}"))
    finally:
        connection.close()


def eventually(port: int, wanted: Callable[[Answer], bool], seconds: float = 60.0) -> Answer:
    """Return the first answer of /ready that is wanted; check that /live answers 200 all the time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionError):  # it does not listen yet
            found = get(port, "/ready")
            assert get(port, "/live") == (200, {"live": True})
            if wanted(found):
                return found
        time.sleep(0.05)  # between two probes
    raise AssertionError(f"not within {seconds:g} s; last: {get(port, '/ready')}")


def is_ready(answer: Answer) -> bool:
    return answer == (200, {"ready": True, "not_ready": []})


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


def consumer_of(folder: Path, url: str, queue: str) -> None:
    (folder / "shop.py").write_text(
        f"from redeliver_mw import App\napp = App({url!r}, declare='all')\n"
        f"@app.handler({queue!r})\ndef on_order(delivery): print('handled', delivery.text)\n"
    )


# -- a broker that goes away --------------------------------------------------------------------------


@pytest.mark.broker
@pytest.mark.parametrize("which", PORTS)
def test_a_broker_that_is_away_makes_it_unready_and_not_dead_and_its_return_ready_again(
    tmp_path: Path, port: int, which: str, request: pytest.FixtureRequest
) -> None:
    one: Broker = request.getfixturevalue(which)
    only_if(one.can_restart, "kill")
    queue = f"health-{uuid.uuid4().hex[:8]}"
    consumer_of(tmp_path, one.url, queue)
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        one.kill()
        why = re.compile(r"connection consume: connecting since 20\d\d-.*Z: no broker answers there")
        away = eventually(port, lambda answer: answer.status == 503 and why.search(answer.whys) is not None)
        assert away.body["ready"] is False
        assert {entry["what"] for entry in away.body["not_ready"]} >= {"connection consume", f"queue:{queue}"}
        one.start()
        eventually(port, is_ready)
        running.signal()
        assert running.wait(60) == 0
    warnings = [line for line in running.err.splitlines() if "warning" in line.lower()]
    assert any("cannot connect (consume)" in line for line in warnings), running.err
    assert any("connected again (consume)" in line for line in warnings), running.err
    assert sum("cannot connect (consume)" in line for line in warnings) <= 12
    assert one.password not in running.err + str(away) or one.password == "guest"


@pytest.mark.broker
def test_a_password_that_was_changed_is_reported_as_such_and_never_shown(
    tmp_path: Path, port: int, rabbitmq43: RabbitMQ
) -> None:
    only_if(rabbitmq43.can_restart, "command")
    queue, user = f"health-{uuid.uuid4().hex[:8]}", f"user-{uuid.uuid4().hex[:8]}"
    users, by, all_names = "rabbit_auth_backend_internal", '<<"tests">>', '<<".*">>'
    rabbitmq43.evaluate(
        f'{users}:add_user(<<"{user}">>, <<"hunter2secret">>, {by}), '
        f'{users}:set_permissions(<<"{user}">>, <<"/">>, {all_names}, {all_names}, {all_names}, {by}).'
    )
    declare(rabbitmq43, queue)
    url = f"rabbitmq://{user}:hunter2secret@{rabbitmq43.host}:{rabbitmq43.port}/"
    consumer_of(tmp_path, url, queue)
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        rabbitmq43.evaluate(
            f'{users}:change_password(<<"{user}">>, <<"another">>, {by}), '
            f'rabbit_networking:close_all_user_connections(<<"{user}">>, <<"maintenance">>).'
        )
        refused = eventually(port, lambda answer: "refuses this user or password" in answer.whys)
        assert "connection consume" in refused.whys
        assert "connection publish" in refused.whys
        assert running.saw(r"(?i)warning.*cannot connect \(consume\): the broker refuses this user or password")
        rabbitmq43.evaluate(f'{users}:change_password(<<"{user}">>, <<"hunter2secret">>, {by}).')
        eventually(port, is_ready)
        running.signal()
        assert running.wait(60) == 0
    assert "hunter2secret" not in running.err + running.out + str(refused)


@pytest.mark.broker
def test_a_deleted_queue_is_named_as_what_is_not_consumed(tmp_path: Path, port: int, rabbitmq43: Broker) -> None:
    only_if(rabbitmq43.can_restart, "command")
    queue = f"health-{uuid.uuid4().hex[:8]}"
    declare(rabbitmq43, queue)
    consumer_of(tmp_path, rabbitmq43.url, queue)
    (tmp_path / "shop.py").write_text((tmp_path / "shop.py").read_text().replace("declare='all'", "declare='own'"))
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        rabbitmq43.ctl("delete_queue", queue)
        gone = eventually(port, lambda answer: f"queue '{queue}' is not there" in answer.whys)
        assert [entry["what"] for entry in gone.body["not_ready"]] == [f"queue:{queue}"]
        declare(rabbitmq43, queue)
        eventually(port, is_ready)
        running.signal()
        assert running.wait(60) == 0


@pytest.mark.broker
def test_a_broker_without_room_is_named_as_what_blocks(tmp_path: Path, port: int, rabbitmq43: RabbitMQ) -> None:
    """RabbitMQ tells a connection of its alarm once that publishes: here a dead letter."""
    only_if(rabbitmq43.can_restart, "command")
    queue = f"health-{uuid.uuid4().hex[:8]}"
    declare(rabbitmq43, queue)
    (tmp_path / "shop.py").write_text(
        "import pathlib, time\nfrom redeliver_mw import App, Reject\n"
        f"app = App({rabbitmq43.url!r})\n@app.handler({queue!r})\ndef on_order(delivery):\n"
        "    print('begun')\n    while not pathlib.Path('go').exists(): time.sleep(0.05)\n    raise Reject('no')\n"
    )
    with connect(rabbitmq43.url) as session:
        session.publish(f"queue:{queue}", b"one")
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        assert running.saw("begun")
        eventually(port, is_ready)
        try:
            rabbitmq43.evaluate('rabbit_disk_monitor:set_disk_free_limit("1000000GB").')
            deadline = time.monotonic() + 30
            while "resource_limit" not in rabbitmq43.evaluate("rabbit_alarm:get_alarms()."):
                assert time.monotonic() < deadline
            (tmp_path / "go").touch()
            blocked = eventually(port, lambda answer: "blocked: " in answer.whys)
            assert "connection publish: blocked: the broker blocks publishing: low on disk" in blocked.whys
        finally:
            rabbitmq43.evaluate('rabbit_disk_monitor:set_disk_free_limit("50MB").')
        eventually(port, is_ready)
        running.signal()
        assert running.wait(40) == 0


# -- the server ---------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path: Path, port: int) -> Iterator[int]:
    """Yield the port of an App in memory, which is ready."""
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        assert running.saw(rf"health at http://127.0.0.1:{port}/live")
        yield port
        running.signal()
        assert running.wait(15) == 0


def test_other_paths_and_methods_are_refused(served: int) -> None:
    assert get(served, "/").status == 404
    assert get(served, "/live/../secret").status == 404
    assert get(served, "/ready", "POST").status == 405
    assert get(served, "/ready?verbose=1").status == 200
    assert get(served, "/ready", "HEAD") == (200, {})


def test_what_is_no_request_does_no_harm(served: int) -> None:
    for nonsense in (
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"GET / HTTP/1.1\r\n" * 5000,
    ):
        with (
            contextlib.suppress(ConnectionError),  # it may be cut off before it has said all of it
            socket.create_connection(("127.0.0.1", served), 10) as client,
        ):
            client.sendall(nonsense)
            client.shutdown(socket.SHUT_WR)
            assert client.recv(100).startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))
    assert get(served, "/live").status == 200


def test_clients_that_say_nothing_keep_nobody_waiting(served: int) -> None:
    with contextlib.ExitStack() as silent:
        for _ in range(3 * MOST_CLIENTS):
            client = silent.enter_context(socket.create_connection(("127.0.0.1", served), 10))
            client.sendall(b"GET /ready HTTP/1.1\r\n")
        begun = time.monotonic()
        assert get(served, "/ready").status == 200
        assert time.monotonic() - begun < PATIENCE / 2


def test_it_answers_while_the_app_is_still_imported(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    source = (tmp_path / "shop.py").read_text()
    wait = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    (tmp_path / "shop.py").write_text(wait + source)
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        starting = eventually(port, lambda answer: answer.status == 503)
        assert starting.body["not_ready"] == [{"what": "app", "why": "it is starting"}]
        (tmp_path / "go").touch()
        eventually(port, is_ready)
        running.signal()
        assert running.wait(15) == 0


def test_while_it_stops_it_is_alive_and_not_ready(tmp_path: Path, port: int) -> None:
    shop(tmp_path, "print('begun'); import pathlib, time\n    while not pathlib.Path('go').exists(): time.sleep(0.05)")
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        assert running.saw("begun")
        running.signal()
        stopping = eventually(port, lambda answer: answer.status == 503)
        assert stopping.body["not_ready"][0] == {"what": "app", "why": "it is stopping"}
        (tmp_path / "go").touch()
        assert running.wait(15) == 0


def test_a_source_that_the_application_has_paused_is_no_obstacle(tmp_path: Path, port: int) -> None:
    shop(tmp_path, "app.pause('orders'); print('paused', app.health()['sources']['queue:orders'])")
    with Running(tmp_path, "run", "shop:app", "--health", f"127.0.0.1:{port}") as running:
        assert running.saw("paused .*'consuming': False, 'why_not_consuming': 'it was paused by the application'")
        assert is_ready(get(port, "/ready"))
        running.signal()
        assert running.wait(15) == 0


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("8080", "'8080' is no HOST:PORT"),
        (":8080", "':8080' is no HOST:PORT"),
        ("127.0.0.1:", "'127.0.0.1:' is no HOST:PORT"),
        ("127.0.0.1:http", "'127.0.0.1:http' is no HOST:PORT"),
        ("127.0.0.1:0", "0 is no port from 1 to 65535"),
        ("127.0.0.1:65536", "65536 is no port from 1 to 65535"),
        ("::1:8080", "'::1:8080' is no HOST:PORT"),
        ("nowhere.invalid:8080", "nowhere.invalid:8080: there is no such host"),
        ("192.0.2.1:8080", "192.0.2.1:8080: this is no address of this machine"),
    ],
)
@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_an_address_that_cannot_be_meant_is_refused(
    tmp_path: Path, address: str, why: str, processes: tuple[str, ...]
) -> None:
    shop(tmp_path)
    done = redeliver(tmp_path, "run", "shop:app", "--health", address, *processes)
    assert done.returncode == 2
    said = one_message(done.stderr)
    assert said.startswith("error: --health")
    assert why in said
    assert said.endswith("Write HOST:PORT, such as 127.0.0.1:8080, or 0.0.0.0:8080 for Kubernetes [health-address]\n")


@pytest.mark.parametrize("processes", [(), ("--processes", "2")])
def test_a_taken_port_is_reported_before_anything_is_consumed(tmp_path: Path, processes: tuple[str, ...]) -> None:
    shop(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = redeliver(tmp_path, "run", "shop:app", "--health", address, *processes)
    assert done.returncode == 1
    cure = "End what listens there, or name another port"
    assert one_message(done.stderr) == f"error: --health {address}: this port is taken. {cure} [port-taken]\n"


# -- several processes --------------------------------------------------------------------------------


def test_the_supervisor_is_ready_when_all_processes_are_and_names_one_that_has_died(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--processes", "2", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        living = pids(running, 2)
        (tmp_path / "shop.py").write_text("import time\ntime.sleep(1)\n" + (tmp_path / "shop.py").read_text())
        os.kill(living[2], signal.SIGKILL)
        dead = eventually(port, lambda answer: answer.status == 503)
        assert {entry["process"] for entry in dead.body["not_ready"]} == {2}
        assert re.search(r"process: it is (not running: .*was killed by SIGKILL|starting)", dead.whys)
        eventually(port, is_ready)
        running.signal()
        assert running.wait(15) == 0


def test_a_process_that_is_frozen_is_not_taken_for_ready(tmp_path: Path, port: int) -> None:
    shop(tmp_path)
    with Running(tmp_path, "run", "shop:app", "--processes", "2", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        frozen = pids(running, 2)[1]
        os.kill(frozen, signal.SIGSTOP)
        try:
            silent = eventually(port, lambda answer: answer.status == 503)
            assert re.fullmatch(r"process: it has reported nothing for \d+ s", silent.whys)
            assert silent.body["not_ready"][0]["process"] == 1
        finally:
            os.kill(frozen, signal.SIGCONT)
        eventually(port, is_ready)
        running.signal()
        assert running.wait(15) == 0
    assert not is_alive(frozen)


@pytest.mark.broker
def test_the_supervisor_tells_what_its_processes_say_of_the_broker(
    tmp_path: Path, port: int, rabbitmq43: Broker
) -> None:
    only_if(rabbitmq43.can_restart, "kill")
    consumer_of(tmp_path, rabbitmq43.url, f"health-{uuid.uuid4().hex[:8]}")
    with Running(tmp_path, "run", "shop:app", "--processes", "2", "--health", f"127.0.0.1:{port}") as running:
        eventually(port, is_ready)
        rabbitmq43.kill()
        away = eventually(port, lambda answer: {entry.get("process") for entry in answer.body["not_ready"]} == {1, 2})
        assert "connection consume: connecting since" in away.whys
        rabbitmq43.start()
        eventually(port, is_ready)
        running.signal()
        assert running.wait(60) == 0
