# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests arms in an App: one for all attempts of a message, in every record, whatever happens to the process."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Breaker, Delivery, Reject
from redeliver_mw.errors import ConfigError, DestinationMissing, PolicyError
from redeliver_mw.journal import read_segments
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.message import Past
from redeliver_mw.policy import Arm, RedeliveryPolicy, load_policies
from redeliver_mw.redelivery import identity, ledger
from redeliver_mw.testing import TestApp, make_delivery
from tests.dropin.memory_driver import Consumer, Message

PATIENT = {"dead_after": 4, "backoff": 7.0, "dead_letter": "queue:patient.$"}
POLICY = RedeliveryPolicy(2, 1.0, "queue:hasty.$", arms={"patient": (0.3, PATIENT)})
BODY = b"one lamp"


def arm_of(message_id: str, policy: RedeliveryPolicy = POLICY) -> Arm:
    """Return the arm of a message, as anybody can compute it who has the message.

    The key of the message is a hash of its source, its id, and its body.
    """
    key = identity.message_key(make_delivery(BODY, message_id=message_id), Past())
    assert key is not None
    return policy.of(key)


def ids_in(arm: str, many: int, policy: RedeliveryPolicy = POLICY) -> list[str]:
    """Return the ids of `many` messages that are in this arm."""
    return [name for name in map(str, range(many * 50)) if arm_of(name, policy).name == arm][:many]


class Shop:
    """Runs an App on a memory broker and a clock moved by hand. Its handler fails `fails` times on each message."""

    def __init__(self, policy: Any = POLICY, fails: float = math.inf, url: str = "memory://", **options: Any) -> None:
        self.policy, self.fails, self.url, self.options = policy, fails, url, options
        self.records: list[AttemptRecord] = []
        self.runs: Counter[str] = Counter()
        self.test = self.app()

    def app(self) -> TestApp:
        app = App(self.url, policy=self.policy, app_name="shop", **self.options)
        app.handler("orders")(self.handle)
        app.on_attempt(self.records.append)
        return TestApp(app)

    def handle(self, delivery: Delivery) -> None:
        self.runs[str(delivery.message_id)] += 1
        if self.runs[str(delivery.message_id)] <= self.fails:
            raise ValueError("no")

    def crash(self) -> None:
        """End the process with nothing more written; the next one has the broker and the clock, and knows nothing."""
        engine = self.test.app._engine
        assert engine is not None
        assert engine.runner is not None
        engine.runner.stopping = True
        engine.adapter.close(0.0)
        ledger._ledgers.clear()
        following = self.app()
        following.broker, following.clock = self.test.broker, self.test.clock
        self.test = following.start()

    def told(self) -> set[tuple[str | None, float | None, str]]:
        return {(record.policy_arm, record.propensity, record.policy_version) for record in self.records}


@pytest.fixture(autouse=True)
def ledgers() -> Iterator[None]:
    ledger._ledgers.clear()
    yield
    ledger._ledgers.clear()


UNLIMITED = """<weblogic-jms>
  <queue name="orders">
    <delivery-failure-params><error-destination>dead</error-destination></delivery-failure-params>
  </queue>
  <queue name="dead"/>
</weblogic-jms>"""
MINE = ids_in("patient", 1)[0]
IN_PATIENT = ("patient", 0.3, POLICY.version)
IN_MAIN = ("main", 0.7, POLICY.version)


# -- records --------------------------------------------------------------------------------------------


def test_of_many_messages_each_arm_has_its_share_and_all_that_a_policy_says() -> None:
    shop, many = Shop(), 600
    with shop.test as test:
        for number in range(many):
            test.send("orders", BODY, message_id=f"m{number}")
        test.advance(60)
    last = {record.message_key: record for record in shop.records}
    found = Counter(record.policy_arm for record in last.values())
    assert abs(found["patient"] - many * 0.3) < 5 * math.sqrt(many * 0.3 * 0.7)
    assert {(record.policy_arm, record.attempts_total, *(record.targets or ())) for record in last.values()} == {
        ("main", 2, "queue:hasty.orders"),
        ("patient", 4, "queue:patient.orders"),
    }
    rests = {(record.policy_arm, record.delay_us) for record in shop.records if record.outcome == "redelivered"}
    assert rests == {("main", 1_000_000), ("patient", 7_000_000)}
    assert shop.told() == {IN_MAIN, IN_PATIENT}
    assert all(POLICY.of(record.message_key).name == record.policy_arm for record in shop.records)


def test_a_success_at_the_first_try_tells_its_arm_too() -> None:
    shop = Shop(fails=0)
    with shop.test as test:
        for number in range(200):
            test.send("orders", BODY, message_id=str(number))
    assert [record.policy_arm for record in shop.records] == [arm_of(str(number)).name for number in range(200)]
    assert shop.told() == {IN_MAIN, IN_PATIENT}
    texts = {record.policy_arm: record.policy for record in shop.records}
    assert texts == {arm.name: arm.policy.text for arm in POLICY.apart}


