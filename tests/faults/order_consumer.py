# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a consumer in a process of its own that keeps messages in order by key, for `test_order_over_stops.py`.

A message is `KEY:NUMBER:FAILURES`. The message fails so many times, counted in this process. As long as there is a file
`broken` beside the log, it fails whatever its failures are, if these are not 0. The log has a line for each attempt:
`failed` or `done`, the message, its delivery count.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path

from redeliver_mw import App, Delivery, Order, RedeliveryPolicy


def main(text: str) -> None:
    given = json.loads(text)
    log, tried = Path(given["log"]), Counter[str]()
    broken = log.with_name("broken")
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    policy = RedeliveryPolicy(given.get("dead_after", 50), given["rest"], f"queue:{given['dead']}")
    app = App(given["url"], policy=policy, app_name="order", workers=4, **given.get("app", {}))
    order = Order("customer", **given.get("order", {}))

    @app.handler(given["queue"], key=order, prefetch=given.get("prefetch", 400))
    def on_order(delivery: Delivery) -> None:
        _, _, failures = delivery.text.split(":")
        tried[delivery.text] += 1
        fails = tried[delivery.text] <= int(failures) or (failures != "0" and broken.exists())
        line = f"{'failed' if fails else 'done'} {delivery.text} {delivery.delivery_count}\n"
        os.write(file, line.encode())  # at once, as one: it may be killed
        if fails:
            raise ConnectionError(delivery.text)

    app.run()


if __name__ == "__main__":
    main(sys.argv[1])
