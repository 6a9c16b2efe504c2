# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests ActiveMQ and Artemis as the other tests get them, with plain stomp.py and proton."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import proton
import pytest
import stomp
from proton.utils import BlockingConnection

from tests.brokers import KINDS, Broker, BrokerFailed, BrokerMissing, _install, _maven, _stomp, broker
from tests.brokers._broker import OwnBroker
from tests.brokers.skips import only_if

REPOSITORY = Path(__file__).parents[2]


class Inbox(stomp.ConnectionListener):
    def __init__(self) -> None:
        self.frames: queue.Queue[Any] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.frames.put(frame)


@contextmanager
def over_stomp(b: Broker, password: str | None = None) -> Iterator[tuple[Any, Inbox]]:
    connect: Any = stomp.Connection12  # untyped
    connection, inbox = connect([(b.host, b.stomp_port)], reconnect_attempts_max=1), Inbox()
    connection.set_listener("", inbox)
    connection.connect(b.user, b.password if password is None else password, wait=True)
    try:
        yield connection, inbox
    finally:
        connection.disconnect()


@contextmanager
def over_amqp(b: Broker, password: str | None = None) -> Iterator[BlockingConnection]:
    password = b.password if password is None else password
    where = f"amqp://{b.host}:{b.amqp_port}"
    connection = BlockingConnection(where, timeout=10, user=b.user, password=password, allowed_mechs="PLAIN")
    try:
        yield connection
    finally:
        connection.close()


def send(b: Broker, name: str, body: str, **headers: Any) -> None:
    """Send a durable message, and wait for the broker's receipt."""
    kind = {"destination-type": "ANYCAST"} if b.kind == "artemis" else {}
    where = name if b.kind == "artemis" else f"/queue/{name}"
    with over_stomp(b) as (connection, inbox):
        connection.send(where, body, headers={"persistent": "true", "receipt": "1"} | kind | headers)
        assert inbox.frames.get(timeout=10).cmd == "RECEIPT"


def take(b: Broker, name: str, seconds: float = 10) -> str:
    where = name if b.kind == "artemis" else f"/queue/{name}"
    with over_stomp(b) as (connection, inbox):
        connection.subscribe(where, id="1", ack="client-individual")
        frame = inbox.frames.get(timeout=seconds)
        connection.ack(frame.headers["ack"])
        return str(frame.body)


def own(b: Broker) -> OwnBroker:
    only_if(isinstance(b, OwnBroker), "command")
    assert isinstance(b, OwnBroker)
    return b


def unique(name: str) -> str:
    return f"brokers.{name}.{uuid.uuid4().hex}"


def test_it_reports_the_version_and_the_url_it_really_has(jvm_broker: Broker) -> None:
    b = jvm_broker
    product = {"activemq": "ActiveMQ", "artemis": "ActiveMQ-Artemis"}[b.kind]
    assert _stomp.server_version(b.host, b.stomp_port, b.user, b.password) == (product, b.version)
    assert b.url == f"{b.kind}://{b.user}:{b.password}@{b.host}:{b.port}"
    assert b.version in b.describe()
    assert b.password not in b.describe()


def test_a_durable_message_is_there_after_kill_and_start(jvm_broker: Broker) -> None:
    b, name = own(jvm_broker), unique("kept")
    send(b, name, "still here")
    before, port = b.pids(), b.port
    b.kill()
    assert before
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]
    with pytest.raises(ConnectionRefusedError), socket.create_connection((b.host, port)):
        pass
    b.start()
    assert b.port == port
    assert take(b, name) == "still here"


def test_amqp_serves_the_same_queues(jvm_broker: Broker) -> None:
    name = unique("both")
    send(jvm_broker, name, "over the fence")
    with over_amqp(jvm_broker) as connection:
        message = connection.create_receiver(name, credit=1).receive(timeout=10)
    body: Any = message.body
    assert bytes(body) == b"over the fence"


