# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A plan is what it was when it was frozen, or it is none; no Spark is used."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.pipeline import Plan, read_plan
from redeliver_mw.pipeline.files import files_at
from redeliver_mw.pipeline.plans.plan_file import PlanFile, freeze, hash_of, path_of


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return a plan of three letters in two of three buckets; nothing here looks into the files."""
    files, found = files_at(tmp_path / "plan"), []
    for bucket, rows in ((0, 2), (2, 1)):
        files.publish(path_of(bucket), b"letters" * rows)
        found.append(PlanFile(path_of(bucket), rows, *hash_of(files, path_of(bucket))))
    files.publish("left_out.parquet", b"")
    left_out = PlanFile("left_out.parquet", 0, *hash_of(files, "left_out.parquet"))
    about = Plan(
        folder=files.url(),
        plan_id="00112233445566aa",
        created_us=1,
        lake="/lake",
        letters=3,
        buckets=3,
        files=tuple(found),
        left_out_file=left_out,
        where="failures > 3",
        edits=("to=other", "-header.a"),
        destinations={"orders": 3},
        errors=(("d1", "ValueError: no"),),
    )
    return freeze(files, about)


def test_a_plan_is_read_as_it_was_frozen_also_from_another_process(plan: Plan) -> None:
    assert read_plan(plan.folder) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert [file.bucket for file in plan.files] == [0, 2]
    assert len(plan.sha256) == 64


def test_a_plan_may_be_moved(plan: Plan, tmp_path: Path) -> None:
    Path(plan.folder).rename(tmp_path / "elsewhere")
    assert read_plan(tmp_path / "elsewhere").sha256 == plan.sha256


@pytest.mark.parametrize("name", ["letters/bucket-00002.parquet", "left_out.parquet"])
@pytest.mark.parametrize("content", [b"lettera", b"letters!", None])
def test_a_file_that_was_changed_or_removed_makes_the_plan_none(plan: Plan, name: str, content: bytes | None) -> None:
    file = Path(plan.folder, name)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}: it (was changed after the plan was frozen|is missing)"):
        read_plan(plan.folder)


@pytest.mark.parametrize(("name", "value"), [("letters", 4), ("where", None), ("ordered", True), ("set", [])])
def test_what_a_plan_says_of_itself_cannot_be_changed_either(plan: Plan, name: str, value: object) -> None:
    about = Path(plan.folder, "plan.json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {name: value}))
    with pytest.raises(ConfigError, match=r"plan\.json: it was changed after it was frozen"):
        read_plan(plan.folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_torn_plan_is_one_error(plan: Plan, text: str) -> None:
    Path(plan.folder, "plan.json").write_text(text, encoding="latin-1")
    with pytest.raises(ConfigError, match=r"plan\.json.*Make a new plan"):
        read_plan(plan.folder)


def test_a_plan_of_a_newer_release_and_a_folder_without_one_are_refused(plan: Plan, tmp_path: Path) -> None:
    about = Path(plan.folder, "plan.json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"format": 2}))
    with pytest.raises(ConfigError, match=r"format 2, and this release knows 1.*Upgrade"):
        read_plan(plan.folder)
    with pytest.raises(ConfigError, match=r"no plan is here.*redeliver pipeline plan"):
        read_plan(tmp_path)
