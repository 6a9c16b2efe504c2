# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the journal: attempt records as lines of JSON, on a thread of its own.

`append` costs about a microsecond and never waits; records are made, serialised and written off the consuming thread,
at most `flush_interval` later. A crash can lose that interval, and never more than half a line of what is written. A
full disk is logged once and does not affect the messages: up to 16 MiB of lines wait for room, lines beyond that are
counted in `dropped`, and writing continues by itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import queue
import re
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..errors import EVENT_CODE, ConfigError
from .encoding import RecordIds
from .records import AnyRecord, AttemptRecord, row_to_line, to_line
from .segment_writer import Fsync, SegmentWriter
from .segments import read_healthy_counts, read_policy_changes, read_segments, recover

__all__ = ["Journal", "read_healthy_counts", "read_policy_changes", "read_segments"]

_log = logging.getLogger("redeliver_mw.journal")
_CHUNK: Final = 256 * 1024  # bytes per write
_HURRY: Final = 1024  # number of waiting records that ends the gathering of a batch early


class _Serializer:
    """Converts the items of a journal to lines of JSON, on the journal's thread.

    `failed` is called with the error of each item that cannot be written; the other items are written.
    """

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._ids = RecordIds()

    def lines(self, item: Any) -> Iterable[bytes]:
        """Return the lines of an item of `Journal.append`, each with its newline."""
        try:
            if isinstance(item, tuple) and item and callable(item[0]):
                item = item[0](*item[1:])
            if type(item) is bytes:  # nearly all items are
                return (item,)
            if type(item) is AttemptRecord:  # avoids a generator
                return (self._line(item),)
        except Exception as error:
            self._failed(error)
            return ()
        return self._lines_of(item)

    def _lines_of(self, item: Any) -> Iterator[bytes]:
        try:
            for found in _flat(item):
                if isinstance(found, tuple):
                    yield row_to_line(found, found[1] or self._ids.next())
                else:
                    yield self._line(found)
        except Exception as error:
            self._failed(error)

    def _line(self, record: AnyRecord) -> bytes:
        if not record.record_id:
            record.record_id = self._ids.next()
        return to_line(record)


def _flat(item: Any) -> Iterator[AnyRecord | tuple[Any, ...]]:
    """Yield the records and plain rows that an item represents."""
    if isinstance(item, AnyRecord):
        yield item
    elif isinstance(item, tuple) and item and callable(item[0]):
        yield from _flat(item[0](*item[1:]))
    elif isinstance(item, tuple):
        yield item
    elif callable(item):
        yield from _flat(item())
    elif item is not None:
        for each in item:
            yield from _flat(each)


