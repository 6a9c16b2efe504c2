# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the one table by which the state of a failing delivery changes. Pure.

`TABLE` says for each state and each signal which state follows and what is to be done. Nothing else changes a state of
a tracked delivery. The diagram in docs/states.md is drawn from it (`python -m redeliver_mw.redelivery.states`). A pair
that is not in the table is late: the answer came after the delivery had moved on, and nothing changes.

The table keeps confirm-before-settle. A delivery gets to *settling* when its handler has succeeded, when nothing is to
be sent, or when the last copy is confirmed. It is released when a nack's delay ends, when the broker itself waits out
the delay, or when a message without a copy has stayed unsettled for as long as it may. A transaction, in which copies
and settlement are one, leads from *moving* to *settled*.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    """Says where a delivery is."""

    RUNNING = "running"  # a handler has it
    EARLY = "arrived early"  # a copy whose not-before lies ahead
    HELD = "held"  # unsettled, waiting here
    MOVING = "moving"  # copies are out, some of them unconfirmed
    BACKING_OFF = "backing off"  # waiting before the unconfirmed targets are tried again
    STRANDED = "stranded"  # unsettled here: its end is decided, and no exact copy of it can be made
    SETTLING = "settling"  # the settlement is given, and not written yet
    SETTLED = "settled"
    ABANDONED = "abandoned"  # unsettled, and the broker has it again


class Signal(StrEnum):
    """Names the inputs of a tracked delivery."""

    HANDLED = "handled"  # the handler succeeded
    HOLD = "wait here"  # the verdict on a failure or an early arrival
    MOVE = "send copies"  # the verdict: retry copy or dead letters
    DROP = "nothing to send"  # the verdict: ignored, discarded, or already done
    RUN = "due: run"
    RUNS = "its handler still runs"  # that of an earlier delivery, since lost
    RELEASE = "due: give back"
    POSTPONE = "give back until due"  # the verdict: the broker keeps it, and our count on it
    CONFIRMED = "a copy confirmed"
    COMPLETE = "the last copy confirmed"
    COMMITTED = "transaction committed"
    UNCONFIRMED = "refused or silent"
    UNCOPYABLE = "no exact copy can be made"
    AGAIN = "due: try again"
    WRITTEN = "written"
    LOST = "lost"
    LEAVE = "stop: leave unsettled"


class Action(StrEnum):
    """Names what is to be done when a delivery takes a step; see `Effects.step`."""

    NOTHING = "-"
    ACCEPT = "settle: accepted"
    FINISH = "record it, track no longer"
    GIVE_BACK = "settle: released"
    POSTPONE = "settle: released, for later"
    WAIT = "start its timer"
    SEND = "send what is unconfirmed"
    CALL = "call the handler"
    NOTE = "write it into the ledger"
    BACK_OFF = "wait, longer each time"
    STRAND = "say so, keep it in a place apart"
    CLOSE = "track no longer"
    LEAVE = "track no longer, keep the ledger"


class Transition(NamedTuple):
    """Names the next state of a delivery, and what is done on the way there."""

    to: State
    do: Action


_S, _G, _D = State, Signal, Action

