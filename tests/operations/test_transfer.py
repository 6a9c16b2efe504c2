# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Exports letters to lines and imports them again, bit for bit and once; and tests what is said of wrong lines."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from io import BytesIO
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.operations import Selection, Store, counts, last_operations, show
from redeliver_mw.operations.archive import plan_archive, run_archive
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.expire import plan_expire, run_expire
from redeliver_mw.operations.export import Exported, export
from redeliver_mw.operations.import_ import Imported, import_letters
from redeliver_mw.operations.letter_files import WholeFile, checked_file
from redeliver_mw.operations.letter_lines import read_line
from redeliver_mw.operations.letters import rows_of_own
from redeliver_mw.operations.tables import bodies, headers, letters, own_headers
from tests.operations.taking import ids, packed, put, rows
from tests.pipeline.letters import letter

ODD = [
    letter(b"", copy_id="empty"),
    letter(bytes(range(256)) * 20, {"n": 5, "b": b"\x00\xff", "t": {"a": [1, None, True]}}, copy_id="odd"),
    letter(b"\x1b[2J", {"x\x1b[2J": "y\u202e", "f": 1.5}, message_id="m\x1b"),
    letter(b"equal", message_id="m"),
    letter(b"equal", message_id="m"),
    letter(
        b"own", {"redeliver_x": 1e300, "redeliver_y": 2**62, "redeliver_z": '"\\é😀', "redeliver_Z": 1}, copy_id="own"
    ),
    letter(b"many", {f"h{n}": "v" * 50 for n in range(1500)}, copy_id="many"),
]
KEPT = [column for column in letters.c if column.name not in ("letter_id", "changed_us", "batch_id", "again_of")]


def exported(store: Store, **wanted: Any) -> bytes:
    out = BytesIO()
    export(store, out.write, Selection(**wanted))
    return out.getvalue()


def imported(store: Store, text: bytes, **given: Any) -> Imported:
    return import_letters(store, BytesIO(text), name="letters.jsonl", **given)


def everything(store: Store) -> list[Any]:
    numbers = {row.letter_id: n for n, row in enumerate(rows(store, select(letters).order_by(letters.c.letter_id)))}
    of_letters = [tuple(row) for row in rows(store, select(*KEPT).order_by(letters.c.letter_id))]
    texts = rows(store, select(headers).order_by(headers.c.letter_id, headers.c.name))
    own = rows(store, select(own_headers).order_by(own_headers.c.letter_id))
    by_name = itemgetter("name")
    return [
        of_letters,
        packed(store),
        [(numbers[row.letter_id], *row[1:]) for row in texts],
        [(numbers[row.letter_id], sorted(rows_of_own(row.texts, row.numbers), key=by_name)) for row in own],
    ]


@pytest.fixture
def other(tmp_path: Path) -> Any:
    """Yield another store, which is empty."""
    with Store(f"sqlite:///{tmp_path}/other.db") as made:
        yield made


def test_what_is_exported_is_imported_bit_for_bit(store: Store, other: Store) -> None:
    put(store, *ODD)
    text = exported(store)
    assert text.isascii()
    assert b"\x1b" not in text
    done = imported(other, text)
    assert (done.added, done.renamed, done.wrong, done.whole) == (len(ODD), 0, 0, True)
    assert everything(other) == everything(store)
    assert exported(other) == text
    [entry] = [one for one in last_entries(other) if one.what == "import"]
    assert (entry.outcome, entry.count, entry.filter) == ("success", len(ODD), "letters.jsonl")


def test_an_import_that_is_repeated_adds_nothing(store: Store) -> None:
    put(store, *ODD)
    text = exported(store)
    before = everything(store)
    run_archive(store, plan_archive(store, Selection(ids=["odd"])).operation_id)
    done = imported(store, text + text)
    assert (done.added, dict(done.again)) == (0, {"waiting": 2 * len(ODD) - 2, "archived": 2})
    assert counts(store)["archived"] == 1
    assert everything(store)[1:] == before[1:]


