# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The back-test asked for the page: which policy is in use, which are compared, and which is chosen. No Spark."""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw.pipeline.backtest.history import History
from redeliver_mw.pipeline.backtest.objective import OBJECTIVES
from redeliver_mw.pipeline.report.backtest_input import compared, estimates, in_use
from redeliver_mw.policy import load_policies
from tests.pipeline.test_report_facts import recovered

Row = dict[str, Any]
TEXT = "1:1000; 2:2000; 3:move(queue:dlq.$)"
VERSION = load_policies(TEXT).resolve("orders").version
ALL = list(OBJECTIVES.values())
# tried after 0, 1 and 3 seconds: most heal within the first second, some within three, the others never
SEEN = [recovered(0, 1, 60), recovered(1, 3, 20), recovered(3, None, 20)]


def decided(text: str = TEXT, **more: Any) -> Row:
    return {
        "destination": "orders",
        "policy": text,
        "policy_version": VERSION,
        "policy_arm": None,
        "n": 100,
        "last_us": 5,
        **more,
    }


def test_a_policy_that_the_records_spell_whole_is_the_one_in_use() -> None:
    assert in_use([decided()])["orders"].text == TEXT


@pytest.mark.parametrize(
    "row",
    [
        decided("dead after 4 failures; rest 1 s"),
        decided("nonsense"),
        decided(policy_version="000000000000"),
        decided(policy_arm="patient"),
    ],
)
def test_a_policy_that_they_do_not_spell_whole_is_not_known(row: Row) -> None:
    assert in_use([row]) == {}


def test_of_several_the_latest_counts_unless_it_is_rare() -> None:
    other = "1:9000; 2:move(queue:dlq.$)"
    newer = decided(other, policy_version=load_policies(other).resolve("orders").version, last_us=9)
    assert in_use([decided(), newer])["orders"].text == other
    assert in_use([decided(n=1000), {**newer, "n": 3}])["orders"].text == TEXT


def test_what_is_in_use_is_compared_with_others_like_it() -> None:
    history = History(SEEN)
    used = load_policies(TEXT).resolve("orders")
    found = compared(history, {"orders": used}, ALL)
    (choice,) = found.choices
    assert choice["today"] == TEXT
    now = next(row for row in found.backtest if row["candidate"] == TEXT)
    # the arithmetic of SEEN: all are tried twice and 40 of 100 a third time, after which 20 are dead
    assert now["attempts_per_message"] == pytest.approx(2.4, rel=0.01)
    assert now["dead_letter_share"] == pytest.approx(0.2, rel=0.01)
    assert len(found.backtest) > 100
    assert all(row["destination"] == "orders" and row["error_fingerprint"] is None for row in found.backtest)
    best = next(row for row in found.backtest if row["candidate"] == choice["best"])
    assert best["dead_letter_share"] <= now["dead_letter_share"] + 1e-6


def test_the_policy_in_use_is_compared_without_its_arms_since_the_others_have_none() -> None:
    used = load_policies(TEXT).resolve("orders")
    armed = used.replace(arms={"patient": (0.1, used.replace(dead_after=9))})
    found = compared(History(SEEN), {"orders": armed}, ALL)
    assert found.backtest == compared(History(SEEN), {"orders": used}, ALL).backtest
    assert found.choices[0]["today"] == TEXT


def test_where_the_policy_in_use_is_not_known_nothing_is_called_better() -> None:
    history = History(SEEN)
    found = compared(history, {}, ALL)
    assert found.choices == []
    assert {row["destination"] for row in found.backtest} >= {"orders"}  # what they would do is told all the same


def test_an_estimate_ends_at_what_was_seen_to_heal() -> None:
    history = History(SEEN)
    points = estimates(history, [("orders", "f1"), ("orders", "unknown")])
    assert {row["fingerprint"] for row in points} == {"f1"}
    shares = [row["healed"] for row in points]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(0.8)


def test_a_secret_in_the_policy_in_use_is_not_told() -> None:
    url = "activemq://user:hunter2@host:61613?jms.redeliveryPolicy.maximumRedeliveries=4"
    found = compared(History(SEEN), {"orders": load_policies(url).resolve("orders")}, ALL)
    assert "hunter2" not in str(found)
