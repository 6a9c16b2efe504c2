# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a user gets wrong, through `redeliver run`: one message, the place, the cure, the right exit code."""

from __future__ import annotations

import re
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.brokers import Broker, broker
from tests.cli.running import redeliver

# As where it was never installed.
WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "{driver}":
            raise ModuleNotFoundError("No module named '{driver}'", name="{driver}")
sys.meta_path.insert(0, Absent())
"""
DRIVER = {"rabbitmq": "pika", "activemq": "stomp", "artemis": "proton"}
each_scheme = pytest.mark.parametrize("scheme", DRIVER)


def refused(folder: Path, source: str, code: int, *parts: str) -> str:
    """Run `source` as shop:app; it must end with `code` and one message that has all `parts` in it."""
    (folder / "shop.py").write_text(f"from redeliver_mw import *\n{source}")
    done = redeliver(folder, "run", "shop:app")
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "secret" not in done.stderr
    for part in parts:
        assert part in done.stderr
    return done.stderr


def app(url: str, handler: str = "'orders'", options: str = "") -> str:
    return f"app = App({url!r}, {options})\n@app.handler({handler})\ndef on_order(delivery): ...\n"


def new_name() -> str:
    return f"bad-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def nobody() -> Iterator[int]:
    """Yield a port where nobody listens, and nobody can begin to."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_an_unknown_scheme(tmp_path: Path) -> None:
    said = refused(tmp_path, app("kafka://me:secret@h/"), 2, "kafka://me@h/: scheme 'kafka' is unknown", "Known are")
    assert "rabbitmq+pika" in said


@pytest.mark.parametrize("dialect", ["rabbitmq+stomp", "activemq+proton", "artemis+stomp"])
def test_a_broker_that_is_not_built_yet(tmp_path: Path, dialect: str) -> None:
    refused(tmp_path, app(f"{dialect}://h"), 2, f"{dialect}://h: {dialect} is not built yet", "Built are")


def test_no_url_at_all(tmp_path: Path) -> None:
    source = "app = App()\n"
    refused(tmp_path, source, 2, "shop.py:2: no broker URL was given", "REDELIVER_URL")


def test_text_that_is_no_url(tmp_path: Path) -> None:
    refused(tmp_path, app("localhost:5672"), 2, "shop.py:2: ", "is no broker URL", "Write one like rabbitmq://")


@each_scheme
def test_an_unknown_option_of_the_url(tmp_path: Path, scheme: str) -> None:
    refused(tmp_path, app(f"{scheme}://h/?hartbeat=3"), 2, f"{scheme}://h/: ", "'hartbeat' is unknown", "heartbeat")


@each_scheme
def test_an_option_of_the_url_that_is_no_number(tmp_path: Path, scheme: str) -> None:
    refused(tmp_path, app(f"{scheme}://h/?heartbeat=soon"), 2, f"{scheme}://h/: heartbeat='soon' is no ", "heartbeat=")


def test_an_unknown_option_of_the_app(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="prefech=3"), 2, "shop.py:2: ", "prefech")


@each_scheme
def test_a_missing_extra(tmp_path: Path, scheme: str) -> None:
    driver = DRIVER[scheme]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WITHOUT.format(driver=driver))
    refused(
        tmp_path,
        app(f"{scheme}://me:secret@h/"),
        2,
        f"{scheme}://me@h/: the driver {driver!r} is not installed",
        f"pip install 'redeliver-mw[{driver}]'",
    )


@each_scheme
def test_an_absent_broker(tmp_path: Path, nobody: int, scheme: str) -> None:
    url = f"{scheme}://me:secret@127.0.0.1:{nobody}/"
    refused(tmp_path, app(url), 1, f"{scheme}://me@127.0.0.1:{nobody}/: no broker answers", "Start it, or check")