def test_letters_of_any_state_wait_after_their_import(store: Store, other: Store) -> None:
    put(store, *ODD)
    run_archive(store, plan_archive(store, Selection()).operation_id)
    assert exported(store) == b""
    assert imported(other, exported(store, state=None)).added == len(ODD)
    assert counts(other) == {"waiting": len(ODD)}


def test_a_letter_whose_id_another_one_has_gets_another_id_once(store: Store, other: Store) -> None:
    put(store, letter(b"mine", message_id="m", content_type="a"))
    [name] = ids(store)
    line = json.loads(exported(store))
    line["body"] = base64.b64encode(b"theirs").decode()
    line["digest"] = hashlib.sha256(base64.b64decode(line["head"]) + b"theirs").hexdigest()
    text = json.dumps(line).encode() + b"\n"
    for added in (1, 0, 0):
        done = imported(store, text)
        assert (done.added, done.renamed) == (added, added)
    assert ids(store) == [name, f"{name}~2"]
    assert show(store, f"{name}~2").packed.body == b"theirs"
    assert imported(store, exported(store)).added == 0


def test_an_import_gives_back_a_body_that_was_removed(store: Store) -> None:
    put(store, *ODD)
    text = exported(store)
    run_archive(store, plan_archive(store, Selection(ids=["odd", "many"])).operation_id)
    with store.writing() as connection:
        connection.execute(letters.update().values(changed_us=1))
    run_expire(store, plan_expire(store, 60, only_bodies=True).operation_id)
    out = BytesIO()
    assert export(store, out.write, Selection(state=None)) == Exported(len(ODD) - 2, 2, False)
    done = imported(store, text)
    assert (done.added, done.completed) == (0, 2)
    assert show(store, "odd").packed.body == ODD[1].body


def test_wrong_lines_are_left_out_and_named(store: Store, other: Store) -> None:
    put(store, *ODD[:3])
    first, second, third = exported(store).splitlines(keepends=True)
    text = first + b"nonsense\n" + second + b"\n" + b'{"a": 1}\n' + third[:-40]
    done = imported(other, text)
    assert (done.added, done.wrong, done.whole) == (2, 3, False)
    assert [str(error) for error in done.errors] == [
        "letters.jsonl: line 2: it is no JSON. Export the letter again [letter-line]",
        "letters.jsonl: line 5: it is no letter: it has no 'redeliver_letter'. Import what `redeliver dead export` has"
        " written [letter-line]",
        "letters.jsonl: line 6: it is no JSON; it seems to be cut off. Export the letter again [letter-line]",
    ]
    [operation] = last_operations(other)
    assert (operation.state, operation.done, operation.failed, operation.why) == ("done", 2, 3, "3 lines are wrong")
    assert imported(other, first + second + third).added == 1


CHANGES: list[tuple[str, Any, str]] = [
    ("redeliver_letter", 2, "its format is 2, and this release reads 1"),
    ("dl_id", "x~1", "do not belong together"),
    ("dl_id", "../etc", "do not belong together"),
    ("base_id", "y", "do not belong together"),
    ("queue", "", "its queue is no destination"),
    ("queue", None, "its queue is no text"),
    ("broker", "a\0b", "its broker is no text"),
    ("reason", "\ud800", "its reason is no text"),
    ("source", "q" * 2001, "its source is longer than 2000 bytes"),
    ("failures", 1.5, "its failures is no whole number"),
    ("failures", True, "its failures is no whole number"),
    ("died_us", 2**63, "its died_us is no whole number, or too large"),
    ("digest", "0" * 64, "do not have its digest"),
    ("head", "ü", "its head is no base64"),
    ("body", None, "its body is no base64"),
    ("redelivered", -1, "its redelivered is neither 0 nor 1"),
    ("known_by", "me", "its known_by is none of"),
    ("headers", {}, "its headers are no list"),
    ("headers", [["a", "b"]], "no list of a name, a text and a number"),
    ("headers", [["a", "b", "c"]], "a number of its headers is none"),
    ("headers", [["a", "b", 10**400]], "a number of its headers is none"),
    ("headers", [["a" * 256, "b", None]], "too long"),
    ("headers", [["a", "b", None]] * 2, "have the same name"),
    ("headers", [[f"h{n}", "", None] for n in range(1001)], "no list of at most 1000"),
]


