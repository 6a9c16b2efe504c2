# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `redeliver doctor` against RabbitMQ: each wrong setting is found with its cure, and a right broker has none."""

from __future__ import annotations

import base64
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.doctor import FindingStatus
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_pika import inspection
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.doctor.findings import AheadClock, examined, problems, the, unique, unknown
from tests.faults.load import until

CLASSIC, QUORUM = {"x-queue-type": "classic"}, {"x-queue-type": "quorum"}
AT_LEAST_ONCE = {**QUORUM, "x-dead-letter-exchange": "amq.fanout", "x-dead-letter-strategy": "at-least-once"}
OK, WARNING, WRONG = FindingStatus.OK, FindingStatus.WARNING, FindingStatus.WRONG


class World:
    """Holds one RabbitMQ with a source and its dead-letter queue, which are right at first; undoes a test's changes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.source = unique("source")
        self.target = f"dlq.{self.source}"
        self._connection = pika.BlockingConnection(
            pika.URLParameters(f"amqp://guest:guest@{broker.host}:{broker.port}/")
        )
        self._undo: list[tuple[str, ...]] = []

    @property
    def url(self) -> str:
        return f"{self.broker.url}?management={self.broker.management_url}"

    @property
    def is_43(self) -> bool:
        return self.broker.version.startswith("4.3")

    def declare(self, queue: str, arguments: dict[str, Any] = CLASSIC, **how: Any) -> None:
        channel = self._connection.channel()
        channel.queue_declare(queue, **{"durable": True, **how}, arguments=arguments)
        channel.close()

    def exchange(self, name: str, kind: str = "direct") -> str:
        channel = self._connection.channel()
        channel.exchange_declare(name, kind, auto_delete=True)
        channel.close()
        return name

    def put(self, *names: str, **body: Any) -> None:
        """Send PUT /api/NAME/…, and undo it at the end of the test."""
        self._undo.append(names)
        self.ask("PUT", *names, **body)

    def ask(self, method: str, *names: str, **body: Any) -> Any:
        parts = urlsplit(str(self.broker.management_url))
        path = "/".join(quote(name, safe="") for name in names)
        request = urllib.request.Request(f"http://{parts.hostname}:{parts.port}/api/{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        request.add_header("Content-Type", "application/json")
        data = json.dumps(body).encode() if method == "PUT" else None
        with urllib.request.urlopen(request, data, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def policy(self, queue: str, kind: str = "policies", **definition: Any) -> None:
        self.put(kind, "/", f"p-{queue}", **{"pattern": f"^{queue}$", "definition": definition, "apply-to": "queues"})

    def user(self, **permissions: str) -> str:
        """Return the URL of a new user who has other permissions than all."""
        name = unique("user")
        self.put("users", name, password="secret", tags="")
        self.put("permissions", "/", name, **{"configure": ".*", "write": ".*", "read": ".*", **permissions})
        return (
            f"rabbitmq://{name}:secret@{self.broker.host}:{self.broker.port}/?management={self.broker.management_url}"
        )

    def is_calm(self) -> bool:
        """Return whether no alarm is on. The management lags by seconds, and a young node answers 500."""
        try:
            nodes = self.ask("GET", "nodes")
        except urllib.error.HTTPError:
            return False
        return not any(node.get("mem_alarm") or node.get("disk_free_alarm") for node in nodes)

    def fell_back(self) -> bool:
        """Return whether the broker's log says that the dead letters of the source are moved at most once."""
        started: Any = self.broker
        lines = (started.data / "node.log").read_text().splitlines()
        return any("Falling back to dead-letter-strategy at-most-once" in one and self.source in one for one in lines)

    def queues(self) -> set[str]:
        return {queue["name"] for queue in self.ask("GET", "queues")}

    def close(self) -> None:
        for names in reversed(self._undo):
            self.ask("DELETE", *names)
        channel = self._connection.channel()
        for queue in (self.source, self.target):
            channel.queue_delete(queue)
        self._connection.close()


@pytest.fixture
def world(rabbitmq: Broker) -> Iterator[World]:
    yield from _world_of(rabbitmq)


