# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests frames and messages, both ways, without a broker.

The look of the frames was recorded on ActiveMQ 5.18 and 6.3.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from redeliver_mw.errors import NotCopyable
from redeliver_mw.message import Death, Delivery, Destination, Outgoing, Properties
from redeliver_stomp.capabilities import address, client_id, destination_of, private_queue, problem
from redeliver_stomp.frames import NotAFrame, RawFrame, Splitter, encode
from redeliver_stomp.messages import READER, NotSendable, delivery_of, send_frame, was_not_scheduled
from redeliver_stomp.unackable import doubtful, hit_nothing, odd
from tests.adapters.stomp.plain import unescaped

SOURCE, NOTHING = Destination("orders"), Properties()
# As 5.18.3 sent it.
RECORDED = (
    b"MESSAGE\nexpires:0\ndestination:/queue/a.x\nack:ID\\cvm-45943-1795264170785-6\\c1\nk\\cey:v\\cw\nsubscription:1\n"
    b"priority:4\nbrowser:end\nx:a\\cb\nmessage-id:ID\\cvm-45943-1795264170785-5\\c1\\c-1\\c1\\c1\ncontent-type:x/y\n"
    b"id:foo\npersistent:true\ntimestamp:1795264249704\n\nhello\x00\n"
)


def frame_of(raw: bytes) -> RawFrame:
    (frame,) = Splitter().feed(raw)
    return frame


def message(headers: Mapping[str, str], body: bytes = b"", *, sized: bool = True) -> RawFrame:
    given = dict(headers) | ({"content-length": str(len(body))} if sized else {})
    return frame_of(encode("MESSAGE", given.items(), body))


def lines_of(sent: bytes) -> dict[str, str]:
    head = sent.partition(b"\n\n")[0].decode().split("\n")[1:]
    assert len({line.partition(":")[0] for line in head}) == len(head), "a header stands there twice"
    return {name: unescaped(value) for name, _, value in (line.partition(":") for line in head)}


def outgoing(
    headers: Mapping[str, object] | None = None,
    body: bytes = b"x",
    *,
    origin: Delivery | None = None,
    properties: Properties = NOTHING,
    target: Destination = SOURCE,
) -> Outgoing:
    return Outgoing(target, body, dict(headers or {}), properties, origin=origin)


# -- frames ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("crumb", [1, 2, 3, 7, 50, 10_000])
def test_frames_come_out_the_same_however_the_bytes_are_cut(crumb: int) -> None:
    stream = RECORDED + b"\n\n" + encode("MESSAGE", [("content-length", "4")], b"\0\n\n\0") + b"\n" + RECORDED
    splitter, frames = Splitter(), []
    for at in range(0, len(stream), crumb):
        frames += splitter.feed(stream[at : at + crumb])
    assert [frame.body for frame in frames] == [b"hello", b"\0\n\n\0", b"hello"]
    assert [frame.sized for frame in frames] == [False, True, False]


def test_random_bodies_and_cuts() -> None:
    rng = random.Random(7)
    bodies = [bytes(rng.choice(b"\0\n\rab:") for _ in range(rng.randrange(40))) for _ in range(300)]
    frames = (encode("MESSAGE", [("a", "b"), ("content-length", str(len(body)))], body) for body in bodies)
    stream = b"".join(frame + b"\n" * rng.randrange(3) for frame in frames)
    cuts = sorted(rng.randrange(len(stream)) for _ in range(400))
    splitter = Splitter()
    found = [f for a, b in itertools.pairwise([0, *cuts, len(stream)]) for f in splitter.feed(stream[a:b])]
    assert [frame.body for frame in found] == bodies


def test_heart_beats_are_no_frames() -> None:
    splitter = Splitter()
    assert [splitter.feed(b"\n"), splitter.feed(b"\r\n\n"), splitter.feed(b"\n")] == [[], [], []]
    assert splitter.feed(b"\n" + RECORDED)[0].body == b"hello"