def test_without_arms_none_is_recorded(tmp_path: Path) -> None:
    shop = Shop(POLICY.alone, journal=tmp_path)
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(60)
    assert shop.told() == {(None, None, POLICY.alone.version)}
    (segment,) = tmp_path.glob("seg-*")
    assert b"policy_arm" not in segment.read_bytes()


def test_the_journal_has_what_the_hooks_are_given(tmp_path: Path) -> None:
    app = App("memory://", policy=POLICY, journal=tmp_path)

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if delivery.failures == 0 and delivery.message_id == MINE:
            raise ValueError("no")

    with TestApp(app) as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(7)
        test.send("orders", BODY, message_id=ids_in("main", 1)[0])
    assert [(record.policy_arm, record.outcome) for record in read_segments(tmp_path)] == [
        ("patient", "redelivered"),
        ("patient", "accepted"),
        ("main", "accepted"),
    ]


def test_a_dead_letter_names_the_version_of_the_whole_and_the_policy_of_its_arm() -> None:
    shop = Shop()
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(60)
        (letter,) = test.dead_letters("orders")  # in either target
    assert letter.headers["redeliver_policy_version"] == POLICY.version
    assert letter.headers["redeliver_policy"] == arm_of(MINE).policy.text
    assert letter.headers["redeliver_failures"] == "4"


def test_a_drop_in_tells_the_arms_of_successes_and_failures(tmp_path: Path) -> None:
    def callback(message: Message) -> None:
        if message.count == 1 and int(message.text) % 2:
            raise ValueError("no")

    consumer = Consumer(callback, policy=POLICY.replace(dead_letter="queue:DLQ.$"), journal=tmp_path)
    consumer.put(*map(str, range(40)))
    consumer.clock.advance(10)
    consumer.runner.terms.recorder.close()
    records = list(read_segments(tmp_path))
    assert len(records) == 60
    policy = POLICY.replace(dead_letter="queue:DLQ.$")
    assert all(record.policy_arm == policy.of(record.message_key).name for record in records)
    assert {record.policy_arm for record in records} == {"main", "patient"}


# -- one arm for all attempts ---------------------------------------------------------------------------


@pytest.mark.parametrize("delay", ["hold", "schedule", "nack"])
def test_a_message_stays_in_its_arm_however_it_is_delayed(delay: str) -> None:
    shop = Shop(delay=delay)
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(60)
    assert [record.mechanism for record in shop.records] == [delay] * 3 + [None]
    assert shop.told() == {IN_PATIENT}


def test_what_the_broker_hands_out_again_is_in_the_arm_it_was_in() -> None:
    shop = Shop()
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.broker.cut()
        test.advance(60)
    assert [record.outcome for record in shop.records] == ["redelivered"] * 3 + ["dead_lettered"]
    assert shop.told() == {IN_PATIENT}


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_another_process_finds_it_in_the_arm_it_was_in(delay: str) -> None:
    shop = Shop(delay=delay)
    for message_id in (MINE, ids_in("main", 1)[0]):
        shop.test.send("orders", BODY, message_id=message_id)
    for _ in range(3):
        shop.crash()
        shop.test.advance(8)
    shop.test.stop()
    arms = {record.message_key: set[str | None]() for record in shop.records}
    for record in shop.records:
        arms[record.message_key].add(record.policy_arm)
    assert sorted(arms.values(), key=str) == [{"main"}, {"patient"}]
    assert len(shop.records) > 4


def test_a_replayed_message_is_in_the_arm_it_was_in() -> None:
    shop = Shop()
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(60)
        test.replay("orders")
        test.advance(60)
    assert Counter(record.generation for record in shop.records) == {0: 4, 1: 4}
    assert shop.told() == {IN_PATIENT}


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_a_message_without_an_id_keeps_the_arm_of_its_first_failure(delay: str) -> None:
    shop = Shop(delay=delay)
    with shop.test as test:
        for number in range(60):
            test.send("orders", f"{number}")
        test.advance(60)
    arms = {(record.message_key, record.policy_arm) for record in shop.records}
    assert len(arms) == 60
    assert {arm for _, arm in arms} == {"main", "patient"}
    dead = [record for record in shop.records if record.outcome == "dead_lettered"]
    assert {record.policy_arm: record.attempts_total for record in dead} == {"main": 2, "patient": 4}


# -- what stands over them ------------------------------------------------------------------------------


def test_a_policy_on_the_url_stands_over_arms() -> None:
    shop = Shop(url="memory://?JMSJCA.redeliveryhandling=1:1000; 2:delete")
    with shop.test as test:
        test.send("orders", BODY, message_id=MINE)
        test.advance(60)
    assert [record.outcome for record in shop.records] == ["redelivered", "discarded"]
    assert {(record.policy_arm, record.propensity) for record in shop.records} == {(None, None)}


