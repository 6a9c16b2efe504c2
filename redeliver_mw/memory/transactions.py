# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the transactions of a `MemoryAdapter`: copies are sent and their original is accepted as one, or not at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from ..adapter.protocol import OnTransferred
from ..message import Delivery, Outgoing
from .broker import MemoryBroker
from .clock import ClockLoop
from .generation import MemoryGeneration

Outs = Sequence[tuple[Outgoing, float]]


class MemoryTransactions:
    """Runs transactions on the consuming connection, which `cut` closes. Belongs to the adapter's loop."""

    def __init__(self, broker: MemoryBroker, loop: ClockLoop, timeout: float, cut: Callable[[], None]) -> None:
        self._broker, self._loop, self._timeout, self._cut = broker, loop, timeout, cut

    def move(
        self, memory_generation: MemoryGeneration | None, delivery: Delivery, outs: Outs, answer: OnTransferred
    ) -> None:
        if memory_generation is None or not memory_generation.link.is_open or not memory_generation.has(delivery):
            return answer("abandoned", "its generation is over, or it is settled")
        plan = self._broker.faults
        faults = (plan.take(out.target, "refuse", "missing", "silence") for out, _ in outs)
        fault = next(filter(None, faults), None)
        if fault is not None and fault.kind == "silence":
            if fault.stored:
                self._commit(memory_generation, delivery, outs)
            self._loop.call_later(self._timeout, functools.partial(self._give_up, answer))
            return None
        problems = (self._broker.problem(out.target, out.headers, after) for out, after in outs)
        refused = fault.text if fault is not None else next(filter(None, problems), "")
        if refused:
            returned = self._broker.ways.name == "artemis"
            memory_generation.aborted(delivery, returned=returned)
            return answer("abandoned" if returned else "refused", refused)
        self._commit(memory_generation, delivery, outs)
        return answer("ok", "")

    def _commit(self, memory_generation: MemoryGeneration, delivery: Delivery, outs: Outs) -> None:
        for out, after in outs:
            self._broker.store(out.target, out.body, out.headers, out.properties, after=after)
        memory_generation.settle([(delivery, "accepted")], cumulative=False)

    def _give_up(self, answer: OnTransferred) -> None:
        """Close the silent consuming connection as a whole, so that no late COMMIT can come."""
        self._cut()
        answer("abandoned", f"no answer within {self._timeout:g} s")