def test_a_frame_that_is_longer_than_it_says_ends_the_connection() -> None:
    with pytest.raises(NotAFrame):
        Splitter().feed(b"MESSAGE\ncontent-length:2\n\nabc\0")


@pytest.mark.parametrize("value", ["", " a ", "a:b", "a\nb\r\n", "\\", "\\n", "\\c\\\\", "grüße 🐇", "\t"])
def test_a_value_comes_back_as_it_went(value: str) -> None:
    assert message({"h": value}).headers["h"] == value


def test_names_are_kept_as_they_came_and_the_first_of_a_name_counts() -> None:
    frame = frame_of(b"MESSAGE\nk\\cey:v\\cw\nx:1\nx:2\n\n\0")
    assert frame.headers == {"k\\cey": "v:w", "x": "1"}


# -- what is read ------------------------------------------------------------------------------------------


def test_a_recorded_message_is_read_in_full() -> None:
    delivery = delivery_of(SOURCE, 3, frame_of(RECORDED))
    assert (delivery.body, delivery.redelivered, delivery.generation) == (b"hello", False, 3)
    assert delivery.tag == b"ID\\cvm-45943-1795264170785-6\\c1"
    assert delivery.headers == {"k\\cey": "v:w", "browser": "end", "x": "a:b", "id": "foo"}
    assert delivery.properties == Properties(
        message_id="ID:vm-45943-1795264170785-5:1:-1:1:1",
        content_type="x/y",
        priority=4,
        timestamp_us=1795264249704000,
        persistent=True,
    )


def test_redelivered_and_our_own_headers_are_seen_without_reading_all() -> None:
    frame = message({"redelivered": "true", "redeliver_lineage": "l"})
    assert delivery_of(SOURCE, 1, frame).redelivered
    assert READER.marked(frame)
    assert not READER.marked(message({"x": "redeliver_lineage"}))


def test_an_expiry_is_microseconds_and_nought_is_none() -> None:
    assert READER.properties(message({"expires": "1700000000123"})).expires_at_us == 1_700_000_000_123_000
    assert READER.properties(message({"expires": "0"})).expires_at_us is None
    assert READER.properties(message({"expires": "soon", "priority": "high"})) == Properties(persistent=False)


@pytest.mark.parametrize(
    ("headers", "death"),
    [
        ({"original-destination": "/topic/VirtualTopic.T"}, None),
        ({"original-destination": "/queue/a1", "originalExpiration": "0"}, Death(Destination("a1"))),
        (
            {
                "original-destination": "/queue/a",
                "originalExpiration": "5",
                "dlqDeliveryFailureCause": "java.lang.Throwable: Message Expired. Expiration:5",
            },
            Death(Destination("a"), "expired"),
        ),
        (
            {"original-destination": "/topic/t", "dlqDeliveryFailureCause": "Delivery[5] exceeds"},
            Death(Destination("t", "topic"), "Delivery[5] exceeds"),
        ),
        ({"original-destination": "nowhere", "originalExpiration": "0"}, None),
        ({}, None),
    ],
)
def test_a_message_that_the_broker_dead_lettered_is_distinguished_from_one_through_a_virtual_topic(
    headers: Mapping[str, str], death: Death | None
) -> None:
    assert READER.death(message(headers)) == death


def test_the_topic_that_a_message_came_through_is_known() -> None:
    virtual = {"destination": "/queue/Consumer.A.VirtualTopic.T", "original-destination": "/topic/VirtualTopic.T"}
    assert READER.route(message(virtual)) == {"topic": "VirtualTopic.T"}
    assert READER.route(message({"destination": "/topic/prices.eu"})) == {"topic": "prices.eu"}
    assert READER.route(message({"destination": "/queue/orders"})) == {}


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"MESSAGE\na:b:c\\cd\n\nx\0", "colon"),  # an AMQP property named a:b, as it was seen to arrive
        (b"MESSAGE\nJMS_AMQP_ORIGINAL_ENCODING:7\n\n\0", "map"),
        (b"MESSAGE\nJMS_AMQP_ORIGINAL_ENCODING:8\ncontent-length:0\n\n\0", "list"),
        (b"MESSAGE\nbig:" + b"x" * 60_000 + b"\n\nx\0", "60004 bytes"),
        (b"MESSAGE\n" + b"".join(b"h%d:x\n" % n for n in range(980)) + b"\nx\0", "headers"),
        (b"MESSAGE\nno colon at all\n\nx\0", "line break"),
    ],
    ids=["colon", "map", "list", "value", "number", "line"],
)
def test_what_cannot_be_copied_exactly_says_why(raw: bytes, why: str) -> None:
    with pytest.raises(NotCopyable, match=why):
        READER.headers_bytes(frame_of(raw))


