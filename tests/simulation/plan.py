# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Draws from one seed what a history is made of: a broker, an app, a few messages, and what is to go wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from redeliver_mw.policy import RedeliveryPolicy

SOURCE = "orders"
TARGETS = ("dead", "audit")
HOLD_MAX, HOLD_MAX_ALONE = 10.0, 1.0  # seconds: no-head-of-line-blocking


@dataclass(frozen=True)
class Letter:
    """Describes one message that is sent, and what its handler makes of it."""

    name: str
    kind: str  # one of KINDS
    at: float  # seconds, when it is sent
    failures: int = 0  # so many failures, for the kinds that get well
    has_id: bool = True
    lasts: float = 0.0  # seconds that its handler takes
    wide: bool = False  # its headers need more with ours than the broker takes: it cannot be copied

    def __str__(self) -> str:
        often = f" {self.failures} times" if self.kind in ("failing", "killer") else ""
        return (
            f"{self.name} {self.kind}{often}, sent at {self.at:g} s, handled in {self.lasts:g} s"
            + ("" if self.has_id else ", without an id")
            + (", with too many headers to be copied" if self.wide else "")
        )


LATER = 1.0  # seconds that a handler asks for
KINDS = ("healthy", "failing", "poison", "rejected", "ignored", "later", "killer")
LIKELY = ("healthy", "failing", "healthy", "failing", "poison", *KINDS)


@dataclass(frozen=True)
class Fault:
    """Makes `kind` happen at the `at`-th point of the history. `arg` are seconds or times, as the kind has it."""

    at: int
    kind: str
    arg: float = 0.0

    def __str__(self) -> str:
        return f"at point {self.at}: {FAULTS[self.kind].format(arg=self.arg)}"


FAULTS = {
    "crash": "the process dies, another starts after {arg:g} s",
    "stop": "the process is stopped, another starts after {arg:g} s",
    "cut": "every connection is cut",
    "channel": "the consuming channel is lost",
    "kill": "the broker is killed, and comes back after {arg:g} s",
    "lost": "the next copy is kept and its answer lost",
    "unsent": "the next copy is lost, and so is its answer",
    "stall": "the next copy gets stuck on its link for {arg:g} s",
    "late": "the next copy is answered after {arg:g} s",
    "repeat": "the next copy is answered twice",
    "refuse": "the next {arg:g} copies are refused",
    "settle": "the next settle is written and lost",
    "full": "the disk is full for {arg:g} s",
    "clock": "the wall clock is set by {arg:g} s",
    "alarm": "the broker takes no copies for {arg:g} s",
    "hook": "the hook that is told of attempts raises",
}


@dataclass(frozen=True)
class Plan:
    """Describes a whole history before it happens."""

    seed: int
    broker: str  # a personality of the memory broker
    delay: str
    limbo: bool
    crash_safe: bool
    dead_after: int
    backoff: tuple[float, ...]
    targets: int
    on_dead: str
    prefetch: int
    workers: int
    replay: bool  # what is dead at the end is sent back, with all its headers, by somebody else's tool
    letters: tuple[Letter, ...]
    faults: tuple[Fault, ...] = ()
    limbos: bool = False  # was a limbo asked for?

    @property
    def policy(self) -> RedeliveryPolicy:
        return RedeliveryPolicy(
            self.dead_after,
            list(self.backoff),
            [f"queue:{name}" for name in TARGETS[: self.targets]],
            self.on_dead,
            ignore=LookupError,
        )

    def rest_after(self, failures: int) -> float:
        """Return the seconds of delay after so many failures."""
        return self.backoff[min(failures, len(self.backoff)) - 1]

    def __str__(self) -> str:
        store = " with crash_safe" if self.crash_safe else " with limbo" if self.limbo else ""
        rests = ", ".join(f"{rest:g}" for rest in self.backoff)
        lines = [
            f"{self.broker}, delay={self.delay}{store}, prefetch {self.prefetch}, {self.workers} workers; "
            f"{self.on_dead} after {self.dead_after} failures, delays of {rests} s, {self.targets} dead-letter targets"
            + (", letters sent back by a stranger" if self.replay else ""),
            *map(str, self.letters),
            *map(str, self.faults),
        ]
        return "\n".join(f"    {line}" for line in lines)


