# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests redeliver explain: the timeline as a picture, and two policies side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from defusedxml import ElementTree

from redeliver_mw.cli.main import run
from redeliver_mw.cli.timeline import timeline
from redeliver_mw.cli.timeline_svg import WIDTH, TimelineLane, line, svg
from redeliver_mw.message import Destination
from redeliver_mw.policy import Backoff, RedeliveryPolicy

Capture = pytest.CaptureFixture[str]
SVG = "{http://www.w3.org/2000/svg}"


def lane(policy: RedeliveryPolicy, failures: int | None = None) -> TimelineLane:
    return TimelineLane("A", policy.of(""), list(timeline(policy, failures)))


def test_time_runs_to_the_right_and_to_scale() -> None:
    drawn = line(lane(RedeliveryPolicy(3, [21, 42])))
    # 63 s in all: the runs are at 0, 21 and 63 s
    assert drawn == "▏●" + "─" * 20 + "●" + "─" * 41 + "✕"
    assert len(drawn) == WIDTH + 1


@pytest.mark.parametrize(
    ("policy", "end"),
    [
        (RedeliveryPolicy(2, 1), "✕"),
        (RedeliveryPolicy(2, 1, on_dead="discard"), "⌀"),
        (RedeliveryPolicy(None, 1), "→"),
        (RedeliveryPolicy(2, 1, None), "→"),
    ],
)
def test_the_last_mark_says_what_became_of_the_message(policy: RedeliveryPolicy, end: str) -> None:
    assert line(lane(policy))[-1] == end


def test_a_timeline_that_is_cut_ends_with_a_run_like_any_other() -> None:
    assert line(lane(RedeliveryPolicy(9, 1), 3))[-1] == "●"


def test_runs_that_fall_on_one_spot_are_counted() -> None:
    assert line(lane(RedeliveryPolicy(5, [0, 0, 9, 9]))).startswith("▏3─")
    assert line(lane(RedeliveryPolicy(30, [0] * 20 + [9]))).startswith("▏+─")


def test_the_reach_of_jitter_is_shaded() -> None:
    drawn = line(lane(RedeliveryPolicy(2, Backoff.constant(10).jittered(0.5))))
    # from 5 to 15 s, planned at 10 s, of 15 s in all
    assert drawn == "▏●" + "─" * 20 + "░" * 21 + "✕" + "░" * 21


def test_no_time_passes_no_picture() -> None:
    assert line(lane(RedeliveryPolicy(5, 0))) == ""


def test_a_terminal_without_these_letters_gets_plain_ones() -> None:
    assert line(lane(RedeliveryPolicy(3, [21, 42])), plain=True).isascii()


def test_the_picture_stands_under_the_table(capsys: Capture) -> None:
    assert run(["explain", "1:21000; 2:42000; 3:delete"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4].startswith("▏●")
    assert lines[-3].split() == ["0", "s", "1", "min", "3", "s"]


def test_a_drawing_is_well_formed_and_shows_every_run(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "a.svg"
    assert run(["explain", "1:1000; 4:move(queue:<&>$)", "--destination", "a&b", "--svg", str(file)]) == 0
    assert capsys.readouterr().out
    root = ElementTree.fromstring(file.read_text("utf-8"))
    assert root.tag == f"{SVG}svg"
    assert len(root.findall(f"{SVG}circle")) == 4
    assert "queue:<&>a&b" in "".join(root.itertext())


def test_a_drawing_of_a_hundred_thousand_failures_stays_small() -> None:
    drawn = svg([lane(RedeliveryPolicy(None, Backoff.constant(1).jittered(0.1)), 100_000)], Destination("q"))
    assert len(drawn) < 5_000_000
    ElementTree.fromstring(drawn)


def test_a_drawing_that_cannot_be_written_is_exit_2(tmp_path: Path, capsys: Capture) -> None:
    assert run(["explain", "3:delete", "--svg", str(tmp_path / "no" / "a.svg")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def against(capsys: Capture, *arguments: str) -> Any:
    assert run(["explain", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_two_policies_are_printed_side_by_side(capsys: Capture, tmp_path: Path) -> None:
    file = tmp_path / "both.svg"
    words = ["explain", "1:1000; 3:delete", "--against", "1:1000; 2:2000; 4:move(queue:d)", "--svg", str(file)]
    assert run(words) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines()]
    assert ["1", "redeliver", "1", "s", "1", "s", "redeliver", "1", "s", "1", "s"] in rows
    assert ["3", "discard", "redeliver", "2", "s", "5", "s"] in rows
    assert ["4", "dead-letter", "to", "queue:d"] in rows
    assert out.splitlines()[-1] == "They differ from failure 2 on."
    assert len(ElementTree.fromstring(file.read_text("utf-8")).findall(f"{SVG}circle")) == 3 + 4


def test_json_of_two_has_both_and_where_they_part(capsys: Capture) -> None:
    told = against(capsys, "1:1000; 3:delete", "--against", "1:1000; 2:2000; 4:delete", "--destination", "q")
    assert told["first_difference"] == 2
    assert [told[side]["dead_after"] for side in "ab"] == [3, 4]
    assert told["a"] == against(capsys, "1:1000; 3:delete", "--destination", "q")


def test_two_spellings_of_one_policy_decide_the_same(capsys: Capture) -> None:
    text = 'dead_after = 3\nbackoff = 1\non_dead = "discard"\n'
    assert against(capsys, "1:1000; 3:delete", "--against", text)["first_difference"] is None
    assert run(["explain", "1:1000; 3:delete", "--against", text]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "They decide the same."
