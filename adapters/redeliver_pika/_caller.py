# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls callbacks of pika's, plain ones and coroutines, on the loop of the user's connection."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from pika.exceptions import AMQPConnectionError

from redeliver_mw.dropin import Caller, Turn
from redeliver_mw.errors import ConfigError
from redeliver_pika._dialects import capabilities
from redeliver_pika._mapping import delivery_of
from redeliver_pika._post import Shared
from redeliver_pika._seat import ChannelSeat
from redeliver_pika._shown import shown

if TYPE_CHECKING:
    from redeliver_pika._wrapper import Redelivering

_tasks: set[asyncio.Task[None]] = set()  # a loop itself keeps only weak references


class PikaCaller(Caller):
    """Of one wrapper, on one connection at a time."""

    _ground: Shared

    def __init__(self, wrapper: Redelivering, shared: Shared) -> None:
        params, version = shared.raw.params, str((shared.raw.server_properties or {}).get("version", "0"))
        exact = bool(getattr(shared.raw, "exact_headers", False))
        can = capabilities(version, params.frame_max or 131072, exact_headers=exact)
        super().__init__(wrapper.terms, shared, wrapper.companion or shared, can)
        self._wrapper = wrapper

    def message(self, seat: ChannelSeat, bound: tuple[Any, ...], method: Any, properties: Any, body: bytes) -> None:
        """What the driver calls. ConfigError where nothing can be done right: the message stays unsettled."""
        source = self._wrapper.source_of(seat, method)
        if self._wrapper.is_async and self._loop is None:
            raise ConfigError("a coroutine callback needs pika's AsyncioConnection", cure="Use it, or a function")
        generation = self.generation(seat, method.consumer_tag, source)
        self.arrived(Turn(delivery_of(source, generation, (method, properties, body)), seat, self, bound))
        self._flush(seat)

    def invoke(self, turn: Turn) -> object:
        assert isinstance(turn.seat, ChannelSeat)
        return self._wrapper.callback(*turn.given, turn.seat.channel, *shown(turn.delivery))

    def passes(self, error: BaseException) -> bool:
        return self._ground.blocking and self.over and isinstance(error, AMQPConnectionError)

    def _flush(self, seat: ChannelSeat) -> None:
        """A BlockingConnection writes only when it is polled; by hand each ack does that."""
        if self._ground.blocking and self._ground.is_open and not getattr(seat.channel, "_pending_events", ()):
            self._ground.users.process_data_events(0)

    # -- coroutines -------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        loop = getattr(self._ground.raw, "ioloop", None)
        return loop if isinstance(loop, asyncio.AbstractEventLoop) else None

    def finish(self, turn: Turn, result: object) -> None:
        loop = self._loop
        if loop is None or not inspect.isawaitable(result):
            return super().finish(turn, result)
        turn.before = None
        task = loop.create_task(self._await(turn, result))  # it inherits the delivery in hand
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _await(self, turn: Turn, result: Awaitable[object]) -> None:
        try:
            await result
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            self.leave(turn)
            raise
        except BaseException as error:
            self.ended(turn, error)
        else:
            self.ended(turn, None)
