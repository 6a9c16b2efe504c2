# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes files of letters: for this user's eyes only, never over another file, and on the disk when it is said so."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..errors import ConfigError, StoreError
from ..redaction import visible

MODE: Final = 0o600
_BLOCK: Final = 1 << 16


def checked_file(name: str | Path) -> Path:
    """Return the whole path of a file that is to be written. Raises ConfigError for a name that is not acceptable.

    Refused are a name with .. in it, one that is there already, and one with characters that steer terminals.
    """
    text = os.fspath(name)
    if not text or visible(text) != text or text.endswith(("/", os.sep)):
        raise _no_name(text, "it is no name of a file", "Write a name without control characters")
    path = Path(text)
    if ".." in path.parts:
        raise _no_name(text, "it leads out of its folder", "Write the name without ..")
    whole = Path(os.path.abspath(path))
    if os.path.lexists(whole):
        raise _is_there(whole)
    if not whole.parent.is_dir():
        raise _no_name(text, "there is no such folder", "Make the folder first")
    return whole


class AppendedFile:
    """Is a file to which lines are appended after a first line of its own; a context manager.

    With `again`, the file of an earlier run may be there, and is continued if it has the same first line; half a line
    at its end is removed. A file with nothing but the first line is removed at the end. Raises ConfigError for a file
    that is another one's, and StoreError for what the system refuses.
    """

    def __init__(self, path: Path, first: bytes, *, again: bool = False) -> None:
        self.path, self._first, self._again = path, first, again
        self._handle = -1

    def write(self, line: bytes) -> None:
        """Append a line. Raises StoreError."""
        _write_all(self._handle, line, self.path)

    def sync(self) -> None:
        """Return when all lines are on the disk. Raises StoreError."""
        try:
            os.fsync(self._handle)
        except OSError as error:
            raise _refused(self.path, error) from None

    def __enter__(self) -> Self:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | (0 if self._again else os.O_EXCL)
        try:
            self._handle = os.open(self.path, flags, MODE)
        except FileExistsError:
            raise _is_there(self.path) from None
        except OSError as error:
            raise _refused(self.path, error) from None
        try:
            self._begin()
        except BaseException as error:
            os.close(self._handle)
            if isinstance(error, OSError):
                raise _refused(self.path, error) from None
            raise
        return self

    def _begin(self) -> None:
        begun = os.pread(self._handle, len(self._first), 0)
        if not self._first.startswith(begun):
            raise _is_there(self.path)
        _cut_half_a_line(self._handle)
        if os.fstat(self._handle).st_size == 0:
            self.write(self._first)
        _sync_folder(self.path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        empty = os.fstat(self._handle).st_size <= len(self._first)
        os.close(self._handle)
        if empty:
            with contextlib.suppress(OSError):
                self.path.unlink()


class WholeFile:
    """Is a file that appears under its name when all of it is on the disk, or not at all; a context manager.

    Raises ConfigError for a file that is there already, and StoreError for what the system refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._part = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
        self._handle = -1

    def write(self, line: bytes) -> None:
        """Append a line. Raises StoreError."""
        _write_all(self._handle, line, self.path)

    def __enter__(self) -> Self:
        try:
            self._handle = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        except OSError as error:
            raise _refused(self.path, error) from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                os.fsync(self._handle)
                _put(self._part, self.path)
                _sync_folder(self.path)
        except FileExistsError:
            raise _is_there(self.path) from None
        except OSError as refusal:
            raise _refused(self.path, refusal) from None
        finally:
            os.close(self._handle)
            with contextlib.suppress(OSError):
                self._part.unlink()


def _put(part: Path, path: Path) -> None:
    """Give a file its name. A link, unlike a rename, never takes the place of another file."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE))
        os.replace(part, path)


def _cut_half_a_line(handle: int) -> None:
    size = os.fstat(handle).st_size
    at = size
    while at > 0:
        start = max(0, at - _BLOCK)
        found = os.pread(handle, at - start, start).rfind(b"\n")
        if found >= 0:
            at = start + found + 1
            break
        at = start
    if at != size:
        os.ftruncate(handle, at)


def _write_all(handle: int, data: bytes, path: Path) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(handle, left) :]
    except OSError as error:
        raise _refused(path, error) from None


def _sync_folder(path: Path) -> None:
    """Return when the file's name is on the disk, too."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _is_there(path: Path) -> ConfigError:
    return _no_name(str(path), "it is there already", "Name a new file, or move that one away")


def _no_name(text: str, what: str, cure: str) -> ConfigError:
    return ConfigError(what, where=visible(text), cure=cure, code="letter-file-name")


def _refused(path: Path, error: OSError) -> StoreError:
    what = error.strerror or type(error).__name__
    return StoreError(
        f"the file cannot be written: {what}",
        where=visible(str(path)),
        cure="No letter has changed its state since; mend that, and run it again",
        code="letter-file",
    )
