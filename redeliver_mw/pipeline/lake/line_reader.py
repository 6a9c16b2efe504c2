# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a file of lines in pieces that fit into memory: a line of a gigabyte is never held as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

# An attempt's error text, message and frames are at most 64 KiB each, six times that when JSON has to escape every
# byte of them; 2 MiB leaves room for all of them at once, and for names.
LONGEST: Final = 2 << 20
BLOCK: Final = 8 << 20
HEAD: Final = 256  # bytes of a bad line that are kept


class LineBlock(NamedTuple):
    """Holds whole lines, from `offset` on; each ends with a newline, except perhaps the file's last."""

    offset: int
    data: bytes


class Overlong(NamedTuple):
    """Describes a line of more than LONGEST bytes, of which only the head was kept. `length` excludes the newline."""

    offset: int
    length: int
    head: bytes


def read_lines(file: BinaryIO, start: int = 0, end: int | None = None) -> Iterator[LineBlock | Overlong]:
    """Yield all lines that begin at `start` or later, and before `end`: adjacent ranges give each line once.

    Lines between LONGEST and BLOCK may be part of a block. Raises OSError, and the errors of a decompressor.
    """
    first = _first_line(file, start, end)
    if first is None:
        return
    offset, rest = first
    while end is None or offset < end:
        chunk = file.read(BLOCK)
        data = rest + chunk
        whole = data.rfind(b"\n") + 1 if chunk else len(data)
        if end is not None and (last := data.find(b"\n", end - 1 - offset) + 1):
            whole = last  # the line at the range's end is the last that begins in the range
        if whole:
            yield LineBlock(offset, data[:whole])
        if not chunk:
            return
        offset, rest = offset + whole, data[whole:]
        if len(rest) > LONGEST and (end is None or offset < end):
            line, rest = _skip(file, offset, rest)
            yield line
            offset += line.length + 1


def _first_line(file: BinaryIO, start: int, end: int | None) -> tuple[int, bytes] | None:
    """Return the offset of the first line that begins in the range, and the bytes read of it; None without such a line.

    The bytes before it belong to a line of the previous range, whose reader reads that line to its end.
    """
    if start == 0:
        return 0, b""
    file.seek(start - 1)
    offset = start - 1
    while (end is None or offset < end) and (chunk := file.read(BLOCK)):
        if (found := chunk.find(b"\n")) >= 0:
            return offset + found + 1, chunk[found + 1 :]
        offset += len(chunk)
    return None


def _skip(file: BinaryIO, offset: int, begun: bytes) -> tuple[Overlong, bytes]:
    """Read a line that is too long to its end. Return its description, and the bytes read of the next line."""
    length = len(begun)
    while chunk := file.read(BLOCK):
        if (found := chunk.find(b"\n")) >= 0:
            return Overlong(offset, length + found, begun[:HEAD]), chunk[found + 1 :]
        length += len(chunk)
    return Overlong(offset, length, begun[:HEAD]), b""


def has_overlong(data: bytes) -> bool:
    """Return whether a line in `data` is longer than LONGEST."""
    at = 0
    while len(data) - at > LONGEST:
        end = data.rfind(b"\n", at, at + LONGEST + 1)
        if end < 0:
            return True
        at = end + 1
    return False
