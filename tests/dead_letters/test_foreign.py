# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what is read from the dead letters of other frameworks, and what a replay takes along."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from redeliver_mw.dead_letters import letter_of, pack, unpack
from redeliver_mw.dead_letters.frameworks import READERS, ForeignMessage, recognise, sent_back
from redeliver_mw.dead_letters.frameworks.foreign import BODY_BYTES, MESSAGE_BYTES, NAME_BYTES
from redeliver_mw.dead_letters.frameworks.stacks import PrintedStack
from redeliver_mw.failure import MAX_FRAMES, fingerprint
from redeliver_mw.message import Death, Delivery, Destination
from redeliver_mw.testing import make_delivery
from redeliver_pika.messages import READER
from tests.dead_letters.foreign.files import RECORDED, WRITTEN, letter
from tests.dead_letters.test_packed import capabilities
from tests.dead_letters.test_replay import DeadLettered

PIKA = capabilities("pika")
ORDERS = Destination("shop.orders")
BROKERS = ("x-death", "x-first-death", "x-last-death", "x-acquired", "x-delivery")
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()


def in_queue(
    queue: str, headers: dict[str, Any], body: bytes = b"", death: Death | None = None, **more: Any
) -> Delivery:
    delivery = make_delivery(body, headers, destination=queue, **more)
    delivery.reader = DeadLettered(delivery, death) if death else delivery.reader
    return delivery


# -- letters of real clients ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "framework", "task", "failures"),
    [
        ("celery", "Celery", "shop.tasks.charge", 1),
        ("celery-protocol-1", "Celery", "shop.tasks.charge", 1),
        ("dramatiq", "Dramatiq", "charge", 2),
        ("taskiq", "taskiq", "shop.tasks:charge", 0),
        ("kombu", "", "", 0),  # these three write nothing that names them
        ("faststream", "", "", 0),
        ("aio-pika", "", "", 0),
    ],
)
def test_a_letter_of_a_real_client_is_named_and_its_source_is_the_brokers(
    name: str, framework: str, task: str, failures: int
) -> None:
    found = letter_of(letter(name).delivery, PIKA)
    assert (found.framework, found.task, found.failures) == (framework, task, failures)
    assert (found.evidence, found.source, found.reason, found.problem) == ("broker", ORDERS, "rejected", "")


def test_every_letter_in_the_folder_is_tested() -> None:
    from tests.dead_letters.foreign.files import FOLDER

    assert {file.stem for file in FOLDER.glob("*.json")} == {*RECORDED, *WRITTEN}


def test_the_id_of_a_task_is_the_id_of_its_letter() -> None:
    celery, dramatiq = letter("celery"), letter("dramatiq")
    assert letter_of(celery.delivery, PIKA).id == celery.delivery.headers["id"]
    assert letter_of(dramatiq.delivery, PIKA).id == json.loads(dramatiq.body)["message_id"]


def test_a_letter_of_dramatiq_has_the_error_and_the_frames_of_its_traceback() -> None:
    delivery = letter("dramatiq").delivery
    found, read = letter_of(delivery, PIKA), recognise(delivery)
    assert (found.error_type, found.error_message) == ("LookupError", "no such order: 7")
    assert read is not None
    assert read.stack is not None
    assert read.stack.frames == (
        "dramatiq.worker:process_message",
        "dramatiq.actor:__call__",
        "shop_tasks:charge",
    )
    assert found.fingerprint == fingerprint("LookupError", list(read.stack.frames))


# -- letters that frameworks put aside themselves ---------------------------------------------------


def test_a_letter_of_masstransit() -> None:
    found = letter_of(letter("masstransit").delivery, PIKA)
    assert (found.framework, found.evidence, found.reason) == ("MassTransit", "framework", "fault")
    assert (found.source, found.problem, found.failures) == (ORDERS, "", 4)
    assert (found.error_type, found.error_message) == ("System.InvalidOperationException", "no such order: 7")
    assert (found.task, found.since) == ("Shop.Contracts.OrderPlaced", NOON + 5.765432)
    skipped = letter_of(letter("masstransit-skipped").delivery, PIKA)
    assert (skipped.source, skipped.reason, skipped.failures) == (ORDERS, "dead-letter", 0)
    assert (skipped.task, skipped.id) == (found.task, found.id)