def test_an_amqp_body_that_did_arrive_can_be_copied() -> None:
    assert READER.headers_bytes(message({"JMS_AMQP_ORIGINAL_ENCODING": "7"}, b"x")) > 0


# -- what is sent ------------------------------------------------------------------------------------------


def test_a_copy_is_persistent_and_carries_the_standard_properties() -> None:
    properties = Properties(
        correlation_id="c:1",
        content_type="a/b",
        content_encoding="utf-8",
        reply_to="/queue/back",
        type="t",
        priority=4,
        timestamp_us=1_700_000_000_123_999,
        expires_at_us=1_900_000_000_456_999,
        user_id="bob",
        message_id="m",
    )
    sent = send_frame(outgoing({"h": "v:w", "n": 3, "f": 1.5, "yes": True, "b": b"by"}, properties=properties), "r1")
    assert lines_of(sent) == {
        "destination": "/queue/orders",
        "receipt": "r1",
        "persistent": "true",
        "content-length": "1",
        "correlation-id": "c:1",
        "content-type": "a/b",
        "content-encoding": "utf-8",
        "reply-to": "/queue/back",
        "type": "t",
        "priority": "4",
        "timestamp": "1700000000123",
        "h": "v:w",
        "n": "3",
        "f": "1.5",
        "yes": "true",
        "b": "by",
        "expires": "1900000000456",
    }
    assert sent.endswith(b"\n\nx\0")


def test_a_strangers_headers_cannot_take_the_place_of_the_frames_own() -> None:
    spoof = {
        "destination": "/queue/elsewhere",
        "receipt": "x",
        "transaction": "t",
        "persistent": "false",
        "expires": "1",
        "content-length": "9",
        "message-id": "m",
        "ack": "a",
        "redelivered": "true",
        "scheduledJobId": "j",
        "AMQ_SCHEDULED_DELAY": "0",
        "JMSXDeliveryCount": "5",
        "_AMQ_DUPL_ID": "d",
        "subscription": "s",
        "correlation-id": "c",
        "transformation": "jms-json",
    }
    lines = lines_of(send_frame(outgoing(spoof), "r1", after=2.0, transaction="tx"))
    assert lines == {
        "destination": "/queue/orders",
        "receipt": "r1",
        "persistent": "true",
        "transaction": "tx",
        "AMQ_SCHEDULED_DELAY": "2000",
        "content-length": "1",
    }


@pytest.mark.parametrize(("after", "told"), [(0.0004, "1"), (1.0, "1000"), (1.9996, "2000"), (3600.0, "3600000")])
def test_a_delay_is_a_whole_number_of_milliseconds_from_one_on(after: float, told: str) -> None:
    assert lines_of(send_frame(outgoing(), "r", after=after))["AMQ_SCHEDULED_DELAY"] == told


@pytest.mark.parametrize(
    ("sized", "body", "told"),
    [(True, b"x", True), (False, b"x", False), (False, b"", False), (False, b"a\0b", True)],
    ids=["bytes", "text", "no text", "text with a NUL"],
)
def test_a_text_goes_out_as_a_text_and_bytes_as_bytes(sized: bool, body: bytes, told: bool) -> None:
    origin = delivery_of(SOURCE, 1, message({}, b"x", sized=sized))
    assert ("content-length" in lines_of(send_frame(outgoing(body=body, origin=origin), "r"))) is told


