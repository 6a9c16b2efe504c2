# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs what the processes of tests/faults/test_processes.py do: an App, and a handler that does as its message says.

`fine:…` is handled, `failing:…` fails each time, `poison` kills its process. Every run is a line of the file `runs`:
`begin TEXT COUNT PID` and, when the run succeeds, `done`.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from redeliver_mw import App, Delivery, RedeliveryPolicy

SHARED, DEAD = "several.shared", "several.dead"
ORDERED = ("several.one", "several.two")
PRICES = "several.prices"  # a topic


def note(what: str, delivery: Delivery) -> None:
    log = os.open("runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, f"{what} {delivery.text} {delivery.delivery_count} {os.getpid()}\n".encode())
    os.close(log)


def handle(delivery: Delivery) -> None:
    note("begin", delivery)
    if delivery.text == "poison":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.005)  # so that others are in hand, too
    if delivery.text.startswith("failing"):
        raise ConnectionError(delivery.text)
    note("done", delivery)


def made(*, rest: float = 0.3, ordered: bool = False, subscription: bool = False, **options: Any) -> App:
    """Return an App on the broker of REDELIVER_URL that dead-letters a message after three failures."""
    policy = RedeliveryPolicy(3, rest, f"queue:{DEAD}")
    app = App(policy=policy, workers=4, prefetch=40, app_name="several", journal="journal", **options)
    if subscription:
        app.handler(f"topic:{PRICES}", subscription="audit")(handle)
        return app
    app.handler(SHARED)(handle)
    for source in ORDERED if ordered else ():
        app.handler(source, key="customer")(handle)
    return app
