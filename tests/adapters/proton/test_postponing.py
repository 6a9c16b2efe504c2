# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that RabbitMQ 4.3 keeps a message back for us, with our count on it, as no other broker does for a consumer."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import proton
import pytest

from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.adapter.registry import adapter_for, parse_url
from redeliver_mw.dead_letters import Replay, letter_of
from redeliver_mw.errors import ConfigError, DestinationMissing, PolicyError, RedeliverError
from redeliver_mw.message import Destination, Outgoing
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.redelivery import ledger
from redeliver_mw.redelivery.headers import iso
from redeliver_mw.session import connect
from redeliver_mw.testing.contract.handlers import Handler, fail, fail_first
from redeliver_proton.brokers.rabbitmq.capabilities import capabilities, too_old
from redeliver_proton.rabbitmq import RABBITMQ
from tests.adapters.proton.probe import Probe
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.contract.rabbit_proton_world import SEASON, RabbitProtonWorld, path
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

AWAY = 1.0  # seconds of each delay


@pytest.fixture(scope="module")
def proxy(rabbitmq43: Broker) -> Iterator[Proxy]:
    found = Proxy(rabbitmq43.host, rabbitmq43.port, roles=("(publish)", "(consume)"))
    yield found
    found.close()


@pytest.fixture
def world(rabbitmq43: Broker, proxy: Proxy) -> Iterator[RabbitProtonWorld]:
    mine = RabbitProtonWorld(rabbitmq43, proxy)
    yield mine
    mine.close()


def policy(dead: str | None, dead_after: int = 3, backoff: float = AWAY) -> RedeliveryPolicy:
    return RedeliveryPolicy(dead_after, backoff, None if dead is None else f"queue:{dead}")


def test_the_same_message_comes_back_at_its_time_and_nothing_is_copied(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail_first(2), policy(dead), delay="nack", records=True)
    world.send(queue, b"one", {"k": 1}, correlation_id="c1")
    assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
    assert consumer.counts == [1, 2, 3]
    runs = consumer.handler.runs
    gaps = [b.at - a.at for a, b in itertools.pairwise(runs)]
    assert all(AWAY - 1e-3 <= gap < AWAY + 0.5 for gap in gaps), gaps
    assert runs[2].delivery.native.annotation("x-acquired-count") == 2  # it is the one that was sent
    assert runs[2].delivery.native.field("message_id") is None
    assert world.wait_until(lambda: len(consumer.records) == 3)
    assert [record.mechanism for record in consumer.records] == ["nack", "nack", None]
    assert len({record.message_key for record in consumer.records}) == 1
    consumer.stop()
    assert world.depth(queue) == world.depth(dead) == 0


def test_a_queues_own_limit_is_read_and_one_that_is_missing_is_ours_to_make(world: RabbitProtonWorld) -> None:
    queue = world.new_queue(declare=False)
    with Probe(world.url) as probe:

        def limit() -> BrokerLimit:
            found: BrokerLimit = probe.ask(lambda answer: probe.adapter.limit_at(Destination(queue), answer))
            return found

        assert limit() == BrokerLimit()
        world.raw.declare(queue, {"x-queue-type": "quorum", "x-delivery-limit": 3})
        assert (limit().returns, limit().trust) == (4, Trust.PROBED)
        world.delete(queue)
        world.raw.declare(queue, {"x-queue-type": "quorum"})
        assert limit().trust is Trust.UNKNOWN  # 20, unless a policy says otherwise


def test_a_policy_of_minutes_needs_neither_ladder_nor_limbo(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail, policy(dead, backoff=600.0), records=True)
    world.send(queue, b"one")
    assert world.wait_until(lambda: len(consumer.records) == 1)
    assert (consumer.records[0].mechanism, consumer.records[0].delay_us) == ("nack", 600_000_000)
    consumer.stop()
    world.advance(0.2)
    assert world.depth(queue) == 0  # nobody else gets it before its time


