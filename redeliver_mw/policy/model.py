# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines RedeliveryPolicy: what to do with a message that failed. Pure: no I/O, no clock, no randomness.

F, `failures`, includes the current failure. With the default policy a message that always fails is handled seven times:
it is delayed by 1, 2, 4, 8, 16, 32 seconds after failures 1 to 6, and failure 7 sends it to the queue `DLQ.<source>`.

`decide()` checks in this order, and the first match wins:

1. `Reject`: the end, reason `rejected`.
2. `RetryAfter(count=False)`: delay and run again.
3. `fatal` matches: the end, reason `fatal`.
4. `ignore` matches: accept.
5. `retry_on` is given and does not match: the end, reason `fatal`.
6. Dead after this many failures, or this long: the end, reason `exhausted`.

Otherwise delay and run again. `RetryAfter` is a request, not an error: it skips 3 to 5. The end is `on_dead`:
dead-letter, discard or keep; a policy without a target keeps. A user's predicate that raises counts as "not fatal, not
ignored, to be retried": in doubt the message is kept.

With `arms` a small random share of the messages is under another policy, so that their history can tell more: `of(key)`
returns the arm. Each message has one arm, drawn at random by a hash of the policy's version and the message key: every
attempt of a message, in any process, after a crash, a copy or a replay, is in the same arm, and another version of the
policy draws again. The share that no arm has is the policy's own, in the arm `main`. All methods of the policy itself
answer for messages in the arm `main`; only what has to be known before any message arrives (`longest_delay`, `places`,
`goes_on`, and the version) covers all arms together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from ..errors import PolicyError, Reject, RetryAfter, is_uncounted, leaves_of
from .backoff import LONGEST, Backoff, DelaySpan
from .coercion import (
    Delays,
    Errors,
    Limit,
    Targets,
    backoff_of,
    choice_of,
    condition_of,
    instance_of,
    stop_of,
    targets_of,
)
from .conditions import Condition, says
from .decisions import Accept, DeadLetter, Decision, Discard, Keep, Redeliver, Target
from .expiry import Expiry
from .stops import Stop

OnDead = Literal["dead-letter", "discard", "keep"]
Act = Literal["failure", "arrival"]
_BACKOFF, _EXPIRY = Backoff.exponential(1.0, 2.0, cap=60.0), Expiry()  # the defaults
_VERY_OFTEN = 10**18
_REMEMBERED = 128  # failures whose delay is cached
TEXT_LIMIT = 500  # characters of `text`
MAIN = "main"  # the arm of the policy itself
NAME_LIMIT = 64  # characters of an arm's name
Arms: TypeAlias = "Mapping[str, tuple[float, RedeliveryPolicy | Mapping[str, Any]]]"


class Arm(NamedTuple):
    """Holds a policy for some of the messages."""

    name: str
    propensity: float  # the probability, in (0, 1], with which a message is in this arm
    policy: RedeliveryPolicy  # without arms

    def __str__(self) -> str:
        return f"{self.name} ({percent(self.propensity)})"


class TextParser(Protocol):
    """Reads a policy from a text in a given language, or in the language that its content shows."""

    def __call__(self, text: str, language: str | None, *, strict: bool) -> RedeliveryPolicy:
        """Return the policy of the text. Raises PolicyError, ConfigError. `language` None: by the content."""


# at most one: the readers of languages make policies, so they are above this module
_TEXT_PARSERS: list[TextParser] = []


def parse_texts_with(parser: TextParser) -> None:
    """Register the parser for `RedeliveryPolicy.parse`. The package does this once, when it is imported."""
    _TEXT_PARSERS[:] = [parser]


