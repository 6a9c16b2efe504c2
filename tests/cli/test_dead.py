# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver dead list, show, replay: on real brokers, and what is said of bad input."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.cli.output import plain, short_ids
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.running import redeliver
from tests.faults.letters import dead_lettered_by_the_broker, declare, put_dead_letters, take, until_there
from tests.faults.load import channel_on

Capture = pytest.CaptureFixture[str]
SOURCE, DLQ = "dead.orders", "dlq.dead.orders"
BODIES = [b'{"lamp": 1, "password": "hunter2"}', b"\x00\xff\x80", "zwölf".encode()]


# -- bad input: nothing is connected to -------------------------------------------------------------


def refused(capsys: Capture, *words: str) -> str:
    assert run(["dead", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.mark.parametrize("command", ["list", "show", "replay"])
def test_a_memory_broker_cannot_be_reached_from_outside(command: str, capsys: Capture) -> None:
    err = refused(capsys, command, "memory://", "DLQ.orders")
    assert err.startswith("error: memory://: a memory broker lives in one process")
    assert "Use TestApp" in err


@pytest.mark.parametrize("command", ["list", "show", "replay"])
@pytest.mark.parametrize("limit", ["0", "-1", "many"])
def test_a_limit_is_a_number_from_one_on(command: str, limit: str, capsys: Capture) -> None:
    assert "--limit" in refused(capsys, command, "rabbitmq://h/", "DLQ.orders", "--limit", limit)


def test_a_topic_holds_no_letters(capsys: Capture) -> None:
    assert "topic:dead is no queue" in refused(capsys, "list", "rabbitmq://h/", "topic:dead")


def test_an_empty_id_is_no_id(capsys: Capture) -> None:
    assert "--id: an empty id" in refused(capsys, "replay", "rabbitmq://h/", "DLQ.orders", "--id", "")


def test_a_variable_that_is_not_set(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROKER", raising=False)
    assert "env:BROKER: the variable 'BROKER' is not set" in refused(capsys, "list", "env:BROKER", "DLQ.orders")


def test_a_variable_holds_the_url_and_its_password_is_not_shown(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROKER", "kafka://me:hunter2@h/")
    err = refused(capsys, "list", "env:BROKER", "DLQ.orders")
    assert "kafka://me@h/: scheme 'kafka' is unknown" in err
    assert "hunter2" not in err


# -- how it is shown --------------------------------------------------------------------------------


def test_ids_are_short_but_tell_letters_apart() -> None:
    assert short_ids(["abcdefghijk", "abcdefghxyz", "q"]) == {
        "abcdefghijk": "abcdefghi",
        "abcdefghxyz": "abcdefghx",
        "q": "q",
    }


def test_a_strangers_text_cannot_steer_the_terminal() -> None:
    assert plain("a\x1b[2Jb\r\n\u202ec") == "a\\x1b[2Jb\\r\\n\\u202ec"
    assert plain("a\n\tb\x1b", lines=True) == "a\n\tb\\x1b"


# -- on real brokers --------------------------------------------------------------------------------


@pytest.fixture
def letters(every_broker: Broker) -> Iterator[Broker]:
    """Yield a broker with three letters in DLQ, their source empty."""
    declare(every_broker, SOURCE, DLQ)
    with connect(every_broker.url) as session:
        put_dead_letters(session, DLQ, SOURCE, BODIES)
    yield every_broker
    for queue in (SOURCE, DLQ):
        take(every_broker, queue)


def asked(folder: Path, broker: Broker, *words: str, code: int = 0) -> Any:
    done = redeliver(folder, "dead", *words, "--json", extra={"BROKER": broker.url})
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


@pytest.mark.broker
def test_letters_are_listed_and_stay(letters: Broker, tmp_path: Path) -> None:
    first, *others = asked(tmp_path, letters, "list", "env:BROKER", DLQ)
    assert first == {
        "id": "copy-0",
        "from": f"queue:{SOURCE}",
        "evidence": "ours",
        "problem": None,
        "reason": "exhausted",
        "framework": None,
        "task": None,
        "failures": 3,
        "error_type": "ValueError",
        "error_message": "no such lamp, password=***",
        "fingerprint": None,
        "since_s": 1767225601.5,
        "original_message_id": first["original_message_id"],
        "generation": 0,
        "replay_id": None,
        "bytes": len(BODIES[0]),
    }
    assert [letter["id"] for letter in others] == ["copy-1", "copy-2"]
    assert len(asked(tmp_path, letters, "list", "env:BROKER", DLQ, "--limit", "2")) == 2
    done = redeliver(tmp_path, "dead", "list", letters.url, DLQ)
    assert done.returncode == 0
    assert [line.split()[:3] for line in done.stdout.splitlines() if "copy-" in line] == [
        [f"copy-{n}", f"queue:{SOURCE}", "exhausted"] for n in range(3)
    ]
    assert ("looking marks the messages as redelivered" in done.stderr) == (letters.kind == "rabbitmq")
    assert "hunter2" not in done.stdout + done.stderr


@pytest.mark.broker
def test_letters_of_a_queue_are_chosen_in_memory(letters: Broker, tmp_path: Path) -> None:
    def chosen(*words: str) -> list[str]:
        return [one["id"] for one in asked(tmp_path, letters, "list", "env:BROKER", DLQ, *words)]

    assert chosen("--where", "id in (copy-0, copy-2) and error = ValueError") == ["copy-0", "copy-2"]
    assert chosen("--where", "failures = 3", "--limit", "1") == ["copy-0"]
    assert chosen("--where", f"bytes = {len(BODIES[1])} and source = {SOURCE}", "--since", "2026-01-01") == ["copy-1"]
    assert chosen("--since", "2026-01-02") == []
    done = redeliver(tmp_path, "dead", "show", letters.url, DLQ, "--where", "id = copy-1", "--body", "hex")
    assert done.stdout.startswith("letter copy-1,")
    assert f"note: looked at 3 of queue:{DLQ}, all letters: 1 are meant" in done.stderr


@pytest.mark.broker
def test_a_letter_is_shown_with_its_headers_and_its_body(letters: Broker, tmp_path: Path) -> None:
    (first,) = asked(tmp_path, letters, "show", "env:BROKER", DLQ)
    assert (first["id"], first["body"], first["headers"]["tenant"]) == ("copy-0", '{"lamp": 1, "password": "***"}', "a")
    assert first["headers"]["redeliver_error_message"] == "no such lamp, password=***"
    assert first["history"] == [
        {"at_s": 1767225600.0, "fingerprint": "0123456789abcdef", "host": "shop-1", "delay_s": 1.5},
        {"at_s": 1767225601.5, "fingerprint": "fedcba9876543210", "host": "shop-2", "delay_s": None},
    ]
    (binary,) = asked(tmp_path, letters, "show", "env:BROKER", DLQ, "--id", "copy-1")
    assert (binary["body"], binary["body_encoding"]) == ("00 ff 80", "hex")
    done = redeliver(tmp_path, "dead", "show", letters.url, DLQ, "--id", "copy-2")
    assert "letter copy-2, from queue:dead.orders, 6 bytes" in done.stdout
    assert "\nzwölf\n" in done.stdout
    assert "  redeliver_reason: exhausted\n" in done.stdout
    assert "redeliver_history:" not in done.stdout  # it is shown as a table
    told = [line.split() for line in done.stdout.splitlines() if "shop-" in line]
    assert told == [
        ["2026-01-01", "00:00:00Z", "0123456789abcdef", "shop-1", "1.5", "s"],
        ["2026-01-01", "00:00:01Z", "fedcba9876543210", "shop-2"],
    ]


@pytest.mark.broker
@pytest.mark.parametrize(
    "time", ["9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999-14:00", "yesterday"]
)
def test_times_that_a_stranger_wrote_end_no_command(rabbitmq43: Broker, time: str, tmp_path: Path) -> None:
    dead_letter_queue = "dlq.dead.times"
    declare(rabbitmq43, dead_letter_queue)
    history = json.dumps([{"t": time, "f": "0123456789abcdef", "h": "shop-1"}])
    names = ("redeliver_last_failed_at", "redeliver_first_failed_at", "redeliver_not_before")
    headers = dict.fromkeys(names, time) | {"redeliver_history": history, "redeliver_failures": "3"}
    ours = {"redeliver_reason": "exhausted", "redeliver_failures_for": SOURCE, "redeliver_original_destination": SOURCE}
    with connect(rabbitmq43.url) as session:
        session.publish(dead_letter_queue, b"one", headers | ours)
    for words in (("list",), ("show",), ("list", "--json"), ("show", "--json")):
        done = redeliver(tmp_path, "dead", *words[:1], rabbitmq43.url, dead_letter_queue, *words[1:])
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.broker
def test_a_secret_that_a_stranger_wrote_as_source_error_or_earlier_id_is_not_shown(
    rabbitmq43: Broker, tmp_path: Path
) -> None:
    dead_letter_queue = "dlq.dead.names"
    declare(rabbitmq43, dead_letter_queue)
    headers = {"redeliver_reason": "password=Zq9S3cr3t", "redeliver_original_kind": "topic"}
    headers |= {"redeliver_error_type": "Authorization: Bearer Zq9S3cr3t5a35e26c221b"}
    headers |= {"redeliver_original_message_id": "api_key: Zq9S3cr3t", "redeliver_replay_id": "pwd=Zq9S3cr3t;"}
    name = "prices::amqp://shop:Zq9S3cr3t@broker:5672/"
    with connect(rabbitmq43.url) as session:
        session.publish(dead_letter_queue, b"one", headers | {"redeliver_original_destination": name})
    for words in (("list",), ("show",), ("replay",)):
        for form in ((), ("--json",)):
            done = redeliver(tmp_path, "dead", *words, rabbitmq43.url, dead_letter_queue, *form)
            assert "Zq9S3cr3t" not in done.stdout + done.stderr
            assert "prices::" in done.stdout


@pytest.mark.broker
def test_a_source_that_no_queue_can_be_called_refuses_its_letter(rabbitmq43: Broker, tmp_path: Path) -> None:
    dead_letter_queue = "dlq.dead.long.names"
    declare(rabbitmq43, dead_letter_queue)
    headers = {"redeliver_reason": "exhausted", "redeliver_original_destination": "x" * 300}
    with connect(rabbitmq43.url) as session:
        session.publish(dead_letter_queue, b"one", headers)
    done = redeliver(tmp_path, "dead", "replay", rabbitmq43.url, dead_letter_queue, "--json")
    assert "Traceback" not in done.stderr
    assert [letter["outcome"] for letter in json.loads(done.stdout)["letters"]] == ["refused"]
    take(rabbitmq43, dead_letter_queue)


@pytest.mark.broker
def test_letters_go_back_as_they_were(letters: Broker, tmp_path: Path) -> None:
    one = asked(tmp_path, letters, "replay", "env:BROKER", DLQ, "--id", "copy-1")
    assert (one["replayed"], one["refused"], one["skipped"]) == (1, 0, 0)
    assert one["letters"] == [{"id": "copy-1", "to": f"queue:{SOURCE}", "outcome": "replayed", "why": None}]
    done = redeliver(tmp_path, "dead", "replay", letters.url, DLQ)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 replayed, replay id " in done.stdout
    back = take(letters, SOURCE)
    assert sorted(delivery.body for delivery in back) == sorted(BODIES)
    assert {delivery.headers["tenant"] for delivery in back} == {"a"}
    assert {delivery.headers["redeliver_generation"] for delivery in back} == {"1"}
    assert not [name for delivery in back for name in delivery.headers if name == "redeliver_reason"]
    assert asked(tmp_path, letters, "replay", "env:BROKER", DLQ)["letters"] == []


@pytest.mark.broker
def test_an_id_that_no_letter_has(letters: Broker, tmp_path: Path) -> None:
    for command in ("list", "show", "replay"):
        said = asked(tmp_path, letters, command, "env:BROKER", DLQ, "--id", "nobody", code=1)
        assert "no such letter among the first 3: 'nobody'" in said
    assert "begins the ids of 3 letters" in asked(tmp_path, letters, "replay", "env:BROKER", DLQ, "--id", "co", code=2)
    assert len(asked(tmp_path, letters, "list", "env:BROKER", DLQ)) == 3


@pytest.mark.broker
def test_a_dead_letter_queue_that_is_not_there(every_broker: Broker, tmp_path: Path) -> None:
    if every_broker.kind == "activemq":  # it has every queue that anybody asks for
        assert asked(tmp_path, every_broker, "list", "env:BROKER", "dlq.nowhere") == []
        assert asked(tmp_path, every_broker, "replay", "env:BROKER", "dlq.nowhere")["letters"] == []
        return
    for command in ("list", "show", "replay"):
        said = asked(tmp_path, every_broker, command, "env:BROKER", "dlq.nowhere", code=1)
        assert "there is no queue:dlq.nowhere. Check its name" in said
        assert said.count("\n") == 1


@pytest.mark.parametrize("command", ["list", "show", "replay"])
@pytest.mark.parametrize("scheme", ["rabbitmq", "activemq", "artemis"])
def test_a_broker_that_is_not_there(command: str, scheme: str, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"{scheme}://me:hunter2@127.0.0.1:{nobody.getsockname()[1]}/"
        done = redeliver(tmp_path, "dead", command, url, DLQ)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    one_line(done.stderr, f"error: {scheme}://me@127.0.0.1:", "no broker answers")


def one_line(said: str, *parts: str) -> None:
    assert said.count("\n") == 1, said
    assert said.startswith(parts[0])
    assert all(part in said for part in parts)
    assert "hunter2" not in said


@pytest.mark.broker
@pytest.mark.parametrize("command", ["list", "replay"])
@pytest.mark.parametrize("there", ["rabbitmq310", "activemq63", "artemis244"])
def test_a_wrong_password(command: str, there: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker: Broker = request.getfixturevalue(there)
    place = f"{broker.host}:{broker.port}{broker.path}"
    done = redeliver(tmp_path, "dead", command, f"{broker.kind}://{broker.user}:hunter2@{place}", DLQ)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    one_line(done.stderr, f"error: {broker.kind}://{broker.user}@{place}: the broker refuses", "Check both")


@pytest.mark.broker
def test_what_a_broker_dead_lettered_itself_is_listed_and_goes_back(every_broker: Broker, tmp_path: Path) -> None:
    source = "dead.native"
    dead_letter_queue = dead_lettered_by_the_broker(every_broker, source, b"one")
    (letter,) = asked(tmp_path, every_broker, "list", "env:BROKER", dead_letter_queue)
    assert (letter["from"], letter["evidence"], letter["failures"]) == (f"queue:{source}", "broker", 0)
    assert letter["reason"] == ("rejected" if every_broker.kind == "rabbitmq" else None)
    assert asked(tmp_path, every_broker, "replay", "env:BROKER", dead_letter_queue)["replayed"] == 1
    (back,) = take(every_broker, source)
    assert (back.body, back.headers["tenant"], back.headers["redeliver_generation"]) == (b"one", "a", "1")
    assert back.headers["redeliver_original_destination"] == source
    assert back.reader.death(back.native) is None
    assert asked(tmp_path, every_broker, "list", "env:BROKER", dead_letter_queue) == []


# -- what RabbitMQ dead-lettered itself --------------------------------------------------------------------


def declare_with_dead_letters(broker: Broker, source: str, dlq: str, **arguments: Any) -> None:
    with channel_on(broker) as channel:
        for name in (source, dlq):
            channel.queue_delete(name)
        to_dead_letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dlq}
        channel.queue_declare(source, durable=True, arguments=to_dead_letters | arguments)
        channel.queue_declare(dlq, durable=True)


@pytest.mark.broker
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_rabbitmq_dead_lettered_itself_is_listed_and_goes_back(
    rabbitmq: Broker, kind: str, tmp_path: Path
) -> None:
    source, dlq = f"dead.native.{kind}", f"dlq.native.{kind}"
    declare_with_dead_letters(rabbitmq, source, dlq, **{"x-queue-type": kind})
    with channel_on(rabbitmq) as channel:
        properties = pika.BasicProperties(delivery_mode=2, message_id="m1", headers={"tenant": "a"})
        channel.basic_publish("", source, b"one", properties)
        method = next(m for m, _, _ in iter(lambda: channel.basic_get(source), None) if m is not None)
        channel.basic_reject(method.delivery_tag, requeue=False)
    until_there(rabbitmq, dlq)
    (letter,) = asked(tmp_path, rabbitmq, "list", "env:BROKER", dlq)
    assert (letter["id"], letter["from"], letter["reason"]) == ("m1", f"queue:{source}", "rejected")
    assert (letter["evidence"], letter["failures"], letter["since_s"]) == ("broker", 0, None)
    assert asked(tmp_path, rabbitmq, "replay", "env:BROKER", dlq)["replayed"] == 1
    (back,) = take(rabbitmq, source)
    assert (back.body, back.headers["tenant"], back.message_id) == (b"one", "a", "m1")
    assert not [name for name in back.headers if name.startswith("x-") and "death" in name]
    assert back.headers["redeliver_generation"] == "1"


@pytest.mark.broker
def test_a_letter_that_expired_in_its_grave_still_goes_back_to_where_it_was_consumed(
    rabbitmq: Broker, tmp_path: Path
) -> None:
    source, middle, last = "dead.chain", "dead.chain.middle", "dead.chain.last"
    declare_with_dead_letters(rabbitmq, source, middle)
    declare_with_dead_letters(rabbitmq, middle, last, **{"x-message-ttl": 50})
    with channel_on(rabbitmq) as channel:
        channel.basic_publish("", source, b"one", pika.BasicProperties(delivery_mode=2))
        method = next(m for m, _, _ in iter(lambda: channel.basic_get(source), None) if m is not None)
        channel.basic_reject(method.delivery_tag, requeue=False)
    until_there(rabbitmq, last)
    (letter,) = asked(tmp_path, rabbitmq, "list", "env:BROKER", last)
    assert (letter["from"], letter["reason"]) == (f"queue:{source}", "rejected")


@pytest.mark.broker
def test_a_full_source_refuses_and_the_letter_stays(rabbitmq: Broker, tmp_path: Path) -> None:
    source, dlq = "dead.full", "dlq.full"
    with channel_on(rabbitmq) as channel:
        for name in (source, dlq):
            channel.queue_delete(name)
        channel.queue_declare(source, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        channel.queue_declare(dlq, durable=True)
    with connect(rabbitmq.url) as session:
        session.publish(source, b"in the way")
        put_dead_letters(session, dlq, source, [b"one"])
        put_dead_letters(session, dlq, "dead.gone", [b"two"])
    found = asked(tmp_path, rabbitmq, "replay", "env:BROKER", dlq, code=3)
    assert (found["replayed"], found["refused"]) == (0, 2)
    assert [letter["why"] for letter in found["letters"]] == [
        f"queue:{source} did not take it: the broker refused it (nack)",
        "queue:dead.gone did not take it: NO_ROUTE (312)",
    ]
    assert len(asked(tmp_path, rabbitmq, "list", "env:BROKER", dlq)) == 2
