# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The folder in which a plan is made: one maker at a time, and never over a plan that is there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from ...errors import ConfigError
from ..errors import told
from ..files import Files, files_at
from .plan_file import ABOUT, LEFT_OUT, LETTERS

WORK: Final = "_work"
_LOCK: Final = "_plan.lock"
_OURS: Final = {LETTERS, LEFT_OUT, WORK, _LOCK, f"_new-{ABOUT}"}  # what a maker that was killed leaves


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Files]:
    """Empty, and nobody else's in the block; what was made in it goes if the block raises.

    ConfigError if a plan or something else is in it; LakeError if it cannot be written to, or another process makes a
    plan in it.
    """
    files = files_at(folder, "plan")
    with told(files.url()):
        _check(files)
        os.makedirs(files.url(), exist_ok=True)
        with files.locked(_LOCK, "plan"):
            _check(files)  # it may have been made meanwhile
            _clear(files)
            try:
                yield files
            except BaseException:
                # A task may still be at it: what it leaves is no plan, and goes when one is made here.
                with contextlib.suppress(OSError):
                    _clear(files)
                    files.remove(_LOCK)
                    os.rmdir(files.url())
                raise
            files.remove(WORK)
            files.remove(_LOCK)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """ConfigError where no plan can be made."""
    files = files_at(folder, "plan")
    with told(files.url()):
        _check(files)


def _check(files: Files) -> None:
    where = files.url()
    if os.path.lexists(where) and not os.path.isdir(where):
        raise ConfigError("it is no folder", where=where, cure="Give one that is not there yet")
    names = {entry.name for entry in files.entries()}
    if ABOUT in names:
        raise ConfigError("a plan is here, and stays as it is", where=where, cure="Give another folder")
    if others := sorted(names - _OURS):
        raise ConfigError(f"other things are here: {others[0]}", where=where, cure="Give an empty folder")


def _clear(files: Files) -> None:
    for name in (WORK, LETTERS, LEFT_OUT, f"_new-{ABOUT}"):
        files.remove(name)