@pytest.fixture
def world43(rabbitmq43: Broker) -> Iterator[World]:
    """Yield a world on RabbitMQ 4.3, for what 3.10 does not have."""
    yield from _world_of(rabbitmq43)


def _world_of(broker: Broker) -> Iterator[World]:
    only_if(broker.management_url is not None, "configure")
    made = World(broker)
    until(made.is_calm, 30, "the alarm of an earlier test is not lifted, as far as the management knows")
    yield made
    made.close()


Change = Callable[[World], None]


def on_source(arguments: dict[str, Any], **how: Any) -> Change:
    def change(world: World) -> None:
        world.declare(world.source, arguments, **how)
        world.declare(world.target)

    return change


def on_target(arguments: dict[str, Any], **how: Any) -> Change:
    def change(world: World) -> None:
        world.declare(world.source)
        world.declare(world.target, arguments, **how)

    return change


def policy_on(role: str, kind: str = "policies", arguments: dict[str, Any] = CLASSIC, **definition: Any) -> Change:
    def change(world: World) -> None:
        world.declare(world.source, arguments)
        world.declare(world.target, arguments)
        spelled = {key.replace("_", "-"): value for key, value in definition.items()}
        world.policy(world.source if role == "source" else world.target, kind, **spelled)

    return change


def no_target(world: World) -> None:
    world.declare(world.source)


