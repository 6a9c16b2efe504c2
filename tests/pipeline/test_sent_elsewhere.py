# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A plan whose letters another replay has sent since it was made is refused before anything is sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from redeliver_mw.dead_letters.sending.batch_publisher import BatchAnswer
from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Lake
from redeliver_mw.pipeline.plans.plan_file import Plan
from redeliver_mw.pipeline.replaying.ledger import BucketAttempt
from redeliver_mw.pipeline.replaying.preflight import refuse_sent_elsewhere
from redeliver_mw.pipeline.replaying.registry import register
from tests.pipeline.replays import make_plan

FAR_LATER_US = 4_000_000_000_000_000  # in the year 2096


def planned(lake: Lake, folder: Path, letters: int = 10, buckets: int = 4) -> Plan:
    """Make a plan of so many letters, number n in bucket n modulo `buckets`; each plan has the same letters."""
    return make_plan(lake, folder, "rabbitmq://127.0.0.1:1/", b"", "orders", "DLQ", letters, buckets=buckets)


def confirm(plan: Plan, bucket: int, *positions: int) -> None:
    """Write what a replay of the plan leaves when the broker has confirmed the letters at these positions."""
    register(plan, 1)
    ledger = BucketAttempt(plan.folder, plan.plan_id, bucket, "run")
    ledger.intend(set(positions))
    ledger.answer(BatchAnswer(confirmed=set(positions)))
    ledger.close()


def test_letters_that_another_replay_has_sent_are_counted_and_the_plan_is_refused(lake: Lake, tmp_path: Path) -> None:
    mine = planned(lake, tmp_path / "mine")
    refuse_sent_elsewhere(mine)
    few, many = planned(lake, tmp_path / "few"), planned(lake, tmp_path / "many", letters=40, buckets=2)
    confirm(few, 1, 0)  # letter 1
    confirm(many, 0, 2, 3, 12)  # letters 4, 6 and 24
    confirm(many, 1, 0)  # letter 1
    with pytest.raises(ConfigError, match=rf"3 of its letters were sent back by the replay {many.plan_id}") as refused:
        refuse_sent_elsewhere(mine)
    assert refused.value.code == "plan-already-sent"
    confirm(mine, 0, 1)  # letter 4, which this plan has sent itself, too
    with pytest.raises(ConfigError, match=rf"2 of its letters were sent back by the replay {many.plan_id}"):
        refuse_sent_elsewhere(mine)


def test_other_letters_and_replays_before_the_plan_was_made_refuse_nothing(lake: Lake, tmp_path: Path) -> None:
    mine, other = planned(lake, tmp_path / "mine"), planned(lake, tmp_path / "other", letters=40, buckets=1)
    confirm(other, 0, 10, 39)
    refuse_sent_elsewhere(mine)
    confirm(other, 0, 3)
    with pytest.raises(ConfigError, match="1 of its letters"):
        refuse_sent_elsewhere(mine)
    refuse_sent_elsewhere(replace(mine, created_us=FAR_LATER_US))  # the plan itself has left out what was sent before
