# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes STOMP 1.2 frames as ActiveMQ writes and reads them. Pure.

stomp.py's own reading unescapes the names of headers, which ActiveMQ never escapes, and forgets which colon
of a line was escaped: a copy of such a header would come out as another one. So frames keep their bytes here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from stomp.utils import Frame

_ESCAPED = re.compile(r"\\.")
_MEANING = {"\\r": "\r", "\\n": "\n", "\\c": ":", "\\\\": "\\"}
_LENGTH = re.compile(rb"\ncontent-length:[ ]*(\d{1,15})(?=\n|\Z)")
HEAD_BYTES = 1 << 20  # longer ones than this are no heads any more


class NotAFrame(ValueError):
    """Reports bytes that are no STOMP: this connection cannot be read any further."""


def _parsed() -> Any:
    """Return the headers, read on first use. Untyped: mypy takes a cached property for one that cannot be written."""
    return cached_property(lambda frame: _parse(frame.head))


class RawFrame(Frame):
    """Is stomp.py's frame over the bytes as they came; `headers` are read on first use.

    `head`: the command and the header lines, without the empty line. `sized`: it came with a content-length,
    which on a MESSAGE means bytes, and without it text.
    """

    headers: dict[str, str] = _parsed()  # names as they came, values unescaped; the first of a name counts
    original_headers: dict[str, str] = _parsed()  # as stomp.py has it: before anybody changed them

    def __init__(self, head: bytes, body: bytes) -> None:
        # Not stomp.py's: it would copy headers that nobody may ever look at.
        self.head, self.body = head, body

    @property
    def cmd(self) -> str:
        """Return the command: MESSAGE, RECEIPT, ERROR or CONNECTED."""
        return self.head.partition(b"\n")[0].decode("utf-8", "replace")

    @property
    def sized(self) -> bool:
        return b"\ncontent-length:" in self.head

    def raw(self, name: bytes) -> bytes:
        """Return the value of a header as it stands on the wire; empty if there is none."""
        head = self.head
        at = head.find(b"\n" + name + b":")
        if at < 0:
            return b""
        at += len(name) + 2
        end = head.find(b"\n", at)
        return head[at:end] if end >= 0 else head[at:]

    def header(self, name: str) -> str | None:
        """Return one of `headers`, found without the others as long as nobody has asked for those."""
        if "headers" in self.__dict__:
            return self.headers.get(name)
        found = self.raw(name.encode())
        if not found and b"\n" + name.encode() + b":" not in self.head:
            return None
        return _unescaped(found.decode("utf-8", "replace"))

    def __reduce__(self) -> tuple[type[RawFrame], tuple[bytes, bytes]]:
        return RawFrame, (self.head, self.body)


def plain_frame(command: str, headers: dict[str, str], body: str | bytes | None) -> Any:
    """Return a frame as stomp.py makes it for listeners."""
    drivers: Any = Frame  # which has no types
    return drivers(command, headers, body)


def _parse(head: bytes) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in head.decode("utf-8", "replace").split("\n")[1:]:
        name, colon, value = line.partition(":")
        if colon and name not in headers:
            headers[name] = _unescaped(value)
    return headers


def _unescaped(value: str) -> str:
    if "\\" not in value:
        return value
    if "\\\\" not in value:  # then no two can be taken for one: ActiveMQ's ids, and nearly everything else
        return value.replace("\\c", ":").replace("\\n", "\n").replace("\\r", "\r")
    return _ESCAPED.sub(lambda found: _MEANING.get(found[0], found[0]), value)


def escaped(value: str) -> str:
    """Return a header's value as it goes on the wire."""
    if "\\" in value:
        value = value.replace("\\", "\\\\")
    return value.replace("\n", "\\n").replace(":", "\\c").replace("\r", "\\r")


def encode(command: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    """Return the bytes of one frame; values are escaped, names are not."""
    lines = [command, *(f"{name}:{escaped(value)}" for name, value in headers)]
    return b"".join((("\n".join(lines)).encode("utf-8", "replace"), b"\n\n", body, b"\0"))


def ack(raw_id: bytes, transaction: bytes = b"", receipt: bytes = b"") -> bytes:
    """Return an ACK for the value of a MESSAGE's `ack` header as it came."""
    extra = (b"\ntransaction:" + transaction if transaction else b"") + (b"\nreceipt:" + receipt if receipt else b"")
    return b"ACK\nid:" + raw_id + extra + b"\n\n\0"


class Splitter:
    """Puts the bytes of one connection together to frames."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._need = 0  # bytes in all before another look makes sense; 0: until a NUL comes

    def feed(self, data: bytes) -> list[RawFrame]:
        """Return the frames that `data` completes; heart-beats are none. Raises NotAFrame."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._need or (not self._need and b"\0" not in data and data.strip(b"\r\n")):
            if not self._need and self._size > HEAD_BYTES and b"\n\n" not in b"".join(self._chunks):
                raise NotAFrame("no end of a frame's head in sight")
            return []
        buffer = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        frames, at = self._split(buffer)
        rest = buffer[at:]
        self._chunks, self._size = ([rest] if rest else []), len(rest)
        return frames

    def _split(self, buffer: bytes) -> tuple[list[RawFrame], int]:
        frames: list[RawFrame] = []
        at, size = 0, len(buffer)
        self._need = 0
        while True:
            while at < size and buffer[at] in b"\r\n":
                at += 1
            end = buffer.find(b"\n\n", at)
            if end < 0:
                return frames, at
            head, start = buffer[at:end], end + 2
            found = _LENGTH.search(head)
            stop = start + int(found[1]) if found else buffer.find(b"\0", start)
            if stop < 0 or stop >= size:
                self._need = stop - at + 1 if found else 0
                return frames, at
            if buffer[stop]:
                raise NotAFrame("a frame is longer than it says")
            frames.append(RawFrame(head, buffer[start:stop]))
            at = stop + 1