def plan_of(seed: int, *, limbos: bool = False) -> Plan:
    """Return the history of this seed. With `limbos` it has a limbo in any case, and is another history."""
    rng = Random(seed)
    broker = rng.choice(("rabbitmq", "rabbitmq-classic", "activemq", "artemis"))
    limbo = rng.random() < LIMBO_SHARE or limbos
    crash_safe = limbo and rng.random() < 0.4
    delay = _delay(rng, broker, limbo)
    prefetch = rng.choice((1, 2, 4, 10))
    backoff = _backoff(rng, delay, prefetch)
    dead_after = rng.randint(1, 4)
    letters = tuple(_letter(rng, n, dead_after, crash_safe) for n in range(rng.choice((1, 1, 2, 2, 3, 4, 6))))
    letters = _widened(Random(f"wide {seed}"), letters, limbo or prefetch > 1)
    reach = 14 + 16 * len(letters)  # about as many points as there will be
    number = rng.choice((0, 1, 1, 2, 2, 3, 4))
    faults = tuple(sorted((_fault(rng, reach, limbo) for _ in range(number)), key=lambda fault: fault.at))
    return Plan(
        seed,
        broker,
        delay,
        limbo,
        crash_safe,
        dead_after,
        backoff,
        rng.choice((1, 1, 2)),
        rng.choice(("dead-letter",) * 5 + ("discard",)),
        prefetch,
        rng.choice((1, 1, 2, 3)),
        rng.random() < 0.15,
        letters,
        faults,
        limbos,
    )


WIDE_SHARE = 0.15  # of the histories: in each of these one message cannot be copied
LIMBO_SHARE = 0.008  # of the histories: each costs as much as fifteen others


def _delay(rng: Random, broker: str, limbo: bool) -> str:
    ways = ["auto", "auto", "auto", "hold", "schedule"]
    if broker != "activemq":
        ways.append("nack")
    if limbo:
        ways += ["park", "park", "park"]
    return rng.choice(ways)


def _backoff(rng: Random, delay: str, prefetch: int) -> tuple[float, ...]:
    longest = 1e9
    if delay in ("hold", "nack"):
        longest = HOLD_MAX if prefetch > 1 else HOLD_MAX_ALONE
    rests = [rest for rest in (0.0, 0.25, 1.0, 3.0, 8.0, 30.0, 700.0) if rest <= longest]
    return tuple(rng.choice(rests) for _ in range(rng.randint(1, 3)))


def _letter(rng: Random, n: int, dead_after: int, crash_safe: bool) -> Letter:
    kind = rng.choice(LIKELY)
    failures = rng.randint(1, max(1, dead_after - 1)) if kind == "failing" else 0
    if kind == "failing" and dead_after == 1:
        kind = "poison"
    if kind == "killer":
        failures = rng.randint(1, 2)
    return Letter(
        "abcdef"[n],
        kind,
        rng.choice((0.0, 0.0, 0.0, 0.2, 1.5)),
        failures,
        rng.random() < 0.95,
        rng.choice((0.0, 0.0, 0.0, 0.05, 0.5, 4.0)),
    )


def _widened(rng: Random, letters: tuple[Letter, ...], rightly: bool) -> tuple[Letter, ...]:
    """Return the letters, of which one cannot be copied in some histories.

    With `rightly`, a letter that cannot be copied need not keep the others from being run.
    """
    if not rightly or rng.random() >= WIDE_SHARE:
        return letters
    chosen = rng.randrange(len(letters))
    return tuple(replace(letter, wide=n == chosen) for n, letter in enumerate(letters))


def _fault(rng: Random, reach: int, limbo: bool) -> Fault:
    kinds = [
        "crash",
        "crash",
        "crash",
        "stop",
        "cut",
        "cut",
        "channel",
        "kill",
        "lost",
        "unsent",
        "stall",
        "late",
        "repeat",
        "refuse",
        "settle",
        "clock",
        "alarm",
        "hook",
    ]
    if limbo:
        kinds += ["full", "full", "crash", "crash"]
    kind = rng.choice(kinds)
    args = {
        "crash": (0.1, 1.0, 5.0),
        "stop": (0.1, 5.0),
        "kill": (0.5, 4.0),
        "stall": (1.0, 3.0, 6.0),
        "late": (0.5, 5.0),
        "refuse": (1, 2, 4, 8),
        "full": (0.5, 5.0, 20.0),
        "clock": (3600.0, -3600.0),
        "alarm": (0.5, 4.0),
    }
    return Fault(rng.randint(1, reach * (3 if limbo else 1)), kind, rng.choice(args.get(kind, (0.0,))))
