# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what a task makes of the lines of a segment: every line is a record, told as bad, or of another kind."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from redeliver_mw.journal.records import FIELDS, PolicyRecord, from_line, to_line
from redeliver_mw.pipeline.lake import line_reader as line_reader
from redeliver_mw.pipeline.lake import validation
from redeliver_mw.pipeline.lake.compaction_task import checked
from redeliver_mw.pipeline.lake.line_reader import HEAD, LONGEST, LineBlock, Overlong, read_lines
from redeliver_mw.pipeline.lake.task_messages import SegmentPiece
from redeliver_mw.pipeline.lake.validation import ARROW, BadLine, as_table, check, one_by_one
from tests.pipeline.journals import START_US, line, lines, record, segment

POLICY = to_line(
    PolicyRecord(
        ts_us=START_US,
        app="shop",
        host="web-1",
        broker="rabbitmq://localhost",
        broker_kind="rabbitmq",
        file="orders.toml",
        outcome="applied",
        sources=["queue:orders"],
        old_versions=["a"],
        new_versions=["b"],
    )
)


def changed(**fields: Any) -> bytes:
    """Return record 1's line with other values, which may be of any JSON type; `...` leaves a field out."""
    row = json.loads(line(1)) | fields
    return orjson.dumps({name: value for name, value in row.items() if value is not ...}) + b"\n"


def raw(name: str, value: bytes) -> bytes:
    """Return record 1's line with one more field, whose value is written as it stands."""
    return line(1)[:-2] + b',"' + name.encode() + b'":' + value + b"}\n"


def reasons(data: bytes) -> list[str]:
    return [bad.reason for found in check(data, 0) for bad in found.bad]


def ids(data: bytes) -> list[str]:
    tables = [found.attempts for found in check(data, 0) if found.attempts is not None]
    return [value for table in tables for value in table["record_id"].to_pylist()]


# Which lines there are


def contents(parts: list[LineBlock | Overlong]) -> list[tuple[int, bytes | int]]:
    """Return the offset and the content of each line; a line that was not kept has its length instead."""
    found: list[tuple[int, bytes | int]] = []
    for part in parts:
        if isinstance(part, Overlong):
            found.append((part.offset, part.length))
            continue
        offset = part.offset
        for one in part.data.removesuffix(b"\n").split(b"\n"):
            found.append((offset, one))
            offset += len(one) + 1
    return found


def expected(data: bytes, longest: int) -> list[tuple[int, bytes | int]]:
    found: list[tuple[int, bytes | int]] = []
    offset = 0
    for one in data.removesuffix(b"\n").split(b"\n") if data else []:
        found.append((offset, one if len(one) <= longest else len(one)))
        offset += len(one) + 1
    return found


@settings(max_examples=300)
@given(
    st.lists(st.integers(0, 40), max_size=12),
    st.booleans(),
    st.integers(1, 9),
    st.lists(st.integers(1, 200), max_size=5),
)
@example([100], False, 3, [10, 20, 30])
def test_ranges_side_by_side_give_each_line_once_whatever_the_size_of_a_read(
    lengths: list[int], ended: bool, block: int, cuts: list[int]
) -> None:
    data = b"\n".join(b"%x" % (number % 16) * length for number, length in enumerate(lengths)) + b"\n" * ended
    bounds = [0, *sorted({cut for cut in cuts if cut < len(data)})]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reader, "BLOCK", block)
        patch.setattr(line_reader, "LONGEST", 20)
        parts = [
            part
            for start, end in zip(bounds, [*bounds[1:], None], strict=True)
            for part in read_lines(io.BytesIO(data), start, end)
        ]
    # A line beyond the limit may also come whole, in a block; the checks refuse it there.
    found = [(at, one if isinstance(one, int) or len(one) <= 20 else len(one)) for at, one in contents(parts)]
    assert found == expected(data, 20)