def test_nobody_gets_in_with_a_wrong_password_or_none(jvm_broker: Broker) -> None:
    b = own(jvm_broker)
    for password in ("wrong", ""):
        with pytest.raises(stomp.exception.ConnectFailedException), over_stomp(b, password):
            pass
        with pytest.raises(proton.ProtonException, match="unauthorized"), over_amqp(b, password):
            pass
    with pytest.raises(proton.ProtonException):
        BlockingConnection(f"amqp://{b.host}:{b.amqp_port}", timeout=10, allowed_mechs="ANONYMOUS").create_sender("x")


def test_a_paused_broker_is_silent_and_speaks_again(jvm_broker: Broker) -> None:
    b, name = own(jvm_broker), unique("paused")
    send(b, name, "later")
    b.pause()
    with pytest.raises(ConnectionError, match="timed out"):
        _stomp.login(b.host, b.stomp_port, b.user, b.password, 0.5)
    b.resume()
    assert take(b, name) == "later"


def test_activemq_delays_only_with_the_scheduler_on(activemq: Broker) -> None:
    b, name = own(activemq), unique("delayed")
    began = time.monotonic()
    send(b, name, "later", AMQ_SCHEDULED_DELAY=700)
    assert take(b, name) == "later"
    assert time.monotonic() - began >= 0.7
    with pytest.raises(BrokerFailed, match="JMX"):
        b.ctl("queryQueues")


@pytest.mark.broker
def test_activemqs_options_reach_the_broker() -> None:
    policy = (
        '<policyEntry queue="dead.>"><deadLetterStrategy><individualDeadLetterStrategy queuePrefix="MINE."/>'
        "</deadLetterStrategy></policyEntry>"
    )
    name = unique("x").replace("brokers.", "dead.")
    with broker("activemq", scheduler=False, policy_entries=policy, tiered=True) as b:
        send(b, name, "now", AMQ_SCHEDULED_DELAY=600_000)
        with over_stomp(b) as (connection, inbox):
            connection.subscribe(f"/queue/{name}", id="1", ack="client-individual")
            connection.nack(inbox.frames.get(timeout=10).headers["ack"])
            connection.subscribe(f"/queue/MINE.{name}", id="2", ack="client-individual")
            assert inbox.frames.get(timeout=10).body == "now"


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["activemq", "artemis"])
def test_a_broker_starts_from_an_archive_of_its_classes(kind: str) -> None:
    KINDS[kind].fetch(KINDS[kind].VERSIONS[0])
    with broker(kind, tiered=False) as b:  # one of ours, because it has an option
        (process,) = own(b).pids()
        mapped = Path(f"/proc/{process}/maps").read_text().splitlines()
    archives = {Path(line.split()[-1]) for line in mapped if line.endswith(".jsa")}
    wanted = set(_install.cache_folder().glob(f"{kind}-{b.version}-*/classes-*.jsa"))
    assert bool(archives & wanted) == bool(wanted)


def test_artemis_answers_management(artemis: Broker) -> None:
    b, name = own(artemis), unique("ctl")
    send(b, name, "one")
    assert b.ctl(f"queue.{name}", "messageCount") == "1"
    assert b.ctl("broker", "version") == b.version
    assert name in b.ctl("broker", "getQueueNames()")
    b.ctl("broker", "destroyQueue", name)
    with pytest.raises(BrokerFailed, match="Problem while retrieving attribute messageCount"):
        b.ctl(f"queue.{name}", "messageCount")


@pytest.mark.broker
def test_artemis_options_reach_the_broker() -> None:
    settings = '<address-setting match="quick.#"><dead-letter-address>MINE</dead-letter-address></address-setting>'
    core = "<max-redelivery-records>-1</max-redelivery-records>"
    with broker("artemis", address_settings=settings, core=core, allow_anonymous=True) as b:
        assert '"deadLetterAddress":"MINE"' in b.ctl("broker", "getAddressSettingsAsJSON", "quick.one")
        assert '"deadLetterAddress":"DLQ"' in b.ctl("broker", "getAddressSettingsAsJSON", "slow.one")
        with over_amqp(b, "wrong") as connection:  # a guest
            connection.create_sender(unique("guest"))


