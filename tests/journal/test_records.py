# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A journal line is a promise to anybody who reads it years later."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.journal.encoding import RecordIds
from redeliver_mw.journal.records import (
    FIELDS,
    POLICY_SCHEMA,
    SCHEMA,
    VERSION,
    AttemptRecord,
    OtherKind,
    PolicyRecord,
    from_line,
    policy_from_line,
    to_line,
)

# Names, types and question marks as the documentation of the format lists them.
PROMISED = """
v int16 · record_id string · ts_us int64 · app string · host string · broker string · broker_kind string ·
destination string · destination_kind string · message_id string? · message_key string · group_id string? ·
generation int32 · delivery_count int32 · broker_redelivered bool · outcome string · reason string? ·
error_type string? · error_message string? · error_fingerprint string? · error_frames list<string>? ·
error_text string? · mechanism string? · delay_us int64? · delay_base_us int64? · policy string ·
policy_version string · policy_arm string? · propensity double? · handler_us int64 · queue_us int64 ·
settle_us int64? · first_attempt_us int64 · last_failure_us int64? · attempts_total int32 ·
payload_bytes int32 · targets list<string>? · replay_id string?
"""


SCENE: dict[str, Any] = {
    "ts_us": 1_790_000_000_000_000,
    "app": "shop",
    "host": "web-1",
    "broker": "rabbitmq://localhost",
    "broker_kind": "rabbitmq",
}


def make(**changes: Any) -> AttemptRecord:
    values: dict[str, Any] = {
        "record_id": "0123456789ab-1",
        **SCENE,
        "destination": "orders",
        "destination_kind": "queue",
        "message_key": "k1",
        "generation": 0,
        "delivery_count": 1,
        "broker_redelivered": False,
        "outcome": "accepted",
        "policy": "3:1000",
        "policy_version": "abcd",
        "handler_us": 1200,
        "queue_us": 10,
        "first_attempt_us": 1_790_000_000_000_000,
        "attempts_total": 1,
        "payload_bytes": 17,
    }
    return AttemptRecord(**{**values, **changes})


def test_the_schema_is_the_promised_one_in_the_promised_order() -> None:
    promised = [entry.split() for entry in PROMISED.replace("\n", " ").split("·")]
    assert [(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in promised] == [
        (name, held.type, held.nullable) for name, held in SCHEMA.items()
    ]
    assert list(SCHEMA) == list(FIELDS)
    assert VERSION == 1


def test_a_full_record_comes_back_as_it_went() -> None:
    full = make(
        message_id="m1",
        group_id="g",
        outcome="dead_lettered",
        reason="exhausted",
        error_type="ValueError",
        error_message="no",
        error_fingerprint="0" * 16,
        error_frames=["shop:on_order"],
        error_text="Traceback …\nValueError: no",
        mechanism="park",
        delay_us=1,
        delay_base_us=2,
        policy_arm="a",
        propensity=0.5,
        settle_us=3,
        last_failure_us=4,
        targets=["queue:DLQ.orders"],
        replay_id="r",
    )
    line = to_line(full)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert set(json.loads(line)) == set(FIELDS)
    assert from_line(line) == full


def test_fields_without_a_value_are_left_out_and_read_back_as_none() -> None:
    row = json.loads(to_line(make()))
    assert set(row) == {name for name, held in SCHEMA.items() if not held.nullable}
    back = from_line(to_line(make()))
    assert back.error_text is None
    assert back.targets is None


def test_a_nullable_field_may_be_null_and_a_field_of_a_later_release_is_ignored() -> None:
    row = json.loads(to_line(make())) | {"error_type": None, "invented_later": {"deep": [1]}}
    assert from_line(json.dumps(row).encode()) == make()


@pytest.mark.parametrize("name", [name for name, held in SCHEMA.items() if not held.nullable])
def test_a_missing_field_is_named(name: str) -> None:
    row = json.loads(to_line(make()))
    for broken in ({k: v for k, v in row.items() if k != name}, row | {name: None}):
        with pytest.raises(ValueError, match=f"'{name}'"):
            from_line(json.dumps(broken).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("v", 2),
        ("v", True),
        ("ts_us", "1"),
        ("ts_us", 1 << 63),
        ("ts_us", 1.5),
        ("app", 7),
        ("generation", 1 << 31),
        ("generation", True),
        ("delivery_count", "1"),
        ("broker_redelivered", 1),
        ("broker_redelivered", "false"),
        ("outcome", "acked"),
        ("destination_kind", "exchange"),
        ("reason", "because"),
        ("mechanism", "sleep"),
        ("error_frames", "a:b"),
        ("error_frames", [1]),
        ("propensity", "0.5"),
        ("targets", {}),
    ],
)
def test_a_field_that_holds_something_else_is_named(name: str, value: object) -> None:
    row = json.loads(to_line(make())) | {name: value}
    with pytest.raises(ValueError, match=f"'{name}'"):
        from_line(json.dumps(row).encode())


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"[]", b"null", b'"v"', b'{"v":1,"record_id":"x', b"\xff\xfe", b"\x00" * 9]
)
def test_what_is_no_record_at_all_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"JSON|field"):
        from_line(line)


