# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one policy as each system would have it written: it does the same thing in each.

What is expected is arithmetic: with delays of 1 s and 2 s a message that always fails arrives at 0 s, 1 s and 3 s.
"""

from __future__ import annotations

import pytest

from redeliver_mw import App, Delivery, PolicyMap, RedeliveryPolicy, redeliver
from redeliver_mw.policy import Expiry, Target
from redeliver_mw.testing import TestApp
from tests.policy.dying import CONSTANT, GROWS, SLOW, Failing, as_app, in_code, same_death
from tests.policy.spelling import BY_DESTINATION, GROWING, SPELLINGS, dead_queue


@pytest.mark.parametrize("personality", ["rabbitmq", "activemq", "artemis"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_constant_delay_is_the_same_in_every_language(spelling: str, personality: str) -> None:
    app, failing = as_app(SPELLINGS[spelling](CONSTANT), f"memory://?personality={personality}")
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, spelling, CONSTANT)


@pytest.mark.parametrize("spelling", GROWING)
def test_a_growing_delay_is_the_same_in_every_language_that_can_express_it(spelling: str) -> None:
    app, failing = as_app(SPELLINGS[spelling](GROWS))
    with TestApp(app) as failing.test:
        same_death(failing.test, failing, spelling, GROWS)


@pytest.mark.parametrize(
    ("spelling", "said"),
    [
        ("jmsjca", "1:1000; 2:1000; 3:move(queue:dead.$)"),
        ("jmsjca-url", "1:1000; 2:1000; 3:move(queue:dead.$)"),
        ("activemq-url", "jms.redeliveryPolicy.maximumRedeliveries=2&"),
        ("activemq-plugin", '<redeliveryPolicy queue="orders" maximumRedeliveries="2"'),
        ("activemq-client", '<redeliveryPolicy queue="orders" maximumRedeliveries="2"'),
        ("patchbay", "max-attempts 3, delay 1000"),
        # of what comes together from several places, what it does is told
        ("weblogic", "dead after 3 failures; delay 1 s; queue:dead.orders; expired: discard"),
        ("artemis", "dead after 3 failures; delay 1 s; queue:dead.orders; expired: discard"),
        ("hornetq", "dead after 3 failures; delay 1 s; queue:dead.orders; expired: discard"),
        ("native", "dead after 3 failures; delay 1 s"),
    ],
)
def test_the_dead_letter_names_the_policy_in_its_own_words(spelling: str, said: str) -> None:
    app, failing = as_app(SPELLINGS[spelling](CONSTANT))
    with TestApp(app) as failing.test:
        failing.test.send("orders", b"failing")
        failing.test.advance(100.0)
        (letter,) = failing.test.broker.peek(dead_queue(spelling, "orders"))
    assert str(letter.headers["redeliver_policy"]).startswith(said)


@pytest.mark.parametrize(
    ("expiry", "said"),
    [
        (Expiry("discard"), "; expired: discard"),
        (Expiry("log", log="%header%, orderId"), "; expired: log %header%, orderId"),
        (Expiry("redirect", Target("queue", "late")), "; expired: redirect to queue:late"),
        (Expiry("redirect", Target("queue", "late"), time_to_live=60), "; expired: redirect to queue:late for 60.0 s"),
        (Expiry(), "; queue:DLQ.$"),  # as any other dead letter: nothing is said
    ],
)
def test_what_becomes_of_expired_messages_is_described_in_words(expiry: Expiry, said: str) -> None:
    assert RedeliveryPolicy(3, 1.0, expiry=expiry).text.endswith(said)


# -- by destination --------------------------------------------------------------------------------


def test_one_app_gives_each_destination_the_policy_that_the_file_has_for_it() -> None:
    for spelling in BY_DESTINATION:
        app, failing = as_app(SPELLINGS[spelling](CONSTANT, SLOW))
        app.handler("invoices")(failing)
        with TestApp(app) as failing.test:
            failing.test.send("orders", b"1")
            failing.test.send("invoices", b"2")
            failing.test.advance(100.0)
            letters = [failing.test.broker.peek(f"dead.{source}") for source in ("orders", "invoices")]
        assert failing.arrivals == {"orders": [0.0, 1.0, 2.0], "invoices": [0.0, 2.0]}, spelling
        assert [[letter.body for letter in each] for each in letters] == [[b"1"], [b"2"]], spelling


def test_one_marked_handler_of_two_sources_fails_by_the_policy_of_each() -> None:
    app, failing = App("memory://"), Failing()

    @app.handler("orders")
    @app.handler("invoices")
    @redeliver(in_code(CONSTANT, SLOW))
    def handler(delivery: Delivery) -> None:
        failing(delivery)

    with TestApp(app) as failing.test:
        failing.test.send("orders", b"1")
        failing.test.send("invoices", b"2")
        failing.test.advance(100.0)
        assert failing.arrivals == {"orders": [0.0, 1.0, 2.0], "invoices": [0.0, 2.0]}


def test_a_queue_and_a_topic_of_one_name_have_policies_of_their_own() -> None:
    queue = RedeliveryPolicy(3, 1.0, "queue:dead.queue")
    topic = RedeliveryPolicy(2, 5.0, "queue:dead.topic")
    app, failing = App("memory://", policy=PolicyMap({"queue:prices": queue, "topic:prices": topic})), Failing()
    app.handler("topic:prices", subscription="audit")(failing)
    with TestApp(app) as failing.test:
        failing.test.send("topic:prices", b"1")
        failing.test.advance(100.0)
        assert failing.arrivals == {"prices": [0.0, 5.0]}
        assert [letter.body for letter in failing.test.dead_letters("topic:prices::audit")] == [b"1"]
