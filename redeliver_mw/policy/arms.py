# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Arms: a policy sends a small random share of its messages another way, so that their history can tell more. Pure.

Each message has one arm, drawn by lot, and the lot is a hash of the policy's version and the message key: every
attempt of a message, in any process, after a crash, a copy or a replay, is in the same arm, and another version of
the policy draws anew. The share that no arm has is the policy's own, in the arm `main`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..errors import PolicyError

if TYPE_CHECKING:
    from .model import RedeliveryPolicy

MAIN = "main"
NAME_LIMIT = 64  # characters
Arms: TypeAlias = "Mapping[str, tuple[float, RedeliveryPolicy | Mapping[str, Any]]]"


class Arm(NamedTuple):
    """A policy for some of the messages."""

    name: str
    propensity: float  # the probability, in (0, 1], with which a message is in this arm
    policy: RedeliveryPolicy  # it has no arms

    def __str__(self) -> str:
        return f"{self.name} ({percent(self.propensity)})"


def arms_of(given: Arms | None, base: RedeliveryPolicy) -> tuple[Arm, ...]:
    """The arms of `base`, by name; none for None. A mapping in a policy's place holds what differs from `base`."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not given:
        raise PolicyError(f"{given!r:.200} has no arms", where="arms", cure="Give {NAME: (SHARE, POLICY)}, or None")
    arms = tuple(_arm(name, given[name], base) for name in sorted(map(named, given)))
    left_over(arm.propensity for arm in arms)
    return arms


def named(name: object) -> str:
    """The name of an arm; PolicyError if it is none."""
    if name == MAIN:
        raise PolicyError(f"an arm called {MAIN}", where="arms", cure=f"Rename it: {MAIN} is the policy itself")
    if not isinstance(name, str) or name != name.strip() or not name.isprintable() or not 0 < len(name) <= NAME_LIMIT:
        cure = f"Give 1 to {NAME_LIMIT} characters of text, no blanks at the ends"
        raise PolicyError(f"{name!r:.100} is no name of an arm", where="arms", cure=cure)
    return name


def share_of(given: object) -> float:
    """The share of an arm; PolicyError if it is none."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1:
        what = "there is no share" if given is None else f"the share is {given!r:.200}"
        raise PolicyError(what, cure="Give a number above 0 and below 1: 0.05 is 5%")
    return float(given)


def left_over(shares: Iterable[float]) -> float:
    """What these leave to the arm `main`; PolicyError if that is nothing."""
    whole = math.fsum(shares)
    if not whole < 1:
        cure = f"Make them smaller: {MAIN}, the policy itself, has what they leave"
        raise PolicyError(f"the shares come to {percent(whole)}", where="arms", cure=cure)
    return 1 - whole


def drawn(arms: Sequence[Arm], lot: str) -> Arm:
    """The arm whose lot this is. The first has what the others leave."""
    digest = hashlib.sha256(lot.encode("utf-8", "surrogatepass")).digest()
    at = (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # evenly in [0, 1)
    for arm in arms[1:]:
        if at < arm.propensity:
            return arm
        at -= arm.propensity
    return arms[0]


def percent(share: float) -> str:
    """`5%`."""
    return f"{share * 100:.10g}%"


def _arm(name: str, given: object, base: RedeliveryPolicy) -> Arm:
    where = f"arms.{name}"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise PolicyError(f"{given!r:.200} is no arm", where=where, cure="Give a pair: (SHARE, POLICY)")
    share, policy = given
    try:
        return Arm(name, share_of(share), _policy(policy, base))
    except TypeError as error:  # a keyword that RedeliveryPolicy does not have
        raise PolicyError(f"{error}", where=where, cure="Use the keywords of RedeliveryPolicy") from None
    except PolicyError as error:
        error.where = f"{where}.{error.where}" if error.where else where
        raise


def _policy(given: object, base: RedeliveryPolicy) -> RedeliveryPolicy:
    made = base.replace(**given) if isinstance(given, Mapping) else given
    if not isinstance(made, type(base)):
        cure = "Give a RedeliveryPolicy, or those of its keywords that differ"
        raise PolicyError(f"{given!r:.200} is no policy", cure=cure)
    if made.arms:
        raise PolicyError("an arm with arms of its own", cure="Give them to the policy itself, beside this one")
    # What handlers and senders are offered hangs on the language, and they cannot know the arm.
    return made if made.language == base.language else made.replace(language=base.language, native=made.native)
