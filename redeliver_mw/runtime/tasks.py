# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Async handlers at work: one event loop on a thread of its own, for all of an app's."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

from ..context import reset, set_delivery
from ..message import Delivery
from .handler import HandlerSpec
from .workers import DeliveryBatch, PoolListener, WorkerPool


class LoopThread:
    """The one event loop that all async handlers of an app share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="redeliver-async", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Cancel what still runs and end the loop."""
        done: Future[None] = asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop)
        try:
            done.result(timeout)
        except TimeoutError:
            return  # a task that will not be cancelled: its thread is a daemon
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class AsyncPool(WorkerPool):
    """Async handlers: `workers` of them awaited at a time."""

    def __init__(self, spec: HandlerSpec, boss: PoolListener, thread: LoopThread) -> None:
        super().__init__(spec, boss)
        self._thread = thread
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def start(self) -> None:
        for _ in range(self.spec.workers):
            self._thread.loop.call_soon_threadsafe(self._begin_task)

    def _begin_task(self) -> None:
        self._tasks.add(self._thread.loop.create_task(self._work()))

    def _wake(self, n: int) -> None:
        self._thread.loop.call_soon_threadsafe(self._news.set)

    async def _work(self) -> None:
        while not self.stopping:
            if self.paused or not self._queue:
                self._news.clear()
                if self.paused or not self._queue:
                    await self._news.wait()
                continue
            await self._run_async(self._queue.popleft())

    async def _run_async(self, delivery: Delivery) -> None:
        if self.spec.batch is not None:
            return await self._run_batch_async(self._gather(delivery))
        if not self._boss.begin(delivery):
            return
        token = set_delivery(delivery)
        try:
            await self.spec.fn(*self._arguments(delivery))
        except BaseException as error:
            reset(token)
            ours = isinstance(error, asyncio.CancelledError) and self.stopping
            if ours:
                self._boss.cancelled(delivery)
                raise
            self._boss.ended(delivery, error)
            if isinstance(error, KeyboardInterrupt | SystemExit | asyncio.CancelledError):
                return  # a failure like any other; the loop goes on
        else:
            reset(token)
            self._boss.ended(delivery, None)

    async def _run_batch_async(self, batch: DeliveryBatch) -> None:
        if not batch.deliveries:
            return
        try:
            await self.spec.fn(batch.items)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self.stopping:
                for delivery in batch.deliveries:
                    self._boss.cancelled(delivery)
                raise
            self._boss.ended_as_one(batch.deliveries, error)
        else:
            self._boss.ended_as_one(batch.deliveries, None)
