# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the files of a lake, journal or plan, and implements the operations of `file_store` for a POSIX file system."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import BinaryIO, Final

from ..errors import ConfigError
from ..redaction import redact
from .errors import LakeError, lake_error
from .file_store import FileChanged, FileEntry, Files, Versioned
from .object_files import SCHEMES, ObjectFiles

__all__ = ["FileChanged", "FileEntry", "Files", "PosixFiles", "Versioned", "files_at", "sync"]

DRAFT: Final = "_new-"  # begins the name of a file that is being written
_SWAP_LOCK: Final = "_swap.lock"
_PATIENCE: Final = 10.0  # seconds until a process that has stopped within a swap is given up
_PAUSE: Final = 0.002  # seconds between two tries to have the lock


def files_at(place: str | os.PathLike[str], what: str = "lake") -> Files:
    """Return the files under a path or a `file:` URL, those of a lake also in a bucket.

    `what` names the kind: lake, journal, plan. Raises ConfigError for any other kind of place.
    """
    text = os.fspath(place)
    scheme, mark, rest = text.partition("://")
    if mark and scheme in SCHEMES and what == "lake":
        return ObjectFiles(text)
    if mark and scheme in SCHEMES:
        why = {
            "plan": "With its replay, a ledger is appended to and synced, which no object store can do",
            "journal": "Its segments are appended to and renamed, which no object store can do",
        }.get(what, "It is written in place")
        raise ConfigError(
            f"a {what} cannot be in a bucket",
            where=redact(text),
            cure=f"Give a folder that driver and executors share. {why}",
            code="path-not-usable",
        )
    if mark and scheme != "file":
        raise ConfigError(
            f"a {what} on {scheme}:// cannot be had yet",
            where=redact(text),
            cure="Give a folder that driver and executors share, such as an NFS or FUSE mount of it",
            code="path-not-usable",
        )
    text = rest if mark else text.removeprefix("file:")
    if not text.strip():
        raise ConfigError("an empty path", where=what, cure=f"Give the {what}'s folder", code="path-not-usable")
    return PosixFiles(os.path.abspath(text))


class PosixFiles:
    """Accesses files in a folder of this machine, or of a file system that all machines share."""

    is_folder = True

    def __init__(self, root: str) -> None:
        self.root = root

    def url(self, path: str = "") -> str:
        return os.path.join(self.root, path) if path else self.root

    def spark_url(self, path: str = "") -> str:
        return self.url(path)

    def entries(self, folder: str = "") -> list[FileEntry]:
        entries: list[FileEntry] = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.url(folder)) as found:
            for one in found:
                with suppress(FileNotFoundError):  # renamed or removed since it was listed
                    if one.is_dir() or one.is_file():  # reading a pipe would block until its writer writes
                        entries.append(FileEntry(one.name, 0 if one.is_dir() else one.stat().st_size, one.is_dir()))
        return sorted(entries)

    def read(self, path: str) -> bytes:
        with open(self.url(path), "rb") as file:
            return file.read()

    def open(self, path: str) -> BinaryIO:
        return open(self.url(path), "rb")

    def draft(self, path: str) -> str:
        folder, name = os.path.split(self.url(path))
        os.makedirs(folder, exist_ok=True)
        # Two tries of one task may run at the same time: each has a file of its own until the file is complete.
        return os.path.join(folder, f"_{secrets.token_hex(4)}-{name}")

    def finish(self, draft: str, path: str) -> int:
        sync(draft)
        size = os.stat(draft).st_size
        os.replace(draft, self.url(path))
        return size

    def publish(self, path: str, content: bytes) -> None:
        final = self.url(path)
        folder, name = os.path.split(final)
        os.makedirs(folder, exist_ok=True)
        new = os.path.join(folder, f"{DRAFT}{name}")
        try:
            with open(new, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, final)
        except OSError:
            if os.path.exists(new):
                os.unlink(new)
            raise
        sync(folder)

    def versioned(self, path: str) -> Versioned | None:
        try:
            content = self.read(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Versioned(content, hashlib.blake2b(content, digest_size=16).hexdigest())

    def swap(self, path: str, content: bytes, version: str | None) -> None:
        with self._swapping():
            found = self.versioned(path)
            if (found.version if found else None) != version:
                raise FileChanged(errno.EEXIST, "another content is there", self.url(path))
            self.publish(path, content)

    def require_swaps(self) -> None:
        """Return at once: every file system with `flock` and `rename` can do it."""

    @contextmanager
    def _swapping(self) -> Iterator[None]:
        """Exclude all other swaps in this folder; a process that is killed within one excludes nobody."""
        os.makedirs(self.root, exist_ok=True)
        fd = os.open(self.url(_SWAP_LOCK), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            end = time.monotonic() + _PATIENCE
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise OSError(errno.ETIMEDOUT, "another process holds the lock", self.url(_SWAP_LOCK)) from None
                    time.sleep(_PAUSE)
            yield
        finally:
            os.close(fd)

    def sync(self, paths: Iterable[str]) -> None:
        places = [self.url(path) for path in paths]
        for place in places:
            sync(place)
        # A new file survives with its folder's entry, and a new folder with its parent's, up to the lake's own.
        folders = {os.path.dirname(place) for place in places}
        while folders:
            for folder in folders:
                sync(folder)
            folders = {os.path.dirname(folder) for folder in folders if folder != self.root}

    def remove(self, path: str) -> None:
        place = self.url(path)
        if os.path.isdir(place):
            shutil.rmtree(place, onerror=_unless_gone)
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(place)

    def link(self, paths: Iterable[str], folder: str) -> None:
        parent, name = os.path.split(folder)
        new = os.path.join(parent, f"{DRAFT}{name}")
        self.remove(new)
        try:
            os.makedirs(self.url(new))
            for path in paths:
                os.link(self.url(path), os.path.join(self.url(new), os.path.basename(path)))
            os.rename(self.url(new), self.url(folder))
        except OSError:
            with suppress(OSError):
                self.remove(new)
            raise

    @contextmanager
    def locked(self, path: str, what: str) -> Iterator[None]:
        place = self.url(path)
        fd = _locked_file(place, what, self.root)
        try:
            yield
        finally:
            os.close(fd)


def _unless_gone(function: object, path: str, raised: tuple[type[BaseException], BaseException, TracebackType]) -> None:
    """Raise the error of a removal, unless another process has removed the same. Called by `shutil.rmtree`."""
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


def _locked_file(place: str, what: str, where: str) -> int:
    """Return the lock file, which names its holder, with the lock, which ends with the process."""
    try:
        fd = os.open(place, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({"pid": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        except BaseException:
            content = os.pread(fd, 4096, 0)
            os.close(fd)
            raise
    except BlockingIOError:
        raise _held(what, content, where) from None
    except OSError as error:
        raise lake_error(error, place) from error
    return fd


def _held(what: str, content: bytes, where: str) -> LakeError:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} on {holder['host']}"
    except (ValueError, KeyError, TypeError):
        who = "another process"  # the holder has the lock and has not written its name yet
    return LakeError(
        f"{who} is at work on its {what}",
        where=where,
        cure="Run it again when that one is done",
        code="locked-by-another-process",
    )


def sync(place: str) -> None:
    """Make the content of a file, or the names in a folder, survive a power cut. Raises OSError."""
    fd = os.open(place, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
