# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Applies the breaker: while a dependency of the handlers is away, no message is handed to them.

A `BreakerGuard` stands between worker pools and runner, and acts on the circuits of its sources: it pauses a pool,
releases messages that were not begun, lets one message be tried, and prevents that this uses up an attempt.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ..adapter.protocol import Adapter
from ..errors import Reject, RetryAfter, Undecodable, leaves_of
from ..message import Delivery, Destination
from ..policy import Accept, RedeliveryPolicy
from ..redelivery import identity
from ..redelivery.plan import attempt_plan
from .breaker import FINE, Breaker, Circuit, Circumstance, FailureClass, Forced
from .consumer_pauses import ConsumerPauses

log = logging.getLogger("redeliver_mw")
BY = "breaker"  # the name of the breaker's pause
BreakerListener = Callable[[Destination, str, str, float], None]  # source, state, why, seconds that it stays open


class PausablePool(Protocol):
    """Holds the workers of a source. Implemented by `runtime.workers.WorkerPool`."""

    def put(self, deliveries: Sequence[Delivery], /, *, first: bool = False) -> None: ...
    def pause(self, by: str, /) -> None: ...
    def resume(self, by: str, /) -> None: ...


class BreakerClient(Protocol):
    """Receives what a BreakerGuard lets pass."""

    stopping: bool

    def begin(self, delivery: Delivery, /) -> bool: ...
    def ended(self, delivery: Delivery, error: BaseException | None, /, *, counted: bool = True) -> None: ...
    def ended_as_one(
        self, batch: Sequence[Delivery], error: BaseException | None, /, *, counted: bool = True
    ) -> None: ...
    def cancelled(self, delivery: Delivery, /) -> None: ...


