# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The help groups the commands by task, and each command shows an example with options that it has."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from redeliver_mw.cli.help import TASKS
from redeliver_mw.cli.main import app, run

ROOT: Any = typer.main.get_command(app)


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each command that does something, with the words that lead to it; a group may do something alone."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            given = ["shop" for one in command.params if one.param_type_name == "argument"]  # the App of `control APP`
            yield from leaves(command, (*path, name, *given))
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield (*path, name), command


def test_every_command_stands_under_a_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert {name for _, names in TASKS for name in names} == set(ROOT.commands)
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    places = [out.index(f"{task}:\n") for task, _ in TASKS]
    assert places == sorted(places)
    assert "Other commands" not in out


@pytest.mark.parametrize(("path", "command"), [pytest.param(*leaf, id=" ".join(leaf[0])) for leaf in leaves(ROOT)])
def test_each_command_shows_an_example_that_it_takes(path: tuple[str, ...], command: Any) -> None:
    [line] = [part for part in (command.epilog or "").splitlines() if part.startswith("Example: ")]
    program, *words = shlex.split(line.removeprefix("Example: "))
    assert (program, tuple(words[: len(path)])) == ("redeliver", path)
    context = command.make_context(path[-1], [], resilient_parsing=True)
    _, left, _ = command.make_parser(context).parse_args(words[len(path) :])
    assert left == []
