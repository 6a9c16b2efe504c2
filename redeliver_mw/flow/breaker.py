# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Decides when to stop calling a handler, and when to try again. Pure.

A `Circuit` is `closed` until too many of the last runs failed, then `open` for a while, then `half-open`: one message
is tried. If that run succeeds, the circuit closes; if it fails, the circuit opens again, for longer.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from ..errors import ConfigError
from ..message import Delivery

GROWTH = 2.0  # factor for each further opening

Circumstance = Literal["closed", "open", "half-open"]
Change = Literal["", "opened", "opened again", "closed"]
Forced = Literal["", "open", "closed"]  # the state that an operator wants; empty: the runs decide


class FailureClass(NamedTuple):
    """Names the count of a circuit that a run belongs to, and the failure."""

    of: str  # empty: no failure that the breaker counts
    name: str = ""


FINE = FailureClass("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Says when a source is paused because its handler keeps failing, and for how long. Raises ConfigError if invalid.

    The breaker opens when at least `min_calls` of the last `window` runs are known and the share `failure_rate` (above
    0, at most 1) of them failed. It stays open for `open_for` seconds, then one message is tried. Each failed try
    doubles the time, up to `max_open_for` seconds. `per="destination"` counts all failures together. With one exception
    class or several, the failures of each class are counted separately, and no others.
    """

    failure_rate: float = 0.5
    window: int = 20
    min_calls: int = 10
    open_for: float = 30.0
    max_open_for: float = 300.0
    per: Literal["destination"] | type[BaseException] | Sequence[type[BaseException]] = "destination"

    def __post_init__(self) -> None:
        _number("failure_rate", self.failure_rate, "above 0 and at most 1", lambda x: 0 < x <= 1)
        _whole("window", self.window)
        _whole("min_calls", self.min_calls)
        _number("open_for", self.open_for, "of seconds above 0", lambda x: x > 0)
        _number("max_open_for", self.max_open_for, "of seconds, not below open_for", lambda x: x >= self.open_for)
        if self.min_calls > self.window:
            raise _wrong("min_calls", self.min_calls, f"more than the window of {self.window}", "Raise window")
        if self.per != "destination" and not (self.classes and all(map(_is_error, self.classes))):
            cure = 'Write per="destination", an exception class, or a tuple of them'
            raise _wrong("per", self.per, 'neither "destination" nor exception classes', cure)

    @property
    def classes(self) -> tuple[Any, ...]:
        """Return the exception classes that are counted separately; empty if all failures count together."""
        if self.per == "destination":
            return ()
        return tuple(self.per) if isinstance(self.per, list | tuple) else (self.per,)

    @classmethod
    def meant(cls, given: object) -> Breaker | None:
        """Return the breaker of `App(breaker=…)`: a Breaker, True for the defaults, or a table of options."""
        if given is None or given is False:
            return None
        if isinstance(given, Breaker):
            return given
        if given is True:
            return cls()
        if not isinstance(given, Mapping):
            raise _wrong("breaker", given, "no Breaker", "Write breaker=Breaker(), or True for its defaults")
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ConfigError(
                    f"breaker has no option {name!r}", cure=f"Choose of {', '.join(known)}", code="option-value"
                )
        return cls(**given)


def _is_error(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseException)


def _number(name: str, value: Any, wanted: str, fits: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not fits(value):
        raise _wrong(name, value, f"no number {wanted}", f"Give {name} a number {wanted}")


def _whole(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value, "no whole number from 1 on", f"Give {name} a whole number")


def _wrong(name: str, value: object, why: str, cure: str) -> ConfigError:
    return ConfigError(f"{name}={value!r} is {why}", where="breaker", cure=cure, code="option-value")


class Circuit:
    """Holds the last runs of one source, and the resulting state. Pure; not thread-safe."""

    def __init__(self, breaker: Breaker) -> None:
        """Begin closed, without failures."""
        self.breaker = breaker
        self.state: Circumstance = "closed"
        self.forced: Forced = ""
        self.rest = breaker.open_for  # duration of the next, or this, opening; seconds
        self.openings = 0  # since the start
        self.why = ""
        self.probe: Delivery | None = None  # the one message that is being tried
        self._runs: deque[str] = deque(maxlen=breaker.window)
        self._counts: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        """Return whether no message may be begun now."""
        return self.state == "open" or self.probe is not None

    def admits(self, delivery: Delivery) -> bool:
        """Return whether the delivery may run now; when half-open, one may."""
        if self.is_full:
            return False
        if self.state == "half-open":
            self.probe = delivery
        return True

    def left(self, delivery: Delivery) -> None:
        """Note that a run had no result for the breaker. If it was the tried message, another one may be tried."""
        if self.probe is delivery:
            self.probe = None

    def ended(self, delivery: Delivery, blame: FailureClass) -> Change:
        """Note the result of a run, and return how the state changed."""
        if self.forced:
            self.left(delivery)
            return ""
        if self.probe is delivery:
            self.probe = None
            if blame.of:
                self.rest = min(self.rest * GROWTH, self.breaker.max_open_for)
                self._open(f"the one message that was tried failed: {blame.name}")
                return "opened again"
            self.rest, self.why, self.state = self.breaker.open_for, "", "closed"
            return "closed"
        if self.state != "closed":
            return ""  # the run began before the circuit opened
        if len(self._runs) == self.breaker.window:
            self._counts[self._runs[0]] -= 1
        self._runs.append(blame.of)
        self._counts[blame.of] += 1
        many, runs = self._counts[blame.of], len(self._runs)
        if not blame.of or runs < self.breaker.min_calls or many < self.breaker.failure_rate * runs:
            return ""
        self._open(f"{many} of the last {runs} runs failed, the last one with {blame.name}")
        return "opened"

    def try_one(self) -> None:
        """Try one message: the time of the opening is over. A circuit that is forced open stays open."""
        if self.state == "open" and not self.forced:
            self.state = "half-open"

    def force(self, to: Forced, why: str = "") -> None:
        """Keep the circuit in this state, whatever the runs say; with an empty one the runs decide again.

        A circuit that was forced open tries one message before it closes. What was known of earlier runs is forgotten.
        """
        was, self.forced = self.forced, to
        if not to and not was:
            return
        self._runs.clear()
        self._counts.clear()
        self.probe, self.rest, self.why = None, self.breaker.open_for, why
        self.state = to or ("half-open" if was == "open" else "closed")

    def _open(self, why: str) -> None:
        self.state, self.why = "open", why
        self.openings += 1
        self._runs.clear()
        self._counts.clear()

    def health(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "state": self.state,
            "why": self.why or None,
            "openings": self.openings,
            "rest_s": self.rest,
            "forced": bool(self.forced),
        }
