# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The App, the same on every broker."""

from __future__ import annotations

import threading

from tests.bench.side import Count, Task


def by_app(task: Task) -> None:
    from redeliver_mw import App, Delivery

    done = threading.Event()
    count = Count(task, done.set)
    metrics = None
    if task.metrics:
        from redeliver_mw.telemetry.prometheus import PrometheusMetrics

        metrics = PrometheusMetrics()
    app = App(
        task.url,
        prefetch=task.prefetch,
        journal=task.journal,
        limbo=task.limbo,
        crash_safe=task.limbo is not None,
        metrics=metrics,
    )

    @app.handler(task.queue)
    def handle(delivery: Delivery) -> None:
        count.one()

    app.start()
    done.wait()
    count.report()
    app.stop()
