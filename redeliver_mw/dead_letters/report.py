# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What a replay tells: an outcome for each letter, and a report of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..errors import BrokerError, ConfigError
from ..message import Destination
from .letter import DeadLetterInfo

LetterFate = Literal["replayed", "refused", "skipped"]


@dataclass(frozen=True, slots=True)
class LetterOutcome:
    """What became of one letter; `why` it is still where it was, unless it is `replayed`."""

    letter: DeadLetterInfo
    word: LetterFate
    why: str = ""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What one replay did. `rest` says why it ended before all letters had been looked at; empty if it did not."""

    replay_id: str
    outcomes: list[LetterOutcome]
    died_again: int = 0  # letters of messages that this very replay had sent
    rest: str = ""
    interrupted: bool = False

    def count(self, word: LetterFate) -> int:
        """How many letters met this."""
        return sum(outcome.word == word for outcome in self.outcomes)

    @property
    def whole(self) -> bool:
        """Every letter that was asked for went back."""
        return not self.rest and not self.interrupted and all(o.word == "replayed" for o in self.outcomes)


def no_such_letter(id_: str, dlq: Destination, searched: int) -> BrokerError:
    """For an id that none of the first `searched` letters has."""
    cure = "Look for it with `redeliver dead list`, which shows more with --limit"
    return BrokerError(f"no such letter among the first {searched}: {id_!r}", where=str(dlq), cure=cure)


def ambiguous(id_: str, letters: int) -> ConfigError:
    """For the beginning of more than one id."""
    return ConfigError(f"{id_!r} begins the ids of {letters} letters", where="--id", cure="Write more of it")