def test_a_line_of_300_megabytes_is_passed_over_in_little_memory(tmp_path: Path) -> None:
    path = segment(tmp_path, lines(range(3)))
    before = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(300_000_000, io.SEEK_END)  # a hole: zeros that lie on no disk
        file.write(b"\n" + line(3))
    program = (
        "import re, sys\n"
        "from pathlib import Path\n"
        "from redeliver_mw.pipeline.lake.compaction_task import checked\n"
        "from redeliver_mw.pipeline.lake.task_messages import SegmentPiece\n"
        "found = list(checked(SegmentPiece(0, sys.argv[1], 0, None)))\n"
        "print([(bad.offset, bad.length, bad.reason) for one in found for bad in one.bad])\n"
        "print(sum(len(one.attempts) for one in found if one.attempts is not None))\n"
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    bad, records, memory = done.stdout.splitlines()
    assert bad == str([(before, 300_000_000, "a line of more than 2097152 bytes")])
    assert records == "4"
    # KiB, Python and Arrow included. Not ru_maxrss: Linux lets a child begin with that of the one who forked it.
    assert int(memory) < 250_000


def test_the_longest_line_that_an_attempt_can_make_is_taken() -> None:
    text = "\x01" * 65_536  # six bytes each in JSON
    one = line(1, error_message=text, error_text=text, error_frames=["\x01" * 300] * 30)
    assert len(one) > 800_000
    assert len(one) < LONGEST
    assert (len(ids(one)), reasons(one)) == (1, [])


def test_a_line_that_is_too_long_is_bad_also_where_it_fits_into_a_block() -> None:
    long = line(1, policy="x" * LONGEST)
    data = line(0) + long + line(2)
    [bad] = [bad for found in check(data, 1000) for bad in found.bad]
    assert (bad.offset, bad.length) == (1000 + len(line(0)), len(long) - 1)
    assert bad.head == long[:HEAD].decode()
    assert ids(data) == [record(0).record_id, record(2).record_id]


# What is no record


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"\n", "an empty line"),
        (b"   \n", "not a line of JSON"),
        (b"\0\0\0\0\n", "not a line of JSON"),
        (line(1)[:-1] + b"\0\n", "not a line of JSON"),
        (line(1)[:200] + b"\n", "not a line of JSON"),
        (b"\xef\xbb\xbf" + line(1), "not a line of JSON"),
        (line(1)[:-1] + line(2), "not a line of JSON"),
        (line(1).replace(b"shop", b"sh\xffp"), "not a line of JSON"),
        (line(1).replace(b"shop", b"sh\\udc00p"), "not a line of JSON"),
        (raw("propensity", b"NaN"), "not a line of JSON"),
        (raw("propensity", b"1e999"), "not a line of JSON"),
        (raw("propensity", b"9" * 400), "not a line of JSON"),
        (raw("more", b"[" * 100_000 + b"]" * 100_000), "not a line of JSON"),
        (raw("more", b"Infinity"), "not a line of JSON"),
        (b'["a", "list"]\n', "a record is a JSON object, not list"),
        (b"12\n", "a record is a JSON object, not int"),
        (b"{}\n", "field 'v' is missing"),
        (b"GET / HTTP/1.1\n", "not a line of JSON"),
        (changed(message_key=...), "field 'message_key' is missing"),
        (changed(message_key=None), "field 'message_key' is missing"),
        (changed(message_key=""), "field 'message_key' is empty"),
        (changed(record_id=""), "field 'record_id' is empty"),
        (changed(v=2), "field 'v' is 2; this release reads version 1"),
        (changed(v="1"), "field 'v' is '1'"),
        (changed(ts_us=str(START_US)), "field 'ts_us' holds"),
        (changed(ts_us=float(START_US)), "field 'ts_us' holds"),
        (changed(ts_us=True), "field 'ts_us' holds"),
        (changed(ts_us=START_US // 1000), "which is no time in microseconds from 2000 to 2200"),
        (changed(ts_us=0), "field 'ts_us' is 0"),
        (changed(first_attempt_us=-1), "field 'first_attempt_us' is -1"),
        (changed(last_failure_us=1 << 62), "field 'last_failure_us' is"),
        (changed(ts_us=1 << 63), "field 'ts_us' holds"),
        (changed(attempts_total=1 << 31), "field 'attempts_total' holds"),
        (changed(delivery_count=1.0), "field 'delivery_count' holds"),
        (changed(broker_redelivered=1), "field 'broker_redelivered' holds"),
        (changed(outcome="lost"), "field 'outcome' holds 'lost', which is no accepted | redelivered"),
        (changed(reason="tired"), "field 'reason' holds 'tired'"),
        (changed(app=5), "field 'app' holds"),
        (changed(destination=""), "field 'destination' is ''"),
        (changed(generation=-1), "field 'generation' is -1, which is less than 0"),
        (changed(delivery_count=0), "field 'delivery_count' is 0, which is less than 1"),
        (changed(delay_us=-1), "field 'delay_us' is -1, which is less than 0"),
        (changed(delay_base_us=-5), "field 'delay_base_us' is -5"),
        (changed(handler_us=-1), "field 'handler_us' is -1, which is less than 0"),
        (changed(settle_us=-1), "field 'settle_us' is -1, which is less than 0"),
        (changed(queue_us=-1), "field 'queue_us' is -1"),
        (changed(payload_bytes=-1), "field 'payload_bytes' is -1"),
        (changed(attempts_total=-1), "field 'attempts_total' is -1"),
        (changed(propensity=2.0), "field 'propensity' is 2.0, and not above 0 and at most 1"),
        (changed(propensity=0.0), "field 'propensity' is 0.0"),
        (changed(propensity=-0.5), "field 'propensity' is -0.5"),
        (raw("propensity", b"1e-400"), "field 'propensity' is 0.0, and not above 0 and at most 1"),
        (changed(error_frames="a:b"), "field 'error_frames' holds"),
        (changed(error_frames=["a:b", None]), "field 'error_frames' holds"),
        (changed(targets=[1]), "field 'targets' holds"),
        (raw("ts_us", b"1"), "field 'ts_us' stands in it twice"),
        (raw("message_key", b"null"), "missing"),
        (raw("app", b'"shop"'), "field 'app' stands in it twice"),
        (raw("a\\u0070p", b'"shop"'), "field 'app' stands in it twice"),
    ],
)
@pytest.mark.parametrize("around", [0, 40], ids=["alone", "in a block"])
def test_a_line_that_is_no_record_is_reported_with_place_and_reason(bad: bytes, reason: str, around: int) -> None:
    before, after = lines(range(100, 100 + around)), lines(range(200, 200 + around))
    data = b"".join([*before, bad, *after])
    [found] = [one for part in check(data, 7) for one in part.bad]
    assert reason in found.reason
    assert (found.offset, found.length) == (7 + sum(map(len, before)), len(bad) - 1)
    assert found.head == bad[:-1][:HEAD].decode(errors="replace")
    assert ids(data) == [from_line(one).record_id for one in before + after]


