# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs handlers: on threads, on an event loop, in a loop that pulls, or in a hand-driven test.

A `WorkerPool` serves one source. It takes deliveries from its queue, runs the handler, and tells its `PoolListener` how
each run ended. The pool does not know policies. Each run has a context (`contextvars`) of its own: what a handler binds
there for its log lines is gone with the next message.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import Context, Token
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..callables import check_run
from ..context import in_hand
from ..errors import Signal, Undecodable
from ..message import Delivery
from .handler import HandlerSpec


@dataclass(slots=True)
class DeliveryBatch:
    """Holds deliveries that are handled as one, and the handler's input: these, or `(decoded, delivery)` for each."""

    deliveries: list[Delivery] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        return len(self.deliveries)


class PoolListener(Protocol):
    """Learns of runs. Called on the worker's thread; `begin` returns whether to run at all."""

    def begin(self, delivery: Delivery, /) -> bool: ...
    def ended(self, delivery: Delivery, error: BaseException | None, /) -> None: ...
    def ended_as_one(self, batch: Sequence[Delivery], error: BaseException | None, /) -> None: ...
    def cancelled(self, delivery: Delivery, /) -> None: ...


class WorkerPool:
    """Runs the handler for the queue of one source. `put`, `pause`, `resume` and `stop` are thread-safe."""

    def __init__(self, spec: HandlerSpec, listener: PoolListener) -> None:
        self.spec, self._listener = spec, listener
        self._queue: deque[Delivery] = deque()
        self.paused = False
        self._pauses: set[str] = set()  # names of those who paused it
        self.stopping = False

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def put(self, batch: Sequence[Delivery], *, first: bool = False) -> None:
        """Add deliveries; `first`: before all others."""
        if first:
            self._queue.extendleft(reversed(batch))
        else:
            self._queue.extend(batch)
        self._wake(len(batch))

    @property
    def paused_by(self) -> frozenset[str]:
        """Return who has paused the pool and not resumed it; an empty name is the application."""
        return frozenset(self._pauses)

    def pause(self, by: str = "") -> None:
        """Begin no delivery until everyone who paused the pool has resumed it."""
        self._pauses |= {by}
        self.paused = True

    def resume(self, by: str = "") -> None:
        self._pauses -= {by}
        if not self._pauses:
            self.paused = False
            self._wake(self.spec.workers)

    def stop(self) -> None:
        """Begin no further delivery."""
        self.stopping = True
        self._wake(self.spec.workers)

    def take_waiting(self) -> list[Delivery]:
        """Return all deliveries that were not begun; called for a stop."""
        taken = []
        while self._queue:
            try:
                taken.append(self._queue.popleft())
            except IndexError:  # a worker was faster
                break
        return taken

    def start(self) -> None: ...
    def _wake(self, n: int) -> None: ...

    def _arguments(self, delivery: Delivery) -> tuple[Any, ...]:
        """Return the handler's arguments: the delivery, after the decoded body if `decode=` is given.

        Raises Undecodable, or the Signal by which `decode` says what is to become of the message.
        """
        decode = self.spec.decode
        if decode is None:
            return (delivery,)
        try:
            return (decode(delivery.body), delivery)
        except Signal:
            raise
        except Exception as error:
            raise Undecodable(error) from error

    def _gather(self, first: Delivery) -> DeliveryBatch:
        """Return up to `batch` waiting deliveries, begun.

        A delivery that has failed before comes alone, so that a failing message costs its neighbours one attempt and
        never dead-letters them.
        """
        batch = DeliveryBatch()
        self._begin(batch, first)
        while batch.size < (self.spec.batch or 1) and not (first.failures or self.paused or self.stopping):
            try:
                delivery = self._queue.popleft()
            except IndexError:
                break
            if delivery.failures:
                self._queue.appendleft(delivery)
                break
            self._begin(batch, delivery)
        return batch

    def _begin(self, batch: DeliveryBatch, delivery: Delivery) -> None:
        if not self._listener.begin(delivery):
            return
        try:
            (*decoded, _) = self._arguments(delivery)
        except (Undecodable, Signal) as error:
            self._listener.ended(delivery, error)
        else:
            batch.deliveries.append(delivery)
            batch.items.append((decoded[0], delivery) if decoded else delivery)

    def _run(self, delivery: Delivery) -> None:
        if self.spec.batch is not None:
            return self._run_batch(self._gather(delivery))
        if not self._listener.begin(delivery):
            return
        token = in_hand.set(delivery)
        try:
            self._call(self._arguments(delivery))
        except BaseException as error:
            in_hand.reset(token)
            if self._was_cancelled(error):
                return self._listener.cancelled(delivery)
            self._listener.ended(delivery, error)
        else:
            in_hand.reset(token)
            self._listener.ended(delivery, None)

    def _run_batch(self, batch: DeliveryBatch) -> None:
        if not batch.deliveries:
            return
        try:
            self._call((batch.items,))
        except BaseException as error:
            if self._was_cancelled(error):
                for delivery in batch.deliveries:
                    self._listener.cancelled(delivery)
                return
            self._listener.ended_as_one(batch.deliveries, error)
        else:
            self._listener.ended_as_one(batch.deliveries, None)

    def _call(self, arguments: tuple[Any, ...]) -> None:
        """Call the handler; a coroutine that it returns is run to its end. Anything else that it returns is ignored."""
        result = self.spec.fn(*arguments)
        if result is not None:
            if isinstance(result, Coroutine):
                self._run_coroutine(result)
            else:
                check_run(result)

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, None]) -> None:
        raise NotImplementedError

    def _was_cancelled(self, error: BaseException) -> bool:
        """Return whether this is not the handler's own end: a stop has cancelled its coroutine."""
        return self.stopping and isinstance(error, CancelledError)


