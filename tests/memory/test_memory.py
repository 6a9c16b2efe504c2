# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the memory broker's own verbs with what was seen live on the brokers that it plays."""

from __future__ import annotations

import pytest

from redeliver_mw.errors import BrokerUnavailable, ConfigError, DestinationMissing
from redeliver_mw.memory import HeldDelivery, MemoryLink
from redeliver_mw.message import Properties
from redeliver_mw.testing import Faults, ManualClock, MemoryBroker, StoredMessage

QUEUE = "orders"


def broker_of(personality: str, *bodies: bytes, durable: bool = True, faults: Faults | None = None) -> MemoryBroker:
    broker = MemoryBroker(personality, ManualClock(), faults)
    broker.declare(QUEUE)
    for body in bodies:
        broker.send(QUEUE, body, durable=durable)
    return broker


def get(link: MemoryLink, source: str = QUEUE) -> HeldDelivery:
    held = link.get(source)
    assert held is not None
    return held


def bodies(broker: MemoryBroker, source: str = QUEUE) -> list[bytes]:
    return [message.body for message in broker.peek(source)]


def advance(broker: MemoryBroker, seconds: float) -> None:
    assert isinstance(broker.clock, ManualClock)
    broker.clock.advance(seconds)


def marks(messages: list[StoredMessage]) -> list[tuple[bool, int, int]]:
    return [(message.redelivered, message.count, message.acquired) for message in messages]


# -- every broker ----------------------------------------------------------------------------------

ALL = pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"])


@ALL
def test_an_accepted_message_is_gone(personality: str) -> None:
    broker = broker_of(personality, b"1")
    link = broker.connect()
    link.accept(get(link).tag)
    link.drop()
    assert broker.everything() == []
    assert broker.destroyed == 0


@ALL
def test_messages_come_first_in_first_out_and_unmarked(personality: str) -> None:
    broker = broker_of(personality, b"1", b"2", b"3")
    link = broker.connect()
    taken = [get(link) for _ in range(3)]
    assert [held.message.body for held in taken] == [b"1", b"2", b"3"]
    assert [(held.redelivered, held.failed) for held in taken] == [(False, 0)] * 3


@ALL
def test_what_is_unsettled_comes_back_first_and_in_order_when_the_connection_drops(personality: str) -> None:
    broker = broker_of(personality, b"1", b"2", b"3", b"4")
    link = broker.connect()
    for _ in range(3):
        get(link)
    link.drop()
    assert bodies(broker) == [b"1", b"2", b"3", b"4"]


@ALL
def test_a_killed_broker_keeps_what_is_durable_and_answers_nobody_until_it_is_back(personality: str) -> None:
    broker = broker_of(personality, b"kept")
    broker.send(QUEUE, b"lost", durable=False)
    link = broker.connect()
    get(link)
    broker.kill()
    with pytest.raises(BrokerUnavailable):
        broker.send(QUEUE, b"x")
    with pytest.raises(BrokerUnavailable):
        broker.connect()
    with pytest.raises(BrokerUnavailable):
        link.get(QUEUE)
    broker.restart()
    assert bodies(broker) == [b"kept"]


@ALL
def test_everything_tells_where_each_copy_is(personality: str) -> None:
    broker = broker_of(personality, b"flying", b"waiting")
    get(broker.connect())
    target = broker.declare(QUEUE)
    assert broker.store(target, b"later", {}, Properties(), after=4.0) == ""
    found = {(place.where, place.destination.name, place.message.body) for place in broker.everything()}
    assert found == {("in flight", QUEUE, b"flying"), ("queued", QUEUE, b"waiting"), ("scheduled", QUEUE, b"later")}
    assert broker.depth(QUEUE) == 1


@ALL
def test_a_header_that_is_no_plain_value_is_refused(personality: str) -> None:
    broker = broker_of(personality)
    with pytest.raises(DestinationMissing, match="cannot be copied exactly"):
        broker.send(QUEUE, b"x", {"deep": [{"inner": object()}]})
    broker.send(QUEUE, b"x", {"deep": [{"inner": [1, 2.5, "t", b"b", True, None]}]})
    assert broker.depth(QUEUE) == 1


@ALL
def test_a_full_queue_refuses_or_pushes_out_the_oldest_as_it_was_declared(personality: str) -> None:
    broker = broker_of(personality)
    broker.declare("strict", max_length=1, refuse=True)
    broker.declare("loose", max_length=1)
    for name in ("strict", "loose"):
        broker.send(name, b"1")
    with pytest.raises(DestinationMissing, match="full"):
        broker.send("strict", b"2")
    broker.send("loose", b"2")
    assert (bodies(broker, "strict"), bodies(broker, "loose")) == ([b"1"], [b"2"])
    assert broker.destroyed == 1


