# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes a run in one step: the replacement of one small file, on condition that nobody else has replaced it.

::

    read the head       generation 11, version "a"
    write files, manifest, snapshot: nobody reads them yet
    swap the head       generation 12, if the version is still "a"

An answer to the last step may be lost, and a client that repeats the request then gets a refusal for its own success.
So no refusal is believed: the head is read again, and the run is published if the head leads to it. If the head is
unchanged, the request may still be on its way, and is sent again; all of these requests have one condition, so at most
one succeeds. docs/lake-storage.md describes the protocol.

No clock and no lease. Pauses only reduce the load.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from .errors import LakeError
from .files import Files, Versioned

_PAUSES: Final = (0.0, 0.1, 0.4, 1.6, 5.0)  # seconds before each try
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)  # what the reading of a damaged file raises
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Head:
    """Describes a head: the `manifest` that it names, the `run` that has written it, and how many runs were published.

    `version` is None, and the generation 0, if there is no head yet. `by` names the writer's process.
    """

    generation: int = 0
    run: str = ""
    manifest: str = ""
    by: str = ""
    version: str | None = None

    @property
    def writer(self) -> str:
        """Return the run and its process, for people."""
        return f"the run {self.run}" + (f" of {self.by}" if self.by else "")


class LostRace(LakeError):
    """Means that another run was published since this one began, which can therefore never be published itself."""


class InDoubt(LakeError):
    """Means that it is not known whether a run is published: its files must stay."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """Reads the head at `path`, and the files that it leads to. `subject` and `cure` are for people."""

    path: str
    subject: str
    cure: str

    def read(self, files: Files) -> Head:
        """Return the head, without a version if there is none. Raises LakeError if it is damaged."""
        try:
            found = files.versioned(self.path)
            return Head() if found is None else _head(found)
        except _DAMAGE as error:
            raise self.damaged(files, self.path, error) from None

    def follow(self, files: Files, read: Callable[[Head], Found]) -> Found:
        """Return what `read` returns for the head.

        Where `read` does not find a file, another run may have removed it since the head was read: then the next head
        is read. Raises LakeError if a file is missing to which the head still leads.
        """
        head = self.read(files)
        while True:
            try:
                return read(head)
            except FileNotFoundError as error:
                again = self.read(files)
                if again.version in (None, head.version):
                    what = f"a file that the head of {self.subject} leads to is missing: {error.filename}"
                    raise LakeError(what, where=files.url(), cure=self.cure, code="lake-damaged") from None
                head = again

    def parse(self, files: Files, path: str, read: Callable[[bytes], Found]) -> Found:
        """Return what `read` makes of a file's content. Raises LakeError if it raises an error of damage."""
        content = files.read(path)
        try:
            return read(content)
        except _DAMAGE as error:
            raise self.damaged(files, path, error) from None

    def damaged(self, files: Files, path: str, error: Exception) -> LakeError:
        """Return the error of a damaged file."""
        what = f"this file is damaged: {error!r}"
        return LakeError(what, where=files.url(path), cure=self.cure, code="lake-damaged")

    @contextmanager
    def unpublished(self, files: Files, base: Head, run: str, remove: Callable[[Files, str], None]) -> Iterator[None]:
        """Remove the files of a run if the block, which writes them and does not publish the run, fails.

        Raises LostRace instead if another run was published since `base`, which may have removed files of this one.
        """
        try:
            yield
        except BaseException as error:
            # A task may still be running: its files do not count, and a later run removes them.
            with suppress(OSError):
                remove(files, run)
            if isinstance(error, Exception) and (found := self._lost_meanwhile(files, base, run)) is not None:
                raise found from error
            raise

    def _lost_meanwhile(self, files: Files, base: Head, run: str) -> LostRace | None:
        with suppress(OSError, LakeError):
            head = self.read(files)
            if head.generation != base.generation:
                return lost(files, run, head.writer)
        return None


def swap_head(
    files: Files, path: str, base: Head, run: str, manifest: str, *, leads_to: Callable[[Head], bool]
) -> None:
    """Publish a run as the successor of `base`.

    `leads_to` is asked about heads that another run has written, and may raise OSError. Raises LostRace if another run
    was published instead: then this run's files may be removed. Raises InDoubt if that is not known.
    """
    by = f"process {os.getpid()} on {socket.gethostname()}"
    content = json.dumps({"generation": base.generation + 1, "run": run, "manifest": manifest, "by": by}).encode()

    def is_ours(found: Versioned) -> bool:
        head = _head(found)
        return head.run == run or leads_to(head)

    def winner(found: Versioned) -> str:
        return _head(found).writer

    swap(files, path, content, base.version, run, is_ours=is_ours, winner=winner)


def swap(
    files: Files,
    path: str,
    content: bytes,
    version: str | None,
    run: str,
    *,
    is_ours: Callable[[Versioned], bool],
    winner: Callable[[Versioned], str],
) -> None:
    """Replace a file that has this version.

    `is_ours` says whether a content leads to the run, `winner` who has written it. Raises LostRace and InDoubt.
    """
    trouble: Exception | None = None
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            files.swap(path, content, version)
            return
        except OSError as error:
            trouble = error
        try:
            found = files.versioned(path)
            if found is not None and (found.content == content or is_ours(found)):
                return
            if (found.version if found else None) != version:
                raise lost(files, run, winner(found) if found is not None else "somebody who has removed the head")
        except (OSError, ValueError, KeyError, TypeError) as error:
            trouble = error
    raise _in_doubt(files, run, trouble)


def _head(found: Versioned) -> Head:
    given = json.loads(found.content)
    return Head(
        generation=int(given.get("generation", 0)),
        run=str(given["run"]),
        manifest=str(given["manifest"]),
        by=str(given.get("by", "")),
        version=found.version,
    )


def lost(files: Files, run: str, winner: str) -> LostRace:
    """Return the error of a run that can never be published, because of the winner."""
    return LostRace(
        f"{winner} was published first, and nothing of this run counts ({run})",
        where=files.url(),
        cure="Run it again: it then begins from what that run has published",
        code="lost-the-race",
    )


def _in_doubt(files: Files, run: str, trouble: Exception | None) -> InDoubt:
    reason = f": {getattr(trouble, 'strerror', None) or trouble}" if trouble is not None else ""
    return InDoubt(
        f"it is not known whether the run {run} is published{reason}",
        where=files.url(),
        cure="Run it again when the storage answers: it finds out, and nothing is lost or counted twice",
        code="publication-in-doubt",
    )
