# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests exact-copies, header-budget, and docs/headers.md: what copies and dead letters carry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.errors import NotCopyable
from redeliver_mw.failure import Failure, describe
from redeliver_mw.message import Attempt, Delivery, Destination, Outgoing, Past
from redeliver_mw.redelivery.copies import Provenance, Transfer, copies_of
from redeliver_mw.redelivery.headers import read_history_headers
from redeliver_mw.redelivery.identity import copy_id
from redeliver_mw.testing import make_delivery

SOURCE, DLQ, AUDIT = Destination("orders"), Destination("DLQ.orders"), Destination("audit", "topic")
SIGNATURE = Provenance(SOURCE, "shop", "host1", "3:1000; 6:move(queue:DLQ.$)", "abcdef012345")
BROKER = Capabilities(
    dialect="rabbitmq+pika",
    broker_kind="rabbitmq",
    queue_address="/queue/{name}",
    strip=frozenset({"x-death", "CC"}),
    strip_prefixes=("x-opt-",),
    death_marks={"x-first-death-queue": "{name}", "x-first-death-reason": "{mark}", "why": "{kind}: {cause}"},
    death_reasons={"exhausted": "delivery_limit"},
)
FAILURE = Failure("ValueError", "no such {name}", "0123456789abcdef", ["shop:on_order"], "Traceback")
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
US = 1_767_323_045_000_006  # 2026-01-02T03:04:05.000006Z
PAST = Past(
    failures=3,
    first_attempt_us=US - 3_000_000,
    first_failed_us=US - 2_000_000,
    last_failed_us=US,
    not_before_us=US + 5_000_000,
    state={"page": "3"},
    history=(Attempt(US, "0" * 16, "host1", 5.0),),
    trace=TRACE,
)
DEATH = Transfer("dead_lettered", (DLQ, AUDIT), reason="exhausted", failure=FAILURE)
RETRY = Transfer("redelivered", (SOURCE,), 4.0, not_before_us=US + 5_000_000, failure=FAILURE)

BOTH = {
    "redeliver_original_destination",
    "redeliver_original_kind",
    "redeliver_original_message_id",
    "redeliver_original_correlation_id",
    "redeliver_original_timestamp",
    "redeliver_failures",
    "redeliver_failures_for",
    "redeliver_lineage",
    "redeliver_copy_id",
    "redeliver_hop",
    "redeliver_generation",
    "redeliver_state",
    "redeliver_first_failed_at",
    "redeliver_last_failed_at",
    "redeliver_first_attempt_at",
    "redeliver_error_type",
    "redeliver_error_message",
    "redeliver_error_fingerprint",
    "redeliver_policy",
    "redeliver_policy_version",
    "redeliver_history",
    "redeliver_trace",
}
DEAD_ONLY = {"original-destination", "redeliver_reason", "redeliver_host", "redeliver_app"}
RETRY_ONLY = {"redeliver_not_before", "redeliver_expires_at"}


def message(headers: dict[str, Any] | None = None, **more: Any) -> Delivery:
    given = {"message_id": "m1", "correlation_id": "c1", "timestamp_us": US, "user_id": "guest"} | more
    return make_delivery(b"\x00\xff", headers or {"tenant": "a", "ratio": 1.75}, **given)


def copies(
    move: Transfer, delivery: Delivery | None = None, past: Past = PAST, broker: Capabilities = BROKER
) -> list[Outgoing]:
    return copies_of(delivery or message(), past, "L", move, SIGNATURE, broker)


def ours(out: Outgoing) -> set[str]:
    return {name for name in out.headers if name.startswith("redeliver_")}


def test_a_dead_letter_carries_its_column_and_nothing_of_the_retry_copies() -> None:
    out = copies(DEATH)[0]
    assert ours(out) - {"redeliver_original_user_id"} == (BOTH | DEAD_ONLY) - {"original-destination"}
    h = out.headers
    assert h["original-destination"] == "/queue/orders"
    assert (h["redeliver_original_destination"], h["redeliver_original_kind"]) == ("orders", "queue")
    assert (h["redeliver_reason"], h["redeliver_failures"], h["redeliver_failures_for"]) == ("exhausted", "3", "orders")
    assert (h["redeliver_host"], h["redeliver_app"]) == ("host1", "shop")
    assert (h["redeliver_hop"], h["redeliver_generation"], h["redeliver_lineage"]) == ("1", "0", "L")
    assert h["redeliver_last_failed_at"] == "2026-01-02T03:04:05.000006Z"
    assert h["redeliver_error_fingerprint"] == "0123456789abcdef"
    assert (h["redeliver_policy"], h["redeliver_policy_version"]) == ("3:1000; 6:move(queue:DLQ.$)", "abcdef012345")
    assert h["redeliver_original_user_id"] == "guest"


