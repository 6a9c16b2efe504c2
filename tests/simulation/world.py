# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""One history: an app's engine, with all that is real in it, on a broker in memory, while things go wrong."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from redeliver_mw import counting, engine, keeper
from redeliver_mw.engine import Engine
from redeliver_mw.errors import BrokerError, ConfigError, LimboError, Reject, RetryAfter
from redeliver_mw.handlers import HandlerSpec
from redeliver_mw.limbo import ledger
from redeliver_mw.limbo.database import Database
from redeliver_mw.limbo.store import LEASE
from redeliver_mw.memory import Faults
from redeliver_mw.message import Delivery, Destination
from redeliver_mw.options import Settings

from .book import Book, Message
from .parts import URL, Died, Disk, SteppedClock, SteppedCrew, WatchedAdapter, WatchedBroker, _worlds, one_engine
from .plan import FAULTS, LATER, SOURCE, TARGETS, Fault, Letter, Plan

FAULTY = 40.0  # seconds, after which nothing goes wrong any more
QUIET = 3 * 3600.0  # seconds until everything must have come to its end, an hour of a wrong clock included
POLL, POLLS = LEASE / 3, 9  # seconds until a clerk looks again; so often that a dead one's lease is over by then
_disk: list[Disk] = []


def disk() -> Disk:
    """One for all histories of this process."""
    if not _disk:
        _disk.append(Disk())
    return _disk[0]


@contextmanager
def same_every_time() -> Iterator[None]:
    """No real time and nothing drawn elsewhere; and a lease as it is where nobody moves the clock."""
    numbers = itertools.count(1)
    drawn = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=f"{next(numbers):032x}"[::-1]))
    stubs: list[Any] = [
        (engine, "time", SimpleNamespace(monotonic=lambda: 100.0 * next(numbers))),  # what is not there now never comes
        (engine, "uuid", drawn), (ledger, "uuid", drawn), (keeper, "DRIVEN_LEASE", LEASE),
        (Database, "_made", one_engine),
    ]  # fmt: skip
    real: list[Any] = [(module, name, getattr(module, name)) for module, name, _ in stubs]
    for module, name, stub in stubs:
        setattr(module, name, stub)
    try:
        yield
    finally:
        for module, name, value in real:
            setattr(module, name, value)


class Life:
    """One life of the process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dead = self.stopping = False
        self.connections: list[Any] = []
        self.adapter = WatchedAdapter(world)
        plan = world.plan
        source = Destination(SOURCE)
        settings = Settings(
            app_name="simulated", delay=plan.delay, seed=plan.seed, limbo=URL if plan.limbo else None,  # type: ignore[arg-type]
            crash_safe=plan.crash_safe,
        )  # fmt: skip
        spec = HandlerSpec(source, self.handle, None, plan.workers, plan.prefetch)
        self.engine = Engine(
            self.adapter, [spec], {source: world.policy}, settings, world.clock, hooks=[self.told],
            drive=self.drive, crew=SteppedCrew,
        )  # fmt: skip

    def start(self) -> None:
        self.engine.start()
        if self.engine._keeper is not None:
            self.world.book.watch_parking(self.engine._keeper)
            self.adapter.call_later(POLL, partial(self._look, 1))

    def _look(self, number: int) -> None:
        """The clerk's thread looks every now and then, here ever more rarely; an empty limbo is not worth a look."""
        if self.world.is_parked and self.engine._keeper is not None:
            self.engine._keeper._turn()
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
        if self.world.hook_fails:
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
        if letter.kind == "killer" and message.runs <= letter.sick:
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
            case "sick" if failures < letter.sick:
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
            ledger._here.discard(gate._lines.run)
        world.clock.forget(self.adapter.loop)
        self.adapter.vanish()
        counting._ledgers.pop((world.broker.id, Destination(SOURCE)), None)