@each_scheme
def test_a_host_list_without_one_that_answers(tmp_path: Path, nobody: int, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{nobody},127.0.0.1:{nobody}/"
    refused(tmp_path, app(url), 1, f"{url}: no broker answers")


@pytest.fixture(params=["rabbitmq310", "activemq63", "artemis244"])
def one(request: pytest.FixtureRequest) -> Broker:
    """Return a broker of each kind, one after the other."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.mark.broker
def test_a_wrong_password(tmp_path: Path, one: Broker) -> None:
    place = f"{one.host}:{one.port}{one.path}"
    url = f"{one.kind}://{one.user}:secret@{place}"
    refused(tmp_path, app(url), 1, f"@{place}: the broker refuses this user or password", "Check both")


@pytest.mark.broker
@pytest.mark.parametrize(("scheme", "there"), [("activemq", "artemis244"), ("artemis", "activemq63")])
def test_a_broker_of_another_kind_is_named(
    tmp_path: Path, request: pytest.FixtureRequest, scheme: str, there: str
) -> None:
    """Its acks mean something else, so that looking alike is not enough."""
    other: Broker = request.getfixturevalue(there)
    place = f"{other.host}:{other.amqp_port if scheme == 'artemis' else other.stomp_port}"
    url = f"{scheme}://{other.user}:{other.password}@{place}"
    refused(tmp_path, app(url), 2, f"@{place}: this broker is ActiveMQ", ", not A", "Use its own scheme")


@pytest.mark.broker
def test_a_missing_virtual_host(tmp_path: Path, rabbitmq310: Broker) -> None:
    url = f"{rabbitmq310.url.rstrip('/')}/nowhere"
    refused(tmp_path, app(url), 1, "virtual host 'nowhere'", "Check the URL's path")


@pytest.mark.broker
def test_a_missing_queue_that_is_not_created_on_rabbitmq(tmp_path: Path, rabbitmq310: Broker) -> None:
    queue = f"absent-{uuid.uuid4().hex[:8]}"
    place = f"{rabbitmq310.host}:{rabbitmq310.port}"
    refused(tmp_path, app(rabbitmq310.url, repr(queue)), 1, place, f"queue {queue!r} is not there", "declare='all'")


@pytest.mark.broker
def test_a_missing_queue_that_is_not_created_on_artemis(tmp_path: Path, artemis244: Broker) -> None:
    queue, place = new_name(), f"{artemis244.host}:{artemis244.port}"
    refused(
        tmp_path, app(artemis244.url, repr(queue)), 1, place, f"{queue} is not there", "Declare it, or check its name"
    )


FULL = '{"maxSizeMessages":1,"addressFullMessagePolicy":"DROP"}'
FILTERED = '{"name":"F.NAME","address":"NAME","routing-type":"ANYCAST","filter":"a=1","filter-string":"a=1"}'
# What makes a bad target of NAME; what is written as the target; what is said of it.
TARGETS = {
    "missing": ("", "queue:NAME", "NAME is not there, or has no queue"),
    "a topic that nobody keeps": ("createAddress NAME MULTICAST", "topic:NAME", "no queue that keeps what is sent"),
    "a topic as a queue": ("createAddress NAME MULTICAST", "queue:NAME", "NAME is not there, or has no queue"),
    "drops when it is full": (f"addAddressSettings NAME {FULL}", "queue:NAME", "Set its address-full-policy to PAGE"),
    "filtered": (f"createQueue {FILTERED} true", "queue:NAME", "its queue F.NAME takes only what matches a=1"),
    "filtered, by its name": (f"createQueue {FILTERED} true", "queue:NAME::F.NAME", "takes only what matches a=1"),
}


@pytest.mark.broker
@pytest.mark.parametrize("kind", TARGETS)
def test_a_dead_letter_target_that_would_keep_nothing_on_artemis(tmp_path: Path, artemis244: Broker, kind: str) -> None:
    name, source = new_name(), new_name()
    made, target, said = (text.replace("NAME", name) for text in TARGETS[kind])
    if made:
        artemis244.ctl("broker", *made.split())
    options = f"declare='none', policy=RedeliveryPolicy(3, 0.1, {target!r})"
    what = f"{artemis244.host}:{artemis244.port}: the dead-letter target {target} cannot be used: "
    refused(tmp_path, app(artemis244.url, repr(source), options), 1, what, said, "Declare it, or name another")


@pytest.mark.broker
def test_a_dead_letter_target_that_is_no_name_on_activemq(tmp_path: Path, activemq63: Broker) -> None:
    source = app(activemq63.url, options="policy='3:50; 5:move(queue:dlq.>)'")
    refused(tmp_path, source, 1, "the dead-letter target queue:dlq.> cannot be used: 'dlq.>' is a pattern")


@pytest.mark.broker
@pytest.mark.parametrize("there", ["activemq63", "artemis244"])
def test_a_selector_that_is_none(tmp_path: Path, request: pytest.FixtureRequest, there: str) -> None:
    found: Broker = request.getfixturevalue(there)
    source = app(found.url, "'DLQ', selector='colour = = 1'", "policy='3:50; 5:move(queue:dlq.$)'")
    refused(tmp_path, source, 2, "queue:DLQ: its selector 'colour = = 1' is ", "Write it in")


@pytest.mark.parametrize("scheme", ["activemq", "artemis"])
def test_a_topic_that_nobody_subscribes_to(tmp_path: Path, scheme: str) -> None:
    said = ("shop.py:3: topic:prices: a topic is consumed through a durable subscription", 'subscription="audit"')
    refused(tmp_path, app(f"{scheme}://h", "'topic:prices'"), 2, *said)


@pytest.mark.broker
def test_a_delay_where_the_scheduler_is_off(tmp_path: Path, activemq63: Broker) -> None:
    """The fixture fails or skips where no ActiveMQ can be had."""
    with broker("activemq", version="6.3", scheduler=False) as off:
        refused(
            tmp_path,
            app(off.url, options="policy=RedeliveryPolicy(3, 60.0)"),
            2,
            "queue:orders on activemq+stomp: the policy waits up to 60 s",
            "held for 10 s at most",
            "Shorten",
        )


@pytest.mark.broker
def test_a_missing_dead_letter_target_on_rabbitmq(tmp_path: Path, rabbitmq310: Broker) -> None:
    queue = f"absent-{uuid.uuid4().hex[:8]}"
    source = app(rabbitmq310.url, repr(queue), "declare='none', policy='3:50; 5:move(queue:dead.$)'")
    refused(tmp_path, source, 1, f"dead-letter target queue:dead.{queue} cannot be used", "Declare it, or name")


def test_a_missing_queue_that_is_not_created(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy=RedeliveryPolicy(3, 1.0, dead_letter=None)")
    refused(tmp_path, source, 1, "memory:default/1: no queue orders", "Declare it")


def test_a_missing_dead_letter_target(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy='3:50; 5:move(queue:dead.$)'")
    refused(
        tmp_path,
        source,
        1,
        "memory:default/1: the dead-letter target queue:dead.orders cannot be used",
        "Declare it, or name another",
    )


@pytest.mark.parametrize("target", ["queue:orders", "same:$", "queue:$"])
def test_a_dead_letter_target_that_is_the_source(tmp_path: Path, target: str) -> None:
    source = app("memory://", options=f"policy='3:50; 5:move({target})', declare='all'")
    refused(tmp_path, source, 2, "queue:orders: its dead letters would go to queue:orders", "another dead_letter")


def test_a_dead_letter_target_that_is_consumed_under_the_same_policy(tmp_path: Path) -> None:
    source = app("memory://", options="policy='3:50; 5:move(queue:dead.$)', declare='all'")
    source += "app.handler('dead.orders')(print)\n"
    refused(tmp_path, source, 2, "queue:dead.orders", "a policy of its own")


def test_a_wrong_policy_of_a_decorator_names_its_line(tmp_path: Path) -> None:
    source = "app = App('memory://')\n@redeliver('3:50; 5:move(queue)')\ndef on_order(delivery): ...\n"
    refused(tmp_path, source, 2, "shop.py:3: ", "E104 in element 2 of 2", "Write queue:NAME")


def test_a_wrong_policy_of_the_app_names_its_line(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="policy='3:fifty'"), 2, "shop.py:2: ", "E102 in element 1 of 1")


def test_a_wrong_policy_in_the_url(tmp_path: Path) -> None:
    url = "memory://?JMSJCA.redeliveryhandling=3:fifty"
    refused(tmp_path, app(url), 2, "shop.py:2: ", "E102")


def test_a_delay_that_this_broker_cannot_do(tmp_path: Path) -> None:
    source = app("memory://", options="declare='none', policy=RedeliveryPolicy(backoff=3600)")
    waits = "queue:orders on memory+rabbitmq: the policy waits up to 3600 s"
    said = refused(tmp_path, source, 2, waits, "Shorten the delays")
    assert re.search(r"held for \d+ s at most", said)


def test_giving_back_where_that_counts_is_refused(tmp_path: Path) -> None:
    source = app("memory://?personality=activemq", options="delay='nack', declare='all'")
    refused(tmp_path, source, 2, "queue:orders on memory+activemq: ", "Use delay='auto'")


def test_parking_without_a_limbo(tmp_path: Path) -> None:
    refused(tmp_path, app("memory://", options="delay='park'"), 2, "shop.py:2: delay='park' needs a limbo", "Give")


def test_counts_that_survive_a_crash_without_a_limbo(tmp_path: Path) -> None:
    refused(
        tmp_path, app("memory://", options="crash_safe=True"), 2, "shop.py:2: crash_safe=True needs a limbo", "Give"
    )


@pytest.mark.parametrize("limit", ["-1", "2.5", "True", "'3'"])
def test_a_limit_of_the_brokers_that_is_no_number_of_returns(tmp_path: Path, limit: str) -> None:
    source = app("memory://", options=f"broker_limit={limit}")
    refused(
        tmp_path, source, 2, f"shop.py:2: broker_limit={limit} is no whole number", "Give broker_limit such a number"
    )


def test_an_app_without_a_handler(tmp_path: Path) -> None:
    refused(tmp_path, "app = App('memory://')\n", 2, "no handler is registered", "@app.handler")


def test_two_handlers_for_one_source(tmp_path: Path) -> None:
    source = app("memory://") + "app.handler('orders')(print)\n"
    refused(tmp_path, source, 2, "shop.py:5: queue:orders: two handlers for one source", "Register one")
