# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prepares the folder in which a plan is made: for one maker at a time, and never over an existing plan."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Final

from ...errors import ConfigError
from ..errors import readable_errors
from ..files import Files, files_at
from .plan_file import ABOUT, LEFT_OUT, LETTERS

WORK: Final = "_work"
_LOCK: Final = "_plan.lock"
_OURS: Final = {LETTERS, LEFT_OUT, WORK, _LOCK, f"_new-{ABOUT}"}  # the files that a killed maker may leave


@contextlib.contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Files]:
    """Yield the folder, empty and reserved while the block runs; its contents are removed if the block raises.

    Raises ConfigError if a plan or something else is in the folder; LakeError if the folder is not writable, or another
    process makes a plan in it.
    """
    files = files_at(folder, "plan")
    with readable_errors(files.url()):
        _check(files)
        os.makedirs(files.url(), exist_ok=True)
        with files.locked(_LOCK, "plan"):
            _check(files)  # another process may have made a plan meanwhile
            _clear(files)
            try:
                yield files
            except BaseException:
                # A task may still be running: its files are no plan, and are removed when a plan is made here.
                with contextlib.suppress(OSError):
                    _clear(files)
                    files.remove(_LOCK)
                    os.rmdir(files.url())
                raise
            files.remove(WORK)
            files.remove(_LOCK)


def check_folder(folder: str | os.PathLike[str]) -> None:
    """Raise ConfigError if no plan can be made in the folder."""
    files = files_at(folder, "plan")
    with readable_errors(files.url()):
        _check(files)


def _check(files: Files) -> None:
    where = files.url()
    if os.path.lexists(where) and not os.path.isdir(where):
        raise ConfigError("it is no folder", where=where, cure="Give one that is not there yet", code="plan-folder")
    names = {entry.name for entry in files.entries()}
    if ABOUT in names:
        raise ConfigError(
            "a plan is here, and stays as it is", where=where, cure="Give another folder", code="plan-folder"
        )
    if others := sorted(names - _OURS):
        raise ConfigError(
            f"other things are here: {others[0]}", where=where, cure="Give an empty folder", code="plan-folder"
        )


def _clear(files: Files) -> None:
    for name in (WORK, LETTERS, LEFT_OUT, f"_new-{ABOUT}"):
        files.remove(name)
