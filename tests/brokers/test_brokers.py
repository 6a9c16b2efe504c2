# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the means of the other tests, on the real brokers themselves."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.brokers import Broker, BrokerFailed, BrokerMissing, _install, broker
from tests.brokers._broker import OwnBroker
from tests.brokers.skips import only_if

REPOSITORY = Path(__file__).parents[2]


@contextmanager
def channel_to(b: Broker, seconds: float = 10) -> Iterator[BlockingChannel]:
    credentials = pika.PlainCredentials(b.user, b.password)
    parameters = pika.ConnectionParameters(
        b.host, b.port, credentials=credentials, stack_timeout=seconds, socket_timeout=seconds
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        if connection.is_open:
            connection.close()


def publish(b: Broker, queue: str, body: bytes, kind: str = "classic") -> None:
    with channel_to(b) as channel:
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
        channel.confirm_delivery()
        durable = pika.BasicProperties(delivery_mode=2)
        channel.basic_publish("", queue, body, durable, mandatory=True)


def take(b: Broker, queue: str) -> bytes | None:
    with channel_to(b) as channel:
        body: bytes | None = channel.basic_get(queue, auto_ack=True)[2]
        return body


def own(b: Broker) -> OwnBroker:
    only_if(isinstance(b, OwnBroker), "kill")
    assert isinstance(b, OwnBroker)
    return b


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def until(true: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not (done := true()) and time.monotonic() < end:
        time.sleep(0.02)
    return done


def test_it_reports_the_version_and_the_url_it_really_has(rabbitmq: Broker) -> None:
    with channel_to(rabbitmq) as channel:
        reported = (channel.connection._impl.server_properties or {})["version"]
    assert rabbitmq.version == (reported.decode() if isinstance(reported, bytes) else reported)
    assert rabbitmq.url.startswith("rabbitmq://")
    assert f":{rabbitmq.port}/" in rabbitmq.url
    assert rabbitmq.version in rabbitmq.describe()
    assert rabbitmq.how in rabbitmq.describe()


def test_confirmed_messages_are_there_after_kill_and_start(rabbitmq: Broker) -> None:
    b, name = own(rabbitmq), f"brokers.kept.{uuid.uuid4().hex}"
    for kind in ("classic", "quorum"):
        publish(b, f"{name}.{kind}", b"still here", kind)
    time.sleep(10)  # a quorum queue killed younger than that comes back empty: the broker's defect, not ours
    before = b.pids()
    b.kill()
    assert before
    assert not [pid for pid in before if alive(pid)]
    with socket.socket() as probe:
        assert probe.connect_ex((b.host, b.port)) != 0
    b.start()
    assert [take(b, f"{name}.{kind}") for kind in ("classic", "quorum")] == [b"still here"] * 2


def test_a_paused_broker_is_silent_and_speaks_again(rabbitmq: Broker) -> None:
    b, queue = own(rabbitmq), f"brokers.paused.{uuid.uuid4().hex}"
    publish(b, queue, b"later")
    b.pause()
    with socket.create_connection((b.host, b.port), timeout=0.5) as peer:
        peer.sendall(b"AMQP\x00\x00\x09\x01")
        with pytest.raises(TimeoutError):
            peer.recv(1)
        b.resume()
        peer.settimeout(10)
        assert peer.recv(1) == b"\x01"  # the method frame of connection.start
    assert take(b, queue) == b"later"


def test_ctl_answers_and_says_what_went_wrong(rabbitmq: Broker) -> None:
    b, queue = own(rabbitmq), f"brokers.ctl.{uuid.uuid4().hex}"
    publish(b, queue, b"one")
    assert f"{queue}\t1" in b.ctl("list_queues", "name", "messages").splitlines()
    with pytest.raises(BrokerFailed, match="no_such_command"):
        b.ctl("no_such_command")


def test_it_listens_on_the_loopback_only(every_broker: Broker) -> None:
    inodes = set()
    for pid in own(every_broker).pids():
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(entry)))
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    addresses = {row[1].split(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes}
    assert "0100007F" in addresses
    assert addresses <= {"0100007F", "00000000000000000000000001000000"}


def test_nothing_is_left_after_stop(every_broker: Broker) -> None:
    version = own(every_broker).version.rpartition(".")[0]
    with broker(every_broker.kind, version=version) as other:
        b = own(other)
        pids, data, port = b.pids(), b.data, b.port
        assert port != every_broker.port
    assert pids
    assert not [pid for pid in pids if alive(pid)]
    assert not data.exists()
    b.stop()
    with pytest.raises(BrokerFailed, match="stopped"):
        b.kill()


def test_nothing_is_left_when_its_owner_is_killed(every_broker: Broker) -> None:
    kind, version = every_broker.kind, own(every_broker).version.rpartition(".")[0]
    code = (
        "import sys, time; from tests.brokers import broker\n"
        f"b = broker('{kind}', version='{version}'); print(b.data, *b.pids(), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        data, *pids = owner.stdout.readline().split()
        owner.kill()
    assert pids
    assert until(lambda: not Path(data).exists())
    assert not [pid for pid in pids if alive(int(pid))]


def test_up_prints_url_and_origin_and_ends_on_sigterm(rabbitmq310: Broker) -> None:
    own(rabbitmq310)
    argv = [sys.executable, "-m", "tests.brokers", "up", "rabbitmq"]
    with subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url, described = process.stdout.readline().strip(), process.stdout.readline()
        assert re.fullmatch(r"rabbitmq://\w+:\w+@[\w.]+:\d+/", url)
        assert rabbitmq310.how in described
        assert rabbitmq310.version in described
        process.terminate()
        assert process.wait(timeout=20) == 0
    port = int(url.rstrip("/").rpartition(":")[2])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_given_broker_is_used_and_cannot_be_killed(
    rabbitmq310: Broker, rabbitmq43: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDELIVER_TEST_RABBITMQ_URL", f"{rabbitmq310.url}, {rabbitmq43.url}")
    given = broker("rabbitmq", version="4.3")
    assert (given.how, given.port, given.version) == ("env", rabbitmq43.port, rabbitmq43.version)
    assert not given.can_restart
    for forbidden in (given.kill, given.start, given.pause, given.resume, lambda: given.ctl("status")):
        with pytest.raises(BrokerFailed, match="REDELIVER_TEST_RABBITMQ_URL"):
            forbidden()
    given.stop()
    assert rabbitmq43.alive()


def test_a_given_broker_of_the_wrong_version_is_missing_with_a_cure(
    rabbitmq310: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDELIVER_TEST_RABBITMQ_URL", rabbitmq310.url)
    monkeypatch.delenv("REDELIVER_TEST_RABBITMQ43_URL", raising=False)
    with pytest.raises(BrokerMissing) as missing:
        broker("rabbitmq", version="4.3")
    assert rabbitmq310.version in missing.value.reason
    assert "REDELIVER_TEST_RABBITMQ43_URL" in missing.value.cure


def test_a_given_broker_that_does_not_answer_is_missing_with_a_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else can take it
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("REDELIVER_TEST_RABBITMQ310_URL", f"rabbitmq://a:b@127.0.0.1:{bound.getsockname()[1]}/")
        with pytest.raises(BrokerMissing, match="REDELIVER_TEST_RABBITMQ310_URL"):
            broker("rabbitmq", version="3.10")


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("1", "1 error")])
def test_a_missing_broker_skips_on_a_laptop_and_fails_in_ci(tmp_path: Path, ci: str, outcome: str) -> None:
    (tmp_path / "conftest.py").write_text("from tests.brokers.pytest_support import *\n")
    (tmp_path / "test_one.py").write_text("def test_one(rabbitmq43): pass\n")
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"rabbitmq://a:b@127.0.0.1:{bound.getsockname()[1]}/"
        env = os.environ | {
            "REDELIVER_TEST_RABBITMQ43_URL": url,
            "REDELIVER_CI": ci,
            "PYTHONPATH": str(REPOSITORY),
        }
        argv = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", ".", "."]
        said = subprocess.run(argv, check=False, cwd=tmp_path, env=env, capture_output=True, text=True).stdout
    assert outcome in said.splitlines()[-1]
    assert "unset it" in said  # the cure
    assert "broker for rabbitmq 4.3: none" in said


def test_half_a_build_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDELIVER_CACHE", str(tmp_path))
    monkeypatch.setattr(_install, "root_prefix", lambda *_: [])
    monkeypatch.setattr(_install, "_debootstrap_script", lambda _: "script")
    stale = tmp_path / "brokers" / "thing.building-1"
    stale.mkdir(parents=True)

    def broken(prefix: object, suite: str, package: str, folder: Path, cure: str) -> None:
        folder.mkdir()
        raise BrokerMissing("the mirror is away", cure)

    monkeypatch.setattr(_install, "_build", broken)
    with pytest.raises(BrokerMissing, match="mirror"):
        _install.debian_system("thing", "forky", "thing", "wait")
    assert [path.name for path in (tmp_path / "brokers").iterdir()] == ["thing.lock"]


def test_two_fetches_at_once_build_once(tmp_path: Path) -> None:
    code = (
        "import time; from tests.brokers import _install as i\n"
        "i.root_prefix = lambda *_: []; i._debootstrap_script = lambda _: 'script'\n"
        "def build(prefix, suite, package, folder, cure): print('built'); time.sleep(1); folder.mkdir()\n"
        "i._build = build; print(i.debian_system('thing', 'forky', 'thing', 'wait'))"
    )
    env = os.environ | {"REDELIVER_CACHE": str(tmp_path)}
    argv = [sys.executable, "-c", code]
    both = [subprocess.Popen(argv, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = "".join(process.communicate(timeout=30)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert said.count("built") == 1
    assert said.count(str(tmp_path / "brokers" / "thing")) == 2
