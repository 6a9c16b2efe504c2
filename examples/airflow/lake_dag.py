# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines a DAG for Airflow 3 with its own BashOperator: a journal to a lake, to marts, a report, a better policy."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from main import STEPS

NOTHING = 3  # exit code of a command that had nothing to recommend

with DAG(
    dag_id="redeliver_lake",
    description="What the failures of the last day say",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # one run reads everything that no run before has read
    max_active_runs=1,  # of two at a time one would lose, and say so
) as dag:
    tasks = {
        name: BashOperator(
            task_id=name,
            bash_command=step.command,
            append_env=True,
            skip_on_exit_code=NOTHING if step.skips else None,
            # Whatever does not use a skipped task's file runs although that task was skipped.
            trigger_rule="all_success" if name == "tell" else "none_failed",
            retries=2,  # after an error the lake is as it was before
            retry_delay=timedelta(minutes=5),
        )
        for name, step in STEPS.items()
    }
    for name, step in STEPS.items():
        for before in step.after:
            tasks[before] >> tasks[name]
