# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""What is asked of an adapter at a start, before anything is consumed: what can be done at each source, what the
broker itself does there, whether every dead-letter target is there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import Condition
from typing import TypeVar, cast

from .adapter import Adapter, Limiting, Postponing, Verdict
from .capabilities import Ability, Capabilities, Limit, Trust
from .errors import RedeliverError
from .limits import limit_meant, unknown, worry
from .message import Destination
from .planning import check_together, target_refused, targets_of
from .stories import Plan

log = logging.getLogger("redeliver_mw")
Found = TypeVar("Found")


class Asking:
    """One question for each thing, all at once; then their answers are waited for.

    `changed` guards what the adapter's threads tell; `wait(done, what)` returns when `done()`, or raises.
    """

    def __init__(self, adapter: Adapter, changed: Condition, wait: Callable[[Callable[[], bool], str], None]) -> None:
        self.adapter, self._changed, self._wait = adapter, changed, wait

    def each(
        self, things: Iterable[Destination], ask: Callable[[Destination, Callable[[Found], None]], None], what: str
    ) -> dict[Destination, Found]:
        told: dict[Destination, Found] = {}
        asked = list(dict.fromkeys(things))

        def answering(thing: Destination) -> Callable[[Found], None]:
            def answered(found: Found) -> None:
                with self._changed:
                    told[thing] = found
                    self._changed.notify_all()

            return answered

        for thing in asked:
            ask(thing, answering(thing))
        self._wait(lambda: len(told) == len(asked), what)
        return {thing: told[thing] for thing in asked}


def abilities(
    asking: Asking, capabilities: Capabilities, sources: Iterable[Destination], *, declare: bool,
    broker_limit: int | None, ack_timeout: float | None,
) -> dict[Destination, Ability]:  # fmt: skip
    """Of each source. Raises what the broker says against one of them. What the user told is used where it is not
    read (`broker_limit`), or always (`ack_timeout`)."""
    sources = list(sources)
    able = _capabilities(asking, capabilities, sources, declare=declare)
    found = {}
    for source, read in _limits(asking, sources).items():
        limit = limit_meant(read, broker_limit)
        if broker_limit is not None and limit.trust is Trust.PROBED and limit.returns != (broker_limit or None):
            log.warning("%s: broker_limit=%d is not what the broker says: %s", source, broker_limit, _said(limit))
        timeout = ack_timeout or limit.ack_timeout or able[source].ack_timeout
        found[source] = Ability(able[source], limit, timeout)
    return found


def _capabilities(
    asking: Asking, capabilities: Capabilities, sources: list[Destination], *, declare: bool
) -> dict[Destination, Capabilities]:
    if not capabilities.by_source:
        return dict.fromkeys(sources, capabilities)

    def ask(source: Destination, answer: Callable[[Capabilities | RedeliverError], None]) -> None:
        cast(Postponing, asking.adapter).capabilities_at(source, answer, declare=declare)

    found = {}
    for source, one in asking.each(sources, ask, "look at the sources").items():
        if isinstance(one, RedeliverError):
            raise one
        found[source] = one
    return found


def _limits(asking: Asking, sources: list[Destination]) -> dict[Destination, Limit]:
    adapter = asking.adapter
    if not isinstance(adapter, Limiting):
        return dict.fromkeys(sources, Limit(trust=Trust.UNKNOWN, why="its adapter does not tell"))
    return asking.each(sources, adapter.limit_at, "read the limits of the sources")


def _said(limit: Limit) -> str:
    return limit.spelled or "there is no limit"


def warn_of_limits(plans: Iterable[Plan], able: Mapping[Destination, Ability]) -> None:
    """Said once, at start (rule 4): what the broker may do before our policy is asked, as far as that is known."""
    plans = list(plans)
    for plan in plans:
        one = able[plan.source]
        if text := worry(plan.source, plan.policy, plan.ways, one.capabilities, one.limit):
            log.warning("%s", text)
    nack = any(plan.ways.option == "nack" and plan.ways.postpone is None for plan in plans)
    if text := unknown({plan.source: able[plan.source].limit for plan in plans}, nack=nack):
        log.warning("%s", text)


def check_targets(asking: Asking, plans: Mapping[Destination, Plan], *, declare: bool) -> None:
    """Every place that a dead letter could go to must be there, or is made. ConfigError, DestinationMissing."""
    check_together(plans)

    def ask(target: Destination, answer: Callable[[tuple[Verdict, str]], None]) -> None:
        asking.adapter.check(target, lambda verdict, why: answer((verdict, why)), declare=declare)

    found = asking.each(targets_of(plans.values()), ask, "check the dead-letter targets")
    for target, (verdict, why) in found.items():
        if verdict != "ok":
            raise target_refused(target, why, asking.adapter.broker)