def test_an_expired_message_is_moved_within_a_second(artemis: Broker) -> None:
    b, name = own(artemis), unique("expired")
    send(b, name, name, expires=int(time.time() * 1000) + 1)
    assert take(b, "ExpiryQueue") == name


def test_a_given_broker_is_used_and_cannot_be_killed(jvm_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    b, kind = own(jvm_broker), jvm_broker.kind
    variable, version = f"REDELIVER_TEST_{kind.upper()}_URL", b.version.rpartition(".")[0]
    monkeypatch.setenv(variable, f"{b.url}?amqp_port={b.amqp_port}&stomp_port={b.stomp_port}")
    given = broker(kind, version=version)
    assert (given.how, given.port, given.version, given.url) == ("env", b.port, b.version, b.url)
    assert not given.can_restart
    for forbidden in (given.kill, given.start, given.pause, given.resume, lambda: given.ctl("status")):
        with pytest.raises(BrokerFailed, match=variable):
            forbidden()
    send(given, name := unique("given"), "x")
    with over_amqp(given) as connection:
        assert connection.create_receiver(name, credit=1).receive(timeout=10)
    given.stop()
    assert b.alive()


def test_a_given_broker_of_the_wrong_version_is_missing_with_a_cure(
    activemq518: Broker, artemis244: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for b, version in ((activemq518, "6.3"), (artemis244, "2.40")):
        variable = f"REDELIVER_TEST_{b.kind.upper()}"
        monkeypatch.setenv(f"{variable}_URL", b.url)
        with pytest.raises(BrokerMissing) as missing:
            broker(b.kind, version=version)
        assert b.version in missing.value.reason
        assert f"{variable}{version.replace('.', '')}_URL" in missing.value.cure


@pytest.mark.broker
@pytest.mark.parametrize(("kind", "version"), [("activemq", "6.3"), ("artemis", "2.44")])
def test_a_given_broker_that_does_not_answer_is_missing_with_a_cure(
    kind: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"REDELIVER_TEST_{kind.upper()}{version.replace('.', '')}_URL"
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else can take it
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv(variable, f"{kind}://a:b@127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(BrokerMissing, match=variable):
            broker(kind, version=version)


FETCH = """
import sys
from tests.brokers import _maven
_maven._maven = lambda cure: sys.argv[1]
print(_maven.jars(_maven.Jars("thing", "parent", "1.0", ["org.apache.activemq:thing"]), "wait"))
"""


def fetch(tmp_path: Path, script: str) -> subprocess.Popen[str]:
    """Start a process that fetches a thing into a cache of its own by a Maven that is this shell script."""
    maven = tmp_path / "mvn"
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    argv, env = [sys.executable, "-c", FETCH, str(maven)], os.environ | {"REDELIVER_CACHE": str(tmp_path)}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=REPOSITORY, env=env, stdout=pipe, stderr=pipe, text=True)


def test_half_a_fetch_is_never_used(tmp_path: Path) -> None:
    (tmp_path / "brokers" / f"{_thing()}.building-1").mkdir(parents=True)
    process = fetch(
        tmp_path, 'printf "[ERROR] no route to the repository\\n[ERROR] \\nHelp 1\\n2\\n3\\n4\\n5\\n"; exit 1'
    )
    _, said = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "BrokerMissing: fetching thing 1.0 with Maven failed" in said
    assert "no route to the repository" in said
    assert [path.name for path in (tmp_path / "brokers").iterdir()] == [f"{_thing()}.lock"]


def test_two_fetches_at_once_fetch_once(tmp_path: Path) -> None:
    both = [fetch(tmp_path, f"echo x >> {tmp_path}/calls; sleep 1") for _ in range(2)]
    answers = [process.communicate(timeout=30)[0].strip() for process in both]
    assert answers == [str(tmp_path / "brokers" / _thing())] * 2
    assert (tmp_path / "calls").read_text() == "x\n"


def _thing() -> str:
    return _maven.Jars("thing", "parent", "1.0", ["org.apache.activemq:thing"]).folder
