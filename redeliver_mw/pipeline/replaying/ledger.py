# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger of a replay: which letters of its plan were sent, and what the broker said.

::

    PLAN/ledger/bucket-00000.RUN-xxxxxx.jsonl     one file a bucket and try; lines are added, never changed
    {"ledger": 1, "plan": …, "bucket": 0, "run": …, "host": …, "pid": …, "at_us": …, "crc": …}
    {"intent": "0-499", "at_us": …, "crc": …}                on the disk before the first of them is sent
    {"done": "0-498", "refused": {"NO_ROUTE": "499"}, …}     when all of them are answered

A letter is *confirmed* if any try says so. In *doubt* is what was meant to be sent and has no answer: its publisher
was killed, or the broker was silent. `crc` is that of the line without it. With an intent the room for its answer is
reserved, so that a full disk is met before anything is sent, and not after.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..errors import LakeError
from . import ranges

VERSION: Final = 1
FOLDER: Final = "ledger"

LedgerLine = Mapping[str, Any]


@dataclass(slots=True)
class LedgerAnswer:
    """What became of a batch, by position. `unsent` was never given to the broker, `silent` nobody knows of."""

    confirmed: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)
    silent: set[int] = field(default_factory=set)


@dataclass(slots=True)
class LedgerRecord:
    """What all tries say of the letters of one bucket, by position: each is in one of the three, or in none."""

    confirmed: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    doubt: set[int] = field(default_factory=set)
    _fresh: set[int] = field(default_factory=set)  # of those that were intended last: which were in no doubt before

    def intend(self, positions: set[int]) -> None:
        """They are on their way: what was said of them before is to be said anew."""
        self._fresh = positions - self.doubt
        self.doubt |= positions
        for position in positions:
            self.refused.pop(position, None)

    def add(self, answer: LedgerAnswer) -> None:
        """Of those that were intended last."""
        self.confirmed |= answer.confirmed
        self.refused.update(answer.refused)
        self.doubt |= answer.silent
        self.doubt -= answer.confirmed | answer.refused.keys() | (answer.unsent & self._fresh)

    def settle(self) -> LedgerRecord:
        """A confirmed letter stays that, whatever another try says of it."""
        self.doubt -= self.confirmed
        for position in self.refused.keys() & self.confirmed:
            del self.refused[position]
        return self


def tries(folder: str) -> dict[int, list[str]]:
    """The files of a plan's ledger by bucket, in no order. OSError."""
    place = os.path.join(folder, FOLDER)
    found: dict[int, list[str]] = {}
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if name.startswith("bucket-") and name.endswith(".jsonl"):
            bucket = int(name.removeprefix("bucket-").partition(".")[0])
            found.setdefault(bucket, []).append(os.path.join(place, name))
    return found


def read(paths: Collection[str], plan_id: str) -> LedgerRecord:
    """What these tries at one bucket say. LakeError for a file that is damaged; OSError."""
    told = LedgerRecord()
    for lines in sorted((list(_lines(path, plan_id)) for path in paths), key=_begun):
        for line in lines[1:]:
            if "intent" in line:
                told.intend(ranges.read(line["intent"]) - told.confirmed)
            else:
                told.add(answer_of(line))
    return told.settle()


def parsed(line: bytes) -> LedgerLine | None:
    """A whole line; None if it is damaged."""
    body, mark, crc = line.rpartition(b',"crc":"')
    if not mark or crc != b'%08x"}' % zlib.crc32(body):
        return None
    said: LedgerLine = json.loads(body + b"}")
    return said


def answer_of(line: LedgerLine) -> LedgerAnswer:
    """What a line with `done` says. ValueError for positions that are none."""
    refused = {position: why for why, text in line.get("refused", {}).items() for position in ranges.read(text)}
    unsent, silent = (ranges.read(line.get(name, "")) for name in ("unsent", "silent"))
    return LedgerAnswer(ranges.read(line["done"]), refused, unsent, silent)


def _begun(lines: list[LedgerLine]) -> int:
    return int(lines[0]["at_us"]) if lines else 0


def _lines(path: str, plan_id: str) -> Iterator[LedgerLine]:
    """The lines of a file. The last one may be torn, of a process or a machine that died: then it says nothing."""
    with open(path, "rb") as file:
        content = file.read().rstrip(b"\0")  # room that was reserved
    whole, _, _torn = content.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    for number, line in enumerate(lines, 1):
        said = parsed(line)
        if said is None and number == len(lines) and b"\0" in line:
            return  # a power cut keeps blocks of a line in any order
        if said is None or ("ledger" in said) != (number == 1):
            raise _damaged(path, f"line {number} is damaged")
        if number == 1 and (said["ledger"] != VERSION or said["plan"] != plan_id):
            raise _damaged(path, "it belongs to another plan, or was written by a newer release")
        yield said


def _damaged(path: str, what: str) -> LakeError:
    cure = "Restore this file; without it nobody knows which of its letters were sent"
    return LakeError(what, where=path, cure=cure)


def line_of(said: Mapping[str, object]) -> bytes:
    """The line that says this, with its newline."""
    body = json.dumps(said, separators=(",", ":")).encode()[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))