def test_a_line_without_an_end_is_quarantined_with_its_offset(tmp_path: Path) -> None:
    path = segment(tmp_path, [line(0), line(1), line(2)[:100]])
    parts = list(checked(SegmentPiece(0, str(path), 0, None)))
    place = len(line(0)) + len(line(1))
    assert [(bad.offset, bad.length, bad.head) for part in parts for bad in part.bad] == [
        (place, 100, line(2)[:100].decode())
    ]


def test_a_last_line_that_lacks_only_its_newline_is_a_record() -> None:
    assert ids(line(0) + line(1)[:-1]) == [record(0).record_id, record(1).record_id]


@pytest.mark.parametrize(
    "good",
    [
        line(1).replace(b"shop", b"sh\\u0000p"),
        line(1, app="Käse \N{CHEESE WEDGE} \N{LINE SEPARATOR}"),
        line(1).replace(b"shop", b"\\ud83e\\uddc0"),
        raw("more", b'{"a": [1, null, {"b": 1e5}]}'),
        raw("more", b'1, "more": 2'),
        raw("propensity", b"1"),
        raw("propensity", b"5e-324"),
        raw("settle_us", b"-0"),
        raw("kind", b"null"),
        line(1).replace(b'":', b'" : '),
        line(1)[:-1] + b" \r\n",
        b"\t" + line(1),
        changed(error_frames=[], targets=[""]),
        changed(first_attempt_us=START_US + 5),  # a clock that was set back
    ],
)
def test_a_line_that_is_written_otherwise_is_the_record_that_from_line_reads(good: bytes) -> None:
    data = good * 40
    [*found] = check(data, 0)
    rows = [row for part in found if part.attempts is not None for row in part.attempts.to_pylist()]
    wanted = {name: getattr(from_line(good), name) for name in FIELDS}
    if wanted["propensity"] is not None:
        wanted["propensity"] = float(wanted["propensity"])
    assert rows == [wanted] * 40
    assert [bad for part in found for bad in part.bad] == []


