# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Records which letters of a plan were sent, and the broker's answers: the ledger of a replay.

Reads, writes and follows it.

::

    PLAN/ledger/bucket-00000.RUN-xxxxxx.jsonl     one file per bucket and try; lines are added, never changed
    {"ledger": 1, "plan": …, "bucket": 0, "run": …, "host": …, "pid": …, "at_us": …, "crc": …}
    {"intent": "0-499", "at_us": …, "crc": …}                on the disk before the first of them is sent
    {"done": "0-498", "refused": {"NO_ROUTE": "499"}, …}     when all of them are answered

A letter is *confirmed* if any try has its confirm. A letter is in *doubt* if it was about to be sent and has no answer:
its publisher was killed, or the broker was silent. `crc` is the checksum of the line without it. With an intent the
space for its answer is reserved, so that a full disk is noticed before anything is sent, and not after.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import socket
import time
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...dead_letters.sending.batch_publisher import BatchAnswer
from ..errors import LakeError
from ..files import sync
from ..manifests import now_us

VERSION: Final = 1
FOLDER: Final = "ledger"
WHYS: Final = 16  # different reasons in one answer; further refused letters get the last reason
WHY_BYTES: Final = 240  # of a reason as JSON
PATIENCE: Final = 10.0
_AGAIN: Final = 0.05  # seconds between two tries to get the lock
_FRAME: Final = 512  # bytes of a line without its positions and reasons
_RESERVE: Final = 16 << 10  # bytes that are reserved at a time, if the disk has them
_OTHER: Final = "refused, for one more reason than are kept apart"
_NOT_RESERVING: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}
_RANGES: Final = re.compile(r"[0-9]{1,10}(?:-[0-9]{1,10})?(?:,[0-9]{1,10}(?:-[0-9]{1,10})?)*")
_WIDEST: Final = 11  # maximum characters of a position, with its comma

LedgerLine = Mapping[str, Any]


@dataclass(slots=True)
class LedgerRecord:
    """Sums up all tries for one bucket's letters, by position: each letter is in one of three sets, or in none."""

    confirmed: set[int] = field(default_factory=set)
    refused: dict[int, str] = field(default_factory=dict)
    doubt: set[int] = field(default_factory=set)
    _fresh: set[int] = field(default_factory=set)  # letters of the last intent that were not in doubt before

    def intend(self, positions: set[int]) -> None:
        """Note that letters are about to be sent, which makes their earlier results void."""
        self._fresh = positions - self.doubt
        self.doubt |= positions
        for position in positions:
            self.refused.pop(position, None)

    def add(self, answer: BatchAnswer) -> None:
        """Add the results of the last intent."""
        self.confirmed |= answer.confirmed
        self.refused.update(answer.refused)
        self.doubt |= answer.silent
        self.doubt -= answer.confirmed | answer.refused.keys() | (answer.unsent & self._fresh)

    def settle(self) -> LedgerRecord:
        """Return the record after giving confirms priority: a confirmed letter stays confirmed for any other result."""
        self.doubt -= self.confirmed
        for position in self.refused.keys() & self.confirmed:
            del self.refused[position]
        return self


def tries(folder: str) -> dict[int, list[str]]:
    """Return the files of a plan's ledger by bucket, in no order. Raises OSError."""
    place = os.path.join(folder, FOLDER)
    found: dict[int, list[str]] = {}
    for name in os.listdir(place) if os.path.isdir(place) else ():
        if name.startswith("bucket-") and name.endswith(".jsonl"):
            bucket = int(name.removeprefix("bucket-").partition(".")[0])
            found.setdefault(bucket, []).append(os.path.join(place, name))
    return found


def read(paths: Collection[str], plan_id: str) -> LedgerRecord:
    """Return the record of these tries for one bucket. Raises LakeError for a damaged file, and OSError."""
    record = LedgerRecord()
    for lines in sorted((list(_lines(path, plan_id)) for path in paths), key=_begun):
        for line in lines[1:]:
            if "intent" in line:
                record.intend(positions_in(line["intent"]) - record.confirmed)
            else:
                record.add(answer_of(line))
    return record.settle()


def parsed(line: bytes) -> LedgerLine | None:
    """Return a whole line; None if it is damaged."""
    body, mark, crc = line.rpartition(b',"crc":"')
    if not mark or crc != b'%08x"}' % zlib.crc32(body):
        return None
    found: LedgerLine = json.loads(body + b"}")
    return found


