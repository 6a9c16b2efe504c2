# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver explain: the timeline of a message that always fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from redeliver_mw.cli.explain import seconds, timeline
from redeliver_mw.cli.main import run
from redeliver_mw.policy import Backoff, Keep, RedeliveryPolicy

Capture = pytest.CaptureFixture[str]
SEED = "5:1000; 10:5000; 50:move(queue:dlq$error)"
DEFAULT = "3:25; 5:50; 10:100; 20:1000; 50:5000"


def explained(capsys: Capture, *arguments: str) -> Any:
    assert run(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_seed_example_is_printed_as_promised(capsys: Capture) -> None:
    told = explained(capsys, SEED, "--destination", "Queue1")
    rows = told.pop("timeline")
    assert told == {
        "language": "jmsjca",
        "destination": {"name": "Queue1", "kind": "queue"},
        "dead_after": 50,
        "repeats": False,
    }
    assert len(rows) == 50
    assert rows[0] == {
        "failures": 1,
        "decision": "redeliver",
        "delay_s": 0.0,
        "delay_min_s": 0.0,
        "delay_max_s": 0.0,
        "elapsed_s": 0.0,
    }
    assert [row["delay_s"] for row in rows[:-1]] == [0.0] * 4 + [1.0] * 5 + [5.0] * 40
    assert rows[-2]["elapsed_s"] == 205.0
    assert rows[-1] == {
        "failures": 50,
        "decision": "dead-letter",
        "targets": [{"kind": "queue", "name": "dlqQueue1error"}],
    }


ARMS = "dead_after = 3\nbackoff = 1\n[arms.patient]\nshare = 0.05\nbackoff = 60\n"


def test_each_arm_has_a_timeline_of_its_own(capsys: Capture) -> None:
    told = explained(capsys, ARMS)
    alone = explained(capsys, "dead_after = 3\nbackoff = 1\n")
    patient = explained(capsys, "dead_after = 3\nbackoff = 60\n")
    arms = told.pop("arms")
    assert told == alone | {"share": 0.95}
    assert arms == {"patient": {"share": 0.05} | {key: patient[key] for key in ("dead_after", "timeline", "repeats")}}


def test_each_arm_is_printed_for_people_under_its_name(capsys: Capture) -> None:
    assert run(["explain", ARMS, "--destination", "orders"]) == 0
    out = capsys.readouterr().out
    main, patient = out.split("patient (5%):\n", 1)
    assert main.startswith("main (95%):\n")
    assert "1 s" in main
    assert "1 min" not in main
    assert "1 min" in patient
    assert out.count("dead-letter to queue:DLQ.orders") == 2
    assert "main (95%): Dead after 3 failures, 2 s after the first" in out
    assert "patient (5%): Dead after 3 failures, 2 min after the first" in out


def test_beside_another_policy_main_stands_alone_and_that_is_printed(capsys: Capture) -> None:
    assert run(["explain", ARMS, "--against", "dead_after = 3\nbackoff = 1\n"]) == 0
    out = capsys.readouterr().out
    assert "They decide the same.\nNot compared: A, patient (5%) (native).\n" in out
    told = explained(capsys, "dead_after = 3\nbackoff = 2\n", "--against", ARMS)
    assert (told["first_difference"], list(told["b"]["arms"]), "arms" in told["a"]) == (1, ["patient"], False)


def test_the_key_order_is_the_promised_one(capsys: Capture) -> None:
    told = explained(capsys, SEED)
    assert list(told) == ["language", "destination", "dead_after", "timeline", "repeats"]


def test_the_example_of_the_manual_in_one_string(capsys: Capture) -> None:
    told = explained(capsys, "3:25; 5:50; 10:move(queue:dlq$error)", "--destination", "Queue1")
    delays = [row.get("delay_s") for row in told["timeline"]]
    assert delays == [0.0, 0.0, 0.025, 0.025, 0.05, 0.05, 0.05, 0.05, 0.05, None]
    assert told["timeline"][8]["elapsed_s"] == 0.3
    assert told["timeline"][9]["targets"] == [{"kind": "queue", "name": "dlqQueue1error"}]


def test_a_policy_without_end_is_cut_at_the_failures_asked_for_and_repeats(capsys: Capture) -> None:
    told = explained(capsys, DEFAULT, "--failures", "50")
    assert told["dead_after"] is None
    assert told["repeats"] is True
    assert len(told["timeline"]) == 50
    assert told["timeline"][-1]["elapsed_s"] == 36.3


def test_a_policy_with_an_end_that_is_cut_before_does_not_repeat(capsys: Capture) -> None:
    told = explained(capsys, SEED, "--failures", "7")
    assert told["repeats"] is False
    assert [row["failures"] for row in told["timeline"]] == [1, 2, 3, 4, 5, 6, 7]


def test_more_failures_than_it_can_have_end_with_the_last_decision(capsys: Capture) -> None:
    assert len(explained(capsys, SEED, "--failures", "60")["timeline"]) == 50


def test_discard_has_no_targets(capsys: Capture) -> None:
    assert explained(capsys, "2:delete")["timeline"][-1] == {"failures": 2, "decision": "discard"}


def test_same_and_kind_go_to_a_topic(capsys: Capture) -> None:
    for arguments in (["--destination", "prices", "--kind", "topic"], ["--destination", "topic:prices"]):
        told = explained(capsys, "1:move(same:$.dead)", *arguments)
        assert told["destination"] == {"name": "prices", "kind": "topic"}
        assert told["timeline"][0]["targets"] == [{"kind": "topic", "name": "prices.dead"}]


def test_without_a_destination_the_name_stays_open(capsys: Capture) -> None:
    told = explained(capsys, "1:move(queue:dlq.$)")
    assert told["destination"] == {"name": "$", "kind": "queue"}
    assert told["timeline"][0]["targets"] == [{"kind": "queue", "name": "dlq.$"}]


def test_the_table_folds_equal_delays_and_ends_with_one_line(capsys: Capture) -> None:
    assert run(["explain", SEED, "--destination", "Queue1"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines() if line.strip()]
    assert ["1-4", "redeliver", "0", "s", "0", "s"] in lines
    assert ["5-9", "redeliver", "1", "s", "5", "s"] in lines
    assert ["10-49", "redeliver", "5", "s", "3", "min", "25", "s"] in lines
    assert ["50", "dead-letter", "to", "queue:dlqQueue1error"] in lines
    last = out.splitlines()[-1]
    assert last == "Dead after 50 failures, 3 min 25 s after the first: to queue:dlqQueue1error."


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2:delete", "Dead after 2 failures, 0 s after the first: discarded."),
        (DEFAULT, "Not dead after 100 failures, 4 min 46 s after the first; it goes on for ever."),
    ],
)
def test_the_last_line_says_how_it_ends(text: str, end: str, capsys: Capture) -> None:
    assert run(["explain", text]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == end


def test_a_long_name_with_brackets_is_printed_whole(capsys: Capture) -> None:
    name = "dlq.[red]" + "x" * 90
    assert run(["explain", f"1:move(queue:{name})"]) == 0
    assert f"dead-letter to queue:{name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["3:soon"],
        [SEED, "--failures", "0"],
        [SEED, "--failures", "x"],
        [SEED, "--kind", "stack"],
        [SEED, "--destination", ""],
        [SEED, "--destination", "topic:prices", "--kind", "queue"],
        ["3:6000", "--strict"],
    ],
)
def test_wrong_input_is_exit_2_with_nothing_on_stdout(arguments: list[str], capsys: Capture) -> None:
    assert run(["explain", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err


def test_jitter_is_shown_as_a_range_around_the_delay_before_it() -> None:
    row = next(timeline(RedeliveryPolicy(backoff=Backoff.constant(10).jittered(0.2))))
    assert row.decision.base == 10.0
    assert (row.decision.low, row.decision.high) == (8.0, 12.0)


def test_a_kept_message_ends_the_timeline_unless_more_is_asked_for() -> None:
    policy = RedeliveryPolicy(dead_after=3, dead_letter=None, backoff=2)
    assert [type(row.decision).__name__ for row in timeline(policy)] == ["Redeliver", "Redeliver", "Keep"]
    rows = list(timeline(policy, 5))
    assert len(rows) == 5
    assert isinstance(rows[-1].decision, Keep)
    assert rows[-1].elapsed == 10.0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (0.025, "25 ms"),
        (1.5, "1.5 s"),
        (59.5, "59.5 s"),
        (60, "1 min"),
        (205, "3 min 25 s"),
        (3599.6, "1 h"),
        (3660, "1 h 1 min"),
        (90_000, "1 d 1 h"),
        (8_640_000, "100 d"),
    ],
)
def test_times_are_written_for_people(value: float, text: str) -> None:
    assert seconds(value) == text