def test_lines_of_other_kinds_are_passed_over_and_counted() -> None:
    odd = [POLICY, b'{"kind":"weather","ts_us":"today"}\n', b'{"kind":7}\n']
    data = b"".join([*lines(range(40)), *odd, *lines(range(40, 80))])
    found = list(check(data, 0))
    assert sum(part.others for part in found) == 3
    assert ids(data) == [record(number).record_id for number in range(80)]
    assert reasons(data) == []


def test_a_block_with_policy_lines_and_one_with_new_fields_are_read_as_wholes() -> None:
    taken = as_table(b"".join([*lines(range(10)), POLICY, *lines(range(10, 20))]))
    assert taken is not None
    assert (len(taken.attempts), taken.others) == (20, 1)
    assert as_table(b"".join([*lines(range(10)), raw("more", b'"x"')])) is not None


def test_a_record_of_an_older_version_becomes_one_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    def from_0(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "v": 1, "message_key": row["key"]}

    monkeypatch.setitem(validation.OTHER_VERSIONS, 0, from_0)
    old = changed(v=0, message_key=..., key="k-old", record_id="x-1")
    data = b"".join([*lines(range(40)), old, changed(v=[]), *lines(range(40, 50))])
    tables = [found.attempts for found in check(data, 0) if found.attempts is not None]
    rows = pa.concat_tables(tables).to_pylist()
    assert [row["message_key"] for row in rows] == [
        *(f"k-{n}" for n in range(40)),
        "k-old",
        *(f"k-{n}" for n in range(40, 50)),
    ]
    assert {row["v"] for row in rows} == {1}
    assert len(reasons(data)) == 1


# Two ways to the same


VALUES = [
    b"0",
    b"-0",
    b"1",
    b"-1",
    b"2",
    b"1.0",
    b"1e3",
    b"1E400",
    b"-1e-400",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"null",
    b"true",
    b"false",
    b'""',
    b'"1"',
    b'"accepted"',
    b'"queue"',
    b'"policy"',
    b"[]",
    b"[null]",
    b'["a"]',
    b'["a",1]',
    b"{}",
    b'{"a":1}',
    b"[[[]]]",
    b"32767",
    b"32768",
    b"2147483648",
    b"9223372036854775807",
    b"9223372036854775808",
    b"18446744073709551616",
    b"1793491200000000",
    b"946684799999999",
    b"946684800000000",
    b"7258118400000000",
    b'"\\u0000"',
    b'"\\ud800"',
    b'"\\ud83e\\uddc0"',
    b'"\xff"',
    b'"\xc3\xa4"',
    b"01",
    b"+1",
    b".5",
    b"5.",
    b"'a'",
    b'"\t"',
    b'"a\nb"',
    b"1 // x",
    b"",
    b"{",
    b"}",
    b"1,",
    b"\0",
]
NAMES = st.sampled_from([*FIELDS, "kind", "file", "sources", "more", ""])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Draw a record's line to which something has happened, or not."""
    one = draw(st.sampled_from([line(1), line(3), POLICY]))
    match draw(st.integers(0, 6)):
        case 0:
            return one
        case 1:  # another value in the place of a field's
            row = orjson.loads(one)
            name = draw(st.sampled_from(sorted(row)))
            fields = [b'"%s":%s' % (key.encode(), orjson.dumps(value)) for key, value in row.items() if key != name]
            fields.append(b'"%s":%s' % (name.encode(), draw(st.sampled_from(VALUES))))
            return b"{" + b",".join(fields) + b"}\n"
        case 2:  # one more field, or one of them again
            return one[:-2] + b',"%s":%s}\n' % (draw(NAMES).encode(), draw(st.sampled_from(VALUES)))
        case 3:  # bytes cut out
            start = draw(st.integers(0, len(one)))
            return one[:start] + one[start + draw(st.integers(0, 20)) :]
        case 4:  # bytes put in
            at = draw(st.integers(0, len(one)))
            inserted = draw(
                st.sampled_from([b"\n", b"\0", b"}\n{", b"}{", b" ", b"\r", b"\xff", b'"', b"\\", b"[", b"{", b","])
            )
            return one[:at] + inserted + one[at:]
        case 5:
            return draw(st.sampled_from([b"\n", b"{}\n", b"[]\n", b"null\n", b"}\n", b"{\n", one + one, one[:-1]]))
        case _:
            return one.replace(b"shop", draw(st.binary(max_size=4)))