def answer_of(line: LedgerLine) -> BatchAnswer:
    """Return the answer of a line with `done`. Raises ValueError for invalid positions."""
    refused = {position: why for why, text in line.get("refused", {}).items() for position in positions_in(text)}
    unsent, silent = (positions_in(line.get(name, "")) for name in ("unsent", "silent"))
    return BatchAnswer(positions_in(line["done"]), refused, unsent, silent)


def _begun(lines: list[LedgerLine]) -> int:
    return int(lines[0]["at_us"]) if lines else 0


def _lines(path: str, plan_id: str) -> Iterator[LedgerLine]:
    """Yield the lines of a file.

    The last line may be torn after a crash of the process or machine; then it is ignored.
    """
    with open(path, "rb") as file:
        content = file.read().rstrip(b"\0")  # remove space that was reserved
    whole, _, _torn = content.rpartition(b"\n")
    lines = whole.split(b"\n") if whole else []
    for number, line in enumerate(lines, 1):
        values = parsed(line)
        if values is None and number == len(lines) and b"\0" in line:
            return  # after a power cut any blocks of a line may be missing
        if values is None or ("ledger" in values) != (number == 1):
            raise _damaged(path, f"line {number} is damaged")
        if number == 1 and (values["ledger"] != VERSION or values["plan"] != plan_id):
            raise _damaged(path, "it belongs to another plan, or was written by a newer release")
        yield values


def _damaged(path: str, what: str) -> LakeError:
    cure = "Restore this file; without it nobody knows which of its letters were sent"
    return LakeError(what, where=path, cure=cure, code="replay-ledger-damaged")


def line_of(values: Mapping[str, object]) -> bytes:
    """Return the line for these values, with its newline."""
    body = json.dumps(values, separators=(",", ":")).encode()[:-1]
    return b'%s,"crc":"%08x"}\n' % (body, zlib.crc32(body))


class BucketAttempt:
    """Makes one try at one bucket, in one process. `before` is the record of earlier tries. Not thread-safe.

    Raises LakeError if another process works on this bucket for `patience` seconds more, because two processes would
    send the same letters, and if an earlier file is damaged. Every method may raise OSError.
    """

    def __init__(self, folder: str, plan_id: str, bucket: int, run: str, *, patience: float = PATIENCE) -> None:
        place = os.path.join(folder, FOLDER)
        os.makedirs(place, exist_ok=True)
        self._lock = _locked(os.path.join(place, f"_bucket-{bucket:05d}.lock"), patience)
        try:
            self.before = read(tries(folder).get(bucket, ()), plan_id)
        except BaseException:
            os.close(self._lock)
            raise
        self._about = {"ledger": VERSION, "plan": plan_id, "bucket": bucket, "run": run}
        self._path = os.path.join(place, f"bucket-{bucket:05d}.{run}-{secrets.token_hex(3)}.jsonl")
        self._fd = -1
        self._end = self._reserved = 0

    def intend(self, positions: Collection[int]) -> None:
        """Note letters that are about to be sent: on the disk when this returns, with space for the answer.

        If this raises, send nothing.
        """
        line = line_of({"intent": as_ranges(positions), "at_us": now_us()})
        if new := self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        if self._end == 0:
            about = {"host": socket.gethostname(), "pid": os.getpid(), "at_us": now_us()}
            line = line_of(self._about | about) + line
        self._reserve(len(line) + _room(len(positions)))
        self._append(line)
        os.fsync(self._fd)
        if new:
            sync(os.path.dirname(self._path))

    def answer(self, answer: BatchAnswer) -> None:
        """Note the results of the last intent. They are on the disk before the next letter is sent, and at the end."""
        whys: dict[str, list[int]] = {}
        for position, why in answer.refused.items():
            cut = _cut(why)
            whys.setdefault(cut if cut in whys or len(whys) < WHYS else _OTHER, []).append(position)
        others = {
            "refused": {why: as_ranges(found) for why, found in whys.items()},
            "unsent": as_ranges(answer.unsent),
            "silent": as_ranges(answer.silent),
        }
        line = {"done": as_ranges(answer.confirmed)} | {name: value for name, value in others.items() if value}
        self._append(line_of(line | {"at_us": now_us()}))

    def close(self) -> None:
        """Give back the space that was not used, and release the bucket. May be called twice."""
        fd, lock, self._fd, self._lock = self._fd, self._lock, -1, -1
        try:
            if fd >= 0:
                os.ftruncate(fd, self._end)
                os.fsync(fd)
        finally:
            for one in (fd, lock):
                if one >= 0:
                    os.close(one)

    def _reserve(self, size: int) -> None:
        """Reserve `size` more bytes, and some more if the disk has enough."""
        if self._end + size <= self._reserved:
            return
        for wanted in (max(size, _RESERVE), size):
            try:
                _allocate(self._fd, self._end, wanted)
                self._reserved = self._end + wanted
                return
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT) or wanted == size:
                    raise

    def _append(self, line: bytes) -> None:
        view = memoryview(line)
        while view:
            written = os.pwrite(self._fd, view, self._end)
            self._end, view = self._end + written, view[written:]


