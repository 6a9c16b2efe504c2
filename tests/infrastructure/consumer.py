# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumes under faults: `python -m tests.infrastructure.consumer WAY URL QUEUE LOG [LIMBO]`.

WAY is `app`, `app-scheduling` (every delay by a copy), `app-parking` (every delay in LIMBO), `drop-in`, or `bare`: the
driver by itself, which accepts whatever it was given, whether the handler failed or not.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import signal
import sys
from importlib import import_module
from typing import Any

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.adapter.registry import parse_url
from tests.faults.consumer import CONSUMERS
from tests.faults.handling import PREFETCH, Log

PR_SET_PDEATHSIG = 1
POLICY = RedeliveryPolicy(dead_after=4, backoff=[0.5, 1.0, 2.0])


def by_app(way: str, url: str, queue: str, log: Log, limbo: str | None) -> None:
    more: dict[str, Any] = {"app-scheduling": {"delay": "schedule"}, "app-parking": {"delay": "park", "limbo": limbo}}
    app = App(
        url, policy=POLICY, prefetch=PREFETCH, workers=2, stop_timeout=5, app_name="infrastructure", **more.get(way, {})
    )

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        log.handle(delivery.text, delivery.delivery_count)

    app.run()


def main() -> None:
    way, url, queue, path, *limbo = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it ends with the harness, however that ends
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    log = Log(path)
    if way.startswith("app"):
        return by_app(way, url, queue, log, limbo[0] if limbo else None)
    driver = import_module(f"tests.faults.{CONSUMERS[parse_url(url).dialect.partition('+')[0]]}")
    if way == "bare":
        driver.bare(url, queue, log)
    else:
        driver.drop_in(url, queue, log, decorated=False)


if __name__ == "__main__":
    main()