TABLE: dict[State, dict[Signal, Transition]] = {
    _S.RUNNING: {
        _G.HANDLED: Transition(_S.SETTLING, _D.ACCEPT),
        _G.HOLD: Transition(_S.HELD, _D.WAIT),
        _G.MOVE: Transition(_S.MOVING, _D.SEND),
        _G.DROP: Transition(_S.SETTLING, _D.ACCEPT),
        _G.POSTPONE: Transition(_S.SETTLING, _D.POSTPONE),
        _G.LOST: Transition(_S.ABANDONED, _D.NOTHING),  # its result still reaches the ledger
        _G.LEAVE: Transition(_S.ABANDONED, _D.LEAVE),
    },
    _S.EARLY: {
        _G.HOLD: Transition(_S.HELD, _D.WAIT),
        _G.MOVE: Transition(_S.MOVING, _D.SEND),
        _G.DROP: Transition(_S.SETTLING, _D.ACCEPT),
        _G.POSTPONE: Transition(_S.SETTLING, _D.POSTPONE),
        _G.RUN: Transition(_S.RUNNING, _D.CALL),  # not early after all
        _G.RUNS: Transition(_S.RUNNING, _D.NOTHING),
        _G.LEAVE: Transition(_S.ABANDONED, _D.LEAVE),
        _G.LOST: Transition(_S.ABANDONED, _D.LEAVE),
    },
    _S.HELD: {
        _G.RUN: Transition(_S.RUNNING, _D.CALL),
        _G.RELEASE: Transition(_S.SETTLING, _D.GIVE_BACK),
        _G.POSTPONE: Transition(_S.SETTLING, _D.POSTPONE),  # displaced, or we stop
        _G.HOLD: Transition(_S.HELD, _D.WAIT),  # a delay longer than one hold
        _G.MOVE: Transition(_S.MOVING, _D.SEND),  # displaced, expired, or we stop
        _G.DROP: Transition(_S.SETTLING, _D.ACCEPT),  # expired, and the policy discards
        _G.LOST: Transition(_S.ABANDONED, _D.LEAVE),
        _G.LEAVE: Transition(_S.ABANDONED, _D.LEAVE),
    },
    _S.MOVING: {
        _G.CONFIRMED: Transition(_S.MOVING, _D.NOTE),
        _G.COMPLETE: Transition(_S.SETTLING, _D.ACCEPT),
        _G.COMMITTED: Transition(_S.SETTLED, _D.FINISH),
        _G.UNCONFIRMED: Transition(_S.BACKING_OFF, _D.BACK_OFF),
        _G.LOST: Transition(_S.ABANDONED, _D.NOTHING),  # also by an abort; late confirms still reach the ledger
        _G.LEAVE: Transition(_S.ABANDONED, _D.NOTHING),
    },
    _S.BACKING_OFF: {
        _G.AGAIN: Transition(_S.MOVING, _D.SEND),
        _G.MOVE: Transition(_S.MOVING, _D.SEND),
        _G.RUN: Transition(_S.RUNNING, _D.CALL),  # a retry that nobody took, and its delay is over
        _G.HOLD: Transition(_S.HELD, _D.WAIT),  # a retry of which no copy can be made after all
        _G.POSTPONE: Transition(_S.SETTLING, _D.POSTPONE),  # the same, and the broker keeps it
        _G.DROP: Transition(_S.SETTLING, _D.ACCEPT),  # expired meanwhile, and the policy discards
        _G.UNCOPYABLE: Transition(_S.STRANDED, _D.STRAND),  # dead letters, and there is no limbo to keep them
        _G.LOST: Transition(_S.ABANDONED, _D.LEAVE),
        _G.LEAVE: Transition(_S.ABANDONED, _D.LEAVE),
    },
    _S.STRANDED: {
        _G.RELEASE: Transition(_S.SETTLING, _D.GIVE_BACK),  # before the broker takes it back, or we stop
        _G.LOST: Transition(_S.ABANDONED, _D.LEAVE),
        _G.LEAVE: Transition(_S.ABANDONED, _D.LEAVE),
    },
    _S.SETTLING: {
        _G.WRITTEN: Transition(_S.SETTLED, _D.CLOSE),
        _G.LOST: Transition(_S.ABANDONED, _D.LEAVE),  # the ledger knows: a redelivery is settled at once
    },
    _S.SETTLED: {},
    _S.ABANDONED: {
        _G.CONFIRMED: Transition(_S.ABANDONED, _D.NOTE),
        _G.COMPLETE: Transition(_S.ABANDONED, _D.NOTE),
        _G.COMMITTED: Transition(_S.ABANDONED, _D.NOTE),
        _G.HANDLED: Transition(_S.ABANDONED, _D.NOTE),
        _G.HOLD: Transition(_S.ABANDONED, _D.NOTE),
        _G.MOVE: Transition(_S.ABANDONED, _D.NOTE),
        _G.DROP: Transition(_S.ABANDONED, _D.NOTE),
    },
}


def diagram() -> str:
    """Return the table as a Mermaid state diagram, for docs/states.md."""
    name = {state: state.value.replace(" ", "_") for state in State}
    lines = ["stateDiagram-v2", "    [*] --> running", "    [*] --> arrived_early"]
    for state, row in TABLE.items():
        for signal, step in row.items():
            lines.append(f"    {name[state]} --> {name[step.to]}: {signal.value.replace(':', ',')}")
    lines += ["    settled --> [*]", "    abandoned --> [*]"]
    return "\n".join(lines)


if __name__ == "__main__":
    print(diagram())
