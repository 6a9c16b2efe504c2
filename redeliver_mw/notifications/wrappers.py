# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Notifies for the drop-in wrappers of this process: wrappers with the same target and application share a notifier."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Hashable
from typing import Final

from ..clock import SystemClock
from ..telemetry.hook import TelemetrySink
from .notifier import Notifier
from .option import given_notify

_notifiers: dict[tuple[object, ...], Notifier] = {}  # until the process ends
_making: Final = threading.Lock()


def notify_sinks(given: object, secret: str | None, app: str) -> list[TelemetrySink]:
    """Return what collects the trouble of a drop-in wrapper, or nothing without `notify=`. Raises ConfigError.

    Nothing announces the end of the last wrapper, so the notifier ends with the process. Its threads begin with the
    first trouble, because a program may fork after it has made its wrappers.
    """
    found = given_notify(given, secret)
    if found is None:
        return []
    notify, target = found
    to = notify.to if isinstance(notify.to, Hashable) else id(notify.to)
    key = to, notify.quiet, notify.gather, secret, app
    with _making:
        if key not in _notifiers:
            _notifiers[key] = _waiting(Notifier(notify, target, app))
        return [_notifiers[key].sink]


def _waiting(notifier: Notifier) -> Notifier:
    """Let the first trouble start a notifier."""
    clock = SystemClock()
    since = clock.now().mono
    starting, started = threading.Lock(), threading.Event()

    def start() -> None:
        with starting:
            if started.is_set():
                return
            started.set()
        atexit.register(notifier.close)
        notifier.start(clock, since=since)

    notifier.sink.wake = start
    return notifier
