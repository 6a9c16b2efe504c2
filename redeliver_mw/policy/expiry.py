# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what happens to a message that expires while we hold it. Pure.

Its broker would have dropped or moved the message; while we hold a copy back, this is our task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import PolicyError
from .backoff import seconds_of
from .decisions import DeadLetter, Discard, Target

ExpiryAction = Literal["dead-letter", "discard", "log", "redirect"]
MESSAGE_ID = "JMSMessageID"  # always logged
HIGHEST = 9  # priority of JMS
ALL_HEADERS, ALL_PROPERTIES = "%header%", "%properties%"  # in any case; other names are matched exactly


@dataclass(frozen=True)
class Expiry:
    """Holds `dead-letter` (as after too many failures), `discard`, `log` and discard, or `redirect` to `target`.

    `log` lists what to log beside the message id: `%header%`, `%properties%` or names, separated by commas. A
    redirected message keeps body, properties and headers, and expires again after `time_to_live` seconds, or never
    (None); it keeps its own priority, or gets `priority` (0 to 9).
    """

    action: ExpiryAction = "dead-letter"
    target: Target | None = None
    log: str = ""
    time_to_live: float | None = None
    priority: int | None = None

    def __post_init__(self) -> None:
        if self.action not in ("dead-letter", "discard", "log", "redirect"):
            raise PolicyError(
                f"{self.action!r} is nothing to do with an expired message",
                where="expiry",
                cure="Use dead-letter, discard, log or redirect",
                code="policy-value",
            )
        if (self.action == "redirect") != (self.target is not None):
            raise PolicyError(
                "redirect and a target go together",
                where="expiry",
                cure='Write Expiry("redirect", Target("queue", "EXPIRED"))',
                code="policy-conflict",
            )

        if self.time_to_live is not None:
            if self.action != "redirect":
                raise PolicyError(
                    "a time to live goes with redirect", where="expiry", cure="Leave it out", code="policy-conflict"
                )
            object.__setattr__(self, "time_to_live", seconds_of(self.time_to_live, "the time to live"))
        if self.priority is not None:
            if self.action != "redirect":
                raise PolicyError(
                    "a priority goes with redirect", where="expiry", cure="Leave it out", code="policy-conflict"
                )
            if type(self.priority) is not int or not 0 <= self.priority <= HIGHEST:
                raise PolicyError(
                    f"{self.priority!r:.200} is no priority", where="expiry", cure="Give 0 to 9", code="policy-value"
                )

    def __str__(self) -> str:
        words = [self.action, self.log] if self.log else [self.action]
        words += [f"to {self.target}"] if self.target is not None else []
        words += [f"for {self.time_to_live} s"] if self.time_to_live is not None else []
        words += [f"with priority {self.priority}"] if self.priority is not None else []
        return " ".join(words)

    @property
    def fields(self) -> tuple[str, ...]:
        """Return the items of `log`, without spaces around them."""
        return tuple(item for part in self.log.split(",") if (item := part.strip()))

    def decide(self, targets: Sequence[Target]) -> DeadLetter | Discard:
        """Return the decision; `targets` are the policy's own.

        Without targets the message is dropped, as a broker would.
        """
        if self.target is not None:
            return DeadLetter((self.target,), "expired")
        if self.action == "dead-letter" and targets:
            return DeadLetter(tuple(targets), "expired")
        return Discard("expired")

    def logged(self, headers: Mapping[str, object], properties: Mapping[str, object]) -> dict[str, object]:
        """Return the fields of the log line of an expired message, by name: the message id, then what `log` lists.

        `headers` are the standard ones by their JMS names, `properties` the sender's. A name that the message does not
        have is left out.
        """
        found = {MESSAGE_ID: headers.get(MESSAGE_ID)}
        for item in self.fields:
            if item.lower() == ALL_HEADERS:
                found |= headers
            elif item.lower() == ALL_PROPERTIES:
                found |= properties
            else:
                found |= {name: values[item] for name in (item,) for values in (properties, headers) if item in values}
        return found
