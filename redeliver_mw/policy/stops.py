# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines when a message is dead: after a number of failures, after some time, or both. Pure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import PolicyError, counted
from .backoff import seconds_of


class Stop(ABC):
    """Tests F and the seconds since the first attempt. Frozen."""

    @abstractmethod
    def met(self, failures: int, elapsed: float) -> bool:
        """Return whether a message is dead that failed `failures` times within `elapsed` seconds."""

    @abstractmethod
    def failures(self) -> int | None:
        """Return the F at which a message is dead however fast it failed, or None."""


@dataclass(frozen=True)
class AfterFailures(Stop):
    """Stops at F >= `limit`; None is never."""

    limit: int | None

    def __post_init__(self) -> None:
        if self.limit is not None and (type(self.limit) is not int or self.limit < 1):
            raise PolicyError(
                f"dead after {self.limit!r} failures",
                where="dead_after",
                cure="Give 1 or more, or None for never",
                code="policy-value",
            )

    def met(self, failures: int, elapsed: float) -> bool:
        """Return whether the count has reached the limit, however long that took."""
        return self.limit is not None and failures >= self.limit

    def failures(self) -> int | None:
        """Return the limit; None for never."""
        return self.limit

    def __str__(self) -> str:
        return "never dead" if self.limit is None else f"dead after {counted(self.limit, 'failure')}"


@dataclass(frozen=True)
class AfterSeconds(Stop):
    """Stops at the first failure that is `limit` seconds or more after the first attempt."""

    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", seconds_of(self.limit, "the time limit"))

    def met(self, failures: int, elapsed: float) -> bool:
        """Return whether the time has reached the limit, whatever the count."""
        return elapsed >= self.limit

    def failures(self) -> int | None:
        """Return 1 if the limit is 0 seconds; None for any other limit."""
        return 1 if self.limit == 0 else None

    def __str__(self) -> str:
        return f"dead after {self.limit:g} s"


@dataclass(frozen=True)
class AnyStop(Stop):
    """Stops as soon as one of the parts does."""

    parts: tuple[Stop, ...]

    def met(self, failures: int, elapsed: float) -> bool:
        """Return whether one of the parts is met."""
        return any(part.met(failures, elapsed) for part in self.parts)

    def failures(self) -> int | None:
        """Return the smallest limit of the parts; None if no part has one."""
        return min(_limits(self.parts), default=None)

    def __str__(self) -> str:
        return " or ".join(str(part) for part in self.parts)


@dataclass(frozen=True)
class AllStops(Stop):
    """Stops once all of the parts do."""

    parts: tuple[Stop, ...]

    def met(self, failures: int, elapsed: float) -> bool:
        """Return whether all of the parts are met."""
        return all(part.met(failures, elapsed) for part in self.parts)

    def failures(self) -> int | None:
        """Return the largest limit of the parts; None unless each part has one."""
        limits = _limits(self.parts)
        return max(limits) if limits and len(limits) == len(self.parts) else None

    def __str__(self) -> str:
        return " and ".join(str(part) for part in self.parts)


def _limits(parts: Iterable[Stop]) -> list[int]:
    return [limit for part in parts if (limit := part.failures()) is not None]
