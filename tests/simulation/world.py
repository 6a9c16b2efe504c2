# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one history: an app's engine, with all that is real in it, on a broker in memory, while things go wrong."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from redeliver_mw.errors import BrokerError, ConfigError, LimboError
from redeliver_mw.memory import Faults
from redeliver_mw.message import Destination
from redeliver_mw.timers import SLACK

from .book import Book
from .disk import WORLDS, disk
from .life import Life, same_every_time
from .parts import Died, SteppedClock, WatchedBroker
from .plan import SOURCE, TARGETS, Letter, Plan
from .weather import Weather

FAULTY = 40.0  # seconds, after which nothing goes wrong any more
QUIET = 3 * 3600.0  # seconds until everything must have come to its end, an hour of a wrong clock included
MOST_STEPS = 50_000  # at one instant: more than any history has that ends


class World:
    """Runs one history by `run()`.

    Broken is raised where a rule does not hold, and `lines` then show how it came to that.
    """

    def __init__(self, plan: Plan, *, telling: bool = False) -> None:
        self.plan = plan
        self.policy = plan.policy
        self.telling = telling
        self.lines: list[str] = []
        self.clock = SteppedClock()
        self.clock.world = self
        self.broker = WatchedBroker(plan.broker, clock=self.clock, faults=Faults(plan.seed), name="simulation")
        self.broker.world = self
        self.book = Book(self)
        self.life: Life | None = None
        self.points = 0
        self._instant, self._steps = -1.0, 0  # of the clock, and how many callbacks there were since
        self.weather = Weather(self, plan)
        self._stop_in: float | None = None  # a stop is wanted, and the next life after so many seconds
        self._start_wanted = False
        self.loop = self.broker.stock._loop
        self._calm = False

    # -- telling ------------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        if self.telling:
            now = self.clock.now()
            self.lines.append(f"{now.mono:9.3f} s  point {self.points:3}  {what}")

    # -- points -------------------------------------------------------------------------------------------------

    def point(self, what: str) -> None:
        """Let something go wrong here, if the plan says so."""
        life = self.life
        if life is not None and life.dead:
            raise Died
        if self._calm:
            return
        self.points += 1
        self.weather.strike(self.points, what)

    @contextmanager
    def at_one_stroke(self) -> Iterator[None]:
        """Let the context have no point."""
        calm, self._calm = self._calm, True
        try:
            yield
        finally:
            self._calm = calm

    def crash(self, rest: float) -> None:
        """Let the process die here and now; the next starts in `rest` seconds."""
        if self.life is None:
            return
        self.weather.undisturbed = self.weather.gently = False
        suspects, run = self._suspects(), self.life.run
        self.life.die()
        if run is not None:  # what it has not committed is gone by now
            suspects |= self.book.names_of(disk().alone(run))
        self.book.process_lost(suspects)
        self.start_in(rest)
        raise Died

    def want_stop(self, rest: float) -> None:
        if self.life is not None:
            self._stop_in = rest

    # -- where messages are -------------------------------------------------------------------------------------

    @property
    def is_parked(self) -> bool:
        return bool(self._parked())

    def _parked(self) -> list[tuple[str, str]]:
        if not self.plan.limbo:
            return []
        try:
            return disk().parked()
        except sqlite3.OperationalError:  # a transaction is under way: whatever it moves is in two places
            return [(name, f"queue:{SOURCE}") for name in self.book.messages]

    def in_hand(self) -> set[str]:
        """Return the messages that the broker thinks a consumer has, whether or not the consumer has looked at them."""
        return {place.message.body.decode() for place in self.broker.everything() if place.where == "in flight"}

    def all_places(self) -> dict[str, list[str]]:
        """Return the queues where the copies of each message are or will be, and `limbo` for those in limbo."""
        found: dict[str, list[str]] = {}
        for place in self.broker.everything():
            found.setdefault(place.message.body.decode(), []).append(place.destination.name)
        for name, target in self._parked():
            found.setdefault(name, []).extend(("limbo", target.removeprefix("queue:")))
        return found

    def _suspects(self) -> set[str]:
        """Return the messages that the gate runs alone, or is about to: of a crash now each may be the culprit."""
        gate = self.life.engine._gate if self.life is not None else None
        if gate is None:
            return set()
        isolation = gate._isolation
        alone = [isolation._alone] if isolation._alone is not None else []
        return {one.delivery.body.decode() for one in (*alone, *isolation.suspects)}

    def places(self, name: str) -> list[str]:
        return self.all_places().get(name, [])

    # -- the history --------------------------------------------------------------------------------------------

    def run(self) -> World:
        with same_every_time():
            WORLDS.append(self)
            try:
                self._run()
            finally:
                WORLDS.remove(self)
                if self.life is not None and not self.life.dead:
                    self.life.die()
        return self

    def _run(self) -> None:
        if self.plan.limbo:
            disk().wipe()
        for name in (SOURCE, *TARGETS):
            self.broker.declare(name)
        for letter in self.plan.letters:
            self.loop.call_later(letter.at, partial(self._send, letter))
        self._start_wanted = True
        self.go(FAULTY, self._over)
        self.calm_down()
        self.go(QUIET, self._at_rest)
        self.book.check_end()
        if self.plan.replay:
            self._send_back()
            self.go(QUIET, self._at_rest)
            self.book.check_end()

    def _send(self, letter: Letter) -> None:
        if self.broker.down:
            self.loop.call_later(1.0, partial(self._send, letter))
            return
        self.note(f"{letter.name} is sent")
        self.book.sent(letter)
        headers = {f"wide {n}": "x" * 8000 for n in range(8 if letter.wide else 0)}
        self.broker_send(letter.name, headers, message_id=f"id-{letter.name}" if letter.has_id else None)

    def broker_send(self, name: str, headers: dict[str, Any], **properties: Any) -> None:
        with self.at_one_stroke():  # a producer's send is no business of ours
            self.broker.send(SOURCE, name.encode(), headers, **properties)

    def _over(self) -> bool:
        return self.weather.is_over and self._at_rest()

    def _at_rest(self) -> bool:
        if len(self.book.messages) < len(self.plan.letters) or not self.book.done():
            return False
        return all(
            self.book.rests(name, places) or (SOURCE not in places and "limbo" not in places)
            for name, places in self.all_places().items()
        )

    def calm_down(self) -> None:
        """Let nothing go wrong from here on."""
        self.note("the faults are over")
        self._calm = True
        self.weather.calm_down()

    def _send_back(self) -> None:
        """Send dead letters back where they came from, headers and all, as a tool that knows nothing of us."""
        link = self.broker.connect()
        letters = []
        while (held := link.get(TARGETS[0])) is not None:
            letters.append(held)
            link.accept(held.tag)
        link.close()
        for held in letters:
            name = held.message.body.decode()
            self.note(f"a stranger sends {name} back")
            letter = self.book.messages[name].letter
            others = sum(held.message.body.decode() == name for held in letters) - 1
            self.book.sent(letter, again=True)
            self.book.messages[name].exposed = others
        for target in TARGETS[1:]:
            self.broker.stock.queues[Destination(target)].drop_if(lambda _: True)
        for held in letters:
            message = held.message
            self.broker.store(Destination(SOURCE), message.body, message.headers, message.properties)

    def go(self, seconds: float, done: Callable[[], bool]) -> None:
        """Let time pass, until `done` or for so many seconds; processes die and start meanwhile."""
        until = self.clock.now().mono + seconds
        while True:
            try:
                self._change_lives()
                if self._step():
                    continue
            except Died:
                self.note("the process is dead")
                self.life = None
                continue
            if done() or not self._sleep(until):
                return

    def go_with(self, life: Life, seconds: float, done: Callable[[], bool]) -> None:
        """Let time pass in the same way within a life, as far as the life lasts."""
        until = self.clock.now().mono + seconds
        while True:
            while self._step():
                pass
            if done() or not self._sleep(until):
                return

    def _step(self) -> bool:
        """Run one callback that is due, and return whether there was one.

        It is a broken rule when the callbacks of one instant have no end.
        """
        if not self.clock.step():
            return False
        now = self.clock.now().mono
        self._steps += 1
        if now > self._instant + SLACK:
            self._instant, self._steps = now, 0
        elif self._steps > MOST_STEPS:
            self.book.wrong(f"there is no end of what happens at {now} s")
        return True

    def _sleep(self, until: float) -> bool:
        """Sleep to the next instant at which something happens; return False where none comes before `until`."""
        when = self.clock.next_instant
        self.clock.sleep_until(until if when is None else min(when, until))
        return when is not None and when <= until

    def start_in(self, seconds: float) -> None:
        self.loop.call_later(seconds, self._want_start)

    def _want_start(self) -> None:
        self._start_wanted = True

    def _change_lives(self) -> None:
        life = self.life
        if self._stop_in is not None and life is not None:
            self._stop(life)
        if self._start_wanted and self.life is None and not self.broker.down:
            self._start_wanted = False
            self._start()

    def _start(self) -> None:
        self.note("a process starts")
        life = self.life = Life(self)
        try:
            life.start()
        except (BrokerError, LimboError, ConfigError) as error:
            self.note(f"it could not start: {error}")
            life.die()
            self.life = None
            self.start_in(1.0)

    def _stop(self, life: Life) -> None:
        rest, self._stop_in = self._stop_in, None
        self.note("the process is told to stop")
        assert rest is not None
        self.start_in(rest)
        life.engine.stop(0.0)
        self.note("it has stopped")
        self.book.process_stopped(gently=self.weather.gently)
        life.die()
        self.life = None
