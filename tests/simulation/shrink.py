# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a bad history as small as it stays bad, by hypothesis.

Hypothesis leaves out faults and messages, and simplifies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, find, settings
from hypothesis.errors import NoSuchExample

from .plan import Fault, Letter, Plan
from .run import fault_of

EXAMPLES = 400


def smaller(plan: Plan, bad: Callable[[Plan], str] = fault_of) -> Plan:
    """Return the smallest plan found that is bad as this one is."""
    house = settings(max_examples=EXAMPLES, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    try:
        return find(parts_of(plan), lambda some: bool(bad(some)), settings=house)
    except NoSuchExample:
        return plan


@st.composite
def parts_of(draw: st.DrawFn, plan: Plan) -> Plan:
    """Draw most of a plan: the less, the simpler. Each fault and message may be left out, and be made plainer."""
    letters = [_plainer(draw, letter) for letter in plan.letters if _kept(draw)]
    faults = [_earlier(draw, fault) for fault in plan.faults if _kept(draw)]
    return replace(
        plan,
        letters=tuple(letters) or plan.letters[:1],
        faults=tuple(sorted(faults, key=lambda fault: fault.at)),
        replay=plan.replay and _kept(draw),
        targets=plan.targets if _kept(draw) else 1,
        workers=plan.workers if _kept(draw) else 1,
    )


def _kept(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 15)) > 0


def _plainer(draw: st.DrawFn, letter: Letter) -> Letter:
    if not _kept(draw):
        letter = replace(letter, lasts=0.0)
    return letter if _kept(draw) else replace(letter, at=0.0)


def _earlier(draw: st.DrawFn, fault: Fault) -> Fault:
    """Return a fault nearer to the beginning, by what the smaller number says."""
    by = draw(st.integers(0, 31))
    return fault if by > 3 else replace(fault, at=max(1, fault.at - 8 * (4 - by)))
