# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Converts the arguments of RedeliveryPolicy to the model's own values, or refuses them with the cure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, Union, cast

from ..callables import is_async, is_generator
from ..errors import PolicyError
from ..message import Destination
from .backoff import Backoff, Constant
from .conditions import Condition, OfType, Predicate
from .decisions import Target
from .stops import AfterFailures, Stop
from .tenacity_objects import is_tenacitys, retry_to_condition, stop_to_stop, wait_to_backoff

if TYPE_CHECKING:
    from tenacity.retry import retry_base
    from tenacity.stop import stop_base
    from tenacity.wait import wait_base

Limit: TypeAlias = Union[int, Stop, "stop_base", None]
Delays: TypeAlias = Union[float, Sequence[float], Backoff, "wait_base"]
Targets: TypeAlias = str | Target | Destination | Sequence[str | Target | Destination] | None
Errors: TypeAlias = Union[
    type[BaseException],
    Sequence[type[BaseException]],
    Callable[[BaseException], object],
    Condition,
    "retry_base",
]
Choice = TypeVar("Choice", bound=str)


def stop_of(given: Limit) -> Stop:
    """Return when a message is dead."""
    if isinstance(given, Stop):
        return given
    if given is None or (isinstance(given, int) and not isinstance(given, bool)):
        return AfterFailures(given)
    if is_tenacitys(given):
        return stop_to_stop(given)
    raise _wrong(given, "dead_after", "Give a number of failures, None for never, or a stop_* of tenacity")


def backoff_of(given: Delays) -> Backoff:
    """Return how long a message is delayed."""
    if isinstance(given, Backoff):
        return given
    if is_tenacitys(given):
        return wait_to_backoff(given)
    if isinstance(given, int | float):
        return Constant(given)
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return Backoff.listed(given)
    raise _wrong(given, "backoff", "Give seconds, a list of seconds, a Backoff, or a wait_* of tenacity")


def targets_of(given: Targets) -> tuple[Target, ...]:
    """Return where dead letters go: no target for None, otherwise one or more different ones."""
    if given is None:
        return ()
    several = given if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
    targets = tuple(dict.fromkeys(Target.parse(one) for one in several))
    if not targets:
        raise PolicyError(
            "an empty list of targets", where="dead_letter", cure="Name one, or give None to keep", code="policy-value"
        )
    return targets


def condition_of(given: Errors | None, where: str) -> Condition | None:
    """Return the exceptions that a rule applies to; None if there is no rule."""
    if given is None or isinstance(given, Condition):
        return given
    if is_tenacitys(given):
        return retry_to_condition(given, where)
    kinds = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str | bytes) else (given,)
    exceptions = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseException)]
    if kinds and len(exceptions) == len(kinds):
        return OfType(tuple(exceptions))
    if is_async(given) or is_generator(given):
        raise _wrong(given, where, "Give a plain function of the exception, of which a call returns the answer")
    if callable(given) and not isinstance(given, type):
        # tenacity's own predicates are translated above
        return Predicate(cast(Callable[[BaseException], object], given))
    raise _wrong(given, where, "Give exception classes, a function of the exception, or a known retry_* of tenacity")


def choice_of(given: Choice, choices: tuple[str, ...], where: str) -> Choice:
    """Return one of the allowed words. Raises PolicyError for any other value."""
    if given not in choices:
        raise _wrong(given, where, f"Use one of: {', '.join(choices)}")
    return given


def instance_of(given: Any, kind: type, where: str) -> Any:
    """Return an object of that class. Raises PolicyError for any other value."""
    if not isinstance(given, kind):
        raise _wrong(given, where, f"Give an object of class {kind.__name__}")
    return given


def _wrong(given: object, where: str, cure: str) -> PolicyError:
    return PolicyError(f"{given!r:.200} is not possible here", where=where, cure=cure, code="policy-value")
