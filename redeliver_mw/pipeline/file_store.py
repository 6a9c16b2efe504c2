# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the few file operations that a lake needs. `files` has them for a folder, `object_files` for a bucket.

`versioned` and `swap` are the two operations by which a run is published; see `head`. A version is the place's own name
for what a file holds: an ETag in a bucket, a digest of the content in a folder. All paths are relative to the lake's
place, with slashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import BinaryIO, Final, NamedTuple, Protocol, TypeVar

_AT_ONCE: Final = 32  # requests to a bucket
T = TypeVar("T")
R = TypeVar("R")


class FileEntry(NamedTuple):
    """Describes an entry of a folder: its name there, and its size in bytes (0 for a folder)."""

    name: str
    size: int
    is_folder: bool


class Versioned(NamedTuple):
    """Holds what is in a file, and the version by which `swap` knows whether that has changed."""

    content: bytes
    version: str


class FileChanged(OSError):
    """Means that a file was not replaced, because it was not in the version that the writer had read."""


class Files(Protocol):
    """Stands for the place of a lake.

    Every method may raise OSError; `locked` raises LakeError if another has the lock. `is_folder`: the place is in
    a file system, and `url` is a path there.
    """

    is_folder: bool

    def url(self, path: str = "") -> str:
        """Return the absolute place, as people write it."""

    def spark_url(self, path: str = "") -> str:
        """Return the absolute place, as Spark accepts it."""

    def entries(self, folder: str = "") -> list[FileEntry]:
        """Return the folder's entries by name; none if the path is missing, or is no folder."""

    def read(self, path: str) -> bytes: ...

    def open(self, path: str) -> BinaryIO:
        """Return a file to read from, also from its middle."""

    def draft(self, path: str) -> str:
        """Return a path on this machine for a new file, which nobody sees until `finish`."""

    def finish(self, draft: str, path: str) -> int:
        """Give the draft its place, so that it survives a power cut, and return its size in bytes."""

    def publish(self, path: str, content: bytes) -> None:
        """Replace a file atomically: readers see the old content or the new, also after a power cut."""

    def versioned(self, path: str) -> Versioned | None:
        """Return what a file holds and its version, None if the file is missing."""

    def swap(self, path: str, content: bytes, version: str | None) -> None:
        """Replace a file as `publish` does, if it still has this version; None: if it is still missing.

        Raises FileChanged if another content is there. After any error the content may be in its place all the same, or
        get there later: an answer can be lost.
        """

    def require_swaps(self) -> None:
        """Raise OSError if the place cannot do what `swap` promises."""

    def sync(self, paths: Iterable[str]) -> None:
        """Make these files, and their names, survive a power cut."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all its contents; a missing path is no error."""

    def link(self, paths: Iterable[str], folder: str) -> None:
        """Let a new folder hold these files, too, without a copy of them. Raises OSError if the place cannot do that.

        Readers see the folder with all of them, or no folder.
        """

    def locked(self, path: str, what: str) -> AbstractContextManager[None]:
        """Exclude all other processes, on any machine that sees the same files.

        Raises LakeError if another process has the lock.
        """


def for_each(files: Files, function: Callable[[T], R], given: Iterable[T]) -> list[R]:
    """Return the function's results in order. In a bucket, where each request waits, many calls run at a time.

    Raises the first error.
    """
    wanted = list(given)
    if files.is_folder or len(wanted) < 2:
        return [function(one) for one in wanted]
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), thread_name_prefix="redeliver-bucket") as pool:
        return list(pool.map(function, wanted))
