# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lays out the help: commands by task, and one example for each command."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

TASKS = (
    ("Policies", ("check", "explain", "convert")),
    ("Consumers", ("run", "control", "doctor")),
    ("Failed messages", ("dead", "limbo", "api")),
    ("Months of failures, with Spark", ("pipeline",)),
)


class CommandsByTask(TyperGroup):
    """Lists the commands of `redeliver --help` under the tasks that they serve."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section for each task, and one for commands that no task names."""
        left = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        for task, names in (*TASKS, ("Other commands", tuple(left))):
            rows = [(name, found.get_short_help_str(60)) for name in names if (found := left.pop(name, None))]
            if rows:
                with formatter.section(task):
                    formatter.write_dl(rows)


def example(line: str) -> str:
    """Return the end of a command's help: one command line that works as it stands, or with one's own names in it."""
    return f"Example: {line}"
