# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Removes bodies that have been kept for long enough, at the start of the server and once an hour."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Final

from ..errors import RedeliverError
from ..operations import Selection, Store, page
from ..operations.expire import OVER, plan_expire, run_expire
from ..operations.operation import now_us

log = logging.getLogger("redeliver_mw.api")

EVERY: Final = 3600.0  # seconds
WHO: Final = "api:retention"


class Retention:
    """Runs on a thread of its own between `start` and `close`. `keep`: seconds; None keeps bodies for ever."""

    def __init__(self, opened: Callable[[], Store], keep: float | None) -> None:
        """Remove bodies through connections that `opened` returns."""
        self._opened, self._keep = opened, keep
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun or there is nothing to do."""
        if self._keep is None or self._thread is not None:
            return
        with self._lock:
            if self._thread is None and not self._stop.is_set():
                self._thread = threading.Thread(target=self._run, name="redeliver-retention", daemon=True)
                self._thread.start()

    def close(self, timeout: float) -> None:
        """End after the batch in hand."""
        with self._lock:
            self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            try:
                with closing(self._opened()) as store:
                    remove_bodies(store, self._keep or 0.0, self._stop)
            except RedeliverError as error:
                log.warning("bodies that were kept for long enough could not be removed: %s", error)
            except Exception:
                log.exception("bodies that were kept for long enough could not be removed")
            if self._stop.wait(EVERY):
                return


def remove_bodies(store: Store, keep: float, stop: threading.Event) -> None:
    """Remove the bodies of letters that came into a state in which they do not wait so many seconds ago.

    Where there is none, no operation is made. Raises StoreError.
    """
    before = now_us() - round(keep * 1e6)
    meant = replace(Selection(state=None).narrowed(OVER), changed_before_us=before, with_body=True)
    if page(store, meant, limit=1).letters:
        planned = plan_expire(store, keep, only_bodies=True, who=WHO)
        run_expire(store, planned.operation_id, stop=stop, who=WHO)
