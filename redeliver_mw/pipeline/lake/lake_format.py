# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Knows the format of a lake, which `_lake.json` names: 1 without a head of the events, 2 with one."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Final

from ..errors import no_lake
from ..files import Files

FORMAT: Final = 2
ABOUT: Final = "_lake.json"
COMPACT: Final = "Run `redeliver pipeline compact JOURNAL LAKE`"
_RESTORE: Final = (
    'Put back the one of a backup; if no other release has ever written to this lake, write {"format": %d} into it'
)


def make(files: Files) -> None:
    """Make a lake where nothing is, and leave a lake as it is. Raises ConfigError if other things are there."""
    entries = {entry.name for entry in files.entries()}
    if ABOUT in entries:
        return
    if entries:
        cure = "Give an empty folder, or one that is not there"
        raise no_lake("no lake is here, and other things are", files.url(), cure, code="lake-not-usable")
    _write(files)


def check(files: Files) -> int:
    """Return the format of a lake. Raises ConfigError if there is no lake, or one of a newer format."""
    try:
        found = json.loads(files.read(ABOUT))["format"]
    except (FileNotFoundError, NotADirectoryError):
        raise no_lake(f"no lake is here: {ABOUT} is missing", files.url(), COMPACT, code="lake-not-usable") from None
    except (ValueError, KeyError, TypeError):
        found = None
    if type(found) is not int or found < 1:
        raise no_lake(f"{ABOUT} is damaged", files.url(), _RESTORE % FORMAT, code="lake-not-usable")
    if found > FORMAT:
        raise no_lake(
            f"the lake has the format {found!r}, and this release knows {FORMAT}",
            files.url(),
            "Upgrade redeliver-mw",
            code="format-newer",
        )
    return found


def make_writable(files: Files) -> None:
    """Give a lake of an earlier format the present one, after which earlier releases refuse it.

    Called before a run that is to be published by a head writes its first file. Raises ConfigError as `check` does, and
    OSError for a store in which no run can be published.
    """
    found = check(files)
    files.require_swaps()
    if found < FORMAT:
        _write(files)


def _write(files: Files) -> None:
    about = {"format": FORMAT, "made_by": f"redeliver-mw {version('redeliver-mw')}"}
    files.publish(ABOUT, json.dumps(about).encode())