@ALL
def test_each_subscription_of_a_topic_gets_its_own_copy(personality: str) -> None:
    broker = broker_of(personality)
    first = broker.declare("topic:prices", subscription="a")
    second = broker.declare("topic:prices", subscription="b")
    broker.send("topic:prices", b"42")
    link = broker.connect()
    held = link.get(first)
    assert held is not None
    link.accept(held.tag)
    assert (broker.depth(first), broker.depth(second)) == (0, 1)


# -- RabbitMQ --------------------------------------------------------------------------------------


@pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic"])
def test_on_rabbitmq_a_requeued_message_comes_back_at_once_and_is_marked_redelivered(
    personality: str,
) -> None:
    broker = broker_of(personality, b"1")
    link = broker.connect()
    for _ in range(12):  # for ever, in fact
        link.nack(get(link).tag, requeue=True)
    assert get(link).redelivered


def test_on_rabbitmq_nack_raises_only_the_acquired_count_and_never_reaches_the_limit() -> None:
    broker = MemoryBroker("rabbitmq", ManualClock())
    broker.declare(QUEUE, limit=3)
    broker.send(QUEUE, b"1")
    link = broker.connect()
    for _ in range(12):
        link.nack(get(link).tag)
    assert marks(broker.peek(QUEUE)) == [(True, 0, 12)]


def test_on_rabbitmq_reject_raises_both_counts_and_the_fourth_failure_passes_a_limit_of_three() -> None:
    broker = MemoryBroker("rabbitmq", ManualClock())
    broker.declare(QUEUE, limit=3, dead_letter="dlx")
    broker.send(QUEUE, b"1")
    link = broker.connect()
    seen = []
    for _ in range(4):
        held = get(link)
        seen.append(held.failed)
        link.reject(held.tag, requeue=True)
    assert seen == [0, 1, 2, 3]
    assert broker.depth(QUEUE) == 0
    (dead,) = broker.peek("dlx")
    assert dead.headers["x-first-death-reason"] == "delivery_limit"
    assert dead.headers["x-first-death-queue"] == QUEUE
    assert (dead.redelivered, dead.count) == (True, 4)  # the count travels into a quorum dead-letter queue


@pytest.mark.parametrize("personality", ["rabbitmq", "rabbitmq-classic"])
def test_on_rabbitmq_a_reject_without_dead_lettering_destroys(personality: str) -> None:
    broker = broker_of(personality, b"1", b"2")
    link = broker.connect()
    link.reject(get(link).tag)
    link.nack(get(link).tag, requeue=False)
    assert broker.everything() == []
    assert broker.destroyed == 2


def test_on_rabbitmq_a_lost_connection_counts_for_every_prefetched_message() -> None:
    broker = broker_of("rabbitmq", b"1", b"2", b"3")
    link = broker.connect()
    for _ in range(2):
        get(link)
    link.drop()
    assert marks(broker.peek(QUEUE)) == [(True, 1, 1), (True, 1, 1), (False, 0, 0)]


def test_on_rabbitmq_counts_survive_a_killed_broker() -> None:
    broker = broker_of("rabbitmq", b"1", b"2")
    link = broker.connect()
    link.nack(get(link).tag)
    get(link)
    broker.kill()
    broker.restart()
    assert marks(broker.peek(QUEUE)) == [(True, 1, 2), (False, 0, 0)]


def test_on_rabbitmq_amqp_released_is_uncounted_and_modified_failed_is_counted() -> None:
    broker = broker_of("rabbitmq", b"1")
    link = broker.connect("amqp")
    link.release(get(link).tag)
    link.modified(get(link).tag)
    assert marks(broker.peek(QUEUE)) == [(True, 0, 2)]
    link.modified(get(link).tag, failed=True)
    assert marks(broker.peek(QUEUE)) == [(True, 1, 3)]


def test_on_classic_queues_there_is_a_flag_and_no_count() -> None:
    broker = broker_of("rabbitmq-classic", b"1")
    link = broker.connect()
    link.reject(get(link).tag, requeue=True)
    get(link)
    link.drop()
    assert marks(broker.peek(QUEUE)) == [(True, 0, 0)]


