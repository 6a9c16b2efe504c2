# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the messages that came with one, out of the same reading of the socket, for the drop-in.

The driver makes an event of each, with five wrappers, and shows it to every part of every handler; together that takes
as long as all that is done with the message. Where nobody but the drop-in listens to deliveries, those that are next in
the container's queue of events go to it directly, until something else is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import cproton
import proton

# Neither has types.
_engine: Any = cproton
_delivery: Any = proton.Delivery


class EventBatch:
    """Takes what is behind the event in hand, which every part has seen by now, from the container's queue."""

    def __init__(self, event: Any) -> None:
        self._container, self._link = event.container, _engine.addressof(event.link._impl)
        self._queue = self._container._collector
        self._other = False  # the first in the queue is of another kind, and nobody has seen it

    def next(self) -> Any:
        """Return the next delivery, in the place of the one in hand; None if the driver has to go on."""
        if self._container._yield or not self._queue.more():
            return None
        self._queue.pop()
        head = _engine.pn_collector_peek(self._queue._impl)
        if (
            _engine.pn_event_type(head) == _engine.PN_DELIVERY
            and _engine.addressof(_engine.pn_event_link(head)) == self._link
        ):
            came = _engine.pn_event_delivery(head)
            if _engine.pn_delivery_readable(came) and not (
                _engine.pn_delivery_partial(came)
                or _engine.pn_delivery_aborted(came)
                or _engine.pn_delivery_settled(came)
            ):
                return _delivery(came)
        self._other = True
        return None

    def end(self) -> None:
        """Show the event that ended it to everybody, as the driver would; the driver takes it off the queue."""
        if self._other:
            event = self._queue.peek()
            event.dispatch(event.handler or self._container.handler)
            event.dispatch(self._container.global_handler)


def others_listen(event: Any, ours: Iterable[Any]) -> bool:
    """Return whether a handler of the user's is called with this event of a delivery, beside `ours`."""
    known = {id(part) for part in ours}
    roots = (event.handler or event.container.handler, event.container.global_handler)
    return any(id(part) not in known and _listens(part) for root in roots for part in _parts(root))


def _parts(handler: Any) -> Iterator[Any]:
    """Yield a handler, and the handlers that are called because it is."""
    yield handler
    below = getattr(handler, "base", None)  # of the driver's own, around a global handler
    for part in (*getattr(handler, "handlers", ()), *(() if below is None else (below,))):
        yield from _parts(part)


def _listens(handler: Any) -> bool:
    if getattr(handler, "on_delivery", None) is not None:
        return True
    unhandled = getattr(type(handler), "on_unhandled", None)
    drivers = type(handler).__module__.startswith("proton.")
    return unhandled not in (None, proton.Handler.on_unhandled) and not drivers