class ThreadPool(WorkerPool):
    """Runs plain handlers on `workers` daemon threads.

    A handler that never returns therefore cannot keep the process alive. A coroutine that one returns runs on the loop
    of the App's async handlers, `loop_thread`, while the thread waits for it.
    """

    def __init__(self, spec: HandlerSpec, listener: PoolListener, loop_thread: Callable[[], LoopThread]) -> None:
        super().__init__(spec, listener)
        self._loop_thread = loop_thread
        self._condition = threading.Condition()
        self._idle = 0

    def start(self) -> None:
        for n in range(self.spec.workers):
            name = f"redeliver-{self.spec.source.name}-{n + 1}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _wake(self, n: int) -> None:
        # Read without the lock: a worker that becomes idle checks the queue again once it has the lock.
        if self._idle:
            with self._condition:
                self._condition.notify(n)

    def _work(self) -> None:
        queue = self._queue
        while not self.stopping:
            if not self.paused:
                try:
                    delivery = queue.popleft()
                except IndexError:
                    pass
                else:
                    contextvars.copy_context().run(self._run, delivery)
                    continue
            with self._condition:
                self._idle += 1
                while not self.stopping and (self.paused or not queue):
                    self._condition.wait()
                self._idle -= 1

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._loop_thread().run(coroutine)


