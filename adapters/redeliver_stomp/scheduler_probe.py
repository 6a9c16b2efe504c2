# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out with a temporary queue of our own whether the broker's scheduler is on. On the loop's thread.

With it a delay of 0 comes back as a job of the scheduler's; without it the delay is still on the message.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from redeliver_stomp.capabilities import NOT_SCHEDULED, SCHEDULED
from redeliver_stomp.frames import RawFrame

if TYPE_CHECKING:
    from redeliver_stomp.consumer_connection import ConsumerConnection

log = logging.getLogger("redeliver_mw.stomp")

PROBE_TIMEOUT = 5.0  # seconds
_numbers = itertools.count(1)


def probe_scheduler(connection: ConsumerConnection, answer: Callable[[bool], None]) -> None:
    """Answer once whether the broker delays messages, unless the connection is lost; silence counts as off."""
    name = f"probe{next(_numbers)}"
    queue = f"/temp-queue/redeliver-{name}"
    done = False

    def finish(on: bool, why: str = "") -> None:
        nonlocal done
        if not done:
            done = True
            timer.cancel()
            connection.route(name, None)
            connection.request("UNSUBSCRIBE", [("id", name)], lambda _: None)
            if why:
                log.warning("whether the broker's scheduler is on cannot be seen (%s): taken as off", why)
            answer(on)

    def came(frame: RawFrame) -> None:
        finish(SCHEDULED in frame.headers and NOT_SCHEDULED not in frame.headers)

    timer = connection.loop.call_later(
        PROBE_TIMEOUT, lambda: finish(False, "no answer") if connection.link.is_open else None
    )
    connection.route(name, came)
    subscribe = [("id", name), ("destination", queue), ("ack", "auto")]
    connection.request("SUBSCRIBE", subscribe, lambda error: finish(False, error) if error else None)
    send = [("destination", queue), (NOT_SCHEDULED, "0"), ("content-length", "0")]
    connection.request("SEND", send, lambda error: finish(False, error) if error else None)
