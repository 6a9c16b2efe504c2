# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the supervisor on a clock moved by hand, over invented processes: pauses, deadlines, exit codes."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence

import pytest

from redeliver_mw.processes.supervisor import (
    AT_ONCE,
    CLOSING,
    FAREWELL,
    STEADY,
    ChildChecked,
    ChildEnded,
    ChildFailed,
    ChildStarted,
    News,
    RestartBackoff,
    Supervisor,
    SupervisorResult,
)
from redeliver_mw.runtime.partition import ProcessShare

STOP_TIMEOUT = 7.0


class Hand:
    """Stands for a process: says and ends as the test wants, and notes what it is told."""

    def __init__(self, share: ProcessShare, pid: int) -> None:
        self.share, self.pid = share, pid
        self.code: int | None = None
        self.said: list[News] = []
        self.told: list[str] = []

    def ended(self) -> int | None:
        return self.code

    def news(self) -> Sequence[News]:
        said, self.said = self.said, []
        return said

    def stop(self) -> None:
        self.told.append("stop")

    def hurry(self) -> None:
        self.told.append("hurry")

    def kill(self) -> None:
        self.told.append("kill")
        self.code = -signal.SIGKILL

    def close(self) -> None:
        self.told.append("close")


class Floor:
    """Holds a supervisor, its processes in the order in which they were started, and the time."""

    def __init__(self, wanted: int) -> None:
        self.now = 1000.0
        self.started: list[Hand] = []
        self.memory = True
        self.supervisor = Supervisor(self._start, wanted)
        self.run_once()

    def _start(self, share: ProcessShare) -> Hand:
        if not self.memory:
            raise OSError(12, "Cannot allocate memory")
        self.started.append(Hand(share, 100 + len(self.started)))
        return self.started[-1]

    def run_once(self, after: float = 0.0) -> float:
        self.now += after
        return self.supervisor.run_once(self.now)

    def up(self, *processes: Hand, of: int) -> None:
        for one in processes:
            one.said.append(ChildStarted(of, STOP_TIMEOUT))
        self.run_once()

    def ask(self) -> None:
        self.supervisor.ask()
        self.run_once()

    def die(self, process: Hand, code: int = -signal.SIGKILL) -> None:
        process.code = code
        self.run_once()


def all_up(wanted: int) -> Floor:
    floor = Floor(wanted)
    floor.up(floor.started[0], of=wanted)
    floor.run_once()
    floor.up(*floor.started[1:], of=wanted)
    assert len(floor.started) == wanted
    return floor


def test_the_pause_doubles_from_half_a_second_to_thirty() -> None:
    pauses = RestartBackoff()
    assert [pauses.after(1.0) for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert [pauses.after(STEADY), pauses.after(STEADY - 0.1)] == [0.5, 1.0]


def test_the_others_are_started_when_the_first_is_up() -> None:
    floor = Floor(3)
    floor.run_once(50.0)
    assert [one.share for one in floor.started] == [ProcessShare(0, 3)]
    floor.up(floor.started[0], of=3)
    floor.run_once()
    assert [one.share for one in floor.started] == [ProcessShare(0, 3), ProcessShare(1, 3), ProcessShare(2, 3)]


def test_a_process_that_has_died_is_started_when_its_pause_is_over_and_not_before() -> None:
    floor = all_up(2)
    floor.run_once(10.0)
    floor.die(floor.started[1])
    assert floor.run_once(0.2) == pytest.approx(0.3)
    assert len(floor.started) == 2
    floor.run_once(0.3)
    assert [one.share for one in floor.started[2:]] == [ProcessShare(1, 2)]
    floor.die(floor.started[2])
    assert floor.run_once() == pytest.approx(1.0)
    floor.die(floor.started[0])
    assert floor.run_once() == pytest.approx(0.5)  # each has pauses of its own


def test_a_process_that_lived_for_a_minute_has_its_first_pause_again() -> None:
    floor = all_up(1)
    for _ in range(4):
        floor.die(floor.started[-1])
        floor.run_once(100.0)
    floor.run_once(STEADY)
    floor.die(floor.started[-1])
    assert floor.run_once() == pytest.approx(0.5)


def test_what_cannot_be_started_for_want_of_memory_is_tried_again() -> None:
    floor = all_up(2)
    floor.memory = False
    floor.die(floor.started[1])
    floor.run_once(0.5)
    assert len(floor.started) == 2
    floor.memory = True
    floor.run_once(1.0)
    assert len(floor.started) == 3


def test_a_world_that_is_absent_is_an_error_at_the_start_and_a_pause_later() -> None:
    floor = Floor(2)
    floor.started[0].said.append(ChildFailed(1, "no broker answers"))
    floor.die(floor.started[0], 1)
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(1, "no broker answers"))
    later = all_up(2)
    later.started[0].said.append(ChildFailed(1, "no broker answers"))
    later.die(later.started[0], 1)
    later.run_once(0.5)
    assert (later.supervisor.is_over, len(later.started)) == (False, 3)