def test_a_text_that_came_with_its_length_goes_out_as_one() -> None:
    assert lines_of(send_frame(outgoing({"amq-msg-type": "text"}, b"a\0b"), "r"))["amq-msg-type"] == "text"


@pytest.mark.parametrize(
    "headers",
    [
        {"a:b": "c"},
        {"a\nb": "c"},
        {"": "c"},
        {"h": "a\0b"},
        {"h": "x" * 10_300},
        {"h": ":" * 6_000},
        {"h": None},
        {"h": ["l"]},
        {"h": b"\xff"},
        {"amq-msg-type": "map"},
        {f"h{n}": "x" for n in range(1000)},
    ],
    ids=["colon", "line", "empty", "nul", "long", "long once escaped", "none", "list", "no text", "type", "many"],
)
def test_what_the_broker_would_close_the_connection_for_is_not_written(headers: Mapping[str, object]) -> None:
    with pytest.raises(NotSendable):
        send_frame(outgoing(headers), "r")


def test_every_value_that_we_may_write_fits_even_when_all_of_it_is_escaped() -> None:
    assert len(send_frame(outgoing({"redeliver_error_fingerprint_x": ":" * 5_000}), "r")) < 10_300


# -- names -------------------------------------------------------------------------------------------------


def test_a_copy_for_one_subscription_goes_to_its_private_queue() -> None:
    audit = Destination("prices", "topic", "audit")
    assert address(audit) == "/queue/redeliver.retry.prices.audit"
    assert address(Destination("prices", "topic")) == "/topic/prices"
    assert (private_queue(audit), client_id(audit)) == ("redeliver.retry.prices.audit", "redeliver.prices.audit")
    assert private_queue(Destination("prices.>", "topic", "all")) == "redeliver.retry.prices.%3E.all"


@pytest.mark.parametrize("name", ["a.*", ">", "orders.>", "a,b", " ", "a\nb", "a?consumer.prefetchSize=1"])
def test_a_name_that_is_no_queue_is_refused(name: str) -> None:
    assert problem(Destination(name))


@pytest.mark.parametrize("name", ["orders", "Consumer.A.VirtualTopic.T", "a b", "a*b", "grüße", "DLQ.orders$"])
def test_a_name_that_is_one_is_taken(name: str) -> None:
    assert problem(Destination(name)) == ""


def test_addresses_are_read_back() -> None:
    assert destination_of("/queue/a/b") == Destination("a/b")
    assert destination_of("/topic/t") == Destination("t", "topic")
    assert destination_of("/queue/") is None
    assert destination_of("orders") is None


# -- what is watched ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [rb"ID\cm1", rb"ID\cAMQP_UUID\cc24da66dd-29ae", rb"ID\cAMQP_ULONG\c3", b""])
def test_ids_of_amqp_producers_are_odd(raw: bytes) -> None:
    assert odd(raw)


@pytest.mark.parametrize(
    "raw", [rb"ID\cvm-45943-1795264170785-5\c1\c-1\c1\c1", rb"ID\cvm-45943-1795264170785-7\c1\c0\c0\c6"]
)
def test_ids_of_the_broker_are_not(raw: bytes) -> None:
    assert not odd(raw)
    assert not doubtful(frame_of(b"MESSAGE\nmessage-id:" + raw + b"\n\n\0"))
    assert doubtful(frame_of(b"MESSAGE\nJMS_AMQP_NATIVE:true\nmessage-id:" + raw + b"\n\n\0"))


def test_an_ack_that_was_given_before_is_no_sign_of_anything() -> None:
    assert not hit_nothing("Unexpected ACK received for message-id [null]")
    assert hit_nothing("Unexpected ACK received for message-id [ID:h-1-2:1:1:1:1]")


def test_a_delay_that_nobody_waited_for_is_seen() -> None:
    assert was_not_scheduled(message({"AMQ_SCHEDULED_DELAY": "2000"}))
    assert not was_not_scheduled(message({"scheduledJobId": "ID:1", "x": "AMQ_SCHEDULED_DELAY"}))
