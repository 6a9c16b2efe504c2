# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What becomes of a message that expires while it is in our hands. Pure.

Its broker would have dropped or moved it; while we hold a copy back, that word is ours to keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import PolicyError
from .decisions import DeadLetter, Discard, Target

Action = Literal["dead-letter", "discard", "log", "redirect"]


@dataclass(frozen=True)
class Expiry:
    """`dead-letter` (as if it had failed too often), `discard`, `log` and discard, or `redirect` to `target`.

    `log` says what to write beside the message id: `%header%`, `%properties%` or a name, with commas between.
    """

    action: Action = "dead-letter"
    target: Target | None = None
    log: str = ""

    def __post_init__(self) -> None:
        if self.action not in ("dead-letter", "discard", "log", "redirect"):
            raise PolicyError(
                f"{self.action!r} is nothing to do with an expired message",
                where="expiry",
                cure="Use dead-letter, discard, log or redirect",
            )
        if (self.action == "redirect") != (self.target is not None):
            raise PolicyError(
                "redirect and a target go together",
                where="expiry",
                cure='Write Expiry("redirect", Target("queue", "EXPIRED"))',
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """The items of `log`, without blanks around them."""
        return tuple(item for part in self.log.split(",") if (item := part.strip()))

    def decide(self, targets: Sequence[Target]) -> DeadLetter | Discard:
        """What happens; `targets` are the policy's own. Without any it is dropped, as a broker would."""
        if self.target is not None:
            return DeadLetter((self.target,), "expired")
        if self.action == "dead-letter" and targets:
            return DeadLetter(tuple(targets), "expired")
        return Discard("expired")