@pytest.mark.parametrize(
    ("address", "queue"),
    [
        ("rabbitmq://broker/vhost/orders", "orders"),
        ("rabbitmq://broker/orders?durable=true&bind=a/b", "orders"),
        ("queue:orders", "orders"),
        ("rabbitmq://broker/vhost/shop%2Forders", "shop/orders"),
        ("", "named"),
        ("rabbitmq://broker/", "named"),
    ],
)
def test_the_queue_of_masstransit_is_the_end_of_its_address_else_the_error_queues_name(
    address: str, queue: str
) -> None:
    headers = {"MT-Reason": "fault", "MT-Fault-InputAddress": address}
    assert letter_of(in_queue("named_error", headers), PIKA).source == Destination(queue)


def test_a_letter_of_nservicebus() -> None:
    found = letter_of(letter("nservicebus").delivery, PIKA)
    assert (found.framework, found.evidence, found.source) == ("NServiceBus", "framework", ORDERS)
    assert (found.error_type, found.error_message) == ("System.InvalidOperationException", "no such order: 7")
    assert (found.task, found.since) == ("Shop.Contracts.PlaceOrder", NOON + 5.765432)


def test_a_letter_of_spring_has_the_type_of_the_cause_and_not_of_the_wrapper() -> None:
    found = letter_of(letter("spring").delivery, PIKA)
    assert (found.framework, found.evidence, found.source) == ("Spring AMQP", "framework", ORDERS)
    assert (found.error_type, found.error_message) == ("java.lang.IllegalStateException", "no such order: 7")
    assert found.task == "com.shop.Order"


def test_springs_queue_is_known_from_the_default_exchange_or_from_a_dlq_and_otherwise_not() -> None:
    assert letter_of(letter("spring-cloud-stream").delivery, PIKA).source == Destination("orders.shop")
    unknown = letter_of(letter("spring-exchange").delivery, PIKA)
    assert (unknown.evidence, unknown.source) == ("framework", None)
    assert "the exchange 'shop' and the routing key 'order.placed'" in unknown.problem


def test_a_letter_of_camel_is_named_and_has_no_source() -> None:
    found = letter_of(letter("camel").delivery, PIKA)
    assert (found.framework, found.evidence, found.source) == ("Camel", "framework", None)
    assert found.problem == "Camel does not write the queue that it was consumed from"
    assert (found.error_type, found.error_message) == ("java.lang.IllegalStateException", "no such order: 7")
    assert (found.task, found.failures) == ("orders", 4)


def test_the_same_failure_has_the_same_fingerprint_on_another_machine_and_after_an_edit() -> None:
    told = json.loads(letter("masstransit").body)
    headers = dict(letter("masstransit").delivery.headers)
    one = letter_of(in_queue("shop.orders_error", headers, json.dumps(told).encode()), PIKA)
    stack = headers["MT-Fault-StackTrace"].replace("/src/Shop/", "C:\\build\\9\\").replace("line 42", "line 57")
    moved = headers | {"MT-Fault-StackTrace": stack, "MT-Fault-Message": "no such order: 8"}
    two = letter_of(in_queue("shop.orders_error", moved, json.dumps(told).encode()), PIKA)
    other = letter_of(in_queue("shop.orders_error", headers | {"MT-Fault-ExceptionType": "System.Exception"}), PIKA)
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert len(one.fingerprint) == 16


# -- what decides -----------------------------------------------------------------------------------


def test_a_healthy_message_of_a_framework_is_named_and_is_no_dead_letter() -> None:
    for headers, framework in (
        ({"task": "t", "id": "1", "lang": "py"}, "Celery"),
        ({"NServiceBus.EnclosedMessageTypes": "T"}, "NServiceBus"),
        ({"CamelRedelivered": True, "CamelRedeliveryCounter": 1}, "Camel"),
    ):
        found = letter_of(in_queue("orders", headers), PIKA)
        assert (found.framework, found.evidence, found.source) == (framework, "", None)
        assert found.problem == "no dead letter: no original destination"


