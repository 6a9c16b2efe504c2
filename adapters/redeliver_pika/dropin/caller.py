# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Calls callbacks of pika's, plain ones and coroutines, on the loop of the user's connection."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from pika.exceptions import AMQPConnectionError

from redeliver_mw.dropin import CallbackRun, CallbackRunner
from redeliver_mw.errors import ConfigError
from redeliver_pika.capabilities import capabilities
from redeliver_pika.dropin.channel import ChannelScope
from redeliver_pika.dropin.copies import SharedConnection
from redeliver_pika.dropin.properties_shown import shown
from redeliver_pika.messages import delivery_of

if TYPE_CHECKING:
    from redeliver_pika.dropin.wrapper import Redelivering

_tasks: set[asyncio.Task[None]] = set()  # a loop itself keeps only weak references


class PikaCallbackRunner(CallbackRunner):
    """Of one wrapper, on one connection at a time."""

    _ground: SharedConnection
    driver_settles = False  # without auto_ack the code itself acks

    def __init__(self, wrapper: Redelivering, shared: SharedConnection) -> None:
        params, version = shared.raw.params, str((shared.raw.server_properties or {}).get("version", "0"))
        exact = bool(getattr(shared.raw, "exact_headers", False))
        can = capabilities(version, params.frame_max or 131072, exact_headers=exact)
        super().__init__(wrapper.terms, shared, wrapper.companion or shared, can)
        self._wrapper = wrapper
        self.returning_settles = wrapper.terms.returning_settles(self.driver_settles)

    def message(self, seat: ChannelScope, bound: tuple[Any, ...], method: Any, properties: Any, body: bytes) -> None:
        """What the driver calls. ConfigError where nothing can be done right: the message stays unsettled."""
        source = self._wrapper.source_of(seat, method, properties)
        if self._wrapper.is_async:
            self.check_loop()
        generation = self.generation(seat, method.consumer_tag, source)
        delivery = delivery_of(source, generation, (method, properties, body))
        self.arrived(CallbackRun(delivery, seat, self, bound, returning_settles=self.returning_settles))
        self._flush(seat)

    def check_loop(self) -> None:
        """Raise ConfigError if the callback is a coroutine function, and the connection has no loop for it."""
        if self._wrapper.is_async and self._loop is None:
            raise ConfigError("a coroutine callback needs pika's AsyncioConnection", cure="Use it, or a function")

    @property
    def raises(self) -> bool:
        """Return whether an error of the set-up can be raised into the user's own call."""
        return self._ground.blocking

    def invoke(self, turn: CallbackRun) -> object:
        assert isinstance(turn.seat, ChannelScope)
        return self._wrapper.callback(*turn.given, turn.seat.channel, *shown(turn.delivery))

    def passes(self, error: BaseException) -> bool:
        return self._ground.blocking and self.over and isinstance(error, AMQPConnectionError)

    def _flush(self, seat: ChannelScope) -> None:
        """A BlockingConnection writes only when it is polled; by hand each ack does that."""
        ground = self._ground
        waits = ground.blocking and ground.is_open and not getattr(seat.channel, "_pending_events", ())
        if waits and ground.raw._get_write_buffer_size():  # an ack of the callback's own was sent at once
            ground.users.process_data_events(0)

    # -- coroutines -------------------------------------------------------------------------------

    @property
    def _loop(self) -> asyncio.AbstractEventLoop | None:
        loop = getattr(self._ground.raw, "ioloop", None)
        return loop if isinstance(loop, asyncio.AbstractEventLoop) else None

    def finish(self, turn: CallbackRun, result: object) -> None:
        loop = self._loop
        if loop is None or not inspect.isawaitable(result):
            return super().finish(turn, result)
        turn.before = None
        task = loop.create_task(self._await(turn, result))  # it inherits the delivery in hand
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    async def _await(self, turn: CallbackRun, result: Awaitable[object]) -> None:
        try:
            await result
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
            self.leave(turn)
            raise
        except BaseException as error:
            self.ended(turn, error)
        else:
            self.ended(turn, None)
