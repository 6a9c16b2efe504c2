# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The DAG for Airflow and the notebook hold what runs: the commands of the tasks, and the cells.

Airflow itself is not here: the DAG is executed with classes in its place that keep what they are given.
"""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redeliver_mw.pipeline import Lake
from tests.pipeline.journals import lines, segment

REPOSITORY = Path(__file__).resolve().parents[2]
AIRFLOW, NOTEBOOK = REPOSITORY / "examples" / "airflow", REPOSITORY / "examples" / "notebook"


class KeptTask:
    """Keeps the arguments of an operator, and which tasks come before it."""

    made: dict[str, KeptTask]

    def __init__(self, *, task_id: str, **given: Any) -> None:
        self.name, self.given, self.after = task_id, given, set[str]()
        KeptTask.made[task_id] = self

    def __rshift__(self, other: KeptTask) -> KeptTask:
        other.after.add(self.name)
        return other


class KeptDag:
    """Keeps the arguments of a DAG."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    def __enter__(self) -> KeptDag:
        return self

    def __exit__(self, *args: object) -> None:
        pass


@pytest.fixture
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, KeptTask]]:
    """Yield the tasks of the DAG, made by its own file."""
    bash, sdk = ModuleType("airflow.providers.standard.operators.bash"), ModuleType("airflow.sdk")
    vars(bash)["BashOperator"], vars(sdk)["DAG"] = KeptTask, KeptDag
    names = ["airflow", "airflow.providers", "airflow.providers.standard", "airflow.providers.standard.operators"]
    for module in (*map(ModuleType, names), bash, sdk):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.syspath_prepend(AIRFLOW)
    monkeypatch.delitem(sys.modules, "main", raising=False)
    KeptTask.made = {}
    dag = runpy.run_path(str(AIRFLOW / "lake_dag.py"))["dag"]
    assert (dag.given["catchup"], dag.given["max_active_runs"]) == (False, 1)
    yield KeptTask.made
    sys.modules.pop("main", None)


def test_the_steps_are_printed_as_the_page_says() -> None:
    done = subprocess.run([sys.executable, "main.py"], cwd=AIRFLOW, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, (AIRFLOW / "expected_output.txt").read_text())


def test_the_dag_runs_each_step_after_those_that_it_needs_and_skips_what_is_not_recommended(
    tasks: dict[str, KeptTask],
) -> None:
    order = list(TopologicalSorter({name: task.after for name, task in tasks.items()}).static_order())
    assert (order[0], order[1], order[-1] in ("optimize", "tell")) == ("compact", "insights", True)
    assert {name for name, task in tasks.items() if task.given["skip_on_exit_code"] == 3} == {"backtest"}
    # What follows a skipped task runs, but for the task that would use its file.
    rules = {name: task.given["trigger_rule"] for name, task in tasks.items()}
    assert rules == {**dict.fromkeys(tasks, "none_failed"), "tell": "all_success"}


def test_the_notebook_is_one_and_each_of_its_cells_compiles() -> None:
    given = json.loads((NOTEBOOK / "lake.ipynb").read_text(encoding="utf-8"))
    assert (given["nbformat"], len({cell["id"] for cell in given["cells"]})) == (4, len(given["cells"]))
    code = [cell for cell in given["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)  # no run is committed
    for cell in code:
        compile("".join(cell["source"]), "cell", "exec")


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a shell in which `redeliver` is this tree's."""
    program = folder / "bin" / "redeliver"
    program.parent.mkdir()
    words = shlex.join([sys.executable, "-c", "from redeliver_mw.cli.main import main; main()"])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    return {**os.environ, "PYTHONPATH": paths, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.long
@pytest.mark.spark
def test_the_commands_of_the_tasks_make_a_report_and_their_exit_codes_are_those_that_the_dag_knows(
    tasks: dict[str, KeptTask], tmp_path: Path
) -> None:
    segment(tmp_path / "journal", [*lines(range(30)), b"no record\n"])
    segment(tmp_path / "journal", lines(range(30, 60)))
    places = {f"REDELIVER_{name.upper()}": str(tmp_path / name) for name in ("journal", "lake", "reports")}
    (tmp_path / "reports").mkdir()
    shell, codes = environment(tmp_path) | places, dict[str, int]()
    for name in TopologicalSorter({name: task.after for name, task in tasks.items()}).static_order():
        command = ["bash", "-c", tasks[name].given["bash_command"]]
        done = subprocess.run(command, env=shell, capture_output=True, text=True, timeout=400)
        codes[name] = done.returncode
        assert done.returncode in (0, tasks[name].given["skip_on_exit_code"]), (name, done.stderr)
    # In so small a journal nothing can be recommended.
    assert codes == {**dict.fromkeys(tasks, 0), "backtest": 3}
    assert (tmp_path / "reports" / "report.html").is_file()
    assert not (tmp_path / "reports" / "policy.txt").exists()
    assert sum(file.rows for one in Lake(tmp_path / "lake").manifests() for file in one.files) == 60


@pytest.mark.long
@pytest.mark.spark
def test_the_cells_of_the_notebook_print_what_the_page_says(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "adapters")])
    command = [sys.executable, str(NOTEBOOK / "main.py"), "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=500)
    assert (done.returncode, done.stdout) == (0, (NOTEBOOK / "expected_output.txt").read_text()), done.stderr[-3000:]