def test_our_own_reason_counts_for_more_than_a_frameworks_marks() -> None:
    ours = {
        "redeliver_reason": "exhausted",
        "redeliver_original_destination": "ours",
        "redeliver_error_type": "KeyError",
    }
    found = letter_of(in_queue("dead", letter("nservicebus").delivery.headers | ours), PIKA)
    assert (found.evidence, found.source, found.framework) == ("ours", Destination("ours"), "")
    assert found.error_type == "KeyError"


def test_a_queue_that_rejected_it_last_counts_for_more_than_the_frameworks_marks() -> None:
    death = Death(Destination("error"), "rejected")
    delivery = in_queue("dlq.error", dict(letter("nservicebus").delivery.headers), death=death)
    found = letter_of(delivery, PIKA)
    assert (found.evidence, found.source, found.framework) == ("broker", Destination("error"), "NServiceBus")
    out = sent_back(delivery, Destination("error"), PIKA, replay_id="r", lineage="l")
    assert out.headers["NServiceBus.FailedQ"] == "shop.orders"  # the error queue needs it


@pytest.mark.parametrize("queue", ["nsb.v2.delay-level-03", "nsb.delay-level-27", "retry.wait"])
def test_a_delay_before_the_last_attempt_does_not_hide_the_frameworks_marks(queue: str) -> None:
    death = Death(Destination(queue), "expired")
    found = letter_of(in_queue("error", dict(letter("nservicebus").delivery.headers), death=death), PIKA)
    assert (found.evidence, found.source) == ("framework", ORDERS)


@pytest.mark.parametrize(
    ("queue", "headers"),
    [
        ("celery_delayed_7", {"task": "t", "id": "1", "lang": "py"}),
        ("nsb.v2.delay-level-03", {"NServiceBus.EnclosedMessageTypes": "T"}),
        ("nsb.delay-level-27", {"NServiceBus.EnclosedMessageTypes": "T"}),
    ],
)
def test_a_message_that_a_framework_merely_delayed_is_no_dead_letter(queue: str, headers: dict[str, Any]) -> None:
    death = Death(Destination(queue), "expired")
    found = letter_of(in_queue("celery", headers, death=death), PIKA)
    assert (found.evidence, found.source) == ("", None)
    rejected = letter_of(in_queue("celery", headers, death=Death(Destination(queue), "rejected")), PIKA)
    assert rejected.evidence == "broker"
    other = letter_of(in_queue("x", {}, death=Death(Destination("celery_delayed_seven"), "expired")), PIKA)
    assert other.evidence == "broker"


@pytest.mark.parametrize(
    ("queue", "headers", "body"),
    [
        ("x_error", {"MT-Fault-Message": "password=hunter2"}, b""),
        ("error", {"NServiceBus.FailedQ": "a", "NServiceBus.ExceptionInfo.Message": "password=hunter2"}, b""),
        ("x", {"x-exception-message": "password=hunter2", "x-original-exchange": ""}, b""),
        ("x", {"CamelExceptionCaught": "a.B: password=hunter2"}, b""),
        ("a.XQ", {}, letter("dramatiq").body.replace(b"no such order: 7", b"password=hunter2")),
    ],
)
def test_the_message_of_an_error_is_redacted(queue: str, headers: dict[str, Any], body: bytes) -> None:
    assert letter_of(in_queue(queue, headers, body), PIKA).error_message == "password=***"


def test_a_letter_of_dramatiq_without_marks_goes_to_the_queue_that_its_own_is_named_after() -> None:
    delivery = in_queue("shop.orders.XQ", {}, letter("dramatiq").body)  # as after a move by hand
    found = letter_of(delivery, PIKA)
    assert (found.evidence, found.source, found.failures) == ("framework", ORDERS, 2)
    elsewhere = letter_of(in_queue("shop.orders", {}, letter("dramatiq").body), PIKA)
    assert (elsewhere.evidence, elsewhere.framework) == ("", "Dramatiq")