def to_an_exchange_without_a_queue(world: World) -> None:
    exchange = world.exchange(unique("unbound"))
    world.declare(world.source, {**CLASSIC, "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "k"})
    world.declare(world.target)


def a_cycle(world: World) -> None:
    world.declare(world.source)
    way = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": world.source}
    world.declare(world.target, {**CLASSIC, **way})


# What is set, the problem, where it is, how bad it is, and what the cure names.
WRONG_SETTINGS = {
    "the target is missing": (no_target, "dead-letter-target-missing", "target", WARNING, "Declare it"),
    "the target drops": (
        on_target({**CLASSIC, "x-max-length": 5}),
        "length-limit-drops",
        "target",
        WRONG,
        "x-max-length",
    ),
    "the target refuses": (
        on_target({**CLASSIC, "x-max-length-bytes": 5000, "x-overflow": "reject-publish"}),
        "length-limit-refuses",
        "target",
        WARNING,
        "x-max-length-bytes is an argument",
    ),
    "an operator limits the target": (
        policy_on("target", "operator-policies", max_length=7),
        "length-limit-drops",
        "target",
        WRONG,
        "set_operator_policy",
    ),
    "a policy lets dead letters expire": (
        policy_on("target", message_ttl=86_400_000),
        "target-ttl",
        "target",
        WRONG,
        "Change message-ttl in the policy",
    ),
    "the target expires": (
        on_target({**CLASSIC, "x-expires": 600_000}),
        "queue-vanishes",
        "target",
        WRONG,
        "x-expires",
    ),
    "the target is deleted with its last consumer": (
        on_target(CLASSIC, auto_delete=True),
        "queue-vanishes",
        "target",
        WRONG,
        "not auto-delete",
    ),
    "the target leads back": (a_cycle, "dead-letters-come-back", "target", WARNING, "x-dead-letter-exchange"),
    "the target has a delivery limit": (
        on_target({**QUORUM, "x-delivery-limit": 2}),
        "delivery-limit-on-target",
        "target",
        WARNING,
        "x-delivery-limit",
    ),
    "the delivery limit is below the policy": (
        on_source({**QUORUM, "x-delivery-limit": 3}),
        "delivery-limit-below-policy",
        "source",
        WRONG,
        "Raise the limit above 8",
    ),
    "a policy's delivery limit is below the policy": (
        policy_on("source", arguments=QUORUM, delivery_limit=7, dead_letter_exchange="amq.fanout"),
        "delivery-limit-below-policy",
        "source",
        WARNING,
        "Change delivery-limit in the policy",
    ),
    "the dead-letter exchange is missing": (
        on_source({**CLASSIC, "x-dead-letter-exchange": "nowhere"}),
        "broker-dead-letters-lost",
        "source",
        WRONG,
        "Make that target",
    ),
    "the dead-letter exchange has no queue": (
        to_an_exchange_without_a_queue,
        "broker-dead-letters-lost",
        "source",
        WRONG,
        "Make that target",
    ),
    "dead letters go to their own queue": (
        on_source({**CLASSIC, "x-dead-letter-exchange": ""}),
        "broker-dead-letters-lost",
        "source",
        WRONG,
        "name another one",
    ),
    "dead letters move at most once": (
        on_source({**AT_LEAST_ONCE, "x-delivery-limit": 100}),
        "dead-letter-strategy-without-effect",
        "source",
        WRONG,
        "Set overflow to reject-publish",
    ),
    "a policy's dead letters move at most once": (
        policy_on("source", arguments={**AT_LEAST_ONCE, "x-overflow": "reject-publish"}, overflow="drop-head"),
        "dead-letter-strategy-without-effect",
        "source",
        WRONG,
        "Set overflow to reject-publish",
    ),
    "the source drops": (
        on_source({**CLASSIC, "x-max-length": 5}),
        "length-limit-drops",
        "source",
        WRONG,
        "let a full",
    ),
    "messages expire": (
        on_source({**CLASSIC, "x-message-ttl": 30_000}),
        "source-ttl",
        "source",
        WARNING,
        "x-message-ttl",
    ),
}
# The same on 4.3 alone: consumer timeouts of a queue, and delayed retries.
WRONG_SETTINGS_43 = {
    "the consumer timeout is below a hold": (
        policy_on("source", consumer_timeout=5000),
        "consumer-timeout-below-hold",
        "source",
        WRONG,
        "Raise it to 40 s",
    ),
    "the consumer timeout is short": (
        policy_on("source", consumer_timeout=20_000),
        "consumer-timeout-short",
        "source",
        WARNING,
        "Change consumer-timeout",
    ),
    "the broker delays returns": (
        policy_on("source", arguments=QUORUM, delayed_retry_type="all", delayed_retry_min=500, delivery_limit=50),
        "broker-delays-returns",
        "source",
        WARNING,
        "Change delayed-retry-type",
    ),
    "a delayed retry has no minimum": (
        on_source({**QUORUM, "x-delayed-retry-type": "failed", "x-delivery-limit": 50}),
        "broker-delay-without-effect",
        "source",
        WRONG,
        "Set the type and the minimum",
    ),
    "a delayed retry has an unknown type": (
        on_source({**QUORUM, "x-delayed-retry-type": "sometimes", "x-delayed-retry-min": 500, "x-delivery-limit": 50}),
        "broker-delay-without-effect",
        "source",
        WRONG,
        "Set the type and the minimum",
    ),
}
BESIDE = {"delivery-limit-deletes", "broker-dead-letters-lost", "delivery-limit-on-target"}  # of a quorum queue on 4.3


@pytest.mark.parametrize("setting", WRONG_SETTINGS)
def test_a_wrong_setting_is_found_with_its_cure(world: World, setting: str) -> None:
    check_setting(world, *WRONG_SETTINGS[setting])


@pytest.mark.parametrize("setting", WRONG_SETTINGS_43)
def test_a_wrong_setting_of_43_is_found_with_its_cure(world43: World, setting: str) -> None:
    check_setting(world43, *WRONG_SETTINGS_43[setting])


def check_setting(world: World, change: Change, problem: str, role: str, status: FindingStatus, cure: str) -> None:
    change(world)
    found = examined(world.url, world.source)
    one = the(found, problem)
    assert (one.subject, one.status) == (f"queue:{world.source if role == 'source' else world.target}", status)
    assert cure in one.cure
    assert problems(found).keys() - BESIDE - {problem} == set()


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_right_broker_has_no_problem(world: World, kind: str) -> None:
    limit = {"x-delivery-limit": -1 if world.is_43 else 100, "x-dead-letter-exchange": "amq.direct"}
    world.declare(world.source, CLASSIC if kind == "classic" else {**QUORUM, **limit, "x-dead-letter-routing-key": "x"})
    world.declare(world.target)
    with bound(world, "amq.direct", "x"):
        found = examined(world.url, world.source)
    assert problems(found) == {}
    assert unknown(found) == {"consumer-timeout"}  # rabbitmq.conf's is told by no API
    assert the(found, "source").reason == f"exists, {kind}"


@pytest.mark.parametrize(
    ("arguments", "policy", "acts"),
    [
        ({"x-overflow": "reject-publish"}, {}, True),
        ({}, {"overflow": "reject-publish"}, True),
        ({"x-overflow": "drop-head"}, {"overflow": "reject-publish"}, True),
        ({"x-overflow": "reject-publish"}, {"overflow": "drop-head"}, False),
        ({}, {}, False),
    ],
    ids=["argument", "policy", "policy over argument", "argument under policy", "neither"],
)
def test_at_least_once_is_found_without_effect_where_the_broker_itself_says_so(
    world: World, arguments: dict[str, Any], policy: dict[str, Any], acts: bool
) -> None:
    """The broker writes into its log when it falls back to at-most-once."""
    only_if(world.broker.can_restart, "read the log of")
    if policy:
        world.policy(world.source, **policy)
    world.declare(world.source, {**AT_LEAST_ONCE, **arguments, "x-delivery-limit": 100})
    world.declare(world.target)
    found = {one.id for one in examined(world.url, world.source)}
    assert ("dead-letter-strategy-without-effect" in found) is not acts
    if not acts:
        until(world.fell_back, 10, "the broker does not say so")
    assert world.fell_back() is not acts


@contextmanager
def bound(world: World, exchange: str, key: str) -> Iterator[None]:
    channel = world._connection.channel()
    channel.queue_bind(world.target, exchange, key)
    yield
    channel.queue_unbind(world.target, exchange, key)
    channel.close()


@pytest.mark.parametrize(
    ("permission", "verb", "cure"),
    [
        ("read", "consume the queue", "the expression read"),
        ("write", "publish the default exchange", "match amq.default"),
        ("configure", "declare queues named redeliver.retry.", "the expression configure"),
    ],
)
def test_a_missing_permission_is_found_without_touching_a_message(
    world: World, permission: str, verb: str, cure: str
) -> None:
    on_source(CLASSIC)(world)
    channel = world._connection.channel()
    channel.basic_publish("", world.source, b"untouched")
    found = examined(world.user(**{permission: "^$"}), world.source)
    missing = [one for one in found if one.id == "permission-missing"]
    # A dead-letter exchange may be named by those only who may read the queue and write to the exchange.
    assert any(one.subject.startswith(verb) and cure in one.cure for one in missing)
    assert all(one.status is WRONG for one in missing)
    method, _, body = channel.basic_get(world.source, auto_ack=True)
    assert (body, method.redelivered) == (b"untouched", False)


def test_with_all_permissions_a_plain_user_is_ok(world: World) -> None:
    on_source(CLASSIC)(world)
    assert problems(examined(world.user(), world.source)) == {}


def test_too_few_connections_are_found(world: World) -> None:
    world.put("vhosts", "narrow")
    world.put("permissions", "narrow", "guest", configure=".*", write=".*", read=".*")
    world.ask("PUT", "vhost-limits", "narrow", "max-connections", value=1)
    broker = world.broker
    found = examined(f"rabbitmq://guest:guest@{broker.host}:{broker.port}/narrow?management={broker.management_url}")
    one = the(found, "connections-limited")
    assert one.status is WRONG
    assert "at least two connections" in one.cure
    world.declare(world.source)
    world.declare(world.target)


def test_clocks_that_differ_are_found(world: World) -> None:
    on_source(CLASSIC)(world)
    one = the(examined(world.url, world.source, clock=AheadClock(60.0)), "clock-skew")
    assert one.status is WRONG
    assert "behind" in one.reason
    assert "NTP" in one.cure
    assert the(examined(world.url, world.source, clock=AheadClock(-10.0)), "clock-skew").status is WARNING


def test_without_a_management_settings_are_not_known_and_the_cure_names_it(world: World) -> None:
    on_source({**QUORUM, "x-delivery-limit": 3, "x-message-ttl": 1000})(world)
    found = examined(world.broker.url, world.source)
    assert problems(found) == {}
    assert {"queue-settings", "delivery-limit", "consumer-timeout", "clock", "alarm"} <= unknown(found)
    settings = [one for one in found if one.id == "queue-settings"]
    assert {one.subject for one in settings} == {f"queue:{world.source}", f"queue:{world.target}"}
    assert all("management=http://" in one.cure for one in settings)
    assert the(found, "dead-letter-target").status is OK  # AMQP tells that it exists


def test_a_management_that_refuses_is_not_known_and_not_wrong(world: World) -> None:
    on_source(CLASSIC)(world)
    refusing = str(world.broker.management_url).replace("guest:guest", "guest:wrong")
    found = examined(f"{world.broker.url}?management={refusing}", world.source)
    assert problems(found) == {}
    assert "refuses this user" in the(found, "alarm").reason
    away = examined(f"{world.broker.url}?management=http://127.0.0.1:1/", world.source)
    assert "cannot be used" in the(away, "alarm").reason


def test_a_user_who_may_list_no_policies_learns_them_of_the_queue(world: World) -> None:
    policy_on("source", delivery_limit=3, arguments=QUORUM)(world)
    name = unique("watcher")
    world.put("users", name, password="secret", tags="management")
    world.put("permissions", "/", name, configure="", write="", read=".*")
    end = time.monotonic() + 30
    while not (world.ask("GET", "queues", "/", world.source).get("effective_policy_definition") or {}):
        assert time.monotonic() < end, "the management never shows the policy"
    parts = urlsplit(str(world.broker.management_url))
    found = examined(f"{world.broker.url}?management=http://{name}:secret@{parts.hostname}:{parts.port}/", world.source)
    one = the(found, "delivery-limit-below-policy")
    assert "returned 4 times" in one.reason
    assert "tag monitoring" in the(found, "alarm").cure


def test_no_probe_makes_and_sends_nothing_and_says_what_stays_unknown(world: World) -> None:
    on_source(CLASSIC)(world)
    before = world.queues()
    found = examined(world.url, world.source, probe=False)
    assert world.queues() <= before  # a queue of an earlier test may go meanwhile
    assert [one.reason for one in found if one.id in ("permission", "credentials")] == ["--no-probe"] * 4


def test_the_queues_of_a_probe_are_gone_also_after_an_interrupt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    on_source(CLASSIC)(world)
    before = world.queues()
    seen: set[str] = set()

    def interrupted(channel: Any, queue: str, source: str) -> None:
        declare(channel, queue, source)
        seen.update(world.queues())
        raise KeyboardInterrupt

    declare = inspection._declare
    monkeypatch.setattr(inspection, "_declare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        examined(world.url, world.source)
    assert seen - before  # one that is sent to, one with the name of a rung; the management lists them when it may
    end = time.monotonic() + 30
    while not world.queues() <= before:  # the broker deletes an exclusive queue a moment after its connection has ended
        assert time.monotonic() < end, "a queue of the probe is left"


def test_a_policy_without_dead_letters_and_one_that_comes_back_to_its_source(world: World) -> None:
    on_source(CLASSIC)(world)
    kept = examined(world.url, world.source, RedeliveryPolicy(3, 1.0, None, "keep"))
    assert "keeps a dead message" in the(kept, "dead-letter-target").reason
    loop = the(examined(world.url, world.source, RedeliveryPolicy(3, 1.0, "queue:$")), "dead-letter-loop")
    assert loop.status is WRONG


def test_a_topic_that_nobody_listens_to_is_no_target(world: World) -> None:
    on_source(CLASSIC)(world)
    found = examined(world.url, world.source, RedeliveryPolicy(3, 1.0, "topic:dead"))
    assert "publish the exchange 'amq.topic'" in {one.subject for one in found if one.id == "permission"}


def test_the_command_prints_a_table_or_json_and_ends_with_1_if_something_is_wrong(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    on_target({**CLASSIC, "x-message-ttl": 5000})(world)
    line = ["doctor", world.url, "--destination", world.source, "--policy", "3:1000; 8:move(queue:dlq.$)"]
    assert run(line) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(rf"target-ttl +wrong +queue:{re.escape(world.target)} ", out)
    assert "1 wrong" in out.splitlines()[-1]
    assert run([*line, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in told if one["status"] == "wrong"] == ["target-ttl"]
    assert run([*line[:-2], "--json"]) == 0  # without a policy nothing says where dead letters go
    assert "policy" in {one["id"] for one in json.loads(capsys.readouterr().out)}


def test_the_policy_of_the_url_is_taken_if_no_other_is_given(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    on_target({**CLASSIC, "x-message-ttl": 5000})(world)
    policy = quote("3:1000; 8:move(queue:dlq.$)")
    assert run(["doctor", f"{world.url}&JMSJCA.redeliveryhandling={policy}", "--destination", world.source]) == 1
    assert "target-ttl" in capsys.readouterr().out


def test_a_missing_source_and_a_wrong_password_are_one_line(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    on_source(CLASSIC)(world)
    for url, name, code in (
        (world.url, "no.such.queue", "destination-missing"),
        (world.broker.url, "no.such.queue", "destination-missing"),
        (world.broker.url.replace("guest:guest", "guest:wrong"), world.source, "credentials-refused"),
    ):
        assert run(["doctor", url, "--destination", name]) == 1
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert f"[{code}]" in err


# Over AMQP 1.0 the arguments of a queue are told, and its policies are not.
OVER_AMQP_10 = {
    "the target drops": (
        on_target({**QUORUM, "x-max-length": 5}),
        "length-limit-drops",
        "target",
        "x-max-length is an",
    ),
    "dead letters expire": (
        on_target({**CLASSIC, "x-message-ttl": 5000}),
        "target-ttl",
        "target",
        "x-message-ttl is an",
    ),
    "the delivery limit is low": (
        on_source({**QUORUM, "x-delivery-limit": 3}),
        "delivery-limit-below-policy",
        "source",
        "Raise the limit above 8",
    ),
    "the consumer timeout is below a hold": (
        on_source({**QUORUM, "x-consumer-timeout": 5000, "x-delivery-limit": -1}),
        "consumer-timeout-below-hold",
        "source",
        "x-consumer-timeout is an",
    ),
    "the target is missing": (
        lambda world: world.declare(world.source, QUORUM),
        "dead-letter-target-missing",
        "target",
        "",
    ),
}


def over_amqp_10(world: World, user: str = "guest:guest") -> str:
    return f"rabbitmq+proton://{user}@{world.broker.host}:{world.broker.port}/"


@pytest.mark.parametrize("setting", OVER_AMQP_10)
def test_over_amqp_10_a_wrong_argument_is_found(world43: World, setting: str) -> None:
    url = over_amqp_10(world43)
    change, problem, role, cure = OVER_AMQP_10[setting]
    change(world43)
    found = examined(url, world43.source, RedeliveryPolicy(8, [1.0, 9.9], "queue:dlq.$"), probe=False)
    one = the(found, problem)
    assert one.subject == f"queue:{world43.source if role == 'source' else world43.target}"
    assert cure in one.cure


def test_over_amqp_10_what_a_policy_sets_is_not_known_and_a_right_broker_has_no_problem(world43: World) -> None:
    url = over_amqp_10(world43)
    world43.declare(world43.source, {**QUORUM, "x-delivery-limit": -1})
    world43.declare(world43.target)
    found = examined(url, world43.source)
    assert problems(found) == {}
    settings = [one for one in found if one.id == "queue-settings"]
    assert len(settings) == 2
    assert all("management=" in one.cure for one in settings)


def test_over_amqp_10_a_missing_permission_is_found(world43: World) -> None:
    on_source(QUORUM)(world43)
    name = urlsplit(world43.user(read="^$")).username
    one = the(examined(over_amqp_10(world43, f"{name}:secret"), world43.source), "permission-missing")
    assert one.subject == f"consume from queue:{world43.source}"
    assert "the expression read" in one.cure


# -- at the end, because the management shows the alarm to everybody who asks in the next seconds ---------------


def test_an_alarm_is_found(world: World) -> None:
    """The probe finds the alarm: the management shows it only some seconds later."""
    on_source(CLASSIC)(world)
    world.broker.raise_memory_alarm()
    try:
        found = examined(world.broker.url, world.source)
    finally:
        world.broker.lift_memory_alarm()
    one = the(found, "alarm-raised")
    assert one.status is WRONG
    assert "Free memory" in one.cure
    publish = next(one for one in found if one.subject == "publish the default exchange")
    assert publish.status is FindingStatus.NOT_KNOWN