def test_a_retry_copy_carries_its_column_and_nothing_of_the_dead_letters() -> None:
    past = Past(**{name: getattr(PAST, name) for name in Past.__slots__} | {"expires_at_us": US + 9_000_000})
    (out,) = copies(RETRY, past=past)
    assert ours(out) - {"redeliver_original_user_id"} == BOTH | RETRY_ONLY
    assert not (DEAD_ONLY | BROKER.death_marks.keys()) & out.headers.keys()
    assert out.headers["redeliver_not_before"] == "2026-01-02T03:04:10.000006Z"
    assert out.headers["redeliver_expires_at"] == "2026-01-02T03:04:14.000006Z"
    assert out.target == SOURCE


def test_a_dead_letter_has_the_brokers_own_marks_and_braces_in_a_text_are_left_alone() -> None:
    h = copies(DEATH)[0].headers
    assert (h["x-first-death-queue"], h["x-first-death-reason"]) == ("orders", "delivery_limit")
    assert h["why"] == "queue: ValueError: no such {name}"


def test_all_our_headers_are_plain_strings_with_names_of_identifier_characters() -> None:
    for out in copies(DEATH) + copies(RETRY):
        for name in ours(out):
            assert name.isidentifier()
            assert isinstance(out.headers[name], str)


def test_body_properties_and_the_users_headers_are_kept_exactly() -> None:
    keep = {
        "content_type": "a/b",
        "content_encoding": "gzip",
        "reply_to": "r",
        "type": "t",
        "priority": 7,
        "group_id": "g",
    }
    headers = {"tenant": "a", "ratio": 1.75, "raw": b"\xff", "list": [1, "x"], "none": None}
    out = copies(DEATH, message(headers, expires_at_us=US, **keep))[0]
    assert out.body == b"\x00\xff"
    assert {name: out.headers[name] for name in headers} == headers
    assert {name: getattr(out.properties, name) for name in keep} == keep
    assert (out.properties.message_id, out.properties.correlation_id) == ("m1", "c1")


def test_what_bites_when_sent_again_is_left_out() -> None:
    biting = {
        "x-death": [1],
        "CC": ["x"],
        "x-opt-anything": 1,
        "x-first-death-queue": "old",
        "redeliver_reason": "fatal",
    }
    (out,) = copies(RETRY, message({"tenant": "a", **biting}, expires_at_us=US))
    assert "tenant" in out.headers
    assert not biting.keys() & out.headers.keys()
    assert (out.properties.user_id, out.properties.expires_at_us) == (None, None)


def test_each_target_gets_a_copy_with_an_id_of_its_own() -> None:
    outs = copies(DEATH)
    assert [out.target for out in outs] == [DLQ, AUDIT]
    assert [out.copy_id for out in outs] == [copy_id("L", 0, 1, DLQ), copy_id("L", 0, 1, AUDIT)]
    assert [out.headers["redeliver_copy_id"] for out in outs] == [out.copy_id for out in outs]
    assert [out.copy_id for out in copies(DEATH)] == [out.copy_id for out in outs]


def test_a_copy_is_read_back_as_it_was_written() -> None:
    (out,) = copies(RETRY)
    past = read_history_headers(make_delivery(out.body, dict(out.headers)))
    assert (past.failures, past.hop, past.lineage, past.state) == (3, 1, "L", {"page": "3"})
    assert (past.not_before_us, past.last_failed_us) == (PAST.not_before_us, PAST.last_failed_us)
    dead = read_history_headers(make_delivery(b"", dict(copies(DEATH)[0].headers)))
    assert (dead.failures, dead.generation) == (0, 1)


def test_the_original_is_carried_as_first_seen_over_any_number_of_hops() -> None:
    (first,) = copies(RETRY)
    second = make_delivery(first.body, dict(first.headers), message_id="m2", correlation_id="c2")
    second.past = read_history_headers(second)
    again = copies_of(second, second.past, "L", DEATH, SIGNATURE, BROKER)[0]
    assert again.headers["redeliver_original_message_id"] == "m1"
    assert again.headers["redeliver_original_correlation_id"] == "c1"
    assert again.headers["redeliver_hop"] == "2"


def test_a_letter_of_a_dead_letter_queue_keeps_what_is_known_of_it_there() -> None:
    """Its headers are of another source, but its hop is not: the id as seen here is told all the same."""
    letter = make_delivery(b"", dict(copies(DEATH)[0].headers), destination="DLQ.orders", message_id="m9")
    letter.past = read_history_headers(letter)
    signature = Provenance(DLQ, "ops", "host2", "p", "v")
    out = copies_of(letter, letter.past, "L", DEATH, signature, BROKER)[1]
    assert out.headers["redeliver_original_message_id"] == "m9"
    assert out.headers["redeliver_original_destination"] == "DLQ.orders"


