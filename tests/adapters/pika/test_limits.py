# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what RabbitMQ itself does with a message that comes back too often, by its management and as it happens."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.adapter.registry import adapter_for, parse_url
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_pika.management import Management, limit_in
from tests.adapters.pika.test_adapter import queue_on
from tests.brokers import Broker
from tests.brokers.skips import only_if

NEVER = 24  # returns after which a message is taken for one without a limit


def told(broker: Broker) -> str:
    """Return the broker's URL with the place of its management.

    The place is not known for a broker that REDELIVER_URL names; the test is skipped there.
    """
    only_if(broker.management_url is not None, "ask over its management, whose place is not told")
    return f"{broker.url}?management={broker.management_url}"


def api(broker: Broker, path: str, body: Mapping[str, Any]) -> None:
    assert broker.management_url is not None
    parts = urlsplit(broker.management_url)
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, f"http://{parts.hostname}:{parts.port}", parts.username or "", parts.password or "")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    request = urllib.request.Request(
        f"http://{parts.hostname}:{parts.port}/api/{path}",
        json.dumps(body).encode(),
        method="PUT",
        headers={"Content-Type": "application/json"},
    )
    opener.open(request, timeout=5).close()


def read(broker: Broker, queue: str) -> BrokerLimit:
    """Return a queue's limit as soon as it is known.

    The management gathers what comes of policies every few seconds.
    """
    url = parse_url(told(broker))
    management = Management(url.options["management"], url)
    answers: SimpleQueue[BrokerLimit] = SimpleQueue()
    for _ in range(60):
        management.limit_of(queue, broker.version, answers.put)
        found = answers.get(timeout=20)
        if found.trust is not Trust.UNKNOWN:
            break
        time.sleep(0.5)  # nothing tells when it has gathered
    return found


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    until = time.monotonic() + seconds
    while not (found := true()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def returns_survived(channel: Any, queue: str) -> int | None:
    """Return the number of the return that ended the message, or None if the message has outlived them all."""
    channel.basic_publish("", queue, b"x")
    for number in range(1, NEVER + 1):
        own = channel.connection.channel()
        assert wait_until(lambda own=own: own.basic_get(queue)[0] is not None)
        own.close()  # counted: it comes back with its channel
        if not wait_until(lambda: channel.queue_declare(queue, passive=True).method.message_count == 1, 1.0):
            return number
    channel.queue_purge(queue)
    return None


@pytest.mark.parametrize("limit", [None, 3, -1])
def test_what_the_management_says_of_an_argument_is_what_becomes_of_a_message(
    rabbitmq: Broker, limit: int | None
) -> None:
    name = f"limits.{limit}"
    with queue_on(rabbitmq, name) as channel:
        channel.queue_delete(name)
        more = {} if limit is None else {"x-delivery-limit": limit}
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **more})
        found = read(rabbitmq, name)
        assert found.trust is Trust.PROBED
        assert found.returns == returns_survived(channel, name)


@pytest.mark.parametrize("limit", [None, 9, -1])
def test_a_policy_and_an_argument_together_are_read_as_they_act(rabbitmq: Broker, limit: int | None) -> None:
    name = f"limited.by.policy.{limit}"
    told(rabbitmq)
    api(
        rabbitmq,
        "policies/%2F/five",
        {
            "pattern": r"^limited\.by\.policy",
            "definition": {"delivery-limit": 5},
            "apply-to": "queues",
        },
    )
    with queue_on(rabbitmq, name) as channel:
        channel.queue_delete(name)
        more = {} if limit is None else {"x-delivery-limit": limit}
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum", **more})
        assert wait_until(lambda: read(rabbitmq, name).returns in (6, 1))  # until the policy shows
        assert read(rabbitmq, name).returns == returns_survived(channel, name)


def test_a_classic_queue_has_no_limit_and_a_missing_one_will_have_none(rabbitmq: Broker) -> None:
    with queue_on(rabbitmq, "limits.classic"):
        assert read(rabbitmq, "limits.classic") == BrokerLimit()
    assert read(rabbitmq, "limits.nowhere") == BrokerLimit()


