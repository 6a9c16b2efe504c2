# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Proposes an experiment where history did not look: an arm that goes on after the policy in use has given up.

Where messages still recovered shortly before the policy gave them up, more of them would have recovered later. How many
is not known, so the advice is an experiment and not a change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from ...policy import PolicyMap, Redeliver, RedeliveryPolicy
from .evaluation import Mixture
from .history import History

SHARE: Final = 0.1  # of the messages go to the arm
_RISING: Final = 0.005  # so many recover in the last doubling of time, or the curve no longer rises
_LEAST: Final = 5.0  # messages that did
_DEAD: Final = 0.02  # with fewer given up there is nothing to gain
_RETRIES: Final = 40  # of a policy; an arm of one with more would be long
_POWER: Final = (2.576 + 0.842) ** 2  # a 99 % interval, and four chances in five to see the difference


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Describes an arm to try.

    - `policy`: the policy in use with the arm beside it; `until_s`: when the arm's last attempt begins.
    - `messages`: how many have to fail until the difference shows, if as many recover in each further doubling of time
      as did in the last one.
    - `gain_most`: the share of messages that would recover besides, if all did.
    """

    policy: RedeliveryPolicy
    until_s: float
    messages: int
    gain_most: float

    @property
    def toml(self) -> str:
        """Return the policy with its arm, as a policy file in TOML."""
        from ...policy.formats import WRITERS  # most histories need none

        return WRITERS["native"](PolicyMap(None, self.policy)).text.strip()


def experiment(history: History, policy: RedeliveryPolicy, *, design_effect: float = 1.0) -> Experiment | None:
    """Return an arm for a destination's policy; None where nothing recovered shortly before its end.

    `design_effect` is how many messages tell as much as one independent message would.
    """
    delays = _delays(policy)
    if delays is None:
        return None
    mixture = Mixture.of(history.curves, history.curves.messages > 0)
    end = sum(delays)
    (before, last), *_ = mixture.at(np.array([end / 2, end]))
    rising, dead = float(last - before), float(1 - last)
    if rising < _RISING or rising * mixture.messages < _LEAST or dead < _DEAD:
        return None
    longer = RedeliveryPolicy(len(delays) + 3, [*delays, end, 2 * end], policy.targets or None)
    gain = min(2 * rising, dead)
    each = _POWER * 2 * last * (1 - last) * max(design_effect, 1.0) / gain**2
    return Experiment(
        policy=policy.alone.replace(arms={"longer": (SHARE, longer)}),
        until_s=4 * end,
        messages=math.ceil(each / SHARE / 100) * 100,
        gain_most=dead,
    )


def _delays(policy: RedeliveryPolicy) -> list[float] | None:
    """Return the delays of a policy that gives up, without jitter; None for one that does not, or has too many."""
    found: list[float] = []
    for failures in range(1, _RETRIES + 2):
        decision = policy.alone.decide(failures)
        if not isinstance(decision, Redeliver):
            return found if failures > 1 else None
        found.append((decision.low + decision.high) / 2)
    return None
