# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Prints how many bytes a stored message takes in the memory broker, and how many more one that is held.

Run it as `python -m tests.held_memory`.
"""

from __future__ import annotations

import gc
import logging
import tracemalloc
from collections.abc import Callable

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.testing import TestApp

MESSAGES = 1000


def main() -> None:
    logging.getLogger("redeliver_mw").setLevel(logging.CRITICAL)
    app = App("memory://", policy=RedeliveryPolicy(dead_after=3, backoff=5.0), prefetch=4 * MESSAGES)

    @app.handler("orders")
    def fails(delivery: Delivery) -> None:
        raise ValueError("not now")

    with TestApp(app) as test:
        for n in range(100):  # what is made only once is not counted
            test.send("orders", b"warm", message_id=f"warm-{n}")
        # The same messages, only stored: paused, so that none of them is handed to the handler.
        app.pause("orders")
        stored = allocated_by(lambda: [test.send("orders", b"x" * 100, message_id=f"{n}") for n in range(MESSAGES)])
        held = allocated_by(lambda: app.resume("orders"))
    print(stored / MESSAGES, held / MESSAGES)


def allocated_by(work: Callable[[], object]) -> int:
    """Return how many bytes more are allocated when `work()` is done."""
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size


if __name__ == "__main__":
    main()
