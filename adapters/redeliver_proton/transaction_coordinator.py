# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Declares and discharges transactions over a link of its own. One question at a time, on the loop's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import proton

from redeliver_proton.amqp.codec import compound, write

_DECLARE, _DISCHARGE, _DECLARED = 0x31, 0x32, 0x33
_VALUE = b"\x00\x53\x77\x00\x53"  # a body of one described value
OnDischarged = Callable[[bytes, str], None]  # the transaction's id where there is one; why the broker refuses


class TransactionCoordinator(proton.Handler):
    """Asks the broker, one question after the other: each is answered before the next one goes out."""

    def __init__(self, session: Any, answered: OnDischarged, closed: Callable[[BaseException], None]) -> None:
        self._answered, self._closed = answered, closed
        self._number = 0
        link = self._link = session.sender(f"redeliver-transactions-{id(self):x}")
        link.target.type = proton.Terminus.COORDINATOR
        link.target.capabilities.put_object(proton.symbol("amqp:local-transactions"))
        link.handler = self
        link.open()

    def declare(self) -> None:
        self._tell(_DECLARE, [None])

    def discharge(self, number: bytes, *, failed: bool) -> None:
        """Commit, or undo where it `failed`."""
        self._tell(_DISCHARGE, [number, failed])

    def _tell(self, what: int, fields: list[Any]) -> None:
        self._number += 1
        self._link.delivery(str(self._number))
        body = compound(0xC0, 0xD0, [write(value) for value in fields])
        self._link.stream(_VALUE + bytes((what,)) + body)
        self._link.advance()

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        state = delivery.remote_state
        if not state and not delivery.settled:
            return
        refusal = "" if state in (_DECLARED, proton.Delivery.ACCEPTED) else _why(delivery)
        data = delivery.remote.data if state == _DECLARED else None
        delivery.settle()
        self._answered(bytes(data[0]) if data else b"", refusal)

    def on_link_remote_close(self, event: Any) -> None:
        self._closed(ConnectionError(f"the broker closed the transactions' link: {event.link.remote_condition}"))

    on_link_remote_detach = on_link_remote_close


def _why(delivery: Any) -> str:
    condition = delivery.remote.condition
    return f"{condition.name}: {condition.description}" if condition else "the broker refused the transaction"