@dataclass(frozen=True, init=False)
class RedeliveryPolicy:
    """Defines how often and how slowly a message is retried, and where it goes in the end.

    Frozen, compared by value, thread-safe.

    - `dead_after`: dead at this F (>= 1), None: never; or a known stop of tenacity.
    - `backoff`: seconds, a sequence of them (the last repeats), a `Backoff`, or a known wait of tenacity.
    - `dead_letter`: `queue:NAME`, `topic:NAME`, `same:NAME` or NAME with `$` for the source's name, or several; None
      keeps the message. `on_dead`: `dead-letter`, `discard` or `keep`.
    - `retry_on`, `fatal`, `ignore`: exception classes, a function of the exception, or a known retry of tenacity.
    - `act`: `arrival` if a message that has reached the limit elsewhere is ended before the handler sees it.
    - `arms`: `{"patient": (0.05, POLICY)}` puts 5% of the messages under another policy, or under what a mapping of
      these keywords makes of this one.

    Raises PolicyError, whose text names the object, the place and the cure, for any other value.
    """

    stop: Stop
    backoff: Backoff
    targets: tuple[Target, ...]  # where dead letters go; may be empty
    on_dead: OnDead
    retry_on: Condition | None
    fatal: Condition | None
    ignore: Condition | None
    expiry: Expiry
    act: Act
    arms: tuple[Arm, ...]  # by name, without `main`
    name: str = field(compare=False)
    language: str = field(compare=False)  # `native`, or the language of the original text
    native: str = field(compare=False)  # the complete original spelling; empty if there is none
    _decisions: dict[int, Redeliver] = field(compare=False, repr=False)

    def __init__(
        self,
        dead_after: Limit = 7,
        backoff: Delays = _BACKOFF,
        dead_letter: Targets = "queue:DLQ.$",
        on_dead: OnDead = "dead-letter",
        *,
        retry_on: Errors | None = None,
        fatal: Errors | None = None,
        ignore: Errors | None = None,
        expiry: Expiry = _EXPIRY,
        act: Act = "failure",
        arms: Arms | None = None,
        name: str = "",
        language: str = "native",
        native: str = "",
    ) -> None:
        """Make a policy of these values, as the class describes them. Raises PolicyError."""
        end = choice_of(on_dead, ("dead-letter", "discard", "keep"), "on_dead")
        targets = targets_of(dead_letter)
        self.__dict__.update(  # frozen from here on
            stop=stop_of(dead_after),
            backoff=backoff_of(backoff),
            targets=targets if end == "dead-letter" else (),
            on_dead="keep" if end == "dead-letter" and not targets else end,
            retry_on=condition_of(retry_on, "retry_on"),
            fatal=condition_of(fatal, "fatal"),
            ignore=condition_of(ignore, "ignore"),
            expiry=instance_of(expiry, Expiry, "expiry"),
            act=choice_of(act, ("failure", "arrival"), "act"),
            name=name,
            language=language,
            native=native,
            _decisions={},
            arms=(),
        )
        self.__dict__["arms"] = arms_of(arms, self)

    def replace(self, **changes: Any) -> RedeliveryPolicy:
        """Return the policy with other keywords of the constructor.

        The copy keeps the name and loses the original spelling.
        """
        kept = ("backoff", "retry_on", "fatal", "ignore", "expiry", "act", "name")
        given = {key: getattr(self, key) for key in kept}
        given |= {"dead_after": self.stop, "dead_letter": self.targets or None, "on_dead": self.on_dead}
        given["arms"] = {arm.name: (arm.propensity, arm.policy) for arm in self.arms} or None
        if changes.keys() <= {"name", "arms"}:
            given |= {"language": self.language, "native": self.native}
        if changes.get("dead_letter") is not None:
            given["on_dead"] = "dead-letter"
        made = RedeliveryPolicy(**given | changes)
        if made.backoff is self.backoff:
            # The decisions depend on the back-off alone, so both policies share the cache.
            made.__dict__["_decisions"] = self._decisions
        return made

    @classmethod
    def parse(cls, text: str, language: str | None = None, *, strict: bool = False) -> RedeliveryPolicy:
        """Return the policy in `text`, in any implemented language; detected by its content if none is named.

        `strict` refuses what the original system's manual refuses although its program accepts it. Raises PolicyError
        if the text cannot be read, ConfigError if the language is not implemented.
        """
        return _TEXT_PARSERS[0](text, language, strict=strict)

    def of(self, key: str) -> Arm:
        """Return the arm of the message with that key, with the policy that decides; `main` if there are no arms."""
        return drawn(self.apart, f"{self.version}/{key}")

    @cached_property
    def apart(self) -> tuple[Arm, ...]:
        """Return all arms, `main` first, each with a policy that has none."""
        if not self.arms:
            return (Arm(MAIN, 1.0, self),)
        return (Arm(MAIN, left_over(arm.propensity for arm in self.arms), self.replace(arms=None)), *self.arms)

    @property
    def alone(self) -> RedeliveryPolicy:
        """Return the policy without arms: that of `main`."""
        return self.apart[0].policy if self.arms else self

    def decide(self, failures: int, elapsed: float = 0.0, error: BaseException | None = None) -> Decision:
        """Return what to do after a failure. Pure, never raises. Thread-safe.

        `failures` is F including this failure (0 is possible after `RetryAfter(count=False)`), `elapsed` the seconds
        since the first attempt, `error` the handler's exception, or None if that is not known.
        """
        wish = 0.0
        if isinstance(error, BaseExceptionGroup):
            return self._of_group(failures, elapsed, error)
        if isinstance(error, Reject):
            return self.end("rejected", failures, detail=error.reason)
        if isinstance(error, RetryAfter):
            wish = min(error.seconds, LONGEST)
            if not error.count:
                return self._redeliver(failures, wish)
        elif error is not None and (early := self._by_error(failures, error)) is not None:
            return early
        if self.stop.met(failures, elapsed):
            return self.end("exhausted", failures, wish=wish)
        return self._redeliver(failures, wish)

    def on_arrival(self, failures: int) -> Decision | None:
        """Return what to do with a message that arrives after `failures` failures; None: run the handler.

        Only a policy with `act="arrival"` ever returns more than None: it ends a message that has reached its limit
        without a call of `decide()`, and the handler is not called.
        """
        if self.act == "failure" or self.on_dead == "keep":
            return None
        limit = self.dead_after
        return None if limit is None or failures < limit else self.end("exhausted", failures)

    def end(self, reason: str, failures: int = 1, *, detail: str = "", wish: float = 0.0) -> Decision:
        """Return what this policy does with a dead message, whatever the reason; Keep delays for at least `wish` s."""
        if self.on_dead == "dead-letter":
            return DeadLetter(self.targets, reason, detail)
        if self.on_dead == "discard":
            return Discard(reason, detail)
        # The last delay repeats for ever: the one of the failure before the limit.
        last = failures if self.dead_after is None else min(failures, self.dead_after - 1)
        last = max(last, 1)
        return Keep(*self._span(last, wish), self.backoff, last, reason, detail)

    def retries(self, error: BaseException) -> bool:
        """Return whether `retry_on` names this error.

        False without a `retry_on`: for errors that are fatal unless named.
        """
        return self.retry_on is not None and says(self.retry_on, error, in_doubt=False)

    def expired(self) -> DeadLetter | Discard:
        """Return what to do with a message that expired while we held it."""
        return self.expiry.decide(self.targets)

    @property
    def places(self) -> tuple[Target, ...]:
        """Return every target that a message could be moved to, in any arm: as a dead letter, or because it expired."""
        late = () if self.expiry.target is None else (self.expiry.target,)
        others = (place for arm in self.arms for place in arm.policy.places)
        return tuple(dict.fromkeys((*self.targets, *late, *others)))

    def with_places(self, change: Callable[[Target], Target]) -> RedeliveryPolicy:
        """Return the same policy, in the same language, with each of its own targets changed; duplicates are removed.

        The arms stay unchanged.
        """
        expiry = self.expiry
        if expiry.target is not None:
            expiry = replace(expiry, target=change(expiry.target))
        targets = tuple(dict.fromkeys(map(change, self.targets)))
        if (targets, expiry) == (self.targets, self.expiry):
            return self
        changes = {"dead_letter": targets or None, "on_dead": self.on_dead, "expiry": expiry}
        # What a message itself tells the policy's system depends on the language.
        return self.replace(**changes, language=self.language, native=self.native)

    def resolve(self, name: str, kind: str = "queue") -> RedeliveryPolicy:
        """Return the policy itself, for every destination: a policy can be used in place of a PolicyMap."""
        return self

    @property
    def dead_after(self) -> int | None:
        """Return the F at which a message is dead however fast it failed, or None."""
        return self.stop.failures()

    @property
    def goes_on(self) -> bool:
        """Return whether a message can fail for ever without an end, in any arm.

        It cannot if some F or some time is the last.
        """
        endless = self.on_dead == "keep" or not self.stop.met(_VERY_OFTEN, math.inf)
        return endless or any(arm.policy.goes_on for arm in self.arms)

    @cached_property
    def longest_delay(self) -> float:
        """Return the longest delay that a message can meet in any arm, with jitter; seconds, at most LONGEST.

        As exact as `Backoff.longest`. `RetryAfter` may ask for more, which is not part of the policy.
        """
        last = self._last_delay()
        # A message that is kept is delayed once more even if its first failure was the last allowed one.
        own = self.backoff.longest(max(last, 1) if last is not None and self.on_dead == "keep" else last)
        return max([own, *(arm.policy.longest_delay for arm in self.arms)])

    @cached_property
    def text(self) -> str:
        """Return the native spelling, or a description; one line of at most 500 characters. For headers and logs."""
        line = " ".join(self.native.split()) or describe(self)
        return line if len(line) <= TEXT_LIMIT else line[: TEXT_LIMIT - 3] + "..."

    @cached_property
    def version(self) -> str:
        """Return 12 hex digits, the same for the same behaviour in every process. Name and spelling do not count."""
        arms = "".join(f"|{arm.name!r} {arm.propensity!r} {arm.policy.version}" for arm in self.arms)
        whole = f"{_canonical(self)}|{self.backoff!r}|{self.stop!r}{arms}"
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def _last_delay(self) -> int | None:
        # The last failure that can be followed by a delay, for a message that fails as fast as possible.
        elapsed = 0.0
        for failures in range(1, 1000):
            if self.stop.met(failures, elapsed):
                return failures - 1
            elapsed += self.backoff.span(failures).low
        return None if self.dead_after is None else self.dead_after - 1

    def _of_group(self, failures: int, elapsed: float, group: BaseExceptionGroup[BaseException]) -> Decision:
        """Return the decision for a group, which depends on its leaves.

        Any rejected or fatal leaf ends the retries, and the longest request to wait counts.

        A group is ignored only if all leaves are. A rule that names the group itself applies to all of them.
        """
        leaves = leaves_of(group)
        rejected = next((leaf for leaf in leaves if isinstance(leaf, Reject)), None)
        if rejected is not None:
            return self.end("rejected", failures, detail=rejected.reason)
        wish = min(max((leaf.seconds for leaf in leaves if isinstance(leaf, RetryAfter)), default=0.0), LONGEST)
        if is_uncounted(group):
            return self._redeliver(failures, wish)
        errors = [leaf for leaf in leaves if not isinstance(leaf, RetryAfter)]
        if errors and (early := self._by_leaves(failures, group, errors, whole=len(errors) == len(leaves))) is not None:
            return early
        if self.stop.met(failures, elapsed):
            return self.end("exhausted", failures, wish=wish)
        return self._redeliver(failures, wish)

    def _by_leaves(
        self, failures: int, group: BaseException, errors: Sequence[BaseException], *, whole: bool
    ) -> Decision | None:
        # `errors` are the leaves that are not a request to wait, all of them if `whole`.
        if self.fatal is not None and any(says(self.fatal, one, in_doubt=False) for one in (group, *errors)):
            return self.end("fatal", failures)
        rest = list(errors)
        if self.ignore is not None:
            rest = [leaf for leaf in errors if not says(self.ignore, leaf, in_doubt=False)]
            if says(self.ignore, group, in_doubt=False) or (whole and not rest):
                return Accept()
        if self.retry_on is None or says(self.retry_on, group, in_doubt=False):
            return None
        if any(not says(self.retry_on, leaf, in_doubt=True) for leaf in rest):
            return self.end("fatal", failures)
        return None

    def _by_error(self, failures: int, error: BaseException) -> Decision | None:
        if self.fatal is not None and says(self.fatal, error, in_doubt=False):
            return self.end("fatal", failures)
        if self.ignore is not None and says(self.ignore, error, in_doubt=False):
            return Accept()
        if self.retry_on is not None and not says(self.retry_on, error, in_doubt=True):
            return self.end("fatal", failures)
        return None

    def _redeliver(self, failures: int, wish: float) -> Redeliver:
        if wish:
            return Redeliver(*self._span(failures, wish), self.backoff, failures)
        found = self._decisions.get(failures)
        if found is None:
            found = Redeliver(*self._span(failures, wish), self.backoff, failures)
            if 0 <= failures <= _REMEMBERED:
                self._decisions[failures] = found
        return found

    def _span(self, failures: int, wish: float) -> DelaySpan:
        if failures < 1:  # it never failed: the handler asked for the delay
            return DelaySpan(wish, wish, wish)
        base, low, high = self.backoff.span(failures)
        return DelaySpan(max(base, wish), max(low, wish), max(high, wish))


