# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines a policy's decisions as values, which other code carries out.

`Redeliver` and `Keep` delay and run again, `DeadLetter` copies to its targets, `Discard` drops, `Accept` settles as if
the handler had succeeded. Delays are float seconds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from ..errors import PolicyError
from ..message import Destination, DestinationKind
from .backoff import Backoff

TargetKind = Literal["queue", "topic", "same"]
Reason = Literal["exhausted", "rejected", "fatal", "expired", "undecodable", "crashed"]
_LOOKUP = "lookup://"


@dataclass(frozen=True)
class Target:
    """Names where a dead letter goes: a kind, and a name in which `$` stands for the source's name."""

    kind: TargetKind
    template: str

    @classmethod
    def parse(cls, text: str | Target | Destination) -> Target:
        """Return the target for `NAME`, `queue:NAME`, `topic:NAME` or `same:NAME`.

        Raises PolicyError for any other text.
        """
        if isinstance(text, Target):
            return text
        if isinstance(text, Destination):
            return cls(text.kind, text.name)
        if not isinstance(text, str):
            raise _no_target(text)
        head, _, rest = text.partition(":")
        kinds: dict[str, TargetKind] = {"queue": "queue", "topic": "topic", "same": "same"}
        kind, name = (kinds[head], rest) if head in kinds and rest != text else ("queue", text)
        if not name or name != name.strip():
            raise _no_target(text)
        return cls(kind, name)

    def resolve(self, source: Destination) -> Destination:
        """Return the destination for a message from `source`: every `$` is its name, literally; `same` is its kind.

        The name of a source `lookup://a/b/c` is `c`, and `lookup://a/b/` stays in front of the result.
        """
        kind: DestinationKind = source.kind if self.kind == "same" else self.kind
        prefix, name = _split(source.name)
        target = self.template.replace("$", name)
        return Destination(target if target.startswith(_LOOKUP) else prefix + target, kind)

    def __str__(self) -> str:
        return f"{self.kind}:{self.template}"


@dataclass(frozen=True)
class _Rest:
    base: float  # seconds, before jitter
    low: float  # the range that jitter can reach: low <= draw() <= high
    high: float
    # draws the delay; None: uniformly between low and high
    backoff: Backoff | None = field(default=None, compare=False, repr=False)
    failures: int = field(default=0, compare=False, repr=False)  # the F that `backoff` is called with

    def draw(self, rng: random.Random) -> float:
        """Return the delay to use, in seconds, from low to high."""
        if self.low == self.high:
            return self.low
        drawn = self.backoff.draw(self.failures, rng) if self.backoff else rng.uniform(self.low, self.high)
        return min(max(drawn, self.low), self.high)


@dataclass(frozen=True)
class Redeliver(_Rest):
    """Decides to delay for `draw(rng)` seconds and then run the handler again."""


@dataclass(frozen=True)
class Keep(_Rest):
    """Decides to go on as with `Redeliver`, for ever: the limit is reached, and the message must not go anywhere."""

    reason: str = "exhausted"
    detail: str = ""


@dataclass(frozen=True)
class DeadLetter:
    """Decides to copy to every one of `targets` (at least one), then settle. `detail` is the text of a `Reject`."""

    targets: tuple[Target, ...]
    reason: str
    detail: str = ""

    def resolve(self, source: Destination) -> tuple[Destination, ...]:
        """Return the destinations of the dead letters for a message from `source`."""
        return tuple(target.resolve(source) for target in self.targets)


@dataclass(frozen=True)
class Discard:
    """Decides to settle, and keep nothing."""

    reason: str
    detail: str = ""


@dataclass(frozen=True)
class Accept:
    """Decides to settle as if the handler had succeeded; only from `ignore=`."""


Decision = Redeliver | DeadLetter | Discard | Keep | Accept


def _split(name: str) -> tuple[str, str]:
    if not name.startswith(_LOOKUP):
        return "", name
    head, _, last = name.rpartition("/")
    return head + "/", last


def _no_target(text: object) -> PolicyError:
    return PolicyError(
        f"{text!r} names no dead-letter target",
        where="dead_letter",
        cure="Write NAME, `queue:NAME`, `topic:NAME` or `same:NAME`, with $ for the source's name",
        code="policy-target",
    )
