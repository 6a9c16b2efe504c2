# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests copies between `publish` and their answer.

Each copy has one answer, and none while it may still be confirmed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from redeliver_mw.adapter import OnAnswer
from redeliver_mw.adapter.kit.publish_queue import PublishQueue
from tests.adapter.kit.hand_driven import HandDrivenTimers

PATIENCE = 30.0


@dataclass(eq=False)
class Copy:
    """Stands for one copy, of an original of some generation."""

    answer: OnAnswer
    generation: int | None = None
    since: float = 0.0
    waited: float = 0.0


@dataclass
class Scene:
    """Holds a queue before a link that the test opens and closes."""

    patience: float = PATIENCE
    timers: HandDrivenTimers = field(default_factory=HandDrivenTimers)
    told: list[tuple[str, str]] = field(default_factory=list)  # in order: what happened
    blocked: bool = False

    def __post_init__(self) -> None:
        self.queue: PublishQueue[Copy] = PublishQueue(
            call_later=self.timers.call_later,
            patience=lambda: self.patience,
            silent=self._close_link,
            paused=lambda: self.blocked,
            monotonic=self.timers.monotonic,
        )

    def copy(self, name: str, generation: int | None = None) -> Copy:
        return Copy(lambda verdict, why: self.told.append((name, verdict)), generation)

    def _close_link(self) -> None:
        self.told.append(("link", "closed"))
        self.queue.answer_unanswered("the link was lost")


def test_a_copy_that_the_link_does_not_come_for_in_time_is_answered_unsent_and_the_link_is_left_alone() -> None:
    scene = Scene()
    scene.queue.add(scene.copy("a"))
    scene.timers.advance(PATIENCE - 1.5)
    assert scene.told == []
    scene.timers.advance(3.0)
    assert scene.told == [("a", "unsent")]
    assert scene.queue.idle


def test_silence_closes_the_link_first_and_is_reported_afterwards_for_all_that_was_written() -> None:
    scene = Scene()
    scene.queue.written(1, scene.copy("early"))
    scene.timers.advance(20.0)
    scene.queue.written(2, scene.copy("late"))
    scene.timers.advance(12.0)
    assert scene.told == [("link", "closed"), ("early", "silent"), ("late", "silent")]


def test_what_was_answered_by_the_broker_is_waited_for_no_longer() -> None:
    scene = Scene()
    scene.queue.written(1, scene.copy("a"))
    scene.queue.unanswered.pop(1).answer("ok", "")
    scene.timers.advance(100.0)
    assert scene.told == [("a", "ok")]


def test_a_copy_waits_as_long_for_its_answer_however_long_it_waited_for_the_link() -> None:
    scene = Scene()
    scene.queue.add(scene.copy("a"))
    scene.timers.advance(PATIENCE - 2.0)
    scene.queue.written(1, scene.queue.unwritten.popleft())
    scene.timers.advance(PATIENCE - 2.0)
    assert scene.told == []
    scene.timers.advance(4.0)
    assert scene.told == [("link", "closed"), ("a", "silent")]


def test_no_time_passes_while_the_broker_has_paused_us() -> None:
    scene = Scene()
    scene.queue.written(1, scene.copy("written"))
    scene.queue.add(scene.copy("waits"))
    scene.blocked = True
    scene.timers.advance(10 * PATIENCE)
    assert scene.told == []
    scene.blocked = False
    scene.timers.advance(PATIENCE - 2.0)
    assert scene.told == []
    scene.timers.advance(4.0)
    assert scene.told == [("link", "closed"), ("written", "silent"), ("waits", "unsent")]


def test_a_copy_that_came_right_before_a_look_has_not_waited_since_the_look_before() -> None:
    scene = Scene(patience=2.5)  # looked at every second
    scene.queue.add(scene.copy("first"))
    scene.timers.advance(2.9)
    scene.queue.add(scene.copy("second"))
    scene.timers.advance(2.4)  # two more looks: it has waited for 2.1 s then
    assert scene.told == [("first", "unsent")]
    scene.timers.advance(1.0)
    assert scene.told == [("first", "unsent"), ("second", "unsent")]


def test_a_lost_generation_takes_along_what_is_not_written_and_nothing_else() -> None:
    scene = Scene()
    for name, generation in (("a", 7), ("b", 8), ("c", 7), ("d", None)):
        scene.queue.add(scene.copy(name, generation))
    scene.queue.written(1, scene.copy("written", 7))
    scene.queue.forget(7)
    assert scene.told == [("a", "unsent"), ("c", "unsent")]
    assert len(scene.queue.unwritten) == 2
    assert list(scene.queue.unanswered) == [1]


def test_closing_answers_each_copy_once_in_doubt_where_it_was_written() -> None:
    scene = Scene()
    scene.queue.written(1, scene.copy("written"))
    scene.queue.add(scene.copy("waits"))
    for _ in range(2):
        scene.queue.close("we are closing")
    scene.timers.advance(100.0)
    assert scene.told == [("written", "silent"), ("waits", "unsent")]


def test_a_copy_that_comes_while_others_are_being_answered_is_watched_too() -> None:
    scene = Scene()

    def again(verdict: str, why: str) -> None:
        scene.told.append(("first", verdict))
        scene.queue.add(scene.copy("second"))

    scene.queue.add(Copy(again))
    scene.timers.advance(PATIENCE + 2.0)
    assert scene.told == [("first", "unsent")]
    scene.timers.advance(PATIENCE + 2.0)
    assert scene.told == [("first", "unsent"), ("second", "unsent")]


@pytest.mark.parametrize("patience", [0.1, PATIENCE])
def test_looks_are_as_frequent_as_the_patience_is_short_and_end_with_the_last_answer(patience: float) -> None:
    scene = Scene(patience)
    scene.queue.add(scene.copy("a"))
    scene.timers.advance(2 * patience)
    assert scene.told == [("a", "unsent")]
    assert scene.timers.waiting == 0
