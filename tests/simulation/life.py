# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one life of the process in a history: an app's engine, with all that is real in it, and its handler."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from redeliver_mw.crash_safety import store
from redeliver_mw.errors import Reject, RetryAfter
from redeliver_mw.limbo import service
from redeliver_mw.limbo.store import LEASE
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.redelivery import ledger as redelivery_ledger
from redeliver_mw.runtime import engine
from redeliver_mw.runtime.engine import Engine
from redeliver_mw.runtime.handler import HandlerSpec
from redeliver_mw.runtime.settings import Settings
from redeliver_mw.storage.database import Database

from .book import Message
from .disk import URL, one_engine
from .parts import SteppedPool, WatchedAdapter
from .plan import LATER, SOURCE, Letter

if TYPE_CHECKING:
    from .world import World

POLL, POLLS = LEASE / 3, 9  # seconds until a worker looks again; so often that a dead one's lease is over by then


@contextmanager
def same_every_time() -> Iterator[None]:
    """Let in no real time and nothing drawn elsewhere; and make a lease as it is where nobody moves the clock."""
    numbers = itertools.count(1)
    drawn = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(numbers):032x}"[::-1]))
    stubs: list[Any] = [
        (engine, "time", SimpleNamespace(monotonic=lambda: 100.0 * next(numbers))),  # what is not there now never comes
        (engine, "uuid", drawn),
        (store, "uuid", drawn),
        (service, "DRIVEN_LEASE", LEASE),
        (Database, "_made", one_engine),
    ]
    real: list[Any] = [(module, name, getattr(module, name)) for module, name, _ in stubs]
    for module, name, stub in stubs:
        setattr(module, name, stub)
    try:
        yield
    finally:
        for module, name, value in real:
            setattr(module, name, value)


class Life:
    """Runs one life of the process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dead = self.stopping = False
        self.connections: list[Any] = []
        self.adapter = WatchedAdapter(world)
        plan = world.plan
        source = Destination(SOURCE)
        settings = Settings(
            app_name="simulated",
            delay=plan.delay,
            seed=plan.seed,
            limbo=URL if plan.limbo else None,
            crash_safe=plan.crash_safe,
        )
        spec = HandlerSpec(source, self.handle, None, plan.workers, plan.prefetch)
        self.engine = Engine(
            self.adapter,
            [spec],
            {source: world.policy},
            settings,
            world.clock,
            hooks=[self.told],
            drive=self.drive,
            pool=SteppedPool,
        )

    @property
    def run(self) -> str | None:
        """Return the run under which the ledger in the database knows this life, or None where there is no ledger."""
        gate = self.engine._gate
        return gate._lines.run if gate is not None else None

    def start(self) -> None:
        opened = self.engine._open_limbo
        self.engine._open_limbo = lambda: self.world.book.watching(opened())  # messages may come before it has started
        self.engine.start()
        if self.engine._limbo is not None:
            self.adapter.call_later(POLL, partial(self._look, 1))

    def _look(self, number: int) -> None:
        """Look at the limbo as the worker's thread does every now and then, here ever more rarely.

        An empty limbo is not worth a look.
        """
        if self.world.is_parked and self.engine._limbo is not None:
            self.engine._limbo._run_once()
        rest = POLL if number < POLLS else POLL * 2.0 ** (number - POLLS)
        self.adapter.call_later(rest, partial(self._look, number + 1))

    def drive(self) -> None:
        runner = self.engine.runner
        if runner is not None and runner.stopping:
            self.world.go_with(self, 5.0, lambda: not runner.busy)
        else:
            self.world.clock.run_until_idle()

    def told(self, record: Any) -> None:
        self.world.note(f"told: {record.outcome} {record.mechanism or ''} {record.reason or ''}")
        if self.world.weather.hook_fails:
            raise OSError("no space left on device")

    # -- the handler ------------------------------------------------------------------------------------------

    def handle(self, delivery: Delivery, over: Callable[[BaseException | None], None]) -> None:
        world = self.world
        world.point("handler begins")
        message = world.book.begins(delivery)
        world.note(f"the handler gets {message.letter.name}, F={delivery.failures}, tag {delivery.tag}")
        if not self.adapter.has(delivery):
            world.book.expose(message, "its connection is lost already")
        letter = message.letter
        if letter.kind == "killer" and message.runs <= letter.failures:
            world.note(f"{letter.name} kills the process")
            world.crash(1.0)
        self.adapter.call_later(letter.lasts, partial(self._end, message, delivery, delivery.failures, over))

    def _end(self, m: Message, delivery: Delivery, failures: int, over: Callable[[Any], None]) -> None:
        world, plan = self.world, self.world.plan
        world.point("handler ends")
        outcome, error = self._result(m.letter, failures, m.runs)
        rest = LATER
        if outcome == "failed" and failures + 1 >= plan.dead_after:
            outcome = "dead" if plan.on_dead == "dead-letter" else "discarded"
        elif outcome == "failed":
            rest = plan.rest_after(failures + 1)
        elif outcome == "dead" and plan.on_dead == "discard":
            outcome = "discarded"
        world.note(f"the handler of {m.letter.name} ends: {outcome}")
        world.book.ends(m, failures, outcome=outcome, rest=rest)
        over(error)

    def _result(self, letter: Letter, failures: int, runs: int) -> tuple[str, BaseException | None]:
        match letter.kind:
            case "failing" if failures < letter.failures:
                return "failed", ValueError("no")
            case "poison":
                return "failed", ValueError("never")
            case "rejected":
                return "dead", Reject("not wanted")
            case "ignored":
                return "ignored", LookupError("gone")
            case "later" if runs == 1:
                return "later", RetryAfter(LATER, count=False)
        return "handled", None

    # -- its end ------------------------------------------------------------------------------------------------

    def die(self) -> None:
        self.dead = True
        world = self.world
        for connection in self.connections:
            connection.die()
        if (gate := self.engine._gate) is not None:
            store._here.discard(gate._lines.run)
        world.clock.forget(self.adapter.loop)
        self.adapter.vanish()
        redelivery_ledger._ledgers.pop((world.broker.id, Destination(SOURCE)), None)
