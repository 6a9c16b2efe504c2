# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a consumer that one of its messages kills: `python -m tests.faults.crashing URL QUEUE DEAD FOLDER`.

Every run is a line of FOLDER/runs, `begin BODY COUNT` and, when the run succeeds, `done`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from redeliver_mw import App, Delivery, RedeliveryPolicy


def main() -> None:
    url, queue, dead, folder = sys.argv[1:5]
    app = App(
        url,
        policy=RedeliveryPolicy(3, 0.2, f"queue:{dead}"),
        limbo=f"sqlite:///{folder}/limbo.db",
        crash_safe=True,
        app_name="crashing",
        workers=4,
        prefetch=40,
    )
    log = os.open(f"{folder}/runs", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.handler(queue)
    def handle(delivery: Delivery) -> None:
        os.write(log, f"begin {delivery.text} {delivery.delivery_count}\n".encode())
        if delivery.text == "poison":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)  # so that its neighbours are in hand, too
        os.write(log, f"done {delivery.text} {delivery.delivery_count}\n".encode())

    app.run()


if __name__ == "__main__":
    main()
