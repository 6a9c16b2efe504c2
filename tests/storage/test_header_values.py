# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Every type of header and property that drivers give comes back as it was."""

from __future__ import annotations

import enum
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import orjson
import proton
import pytest

from redeliver_mw.errors import NotCopyable
from redeliver_mw.limbo import Parking
from redeliver_mw.memory.clock import ManualClock
from redeliver_mw.message import Destination, Properties
from redeliver_mw.storage.header_values import BAD, UnreadableValue, from_json, to_json
from redeliver_pika.amqp.table import decode_table, encode_table
from redeliver_pika.amqp.values import AmqpBytes, LongString, Single, WireInteger, WireTable
from redeliver_proton.amqp.codec import EncodedValue as ProtonWire
from redeliver_proton.amqp.codec import read, write
from tests.limbo.messages import limbo, message

UNDESCRIBED: Any = proton.UNDESCRIBED
ODD_NAN = struct.unpack(">d", bytes.fromhex("7ff8000000001234"))[0]
VALUES: list[Any] = [
    "",
    "text",
    "zwölf €",
    "with\0nul",
    "half a surrogate \ud800",
    "\udcff",
    "line\nbreak",
    " ",
    "x" * 100_000,
    True,
    False,
    None,
    0,
    -1,
    2**31,
    -(2**63),
    2**63 - 1,
    2**63,
    2**64 - 1,
    10**40,
    0.0,
    -0.0,
    0.1,
    1e308,
    5e-324,
    float("inf"),
    float("-inf"),
    ODD_NAN,
    b"",
    b"\x00\xff",
    bytearray(b"\x01"),
    memoryview(b"ab"),
    UUID(int=7),
    Decimal("1.10"),
    Decimal("-0"),
    Decimal("NaN123"),
    datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    datetime(2026, 1, 2),
    datetime(2026, 1, 2, fold=1),
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    [],
    {},
    (),
    [1, "a", None, [b"x", {"k": (1.5,)}]],
    {"a": {"b": [{}]}, "c": b"\x00"},
    {1: "one", b"k": 2},
    WireInteger(5, "s"),
    WireInteger(2**40, "T"),
    WireInteger(7, "t"),
    LongString(b"\xff"),
    AmqpBytes(b"S\x00"),
    [WireInteger(1, "b"), Single(0.5)],
    proton.int32(-5),
    proton.ulong(2**64 - 1),
    proton.ubyte(3),
    proton.symbol("s"),
    proton.char("é"),
    proton.short(1),
    proton.timestamp(1767225600000),
    proton.float32(0.5),
    proton.decimal32(1),
    proton.decimal64(2),
    proton.byte(-1),
    proton.decimal128(b"0123456789abcdef"),
    proton.ushort(9),
    proton.uint(8),
    ProtonWire(b"\xa1\x01\xff"),
    proton.Array(UNDESCRIBED, proton.Data.INT, 1, 2, 3),
    proton.Described(proton.symbol("d"), [proton.uint(1)]),
]


