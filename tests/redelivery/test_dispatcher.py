# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Inputs are fed one after the other, in order, whatever comes meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from redeliver_mw.redelivery.commands import Command, Input, Log, SettleWritten
from redeliver_mw.redelivery.dispatcher import EventDispatcher


class Hands:
    """Notes what it is told to say, and feeds what a text asks for. No other command is given here."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.feeder: EventDispatcher | None = None

    def say(self, c: Log) -> None:
        if c.text == "break":
            raise RuntimeError("a fault")
        if c.text == "say 1" and self.feeder is not None:
            self.feeder.feed(SettleWritten(2))
        self.said.append(c.text)

    run = wait = forget = store = transact = settle = record = halt = resume = place = None


def feeder(decide: Any, fed: Any = None) -> tuple[EventDispatcher, Hands]:
    hands: Any = Hands()
    hands.feeder = EventDispatcher(decide, hands, fed)
    return hands.feeder, hands


def by_token(x: Input) -> Sequence[Command]:
    assert isinstance(x, SettleWritten)
    return [Log("info", f"say {x.token}"), Log("info", f"also {x.token}")]


def test_what_a_command_leads_to_is_fed_after_all_commands_of_its_input() -> None:
    feed, hands = feeder(by_token)
    feed.feed(SettleWritten(1))
    assert hands.said == ["say 1", "also 1", "say 2", "also 2"]


def test_a_fault_is_logged_and_the_next_input_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    feed, hands = feeder(lambda x: [Log("info", "break" if x.token == 7 else "well")])
    feed.feed(SettleWritten(7))
    feed.feed(SettleWritten(8))
    assert hands.said == ["well"]
    assert "a fault while SettleWritten was dealt with; its message stays unsettled" in caplog.text


def test_who_waits_is_woken_under_the_lock_once_nothing_more_is_waiting() -> None:
    fed = threading.Event()
    feed, hands = feeder(by_token, fed.set)
    with feed.idle:
        thread = threading.Thread(target=feed.feed, args=(SettleWritten(1),))
        thread.start()
        assert feed.idle.wait_for(fed.is_set, timeout=10.0)
    thread.join()
    assert len(hands.said) == 4


def test_inputs_fed_under_the_lock_are_not_separated_by_another_threads() -> None:
    feed, hands = feeder(by_token)
    with feed.lock:
        thread = threading.Thread(target=feed.feed, args=(SettleWritten(9),))
        feed.feed(SettleWritten(3))
        thread.start()
        feed.feed(SettleWritten(4))
    thread.join()
    assert hands.said == ["say 3", "also 3", "say 4", "also 4", "say 9", "also 9"]
