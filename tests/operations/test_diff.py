# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Two letters are compared: their fields, headers and bodies; secrets stay hidden, and large bodies end in time."""

from __future__ import annotations

import time

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.operations import Store
from redeliver_mw.operations.diff import MOST_BYTES, Difference, diff
from tests.operations.taking import put
from tests.pipeline.letters import letter


def pair(store: Store, first: bytes, second: bytes) -> None:
    put(store, letter(first, {"tenant": "a"}, copy_id="one"), letter(second, {"tenant": "a"}, copy_id="two"))


def test_fields_headers_and_bodies_are_compared(store: Store) -> None:
    put(
        store,
        letter(b'{"a": 1, "b": [1, 2]}', {"tenant": "x", "only": "y"}, copy_id="one"),
        letter(b'{"a": 2, "b": [1, 2]}', {"tenant": "z", "redeliver_error_type": "KeyError"}, copy_id="two"),
    )
    found = diff(store, "one", "two")
    assert found.fields == [Difference("error_type", "ValueError", "KeyError")]
    assert [one for one in found.headers if not one.name.startswith("redeliver_")] == [
        Difference("only", "y", None),
        Difference("tenant", "x", "z"),
    ]
    assert found.form == "json"
    assert [line for line in found.body if line[:1] in "+-"] == [
        "--- one",
        "+++ two",
        '-  "a": 1,',
        '+  "a": 2,',
    ]
    assert not found.equal


def test_the_form_is_one_that_both_bodies_have(store: Store) -> None:
    pair(store, b"text", b"\xff")
    assert diff(store, "one", "two").form == "hex"
    with pytest.raises(ConfigError, match="not UTF-8"):
        diff(store, "one", "two", "text")


def test_equal_bodies_and_those_that_differ_in_a_secret_alone(file_store: Store) -> None:
    pair(file_store, b"password=hunter2", b"password=hunter3")
    found = diff(file_store, "one", "two")
    assert (found.body, found.hidden, found.equal) == ([], True, False)
    found = diff(file_store, "one", "one")
    assert (found.body, found.headers, found.equal) == ([], [], True)


@pytest.mark.parametrize("kind", ["other lines", "one line", "bytes", "beyond"])
def test_large_bodies_are_compared_in_bounded_time(kind: str, file_store: Store) -> None:
    bodies = {
        "other lines": (b"a\nb\n" * 500_000, b"b\nc\n" * 500_000),
        "one line": (b"x" * 4_000_000, b"y" * 4_000_000),
        "bytes": (bytes(range(256)) * 20_000, bytes(range(255, -1, -1)) * 20_000),
        "beyond": (b"x\n" * MOST_BYTES + b"1", b"x\n" * MOST_BYTES + b"2"),
    }
    pair(file_store, *bodies[kind])
    began = time.process_time()
    found = diff(file_store, "one", "two")
    assert time.process_time() - began < 10
    assert found.cut == MOST_BYTES
    assert found.rest_differs
    assert bool(found.body) == (kind != "beyond")