def test_a_policy_that_a_handler_gives_its_message_stands_over_arms_from_then_on() -> None:
    policy = RedeliveryPolicy.parse("1:1000; 3:move(queue:dlq.$)").replace(arms={"patient": (0.9, {"dead_after": 9})})
    mine = ids_in("patient", 1, policy)[0]
    records: list[AttemptRecord] = []
    app = App("memory://", policy=policy)
    app.on_attempt(records.append)

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if delivery.failures == 1:
            delivery.headers["_JMSJCA_RedeliveryHandling"] = "1:2000; 3:delete"
        raise ValueError("no")

    with TestApp(app) as test:
        test.send("orders", BODY, message_id=mine)
        test.advance(60)
    assert [(record.policy_arm, record.propensity, record.outcome) for record in records] == [
        ("patient", 0.9, "redelivered"),
        (None, None, "redelivered"),
        (None, None, "discarded"),
    ]
    assert records[0].policy_version == policy.version
    assert records[1].policy_version == RedeliveryPolicy.parse("1:2000; 3:delete").version


@pytest.mark.parametrize("fails", [0, math.inf])
def test_a_limit_that_a_sender_gives_its_message_takes_it_out_of_all_arms(fails: float) -> None:
    policy = load_policies(UNLIMITED).resolve("orders").replace(arms={"hasty": (0.5, {"dead_after": 1})})
    shop = Shop(policy, fails, allow_hot_loop=True)
    with shop.test as test:
        for number in range(20):
            test.send("orders", BODY, {"JMS_BEA_RedeliveryLimit": 2}, message_id=str(number))
        test.advance(60)
    assert {(record.policy_arm, record.propensity) for record in shop.records} == {(None, None)}
    assert len(shop.records) == (20 if fails == 0 else 60)


# -- a change while it runs -----------------------------------------------------------------------------


def test_other_arms_are_a_new_version_for_every_attempt_from_then_on(tmp_path: Path) -> None:
    text = "dead_after = 2\nbackoff = 1\n[arms.patient]\nshare = {}\nbackoff = 7\n"
    file = tmp_path / "policy.toml"
    file.write_text(text.format(0.3))
    shop = Shop(file)
    old, new = (RedeliveryPolicy.parse(text.format(share)) for share in (0.3, 0.4))
    with shop.test as test:
        test.advance(3)
        test.send("orders", BODY, message_id="1")
        test.advance(10)
        file.write_text(text.format(0.4))
        test.advance(3)
        test.send("orders", BODY, message_id="2")
        test.advance(10)
    told = {record.message_id: (record.policy_version, record.policy_arm) for record in shop.records}
    assert told == {
        "1": (old.version, arm_of("1", old).name),
        "2": (new.version, arm_of("2", new).name),
    }
    assert len(shop.records) == 4


# -- what a start refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "options", "error", "said"),
    [
        ({"backoff": 60.0}, {"delay": "hold"}, PolicyError, "waits up to 60 s"),
        ({"dead_letter": "queue:orders"}, {}, ConfigError, "where they come from"),
        ({"dead_letter": "queue:nowhere"}, {"declare": "none"}, DestinationMissing, "queue:nowhere"),
    ],
)
def test_what_cannot_be_had_is_refused_for_every_arm(
    arm: dict[str, Any], options: dict[str, Any], error: type[Exception], said: str
) -> None:
    policy = RedeliveryPolicy(3, 1.0, "queue:dead", arms={"small": (0.001, arm)})
    for tried, wrong in ((policy.alone, False), (policy, True)):
        shop = Shop(tried, **options)
        shop.test.broker.declare("dead")
        if wrong:
            with pytest.raises(error, match=said):
                shop.test.start()
        else:
            shop.test.start()
            shop.test.stop()


def test_a_delay_that_only_an_arm_has_is_waited_for_on_the_brokers_ladder() -> None:
    shop = Shop(POLICY.replace(arms={"patient": (0.3, {"backoff": 300.0})}))
    mine = ids_in("patient", 1, shop.policy)[0]
    with shop.test as test:
        test.send("orders", BODY, message_id=mine)
        test.advance(299)
        assert shop.runs[mine] == 1
        test.advance(2)
    assert shop.runs[mine] == 2


# -- the breaker ----------------------------------------------------------------------------------------


def test_what_is_fatal_in_an_arm_says_nothing_of_a_dependency() -> None:
    policy = RedeliveryPolicy(2, 1.0, arms={"strict": (0.5, {"fatal": ValueError})})
    strict, hasty = (ids_in(arm, 4, policy) for arm in ("strict", "main"))
    shop = Shop(policy, breaker=Breaker(window=4, min_calls=2))
    with shop.test as test:

        def state() -> str:
            return str(test.app.health()["sources"]["queue:orders"]["breaker"]["state"])

        for message_id in strict:
            test.send("orders", BODY, message_id=message_id)
        assert state() == "closed"
        for message_id in hasty:
            test.send("orders", BODY, message_id=message_id)
        assert state() == "open"


def test_a_reject_is_the_end_in_every_arm() -> None:
    app, records = App("memory://", policy=POLICY), list[AttemptRecord]()
    app.on_attempt(records.append)

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        raise Reject("nonsense")

    with TestApp(app) as test:
        for message_id in (MINE, ids_in("main", 1)[0]):
            test.send("orders", BODY, message_id=message_id)
        test.advance(1)
        assert (test.depth("patient.orders"), test.depth("hasty.orders")) == (1, 1)
    assert [(record.policy_arm, record.reason) for record in records] == [("patient", "rejected"), ("main", "rejected")]
