# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lets things go wrong in a history when the plan says so, and knows what of it still lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .plan import FAULTS, Fault, Plan

if TYPE_CHECKING:
    from .world import World


class Weather:
    """Lets the plan's faults strike at their points; `calm_down()` ends all that lasts."""

    def __init__(self, world: World, plan: Plan) -> None:
        self._world = world
        self._to_come = list(plan.faults)
        self._of_publish: list[Fault] = []
        self.steps_forward = 0  # of the wall clock
        self.undisturbed = True  # nothing has gone wrong yet
        self.gently = True  # nor anything that keeps a process from taking its counts along when it is told to stop
        self.disk_full = self.hook_fails = False

    @property
    def is_over(self) -> bool:
        return not self._to_come

    def strike(self, point: int, what: str) -> None:
        """Let all go wrong that is to go wrong by this point."""
        while self._to_come and self._to_come[0].at <= point:
            fault = self._to_come.pop(0)
            self._world.note(f"FAULT before or at '{what}': {FAULTS[fault.kind].format(arg=fault.arg)}")
            self.undisturbed = False
            self.gently &= fault.kind in ("stop", "clock", "hook", "repeat")
            getattr(self, f"_{fault.kind}")(fault.arg, fault)

    def calm_down(self) -> None:
        self._to_come.clear()
        self._of_publish.clear()
        self._world.broker.faults.clear()
        self._room_again()
        self._broker_back()
        self.hook_fails = False

    def take_of_publish(self) -> Fault | None:
        """Take what the next publish meets."""
        return self._of_publish.pop(0) if self._of_publish else None

    # -- the kinds of plan.FAULTS -------------------------------------------------------------------------------

    def _crash(self, rest: float, _: Fault) -> None:
        self._world.crash(rest)

    def _stop(self, rest: float, _: Fault) -> None:
        self._world.want_stop(rest)

    def _cut(self, _arg: float, _: Fault) -> None:
        self._world.book.connection_lost()
        self._world.broker.cut()

    def _channel(self, _arg: float, _: Fault) -> None:
        if self._world.life is not None:
            self._world.book.connection_lost()
            self._world.life.adapter.drop_channel()

    def _kill(self, lasts: float, _: Fault) -> None:
        if not self._world.broker.down:
            self._world.book.connection_lost()
            self._world.broker.kill()
            self._world.loop.call_later(lasts, self._broker_back)

    def _broker_back(self) -> None:
        if self._world.broker.down:
            self._world.note("the broker is back")
            self._world.broker.restart()

    def _lost(self, _arg: float, _: Fault) -> None:
        self._world.broker.faults.silence(None, stored=True)

    def _unsent(self, _arg: float, _: Fault) -> None:
        self._world.broker.faults.silence(None, stored=False)

    def _late(self, seconds: float, _: Fault) -> None:
        self._world.broker.faults.late(None, seconds)

    def _refuse(self, times: float, _: Fault) -> None:
        self._world.broker.faults.refuse(None, int(times))

    def _stall(self, _arg: float, fault: Fault) -> None:
        self._of_publish.append(fault)

    _repeat = _stall

    def _settle(self, _arg: float, _: Fault) -> None:
        self._world.broker.faults.drop_settle()

    def _full(self, lasts: float, _: Fault) -> None:
        self.disk_full = True
        self._world.loop.call_later(lasts, self._room_again)

    def _room_again(self) -> None:
        self.disk_full = False

    def _clock(self, seconds: float, _: Fault) -> None:
        self._world.clock.wall_step(seconds)
        self.steps_forward += seconds > 0

    def _alarm(self, lasts: float, _: Fault) -> None:
        self._world.broker.block()
        self._world.loop.call_later(lasts, self._world.broker.unblock)

    def _hook(self, _arg: float, _: Fault) -> None:
        self.hook_fails = True