def same(one: Any, two: Any) -> bool:
    """Return whether two values are equal, of one type, with the same attributes, all the way down."""
    if (
        type(one) is not type(two)
        or getattr(one, "__dict__", None).__repr__() != getattr(two, "__dict__", None).__repr__()
    ):
        return False
    if isinstance(one, dict):
        return [*one] == [*two] and all(same(one[k], two[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, float):
        return struct.pack(">d", one) == struct.pack(">d", two)
    if isinstance(one, Decimal):
        return bool(one.as_tuple() == two.as_tuple())
    return bool(one == two)


@pytest.mark.parametrize("value", VALUES, ids=[f"{n}-{type(value).__name__}" for n, value in enumerate(VALUES)])
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(from_json(orjson.loads(orjson.dumps(to_json(value)))), value)


# What was stored at commit d48cbe6, when rows held the paths of classes.
WRITTEN_BEFORE: list[tuple[Any, Any]] = [
    (["of", "redeliver_pika._values:Wired", 5, {"letter": "s"}], WireInteger(5, "s")),
    (["of", "redeliver_pika._values:LongString", ["bytes", "/w=="], {}], LongString(b"\xff")),
    (["of", "redeliver_proton._codec:Wire", ["bytes", "oQH/"], {}], ProtonWire(b"\xa1\x01\xff")),
    (["of", "proton._data:ulong", ["int", "0xffffffffffffffff"], {}], proton.ulong(2**64 - 1)),
    (["constant", "proton._data:UNDESCRIBED"], UNDESCRIBED),
]


EARLIER_PATHS = ["redeliver_pika._values:Wired", "redeliver_proton._codec:Wire", "proton._data:Array"]


@pytest.mark.parametrize(("row", "value"), WRITTEN_BEFORE, ids=lambda each: type(each).__name__)
def test_a_value_that_was_stored_under_the_path_of_its_class_is_read(row: Any, value: Any) -> None:
    assert same(from_json(row), value)


def test_a_database_that_holds_paths_of_classes_is_read(tmp_path: Path) -> None:
    """It was written when classes were stored by their paths, with those of VALUES that are not long texts."""
    script = Path(__file__).with_name("limbo-with-class-paths.sql").read_text()
    file = sqlite3.connect(tmp_path / "limbo.db")
    file.executescript(script)
    exact = file.execute("SELECT exact FROM redeliver_limbo_msg").fetchone()[0].decode()
    assert [path for path in EARLIER_PATHS if path not in exact] == []
    file.close()
    clock = ManualClock()
    with limbo(f"sqlite:///{tmp_path}/limbo.db", clock) as store:
        (row,) = store.due()
        assert (row.problem, row.out.body) == ("", bytes(range(256)))
        assert type(row.out.properties.message_id) is proton.ulong
        headers = {int(name[1:]): value for name, value in row.out.headers.items()}
        assert len(headers) > 60
        assert [n for n, value in headers.items() if not same(value, VALUES[n])] == []
        clock.advance(3600)
        assert [row.wire for row in store.due()] == [b"image"]


def _stored(value: Any) -> str:
    return orjson.dumps(to_json(value)).decode()


def test_no_stored_value_names_a_module() -> None:
    stored = [text for value in VALUES if not isinstance(value, str) and "of" in (text := _stored(value))]
    assert len(stored) > 20
    assert [text for text in stored if ":" in text.replace('":', "") or "proton" in text or "redeliver" in text] == []


def test_all_of_them_survive_the_database(url: str) -> None:
    clock = ManualClock()
    headers = {f"h{n}": value for n, value in enumerate(VALUES)} | {
        "odd\udcffname": 1,
        "nul\0": "x",
        "n" * 3000: "long name",
    }
    with limbo(url, clock) as store:
        store.park([Parking(message(1, headers=headers), clock.now().wall)])
        (row,) = store.due()
        assert row.out.headers.keys() == headers.keys()
        assert [name for name, value in headers.items() if not same(row.out.headers[name], value)] == []


PROPERTIES = [
    Properties(),
    Properties("id", "c", 1_767_225_600_123_456, "text/plain", "gzip", "queue:a", "t", 9, "g", "a", "u", 1000, 5000),
    Properties(UUID(int=1), UUID(int=2), 0, "", "", b"\xff", "", 0, "", "", "", 1_767_225_600_123_456, 0),
    Properties(message_id=proton.ulong(5), correlation_id=b"\x00", timestamp_us=-5, type="nul\0", reply_to="nul\0"),
    Properties(reply_to=proton.symbol("r"), correlation_id=proton.symbol("c")),
    Properties(correlation_id="", reply_to="", type="", priority=-1, timestamp_us=2**70, expires_at_us=2**80),
]


@pytest.mark.parametrize("properties", PROPERTIES)
def test_properties_come_back_as_they_were(url: str, properties: Properties) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, properties=properties), clock.now().wall)])
        (row,) = store.due()
        assert row.out.properties == properties
        assert type(row.out.properties.message_id) is type(properties.message_id)


@pytest.mark.parametrize("body", [b"", bytes(range(256)), b"\x00" * 1_000_000])
def test_a_body_and_an_adapters_image_come_back_byte_for_byte(url: str, body: bytes) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, body=body), clock.now().wall, wire=body[::-1])])
        (row,) = store.due()
        assert (row.out.body, row.wire) == (body, body[::-1])


@pytest.mark.parametrize(
    "target",
    [
        Destination("queue:odd"),
        Destination("a b.é"),
        Destination("prices", "topic"),
        Destination("p", "topic", "a::b"),
        Destination("a::b"),
    ],
)
def test_a_target_comes_back_as_it_was(url: str, target: Destination) -> None:
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, target=target), clock.now().wall)])
        assert [row.out.target for row in store.due()] == [target]


@pytest.mark.parametrize(
    "target", [Destination(" x"), Destination("nul\0"), Destination("a::b", "topic"), Destination("")]
)
def test_a_target_that_would_be_read_back_as_another_is_refused(target: Destination, url: str) -> None:
    with limbo(url, ManualClock()) as store, pytest.raises(NotCopyable, match="target's name"):
        store.park([Parking(message(1, target=target), 0.0)])


