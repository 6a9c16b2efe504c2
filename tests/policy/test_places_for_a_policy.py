# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests all places for a policy: each takes every language, as a text and as a file, and a map by destination."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stomp
from proton.handlers import MessagingHandler

import redeliver_pika
import redeliver_proton
import redeliver_stomp
from redeliver_mw import App, Delivery, PolicyMap, connect, redeliver
from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.dropin import DropinOptions
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import DeadLetter, Redeliver, load_policies
from redeliver_mw.testing import MemoryBroker, TestApp, register_broker
from tests.dropin.memory_driver import Consumer, Message
from tests.policy.dying import CONSTANT, SLOW, Failing, as_app, in_code, same_death
from tests.policy.spelling import BY_DESTINATION, SPELLINGS, Rule, activemq_url, dead_queue, jmsjca_url

ANY_DELAY = Capabilities(dialect="any", broker_kind="any", schedule=ScheduleRange())
Handed = str | Path | PolicyMap
Way = Callable[..., tuple[App, Failing]]


def as_handler(handed: Handed, url: str = "memory://") -> tuple[App, Failing]:
    app, failing = App(url), Failing()
    app.handler("orders", policy=handed)(failing)
    return app, failing


def as_decorator(handed: Handed, url: str = "memory://") -> tuple[App, Failing]:
    app, failing = App(url), Failing()

    @app.handler("orders")
    @redeliver(handed)
    def handler(delivery: Delivery) -> None:
        failing(delivery)

    return app, failing


WAYS: list[Way] = [as_app, as_handler, as_decorator]


def handed_over(spelling: str, as_file: bool, folder: Path, *rules: Rule) -> str | Path:
    text = SPELLINGS[spelling](*rules)
    if not as_file:
        return text
    path = folder / "policy"
    path.write_text(f"{text}\n", "utf-8")
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("as_file", [False, True], ids=["text", "file"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_place_for_a_policy_takes_every_language_as_text_and_as_file(
    spelling: str, as_file: bool, way: Way, tmp_path: Path
) -> None:
    app, failing = way(handed_over(spelling, as_file, tmp_path, CONSTANT))
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, spelling, CONSTANT)


@pytest.mark.parametrize("way", WAYS)
def test_every_place_for_a_policy_takes_a_map_made_in_code(way: Way) -> None:
    app, failing = way(in_code(CONSTANT, SLOW))
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, "native", CONSTANT)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_apps_own_table_in_toml_takes_every_language_as_text_and_as_the_name_of_a_file(
    spelling: str, tmp_path: Path
) -> None:
    for name in ("policy.xml", "./policy.txt", f"{tmp_path}/policy.conf"):
        (tmp_path / name).write_text(SPELLINGS[spelling](CONSTANT), "utf-8")
    texts = [f"'''{SPELLINGS[spelling](CONSTANT)}'''", "'policy.xml'", "'./policy.txt'", f"'{tmp_path}/policy.conf'"]
    for text in texts:
        config = tmp_path / "app.toml"
        config.write_text(f"[tool.redeliver.app]\nurl = 'memory://'\npolicy = {text}\n", "utf-8")
        app, failing = App.from_config(config), Failing()
        app.handler("orders")(failing)
        with TestApp(app) as failing.test:
            same_death(failing.test, failing, spelling, CONSTANT)


def test_a_missing_policy_file_that_an_apps_table_names_is_reported_as_missing(tmp_path: Path) -> None:
    config = tmp_path / "app.toml"
    config.write_text("[tool.redeliver.app]\nurl = 'memory://'\npolicy = 'policy.xml'\n", "utf-8")
    with pytest.raises(PolicyError, match="no such file") as caught:
        App.from_config(config)
    assert str(tmp_path / "policy.xml") in str(caught.value)


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spelling", "url"), [("jmsjca-url", jmsjca_url), ("activemq-url", activemq_url)])
@pytest.mark.parametrize("way", WAYS)
def test_a_policy_on_the_apps_own_url_stands_over_all_others(spelling: str, url: Callable[..., str], way: Way) -> None:
    query = url(CONSTANT).partition("?")[2]
    app, failing = way(in_code(Rule("orders", 9000, 9)), f"memory://?{query}")
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, spelling, CONSTANT)


@pytest.mark.parametrize("option", ["jms.prefetchPolicy.all=5", "jms.nonBlockingRedelivery=true", "JMSJCA.sep=x"])
def test_what_else_a_client_had_on_its_url_is_no_policy(option: str) -> None:
    app, failing = as_app(in_code(CONSTANT), f"memory://?{option}")
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, "native", CONSTANT)


def test_a_policy_on_a_url_that_is_misspelled_is_refused_and_not_passed_over() -> None:
    for option in ("jms.redeliverypolicy.maximumRedeliveries=2", "JMSJCA.RedeliveryHandling=3:1000"):
        with pytest.raises(ConfigError):
            App(f"memory://?{option}")


# -- pulling ---------------------------------------------------------------------------------------


