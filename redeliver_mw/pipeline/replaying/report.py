# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the result of a replay, `Replayed`, which is also PLAN/report.json. Imports no pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from ..files import files_at

if TYPE_CHECKING:
    from .outcomes import ReplayStanding

ReplayVerdict = Literal["passed", "failed", "undecided", "not taken"]


@dataclass(frozen=True, slots=True)
class Canary:
    """Describes the letters that went first: number, number dead-lettered again within `waited` s, and verdict.

    `decided` is how many had ended, if a journal was read; None: only dead letters were seen.
    """

    letters: int
    died: int
    decided: int | None
    waited: float
    verdict: ReplayVerdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Sums up a replay. `executed`: letters were to be sent; otherwise the plan was only looked at.

    `letters` are in the plan: `replayed` are confirmed, of all runs together, the others `refused`, `held_back` behind
    a refused letter of their group, `in_doubt`, or `left`. `sent` were confirmed by this run in `seconds`, which
    excludes the wait for the canary. `died_again` is how many were seen dead-lettered again in this run; None: not
    watched. `stopped` gives the reason that the run ended before all letters had been tried; empty if it did not.
    `peeked`: letters were only looked at when they were drained; `removed` is how many of those came off their queue.
    `refusals` count refused letters by target and reason.
    """

    plan_id: str
    executed: bool
    letters: int
    replayed: int
    refused: int = 0
    held_back: int = 0
    in_doubt: int = 0
    left: int = 0
    sent: int = 0
    seconds: float = 0.0
    died_again: int | None = None
    canary: Canary | None = None
    stopped: str = ""
    interrupted: bool = False
    publishers: int = 0
    peeked: bool = False
    removed: int | None = None
    targets: dict[str, dict[str, int]] = field(default_factory=dict)
    refusals: list[tuple[str, str, int]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)  # targets that accept nothing, and why

    @property
    def whole(self) -> bool:
        """Return whether every letter of the plan is confirmed."""
        return self.replayed == self.letters

    @property
    def rate(self) -> float:
        """Return the confirmed messages per second, in this run."""
        return self.sent / self.seconds if self.seconds else 0.0


def with_standing(done: Replayed, found: ReplayStanding, missing: Mapping[str, str] | None = None) -> Replayed:
    """Return the result with the present outcomes of the letters."""
    targets: dict[str, dict[str, int]] = {}
    for (target, word), number in sorted(found.targets.items()):
        targets.setdefault(target, {})[word] = number
    refusals = [(target, why, number) for (target, why), number in found.whys.most_common()]
    words = found.words
    return replace(
        done,
        replayed=words["replayed"],
        refused=words["refused"],
        held_back=words["held back"],
        in_doubt=words["in doubt"],
        left=words["left"],
        targets=targets,
        refusals=refusals,
        missing=dict(missing or {}),
        peeked="broker" in found.owners,
    )


def to_json(done: Replayed) -> dict[str, Any]:
    """Return the result for programs: durations are float seconds, `_s`."""
    found = asdict(done)
    found["seconds_s"] = found.pop("seconds")
    found["rate"] = round(done.rate, 3)
    found["refusals"] = [{"target": target, "why": why, "letters": number} for target, why, number in done.refusals]
    if done.canary is not None:
        found["canary"]["waited_s"] = found["canary"].pop("waited")
    return found


def publish(folder: str, done: Replayed) -> None:
    """Write PLAN/report.json. Raises OSError."""
    files_at(folder, "plan").publish("report.json", json.dumps(to_json(done), indent=2).encode())
