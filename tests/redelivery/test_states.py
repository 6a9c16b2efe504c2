# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from redeliver_mw.redelivery.states import TABLE, Action, Signal, State, diagram

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "states.md"
OVER = {State.SETTLED, State.ABANDONED}


@pytest.mark.parametrize(("state", "signal"), list(product(State, Signal)))
def test_every_pair_of_state_and_signal_has_an_answer(state: State, signal: Signal) -> None:
    step = TABLE[state].get(signal)
    assert step is None or (step.to in State and step.do in Action)


def test_acceptance_follows_only_success_a_verdict_of_nothing_to_send_or_the_last_confirm() -> None:
    into = {
        (state, signal, step.do)
        for state, row in TABLE.items()
        for signal, step in row.items()
        if step.to is State.SETTLING
    }
    accepted = {(state, signal) for state, signal, do in into if do is Action.ACCEPT}
    assert {signal for _, signal in accepted} == {Signal.HANDLED, Signal.DROP, Signal.COMPLETE}
    assert {state for state, signal in accepted if signal is Signal.HANDLED} == {State.RUNNING}
    assert {state for state, signal in accepted if signal is Signal.COMPLETE} == {State.MOVING}
    rest = {entry for entry in into if entry[2] is not Action.ACCEPT}
    waiting = (State.RUNNING, State.EARLY, State.HELD, State.BACKING_OFF)
    later = {(state, Signal.POSTPONE, Action.POSTPONE) for state in waiting}
    assert rest == {(state, Signal.RELEASE, Action.GIVE_BACK) for state in (State.HELD, State.STRANDED)} | later


GIVEN = (Action.ACCEPT, Action.GIVE_BACK, Action.POSTPONE)


def test_nothing_is_accepted_or_given_back_without_settling() -> None:
    steps = [step for row in TABLE.values() for step in row.values() if step.do in GIVEN]
    assert {step.to for step in steps} == {State.SETTLING}


@pytest.mark.parametrize("state", [state for state in State if state not in OVER])
def test_every_live_state_can_be_lost_and_leads_to_an_end(state: State) -> None:
    assert TABLE[state][Signal.LOST].to is State.ABANDONED
    reached = {state}
    while more := {step.to for at in reached for step in TABLE[at].values()} - reached:
        reached |= more
    assert State.SETTLED in reached


def test_nothing_leaves_settled_or_abandoned() -> None:
    assert TABLE[State.SETTLED] == {}
    assert {step.to for step in TABLE[State.ABANDONED].values()} == {State.ABANDONED}
    assert {step.do for step in TABLE[State.ABANDONED].values()} == {Action.NOTE}


def test_a_loss_never_asks_for_anything_to_be_sent_or_settled() -> None:
    assert {row[Signal.LOST].do for row in TABLE.values() if Signal.LOST in row} <= {Action.NOTHING, Action.LEAVE}


def test_a_late_signal_has_no_step() -> None:
    assert TABLE[State.SETTLED].get(Signal.WRITTEN) is None
    assert TABLE[State.SETTLING].get(Signal.HANDLED) is None
    assert TABLE[State.HELD].get(Signal.COMPLETE) is None


def test_the_picture_has_every_transition_of_the_table() -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+): (.+)$", diagram(), re.MULTILINE))
    table = {
        (state.replace(" ", "_"), step.to.replace(" ", "_"), signal.value.replace(":", ","))
        for state, row in TABLE.items()
        for signal, step in row.items()
    }
    assert drawn == table
    assert diagram().startswith("stateDiagram-v2\n")


def test_the_page_on_states_shows_the_picture_that_the_table_gives() -> None:
    found = re.search(r"<!-- states -->\s*```mermaid\n(.*?)\n```\s*<!-- /states -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == diagram()


def test_the_picture_is_drawn_by_a_command() -> None:
    command = [sys.executable, "-m", "redeliver_mw.redelivery.states"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == diagram()