def pulled(name: str, policy: Handed | None, query: str = "") -> list[int]:
    """Return the counts with which a message comes that always fails, until it is dead-lettered."""
    counts: list[int] = []
    with connect(f"memory://{name}{query}") as session:
        session.publish("orders", b"failing")
        for delivery in session.deliveries("orders", policy=policy, timeout=5.0):
            with delivery as message:
                counts.append(message.delivery_count)
                raise ValueError("no")
            if len(counts) == 3:
                break  # the last one allowed: what follows is the dead letter
    return counts


@pytest.mark.parametrize("as_file", [False, True], ids=["text", "file"])
@pytest.mark.parametrize("spelling", sorted(SPELLINGS.keys() - {"activemq-plugin"}))  # a plugin delays by 1 s at least
def test_a_loop_that_pulls_takes_every_language(spelling: str, as_file: bool, tmp_path: Path) -> None:
    broker = MemoryBroker("rabbitmq", makes_queues=True)
    register_broker("pulling", broker)
    policy = handed_over(spelling, as_file, tmp_path, CONSTANT._replace(rest_ms=10))
    assert pulled("pulling", policy) == [1, 2, 3]
    (letter,) = broker.peek(dead_queue(spelling, "orders"))
    assert (letter.headers["original-destination"], letter.headers["redeliver_failures"]) == ("orders", "3")


def test_a_policy_on_the_sessions_url_stands_over_that_of_the_loop() -> None:
    broker = MemoryBroker("rabbitmq", makes_queues=True)
    register_broker("pulling", broker)
    rule = CONSTANT._replace(rest_ms=10)
    query = jmsjca_url(rule).partition("?")[2]
    assert pulled("pulling", in_code(rule._replace(dead_after=9)), f"?{query}") == [1, 2, 3]
    assert len(broker.peek("dead.orders")) == 1
    with pytest.raises(PolicyError):  # unused, and wrong all the same
        pulled("pulling", "3:soon", f"?{query}")


# -- the drivers' own callbacks --------------------------------------------------------------------


def pika_terms(policy: Handed) -> DropinOptions:
    return redeliver_pika.redelivering(lambda *_: None, policy=policy).terms


def stomp_terms(policy: Handed) -> DropinOptions:
    class Listener(stomp.ConnectionListener):
        def on_message(self, frame: Any) -> None: ...

    return redeliver_stomp.redelivering(Listener(), stomp.Connection12(), policy=policy)._runner.terms


def proton_terms(policy: Handed) -> DropinOptions:
    class Handler(MessagingHandler):
        def on_message(self, event: Any) -> None: ...

    parts = redeliver_proton.redelivering(Handler(), policy=policy).handlers
    return next(part.terms for part in parts if hasattr(part, "terms"))


def marked_terms(policy: Handed) -> DropinOptions:
    return DropinOptions().on(redeliver(policy)(lambda: None))


TERMS = [pika_terms, stomp_terms, proton_terms, marked_terms]


def decided(terms: DropinOptions, rule: Rule) -> list[object]:
    """Return what the drop-in's plan for this source says of each failure, up to the last."""
    policy = terms.plan(Destination(rule.source), ANY_DELAY).policy
    found: list[object] = []
    for failures in range(1, rule.dead_after + 1):
        decision = policy.decide(failures)
        if isinstance(decision, Redeliver):
            found.append(decision.base)
        elif isinstance(decision, DeadLetter):
            found += [str(target.resolve(Destination(rule.source))) for target in decision.targets]
    return found


@pytest.mark.parametrize("driver", TERMS)
@pytest.mark.parametrize("as_file", [False, True], ids=["text", "file"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_drop_in_takes_every_language_as_text_and_as_file(
    spelling: str, as_file: bool, driver: Callable[[Handed], DropinOptions], tmp_path: Path
) -> None:
    terms = driver(handed_over(spelling, as_file, tmp_path, CONSTANT))
    assert decided(terms, CONSTANT) == [1.0, 1.0, f"queue:{dead_queue(spelling, 'orders')}"]


@pytest.mark.parametrize("driver", TERMS)
def test_every_drop_in_gives_each_destination_its_own_entry_of_a_map(driver: Callable[[Handed], DropinOptions]) -> None:
    maps = [load_policies(SPELLINGS[spelling](CONSTANT, SLOW)) for spelling in BY_DESTINATION]
    for policies in [in_code(CONSTANT, SLOW), *maps]:
        terms = driver(policies)
        assert decided(terms, CONSTANT) == [1.0, 1.0, "queue:dead.orders"]
        assert decided(terms, SLOW) == [2.0, "queue:dead.invoices"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_callback_of_a_driver_fails_in_the_same_way_in_every_language(spelling: str) -> None:
    arrivals: list[float] = []

    def fails(message: Message) -> None:
        arrivals.append(consumer.clock.now().mono)
        raise ValueError("no")

    consumer = Consumer(fails, policy=SPELLINGS[spelling](CONSTANT))
    dead = dead_queue(spelling, "orders")
    consumer.memory.declare(dead)
    consumer.put("failing")
    consumer.clock.advance(100.0)
    assert arrivals == [0.0, 1.0, 2.0]
    (letter,) = consumer.memory.peek(dead)
    assert (letter.headers["original-destination"], letter.headers["redeliver_failures"]) == ("orders", "3")
    assert consumer.left() == 0