def test_the_count_survives_the_process_and_needs_no_consumer_of_its_own(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    first = world.consume(queue, fail, policy(dead), delay="nack")
    world.send(queue, b"anonymous")  # by no id would a ledger know it
    assert world.wait_until(lambda: first.counts == [1])
    first.stop()
    ledger._ledgers.clear()  # a new process knows what is on the message, and nothing else
    second = world.consume(queue, fail, policy(dead), delay="nack")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    assert second.counts == [2, 3]
    assert second.handler.runs[0].at - first.handler.runs[0].at >= AWAY - 1e-3
    assert second.handler.runs[0].delivery.last_error == "Trouble: it never works"


def test_a_dead_letter_has_our_headers_once_and_none_of_the_brokers_notes(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    world.consume(queue, fail, policy(dead, 2), delay="nack")
    message = proton.Message(body=b"one", inferred=True, annotations={proton.symbol("x-opt-mine"): "kept"})
    world.raw.send(path(queue), message)
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.raw.take(dead, 1)
    assert letter.properties["redeliver_failures"] == "2"
    assert "redeliver_not_before" not in letter.properties
    assert {str(name) for name in letter.annotations} == {"x-opt-mine", "x-exchange", "x-routing-key"}


def test_a_letter_that_a_stranger_sent_back_is_counted_on(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail, policy(dead, 3, 0.1), delay="nack")
    world.send(queue, b"one", message_id="m1")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.take_all(dead)
    world.send(queue, letter.body, letter.headers, message_id="m1")  # with its reason, which stays on the message
    assert world.wait_until(lambda: world.depth(dead) == 1)
    assert consumer.counts == [1, 2, 3, 1, 2, 3]
    (again,) = world.take_all(dead)
    assert (again.headers["redeliver_generation"], again.headers["redeliver_failures"]) == ("1", "3")


def test_what_has_a_lifetime_is_not_left_to_the_brokers_clock(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail, policy(dead), delay="nack", records=True)
    world.send(queue, b"one", lifetime=1.5)
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.take_all(dead)
    assert letter.headers["redeliver_reason"] == "expired"
    assert {record.mechanism for record in consumer.records[:-1]} == {"hold"}


def test_a_settle_that_is_lost_costs_neither_message_nor_count(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail_first(1), policy(dead), delay="nack")
    world.lose_next_settle()
    world.send(queue, b"one", message_id="m1")
    assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
    assert consumer.counts == [1, 2]
    assert consumer.handler.runs[1].at - consumer.handler.runs[0].at >= AWAY - 1e-3
    consumer.stop()
    assert world.depth(queue) == world.depth(dead) == 0


def test_healthy_messages_pass_more_failing_ones_than_may_be_held(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    failing = fail_first(1)
    consumer = world.consume(
        queue, lambda d: failing(d) if d.body.startswith(b"failing") else None, policy(dead, backoff=3.0), prefetch=10
    )
    for n in range(30):
        world.send(queue, b"failing%d" % n)
    for n in range(100):
        world.send(queue, b"well%d" % n)
    assert world.wait_until(lambda: sum(body.startswith(b"well") for body in consumer.bodies) == 100, 3.0)
    assert world.wait_until(lambda: consumer.handler.done.total() == 130)
    assert max(consumer.handler.done.values()) == 1


def test_it_survives_the_death_of_its_broker(world: RabbitProtonWorld) -> None:
    only_if("kill" in world.abilities, "kill")
    queue, dead = world.new_queue(), world.new_queue()
    time.sleep(SEASON)
    consumer = world.consume(queue, fail_first(1), policy(dead, backoff=4.0), delay="nack")
    world.send(queue, b"one", message_id="m1")
    assert world.wait_until(lambda: consumer.counts == [1])
    world.advance(0.3)
    world.kill_broker()
    world.restart_broker()
    assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1, 60.0)
    assert consumer.counts == [1, 2]
    assert consumer.handler.runs[1].at - consumer.handler.runs[0].at >= 4.0 - 1e-3


def test_a_subscription_to_a_topic_is_a_quorum_queue_of_its_name(world: RabbitProtonWorld) -> None:
    topic, name, other, dead = (world.new_name() for _ in range(4))
    app, audit, billing = world.app(delay="nack"), Handler(world.now, fail), Handler(world.now)
    app.handler(f"topic:{topic}", subscription=name, policy=policy(dead, 2, 0.3))(audit)
    app.handler(f"topic:{topic}", subscription=other)(billing)
    world.started(app)
    assert world.raw.queue(name)["type"] == "quorum"
    world.publish("amq.topic", topic, b"one")
    assert world.wait_until(lambda: world.exists(dead) and world.depth(dead) == 1)
    assert ([run.count for run in audit.runs], [run.count for run in billing.runs]) == ([1, 2], [1])
    (letter,) = world.take_all(dead)
    assert letter.headers["original-destination"] == letter.headers["x-first-death-queue"] == name
    assert letter.headers["redeliver_original_destination"] == topic


def test_a_name_may_have_any_letters(world: RabbitProtonWorld) -> None:
    queue, dead = f"{world.new_name()} a/ü%20?", f"{world.new_name()} ; DLQ"
    world.declare(queue)
    consumer = world.consume(queue, fail, policy(dead, 1))
    world.send(queue, b"one")
    assert world.wait_until(lambda: world.exists(dead) and world.depth(dead) == 1)
    assert consumer.counts == [1]


def test_a_consumer_by_way_of_pika_copies_none_of_what_was_put_on_it(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    first = world.consume(queue, fail, policy(dead), delay="nack")
    world.send(queue, b"one")
    assert world.wait_until(lambda: first.counts == [1])
    first.stop()
    by_pika = world.url.replace("rabbitmq+proton://", "rabbitmq://", 1)
    world.consume(queue, fail, policy(dead, 1), url=by_pika)
    assert world.wait_until(lambda: world.depth(dead) == 1)
    (letter,) = world.raw.take(dead, 1)
    told = {*map(str, letter.annotations), *letter.properties}
    assert "redeliver_reason" in told
    assert not {name for name in told if name.startswith("x-opt-")}  # or it would count as of before that copy


def test_what_comes_back_early_is_held_for_the_last_bit_and_not_sent_round_and_round(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, policy=policy(dead, backoff=60.0))
    due = time.time() + 1.5  # as by a broker whose clock is ahead of ours
    marks = {"failures": "1", "failures_for": queue, "lineage": "L", "not_before": iso(round(due * 1e6))}
    message = proton.Message(body=b"one", inferred=True)
    message.annotations = {proton.symbol(f"x-opt-redeliver_{name}"): value for name, value in marks.items()}
    world.raw.send(path(queue), message)
    assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1)
    assert time.time() >= due - 0.01
    assert consumer.counts == [2]
    assert consumer.handler.runs[0].delivery.native.annotation("x-acquired-count") is None


def test_no_copy_goes_to_a_quorum_queue_that_was_made_just_now(world: RabbitProtonWorld) -> None:
    young, old = Destination(world.new_name()), Destination(world.new_queue())
    with Probe(world.url) as probe:
        probe.subscribe(young, declare=True)
        made = world.raw.queue(young.name)
        assert (made["type"], made["arguments"]["x-delivery-limit"]) == ("quorum", -1)
        verdict, why = probe.publish(Outgoing(young, b"one", {}))
        assert (verdict, "just now" in why) == ("refused", True)
        assert probe.publish(Outgoing(old, b"one", {})) == ("ok", "")
    assert world.depth(young.name) == 0


def test_a_publish_to_what_is_not_there_or_full_or_bound_to_nothing_is_refused(world: RabbitProtonWorld) -> None:
    full, gone = world.new_queue(refusing=True), world.new_queue()
    with Probe(world.url) as probe:
        assert probe.publish(Outgoing(Destination(gone), b"one", {})) == ("ok", "")
        world.delete(gone)
        for target in (Destination(gone), Destination(full), Destination(world.new_name(), "topic")):
            verdict, why = probe.publish(Outgoing(target, b"one", {}))
            if target.name == gone and verdict == "silent":
                # It met the deletion on its way. RabbitMQ may end the session for it, and then the next one is unsent.
                verdict, why = probe.publish(Outgoing(target, b"one", {}))
                if verdict == "unsent":
                    verdict, why = probe.publish(Outgoing(target, b"one", {}))
            assert verdict == "refused"
            assert why


def test_a_message_that_ends_each_connection_that_gets_it_costs_the_others_nothing(world: RabbitProtonWorld) -> None:
    """RabbitMQ 4.3.6 takes a null annotation, cannot write it to a consumer, and drops the message after 20 tries."""
    queue = world.new_name()
    world.raw.declare(queue, {"x-queue-type": "quorum"})
    world.raw.send(path(queue), proton.Message(body=b"broken", annotations={proton.symbol("x-opt-a"): None}))
    healthy = [b"%d" % n for n in range(10)]
    for body in healthy:
        world.send(queue, body)
    consumer = world.consume(queue, Handler(world.now))
    assert world.wait_until(lambda: sorted(consumer.handler.done) == healthy, 20.0)


def test_a_stop_counts_nothing_towards_the_queues_limit(world: RabbitProtonWorld) -> None:
    queue = world.new_queue()
    consumer = world.consume(queue, lambda d: consumer.app.pause(queue))
    for n in range(10):
        world.send(queue, b"%d" % n)
    assert world.wait_until(lambda: consumer.handler.done.total() >= 1)
    world.advance(0.2)
    consumer.stop()
    assert world.wait_until(lambda: world.depth(queue) >= 8)
    assert {message.delivery_count for message in world.raw.take(queue, world.depth(queue))} == {0}


def test_a_memory_alarm_does_not_keep_what_is_given_back(world: RabbitProtonWorld) -> None:
    only_if("alarm" in world.abilities, "alarm")
    queue, dead = world.new_queue(), world.new_queue()
    consumer = world.consume(queue, fail_first(1), policy(dead, backoff=2.0), delay="nack")
    world.send(queue, b"one")
    assert world.wait_until(lambda: consumer.counts == [1])
    world.raise_alarm()
    try:
        assert world.wait_until(lambda: consumer.handler.done[b"one"] == 1, 5.0)
    finally:
        world.lift_alarm()


def test_dead_letters_are_listed_and_replayed_also_those_of_the_broker_itself(world: RabbitProtonWorld) -> None:
    queue, dead = world.new_name(), world.new_queue()
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    world.raw.declare(queue, {"x-queue-type": "quorum", **letters})
    consumer = world.consume(queue, fail, policy(dead, 1))
    world.send(queue, b"ours", message_id="m1")
    assert world.wait_until(lambda: world.depth(dead) == 1)
    consumer.stop()
    world.send(queue, b"theirs")
    receiver = world.raw.connection.create_receiver(path(queue), name="rejecting", credit=1)
    receiver.receive(timeout=10)
    receiver.reject()
    receiver.close()
    assert world.wait_until(lambda: world.depth(dead) == 2)
    with connect(world.url) as session:
        found = {d.body: letter_of(d, session.capabilities) for d in session.browse(dead)}
    assert {body: (str(one.source), one.reason) for body, one in found.items()} == {
        b"ours": (f"queue:{queue}", "exhausted"),
        b"theirs": (f"queue:{queue}", "rejected"),
    }
    assert Replay(adapter_for(world.url), Destination(dead)).run().count("replayed") == 2
    healed = world.consume(queue, policy=policy(dead))
    assert world.wait_until(lambda: healed.handler.done == {b"ours": 1, b"theirs": 1})
    assert {run.delivery.past.generation for run in healed.handler.runs} == {1}
    assert world.depth(dead) == 0


# -- refused at start ----------------------------------------------------------------------------------------------


def refusal(world: RabbitProtonWorld, queue: str, **options: object) -> RedeliverError:
    with pytest.raises(RedeliverError) as refused:
        world.consume(queue, fail, policy(None, backoff=60.0), **options)
    return refused.value


def test_a_classic_queue_cannot_have_a_long_delay_and_the_error_says_what_to_do(world: RabbitProtonWorld) -> None:
    queue = world.new_name()
    world.raw.declare(queue, {"x-queue-type": "classic"})
    world.send(queue, b"one")
    error = refusal(world, queue)
    assert isinstance(error, PolicyError)
    assert queue in (error.where or "")
    assert f"make {queue} a quorum queue" in (error.cure or "")
    assert [raw.redelivered for raw in world.take_all(queue)] == [False]
    consumer = world.consume(queue, fail_first(1), policy(None, backoff=0.2))  # a short one it can
    world.send(queue, b"two")
    assert world.wait_until(lambda: consumer.counts == [1, 2])


def test_a_source_that_is_missing_is_reported_as_missing(world: RabbitProtonWorld) -> None:
    assert isinstance(refusal(world, world.new_name()), DestinationMissing)


def test_scheduled_copies_are_not_to_be_had(world: RabbitProtonWorld) -> None:
    assert "cannot delay a copy" in refusal(world, world.new_queue(), delay="schedule").what


def test_a_source_that_is_made_again_as_a_classic_queue_is_not_consumed(world: RabbitProtonWorld) -> None:
    queue = world.new_queue()
    consumer = world.consume(queue, fail, policy(None, backoff=60.0))
    world.delete(queue)
    world.raw.declare(queue, {"x-queue-type": "classic"})
    world.send(queue, b"one")
    world.advance(2.5)
    assert consumer.counts == []  # there it would be given back again and again, without a pause
    assert world.depth(queue) == 1


def test_a_source_that_this_user_may_not_read_is_reported_at_once(world: RabbitProtonWorld) -> None:
    only_if(world.broker.how != "env", "have users of")
    queue, user = world.new_queue(), world.new_name()
    world.broker.ctl("add_user", user, "pw")
    world.broker.ctl("set_permissions", user, "^$", ".*", "^$")
    b, begun = world.broker, world.now()
    with pytest.raises(RedeliverError, match="read access") as refused:
        world.consume(queue, policy=policy(None), url=f"rabbitmq+proton://{user}:pw@{b.host}:{b.port}/", declare="none")
    assert "permissions" in (refused.value.cure or "")
    assert world.now() - begun < world.start_limit


def test_a_target_that_this_user_may_not_make_is_reported_and_the_next_question_is_answered(
    world: RabbitProtonWorld,
) -> None:
    only_if(world.broker.how != "env", "have users of")
    queue, missing, user = world.new_queue(), world.new_name(), world.new_name()
    world.broker.ctl("add_user", user, "pw")
    world.broker.ctl("set_permissions", user, "^$", ".*", ".*")
    url = f"rabbitmq+proton://{user}:pw@{world.broker.host}:{world.broker.port}/"
    with pytest.raises(DestinationMissing, match="configure access") as refused:
        world.consume(queue, policy=policy(missing), url=url)
    assert refused.value.cure
    with connect(url) as session:
        with pytest.raises(RedeliverError, match="not there"):
            session.depth(missing)
        assert session.depth(queue) == 0


def test_a_selector_is_refused_at_start(world: RabbitProtonWorld) -> None:
    app = world.app()
    app.handler(world.new_queue(), selector="n = 1")(Handler(world.now))
    with pytest.raises(ConfigError, match="knows no selectors"):
        world.started(app)


def test_a_virtual_host_that_is_not_there_is_reported(world: RabbitProtonWorld) -> None:
    with pytest.raises(RedeliverError, match="nowhere"):
        world.consume(world.new_queue(), url=f"{world.url.rstrip('/')}/nowhere")


def test_before_4_3_nothing_is_given_back_with_a_delay_and_before_4_0_nothing_is_consumed() -> None:
    before = capabilities("4.2.9")
    assert (before.delayed_release, before.released_uncounted) == (None, False)
    assert "4.3" in before.delay_cure
    assert capabilities("4.3.0").delayed_release is not None
    assert "3.13.7" in too_old("3.13.7")
    assert not too_old("4.0.5")


def test_broker_and_virtual_host_are_named_as_by_pika() -> None:
    assert RABBITMQ.where(parse_url("rabbitmq+proton://u:p@h/eu")) == "h:5672/eu"
    assert RABBITMQ.where(parse_url("rabbitmq+proton://h:1234")) == "h:1234/"


def test_a_broker_that_knows_no_amqp_1_0_is_refused(rabbitmq310: Broker, world: RabbitProtonWorld) -> None:
    b = rabbitmq310
    with pytest.raises(RedeliverError) as refused:
        world.consume("orders", url=f"rabbitmq+proton://{b.user}:{b.password}@{b.host}:{b.port}/")
    assert refused.value.cure
    assert not isinstance(refused.value, ConfigError) or "4.0" in refused.value.what
