# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Edits a letter as a text: what is not changed stays as it is, to the last byte."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.dead_letters import pack, unpack
from redeliver_mw.errors import ConfigError
from redeliver_mw.operations import Store, show
from redeliver_mw.operations.editing import OpenedLetter, is_json_no_longer, open_letter, read_edit
from redeliver_mw.operations.listing import ShownLetter, StoredLetter
from redeliver_mw.operations.replay_plan import LetterEdit
from tests.operations.taking import put
from tests.pipeline.letters import letter


class Bench:
    """Puts letters into a store, and opens them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, body: bytes, headers: dict[str, Any] | None = None) -> OpenedLetter:
        one = letter(body, headers, copy_id=f"copy-{body[:8].hex()}")
        put(self._store, one)
        shown = show(self._store, f"copy-{body[:8].hex()}")
        assert shown.packed == pack(one)
        return open_letter(shown, one.reader)


@pytest.fixture
def bench(file_store: Store) -> Bench:
    return Bench(file_store)


def edited(one: OpenedLetter, old: str, new: str) -> LetterEdit:
    text = one.text.decode()
    assert old in text
    found = read_edit(one, text.replace(old, new).encode(), "there")
    assert found is not None
    return found


def test_headers_and_body_can_be_changed_added_and_removed(bench: Bench) -> None:
    one = bench.open(b'{"total": 0}', {"tenant": "acme", "tries": 3, "odd name:": "x"})
    assert "redeliver_lineage" not in one.text.decode()
    assert edited(one, '"total": 0', '"total": 9').body == b'{"total": 9}'
    assert edited(one, 'tenant: "acme"', 'tenant: "other"\nx-new: 7').headers == {"tenant": "other", "x-new": 7}
    assert edited(one, 'tenant: "acme"\n', "").headers == {"tenant": None}
    assert edited(one, '"odd name:": "x"', '"odd name:": "y"').headers == {"odd name:": "y"}
    assert edited(one, 'tenant: "acme"', "tenant: true").body is None


def test_nothing_changed_is_no_edit(bench: Bench) -> None:
    one = bench.open(b"line\r\n\r\nline\n", {"tenant": "acme"})
    assert read_edit(one, one.text) is None
    assert read_edit(one, one.text.replace(b"# letter", b"# mine")) is None
    assert one.text.endswith(b"line\n\n")


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_editor_that_ends_the_last_line_or_not_adds_nothing(bench: Bench, end: bytes) -> None:
    one = bench.open(b"body", {})
    found = read_edit(one, one.text.removesuffix(b"body\n") + b"other" + end)
    assert found is not None
    assert found.body == b"other"


def test_a_body_that_is_no_text_is_offered_as_hex(bench: Bench) -> None:
    one = bench.open(b"\x00\xff" * 20, {})
    assert one.is_hex
    assert "as hex" in one.text.decode()
    assert read_edit(one, one.text) is None
    begun = b"\x00\xff" * 20
    lines = one.text.decode().replace("00 ff", "00 fe", 1)
    found = read_edit(one, lines.encode())
    assert found is not None
    assert found.body == b"\x00\xfe" + begun[2:]


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ('tenant: "acme"', "tenant", "line 4 is no header"),
        ('tenant: "acme"', "tenant: acme", "line 4 is no header"),
        ('tenant: "acme"', '"tenant: "acme"', "line 4 is no header"),
        ('tenant: "acme"', ': "acme"', "line 4 is no header"),
        ('tenant: "acme"', 'tenant: "a"\ntenant: "b"', "a second time"),
        ('tenant: "acme"', 'redeliver_lineage: "mine"', "is ours"),
        ('tenant: "acme"', 'tenant: ["a"]', "a header is a name and a text"),
        ("\n\nbody", "\nbody", "no empty line"),
    ],
)
def test_a_text_that_is_no_letter_is_refused_with_its_place(bench: Bench, old: str, new: str, what: str) -> None:
    one = bench.open(b"body", {"tenant": "acme"})
    with pytest.raises(ConfigError, match=what) as caught:
        edited(one, old, new)
    assert (caught.value.where, caught.value.code) == ("there", "letter-edit")


def test_a_body_in_hex_must_stay_hex(bench: Bench) -> None:
    one = bench.open(b"\xff\xfe", {})
    with pytest.raises(ConfigError, match="no hex"):
        edited(one, "ff fe", "ff fe 0")


def test_a_body_that_was_json_and_is_none_after_the_edit_is_noticed(bench: Bench) -> None:
    one = bench.open(b'{"a": 1}', {})
    assert is_json_no_longer(one, edited(one, "1}", "1"))
    assert not is_json_no_longer(one, edited(one, "1}", "2}"))
    assert not is_json_no_longer(bench.open(b"text", {}), LetterEdit("x", "y", b"{"))


@given(
    body=st.binary(max_size=80) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")),
    headers=st.dictionaries(st.text(min_size=1, max_size=12), st.text(max_size=20), max_size=4),
)
def test_any_letter_goes_through_the_text_unchanged(body: bytes, headers: dict[str, str]) -> None:
    known = {f"h{name}": value.encode("utf-8", "replace").decode() for name, value in headers.items()}
    known = {name.encode("utf-8", "replace").decode(): value for name, value in known.items()}
    one = letter(body, known, copy_id="copy")
    opened = open_letter(ShownLetter(cast(StoredLetter, _Row()), {}, pack(one)), one.reader)
    assert read_edit(opened, opened.text) is None
    assert unpack(pack(one), one.reader).body == body


class _Row:
    """Has what an editor needs to know of a letter in the store."""

    dl_id, digest, broker, queue, source, problem = "copy", "0" * 64, "host", "dlq", "queue:orders", ""
    content_type = message_key = message_id = reason = error_type = fingerprint = None
    died_us = failures = generation = 0