@pytest.mark.parametrize(("name", "value", "what"), CHANGES)
def test_a_line_that_says_something_impossible_is_refused(name: str, value: Any, what: str, file_store: Store) -> None:
    put(file_store, letter(b"body", {"a": "b"}, copy_id="c"))
    line = json.loads(exported(file_store)) | {name: value}
    with pytest.raises(ConfigError) as caught:
        read_line(json.dumps(line).encode() + b"\n", "file: line 7")
    assert what in str(caught.value)
    assert str(caught.value).startswith("file: line 7: ")
    assert caught.value.code == "letter-line"


@example(b'{"redeliver_discard": "')
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_an_import_that_ends_in_good_order(file_store: Store, text: bytes) -> None:
    done = imported(file_store, text)
    assert done.added == 0
    assert done.wrong == sum(1 for line in BytesIO(text) if line.strip())


def test_an_import_that_is_stopped_says_so_and_goes_on_when_it_is_repeated(store: Store, other: Store) -> None:
    put(store, *(letter(b"%d" % n, copy_id=f"copy-{n:04d}") for n in range(450)))
    text = exported(store)
    stop = threading.Event()
    told: list[int] = []

    def tell(read: int, size: int) -> None:
        told.append(read)
        stop.set()

    done = imported(other, text, stop=stop, progress=tell, size=len(text))
    assert (done.added, done.stopped, done.whole) == (200, True, False)
    assert last_operations(other)[0].state == "cancelled"
    assert imported(other, text).added == 250
    assert ids(other) == [f"copy-{n:04d}" for n in range(450)]


def test_an_export_that_is_stopped_says_so(file_store: Store) -> None:
    put(file_store, *(letter(b"%d" % n, copy_id=f"copy-{n:04d}") for n in range(450)))
    stop = threading.Event()
    done = export(file_store, BytesIO().write, stop=stop, progress=lambda *_: stop.set())
    assert (done.letters, done.stopped) == (200, True)


def refuse(_: None) -> None:
    raise StoreError("no", code="store-refuses")


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    with pytest.raises(StoreError), WholeFile(path) as file:
        refuse(file.write(b"half"))
    assert list(tmp_path.iterdir()) == []
    with WholeFile(path) as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert (path.stat().st_mode & 0o777, list(tmp_path.iterdir())) == (0o600, [path])
    with pytest.raises(ConfigError, match="it is there already"):
        checked_file(path)
    with pytest.raises(ConfigError, match="it is there already"), WholeFile(path) as file:
        file.write(b"other")
    assert path.read_bytes() == b"all"


def test_a_store_whose_file_is_gone_in_the_middle_is_said_and_what_was_stored_is_there(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/source.db") as source:
        put(source, *(letter(b"%d" % n, copy_id=f"copy-{n:04d}") for n in range(450)))
        text = exported(source)
    file = tmp_path / "target.db"
    with Store(f"sqlite:///{file}") as target:

        def tell(read: int, size: int) -> None:
            file.rename(tmp_path / "away.db")

        with pytest.raises(StoreError) as caught:
            imported(target, text, progress=tell)
        assert caught.value.code == "store-file-missing"
        (tmp_path / "away.db").rename(file)
        assert len(ids(target)) == 200
        assert imported(target, text).added == 250


def test_a_body_of_many_megabytes_goes_through(file_store: Store, other: Store) -> None:
    body = bytes(range(256)) * (32 * 2**20 // 256)
    put(file_store, letter(body, copy_id="large"), letter(b"small", copy_id="small"))
    assert imported(other, exported(file_store)).added == 2
    with other.reading() as connection:
        assert connection.execute(select(bodies.c.body).order_by(bodies.c.letter_id)).scalars().first() == body
