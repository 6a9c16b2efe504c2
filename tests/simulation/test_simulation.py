# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests 20 000 histories in which things go wrong; whichever is bad is printed as numbered lines.

`make test` runs the first four thousand of them, `make test-all` the others, and `make prove` a million.
"""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.exhaustive import walk
from tests.simulation.mutants import MUTANTS, ROOT, Mutant, caught, made
from tests.simulation.plan import Fault, Letter, Plan, plan_of
from tests.simulation.run import failures_in, fault_of, tell
from tests.simulation.shrink import smaller

HISTORIES, EACH = 20_000, 1000
WITH_LIMBO = 300


def told(bad: list[int], *, limbos: bool = False) -> str:
    return f"{len(bad)} histories, the first of them:\n{tell(plan_of(bad[0], limbos=limbos))[0]}" if bad else ""


@pytest.mark.parametrize("first", range(0, HISTORIES, EACH))
def test_nothing_is_lost_and_no_rule_is_broken_whatever_goes_wrong(first: int) -> None:
    bad = failures_in(first, first + EACH)
    assert not bad, told(bad)


@pytest.mark.parametrize("first", range(0, WITH_LIMBO, 100))
def test_nothing_is_lost_where_there_is_a_limbo_either(first: int) -> None:
    bad = failures_in(first, first + 100, limbos=True)
    assert not bad, told(bad, limbos=True)


def test_a_history_is_the_same_in_every_process() -> None:
    program = (
        "from tests.simulation.__main__ import *; [print(tell(plan_of(n, limbos=n % 9 == 0))[0]) for n in range(60)]"
    )
    texts = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert texts[0] == texts[1]
    assert texts[0].count(b"FAULT") > 40


def test_a_bad_history_is_shrunk_to_what_makes_it_bad() -> None:
    def bad(plan: Plan) -> str:
        kinds = {fault.kind for fault in plan.faults}
        return "bad" if {"cut", "crash"} <= kinds and any(letter.kind == "failing" for letter in plan.letters) else ""

    seed = next(n for n in range(10_000) if bad(plan_of(n)) and len(plan_of(n).letters) > 3)
    small = smaller(plan_of(seed), bad)
    assert sorted(fault.kind for fault in small.faults) == ["crash", "cut"]
    assert [letter.kind for letter in small.letters] == ["failing"]


def test_the_report_of_a_simulation_names_what_went_wrong() -> None:
    plan = replace(plan_of(7), faults=(Fault(3, "cut"), Fault(9, "crash", 1.0)))
    text, bad = tell(plan)
    assert not bad
    assert "every connection is cut" in text
    assert "the process dies" in text
    assert text.count("a process starts") >= 2


@pytest.mark.parametrize("name", ["swap settle and publish", "take a replayed count for a live one"])
def test_a_mutant_of_the_real_code_is_noticed(name: str) -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == name]
    assert caught(mutant, histories=100)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_what_a_mutant_changes_is_still_in_the_code(mutant: Mutant, tmp_path: Path) -> None:
    made(mutant, tmp_path)  # it says so, else


def test_the_far_walk_goes_on_where_the_near_one_ends() -> None:
    found = walk("nack", False, 800)
    assert found.states >= 800
    assert not found.all_there_are


def test_two_losses_while_a_message_runs_twice_cost_no_other_message_its_count() -> None:
    """ActiveMQ, killed, marks nothing: what still runs is run again, in doubt, and both runs are lost at once."""
    letters = (Letter("a", "poison", 0.0, lasts=4.0), Letter("b", "poison", 0.0), Letter("c", "poison", 0.2, lasts=0.5))
    plan = Plan(
        seed=0,
        broker="activemq",
        delay="hold",
        limbo=False,
        crash_safe=False,
        dead_after=3,
        backoff=(1.0, 8.0),
        targets=1,
        on_dead="dead-letter",
        prefetch=10,
        workers=2,
        replay=False,
        letters=letters,
    )
    for at in range(24, 40):
        assert not fault_of(replace(plan, faults=(Fault(18, "kill", 0.5), Fault(at, "channel"))))
    assert not fault_of(plan_of(902_098))


def test_a_delay_that_is_left_over_by_a_grain_ends() -> None:
    """A message that cannot be copied is given back before the ack timeout: the two times differ by rounding only."""
    assert not fault_of(plan_of(402_863))
