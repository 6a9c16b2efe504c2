# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Counts attempts, dead letters, delays and durations for each source, in plain numbers.

A message costs one look-up of its source and a few additions; texts and labels are made when somebody asks for the
values. Label values are bounded: the first twenty types of errors since the start have a label of their own, and all
later ones are `other`.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final, get_args
from weakref import WeakSet

from ..adapter.capabilities import Mechanism, Settlement
from ..clock import Moment
from ..message import Delivery, Destination, Outgoing
from ..redelivery.commands import RecordAttempt
from . import families
from .bounded_label import OTHER, BoundedLabel, label
from .families import BOUNDS
from .hook import TelemetrySink
from .samples import HistogramValue, Labels, Samples, Value, combined
from .state import ConsumerState, ObservedConsumer

SOURCES = 500  # with labels of their own: a drop-in wrapper may see queues that live for one reply
QUEUES = 500
REMEMBERED = 10_000  # fingerprints
REASONS: Final = ("exhausted", "rejected", "fatal", "expired", "undecodable", "crashed", "handler")
BREAKER_STATES: Final = ("closed", "open", "half-open")


class Histogram:
    """Counts values by the bucket that they fall into. Not thread-safe."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(families.BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS, value)] += 1
        self.sum += value

    def value(self) -> HistogramValue:
        return HistogramValue(tuple(self.counts), self.sum)


class SourceTally:
    """Counts for one source. The holder of `lock` may read and change everything."""

    __slots__ = (
        "attempts",
        "confirms",
        "dead_letters",
        "delays",
        "fingerprints",
        "first_attempts",
        "handled",
        "last_settle",
        "lock",
        "runs",
        "settles",
    )

    def __init__(self, wall: float) -> None:
        self.lock = threading.Lock()
        self.handled = 0  # first attempts that went well
        self.first_attempts = 0  # others
        self.attempts: Counter[tuple[str, str]] = Counter()  # without those in `handled`
        self.dead_letters: dict[str, int] = dict.fromkeys(REASONS, 0)
        self.delays: dict[str, int] = dict.fromkeys(get_args(Mechanism), 0)
        self.fingerprints = 0
        self.runs, self.confirms, self.settles = Histogram(), Histogram(), Histogram()
        self.last_settle = wall


class Tallies(TelemetrySink):
    """Counts what happens to messages, and knows whom to ask for the present state of the rest.

    Thread-safe. Counters begin at 0 for every source that is subscribed to, so that a first dead letter is an increase.
    """

    wants_broker_state = True
    wants_all_run_ends = False

    def __init__(self) -> None:
        self._by_source: dict[Destination, SourceTally] = {}
        self._by_label: dict[str, SourceTally] = {}
        self._making = threading.Lock()
        self._error_types = BoundedLabel(families.ERROR_TYPES)
        self._fingerprints: set[str] = set()
        self._consumers: WeakSet[ObservedConsumer] = WeakSet()

    # -- moments ------------------------------------------------------------------------------------

    def started(self, consumer: ObservedConsumer, /) -> None:
        self._consumers.add(consumer)

    def stopped(self, consumer: ObservedConsumer, /) -> None:
        self._consumers.discard(consumer)

    def subscribed(self, source: Destination, at: Moment, /) -> None:
        self._tally(source, at.wall)

    def run_ended(self, delivery: Delivery, error: BaseException | None, at: Moment, ran: float, /) -> None:
        tally = self._by_source.get(delivery.destination) or self._tally(delivery.destination, at.wall)
        with tally.lock:
            tally.runs.observe(ran)

    def handled(self, delivery: Delivery, at: Moment, ran: float, /) -> None:
        tally = self._by_source.get(delivery.destination) or self._tally(delivery.destination, at.wall)
        with tally.lock:
            tally.handled += 1
            tally.last_settle = at.wall
            tally.runs.counts[bisect_left(BOUNDS, ran)] += 1  # as Histogram.observe; a call less for each message
            tally.runs.sum += ran

    def attempt_recorded(self, attempt: RecordAttempt, /) -> None:
        at, past, failure = attempt.at, attempt.past, attempt.failure
        error_type = "" if failure is None else self._error_types.of(failure.type)
        is_first = past.first_attempt_us is None or past.first_attempt_us >= at.us - round(attempt.ran * 1e6)
        is_new = failure is not None and self._is_new(failure.fingerprint)
        tally = self._tally(attempt.delivery.destination, at.wall)
        with tally.lock:
            tally.attempts[attempt.outcome, error_type] += 1
            tally.first_attempts += is_first
            tally.fingerprints += is_new
            if attempt.outcome == "dead_lettered":
                reason = label(attempt.reason)
                reason = reason if reason in tally.dead_letters else OTHER
                tally.dead_letters[reason] = tally.dead_letters.get(reason, 0) + 1
            if attempt.mechanism is not None:
                tally.delays[attempt.mechanism] += 1

    def copy_answered(self, copy: Outgoing, verdict: str, why: str, at: Moment, seconds: float, /) -> None:
        if verdict == "ok" and (delivery := copy.settles) is not None:
            tally = self._tally(delivery.destination, at.wall)
            with tally.lock:
                tally.confirms.observe(seconds)

    def settled(self, delivery: Delivery, settlement: Settlement, at: Moment, seconds: float, /) -> None:
        tally = self._tally(delivery.destination, at.wall)
        with tally.lock:
            tally.settles.observe(seconds)
            tally.last_settle = at.wall

    def _tally(self, source: Destination, wall: float) -> SourceTally:
        """Return the tally of a source. Sources whose labels are the same share one."""
        if (known := self._by_source.get(source)) is not None:
            return known
        with self._making:
            name = label(str(source))
            if name not in self._by_label and len(self._by_label) >= SOURCES:
                name = OTHER
            tally = self._by_label.get(name)
            if tally is None:
                tally = self._by_label[name] = SourceTally(wall)
            if len(self._by_source) < 2 * SOURCES:  # of the others each message is looked up by its label
                self._by_source[source] = tally
            return tally

    def _is_new(self, fingerprint: str) -> bool:
        """Return whether a fingerprint was not seen since the start; none is new once too many are known."""
        if fingerprint in self._fingerprints:
            return False
        with self._making:
            is_new = fingerprint not in self._fingerprints and len(self._fingerprints) < REMEMBERED
            if is_new:
                self._fingerprints.add(fingerprint)
            return is_new

    # -- values ---------------------------------------------------------------------------------------

    def samples(self) -> Samples:
        """Return the present values of all metrics. No I/O."""
        found: dict[str, dict[Labels, Value]] = {family.name: {} for family in families.FAMILIES}
        for name, tally in list(self._by_label.items()):
            _add_tally(found, name, tally)
        for consumer in list(self._consumers):
            _add_state(found, consumer.telemetry_state())
        return found


def _add_tally(found: dict[str, dict[Labels, Value]], source: str, tally: SourceTally) -> None:
    with tally.lock:
        handled, attempts = tally.handled, Counter(tally.attempts)
        found[families.FIRST_ATTEMPTS][source,] = handled + tally.first_attempts
        found[families.NEW_FINGERPRINTS][source,] = tally.fingerprints
        found[families.LAST_SETTLE][source,] = tally.last_settle
        found[families.HANDLER_DURATION][source,] = tally.runs.value()
        found[families.CONFIRM_DURATION][source,] = tally.confirms.value()
        found[families.SETTLE_DURATION][source,] = tally.settles.value()
        for reason, number in tally.dead_letters.items():
            found[families.DEAD_LETTERS][source, reason] = number
        for mechanism, number in tally.delays.items():
            found[families.DELAYS][source, mechanism] = number
    attempts["accepted", ""] += handled
    for (outcome, error_type), number in attempts.items():
        found[families.ATTEMPTS][source, outcome, error_type] = number


def _add_state(found: dict[str, dict[Labels, Value]], state: ConsumerState) -> None:
    """Add the state of one consumer to that of others in this process, as if each had a process of its own."""
    for source, one in state.sources.items():
        name = label(str(source))
        _combine(found, families.WAITING, (name,), one.waiting)
        _combine(found, families.HELD, (name,), one.held)
        _combine(found, families.HOLD_BUDGET, (name,), one.hold_taken / one.hold_budget if one.hold_budget else 0.0)
        if one.breaker:
            for known in BREAKER_STATES:
                _combine(found, families.BREAKER_STATE, (name, known), float(known == one.breaker))
        if one.policy_version:
            _combine(found, families.POLICY_INFO, (name, label(one.policy_version)), 1.0)
    for role, is_up in state.connections.items():
        _combine(found, families.CONNECTION_UP, (label(role),), float(is_up))
    if state.parked is not None:
        _combine(found, families.PARKED, (), state.parked)
    if state.parked_due is not None:
        _combine(found, families.PARKED_DUE, (), state.parked_due)
    for source, (number, oldest) in state.stored.items():
        _combine(found, families.STORED, (label(str(source)),), number)
        if oldest is not None:
            _combine(found, families.STORED_OLDEST, (label(str(source)),), oldest)
    for queues, family in ((state.queues, families.QUEUE_MESSAGES), (state.oldest, families.QUEUE_OLDEST)):
        _add_queues(found, queues, family)


def _add_queues(found: dict[str, dict[Labels, Value]], queues: Mapping[Destination, float], family: str) -> None:
    for queue, value in queues.items():
        if len(found[family]) < QUEUES:
            _combine(found, family, (label(str(queue)),), value)


def _combine(found: dict[str, dict[Labels, Value]], name: str, labels: Labels, value: float) -> None:
    known = found[name].get(labels)
    found[name][labels] = value if known is None else combined(families.BY_NAME[name].merge, known, value)