class BreakerGuard:
    """Takes the runner's place as the client of worker pools.

    Called on workers' threads, and on the adapter's for timers.
    """

    def __init__(
        self,
        breaker: Breaker,
        sources: Iterable[Destination],
        runner: BreakerClient,
        pools: Mapping[Destination, PausablePool],
        adapter: Adapter,
        consumers: ConsumerPauses,
        changed: BreakerListener | None = None,
    ) -> None:
        """Guard these sources; `changed` is called after each change of a state."""
        self._breaker, self._runner, self._pools, self._adapter = breaker, runner, pools, adapter
        self._consumers = consumers
        self._changed = changed
        self._circuits = {source: Circuit(breaker) for source in sources}
        self._lock = threading.RLock()  # reentrant, because a hand-driven pool runs handlers when it is resumed

    def begin(self, delivery: Delivery, /) -> bool:
        """Return whether the delivery runs now; otherwise it goes back to the head of its queue."""
        circuit = self._circuits[delivery.destination]
        if circuit.state != "closed" and not self._runner.stopping:
            with self._lock:
                admitted = circuit.admits(delivery)
                self._follow(delivery.destination)
            if not admitted:
                self._pools[delivery.destination].put((delivery,), first=True)
                return False
        if self._runner.begin(delivery):
            return True
        self._left(delivery)
        return False

    def ended(self, delivery: Delivery, error: BaseException | None, /) -> None:
        self.ended_as_one((delivery,), error)

    def ended_as_one(self, batch: Sequence[Delivery], error: BaseException | None, /) -> None:
        """Note the end of a run. The failure of the message that was tried is not counted."""
        delivery = batch[0]  # the message that is tried is alone
        source = delivery.destination
        blame = FINE if error is None else self._blame(delivery, error)
        if blame is None:
            self._runner.ended_as_one(batch, error)
            return self._left(delivery)
        with self._lock:
            circuit = self._circuits[source]
            change = circuit.ended(delivery, blame)
            opening, rest, why = circuit.openings, circuit.rest, circuit.why
            if circuit.is_full:
                self._follow(source)
        self._runner.ended_as_one(batch, error, counted=change != "opened again")
        if change in ("opened", "opened again"):
            level = logging.ERROR if change == "opened" else logging.INFO
            log.log(level, "%s: the breaker is open for %g s: %s", source, rest, why)
            self._consume(source)
            self._adapter.call_later(rest, lambda: self._rested(source, opening))
            self._announce(source, "open", why, rest)
        elif change == "closed":
            self._announce(source, "closed", "", 0.0)
            log.info("%s: the breaker is closed: handlers are called again", source)
            self._resumed(source)

    def cancelled(self, delivery: Delivery, /) -> None:
        self._runner.cancelled(delivery)
        self._left(delivery)

    def try_one(self, source: Destination) -> None:
        """Try one message at once, if the breaker is open. Any thread."""
        with self._lock:
            circuit = self._circuits[source]
            before = circuit.state
            circuit.try_one()
            tried = before == "open" and circuit.state == "half-open"
        if tried:
            self._announce(source, "half-open", "", 0.0)
        self._consume(source)
        self._resumed(source)

    def force(self, source: Destination, to: Forced, why: str = "") -> None:
        """Keep the breaker of a source open or closed; with an empty state the runs decide again. Any thread."""
        with self._lock:
            circuit = self._circuits[source]
            before = circuit.state
            circuit.force(to, why)
            after = circuit.state
        if after != before:
            self._announce(source, after, why, 0.0)
        self._consume(source)
        self._resumed(source)

    def health(self, source: Destination) -> dict[str, Any]:
        """Return the state as plain values."""
        with self._lock:
            return self._circuits[source].health()

    def _announce(self, source: Destination, state: Circumstance, why: str, rest: float) -> None:
        if self._changed is not None:
            self._changed(source, state, why, rest)

    def _rested(self, source: Destination, opening: int) -> None:
        if self._circuits[source].openings == opening:
            self.try_one(source)

    def _consume(self, source: Destination) -> None:
        """Stop or continue the consumption of a source as its circuit requires."""
        with self._lock:
            if self._circuits[source].state == "open":
                self._consumers.pause(source, BY)
            else:
                self._consumers.resume(source, BY)

    def _left(self, delivery: Delivery) -> None:
        if self._circuits[delivery.destination].probe is delivery:
            with self._lock:
                self._circuits[delivery.destination].left(delivery)
            self._resumed(delivery.destination)

    def _resumed(self, source: Destination) -> None:
        if not self._runner.stopping:
            with self._lock:
                self._follow(source)

    def _follow(self, source: Destination) -> None:
        """Pause or resume the pool as its circuit requires.

        Called with the lock held, so that no change comes in between.
        """
        if self._circuits[source].is_full:
            self._pools[source].pause(BY)
        else:
            self._pools[source].resume(BY)

    def _blame(self, delivery: Delivery, error: BaseException) -> FailureClass | None:
        """Return the count that a failure belongs to; None if it says nothing about the handler's dependency."""
        leaves = leaves_of(error)
        if isinstance(error, Undecodable) or not isinstance(error, Exception):
            return None
        if any(isinstance(leaf, Reject) for leaf in leaves):
            return None
        if not all(isinstance(leaf, RetryAfter) for leaf in leaves):
            decision = _policy_for(delivery).decide(1, 0.0, error)
            if isinstance(decision, Accept) or getattr(decision, "reason", "exhausted") != "exhausted":
                return None  # no failure at all, or the fault of the message itself
        classes = self._breaker.classes
        if not classes:
            return FailureClass("any", type(error).__name__)
        return next(
            (
                FailureClass(repr(kind), type(one).__name__)
                for kind in classes
                for one in (error, *leaves)
                if isinstance(one, kind)
            ),
            FINE,
        )


def _policy_for(delivery: Delivery) -> RedeliveryPolicy:
    """Return the policy of the delivery's arm; a message without any id has no arm before it has failed."""
    policy = attempt_plan(delivery).policy
    if not policy.arms or (key := identity.message_key(delivery, delivery.past)) is None:
        return policy
    return policy.of(key).policy
