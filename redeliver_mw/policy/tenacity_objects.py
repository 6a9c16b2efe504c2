# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Translates tenacity's waits, stops and retries once into our own model.

The objects are read, never called: `wait_random` and similar ones draw inside the call, so that two calls with one
state answer differently, which a policy must not do. F is their `attempt_number`, `elapsed` their
`seconds_since_start`. tenacity itself is not imported: an object is recognised by its class. A user's class that
inherits from one of tenacity's is refused, because its computation cannot be read.

=============================  ==========================================================================
wait_fixed, wait_none          the same delay always
wait_incrementing              start + increment x (F - 1), from 0 to max
wait_exponential               multiplier x exp_base ^ (F - 1), from min to max
wait_exponential_jitter        the same plus 0 to jitter seconds, then from min to max
wait_random                    min to max, evenly
wait_random_exponential        from min to what wait_exponential says, evenly
wait_chain, wait_combine (+)   one after another; added up
stop_after_attempt             dead at that F
stop_after_delay               dead at the first failure that late
stop_never, | and &            never dead; any, all
retry_if_exception_type        and _not_, _message, _not_message, retry_if_exception, any, all, always, never
=============================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import PolicyError
from .backoff import LONGEST, Backoff, Chain, Clamp, Constant, Exponential, FullJitter, Linear, Sum, Uniform, seconds_of
from .conditions import AllOf, Always, AnyOf, Condition, Message, Not, OfType, Predicate
from .stops import AfterFailures, AfterSeconds, AllStops, AnyStop, Stop

T = TypeVar("T")
_PART = "a part of "


def is_tenacitys(thing: object) -> bool:
    """Return whether an object comes from tenacity, or from a class that inherits from one of tenacity's."""
    return any(_tenacity(kind) for kind in type(thing).__mro__)


def wait_to_backoff(wait: object, where: str = "backoff") -> Backoff:
    """Return the same delays as a Backoff. Raises PolicyError for a wait that is not in the table above."""
    cure = "Use a number, a list of seconds, a Backoff, or one of the waits that are known"
    return _translate(_WAITS, wait, where, cure)


def stop_to_stop(stop: object, where: str = "dead_after") -> Stop:
    """Return the same condition. Raises PolicyError for a stop that is not in the table above."""
    cure = "Use a number, None, stop_after_attempt, stop_after_delay, or | and & of these"
    return _translate(_STOPS, stop, where, cure)


def retry_to_condition(retry: object, where: str = "retry_on") -> Condition:
    """Return the same test of an exception. Raises PolicyError for one that is not in the table above."""
    cure = "Use exception classes, a function of the exception, or a retry_if_exception*"
    return _translate(_RETRIES, retry, where, cure)


def _exponential(wait: Any) -> Backoff:
    return _clamped(wait, Exponential(_first(wait), wait.exp_base))


def _exponential_jitter(wait: Any) -> Backoff:
    jitter = Uniform(0, wait.jitter)
    return _clamped(wait, Sum((Exponential(_first(wait), wait.exp_base), jitter)))


def _random_exponential(wait: Any) -> Backoff:
    return FullJitter(_exponential(wait), wait.min)


def _incrementing(wait: Any) -> Backoff:
    return Clamp(Linear(wait.start, wait.increment), 0.0, _cap(wait.max))


def _combined(wait: Any) -> Backoff:
    return Sum(tuple(wait_to_backoff(part, f"{_PART}wait_combine") for part in wait.wait_funcs))


def _chained(wait: Any) -> Backoff:
    return Chain(tuple(wait_to_backoff(part, f"{_PART}wait_chain") for part in wait.strategies))


def _first(wait: Any) -> float:
    # wait_exponential_jitter had only `initial` before it got `multiplier`.
    first: float = wait.multiplier if hasattr(wait, "multiplier") else wait.initial
    return first


def _clamped(wait: Any, inner: Backoff) -> Backoff:
    return Clamp(inner, max(0.0, getattr(wait, "min", 0.0)), _cap(wait.max))


def _cap(seconds: float) -> float:
    # "no maximum" is sys.maxsize / 2 in tenacity, or math.inf
    return seconds_of(LONGEST if not math.isnan(seconds) and seconds > LONGEST else seconds, "the maximum")


def _message(retry: Any) -> Condition:
    return Message(retry.message, None) if retry.message is not None else Message(None, retry.match)


def _types(retry: Any) -> Condition:
    kinds = retry.exception_types
    return OfType(kinds if isinstance(kinds, tuple) else (kinds,))


def _retries(retry: Any) -> tuple[Condition, ...]:
    return tuple(retry_to_condition(part, f"{_PART}{type(retry).__name__}") for part in retry.retries)


def _stops(stop: Any) -> tuple[Stop, ...]:
    return tuple(stop_to_stop(part, f"{_PART}{type(stop).__name__}") for part in stop.stops)


_WAITS: dict[str, Callable[[Any], Backoff]] = {
    "wait_fixed": lambda wait: Constant(wait.wait_fixed),
    "wait_none": lambda wait: Constant(0.0),
    "wait_incrementing": _incrementing,
    "wait_exponential": _exponential,
    "wait_exponential_jitter": _exponential_jitter,
    "wait_random": lambda wait: Uniform(wait.wait_random_min, wait.wait_random_max),
    "wait_random_exponential": _random_exponential,
    "wait_chain": _chained,
    "wait_combine": _combined,
}

_STOPS: dict[str, Callable[[Any], Stop]] = {
    "_stop_never": lambda stop: AfterFailures(None),
    "stop_after_attempt": lambda stop: AfterFailures(stop.max_attempt_number),
    "stop_after_delay": lambda stop: AfterSeconds(stop.max_delay),
    "stop_any": lambda stop: AnyStop(_stops(stop)),
    "stop_all": lambda stop: AllStops(_stops(stop)),
}

_RETRIES: dict[str, Callable[[Any], Condition]] = {
    "_retry_always": lambda retry: Always(True),
    "_retry_never": lambda retry: Always(False),
    "retry_if_exception": lambda retry: Predicate(retry.predicate),
    "retry_if_exception_type": _types,
    "retry_if_not_exception_type": lambda retry: Not(_types(retry)),
    "retry_unless_exception_type": lambda retry: Not(_types(retry)),
    "retry_if_exception_message": _message,
    "retry_if_not_exception_message": lambda retry: Not(_message(retry)),
    "retry_any": lambda retry: AnyOf(_retries(retry)),
    "retry_all": lambda retry: AllOf(_retries(retry)),
}


def _translate(table: dict[str, Callable[[Any], T]], thing: object, where: str, cure: str) -> T:
    kind = type(thing)
    if not _tenacity(kind) or kind.__name__ not in table:
        name = getattr(thing, "__qualname__", None) or kind.__qualname__
        raise PolicyError(f"{name} cannot be read as a policy", where=where, cure=cure, code="policy-value")
    try:
        return table[kind.__name__](thing)
    except PolicyError as error:
        if error.where.startswith(_PART):
            error.where = f"{where}, {error.where}"
        raise


def _tenacity(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "tenacity"