def describe(policy: RedeliveryPolicy) -> str:
    """Return what a policy does in one line, for people."""
    own = _rules(policy, "delay")
    return "; ".join([*own, *(f"arm {arm}: {describe(arm.policy)}" for arm in policy.arms)])


def _canonical(policy: RedeliveryPolicy) -> str:
    """Return the line of which the version is made. Its wording never changes: each policy would get a new one."""
    own = _rules(policy, "rest")
    return "; ".join([*own, *(f"arm {arm}: {_canonical(arm.policy)}" for arm in policy.arms)])


def _rules(policy: RedeliveryPolicy, delay: str) -> list[str]:
    rules = [f"{policy.stop}", f"{delay} {policy.backoff}"]
    rules += [", ".join(map(str, policy.targets)) or policy.on_dead]
    for key, rule in (("retry on", policy.retry_on), ("fatal", policy.fatal), ("ignore", policy.ignore)):
        rules += [f"{key} {rule}"] if rule is not None else []
    rules += [f"expired: {policy.expiry}"] if policy.expiry != Expiry() else []
    rules += ["acts at arrival"] if policy.act == "arrival" else []
    return rules


# -- arms --------------------------------------------------------------------------------------------------------------


def arms_of(given: Arms | None, base: RedeliveryPolicy) -> tuple[Arm, ...]:
    """Return the arms of `base`, by name; none for None. A mapping in place of a policy holds the differences."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or not given:
        raise PolicyError(
            f"{given!r:.200} has no arms",
            where="arms",
            cure="Give {NAME: (SHARE, POLICY)}, or None",
            code="policy-arms",
        )
    arms = tuple(_arm(name, given[name], base) for name in sorted(map(arm_name, given)))
    left_over(arm.propensity for arm in arms)
    return arms


def arm_name(name: object) -> str:
    """Return the name of an arm. Raises PolicyError if the value is not a valid name."""
    if name == MAIN:
        raise PolicyError(
            f"an arm called {MAIN}", where="arms", cure=f"Rename it: {MAIN} is the policy itself", code="policy-arms"
        )
    if not isinstance(name, str) or name != name.strip() or not name.isprintable() or not 0 < len(name) <= NAME_LIMIT:
        cure = f"Give 1 to {NAME_LIMIT} characters of text, no blanks at the ends"
        raise PolicyError(f"{name!r:.100} is no name of an arm", where="arms", cure=cure, code="policy-arms")
    return name


def arm_share(given: object) -> float:
    """Return the share of an arm. Raises PolicyError if the value is not a valid share."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1:
        what = "there is no share" if given is None else f"the share is {given!r:.200}"
        raise PolicyError(what, cure="Give a number above 0 and below 1: 0.05 is 5%", code="policy-arms")
    return float(given)


