# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs operations on background threads of the server, a few at a time, and ends them in good order."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

from ..errors import RedeliverError
from ..operations import Operation, Store, find_operation
from ..operations.audit import end_operation
from ..redaction import clean
from .problems import ApiError

log = logging.getLogger("redeliver_mw.api")

AT_ONCE = 4
LASTING_AT_ONCE = 4  # operations that have no end, which would keep all others out
FIRST_NEWS = 1.0  # seconds that a request waits for the first progress, or for the error, of what it has started

Work = Callable[[Store, threading.Event, Callable[[], None]], object]
"""Runs one operation on a connection of its own, until its end or until the event is set, and calls the function when
it has made progress."""


class Runs:
    """Holds the operations that this server runs. Thread-safe."""

    def __init__(self, opened: Callable[[], Store], at_once: int = AT_ONCE) -> None:
        """Run operations with connections that `opened` returns, so many at once."""
        self._opened, self._at_once = opened, at_once
        self._lock = threading.Lock()
        self._running: dict[str, _RunHere] = {}
        self._closed = False

    def start(self, operation: Operation, work: Work, *, lasting: bool = False) -> None:
        """Run an operation on a thread. Returns after its first progress, or a second later.

        An operation without an end is `lasting`; such ones are counted apart.

        Raises ApiError if it runs already, or if as many run as may run at once, and what the run raises before its
        first progress.
        """
        operation_id = operation.operation_id
        with self._lock:
            before = self._running.get(operation_id)
        if before is not None and before.thread is not None and operation.state != "running":
            before.thread.join(FIRST_NEWS)  # its end is in the store already, and its thread ends in a moment
        with self._lock:
            if operation_id in self._running:
                raise ApiError(
                    409,
                    f"operation {operation_id} runs on this server",
                    cure="Wait for its end, or pause it",
                    code="operation-running",
                )
            most = LASTING_AT_ONCE if lasting else self._at_once
            alike = sum(one.lasting == lasting for one in self._running.values())
            if self._closed or alike >= most:
                kind = "operations without an end" if lasting else "operations"
                what = "this server ends" if self._closed else f"{most} {kind} run on this server"
                raise ApiError(503, what, cure="Try again later", code="api-busy", headers={"Retry-After": "5"})
            run = self._running[operation_id] = _RunHere(lasting)
        thread = threading.Thread(
            target=self._run, args=(operation_id, run, work), name=f"redeliver-run-{operation_id}", daemon=True
        )
        run.thread = thread
        thread.start()
        run.news.wait(FIRST_NEWS)
        if run.error is not None:
            raise run.error

    def runs(self, operation_id: str) -> bool:
        """Return whether this server runs an operation."""
        with self._lock:
            return operation_id in self._running

    def close(self, timeout: float) -> bool:
        """Ask all operations to end after the batch in hand, and wait for them. Return whether all have ended."""
        with self._lock:
            self._closed = True
            running = list(self._running.values())
        for run in running:
            run.stop.set()
        until = time.monotonic() + timeout
        for run in running:
            if run.thread is not None:
                run.thread.join(max(0.0, until - time.monotonic()))
        return not any(run.thread is not None and run.thread.is_alive() for run in running)

    def _run(self, operation_id: str, run: _RunHere, work: Work) -> None:
        try:
            with closing(self._opened()) as store:
                try:
                    work(store, run.stop, run.news.set)
                finally:
                    _mark_unfinished(store, operation_id)
        except RedeliverError as error:
            run.error = error
            log.warning("operation %s has ended early: %s", operation_id, error)
        except Exception as error:
            run.error = error
            log.exception("operation %s has ended with an error of the server", operation_id)
        finally:
            with self._lock:
                del self._running[operation_id]
            run.news.set()


class _RunHere:
    """Holds what is known of one run."""

    def __init__(self, lasting: bool) -> None:
        self.lasting = lasting
        self.stop, self.news = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None


def _mark_unfinished(store: Store, operation_id: str) -> None:
    """Record that an operation failed whose run has ended without a word; otherwise nobody could take it over."""
    found = find_operation(store, operation_id)
    mine = found.pid == os.getpid() and found.host == clean(socket.gethostname())
    if found.state == "running" and mine:
        end_operation(store, operation_id, "failed", "its run has ended with an error; see the log of the server")
