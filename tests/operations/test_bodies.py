# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows bodies as lines: JSON that is laid out anew and changed in nothing, text, and hex."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.errors import ConfigError
from redeliver_mw.operations.bodies import form_of, laid_out, text_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON, st.booleans())
def test_json_that_is_laid_out_means_the_same(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert json.loads(laid_out(text)) == value
    assert laid_out(laid_out(text)) == laid_out(text)


@given(JSON)
def test_json_is_laid_out_as_python_does_it(value: Any) -> None:
    assert laid_out(json.dumps(value)) == json.dumps(value, indent=2)


def test_numbers_and_names_that_come_twice_stay_as_they_were_sent() -> None:
    body = b'{"a": 1.50, "a": 1e400, "b": ' + b"9" * 5000 + b', "c": "\\u00e9", "d": {}, "e": [ ]}'
    assert form_of(body) == "json"
    lines = text_of(body, "json").splitlines()
    assert lines[1:3] == ['  "a": 1.50,', '  "a": 1e400,']
    assert lines[4:] == ['  "c": "\\u00e9",', '  "d": {},', '  "e": []', "}"]


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (b"", "text"),
        (b"17", "text"),
        (b'"a"', "text"),
        (b" [1]", "json"),
        (b"{", "text"),
        (b"[" * 100_000, "text"),
        (b"\xff", "hex"),
        (b"\xef\xbb\xbf{}", "text"),
        ("é".encode("latin-1"), "hex"),
    ],
)
def test_the_form_suits_the_body(body: bytes, form: str) -> None:
    assert form_of(body) == form
    text_of(body, form_of(body))


def test_hex_shows_places_bytes_and_letters() -> None:
    first, second = text_of(b"0123456789abcde\n\x1b!", "hex").splitlines()
    assert first == "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 0a  0123456789abcde."
    assert second == f"00000010  {'1b 21':<47}  .!"


@pytest.mark.parametrize(("body", "form"), [(b"\xff", "text"), (b"\xff", "json"), (b"x", "json")])
def test_a_form_that_a_body_has_not_is_refused(body: bytes, form: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        text_of(body, form)
    assert caught.value.where == "--body"
