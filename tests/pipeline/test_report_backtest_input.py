# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the page asks of the back-test: which policy is in use, which are compared, and which is chosen.

No Spark is used.
"""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw.pipeline.backtest.history import History
from redeliver_mw.pipeline.backtest.objective import OBJECTIVES
from redeliver_mw.pipeline.report.backtest_input import (
    ARMS_ALONE,
    CUT_OFF,
    NO_TEXT,
    UNSHOWN,
    compared,
    estimates,
    in_use,
    told_in_use,
    untold_among,
)
from redeliver_mw.policy import load_policies
from tests.pipeline.test_report_facts import recovered

Row = dict[str, Any]
TEXT = "1:1000; 2:2000; 3:move(queue:dlq.$)"
VERSION = load_policies(TEXT).resolve("orders").version
ALL = list(OBJECTIVES.values())
# tried after 0, 1 and 3 seconds: most heal within the first second, some within three, the others never
SEEN = [recovered(0, 1, 60), recovered(1, 3, 20), recovered(3, None, 20)]


OTHER_RELEASE = "0123456789ab"  # what another release may have computed of the same policy


def seen(failures: int, *, delay_s: float | None = None, exhausted: int = 0, n: int = 90) -> Row:
    """Return what the records show after so many failures: `n` other attempts after a delay, or the end."""
    us = None if delay_s is None else round(delay_s * 1e6)
    return {
        "failures": failures,
        "redelivered": 0 if us is None else n,
        "exhausted": exhausted,
        "least_us": us,
        "most_us": us,
    }


BORNE_OUT = [seen(1, delay_s=1), seen(2, delay_s=2), seen(3, exhausted=20)]


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
    ("row", "why"),
    [
        (decided("dead after 4 failures; delay 1 s"), NO_TEXT),
        (decided("nonsense"), NO_TEXT),
        (decided(""), NO_TEXT),
        (decided("; ".join(f"{n}:{n}000" for n in range(1, 99))[:497] + "..."), CUT_OFF),
        (decided(policy_version=OTHER_RELEASE), UNSHOWN),
        (decided(policy_version=OTHER_RELEASE, seen=[]), UNSHOWN),
        (decided(policy_arm="patient"), ARMS_ALONE),
    ],
)
def test_a_policy_that_the_records_do_not_spell_whole_is_not_known_and_the_reason_is_given(row: Row, why: str) -> None:
    told = told_in_use([row])
    assert told.policies == {}
    assert told.untold == {"orders": why}
    assert in_use([row]) == {}


def test_a_text_of_another_release_counts_where_the_records_did_what_it_says() -> None:
    told = told_in_use([decided(policy_version=OTHER_RELEASE, seen=BORNE_OUT)])
    assert told.policies["orders"].text == TEXT
    assert told.untold == {}


def test_a_delay_that_some_handlers_asked_for_is_no_contradiction() -> None:
    longer = seen(1, delay_s=1) | {"most_us": 60_000_000}
    uncounted = seen(3, delay_s=2, n=3, exhausted=20)
    told = told_in_use([decided(policy_version=OTHER_RELEASE, seen=[longer, *BORNE_OUT[1:2], uncounted])])
    assert told.untold == {}


@pytest.mark.parametrize(
    ("did", "why"),
    [
        ([seen(1, delay_s=9)], "after failure 1 it waits 1 s, and the records show 9 s"),
        ([seen(1, delay_s=1), seen(2, delay_s=0.5)], "after failure 2 it waits 2 s, and the records show 0.5 s"),
        ([*BORNE_OUT[:2], seen(3, delay_s=2)], "after failure 3 it ends a message, and the records show another"),
        ([seen(1, exhausted=9)], "after failure 1 it tries again, and the records show the end"),
    ],
)
@pytest.mark.parametrize("arm", [None, "main"])
def test_a_text_that_the_records_contradict_is_not_all_of_the_policy(did: list[Row], why: str, arm: str | None) -> None:
    told = told_in_use([decided(policy_version=OTHER_RELEASE, seen=did, policy_arm=arm)])
    assert told.policies == {}
    assert why in told.untold["orders"]


def test_a_text_whose_version_is_that_of_the_records_is_whole_whatever_they_show() -> None:
    assert told_in_use([decided(seen=[seen(1, delay_s=9)])]).policies["orders"].text == TEXT


def test_every_destination_without_a_known_policy_is_named_with_why() -> None:
    told = told_in_use([decided(), decided("nonsense", destination="bills")])
    assert untold_among(["bills", "orders", "parcels"], told) == [
        {"destination": "bills", "why": NO_TEXT},
        {"destination": "parcels", "why": "the journal has no record of its decisions"},
    ]


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


def test_a_secret_in_the_policy_in_use_is_not_shown() -> None:
    url = "activemq://user:hunter2@host:61613?jms.redeliveryPolicy.maximumRedeliveries=4"
    found = compared(History(SEEN), {"orders": load_policies(url).resolve("orders")}, ALL)
    assert "hunter2" not in str(found)
