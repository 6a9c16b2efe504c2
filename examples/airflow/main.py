# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the steps of the nightly job: `python main.py` prints them in order, without Airflow.

`lake_dag.py` makes them a DAG.

REDELIVER_JOURNAL, REDELIVER_LAKE and REDELIVER_REPORTS name the folders, in the environment of whoever runs the tasks.
"""

from __future__ import annotations

from typing import NamedTuple


class Step(NamedTuple):
    """Describes a task: its command, the steps before it, and whether exit code 3 means that it had nothing to do."""

    command: str
    after: tuple[str, ...] = ()
    skips: bool = False


STEPS = {
    # 3: some lines are no records. They are in quarantine, and all others are in the lake: the chain goes on.
    "compact": Step('redeliver pipeline compact "$REDELIVER_JOURNAL" "$REDELIVER_LAKE" || test $? -eq 3'),
    "insights": Step('redeliver pipeline insights "$REDELIVER_LAKE"', ("compact",)),
    "report": Step('redeliver pipeline report "$REDELIVER_LAKE" --out "$REDELIVER_REPORTS/report.html"', ("insights",)),
    # 3: there is no file, not even that of an earlier night, and the task is skipped, with all that would use the file.
    # The command ends with 3 if no advice can be given, and with 0 if nothing is better than what is in use.
    "backtest": Step(
        'rm -f "$REDELIVER_REPORTS/policy.txt"; '
        'redeliver pipeline backtest "$REDELIVER_LAKE" --write "$REDELIVER_REPORTS/policy.txt" || exit; '
        'test -f "$REDELIVER_REPORTS/policy.txt" || exit 3',
        ("insights",),
        True,
    ),
    "tell": Step('echo "a better policy is in $REDELIVER_REPORTS/policy.txt"', ("backtest",)),
    # Last: no other step of the night writes to the lake meanwhile. Skipped steps do not keep it from running.
    "optimize": Step('redeliver pipeline optimize "$REDELIVER_LAKE" --older-than 1d --keep 7d', ("report", "backtest")),
}


def main() -> None:
    for name, step in STEPS.items():
        after = f"  after {', '.join(step.after)}" if step.after else ""
        print(f"{name}{after}\n    {step.command}")


if __name__ == "__main__":
    main()