# -- what a replay takes along ----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*RECORDED, *WRITTEN])
def test_a_replay_keeps_body_properties_and_all_headers_but_the_brokers(name: str) -> None:
    delivery = letter(name).delivery
    out = sent_back(delivery, ORDERS, PIKA, replay_id="r", lineage="l")
    gone = {header for header in delivery.headers if header not in out.headers}
    brokers = {h for h in gone if h.startswith(BROKERS)}
    assert out.body == delivery.body
    assert {h: v for h, v in out.headers.items() if h in delivery.headers} == {
        h: v for h, v in delivery.headers.items() if h not in gone
    }
    assert {h for h in out.headers if h not in delivery.headers} == {
        h for h in out.headers if h.startswith("redeliver_")
    }
    assert out.properties.content_type == delivery.properties.content_type
    assert gone - brokers == (
        {h for h in delivery.headers if h.startswith(("NServiceBus.Exc", "NServiceBus.Fail", "NServiceBus.TimeOf"))}
        if name == "nservicebus"
        else set()
    )


def test_a_packed_letter_has_the_copy_that_the_letter_in_its_queue_has() -> None:
    delivery = letter("nservicebus").delivery
    again = unpack(pack(delivery), READER)
    one, two = (sent_back(d, ORDERS, PIKA, replay_id="r", lineage="l") for d in (delivery, again))
    assert (one.headers, one.body, one.properties) == (two.headers, two.body, two.properties)
    assert not any("ExceptionInfo" in name for name in two.headers)


# -- stacks -----------------------------------------------------------------------------------------


def test_the_frames_of_python() -> None:
    text = """Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/kombu/utils/__init__.py", line 3, in retry_over_time
    return fun()
  File "C:\\shop\\tasks.py", line 12, in charge
    raise shop.errors.NoStock(
    ^^^^^^
shop.errors.NoStock: order 7
left: 0
"""
    stack = PrintedStack.parse(text)
    assert stack == PrintedStack("NoStock", "order 7", "", ("kombu.utils:retry_over_time", "tasks:charge"))


def test_the_frames_of_java_end_with_the_innermost_of_the_cause() -> None:
    stack = PrintedStack.parse(letter("spring").delivery.headers["x-exception-stacktrace"])
    assert stack is not None
    assert (stack.type.rpartition(".")[2], stack.cause_type) == (
        "ListenerExecutionFailedException",
        "java.lang.IllegalStateException",
    )
    assert stack.frames[0] == "java.lang.Thread.run"
    assert "^ IllegalStateException" in stack.frames
    assert stack.frames[-2:] == ("com.shop.OrderListener.lambda$take$#", "com.shop.Stock.take")


def test_the_frames_of_dotnet_name_the_method_of_a_state_machine_in_any_language() -> None:
    text = "System.Exception: x\n   at A.B.<Handle>d__3.MoveNext() in /s.cs:line 1\n   bei A.C`1.Send(T a, U b)\n"
    stack = PrintedStack.parse(text)
    assert stack == PrintedStack("System.Exception", "x", "", ("A.C`#.Send", "A.B.Handle"))


def test_a_deep_stack_keeps_its_innermost_frames_and_a_recursion_counts_once() -> None:
    deep = "E: x\n" + "".join(f"\tat a.B.m{chr(97 + n // 26)}{chr(97 + n % 26)}(B.java:1)\n" for n in range(100))
    stack = PrintedStack.parse(deep)
    assert stack is not None
    assert len(stack.frames) == MAX_FRAMES
    assert stack.frames[-1] == "a.B.maa"
    again = PrintedStack.parse("E: x\n" + "\tat a.B.m(B.java:1)\n" * 500)
    assert again is not None
    assert again.frames == ("a.B.m",)


# -- hostile input ----------------------------------------------------------------------------------