class World:
    """`run()` is the history; Broken is raised where a rule does not hold, and `story` then tells how it came."""

    def __init__(self, plan: Plan, *, telling: bool = False) -> None:
        self.plan = plan
        self.policy = plan.policy
        self.telling = telling
        self.story: list[str] = []
        self.clock = SteppedClock()
        self.clock.world = self
        self.broker = WatchedBroker(plan.broker, clock=self.clock, faults=Faults(plan.seed), name="simulation")
        self.broker.world = self
        self.book = Book(self)
        self.life: Life | None = None
        self.points = 0
        self.steps_forward = 0
        self.undisturbed = self._gently = True
        self.disk_full = self.hook_fails = False
        self._faults = list(plan.faults)
        self._of_publish: list[Fault] = []
        self._stop_in: float | None = None  # a stop is wanted, and the next life after so many seconds
        self._start_wanted = False
        self._loop = self.broker.stock._loop
        self._calm = False
        self._busy = False

    # -- telling ------------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        if self.telling:
            now = self.clock.now()
            self.story.append(f"{now.mono:9.3f} s  point {self.points:3}  {what}")

    # -- points -------------------------------------------------------------------------------------------------

    def point(self, what: str) -> None:
        """Here something may go wrong."""
        life = self.life
        if life is not None and life.dead:
            raise Died
        if self._calm:
            return
        self.points += 1
        while self._faults and self._faults[0].at <= self.points:
            fault = self._faults.pop(0)
            self.note(f"FAULT before or at '{what}': {FAULTS[fault.kind].format(arg=fault.arg)}")
            self.undisturbed = False
            self._gently &= fault.kind in ("stop", "clock", "hook", "repeat")
            getattr(self, f"_fault_{fault.kind}")(fault)

    @contextmanager
    def at_one_stroke(self) -> Iterator[None]:
        """No point in here."""
        calm, self._calm = self._calm, True
        try:
            yield
        finally:
            self._calm = calm

    def _fault_crash(self, fault: Fault) -> None:
        self.crash(fault.arg)

    def crash(self, rest: float) -> None:
        if self.life is None:
            return
        self.undisturbed = self._gently = False
        self.book.process_lost()
        self.life.die()
        self.start_in(rest)
        raise Died

    def _fault_stop(self, fault: Fault) -> None:
        if self.life is not None:
            self._stop_in = fault.arg

    def _fault_cut(self, fault: Fault) -> None:
        self.book.connection_lost()
        self.broker.cut()

    def _fault_channel(self, fault: Fault) -> None:
        if self.life is not None:
            self.book.connection_lost()
            self.life.adapter.drop_channel()

    def _fault_kill(self, fault: Fault) -> None:
        if not self.broker.down:
            self.book.connection_lost()
            self.broker.kill()
            self._loop.call_later(fault.arg, self._broker_back)

    def _broker_back(self) -> None:
        if self.broker.down:
            self.note("the broker is back")
            self.broker.restart()

    def _fault_lost(self, fault: Fault) -> None:
        self.broker.faults.silence(None, stored=True)

    def _fault_unsent(self, fault: Fault) -> None:
        self.broker.faults.silence(None, stored=False)

    def _fault_late(self, fault: Fault) -> None:
        self.broker.faults.late(None, fault.arg)

    def _fault_refuse(self, fault: Fault) -> None:
        self.broker.faults.refuse(None, int(fault.arg))

    def _fault_stall(self, fault: Fault) -> None:
        self._of_publish.append(fault)

    _fault_repeat = _fault_stall

    def take_of_publish(self) -> Fault | None:
        return self._of_publish.pop(0) if self._of_publish else None

    def _fault_settle(self, fault: Fault) -> None:
        self.broker.faults.drop_settle()

    def _fault_full(self, fault: Fault) -> None:
        self.disk_full = True
        self._loop.call_later(fault.arg, self._room_again)

    def _room_again(self) -> None:
        self.disk_full = False

    def _fault_clock(self, fault: Fault) -> None:
        self.clock.wall_step(fault.arg)
        self.steps_forward += fault.arg > 0

    def _fault_alarm(self, fault: Fault) -> None:
        self.broker.block()
        self._loop.call_later(fault.arg, self.broker.unblock)

    def _fault_hook(self, fault: Fault) -> None:
        self.hook_fails = True

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

    def all_places(self) -> dict[str, list[str]]:
        """Of each message: the queues where its copies are or will be; `limbo` besides for those in limbo."""
        found: dict[str, list[str]] = {}
        for place in self.broker.everything():
            found.setdefault(place.message.body.decode(), []).append(place.destination.name)
        for name, target in self._parked():
            found.setdefault(name, []).extend(("limbo", target.removeprefix("queue:")))
        return found

    def suspects(self) -> set[str]:
        """Those that the gate runs alone, or is about to: of a crash now each may be the culprit."""
        gate = self.life.engine._gate if self.life is not None else None
        if gate is None:
            return set()
        turnstile = gate._turnstile
        alone = [turnstile._alone] if turnstile._alone is not None else []
        return {one.delivery.body.decode() for one in (*alone, *turnstile.suspects)}

    def places(self, name: str) -> list[str]:
        return self.all_places().get(name, [])

    # -- the history --------------------------------------------------------------------------------------------

    def run(self) -> World:
        with same_every_time():
            _worlds.append(self)
            try:
                self._run()
            finally:
                _worlds.remove(self)
                if self.life is not None and not self.life.dead:
                    self.life.die()
        return self

    def _run(self) -> None:
        if self.plan.limbo:
            disk().wipe()
        for name in (SOURCE, *TARGETS):
            self.broker.declare(name)
        for letter in self.plan.letters:
            self._loop.call_later(letter.at, partial(self._send, letter))
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
            self._loop.call_later(1.0, partial(self._send, letter))
            return
        self.note(f"{letter.name} is sent")
        self.book.sent(letter)
        self.broker_send(letter.name, {}, message_id=f"id-{letter.name}" if letter.has_id else None)

    def broker_send(self, name: str, headers: dict[str, Any], **properties: Any) -> None:
        with self.at_one_stroke():  # a producer's send is no business of ours
            self.broker.send(SOURCE, name.encode(), headers, **properties)

    def _over(self) -> bool:
        return not self._faults and self._at_rest()

    def _at_rest(self) -> bool:
        if len(self.book.messages) < len(self.plan.letters) or not self.book.done():
            return False
        return all(SOURCE not in places and "limbo" not in places for places in self.all_places().values())

    def calm_down(self) -> None:
        """Nothing goes wrong from here on."""
        self.note("the faults are over")
        self._calm = True
        self._faults.clear()
        self._of_publish.clear()
        self.broker.faults.clear()
        self._room_again()
        self._broker_back()
        self.hook_fails = False

    def _send_back(self) -> None:
        """A tool that knows nothing of us puts dead letters back where they came from, headers and all."""
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
                if self.clock.step():
                    continue
            except Died:
                self.note("the process is dead")
                self.life = None
                continue
            if done() or not self._sleep(until):
                return

    def go_with(self, life: Life, seconds: float, done: Callable[[], bool]) -> None:
        """The same within a life, as far as it lives."""
        until = self.clock.now().mono + seconds
        while True:
            while self.clock.step():
                pass
            if done() or not self._sleep(until):
                return

    def _sleep(self, until: float) -> bool:
        """To the next instant at which something happens; False where none comes before `until`."""
        when = self.clock.next_instant
        self.clock.sleep_until(until if when is None else min(when, until))
        return when is not None and when <= until

    def start_in(self, seconds: float) -> None:
        self._loop.call_later(seconds, self._want_start)

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
        self.book.process_stopped(gently=self._gently)
        life.die()
        self.life = None