def test_two_wrong_configurations_at_once_are_reported_once_and_end_all() -> None:
    floor = all_up(3)
    for one in floor.started[1:]:
        one.said.append(ChildFailed(2, "it is no App"))
        one.code = 2
    floor.run_once()
    assert floor.started[0].told == ["stop"]
    floor.die(floor.started[0], 0)
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(2, "it is no App"))
    assert len(floor.started) == 3


def test_a_stop_starts_nobody_any_more_and_ends_with_0() -> None:
    floor = all_up(3)
    floor.die(floor.started[2])
    floor.ask()
    assert [one.told for one in floor.started] == [["stop"], ["stop"], ["close"]]
    floor.run_once(1.0)
    assert len(floor.started) == 3
    floor.die(floor.started[0], 0)
    floor.die(floor.started[1], -signal.SIGTERM)  # it got the signal itself, before it could handle it
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(0))
    assert floor.run_once() == math.inf


def test_a_process_that_does_not_end_after_its_stop_timeout_is_killed_and_that_is_reported() -> None:
    floor = all_up(2)
    floor.ask()
    floor.die(floor.started[0], 0)
    assert floor.run_once(STOP_TIMEOUT + CLOSING - 0.1) == pytest.approx(0.1)
    assert "kill" not in floor.started[1].told
    floor.run_once(0.1)
    floor.run_once()
    assert floor.started[1].told == ["stop", "kill", "close"]
    assert floor.supervisor.outcome == SupervisorResult(1, "process 2 (pid 101) was killed by SIGKILL")


def test_a_second_signal_leaves_ten_seconds() -> None:
    floor = all_up(2)
    floor.ask()
    floor.ask()
    assert floor.started[0].told == ["stop", "hurry"]
    assert floor.run_once(AT_ONCE - 1.0) == pytest.approx(1.0)
    floor.run_once(1.0)
    assert floor.started[0].told == ["stop", "hurry", "kill"]


def test_a_stop_before_anybody_is_up_ends_with_0_whatever_becomes_of_the_start() -> None:
    floor = Floor(2)
    floor.ask()
    floor.started[0].said.append(ChildFailed(1, "no broker answers"))
    floor.die(floor.started[0], 1)
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(0))


def test_a_signal_of_which_a_process_dies_before_it_is_up_is_a_stop_where_all_got_it() -> None:
    floor = Floor(2)
    floor.supervisor.ask()
    floor.die(floor.started[0], -signal.SIGTERM)
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(0))
    alone = Floor(2)
    alone.die(alone.started[0], -signal.SIGTERM)
    assert alone.supervisor.outcome == SupervisorResult(1, "process 1 (pid 100) was killed by SIGTERM before it was up")


def test_the_first_process_that_a_message_kills_before_it_is_up_is_started_again() -> None:
    floor = Floor(2)
    floor.started[0].said.append(ChildChecked())
    floor.die(floor.started[0])
    assert not floor.supervisor.is_over
    floor.run_once(0.5)
    assert len(floor.started) == 2
    floor.up(floor.started[1], of=2)
    floor.run_once()
    assert len(floor.started) == 3  # the second process, once the first is up


def test_a_process_that_fails_after_its_checks_and_before_it_is_up_is_one_error() -> None:
    floor = Floor(2)
    floor.started[0].said += [ChildChecked(), ChildFailed(1, "the broker refuses the subscription")]
    floor.die(floor.started[0], 1)
    assert floor.supervisor.outcome == SupervisorResult(1, "the broker refuses the subscription")
    assert floor.supervisor.is_over


def test_a_process_that_fails_at_its_stop_gives_all_its_exit_code() -> None:
    floor = all_up(2)
    floor.ask()
    floor.started[1].said.append(ChildFailed(70, "a bug"))
    floor.die(floor.started[1], 70)
    floor.die(floor.started[0], 0)
    assert floor.supervisor.outcome == SupervisorResult(70, "process 2 (pid 101): a bug")


def test_a_process_that_hangs_after_its_last_word_is_killed() -> None:
    """A thread of the user's own that is no daemon would keep it for ever."""
    floor = all_up(1)
    floor.started[0].said.append(ChildEnded())
    assert floor.run_once() == pytest.approx(FAREWELL)
    floor.run_once(FAREWELL)
    floor.run_once()
    assert floor.started[0].told == ["kill", "close"]
    assert (floor.supervisor.is_over, floor.supervisor.outcome) == (True, SupervisorResult(0))