def test_an_early_copy_that_moves_on_says_the_same_error_as_before() -> None:
    (first,) = copies(RETRY)
    early = make_delivery(first.body, dict(first.headers))
    early.past = read_history_headers(early)
    (out,) = copies_of(
        early, early.past, "L", Transfer("redelivered", (SOURCE,), 1.0, not_before_us=US), SIGNATURE, BROKER
    )
    for name in ("redeliver_error_type", "redeliver_error_message", "redeliver_error_fingerprint"):
        assert out.headers[name] == first.headers[name]


@pytest.mark.parametrize("size", [10, 1_000, 100_000])
def test_state_is_at_most_a_kilobyte_of_json_and_the_newest_strings_are_left_out(size: int) -> None:
    past = Past(failures=1, state={f"k{n}": "ü" * 20 for n in range(size)})
    text = copies(RETRY, past=past)[0].headers["redeliver_state"]
    kept = json.loads(text)
    assert len(text.encode()) <= 1024
    assert list(kept) == [f"k{n}" for n in range(len(kept))]
    if len(kept) < size:
        assert len(json.dumps({**kept, f"k{len(kept)}": "ü" * 20})) > 1024


def test_a_state_of_a_kilobyte_exactly_is_kept_whole() -> None:
    state = {"k": "x" * (1024 - len('{"k": ""}'))}
    assert json.loads(copies(RETRY, past=Past(failures=1, state=state))[0].headers["redeliver_state"]) == state
    over = {"k": state["k"] + "x"}
    assert copies(RETRY, past=Past(failures=1, state=over))[0].headers["redeliver_state"] == "{}"


def test_an_error_text_is_cut_at_the_edge_of_a_character() -> None:
    error = Failure("E", "ü" * 100_000, "0" * 16, [], "")
    out = copies(Transfer("dead_lettered", (DLQ,), reason="fatal", failure=error))[0]
    for name in ("redeliver_error_message", "why"):
        raw = out.headers[name].encode("utf-8")
        assert 2000 <= len(raw) <= 2048 + len("queue: ")
        assert "\ufffd" not in raw.decode("utf-8")
        assert out.headers[name].endswith("…")


def test_secrets_in_an_error_do_not_reach_a_header() -> None:
    failure = describe(ValueError("cannot reach amqp://me:s3cretpw@host/ with password=hunter22"))
    out = copies(Transfer("dead_lettered", (DLQ,), reason="fatal", failure=failure))[0]
    assert "s3cretpw" not in str(out.headers)
    assert "hunter22" not in str(out.headers)


def wire(out: Outgoing) -> int:
    return sum(len(name) + len(str(value).encode()) for name, value in out.headers.items())


def tight(budget: int) -> Capabilities:
    return Capabilities(dialect="tight", broker_kind="tight", header_bytes=budget, death_marks={"why": "{cause}"})


def test_texts_are_cut_shorter_when_foreign_headers_leave_little_room() -> None:
    error = Failure("E", "x" * 5_000, "0" * 16, [], "")
    move = Transfer("dead_lettered", (DLQ,), reason="fatal", failure=error)
    roomy = copies(move, message({"big": "y" * 3_000}), broker=tight(10_000))[0]
    small = copies(move, message({"big": "y" * 7_000}), broker=tight(10_000))[0]
    assert len(roomy.headers["redeliver_error_message"].encode()) == 2048
    assert len(small.headers["redeliver_error_message"].encode()) == 200
    assert len(small.headers["why"].encode()) == 200
    assert wire(small) <= 10_000
    assert small.headers["redeliver_lineage"] == "L"


def test_what_does_not_fit_even_then_is_refused_before_any_send() -> None:
    with pytest.raises(NotCopyable, match="tight takes 10000") as refused:
        copies(DEATH, message({"big": "y" * 9_500}), broker=tight(10_000))
    assert refused.value.cure


def test_our_headers_of_the_previous_hop_take_no_room_from_the_next() -> None:
    error = Failure("E", "x" * 2_000, "0" * 16, [], "")
    move = Transfer("redelivered", (SOURCE,), 1.0, not_before_us=US, failure=error)
    budget = tight(8_500)
    (first,) = copies(move, message({"big": "y" * 4_000}), broker=budget)
    second = make_delivery(b"", dict(first.headers))
    second.past = read_history_headers(second)
    (out,) = copies_of(second, second.past, "L", move, SIGNATURE, budget)
    assert out.headers["redeliver_error_message"] == first.headers["redeliver_error_message"]