HEADERS = sorted({name for each in (*RECORDED, *WRITTEN) for name in letter(each).delivery.headers} | {"_retries"})
BODIES = [letter(each).body for each in (*RECORDED, *WRITTEN)]
LINES = st.sampled_from(
    ["   at A.B()", "\tat a.B.m(B.java:1)", '  File "a.py", line 1, in f', "Caused by: x.Y: z", "E: m", "   at (", "x"]
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.binary(max_size=80)
    | st.text(max_size=80)
    | st.datetimes()
    | st.lists(LINES, max_size=30).map("\n".join)
    | st.sampled_from(
        ["", "fault", "queue:", "a@b", "http://[", "\x00", "\ud800", "9" * 400, "password=hunter2", "%ff%00"]
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
FIELDS = ["actor_name", "queue_name", "message_id", "options", "args", "kwargs", "task", "id", "retries"]
FIELDS += ["task_name", "task_id", "labels", "messageType", "messageId", "traceback"]
WORDS = b'{"actor_name" "queue_name" "message_id" "task" "id" "args" "kwargs" "retries" '
bodies = (
    st.binary(max_size=200)
    | st.binary(max_size=20).map(lambda rest: WORDS + rest)  # no JSON, whatever follows
    | st.sampled_from(BODIES)
    | st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=15).map(lambda told: json.dumps(told).encode())
)
DEATHS = [None, *(Death(Destination(q), r) for q in ("a", "celery_delayed_1") for r in ("rejected", "expired", ""))]


@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), values, max_size=12),
    body=bodies,
    queue=st.sampled_from(["a", "shop.orders.XQ", "o_error", ".dlq", ".XQ", "_error"]),
    death=st.sampled_from(DEATHS),
    content_type=st.sampled_from([None, "application/vnd.masstransit+json", "application/json"]) | values,
)
@example({"NServiceBus.FailedQ": "\ud800"}, b"", "a", None, None)
@example({}, WORDS + b"[" * 100_000, "a", None, None)
@example({}, b'{"actor_name":1,"queue_name":2,"message_id":3,"options":{"retries":-1},"args":[]}', "a.XQ", None, None)
def test_no_message_of_another_program_raises_or_gives_an_unbounded_text(
    headers: dict[str, Any], body: bytes, queue: str, death: Death | None, content_type: Any
) -> None:
    delivery = in_queue(queue, headers, body, death, content_type=content_type)
    found = letter_of(delivery, PIKA)
    assert len(found.error_message.encode()) <= MESSAGE_BYTES
    assert all(len(text.encode()) <= NAME_BYTES for text in (found.error_type, found.task, found.reason))
    assert 0 <= found.failures <= 2**31
    assert found.fingerprint == "" or len(found.fingerprint) == 16
    assert "hunter2" not in found.error_message
    for read in READERS:  # also those behind the one that recognised it
        one = read(ForeignMessage(delivery))
        assert one is None or one.framework


@given(text=st.lists(LINES | st.text(max_size=40), max_size=60).map("\n".join) | st.text())
def test_no_text_is_a_stack_that_cannot_be_read(text: str) -> None:
    stack = PrintedStack.parse(text)
    assert stack is None or len(stack.frames) <= MAX_FRAMES


def test_a_body_of_more_than_a_mebibyte_is_not_parsed() -> None:
    body = letter("dramatiq").body
    padded = body + b" " * (BODY_BYTES - len(body))
    assert letter_of(in_queue("a", {}, padded), PIKA).framework == "Dramatiq"
    assert letter_of(in_queue("a", {}, padded + b" "), PIKA).framework == ""


@pytest.mark.timeout(20)
@pytest.mark.parametrize("line", ["   at ", "   at a" * 30, "\tat a/", '  File "', "Caused by: a.", "a.", " ", "a: "])
def test_a_hostile_stack_of_many_kilobytes_is_read_at_once(line: str) -> None:
    PrintedStack.parse((line * 200_000)[:500_000])
    PrintedStack.parse("\n".join([line * 40] * 2000))
