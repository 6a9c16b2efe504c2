# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Sends the progress of an operation as server-sent events, until the operation is over or the client is gone.

An event `progress` holds the operation as JSON, as GET of the operation does. The last event is `end`, or `problem`,
which says why the stream ends before the operation does. A comment goes out when nothing has changed for a while, so
that a connection that is gone is noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from .problems import as_json, problem_of

MEDIA_TYPE: Final = "text/event-stream"
EVERY: Final = 0.5  # seconds between two looks at the store
PING_EVERY: Final = 10.0  # seconds
OVER: Final = frozenset({"done", "failed", "cancelled"})


async def events(
    look: Callable[[], Awaitable[dict[str, Any]]], first: dict[str, Any], ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Yield events. `look` returns the operation as it is now; `ended` says that the server ends."""
    seen, quiet = first, 0.0
    yield _event("progress", seen)
    while seen["state"] not in OVER and not ended():
        await asyncio.sleep(EVERY)
        try:
            now = await look()
        except Exception as error:  # the token was revoked, or the store is away
            found, _ = problem_of(error)
            yield _event("problem", {name: getattr(found, name) for name in found.__dataclass_fields__})
            return
        if now != seen:
            seen, quiet = now, 0.0
            yield _event("progress", seen)
        elif (quiet := quiet + EVERY) >= PING_EVERY:
            quiet = 0.0
            yield b": still here\n\n"
    if seen["state"] in OVER:
        yield _event("end", seen)


def _event(name: str, data: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), as_json(data))
