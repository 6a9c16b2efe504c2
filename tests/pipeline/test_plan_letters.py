# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what happens to one letter in a plan, without Spark: edits, the user's transform, and what either may raise."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.dead_letters.edits.letter import Transform
from redeliver_mw.dead_letters.edits.user_functions import load_function
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Letter
from redeliver_mw.pipeline.plans.header_edits import parse_edits
from redeliver_mw.pipeline.plans.letter_transform import LetterTransform
from tests.pipeline.drained import letter

BODY = b'{"currency":null,"lines":[{"sku":"a","n":1},{"sku":"b","n":2}],"total":12.5}'


def made(transform: Transform | None = None, *edits: str, unset: tuple[str, ...] = (), **given: Any) -> dict[str, Any]:
    row = letter("one", **{"body": BODY, "headers": {"tenant": "acme", "trace": "t1"}} | given)
    return LetterTransform(parse_edits(edits, unset), transform).made_of(row)


def test_a_letter_that_nobody_changes_has_no_edits_and_no_new_body() -> None:
    assert made(lambda one: one) == {
        "dl_id": "one",
        "target": "orders",
        "body": None,
        "body_sha256": None,
        "edited_body": False,
        "edits": None,
        "why": None,
        "detail": None,
    }


def test_a_transform_sees_what_the_letter_says_and_may_change_its_body_headers_and_target() -> None:
    def repair(one: Letter) -> Letter:
        assert (one.destination, one.failures, one.error_type) == ("orders", 7, "TimeoutError")
        assert json.loads(one.text) == one.json()
        return one.changed(
            json=one.json() | {"currency": "EUR"}, headers={"trace": None, "repaired": 1}, target="queue:repaired"
        )

    row = made(repair)
    assert json.loads(row["body"])["currency"] == "EUR"
    assert row["body_sha256"] == hashlib.sha256(row["body"]).hexdigest()
    assert json.loads(row["edits"]) == {"headers": {"trace": None, "repaired": 1}}
    assert (row["target"], row["edited_body"], row["why"]) == ("repaired", True, None)


def test_a_letter_for_which_the_transform_gives_none_is_left_out() -> None:
    row = made(lambda one: None)
    assert (row["why"], row["detail"]) == ("transform", None)


async def _async(one: Letter) -> Letter:
    return one


def _exits(one: Letter) -> Letter:
    sys.exit("enough")


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (lambda one: one.json()["nothing"], "KeyError: 'nothing'"),
        (_exits, "SystemExit: enough"),
        (lambda one: {"a": 1}, "the transform gave dict, and not the letter or None"),
        (lambda one: one.changed(target="topic:prices"), "all of them would get it again"),
        (lambda one: one.changed(target=""), "names no destination"),
        (lambda one: one.changed(headers={"redeliver_generation": "0"}), "redeliver_generation is ours"),
        (lambda one: one.changed(headers={"a": [1]}), "a header is a name and a text, a number or a truth"),
        (lambda one: one.changed(json=float("nan")), "ValueError"),
        (lambda one: one.changed(body=3), "the body is int, and not bytes"),
        (_async, "the transform is async"),
    ],
)
def test_what_a_transform_raises_is_reported_and_the_letter_left_out(transform: Transform, told: str) -> None:
    row = made(transform)
    assert row["why"] == "failed"
    assert told in row["detail"]
    assert row["body"] is None


def test_a_body_that_is_not_utf_8_fails_a_transform_that_reads_it_as_text_and_no_other() -> None:
    assert made(lambda one: one.changed(json=one.json()), body=b"\xff{}")["why"] == "failed"
    assert made(lambda one: one.changed(headers={"a": "b"}), body=b"\xff{}")["why"] is None


def test_a_secret_in_what_a_transform_raises_is_not_reported() -> None:
    def fail(one: Letter) -> Letter:
        raise ValueError("cannot reach amqp://guest:hunter2@host/")

    assert "hunter2" not in made(fail)["detail"]


