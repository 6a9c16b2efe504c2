# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Holds the results of a replay: an outcome for each letter, and a report of all letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import BrokerError, ConfigError
from ..message import Destination
from .letter import DeadLetterInfo

LetterFate = Literal["replayed", "refused", "skipped"]


@dataclass(frozen=True, slots=True)
class LetterOutcome:
    """Records the outcome of one letter.

    `why` gives the reason that the letter stayed in its queue, unless it is `replayed`.
    """

    letter: DeadLetterInfo
    fate: LetterFate
    why: str = ""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Sums up one replay.

    `rest` gives the reason that it ended before all letters had been looked at; otherwise empty.
    """

    replay_id: str
    outcomes: list[LetterOutcome]
    died_again: int = 0  # letters of messages that this replay had sent and that were dead-lettered again
    rest: str = ""
    interrupted: bool = False

    def count(self, fate: LetterFate) -> int:
        """Return the number of letters with this outcome."""
        return sum(outcome.fate == fate for outcome in self.outcomes)

    @property
    def whole(self) -> bool:
        """Return whether every letter that was asked for was sent back."""
        return not self.rest and not self.interrupted and all(o.fate == "replayed" for o in self.outcomes)


def no_such_letter(id_: str, dlq: Destination, searched: int) -> BrokerError:
    """Return the error for an id that none of the first `searched` letters has."""
    cure = "Look for it with `redeliver dead list`, which shows more with --limit"
    return BrokerError(
        f"no such letter among the first {searched}: {id_!r}", where=str(dlq), cure=cure, code="letter-not-found"
    )


def ambiguous(id_: str, letters: int) -> ConfigError:
    """Return the error for the beginning of more than one id."""
    return ConfigError(
        f"{id_!r} begins the ids of {letters} letters", where="--id", cure="Write more of it", code="letter-not-found"
    )