def _cut(why: str) -> str:
    while len(json.dumps(why)) > WHY_BYTES:
        why = why[: max(0, len(why) * 3 // 4)]
    return why


def _room(positions: int) -> int:
    """Return the maximum number of bytes that the answer for so many positions takes."""
    return positions * _WIDEST + (WHYS + 1) * (WHY_BYTES + 8) + _FRAME


def _allocate(fd: int, offset: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as error:
        if error.errno not in _NOT_RESERVING:
            raise
        os.pwrite(fd, bytes(size), offset)  # for a file system that reserves space by writing


def _locked(place: str, patience: float) -> int:
    """Return the lock, which ends with this process. A publisher of an abandoned job may take a moment to end."""
    fd = os.open(place, os.O_RDWR | os.O_CREAT, 0o640)
    deadline = time.monotonic() + patience
    try:
        while not _lock(fd):
            if time.monotonic() >= deadline:
                cure = "Wait for the end of the other publisher, or end it, and run it again"
                raise LakeError(
                    "another process sends these letters just now",
                    where=place,
                    cure=cure,
                    code="locked-by-another-process",
                )
            time.sleep(_AGAIN)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ReplayProgress:
    """Counts the letters that a run has confirmed and refused so far, and the duration of its phases.

    `first_us` and `last_us` are the first intent and the last answer of the current phase.
    """

    def __init__(self, folder: str, run: str) -> None:
        self._place, self._run = os.path.join(folder, FOLDER), run
        self._read_to: dict[str, int] = {}
        self.confirmed = self.refused = 0
        self.first_us: int | None = None
        self.last_us: int | None = None
        self._phases_us = 0  # of finished phases

    @property
    def seconds(self) -> float:
        """Return the time from first letter to last answer, summed over the phases, without the time between them."""
        return (self._phases_us + self._phase_us) / 1e6

    @property
    def _phase_us(self) -> int:
        return 0 if self.first_us is None or self.last_us is None else max(0, self.last_us - self.first_us)

    def begin_phase(self) -> None:
        """Begin the count of time for a new phase: the canary, or what follows it. Raises OSError."""
        self.look()
        self._phases_us += self._phase_us
        self.first_us = self.last_us = None

    def look(self) -> None:
        """Read the new lines. Raises OSError."""
        for name in os.listdir(self._place) if os.path.isdir(self._place) else ():
            if f".{self._run}-" in name and name.endswith(".jsonl"):
                self._file(os.path.join(self._place, name))

    def _file(self, path: str) -> None:
        with open(path, "rb") as file:
            file.seek(self._read_to.get(path, 0))
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to[path] = self._read_to.get(path, 0) + len(whole)
        for line in whole.splitlines():
            if (values := parsed(line)) is not None:
                self._line(values)

    def _line(self, values: LedgerLine) -> None:
        at_us = int(values["at_us"])
        if "intent" in values:
            self.first_us = at_us if self.first_us is None else min(self.first_us, at_us)
        if "done" in values:
            answer = answer_of(values)
            self.confirmed += len(answer.confirmed)
            self.refused += len(answer.refused)
            self.last_us = at_us if self.last_us is None else max(self.last_us, at_us)


def as_ranges(positions: Collection[int]) -> str:
    """Return positions as text, `0-499,503`, with ranges for consecutive positions.

    Ascending, each once; empty for none.
    """
    parts: list[list[int]] = []
    for position in sorted(set(positions)):
        if parts and parts[-1][1] == position - 1:
            parts[-1][1] = position
        else:
            parts.append([position, position])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def positions_in(text: str) -> set[int]:
    """Return the positions of a text from `as_ranges`. Raises ValueError for any other text."""
    if not text:
        return set()
    if not isinstance(text, str) or not _RANGES.fullmatch(text):
        raise ValueError(f"{text!r} are no positions")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if last and int(last) < int(first):
            raise ValueError(f"{part!r} ends before it begins")
        found.update(range(int(first), int(last or first) + 1))
    return found