def test_on_classic_queues_all_are_redelivered_after_a_kill_also_those_never_delivered() -> None:
    broker = broker_of("rabbitmq-classic", b"1", b"2")
    broker.kill()
    broker.restart()
    assert marks(broker.peek(QUEUE)) == [(True, 0, 0), (True, 0, 0)]


def test_on_rabbitmq_an_old_tag_on_a_new_channel_settles_another_message() -> None:
    broker = broker_of("rabbitmq", b"mine", b"other")
    old = broker.connect()
    tag = get(old).tag
    old.drop()
    taken = broker.connect()
    assert get(taken).message.body == b"mine"
    new = broker.connect()
    assert get(new).message.body == b"other"
    new.accept(tag)  # meant for `mine`
    taken.drop()
    assert bodies(broker) == [b"mine"]


def test_on_rabbitmq_a_second_ack_closes_the_channel_and_requeues_what_it_had() -> None:
    broker = broker_of("rabbitmq", b"1", b"2")
    heard: list[BaseException] = []
    link = broker.connect(closed=heard.append)
    first = get(link)
    get(link)
    link.accept(first.tag)
    link.accept(first.tag)
    assert not link.is_open
    assert len(heard) == 1
    assert marks(broker.peek(QUEUE)) == [(True, 1, 1)]


def test_on_rabbitmq_a_multiple_ack_takes_all_that_came_before() -> None:
    broker = broker_of("rabbitmq", b"1", b"2", b"3", b"4")
    link = broker.connect()
    tags = [get(link).tag for _ in range(4)]
    link.accept(tags[2], multiple=True)
    link.drop()
    assert bodies(broker) == [b"4"]


def test_on_rabbitmq_a_young_quorum_queue_comes_back_empty_when_that_is_asked_for() -> None:
    broker = broker_of("rabbitmq", b"1")
    advance(broker, 5.0)
    broker.declare("young")
    broker.send("young", b"2")
    broker.kill(young=2.0)
    broker.restart()
    assert (broker.depth(QUEUE), broker.depth("young")) == (1, 0)


def test_on_rabbitmq_a_copy_comes_down_the_ladder_with_the_marks_of_the_retry_queue() -> None:
    broker = broker_of("rabbitmq")
    target = broker.declare(QUEUE)
    assert broker.store(target, b"x", {}, Properties(), after=5.0) == ""  # the rung of four seconds
    advance(broker, 3.999)
    assert broker.depth(QUEUE) == 0
    advance(broker, 0.001)
    (copy,) = broker.peek(QUEUE)
    assert copy.headers["x-first-death-reason"] == "expired"
    assert copy.headers["x-first-death-queue"] != QUEUE
    assert "cannot delay" in broker.store(target, b"x", {}, Properties(), after=0.5)


# -- ActiveMQ Classic ------------------------------------------------------------------------------


def test_on_activemq_a_nack_dead_letters_a_persistent_message_with_its_original_destination() -> None:
    broker = broker_of("activemq", b"1")
    link = broker.connect()
    link.nack(get(link).tag)
    (dead,) = broker.peek("ActiveMQ.DLQ")
    assert dead.headers["original-destination"] == "/queue/orders"
    assert dead.headers["originalExpiration"] == "0"
    assert "dlqDeliveryFailureCause" not in dead.headers
    assert not dead.redelivered


def test_on_activemq_a_nack_destroys_a_message_that_is_not_persistent() -> None:
    broker = broker_of("activemq", b"1", durable=False)
    link = broker.connect()
    link.nack(get(link).tag)
    assert broker.everything() == []
    assert broker.destroyed == 1


def test_on_activemq_a_nack_of_a_dead_letter_destroys_it() -> None:
    broker = broker_of("activemq")
    broker.send("ActiveMQ.DLQ", b"1")
    link = broker.connect()
    link.nack(get(link, "ActiveMQ.DLQ").tag)
    assert broker.everything() == []


@pytest.mark.parametrize("way", ["drop", "close"])
def test_on_activemq_a_lost_connection_flags_every_prefetched_message_and_counts_nothing(way: str) -> None:
    broker = broker_of("activemq", b"1", b"2", b"3")
    link = broker.connect()
    get(link), get(link)
    link.drop() if way == "drop" else link.close()
    assert marks(broker.peek(QUEUE)) == [(True, 0, 0), (True, 0, 0), (False, 0, 0)]


def test_on_activemq_the_flag_is_gone_after_a_kill() -> None:
    broker = broker_of("activemq", b"1", b"2")
    link = broker.connect()
    get(link)
    link.drop()
    get(broker.connect())
    broker.kill()
    broker.restart()
    assert marks(broker.peek(QUEUE)) == [(False, 0, 0), (False, 0, 0)]


