# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Shows a handler that fails, is tried again, and leaves a dead letter. No server needed."""

from redeliver_mw import App, connect, redeliver

app = App("memory://")


@app.handler("orders")
@redeliver("1:500; 3:move(queue:dlq.$)")  # delay 0.5 s after each failure; dead-lettered after the third
def on_order(delivery):
    print(f"attempt {delivery.delivery_count} at {delivery.text}")
    raise ConnectionError("the warehouse does not answer")


with app, connect("memory://") as session:
    session.publish("orders", b"one lamp")
    letter = session.receive("dlq.orders", timeout=10)
    print("dead letter from", letter.headers["original-destination"], "after", letter.headers["redeliver_failures"])
