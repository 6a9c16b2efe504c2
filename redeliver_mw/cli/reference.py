# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prints the reference of the command line, from the commands themselves.

`python -m redeliver_mw.cli.reference` prints the reference as Markdown; `--write docs/cli.md` puts it between that
file's marks.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from ..adapter.verb_table import written
from .help import TASKS
from .main import app

EXTRAS = re.compile(r"  \[(.*)\]$")  # what the help says of an option's value: its default, its range, required
MARKS = "<!-- commands -->", "<!-- /commands -->"


def reference() -> str:
    """Return the reference: a section for each task, and in it each command with its usage, arguments and options."""
    root: Any = typer.main.get_command(app)
    known = {name for _, names in TASKS for name in names}
    tasks = (*TASKS, ("Other commands", tuple(name for name in root.commands if name not in known)))
    lines: list[str] = []
    for task, names in tasks:
        found = [root.commands[name] for name in names if name in root.commands]
        if found:
            lines += [f"## {task}", ""]
            context = root.make_context("redeliver", [], resilient_parsing=True)
            for command in found:
                lines += _command(command, context, f"redeliver {command.name}")
    return "\n".join(lines).rstrip()


def _command(command: Any, parent: Any, path: str) -> Iterator[str]:
    """Yield the lines of a command; of a group, those of its own, if it does something alone, and of its commands."""
    context = type(parent)(command, info_name=command.name, parent=parent, resilient_parsing=True)
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield from _section(command, context, path)
    if hasattr(command, "commands"):
        given = " ".join((path, *(one.metavar for one in command.params if one.param_type_name == "argument")))
        for inner in command.commands.values():
            yield from _command(inner, context, f"{given} {inner.name}")


def _section(command: Any, context: Any, path: str) -> Iterator[str]:
    """Yield the lines that describe what a command does, and how it is called."""
    yield from (f"### {path}", "", *_paragraphs(command.help), "")
    yield from ("```text", " ".join((path, *command.collect_usage_pieces(context))), "```", "")
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context))]
    yield from ("| argument or option | meaning |", "| --- | --- |")
    for name, meaning in rows:
        if name != "--help":
            text = _prose(EXTRAS.sub(r" (\1)", meaning))
            yield f"| `{_cell(name)}` | {_cell(text)} |"
    yield ""
    if command.epilog:
        yield from (f"Example: `{command.epilog.removeprefix('Example: ')}`", "")


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a docstring, each on one line, with an empty line between two."""
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ""
        yield _prose(" ".join(paragraph.split()))


def _prose(text: str) -> str:
    """Return the text with what Markdown would take for markup escaped, outside of code."""
    parts = text.split("`")
    for number in range(0, len(parts), 2):
        for mark in "\\*<[_":
            parts[number] = parts[number].replace(mark, "\\" + mark)
    return "`".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the reference, or write it into a page."""
    parser = argparse.ArgumentParser(
        prog="python -m redeliver_mw.cli.reference", description="The commands, their arguments and options."
    )
    parser.add_argument("--write", metavar="PAGE", type=Path, help="put it between the marks of this Markdown page")
    page: Path | None = parser.parse_args(arguments).write
    if page is None:
        print(reference())
    else:
        page.write_text(written(page.read_text("utf-8"), reference(), MARKS), "utf-8")


if __name__ == "__main__":
    main()