def test_on_activemq_a_released_message_comes_back_on_the_same_link_only() -> None:
    broker = broker_of("activemq", b"1")
    link = broker.connect("amqp")
    link.release(get(link).tag)
    assert broker.connect().get(QUEUE) is None
    assert get(link).message.body == b"1"


def test_on_activemq_a_stale_ack_hits_nothing_and_the_connection_stays() -> None:
    broker = broker_of("activemq", b"1", b"2")
    old = broker.connect()
    tag = get(old).tag
    old.drop()
    new = broker.connect()
    get(new), get(new)
    new.accept(tag)
    assert new.is_open
    assert new.error
    new.drop()
    assert bodies(broker) == [b"1", b"2"]


def test_on_activemq_a_delay_is_up_to_half_a_second_late_never_early_and_leaves_its_job_id() -> None:
    broker = broker_of("activemq")
    target = broker.declare(QUEUE)
    advance(broker, 10.2)
    assert broker.store(target, b"x", {}, Properties(), after=2.0) == ""
    advance(broker, 2.29)
    assert broker.depth(QUEUE) == 0
    advance(broker, 0.01)
    (copy,) = broker.peek(QUEUE)
    assert "scheduledJobId" in copy.headers
    assert broker.store(target, b"y", copy.headers, Properties(), after=2.0) == ""
    assert bodies(broker) == [b"x", b"y"]  # a copied job id makes it forget the delay


