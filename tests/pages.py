# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the blocks of a Markdown page.

A block that is marked with a file's name, ```` ```xml broker.xml ````, is that file: the page's commands and programs
find the file in their folder.
"""

from __future__ import annotations

import os
import re
from itertools import count
from pathlib import Path

FENCE = re.compile(r"^(?P<ticks>```+)(?P<info>[^\n]*)\n(?P<text>.*?)^(?P=ticks)[ \t]*$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"\w+ (?P<name>[\w-]+\.\w+)")
_numbers = count(1)


def files_of(page: str) -> dict[str, str]:
    """Return the text of each file that a page shows, by the file's name."""
    blocks = ((_FILE.fullmatch(block["info"].strip()), block["text"]) for block in FENCE.finditer(page))
    return {named["name"]: text for named, text in blocks if named}


def write_files(page: str, folder: Path) -> None:
    for name, text in files_of(page).items():
        (folder / name).write_text(text)


def own_name(name: str) -> str:
    """Return a page's name of a queue as one that no other test of a broker uses."""
    return f"{name}-{os.getpid()}-{next(_numbers)}"