@pytest.mark.parametrize(
    ("edit", "path", "value"),
    [
        ("body.currency=EUR", ("currency",), "EUR"),
        ("body.total=0", ("total",), 0),
        ("body.total=null", ("total",), None),
        ('body.zip="01234"', ("zip",), "01234"),
        ("body.lines.1.n=5", ("lines", 1, "n"), 5),
        ('body.lines.0={"sku":"c"}', ("lines", 0), {"sku": "c"}),
        ("body.note=a=b", ("note",), "a=b"),
    ],
)
def test_an_edit_sets_one_place_in_a_json_body_and_leaves_the_others(
    edit: str, path: tuple[str | int, ...], value: Any
) -> None:
    expected = json.loads(BODY)
    here: Any = expected
    for name in path[:-1]:
        here = here[name]
    here[path[-1]] = value
    assert json.loads(made(None, edit)["body"]) == expected


def test_edits_set_and_remove_headers_and_the_transform_sees_them() -> None:
    seen: list[Letter] = []

    def look(one: Letter) -> Letter:
        seen.append(one)
        return one

    row = made(look, "header.tenant=other", "header.note=", "to=repaired", unset=("header.trace", "body.total"))
    assert seen[0].headers == {"tenant": "other", "note": ""}
    assert json.loads(row["edits"]) == {"headers": {"trace": None, "tenant": "other", "note": ""}}
    assert "total" not in json.loads(row["body"])
    assert row["target"] == "repaired"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"plain text", "no JSON"),
        (b'"text"', "body is no JSON object or list"),
        (b"\xff", "not UTF-8, at byte 0"),
        (b'{"lines": {}, "x": 0.12345678901234567890123}', "cannot be written again exactly"),
    ],
)
def test_a_body_that_an_edit_does_not_fit_leaves_its_letter_out(body: bytes, told: str) -> None:
    row = made(None, "body.currency=EUR", body=body)
    assert row["why"] == "failed"
    assert told in row["detail"]


@given(
    st.dictionaries(
        st.text(min_size=1),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3),
            max_leaves=5,
        ),
    )
)
def test_an_edit_of_a_header_never_touches_the_body_and_one_of_the_body_only_its_own_name(body: dict[str, Any]) -> None:
    given = json.dumps(body).encode()
    assert made(None, "header.a=b", body=given)["body"] is None
    row = made(None, "body.currency=EUR", body=given)
    assert json.loads(row["body"]) == body | {"currency": "EUR"}


@pytest.mark.parametrize(
    "edit", ["currency=EUR", "body=1", "body.=1", "body.a..b=1", "header.=x", "body.a", "to=", "to=topic:prices"]
)
def test_an_edit_that_names_no_place_is_refused_with_the_grammar(edit: str) -> None:
    with pytest.raises(ConfigError, match=r"header\.NAME=VALUE, body\.PATH=VALUE or to=queue:NAME"):
        parse_edits([edit])


def test_our_own_headers_and_the_target_are_not_for_edits_to_take_away() -> None:
    with pytest.raises(ConfigError, match="redeliver_lineage is ours"):
        parse_edits(["header.redeliver_lineage=x"])
    with pytest.raises(ConfigError, match="nothing that can be removed"):
        parse_edits([], ["to"])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("repairs", "it names no function"),
        ("absent_module:repair", "no module 'absent_module'"),
        ("repairs:absent", "has no attribute 'absent'"),
        ("repairs:TABLE", "it is no function"),
        ("repairs:later", "it is async"),
        ("broken:repair", "importing it raises ZeroDivisionError"),
    ],
)
def test_a_transform_that_cannot_be_had_is_reported_before_anything_is_done(
    name: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "repairs.py").write_text("TABLE = {}\nasync def later(one): ...\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "repairs", raising=False)
    with pytest.raises(ConfigError, match=told):
        load_function(name, "--transform")