class InlinePool(WorkerPool):
    """Runs deliveries on the caller's thread as they arrive, for a hand-driven test."""

    def __init__(self, spec: HandlerSpec, listener: PoolListener) -> None:
        super().__init__(spec, listener)
        self._busy = False

    def _wake(self, n: int) -> None:
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue and not self.paused and not self.stopping:
                contextvars.copy_context().run(self._run, self._queue.popleft())
        finally:
            self._busy = False

    def _run_coroutine(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            within_loop = False
        else:
            within_loop = True
        if not within_loop:
            return asyncio.run(coroutine)
        # The test is a coroutine itself. Its loop waits here, so the handler gets a loop on another thread.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(contextvars.copy_context().run, asyncio.run, coroutine).result()


class PullPool(WorkerPool):
    """Has no workers: a loop pulls deliveries and reports how each ended.

    `next`, `done`, `leave` are called on its thread.
    """

    def __init__(self, spec: HandlerSpec, listener: PoolListener) -> None:
        super().__init__(spec, listener)
        self._condition = threading.Condition()
        self._in_hand: dict[Delivery, Token[Delivery] | None] = {}

    def _wake(self, n: int) -> None:
        with self._condition:
            self._condition.notify_all()

    def next(self, timeout: float | None) -> Delivery | None:
        """Return the next delivery, begun; None if there is none within `timeout` seconds or the pool is stopped."""
        while True:
            with self._condition:
                ready = self._condition.wait_for(lambda: self.stopping or (self._queue and not self.paused), timeout)
                if not ready or self.stopping:
                    return None
                delivery = self._queue.popleft()
            if self._listener.begin(delivery):
                self._in_hand[delivery] = None
                return delivery

    def enter(self, delivery: Delivery) -> None:
        """Make the delivery the one that `current_delivery()` returns."""
        self._in_hand[delivery] = in_hand.set(delivery)

    def done(self, delivery: Delivery, error: BaseException | None) -> None:
        self._take(delivery)
        self._listener.ended(delivery, error)

    def leave(self, delivery: Delivery) -> None:
        """Leave a delivery unsettled that was neither handled nor failed."""
        if delivery in self._in_hand:
            self._take(delivery)
            self._listener.cancelled(delivery)

    def _take(self, delivery: Delivery) -> None:
        if (token := self._in_hand.pop(delivery, None)) is not None:
            in_hand.reset(token)


class LoopThread:
    """Runs the one event loop that all async handlers of an App share, on a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="redeliver-async", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, and raise what it raises; called on another thread, whose context it has.

        Raises CancelledError, of `concurrent.futures`, if it was cancelled.
        """
        if self.loop.is_closed():
            coroutine.close()
            raise CancelledError
        error = asyncio.run_coroutine_threadsafe(_error_of(coroutine), self.loop).result()
        if error is not None:
            raise error

    def stop(self, timeout: float) -> None:
        """Cancel the running tasks and end the loop."""
        done: Future[None] = asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop)
        try:
            done.result(timeout)
        except TimeoutError:
            return  # a task cannot be cancelled; its thread is a daemon
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _differ(context: Context, base: Context) -> bool:
    """Return whether a handler has left something in its context: then the next run gets another one."""
    try:
        return context != base
    except Exception:  # of a value that cannot be compared
        return True


async def _error_of(coroutine: Coroutine[Any, Any, None]) -> BaseException | None:
    """Await it, and return what it raises: in a task, KeyboardInterrupt and SystemExit would end the whole loop."""
    try:
        await coroutine
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return error
    return None


class AsyncPool(WorkerPool):
    """Awaits async handlers, `workers` of them at a time, on the App's event loop."""

    def __init__(self, spec: HandlerSpec, listener: PoolListener, thread: LoopThread) -> None:
        super().__init__(spec, listener)
        self._thread = thread
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps only weak references

    def start(self) -> None:
        for _ in range(self.spec.workers):
            self._thread.loop.call_soon_threadsafe(self._begin_task, contextvars.copy_context())

    def _begin_task(self, base: Context) -> None:
        task = self._thread.loop.create_task(self._work(base), context=base.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _wake(self, n: int) -> None:
        self._thread.loop.call_soon_threadsafe(self._news.set)

    async def _work(self, base: Context) -> None:
        while not self.stopping:
            if self.paused or not self._queue:
                self._news.clear()
                if self.paused or not self._queue:
                    await self._news.wait()
                continue
            await self._run_async(self._queue.popleft())
            if _differ(contextvars.copy_context(), base):
                return self._begin_task(base)  # a task cannot change its context for another one

    async def _run_async(self, delivery: Delivery) -> None:
        if self.spec.batch is not None:
            return await self._run_batch_async(self._gather(delivery))
        if not self._listener.begin(delivery):
            return
        token = in_hand.set(delivery)
        try:
            await self.spec.fn(*self._arguments(delivery))
        except BaseException as error:
            in_hand.reset(token)
            ours = isinstance(error, asyncio.CancelledError) and self.stopping
            if ours:
                self._listener.cancelled(delivery)
                raise
            self._listener.ended(delivery, error)
            if isinstance(error, KeyboardInterrupt | SystemExit | asyncio.CancelledError):
                return  # a failure like any other; the loop continues
        else:
            in_hand.reset(token)
            self._listener.ended(delivery, None)

    async def _run_batch_async(self, batch: DeliveryBatch) -> None:
        if not batch.deliveries:
            return
        try:
            await self.spec.fn(batch.items)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and self.stopping:
                for delivery in batch.deliveries:
                    self._listener.cancelled(delivery)
                raise
            self._listener.ended_as_one(batch.deliveries, error)
        else:
            self._listener.ended_as_one(batch.deliveries, None)
