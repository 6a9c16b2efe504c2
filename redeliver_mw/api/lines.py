# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Streams lines that a thread writes, no faster than the client reads them."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final

from ..operations import Store

log = logging.getLogger("redeliver_mw.api")

MEDIA_TYPE: Final = "application/x-ndjson"
AT_ONCE: Final = 2
_AHEAD: Final = 16  # lines that are written and not read yet
_POLL: Final = 1.0  # seconds
Produce = Callable[[Store, Callable[[bytes], object], threading.Event], object]
"""Writes lines with the function that it is given, until its end or until the event is set."""


class _Gone(Exception):
    """Reports to the thread that nobody reads any more."""


class LineStream:
    """Is the answer of a handler that writes lines. `produce` runs on a thread of its own."""

    def __init__(self, produce: Produce) -> None:
        """Hold what writes the lines; it runs once `lines` is read."""
        self._produce = produce
        self._stop = threading.Event()
        self._lines: queue.Queue[bytes | BaseException | None] = queue.Queue(_AHEAD)

    async def lines(
        self, opened: Callable[[], Store], in_thread: Callable[[Callable[[], bytes | None]], Awaitable[bytes | None]]
    ) -> AsyncIterator[bytes]:
        """Yield the lines. An error ends the connection, so that a client does not take a part for the whole."""
        thread = threading.Thread(target=self._run, args=(opened,), name="redeliver-lines", daemon=True)
        thread.start()
        try:
            while (line := await in_thread(self._next)) is not None:
                if line:
                    yield line
        finally:
            self._stop.set()

    def _next(self) -> bytes | None:
        """Return the next line; nothing if there is none so far, and None at the end."""
        try:
            found = self._lines.get(timeout=_POLL)
        except queue.Empty:
            return b""
        if isinstance(found, BaseException):
            raise found
        return found

    def _run(self, opened: Callable[[], Store]) -> None:
        end: BaseException | None = None
        try:
            store = opened()
            try:
                self._produce(store, self._write, self._stop)
            finally:
                store.close()
        except _Gone:
            return
        except BaseException as error:
            log.warning("a stream of lines has ended early: %s", error)
            end = error
        with suppress(_Gone):
            self._put(end)

    def _write(self, line: bytes) -> None:
        self._put(line)

    def _put(self, one: bytes | BaseException | None) -> None:
        while True:
            if self._stop.is_set():
                raise _Gone
            with suppress(queue.Full):
                self._lines.put(one, timeout=_POLL)
                return