def together(data: bytes) -> tuple[list[dict[str, Any]], list[BadLine], int]:
    found = list(check(data, 0))
    tables = [part.attempts for part in found if part.attempts is not None]
    rows = pa.concat_tables([ARROW.empty_table(), *tables]).to_pylist()
    return rows, [bad for part in found for bad in part.bad], sum(part.others for part in found)


@settings(max_examples=500)
@given(st.lists(mutated(), min_size=1, max_size=4))
@example([line(1)[:-1], b"{}\n"])
@example([line(1)[:-2] + b',"more":\n', b"{}}\n", line(2)])
@example([POLICY[:-2] + b',"propensity":NaN}\n'])
def test_a_block_that_is_read_as_a_whole_holds_what_its_lines_hold_one_by_one(mutations: list[bytes]) -> None:
    data = b"".join(mutations)
    taken, wanted = as_table(data), one_by_one(data, 0)
    if taken is not None:
        assert not wanted.bad
        assert taken.others == wanted.others
        assert taken.attempts.to_pylist() == (wanted.attempts.to_pylist() if wanted.attempts is not None else [])


@settings(max_examples=50)
@given(st.lists(mutated(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_where_a_block_is_cut_in_halves_nothing_is_lost_or_doubled(mutations: list[bytes], random: Any) -> None:
    all_lines = [*lines(range(150)), *mutations]
    random.shuffle(all_lines)
    data = b"".join(all_lines)
    wanted = one_by_one(data, 0)
    rows = wanted.attempts.to_pylist() if wanted.attempts is not None else []
    assert together(data) == (rows, list(wanted.bad), wanted.others)


# Packed segments


def test_a_packed_segment_is_read_with_offsets_in_its_text(tmp_path: Path) -> None:
    path = segment(tmp_path, [line(0), b"half\n", line(1)], packed=True)
    parts = list(checked(SegmentPiece(0, str(path), 0, None)))
    assert [(bad.offset, bad.length) for part in parts for bad in part.bad] == [(len(line(0)), 4)]
    assert sum(len(part.attempts) for part in parts if part.attempts is not None) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "no gzip", "empty behind", "garbage behind"])
def test_a_packed_segment_that_is_not_whole_is_quarantined_as_a_whole(tmp_path: Path, damage: str) -> None:
    path = segment(tmp_path, lines(range(1000)), packed=True)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x40
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "flipped": bytes(flipped),
            "no gzip": b"".join(lines(range(3))),
            "empty behind": whole + gzip.compress(b"")[:-4],
            "garbage behind": whole + b"garbage",
        }[damage]
    )
    [part] = checked(SegmentPiece(0, str(path), 0, None))
    [bad] = part.bad
    assert part.attempts is None
    assert (bad.offset, bad.length) == (0, path.stat().st_size)
    assert "no whole .gz" in bad.reason


def test_a_packed_segment_without_a_line_holds_nothing(tmp_path: Path) -> None:
    assert list(checked(SegmentPiece(0, str(segment(tmp_path, b"", packed=True)), 0, None))) == []
