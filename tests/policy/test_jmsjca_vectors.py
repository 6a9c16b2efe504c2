# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the vectors J1 to J12 of the JMSJCA redelivery string, each with where it comes from.

`seed` is the user's manual. `test` is the original's own unit test of its redelivery handler. `derived` is worked out
from the original's algorithm by hand. Delays are milliseconds after failure 1, 2, 3, …
"""

from __future__ import annotations

import pytest

from redeliver_mw.errors import PolicyError
from redeliver_mw.message import Destination
from redeliver_mw.policy import DeadLetter, PolicyMap, Redeliver
from redeliver_mw.policy.formats.jmsjca.reader import JmsjcaError, read, read_map
from redeliver_mw.policy.formats.jmsjca.writer import write

DEFAULT = "3:25; 5:50; 10:100; 20:1000; 50:5000"


@pytest.mark.parametrize(
    ("text", "delays", "dead"),
    [
        pytest.param(
            DEFAULT,
            [0] * 2 + [25] * 2 + [50] * 5 + [100] * 10 + [1000] * 30 + [5000] * 51,
            None,
            id="J1 derived: the default",
        ),
        pytest.param(
            "5:1000; 10:5000; 50:move(queue:mydlq)",
            [0] * 4 + [1000] * 5 + [5000] * 40,
            "mydlq",
            id="J2 derived: fifty calls, 205 s",
        ),
        pytest.param(
            "5:10; 6:15; 10:30; 15:move(queue:a)", [0] * 4 + [10] + [15] * 4 + [30] * 5, "a", id="J4 test: 220 ms"
        ),
        pytest.param(
            "5:10; 6:10000; 10:30; 15:move(queue:a)",
            [0] * 4 + [10] + [10_000] * 4 + [30] * 5,
            "a",
            id="J5 test: two pieces of 5000 are one delay of 10000",
        ),
        pytest.param(
            "5:10; 6:6000; 10:30; 15:move(queue:a)",
            [0] * 4 + [10] + [6000] * 4 + [30] * 5,
            "a",
            id="J6 test: 5000 and 1000 are one delay of 6000",
        ),
        pytest.param(
            "5:11; 6:15; 10:35; 16:move(queue:a)",
            [0] * 4 + [11] + [15] * 4 + [35] * 6,
            "a",
            id="J7 test: the string that the handler puts in force, 281 ms",
        ),
    ],
)
@pytest.mark.parametrize("written", [False, True], ids=["read", "written and read"])
def test_delays_and_end_are_those_of_the_vector(text: str, delays: list[int], dead: str | None, written: bool) -> None:
    policy = read(text)
    if written:  # not as it was: from the model
        policy = read(write(PolicyMap(None, policy.replace(act="failure"))).text)
    for failures, delay in enumerate(delays, 1):
        assert policy.decide(failures) == Redeliver(delay / 1000, delay / 1000, delay / 1000)
    end = policy.decide(len(delays) + 1)
    if dead is None:
        assert end == Redeliver(5, 5, 5)
    else:
        assert isinstance(end, DeadLetter)
        assert [str(target) for target in end.targets] == [f"queue:{dead}"]


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        pytest.param("5:1000; 10:5000; 50:move(queue:dlq$error)", "Queue1", "dlqQueue1error", id="J3 seed"),
        pytest.param("600: move(queue:dlq($))", "myQueue", "dlq(myQueue)", id="J8 test"),
        pytest.param(
            "600: move(queue:dlq($))", "lookup://jms/myQueue", "lookup://jms/dlq(myQueue)", id="J8 test, path"
        ),
        pytest.param("600: move(queue:dlq($))", "lookup://myQueue", "lookup://dlq(myQueue)", id="J8 test, lookup"),
        pytest.param("600: move(queue:dlq($-$))", "lookup://myQueue", "lookup://dlq(myQueue-myQueue)", id="J9 test"),
    ],
)
def test_names_are_those_of_the_vector(text: str, source: str, target: str) -> None:
    for policy in (read(text), read(write(PolicyMap(None, read(text).replace(act="failure"))).text)):
        assert policy.targets[0].resolve(Destination(source)) == Destination(target)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, id=f"J10 {'derived' if text.startswith('5') else 'test'}: {text!r}")
        for text in (
            "",
            "1:0",
            "1:10;",
            "1:10;2:20;",
            "1:10;2:20;30:move(same:dname)",
            "1:10;2:20;30:delete",
            "1:10; 2: 20 ; 3:500",
            "50000000:1",
        )
    ],
)
def test_what_is_valid_there_is_read_and_written_back_as_it_was(text: str) -> None:
    assert write(read_map(text)).text == text
    again = read(write(PolicyMap(None, read(text).replace(act="failure"))).text)
    for failures in range(1, 101):
        assert again.decide(failures) == read(text).decide(failures)
    assert again.on_arrival(10**8) == read(text).on_arrival(10**8)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(
            pytest.param(text, "E102", id=f"J11 test: {text!r}")
            for text in ("1;", ":1;", "x;", "1:1052:20;", "1::10;20:49;", "1:10;52:", "1:10;:20")
        ),
        *(
            pytest.param(text, "E104", id=f"J11 test: {text!r}")
            for text in ("5:move(queue)", "5:move(queue:)", "5:move(same:)")
        ),
        *(
            pytest.param(text, code, id=f"J12 derived: {text!r}")
            for text, code in (
                ("0:10", "E111"),
                ("50000001:1", "E112"),
                ("5:1;5:2", "E107"),
                ("5:1;4:2", "E106"),
                ("5:delete;6:1", "E105"),
                ("5:move(queue:a);6:1", "E103"),
                (" 1:10", "E102"),
                ("1:10 ", "E102"),
                ("1:  10", "E102"),
                ("5:MOVE(queue:a)", "E102"),
                (";5:10", "E102"),
                ("5:move( queue:a)", "E104"),
            )
        ),
    ],
)
def test_what_is_invalid_there_is_refused_with_its_code(text: str, code: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read(text)
    assert isinstance(caught.value, JmsjcaError)
    assert caught.value.code == code
