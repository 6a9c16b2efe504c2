# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests headers as `dead show` prints them: values of a driver's own classes are told as what they are."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import proton
import pytest

from redeliver_mw.cli.output import headers_shown, print_json, when

INT = proton.Data.INT
import_module("redeliver_proton")  # it registers the types of its driver


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (proton.int32(8), 8),
        (proton.int32(-8), -8),
        (proton.ulong(8), 8),
        (proton.ubyte(0), 0),
        (proton.float32(0.5), 0.5),
        (proton.float32(float("nan")), "nan"),
        (proton.symbol("s"), "s"),
        (proton.char("c"), "c"),
        (proton.timestamp(1234), 1234),
        (proton.Array(proton.UNDESCRIBED, INT, proton.int32(1), proton.int32(-2)), [1, -2]),
        (proton.Described(proton.ulong(1), proton.int32(3)), 3),
        ([proton.ulong(9), (1, proton.ubyte(2))], [9, [1, 2]]),
        ({proton.int32(8): proton.int32(9), proton.symbol("k"): [proton.ulong(1)]}, {"8": 9, "k": [1]}),
        (True, True),
    ],
)
def test_a_value_of_amqp_is_shown_without_its_class(value: Any, shown: Any) -> None:
    found = headers_shown({"x": value})["x"]
    assert found == shown
    assert type(found) is type(shown)
    assert json.loads(json.dumps(found)) == shown
    assert "(" not in str(found)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, ""),
        (0.0, "1970-01-01 00:00:00Z"),
        (-1.0, "1969-12-31 23:59:59Z"),
        (253_402_300_799.0, "9999-12-31 23:59:59Z"),
        (253_402_300_799.999999, "after 9999"),  # a float that is the year 10000
        (9.2e15, "after 9999"),
        (1e300, "after 9999"),
        (-9.2e15, "before the year 1"),
        (float("inf"), "after 9999"),
        (float("nan"), "no time"),
    ],
)
def test_times_at_every_end_of_their_range_are_printed(seconds: float | None, shown: str) -> None:
    assert when(seconds) == shown


def test_what_is_nested_under_a_telling_name_is_not_shown() -> None:
    headers = {
        "credentials": {"user": "me", "pin": 4711, "more": [{"raw": b"hunter2"}, 0.5], "on": True, "none": None},
        "passwords": ["hunter2", "with two words"],
        "settings": {"db": {"password": {"old": "hunter2", "new": ["hunter3"]}, "port": 5432}},
        "trace": {"steps": [{"api_key": 99, "name": "one"}]},
        "empty": {"secret": ""},
    }
    assert headers_shown(headers) == {
        "credentials": {"user": "***", "pin": "***", "more": [{"raw": "***"}, "***"], "on": True, "none": None},
        "passwords": ["***", "***"],
        "settings": {"db": {"password": {"old": "***", "new": ["***"]}, "port": 5432}},
        "trace": {"steps": [{"api_key": "***", "name": "one"}]},
        "empty": {"secret": ""},
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"password": {"old": "hunter2", "new": ["x}"]}, "port": 1}', '{"password": ***, "port": 1}'),
        ("{'secret': ['hunter2', 'it}s'], 'port': 1}", "{'secret': ***, 'port': 1}"),
        ('{"password": {}, "tokens": [], "a": [1]}', '{"password": {}, "tokens": [], "a": [1]}'),
        ('{"credentials": {"pw": "hunter2"', '{"credentials": ***'),
    ],
)
def test_a_text_of_json_shows_nothing_that_is_nested_under_a_telling_name(text: str, shown: str) -> None:
    assert headers_shown({"x": text}) == {"x": shown}


HOSTILE = "\x1b[2J\x9b2J\x7f\u202e\udcff\ud800."


def test_json_is_printed_without_what_steers_a_terminal_and_reads_back_as_it_was(capfd: Any) -> None:
    print_json({HOSTILE: [HOSTILE, "grüße"]})
    out = capfd.readouterr().out
    assert out.isprintable() or out.rstrip("\n").isprintable()
    assert "grüße" in out
    assert json.loads(out) == {HOSTILE: [HOSTILE, "grüße"]}


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"password=hunter2": "x"}, {"password=***": "***"}),
        ({"a": {"api_key: hunter2": "x"}}, {"a": {"api_key: ***": "***"}}),
        ({"password": '{"x": "hunter2"}'}, {"password": "***"}),
        ({"password": ""}, {"password": ""}),
        ({"passwords_seen": 7}, {"passwords_seen": "***"}),
    ],
)
def test_a_secret_is_hidden_in_a_name_and_all_of_it_behind_a_telling_name(headers: Any, shown: Any) -> None:
    assert headers_shown(headers) == shown
