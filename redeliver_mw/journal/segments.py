# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Manages the files of a journal: written under one name, readable under another, and complete in between.

A segment that is being written is named `_seg-<host>-<pid>-<run>.<n>.jsonl.open`, and is renamed to
`seg-<host>-<pid>-<run>.<n>.jsonl` when it is complete; Spark skips names that begin with `_`. `run` is 12 random hex
digits, so a reused pid makes no name twice. The writer holds an exclusive `flock` on its open segment for as long as it
lives: a process that gets the lock knows that the writer is dead.
"""

from __future__ import annotations

import errno
import importlib.util
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from .records import AttemptRecord, HealthyCount, OtherKind, PolicyRecord, count_from_line, from_line, policy_from_line

_log = logging.getLogger("redeliver_mw.journal")
_OPEN = re.compile(r"_(?P<stem>seg-(?P<host>.+)-(?P<pid>\d+)-(?P<run>[0-9a-f]+)\.\d+\.jsonl)\.open")
_BLOCK = 64 * 1024
# Windows has no flock; there the pid in the name is used instead.
_fcntl: Any = importlib.import_module("fcntl") if importlib.util.find_spec("fcntl") else None

JournalRecord = TypeVar("JournalRecord")
OnBad = Callable[[Path, int, ValueError], None]


class SegmentFile:
    """Is one open segment, locked. Not thread-safe. Every method may raise OSError."""

    __slots__ = ("_fd", "opened", "path", "records", "size")

    def __init__(self, directory: Path, host: str, run: str, number: int, now: float) -> None:
        """Create the file.

        Raises FileExistsError if another file has its name, or another process took the file at once.
        """
        self.path = directory / f"_seg-{host}-{os.getpid()}-{run}.{number:06d}.jsonl.open"
        self.size, self.records, self.opened = 0, 0, now
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._fd = os.open(self.path, flags, 0o640)
        # Between the two calls a starting process may have taken the empty file for an orphan.
        if _lock(self._fd) is False or not self.is_there():
            self.release()
            raise FileExistsError(f"{self.path} was taken away while it was made")

    @property
    def released(self) -> bool:
        return self._fd < 0

    def is_there(self) -> bool:
        """Return whether the name still leads to this file: a removed directory accepts writes without an error."""
        try:
            return _same_file(self._fd, self.path)
        except OSError:
            return False

    def write(self, lines: bytes, records: int) -> None:
        """Write all of `lines` or nothing: a part written to a full disk is removed again."""
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            try:
                os.ftruncate(self._fd, self.size)
            except OSError:
                self.release()  # for good: a line added now would be joined to half a line
            raise
        self.size += len(lines)
        self.records += records

    def sync(self) -> None:
        os.fsync(self._fd)

    def finish(self, *, sync: bool) -> Path:
        """Rename the file to its readable name, in one step, and let go of it."""
        final = self.path.with_name(self.path.name.removeprefix("_").removesuffix(".open"))
        try:
            if sync:
                self.sync()
            os.rename(self.path, final)
        finally:
            self.release()
        if sync:
            sync_directory(final.parent)
        return final

    def release(self) -> None:
        """Close the file, which frees the lock; in a forked child the parent's lock stays."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def recover(directory: Path, host: str) -> list[Path]:
    """Make the segments readable that dead processes of this host left open; return them.

    Whole lines stay. Half a line at the end is moved to `_torn-<name>` in the same directory, which Spark skips.
    Segments of other hosts and of living processes are left alone. A segment that cannot be repaired is logged.
    """
    mended: list[Path] = []
    for path in sorted(directory.glob("_seg-*.jsonl.open")):
        name = _OPEN.fullmatch(path.name)
        if name is None or name["host"] != host:
            continue
        try:
            final = _recover_one(path, int(name["pid"]), directory / name["stem"])
        except FileNotFoundError:
            continue  # another process that started at the same time was faster
        except OSError as error:
            _log.warning("journal: %s was left open by a dead process and cannot be closed: %s", path, error)
            continue
        if final is not None:
            mended.append(final)
    return mended


def read_segments(directory: str | Path, on_bad: OnBad | None = None) -> Iterator[AttemptRecord]:
    """Yield the attempts of all closed segments, by file name and line; those of one process in their order.

    A bad line is passed to `on_bad(file, byte offset of the line, what is wrong)` and skipped. Without `on_bad`, raises
    ValueError, whose text names file and offset.
    """
    return _records(Path(directory), from_line, on_bad)


def read_policy_changes(directory: str | Path, on_bad: OnBad | None = None) -> Iterator[PolicyRecord]:
    """Yield the outcomes of new versions of policy files, in the same segments and order as `read_segments`."""
    return _records(Path(directory), policy_from_line, on_bad)


def read_healthy_counts(directory: str | Path, on_bad: OnBad | None = None) -> Iterator[HealthyCount]:
    """Yield the counts of messages without a line of their own, in the same segments and order as `read_segments`."""
    return _records(Path(directory), count_from_line, on_bad)


def _records(directory: Path, read: Callable[[bytes], JournalRecord], on_bad: OnBad | None) -> Iterator[JournalRecord]:
    for path in sorted(directory.glob("seg-*.jsonl")):
        if not path.is_file():
            _log.warning("journal: %s is no file, and is passed over", path)
            continue
        offset = 0
        with path.open("rb") as lines:
            for line in lines:
                try:
                    yield read(line)
                except OtherKind:
                    pass
                except ValueError as error:
                    if on_bad is None:
                        raise ValueError(f"{path}, byte {offset}: {error}") from None
                    on_bad(path, offset, error)
                offset += len(line)


def sync_directory(directory: Path) -> None:
    """Make renames in `directory` survive a power cut."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _recover_one(path: Path, pid: int, final: Path) -> Path | None:
    # Do not follow a link to another file, and do not wait for a pipe to open.
    fd = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        got = _lock(fd)
        if got is False or (got is None and _runs(pid)) or not _same_file(fd, path):
            return None
        size = os.fstat(fd).st_size
        whole = _whole_lines(fd, size)
        if whole < size:
            # The half line is saved first and cut off afterwards: a crash in between repeats this and loses nothing.
            _write_anew(final.with_name(f"_torn-{final.name}"), os.pread(fd, size - whole, whole))
            os.ftruncate(fd, whole)
        if whole == 0:
            os.unlink(path)
            return None
        os.fsync(fd)
        os.rename(path, final)
        return final
    finally:
        os.close(fd)


def _write_anew(path: Path, content: bytes) -> None:
    """Write a file that replaces whatever has its name, even a link to another file."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
    with os.fdopen(fd, "wb") as file:
        file.write(content)


def _whole_lines(fd: int, size: int) -> int:
    """Return the length of the file up to and including its last newline."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _lock(fd: int) -> bool | None:
    """Return True if the lock is ours, False if another process has it, None if this file system has no locks."""
    if _fcntl is None:
        return None
    try:
        _fcntl.flock(fd, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _same_file(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process runs, as another user
    return True