# RabbitMQ's tables as they stand on the wire: what a driver makes of them goes through the limbo and out again.
ENTRIES = [
    b"\x01ab\x05",
    b"\x01as\x00\x05",
    b"\x01at\x07",
    b"\x01aT\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x01aV",
    b"\x01aS\x00\x00\x00\x01\xff",
    b"\x01ax\x00\x00\x00\x02\x00\x01",
    b"\x01af\x7f\xc0\x00\x01",
    b"\x01aD\x02\x00\x00\x00\x6e",
    b"\x02\xff\xfeI\x00\x00\x00\x01",
    b"\x01aF\x00\x00\x00\x07\x01bA\x00\x00\x00\x00",
    b"\x01aL\x00\x00\x00\x00\x00\x00\x00\x05",
    b"\x01al\x00\x00\x00\x00\x00\x00\x00\x05",
]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: e[:6].hex())
def test_a_header_of_amqp_0_9_1_goes_out_as_it_came(entry: bytes, url: str) -> None:
    raw = struct.pack(">I", len(entry)) + entry
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, headers=decode_table(raw)[0]), clock.now().wall)])
        (row,) = store.due()
        assert encode_table(dict(row.out.headers), non_finite=True) == raw


def test_a_table_in_which_a_key_comes_twice_goes_out_as_it_came(url: str) -> None:
    entries = b"\x01aI\x00\x00\x00\x01\x01aI\x00\x00\x00\x02"
    inner, _ = decode_table(struct.pack(">I", len(entries)) + entries)
    assert isinstance(inner, WireTable)
    clock = ManualClock()
    with limbo(url, clock) as store:
        store.park([Parking(message(1, headers={"t": inner}), clock.now().wall)])
        (row,) = store.due()
        assert encode_table(row.out.headers["t"]) == struct.pack(">I", len(entries)) + entries


@pytest.mark.parametrize(
    "wire", ["7100000005", "8000000000000000ff", "a30173", "7300000041", "83000000000000000a", "72fff80001"]
)
def test_a_value_of_amqp_1_0_is_written_as_it_came(wire: str) -> None:
    raw = bytes.fromhex(wire)
    assert write(from_json(orjson.loads(orjson.dumps(to_json(read(raw, 0)))))) == raw


class Colour(enum.IntEnum):
    RED = 1


class Odd:
    pass


def _local() -> Any:
    class Hidden(str):
        pass

    return Hidden("x")


DEEP: list[Any] = []
for _ in range(200):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Odd(),
        lambda: Colour.RED,
        _local,
        lambda: {1, 2},
        lambda: 1j,
        lambda: DEEP,
        lambda: [Odd()],
        lambda: datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        lambda: datetime.now,
    ],
)
def test_what_would_not_come_back_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(NotCopyable):
        to_json(make())


def test_a_type_that_no_loaded_adapter_has_registered_is_refused_by_its_name() -> None:
    with pytest.raises(UnreadableValue, match="no adapter that is loaded here has a header type 'amqp99/int'"):
        from_json(["of", "amqp99/int", 5, {}])
    assert from_json(["of", "amqp99/int", 5, {}], strict=False) == 5


def test_reading_a_driver_s_value_loads_no_adapter() -> None:
    program = (
        "import sys; from redeliver_mw.storage.header_values import from_json;"
        "print(from_json(['of', 'amqp10/int', 5, {}], strict=False), 'proton' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "5 False\n"


@pytest.mark.parametrize(
    "found",
    [
        ["of", "subprocess:Popen", "ls", {}],
        ["of", "builtins:eval", "1", {}],
        ["of", "os:system", "ls", {}],
        ["of", "redeliver_mw.limbo.store:Limbo", None, {}],
        ["what"],
        [],
        ["bytes", 5],
        ["of", "x", None, {}],
        ["of"],
        ["decimal", "one"],
        ["float", "00"],
        ["time", "soon", 0],
        [{}, 1],
        ["nothing", 1],
        ["of", "amqp091/integer", "5", {"letter": "s"}],
        ["of", "amqp091/integer", True, {"letter": "s"}],
        ["of", "amqp091/integer", 5, {"encode": "x"}],
        ["of", "amqp091/integer", 5, {"__class__": "x"}],
        ["of", "amqp10/array", None, {"type": 8}],
        ["of", "amqp10/array", [], {"descriptor": None, "type": 8, "elements": []}],
        ["of", ["amqp10/int"], 5, {}],
        ["of", "amqp10/int", 5, []],
        ["constant", "amqp10/int"],
        ["constant", ["amqp10/undescribed"]],
    ],
)
def test_what_somebody_else_wrote_is_refused_and_nothing_of_it_is_run(found: Any) -> None:
    with pytest.raises(BAD):
        from_json(found)