def app_for(url: str, queue: str, policy: RedeliveryPolicy, **options: Any) -> App:
    app = App(url, policy=policy, **options)

    @app.handler(queue)
    def fail(delivery: Delivery) -> None:
        raise ConnectionError("down")

    return app


def test_a_policy_that_gives_back_more_often_than_the_queue_takes_is_refused_at_start(rabbitmq310: Broker) -> None:
    url = told(rabbitmq310)
    with queue_on(rabbitmq310, "limits.nack") as channel:
        channel.queue_delete("limits.nack")
        channel.queue_delete("limits.nack.dead")
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": 3}
        channel.queue_declare("limits.nack", durable=True, arguments=arguments)
        never = app_for(url, "limits.nack", RedeliveryPolicy(5, 0.05, "queue:limits.nack.dead"), delay="nack")
        with pytest.raises(ConfigError) as refused:
            never.start()
        assert str(refused.value).startswith("queue:limits.nack: with delay='nack' each failure is a counted return")
        assert "give up after 4 failures at most" in str(refused.value)
        fits = app_for(url, "limits.nack", RedeliveryPolicy(4, 0.05, "queue:limits.nack.dead"), delay="nack")
        channel.basic_publish("", "limits.nack", b"x")
        letters: list[Any] = []

        def arrived() -> bool:
            method, properties, _ = channel.basic_get("limits.nack.dead", auto_ack=True)
            letters.extend([properties.headers] if method is not None else [])
            return bool(letters)

        with fits:
            assert wait_until(arrived)
        assert letters[0]["redeliver_failures"] == "4"  # ours, and not the broker's


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return our warnings, and not the driver's."""
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING and r.name == "redeliver_mw"]


