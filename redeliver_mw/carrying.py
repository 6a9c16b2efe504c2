# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out, for an App, what its interceptor commands: crews, adapter, limbo, timers, records."""

from __future__ import annotations

import logging

from .adapter import Adapter, MoveVerdict, Verdict
from .admission import Admission
from .commands import (
    Answer,
    Forget,
    Halt,
    Moved,
    Place,
    Record,
    Resume,
    Run,
    Say,
    Settle,
    Store,
    Transact,
    Wait,
    Written,
    tell,
)  # fmt: skip
from .message import Destination
from .ports import Park
from .recording import Recorder, attempt_record
from .scene import Scene
from .timers import Timers

log = logging.getLogger("redeliver_mw")


class Carrying(Admission):
    """The hands of the interceptor: a method for each command. A runner has them."""

    _adapter: Adapter
    _limbo: Park | None
    _timers: Timers
    _recorder: Recorder
    _scene: Scene
    halted: dict[Destination, str]

    def run(self, c: Run) -> None:
        if self._gate is not None:
            return self._gate.run(c.delivery)
        self._crews[c.delivery.destination].put((c.delivery,), first=True)

    def wait(self, c: Wait) -> None:
        self._timers.wait(c.token, c.seconds)

    def forget(self, c: Forget) -> None:
        self._timers.forget(c.token)

    def _ring(self) -> None:
        with self._lock:
            self._timers.run_out()

    def store(self, c: Store) -> None:
        def answered(verdict: Verdict, why: str) -> None:
            self.feed(Answer(c.token, c.out.copy_id, verdict == "ok", why, self._clock.now(), verdict == "silent"))

        if c.due_us is None:
            self._adapter.publish(c.out, answered, after=c.after)
        elif self._limbo is not None:
            self._limbo.park(c.out, c.due_us / 1e6, answered)

    def transact(self, c: Transact) -> None:
        def answered(verdict: MoveVerdict, why: str) -> None:
            self.feed(Moved(c.token, verdict, why, self._clock.now()))

        self._adapter.move(c.delivery, c.outs, answered)

    def settle(self, c: Settle) -> None:
        tell(self._adapter, c, lambda: self.feed(Written(c.token)))

    def record(self, c: Record) -> None:
        if self._recorder.wanted:
            self._recorder.append(attempt_record, c, self._scene)

    def halt(self, c: Halt) -> None:
        self._crews[c.source].pause("us")
        self.halted[c.source] = c.reason
        if c.loud:
            log.error("%s is paused: %s. Nothing is lost; it goes on once that is over", c.source, c.reason)

    def resume(self, c: Resume) -> None:
        if self.halted.pop(c.source, None) is not None:
            self._crews[c.source].resume("us")

    def say(self, c: Say) -> None:
        log.log(logging.getLevelNamesMapping()[c.level.upper()], c.text)

    def place(self, c: Place) -> None:
        if self._usher is not None:
            self._usher.place(c)