def test_a_producers_impossible_timestamp_does_no_harm() -> None:
    (out,) = copies(RETRY, message(timestamp_us=10**20))
    assert "redeliver_original_timestamp" not in out.headers


@pytest.mark.parametrize("us", [253_402_300_800_000_000, 2**63 - 1, 2**63 * 1000, -(2**63)])
def test_a_message_that_expires_beyond_every_calendar_is_copied_without_an_end(us: int) -> None:
    past = Past(failures=1, expires_at_us=us)
    move = Transfer("redelivered", (Destination("orders"),), after=1.0, not_before_us=1)
    (out,) = copies(move, past=past)
    assert "redeliver_expires_at" not in out.headers


def attempts(n: int, host: str = "host1") -> tuple[Attempt, ...]:
    return tuple(Attempt(US + k * 1_000_000, f"{k:016x}", host, k / 4) for k in range(1, n + 1))


def history_of(out: Outgoing) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out.headers.get("redeliver_history", "[]"))
    return found


def test_a_copy_tells_of_the_last_attempts_in_short() -> None:
    past = Past(
        failures=2, history=(Attempt(US, "a" * 16, "host1", 1.5), Attempt(US + 2_500_000, "b" * 16, "h2", None))
    )
    assert copies(DEATH, past=past)[0].headers["redeliver_history"] == (
        '[{"t":"2026-01-02T03:04:05.000Z","f":"aaaaaaaaaaaaaaaa","h":"host1","d":1.5},'
        '{"t":"2026-01-02T03:04:07.500Z","f":"bbbbbbbbbbbbbbbb","h":"h2"}]'
    )
    assert read_history_headers(make_delivery(b"", dict(copies(RETRY, past=past)[0].headers))).history == (
        Attempt(US - 6, "a" * 16, "host1", 1.5),
        Attempt(US + 2_499_994, "b" * 16, "h2", None),
    )


@pytest.mark.parametrize("host", ["h", "x" * 64, "x" * 5_000, "ü" * 64, '"' * 64, "\x00\u2028" * 40])
def test_a_history_never_takes_more_than_two_kibibytes(host: str) -> None:
    for n in (1, 9, 10):
        (out,) = copies(RETRY, past=Past(failures=n, history=attempts(n, host)))
        text = out.headers["redeliver_history"]
        assert len(text.encode()) <= 2048
        assert text.isascii()
        assert [item["f"] for item in json.loads(text)] == [f"{k:016x}" for k in range(1, n + 1)][
            -len(json.loads(text)) :
        ]


def test_the_oldest_attempts_give_way_first_and_all_of_them_before_any_other_text() -> None:
    error = Failure("E", "x" * 2_000, "0" * 16, [], "")
    move = Transfer("dead_lettered", (DLQ,), reason="fatal", failure=error)
    lengths = []
    for foreign in range(0, 7_000, 50):
        (out,) = copies(move, message({"big": "y" * foreign}), past=Past(history=attempts(10)), broker=tight(8_000))
        assert wire(out) <= 8_000
        told = history_of(out)
        assert [item["d"] for item in told] == [k / 4 for k in range(11 - len(told), 11)]
        lengths.append((len(told), len(out.headers["redeliver_error_message"]) == 2_000))
        if not lengths[-1][1]:
            break
    assert lengths == sorted(lengths, reverse=True)
    assert (lengths[0], lengths[-1]) == ((10, True), (0, False))
    assert (0, True) in lengths


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (TRACE, TRACE),
        (TRACE.encode(), TRACE),
        (TRACE.upper(), ""),
        (TRACE + "-x", ""),
        ("00" + TRACE, ""),
        ("\x1b[2J", ""),
        ("x" * 100_000, ""),
        (7, ""),
        (None, ""),
    ],
)
def test_the_span_of_the_last_attempt_is_taken_over_only_in_its_own_form(given: object, kept: str) -> None:
    headers = dict(copies(RETRY)[0].headers) | {"redeliver_trace": given}
    assert read_history_headers(make_delivery(b"", headers)).trace == kept


def test_the_span_of_the_last_attempt_is_the_first_to_give_way() -> None:
    past = Past(failures=3, history=attempts(3), trace=TRACE)
    whole = wire(copies(RETRY, past=past, broker=tight(10_000))[0])
    seen = []
    for budget in range(whole, whole + 1000):  # the budget counts a framing for each header as well
        headers = copies(RETRY, past=past, broker=tight(budget))[0].headers
        seen.append((len(json.loads(headers.get("redeliver_history", "[]"))), "redeliver_trace" in headers))
    assert sorted(set(seen)) == sorted(set(seen) & {(0, False), (1, False), (2, False), (3, False), (3, True)})
    assert (3, False) in seen, "there is a budget for all attempts without the span"
    assert (3, True) in seen
    assert seen == sorted(seen)
