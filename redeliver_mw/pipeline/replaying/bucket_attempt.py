# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One try at the letters of a bucket, written down: each batch before it is sent, and when it is answered."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import socket
import time
from collections.abc import Collection
from typing import Final

from ..errors import LakeError
from ..files import sync
from ..manifests import now_us
from . import ranges
from .ledger import FOLDER, VERSION, LedgerAnswer, line_of, read, tries

WHYS: Final = 16  # different reasons that one answer tells; what is refused for others has the last one
WHY_BYTES: Final = 240  # of a reason as JSON
PATIENCE: Final = 10.0
_AGAIN: Final = 0.05  # seconds between two tries to get the lock
_FRAME: Final = 512  # bytes of a line beside its positions and reasons
_RESERVE: Final = 16 << 10  # bytes that are reserved at a time, if the disk has them
_OTHER: Final = "refused, for one more reason than are told apart"
_NOT_RESERVING: Final = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}


class BucketAttempt:
    """One try at one bucket, by one process. `before` is what earlier tries say. Not for several threads.

    LakeError if another process is at this bucket for `patience` seconds more, as two of them would send the same
    letters, and if what an earlier one wrote is damaged. Every method may raise OSError.
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
        """They are about to be sent: on the disk when this returns, with room for the answer. Else send nothing."""
        line = line_of({"intent": ranges.write(positions), "at_us": now_us()})
        if new := self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)
        if self._end == 0:
            said = {"host": socket.gethostname(), "pid": os.getpid(), "at_us": now_us()}
            line = line_of(self._about | said) + line
        self._reserve(len(line) + _room(len(positions)))
        self._append(line)
        os.fsync(self._fd)
        if new:
            sync(os.path.dirname(self._path))

    def answer(self, answer: LedgerAnswer) -> None:
        """What became of what was intended last. On the disk before the next is sent, and when this is closed."""
        whys: dict[str, list[int]] = {}
        for position, why in answer.refused.items():
            cut = _cut(why)
            whys.setdefault(cut if cut in whys or len(whys) < WHYS else _OTHER, []).append(position)
        said = {
            "refused": {why: ranges.write(found) for why, found in whys.items()},
            "unsent": ranges.write(answer.unsent),
            "silent": ranges.write(answer.silent),
        }
        line = {"done": ranges.write(answer.confirmed)} | {name: value for name, value in said.items() if value}
        self._append(line_of(line | {"at_us": now_us()}))

    def close(self) -> None:
        """Gives back the room that was not used, and lets others at this bucket. May be called twice."""
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
        """Room for `size` bytes more, and where there is enough for some more."""
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
    """Bytes that the answer of so many takes at most."""
    return positions * ranges.WIDEST + (WHYS + 1) * (WHY_BYTES + 8) + _FRAME


def _allocate(fd: int, offset: int, size: int) -> None:
    try:
        os.posix_fallocate(fd, offset, size)
    except OSError as error:
        if error.errno not in _NOT_RESERVING:
            raise
        os.pwrite(fd, bytes(size), offset)  # a file system that reserves by being written to


def _locked(place: str, patience: float) -> int:
    """The lock that goes with this process. A publisher whose job was given up may take a moment to end."""
    fd = os.open(place, os.O_RDWR | os.O_CREAT, 0o640)
    deadline = time.monotonic() + patience
    try:
        while not _lock(fd):
            if time.monotonic() >= deadline:
                cure = "Wait for the end of the other publisher, or end it, and run it again"
                raise LakeError("another process sends these letters just now", where=place, cure=cure)
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
