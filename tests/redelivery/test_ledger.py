# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests own-count: the count is ours, and only where it is ours."""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw.message import Attempt, Destination, Past
from redeliver_mw.redelivery import identity
from redeliver_mw.redelivery.headers import iso, read_history_headers
from redeliver_mw.redelivery.identity import copy_id, digest, ledger_key, message_key
from redeliver_mw.redelivery.ledger import LedgerEntry, MemoryLedger, ledger_of
from redeliver_mw.testing import make_delivery

OURS = {
    "redeliver_failures": "3",
    "redeliver_failures_for": "orders",
    "redeliver_lineage": "L",
    "redeliver_hop": "2",
    "redeliver_generation": "1",
    "redeliver_not_before": "2026-01-02T03:04:05.000006Z",
    "redeliver_expires_at": "2026-01-03T00:00:00Z",
    "redeliver_first_failed_at": "2026-01-01T00:00:00Z",
    "redeliver_last_failed_at": "2026-01-02T00:00:00Z",
    "redeliver_first_attempt_at": "2025-12-31T00:00:00Z",
    "redeliver_error_type": "ValueError",
    "redeliver_error_message": "no",
    "redeliver_state": '{"page": "3"}',
    "redeliver_original_destination": "orders",
    "redeliver_original_message_id": "m1",
    "redeliver_replay_id": "R",
}
GARBAGE: list[Any] = [
    "x",
    "",
    "-1",
    "1.5",
    "9" * 30,
    "٣",
    b"\xff\xfe",
    [1, 2],
    {"a": [None]},
    None,
    True,
    10**30,
    -5,
    1e300,
    "\ud800",
    "\0",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "[" * 100_000,
    '{"a":' * 5_000,
    '["a"]',
    "1" * 5_000,
]


def past_of(headers: dict[str, Any], destination: str = "orders") -> Past:
    return read_history_headers(make_delivery(b"", headers, destination=destination))


def test_a_retry_copy_of_ours_tells_all_that_happened_before() -> None:
    past = past_of(OURS)
    assert (past.lineage, past.hop, past.generation, past.failures, past.replay_id) == ("L", 2, 1, 3, "R")
    assert past.not_before_us == 1_767_323_045_000_006
    assert past.expires_at_us == 1_767_398_400_000_000
    assert past.last_failed_us is not None
    assert past.first_failed_us is not None
    assert past.last_failed_us - past.first_failed_us == 86_400_000_000
    assert past.last_error == "ValueError: no"
    assert past.state == {"page": "3"}
    assert past.original["redeliver_original_message_id"] == "m1"


def test_a_message_is_hashed_once_however_often_its_key_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    key_of = identity.key_of
    monkeypatch.setattr(identity, "key_of", lambda source, *more: hashed.append(source) or key_of(source, *more))
    delivery = make_delivery(b"x", message_id="m1")
    first = message_key(delivery, Past())
    assert first == key_of("queue:orders", delivery.identity, b"x")
    assert message_key(delivery, Past()) == first
    assert message_key(delivery, Past(lineage="L")) == "L"
    assert hashed == ["queue:orders"]


def test_headers_count_as_bytes_as_well_as_text() -> None:
    assert past_of({name: value.encode() for name, value in OURS.items()}) == past_of(OURS)


def test_a_message_without_headers_of_ours_has_no_past() -> None:
    assert past_of({"x-delivery-count": 7, "JMSXDeliveryCount": 9, "redelivered": True}) == Past()


def test_the_count_is_valid_for_its_own_source_only() -> None:
    """A handler forwarded the headers of the previous hop to another queue."""
    assert past_of(OURS, "invoices") == Past()
    assert past_of({name: v for name, v in OURS.items() if name != "redeliver_failures_for"}, "invoices") == Past()


def test_a_strangers_dead_letter_lives_again_one_generation_later() -> None:
    past = past_of(OURS | {"redeliver_reason": "exhausted"})
    assert (past.failures, past.generation, past.lineage) == (0, 2, "L")
    assert (past.not_before_us, past.expires_at_us, past.last_error, past.state) == (None, None, None, {})
    assert past.first_attempt_us is None
    assert past.original["redeliver_original_message_id"] == "m1"


def test_our_own_replay_has_its_generation_already_and_no_failures() -> None:
    replayed = {"redeliver_generation": "2", "redeliver_lineage": "L", "redeliver_original_destination": "orders"}
    past = past_of(replayed | {"redeliver_replay_id": "R2"})
    assert (past.failures, past.generation, past.lineage, past.replay_id) == (0, 2, "L", "R2")


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda value: ascii(value)[:20])
@pytest.mark.parametrize("name", [name for name in OURS if name != "redeliver_failures_for"] + ["redeliver_reason"])
def test_garbage_in_our_headers_does_no_harm(name: str, garbage: Any) -> None:
    past = past_of(OURS | {name: garbage})
    assert 0 <= past.failures <= 2**31 - 1
    assert 0 <= past.hop <= 2**31 - 1
    assert 0 <= past.generation <= 2**31
    assert len(past.lineage) <= 64
    for us in (
        past.not_before_us,
        past.expires_at_us,
        past.first_failed_us,
        past.last_failed_us,
        past.first_attempt_us,
    ):
        assert us is None or iso(us).endswith("Z")
    assert copy_id(past.lineage, past.generation, past.hop, Destination("orders"))


@pytest.mark.parametrize(
    ("text", "failures"), [("-1", 0), ("1e3", 0), ("five", 0), ("007", 7), ("99999999999", 2**31 - 2**20)]
)
def test_a_count_is_a_decimal_from_0_on_or_it_is_0(text: str, failures: int) -> None:
    assert past_of(OURS | {"redeliver_failures": text}).failures == failures