class Journal:
    """Writes segments into `directory`, which is made if it is missing; several processes may share it.

    A segment is closed at `max_bytes` or `max_age` seconds after its first line. `fsync`: `never`; `rotate`, when a
    segment is closed; `always`, after every write. At most `max_waiting` records wait for the thread. `host` is part of
    the file names; give it if the machine's name changes with every restart, as in containers, because otherwise nobody
    closes the segments that a killed process left open. `clock` is monotonic, in seconds. Raises ConfigError if the
    directory cannot be used or an option makes no sense.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        host: str | None = None,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = 60.0,
        flush_interval: float = 0.2,
        fsync: Fsync = "rotate",
        max_waiting: int = 100_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the journal in `directory`, with the options that the class describes. Raises ConfigError."""
        if min(max_bytes, max_age, max_waiting) <= 0 or flush_interval < 0:
            raise ConfigError(
                "a journal needs max_bytes, max_age and max_waiting above 0 and flush_interval from 0",
                where=str(directory),
                code="option-value",
            )
        if fsync not in ("never", "rotate", "always"):
            raise ConfigError(
                f"fsync={fsync!r} is unknown",
                where=str(directory),
                cure="Say never, rotate or always",
                code="option-value",
            )
        self.directory = _usable(Path(directory).absolute())
        self.host = re.sub(r"[^A-Za-z0-9.-]", "_", host or socket.gethostname())[:64] or "host"
        self._make_writer = partial(
            SegmentWriter,
            self.directory,
            self.host,
            max_bytes=max_bytes,
            max_age=max_age,
            fsync=fsync,
            clock=clock,
        )
        self._chunk = min(_CHUNK, max_bytes)
        self._flush_interval, self._max_waiting = flush_interval, max_waiting
        self._serializer = _Serializer(self._cannot)
        self._begin()
        recover(self.directory, self.host)
        _journals.add(self)

    def _begin(self) -> None:
        """Initialise the state of a process: a new one, or a forked child, which inherits no unwritten records."""
        self._waiting: deque[Any] = deque()
        self._room = self._max_waiting
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()  # safe in signal handlers too
        self._signalled = False
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        self._closing = False
        self._writer = self._make_writer(drop=self._drop)
        self._complained = False
        self._lost = 0

    @property
    def dropped(self) -> int:
        """Return how many records were not written and never will be."""
        return self._lost

    # Called on any thread

    def append(self, item: Any, /) -> None:
        """Queue one item. Never waits, never raises. Thread-safe. All items become lines on the journal's thread.

        An item is an `AttemptRecord` or a record of another kind; a tuple of all values of an `AttemptRecord` in the
        order of `FIELDS` (an empty `record_id` is filled in); or a tuple `(function, *arguments)` or a function without
        arguments that returns any of these, an iterable of them, or None. The function of such a tuple may also return
        a whole line, as bytes.
        """
        waiting = self._waiting
        if len(waiting) >= self._room:
            self._drop(1)
            return
        waiting.append(item)
        if not self._signalled:
            self._signal()
        elif len(waiting) == _HURRY:
            self._tokens.put(None)

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all items appended before are written (not renamed); return False after `timeout` seconds."""
        done = threading.Event()
        if self._room:
            self._waiting.append(done)
            self._signal()
            self._tokens.put(None)
            return done.wait(timeout)
        return not self._waiting

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits and give the last segment its readable name, in at most `timeout` seconds.

        A second call does nothing. Items appended afterwards count as dropped.
        """
        self._room, self._closing = 0, True
        with self._starting:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._tokens.put(None)
            self._tokens.put(None)
            thread.join(timeout)
        elif thread is None:
            self._drop(len(self._waiting))
            self._waiting.clear()
        _journals.discard(self)

    def _signal(self) -> None:
        self._signalled = True
        if self._thread is None:
            try:
                self._start()
            except RuntimeError as error:  # no more threads are available; tried again with the next record
                self._signalled = False
                self._complain("its thread cannot be started: %s", error)
                return
        self._tokens.put(None)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closing:
                thread = threading.Thread(target=self._work, name="redeliver-journal", daemon=True)
                thread.start()
                self._thread = thread

    def _drop(self, records: int) -> None:
        with self._starting:
            self._lost += records

    # Called on the journal's thread

    def _work(self) -> None:
        while not self._closing:
            self._rest()
            self._run_once()
        self._run_once()
        self._writer.end()
        self._drop(len(self._waiting))
        self._waiting.clear()

    def _rest(self) -> None:
        """Wait for work, or until something is due; then for a batch to gather."""
        try:
            self._tokens.get(timeout=self._writer.due_in())
            if not self._closing:
                self._tokens.get(timeout=self._flush_interval)
        except queue.Empty:
            pass

    def _run_once(self) -> None:
        # The order matters: an append that still sees the flag set has put its record where the code below finds it.
        self._signalled = False
        try:
            self._write_waiting()
            self._writer.finish_if_old()
        except Exception as error:  # the thread survives every error (log-after-the-fact)
            self._complain("%r", error)

    def _write_waiting(self) -> None:
        """Take the waiting items and write them, chunk by chunk.

        The last call also tries the lines that the disk refused.
        """
        lines: list[bytes] = []
        size = 0
        for _ in range(len(self._waiting)):
            item = self._waiting.popleft()
            if isinstance(item, threading.Event):  # a caller waits in flush()
                if self._writer.write(lines):
                    item.set()
                lines, size = [], 0
                continue
            for line in self._serializer.lines(item):
                size += len(line)
                if size > self._chunk:
                    self._writer.write(lines)
                    lines, size = [], len(line)
                lines.append(line)
        self._writer.write(lines)

    def _cannot(self, error: Exception) -> None:
        self._drop(1)
        self._complain("a record cannot be written: %r", error)

    def _complain(self, what: str, *values: object) -> None:
        """Log an error, once in the journal's life: an error here may happen again with every record."""
        if not self._complained:
            self._complained = True
            with suppress(Exception):  # an error of a log handler must not stop the journal
                _log.error(
                    "journal: %s: " + what + " (logged once)",
                    self.directory,
                    *values,
                    extra={EVENT_CODE: "journal-fault"},
                )

    # Forking

    def _forked(self) -> None:
        """Reset a forked child: the parent's file and all waiting items still belong to the parent."""
        self._writer.forget()
        self._begin()


def _usable(directory: Path) -> Path:
    cure = "Give a directory that this user may make and write to"
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the journal's directory cannot be made: {error.strerror or error}",
            where=str(directory),
            cure=cure,
            code="journal-directory",
        ) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(
            "the journal's directory cannot be written to", where=str(directory), cure=cure, code="journal-directory"
        )
    return directory


_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_journals):
        journal._forked()


def _at_exit() -> None:
    for journal in list(_journals):
        journal.close(timeout=2.0)


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