def left_over(shares: Iterable[float]) -> float:
    """Return what these shares leave to the arm `main`. Raises PolicyError if nothing is left."""
    whole = math.fsum(shares)
    if not whole < 1:
        cure = f"Make them smaller: {MAIN}, the policy itself, has what they leave"
        raise PolicyError(f"the shares come to {percent(whole)}", where="arms", cure=cure, code="policy-arms")
    return 1 - whole


def drawn(arms: Sequence[Arm], lot: str) -> Arm:
    """Return the arm to which a lot belongs. The first arm has the share that the others leave."""
    digest = hashlib.sha256(lot.encode("utf-8", "surrogatepass")).digest()
    at = (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # uniform in [0, 1)
    for arm in arms[1:]:
        if at < arm.propensity:
            return arm
        at -= arm.propensity
    return arms[0]


def percent(share: float) -> str:
    """Return a share as text, such as `5%`."""
    return f"{share * 100:.10g}%"


def _arm(name: str, given: object, base: RedeliveryPolicy) -> Arm:
    where = f"arms.{name}"
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise PolicyError(
            f"{given!r:.200} is no arm", where=where, cure="Give a pair: (SHARE, POLICY)", code="policy-arms"
        )
    share, policy = given
    try:
        return Arm(name, arm_share(share), _policy(policy, base))
    except TypeError as error:  # RedeliveryPolicy has no such keyword
        raise PolicyError(
            f"{error}", where=where, cure="Use the keywords of RedeliveryPolicy", code="policy-missing"
        ) from None
    except PolicyError as error:
        error.where = f"{where}.{error.where}" if error.where else where
        raise


def _policy(given: object, base: RedeliveryPolicy) -> RedeliveryPolicy:
    made = base.replace(**given) if isinstance(given, Mapping) else given
    if not isinstance(made, type(base)):
        cure = "Give a RedeliveryPolicy, or those of its keywords that differ"
        raise PolicyError(f"{given!r:.200} is no policy", cure=cure, code="policy-missing")
    if made.arms:
        raise PolicyError(
            "an arm with arms of its own", cure="Give them to the policy itself, beside this one", code="policy-arms"
        )
    # What handlers and senders can use depends on the language, and they cannot know the arm.
    return made if made.language == base.language else made.replace(language=base.language, native=made.native)