def test_counts_of_a_stranger_leave_room_to_count_on_in_32_bits() -> None:
    most = "2147483647"
    past = past_of(OURS | {"redeliver_generation": most, "redeliver_failures": most, "redeliver_reason": "exhausted"})
    assert past.generation < 2**31 - 1
    past = past_of(OURS | {"redeliver_generation": most, "redeliver_failures": most, "redeliver_hop": most})
    assert max(past.failures, past.generation, past.hop) + 1000 < 2**31


def test_times_are_read_back_to_the_microsecond() -> None:
    for us in (0, 1, 1_767_323_045_000_006, 253_402_300_799_999_999):
        assert past_of(OURS | {"redeliver_not_before": iso(us)}).not_before_us == us


def test_the_key_is_the_lineage_and_before_the_first_copy_a_hash_of_what_the_broker_keeps() -> None:
    known = make_delivery(b"x", message_id="m1", timestamp_us=1)
    assert message_key(known, Past(lineage="L")) == "L"
    key = message_key(known, Past())
    assert key == message_key(make_delivery(b"x", message_id="m1", timestamp_us=1), Past())
    others = [
        make_delivery(b"y", message_id="m1", timestamp_us=1),
        make_delivery(b"x", message_id="m2", timestamp_us=1),
        make_delivery(b"x", message_id="m1", timestamp_us=2),
        make_delivery(b"x", message_id="m1", timestamp_us=1, destination="other"),
    ]
    assert len({key, *(message_key(other, Past()) for other in others)}) == 5


def test_a_message_without_any_id_has_no_key() -> None:
    assert message_key(make_delivery(b"x", timestamp_us=1), Past()) is None


def test_each_hop_and_each_generation_has_a_row_of_its_own() -> None:
    pasts = [Past(generation=g, hop=h) for g in (0, 1) for h in (0, 1)]
    assert len({ledger_key("L", past) for past in pasts}) == 4


def test_a_forwarded_lineage_is_told_apart_by_body_and_id() -> None:
    prints = {digest(make_delivery(b, message_id=i)) for b in (b"x", b"y") for i in ("m1", "m2", None)}
    assert len(prints) == 6
    assert digest(make_delivery(b"x", message_id="m1")) in prints


def test_a_copy_id_is_the_same_on_every_try_and_never_that_of_another_copy() -> None:
    """The rule is exact-copies: a copy id is a hash of lineage, generation, hop and target."""
    targets = [Destination("dlq"), Destination("dlq", "topic"), Destination("audit")]
    ids = [copy_id(line, g, h, t) for line in ("L", "M") for g in (0, 1) for h in (1, 2) for t in targets]
    assert len(set(ids)) == 24
    assert copy_id("L", 0, 1, targets[0]) == ids[0]
    assert len(ids[0]) == 32


def entry(name: str = "L") -> LedgerEntry:
    return LedgerEntry(name, Past(), b"")


def test_a_ledger_keeps_what_was_used_last_and_is_bounded() -> None:
    ledger = MemoryLedger(size=2)
    first = ledger.open("a", entry())
    ledger.open("b", entry())
    assert ledger.open("a", entry()) is first
    ledger.open("c", entry())
    assert ledger.find("b") is None
    assert ledger.find("a") is first
    assert len(ledger) == 2
    ledger.forget("a")
    ledger.forget("a")
    assert ledger.find("a") is None


def test_there_is_one_ledger_for_a_broker_and_source_in_a_process() -> None:
    one = ledger_of("host:1/v", Destination("orders"))
    assert ledger_of("host:1/v", Destination("orders")) is one
    assert ledger_of("host:2/v", Destination("orders")) is not one
    assert ledger_of("host:1/v", Destination("orders", "topic")) is not one


STRANGERS: list[Any] = [
    *GARBAGE,
    "{}",
    "[]",
    "null",
    "7",
    "[null]",
    "[[]]",
    '[{"t": "now"}]',
    "[" * 2_000,
    '[{"a":' * 300,
    '[{"t":"2026-01-02T03:04:05Z","f":"a","h":1}]',
    '[{"t":"2026-01-02T03:04:05Z","f":"a","h":"h","d":true}]',
    '[{"t":"2026-01-02T03:04:05Z","f":"a","h":"h","d":NaN}]',
    '[{"t":"2026-01-02T03:04:05Z","f":"a","h":"h","d":-1}]',
    '[{"t":"9999-12-31T23:59:59-14:00","f":"a","h":"h"}]',
    '[{"t":"2026-01-02T03:04:05Z","f":"a"}]',
    '[{"t":"2026-01-02T03:04:05Z","f":"a","h":"h","d":1e999}]',
    "[" + ",".join(['{"t":"2026-01-02T03:04:05Z","f":"a","h":"h"}'] * 100) + "]",
]


@pytest.mark.parametrize("text", STRANGERS, ids=lambda text: repr(text)[:40])
def test_a_strangers_history_tells_nothing(text: Any) -> None:
    past = past_of(OURS | {"redeliver_history": text})
    assert (past.failures, past.history) == (3, ())


def test_a_history_is_read_to_its_last_ten_attempts_and_only_with_its_count() -> None:
    line = '{"t":"2026-01-02T03:04:05Z","f":"%d","h":"h","d":2}'
    headers = OURS | {"redeliver_history": "[" + ",".join(line % n for n in range(12)) + "]"}
    at = 1_767_323_045_000_000
    assert past_of(headers).history == tuple(Attempt(at, str(n), "h", 2) for n in range(2, 12))
    assert past_of(headers, "invoices").history == ()
    assert past_of(headers | {"redeliver_reason": "exhausted"}).history == ()