def test_on_activemq_an_expired_message_is_dead_lettered_with_its_cause() -> None:
    broker = broker_of("activemq")
    due_us = round((1_767_225_600 + 5) * 1e6)
    broker.send(QUEUE, b"1", expires_at_us=due_us)
    advance(broker, 4.9)
    assert broker.depth(QUEUE) == 1
    advance(broker, 0.2)
    assert broker.depth(QUEUE) == 0
    (dead,) = broker.peek("ActiveMQ.DLQ")
    assert dead.headers["dlqDeliveryFailureCause"].endswith(f"Message Expired. Expiration:{due_us // 1000}")
    assert dead.headers["originalExpiration"] == str(due_us // 1000)
    assert dead.properties.expires_at_us is None


def test_a_message_that_expires_while_it_is_unsettled_may_still_be_accepted() -> None:
    broker = broker_of("activemq")
    broker.send(QUEUE, b"1", expires_at_us=round((1_767_225_600 + 5) * 1e6))
    broker.send(QUEUE, b"2", expires_at_us=round((1_767_225_600 + 5) * 1e6))
    link = broker.connect()
    first, _ = get(link), get(link)
    advance(broker, 10.0)
    link.accept(first.tag)
    link.drop()
    assert broker.depth(QUEUE) == 0
    assert bodies(broker, "ActiveMQ.DLQ") == [b"2"]


# -- Artemis ---------------------------------------------------------------------------------------


def test_on_artemis_stomp_a_nack_destroys() -> None:
    broker = broker_of("artemis", b"1")
    link = broker.connect("stomp")
    link.nack(get(link).tag)
    assert broker.everything() == []
    assert broker.destroyed == 1


def test_on_artemis_amqp_rejected_dead_letters_and_deletes_without_a_dead_letter_address() -> None:
    broker = broker_of("artemis", b"1")
    link = broker.connect()
    link.reject(get(link).tag)
    (dead,) = broker.peek("DLQ")
    assert (dead.headers["_AMQ_ORIG_ADDRESS"], dead.headers["_AMQ_ORIG_QUEUE"]) == (QUEUE, QUEUE)
    broker.declare("bare", dead_letter="")
    broker.send("bare", b"2")
    link.reject(get(link, "bare").tag)
    assert [place.message.body for place in broker.everything()] == [b"1"]


def test_on_artemis_only_modified_failed_is_counted_and_dead_lettered_at_the_limit() -> None:
    broker = MemoryBroker("artemis", ManualClock())
    broker.declare(QUEUE, limit=3)
    broker.send(QUEUE, b"1")
    link = broker.connect()
    for _ in range(6):
        link.release(get(link).tag)
        link.modified(get(link).tag)
    seen = []
    while (held := link.get(QUEUE)) is not None:
        seen.append(held.failed)
        link.modified(held.tag, failed=True)
    assert seen == [0, 1, 2]
    assert broker.depth("DLQ") == 1


def test_on_artemis_stomp_a_clean_disconnect_flags_only_the_first_in_flight() -> None:
    broker = broker_of("artemis", b"1", b"2", b"3", b"4")
    link = broker.connect("stomp")
    for _ in range(4):
        get(link)
    link.close()
    assert [message.redelivered for message in broker.peek(QUEUE)] == [True, False, False, False]


def test_on_artemis_amqp_a_clean_close_counts_nothing() -> None:
    broker = broker_of("artemis", b"1", b"2")
    link = broker.connect()
    get(link), get(link)
    link.close()
    assert [message.count for message in broker.peek(QUEUE)] == [0, 0]


@pytest.mark.parametrize(
    ("protocol", "every", "counts"),
    [
        ("amqp", True, [1, 1, 1]),
        ("amqp", False, [0, 0, 0]),
        ("stomp", True, [1, 1, 1]),
        ("stomp", False, [1, 0, 0]),
    ],
)
def test_on_artemis_a_cut_counts_all_prefetched_messages_or_not_as_the_coin_falls(
    protocol: str, every: bool, counts: list[int]
) -> None:
    faults = Faults()
    faults.drop_counts = every
    broker = broker_of("artemis", b"1", b"2", b"3", faults=faults)
    link = broker.connect(protocol)
    for _ in range(3):
        get(link)
    faults.cut()
    assert [message.count for message in broker.peek(QUEUE)] == counts


def test_on_artemis_the_coin_falls_the_same_way_for_the_same_seed() -> None:
    one, other = Faults(7), Faults(7)
    tosses = [one.toss(0.35) for _ in range(50)]
    assert tosses == [other.toss(0.35) for _ in range(50)]
    assert set(tosses) == {True, False}


def test_on_artemis_a_kill_forgets_all_counts_but_the_first() -> None:
    broker = broker_of("artemis", b"1")
    link = broker.connect()
    for _ in range(5):
        link.modified(get(link).tag, failed=True)
    broker.kill()
    broker.restart()
    assert [message.count for message in broker.peek(QUEUE)] == [1]


def test_on_artemis_a_stale_ack_closes_a_stomp_connection_and_is_ignored_over_amqp() -> None:
    broker = broker_of("artemis", b"1")
    old = broker.connect()
    tag = get(old).tag
    old.close()
    stomp, amqp = broker.connect("stomp"), broker.connect("amqp")
    stomp.accept(tag)
    amqp.accept(tag)
    assert (stomp.is_open, amqp.is_open) == (False, True)
    assert bodies(broker) == [b"1"]


def test_on_artemis_a_delay_is_exact_and_keeps_its_instant_over_a_restart() -> None:
    broker = broker_of("artemis")
    target = broker.declare(QUEUE)
    for name, after in ((b"due while down", 2.5), (b"due later", 12.0)):
        assert broker.store(target, name, {}, Properties(), after=after) == ""
    advance(broker, 2.0)
    broker.kill()
    advance(broker, 3.0)
    broker.restart()
    assert bodies(broker) == [b"due while down"]
    advance(broker, 6.99)
    assert broker.depth(QUEUE) == 1
    advance(broker, 0.01)
    assert bodies(broker) == [b"due while down", b"due later"]


def test_on_artemis_a_second_copy_with_the_same_duplicate_id_is_confirmed_and_dropped() -> None:
    broker = broker_of("artemis")
    for body in (b"1", b"2"):
        broker.send(QUEUE, body, {"_AMQ_DUPL_ID": "d"})
    broker.send("elsewhere", b"3", {"_AMQ_DUPL_ID": "d"})
    assert (bodies(broker), bodies(broker, "elsewhere")) == ([b"1"], [b"3"])
    assert broker.destroyed == 1


def test_on_artemis_an_expired_message_goes_to_the_expiry_queue() -> None:
    broker = broker_of("artemis")
    broker.send(QUEUE, b"1", expires_at_us=round((1_767_225_600 + 5) * 1e6))
    advance(broker, 6.0)
    assert broker.depth(QUEUE) == 0
    (dead,) = broker.peek("ExpiryQueue")
    assert dead.headers["_AMQ_ACTUAL_EXPIRY"] == "1767225605000"


# -- bad input -------------------------------------------------------------------------------------


def test_an_unknown_personality_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="rabbitmq-classic"):
        MemoryBroker("kafka")


def test_a_queue_that_is_not_there_is_reported() -> None:
    with pytest.raises(DestinationMissing):
        MemoryBroker("rabbitmq", ManualClock()).connect().get("nowhere")
