# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a dead-letter target again, as at the start, if somebody deletes it while an App runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from threading import Lock

from ..adapter.protocol import Adapter, Verdict
from ..clock import Clock
from ..message import Destination
from ..redelivery.plan import SourcePlan
from .policy_checks import targets_of

log = logging.getLogger("redeliver_mw")

REST = 5.0  # seconds between two checks of a target


class TargetMaker:
    """Checks a dead-letter target that has refused a copy, and declares it if it does not exist. Thread-safe."""

    def __init__(self, adapter: Adapter, plans: Mapping[Destination, SourcePlan], clock: Clock) -> None:
        self._adapter, self._plans, self._clock = adapter, plans, clock
        self._lock = Lock()
        self._looked: dict[Destination, float] = {}  # monotonic

    def refused(self, target: Destination) -> None:
        """Note that a copy for this target was refused, for whatever reason. Does not wait."""
        if target not in targets_of(self._plans.values()):
            return
        now = self._clock.now().mono
        with self._lock:
            if now < self._looked.get(target, -REST) + REST:
                return
            self._looked[target] = now

        def answered(verdict: Verdict, why: str) -> None:
            if verdict != "ok":
                log.error("%s is not there and cannot be made: %s", target, why)

        self._adapter.check(target, answered, declare=True)