def test_an_unknown_limit_is_warned_of_once_and_a_known_one_is_not(
    rabbitmq43: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RedeliveryPolicy(3, 0.1)
    with queue_on(rabbitmq43, "limits.unknown") as channel:
        with app_for(rabbitmq43.url, "limits.unknown", policy):
            assert warnings_of(caplog) == []  # a plain classic queue has none
        channel.queue_delete("limits.unknown")
        channel.queue_declare("limits.unknown", durable=True, arguments={"x-queue-type": "quorum"})
        with app_for(rabbitmq43.url, "limits.unknown", policy):
            [said] = warnings_of(caplog)
        assert "limit of its own for queue:limits.unknown is unknown (AMQP does not tell" in said
        assert "our policy is not asked. If you know it: broker_limit=N" in said
        caplog.clear()
        with app_for(rabbitmq43.url, "limits.unknown", policy, broker_limit=0):
            pass
        assert warnings_of(caplog) == []
        read(rabbitmq43, "limits.unknown")  # so that it is no new queue to the management
        with app_for(told(rabbitmq43), "limits.unknown", policy):
            [said] = warnings_of(caplog)
        assert "the broker deletes a message at its 21st counted return" in said  # the version's own limit


@pytest.mark.parametrize(
    ("where", "why"),
    [("http://guest:wrong@{}", "refuses this user or password"), ("http://127.0.0.1:9", "cannot be used")],
)
def test_a_management_that_cannot_be_used_is_logged_and_stops_nothing(
    rabbitmq43: Broker, where: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    told(rabbitmq43)
    place = urlsplit(rabbitmq43.management_url or "")
    url = f"{rabbitmq43.url}?management={where.format(f'{place.hostname}:{place.port}')}"
    with queue_on(rabbitmq43, "limits.unread"), app_for(url, "limits.unread", RedeliveryPolicy(3, 0.1)) as app:
        assert app.health()["started"]
    assert why in caplog.text
    assert "guest:wrong" not in caplog.text


def test_a_consumer_timeout_that_is_read_shortens_what_is_held(rabbitmq43: Broker) -> None:
    policy = RedeliveryPolicy(3, 2.0)
    with queue_on(rabbitmq43, "limits.timeout") as channel:
        channel.queue_delete("limits.timeout")
        arguments = {"x-queue-type": "quorum", "x-delivery-limit": -1, "x-consumer-timeout": 6000}
        channel.queue_declare("limits.timeout", durable=True, arguments=arguments)
        assert wait_until(lambda: read(rabbitmq43, "limits.timeout").ack_timeout == 6.0)
        with app_for(rabbitmq43.url, "limits.timeout", policy, delay="hold"):
            pass  # 1800 s are assumed
        with pytest.raises(PolicyError, match=r"held for 1\.5 s at most"):  # a quarter of 6 s
            app_for(told(rabbitmq43), "limits.timeout", policy, delay="hold").start()
        with app_for(told(rabbitmq43), "limits.timeout", policy, delay="hold", ack_timeout=60):
            pass  # what is told by the user comes first


# -- delayed retry (4.3) -------------------------------------------------------------------------------------------


RETRY = {"x-queue-type": "quorum", "x-delayed-retry-min": 600, "x-delayed-retry-max": 2400}


def declare_delaying(channel: Any, name: str, kind: str) -> None:
    channel.queue_delete(name)
    channel.queue_declare(name, durable=True, arguments={**RETRY, "x-delayed-retry-type": kind})


@pytest.mark.parametrize(("kind", "seconds"), [("all", 0.6), ("returned", 0.6), ("failed", 0.0)])
def test_a_queues_delayed_retry_is_read_from_its_management(rabbitmq43: Broker, kind: str, seconds: float) -> None:
    with queue_on(rabbitmq43, f"retry.{kind}") as channel:
        declare_delaying(channel, f"retry.{kind}", kind)
        assert read(rabbitmq43, f"retry.{kind}").returned_after == seconds


def test_a_policys_delayed_retry_is_read_from_its_management(rabbitmq43: Broker) -> None:
    told(rabbitmq43)
    definition = {"delayed-retry-type": "all", "delayed-retry-min": 700, "delayed-retry-max": 1400}
    api(
        rabbitmq43,
        "policies/%2F/retries",
        {"pattern": r"^retried\.by\.policy", "definition": definition, "apply-to": "queues"},
    )
    with queue_on(rabbitmq43, "retried.by.policy", "quorum"):
        assert wait_until(lambda: read(rabbitmq43, "retried.by.policy").returned_after == 0.7)


@pytest.mark.parametrize(("way", "delay"), [("management", 1.2), ("keyword", 1.2), ("management", 0.3)])
def test_a_queues_own_delay_is_not_added_to_a_hold(rabbitmq43: Broker, way: str, delay: float) -> None:
    """A delay that is shorter than the queue's own is held here, and the message is not given back."""
    url = told(rabbitmq43) if way == "management" else f"{rabbitmq43.url}?delayed_retry=0.6"
    name, runs, done = f"retry.{way}.{delay}", list[float](), threading.Event()
    app = App(url, policy=RedeliveryPolicy(5, delay), delay="nack", broker_limit=0)

    @app.handler(name)
    def handle(delivery: Delivery) -> None:
        runs.append(time.monotonic())
        if len(runs) < 3:
            raise ConnectionError("down")
        done.set()

    with queue_on(rabbitmq43, name) as channel:
        declare_delaying(channel, name, "all")
        if way == "management":
            read(rabbitmq43, name)
        channel.basic_publish("", name, b"x", pika.BasicProperties(delivery_mode=2, message_id="1"))
        with app:
            assert done.wait(20)
    rests = [later - earlier for earlier, later in itertools.pairwise(runs)]
    assert all(delay - 0.01 <= rest <= delay + 0.45 for rest in rests), rests  # 0.6 s more would be the sum


def test_what_a_queue_delays_by_itself_is_warned_of_with_nack_where_nobody_tells_it(
    rabbitmq43: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    policy = RedeliveryPolicy(3, 1.0)
    with queue_on(rabbitmq43, "retry.unknown") as channel:
        declare_delaying(channel, "retry.unknown", "all")
        with app_for(rabbitmq43.url, "retry.unknown", policy, delay="nack", broker_limit=0):
            [said] = warnings_of(caplog)
        assert said.startswith("whether the broker itself delays what is given back to queue:retry.unknown is unknown")
        assert "delayed_retry=SECONDS" in said
        caplog.clear()
        with app_for(f"{rabbitmq43.url}?delayed_retry=0.6", "retry.unknown", policy, delay="nack", broker_limit=0):
            pass
        with app_for(rabbitmq43.url, "retry.unknown", policy, broker_limit=0):
            pass
        assert warnings_of(caplog) == []


# -- without a broker --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ftp://host", "host:15672", "http://", "http://host:no"])
def test_a_management_that_is_no_url_is_refused(place: str) -> None:
    with pytest.raises(ConfigError, match=r"management= is no http:// or https:// URL"):
        adapter_for(f"rabbitmq://localhost/?management={place}")


@pytest.mark.parametrize("told_so", ["soon", "-1", "nan", "inf", ""])
def test_a_delayed_retry_that_is_no_number_of_seconds_is_refused(told_so: str) -> None:
    with pytest.raises(ConfigError, match="is no number of seconds"):
        adapter_for(f"rabbitmq://localhost/?delayed_retry={told_so}")


def test_the_managements_password_is_shown_nowhere() -> None:
    assert "secret" not in repr(parse_url("rabbitmq://localhost/?management=http://shop:secret@host"))


def test_dead_letters_go_where_an_argument_or_else_a_policy_says() -> None:
    queue: dict[str, Any] = {
        "name": "q",
        "type": "quorum",
        "delivery_limit": 20,
        "effective_policy_definition": {"dead-letter-exchange": "dead-exchange"},
    }
    assert limit_in(queue, "4.3.6").dead_letter_to == "the exchange 'dead-exchange'"
    queue["arguments"] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    assert limit_in(queue, "4.3.6").dead_letter_to == "the queue 'dead'"
    assert limit_in(queue | {"arguments": {}, "effective_policy_definition": {}}, "4.3.6").dead_letter_to == ""


def test_a_queue_whose_policies_are_not_gathered_yet_is_unknown_unless_an_argument_limits_it() -> None:
    queue = {"name": "q", "type": "quorum", "arguments": {}}
    assert limit_in(queue, "4.3.6").trust is Trust.UNKNOWN
    assert limit_in(queue | {"arguments": {"x-delivery-limit": -1}}, "4.3.6").trust is Trust.UNKNOWN
    assert limit_in(queue | {"arguments": {"x-delivery-limit": 3}}, "4.3.6").returns == 4


@pytest.mark.parametrize(
    ("arguments", "policy", "version", "seconds"),
    [
        ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 400}, {}, "4.3.6", 0.4),
        ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 400}, {}, "4.2.0", 0.0),
        ({"x-delayed-retry-type": "all", "x-delayed-retry-min": 400, "x-delayed-retry-max": 100}, {}, "4.3.6", 0.1),
        ({"x-delayed-retry-type": "all"}, {}, "4.3.6", 0.0),
        ({"x-delayed-retry-min": 400}, {}, "4.3.6", 0.0),
        ({"x-delayed-retry-type": "failed", "x-delayed-retry-min": 400}, {}, "4.3.6", 0.0),
        ({}, {"delayed-retry-type": "returned", "delayed-retry-min": 500}, "4.3.6", 0.5),
        ({}, None, "4.3.6", None),
    ],
)
def test_a_delayed_retry_acts_on_nacks_by_its_type_and_minimum(
    arguments: dict[str, Any], policy: dict[str, Any] | None, version: str, seconds: float | None
) -> None:
    queue = {"name": "q", "type": "quorum", "arguments": arguments, "effective_policy_definition": policy}
    assert limit_in(queue, version).returned_after == seconds