def test_half_a_surrogate_is_spelled_out_wherever_it_stands() -> None:
    line = to_line(make(error_message="bad \udc80 byte", error_frames=["m:\ud800"], outcome="redelivered"))
    assert from_line(line).error_message == "bad \\udc80 byte"
    assert from_line(line).error_frames == ["m:\\ud800"]


def test_a_value_that_json_cannot_hold_is_named() -> None:
    with pytest.raises(ValueError, match="'app'"):
        to_line(make(app=object()))


@given(st.text(st.characters(exclude_categories=[])), st.integers(-(2**63), 2**63 - 1))
def test_any_text_and_any_int64_make_one_line_that_can_be_read(text: str, number: int) -> None:
    line = to_line(make(error_text=text, ts_us=number))
    assert line.count(b"\n") == 1
    back = from_line(line)
    assert back.ts_us == number
    assert back.error_text == text.encode("utf-8", "backslashreplace").decode()


def test_ids_are_run_and_counter_and_never_the_same_from_many_threads() -> None:
    ids = RecordIds("0123456789ab")
    assert [ids.next(), ids.next()] == ["0123456789ab-1", "0123456789ab-2"]
    seen: list[str] = []
    threads = [threading.Thread(target=lambda: seen.extend([ids.next() for _ in range(2000)])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 8000
    assert RecordIds().next()[:12] != RecordIds().next()[:12]


def test_a_forked_child_counts_under_a_run_id_of_its_own() -> None:
    program = """
import os
from redeliver_mw.journal.encoding import RecordIds
ids = RecordIds("0123456789ab")
ids.next()
if os.fork() == 0:
    os._exit(ids.next().startswith("0123456789ab"))
print(os.waitstatus_to_exitcode(os.wait()[1]), ids.next())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["0", "0123456789ab-2"]


# -- lines that tell of no attempt ----------------------------------------------------------------

POLICY_FIELDS = """
v int16 · kind string · record_id string · ts_us int64 · app string · host string · broker string ·
broker_kind string · file string · content string? · outcome string · sources list<string> ·
old_versions list<string> · new_versions list<string>? · error string?
"""


def change(**changes: Any) -> PolicyRecord:
    values: dict[str, Any] = {
        "record_id": "0123456789ab-2",
        **SCENE,
        "file": "/etc/shop/policy.toml",
        "outcome": "refused",
        "sources": ["queue:orders"],
        "old_versions": ["0123456789ab"],
    }
    return PolicyRecord(**{**values, **changes})


def test_the_schema_of_a_policys_change_is_the_promised_one() -> None:
    promised = [entry.split() for entry in POLICY_FIELDS.replace("\n", " ").split("·")]
    assert [(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in promised] == [
        (name, held.type, held.nullable) for name, held in POLICY_SCHEMA.items()
    ]


def test_a_policys_change_comes_back_as_it_went_without_what_it_does_not_have() -> None:
    applied = change(outcome="applied", content="ba9876543210", new_versions=["fedcba987654"])
    refused = change(error="line 3: no")
    for record in (applied, refused):
        line = to_line(record)
        assert line.endswith(b"}\n")
        assert policy_from_line(line) == record
    assert "new_versions" not in json.loads(to_line(refused))


def test_an_attempt_has_no_kind_and_every_other_kind_raises_for_the_reader_of_one_kind() -> None:
    assert "kind" not in SCHEMA
    later = json.dumps({"v": 2, "kind": "invented later"}).encode()
    for line in (to_line(change()), later):
        with pytest.raises(OtherKind):
            from_line(line)
    for line in (to_line(make()), later):
        with pytest.raises(OtherKind):
            policy_from_line(line)


@pytest.mark.parametrize("name", [name for name, held in POLICY_SCHEMA.items() if not held.nullable and name != "kind"])
def test_a_missing_field_of_a_policys_change_is_named(name: str) -> None:
    row = json.loads(to_line(change()))
    with pytest.raises(ValueError, match=f"'{name}'"):
        policy_from_line(json.dumps({k: v for k, v in row.items() if k != name}).encode())
