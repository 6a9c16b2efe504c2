# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Asks an adapter at a start, before anything is consumed, about each source and each dead-letter target.

The questions are what each source supports, what the broker itself does with its messages, and whether the target
exists.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from threading import Condition
from typing import TypeVar, cast

from ..adapter.capabilities import BrokerLimit, Capabilities, SourceCapabilities, Trust
from ..adapter.protocol import Adapter, SupportsDelayedRelease, SupportsLimits, Verdict
from ..errors import EVENT_CODE, RedeliverError
from ..message import Destination
from ..redelivery.broker_limits import limit_meant, limit_warning, unknown, unknown_delays
from ..redelivery.plan import SourcePlan
from .policy_checks import check_together, target_refused, targets_of

log = logging.getLogger("redeliver_mw")
FoundCapabilities = TypeVar("FoundCapabilities")


class BrokerQueries:
    """Asks one question for each item, all at once; then waits for the answers.

    `changed` guards the answers that come on the adapter's threads; `wait(done, what)` returns when `done()`, or
    raises.
    """

    def __init__(self, adapter: Adapter, changed: Condition, wait: Callable[[Callable[[], bool], str], None]) -> None:
        self.adapter, self._changed, self._wait = adapter, changed, wait

    def each(
        self,
        things: Iterable[Destination],
        ask: Callable[[Destination, Callable[[FoundCapabilities], None]], None],
        what: str,
    ) -> dict[Destination, FoundCapabilities]:
        answers: dict[Destination, FoundCapabilities] = {}
        asked = list(dict.fromkeys(things))

        def answering(thing: Destination) -> Callable[[FoundCapabilities], None]:
            def answered(found: FoundCapabilities) -> None:
                with self._changed:
                    answers[thing] = found
                    self._changed.notify_all()

            return answered

        for thing in asked:
            ask(thing, answering(thing))
        self._wait(lambda: len(answers) == len(asked), what)
        return {thing: answers[thing] for thing in asked}


def source_capabilities(
    asking: BrokerQueries,
    capabilities: Capabilities,
    sources: Iterable[Destination],
    *,
    declare: bool,
    broker_limit: int | None,
    ack_timeout: float | None,
) -> dict[Destination, SourceCapabilities]:
    """Return the capabilities of each source. Raises the broker's objection to one of them.

    The user's values are used if the broker's cannot be read (`broker_limit`), or always (`ack_timeout`).
    """
    sources = list(sources)
    able = _capabilities(asking, capabilities, sources, declare=declare)
    found = {}
    for source, read in _limits(asking, sources).items():
        limit = limit_meant(read, broker_limit)
        if broker_limit is not None and limit.trust is Trust.PROBED and limit.returns != (broker_limit or None):
            log.warning("%s: broker_limit=%d is not what the broker says: %s", source, broker_limit, _log_once(limit))
        timeout = ack_timeout or limit.ack_timeout or able[source].ack_timeout
        found[source] = SourceCapabilities(able[source], limit, timeout)
    return found


def _capabilities(
    asking: BrokerQueries, capabilities: Capabilities, sources: list[Destination], *, declare: bool
) -> dict[Destination, Capabilities]:
    if not capabilities.by_source:
        return dict.fromkeys(sources, capabilities)

    def ask(source: Destination, answer: Callable[[Capabilities | RedeliverError], None]) -> None:
        cast(SupportsDelayedRelease, asking.adapter).capabilities_at(source, answer, declare=declare)

    found = {}
    for source, one in asking.each(sources, ask, "look at the sources").items():
        if isinstance(one, RedeliverError):
            raise one
        found[source] = one
    return found


def _limits(asking: BrokerQueries, sources: list[Destination]) -> dict[Destination, BrokerLimit]:
    adapter = asking.adapter
    if not isinstance(adapter, SupportsLimits):
        return dict.fromkeys(sources, BrokerLimit(trust=Trust.UNKNOWN, why="its adapter does not tell"))
    return asking.each(sources, adapter.limit_at, "read the limits of the sources")


def _log_once(limit: BrokerLimit) -> str:
    return limit.spelled or "there is no limit"


def warn_of_limits(plans: Iterable[SourcePlan], able: Mapping[Destination, SourceCapabilities]) -> None:
    """Warn once, at start, about what the broker may do before our policy acts, as far as that is known."""
    plans = list(plans)
    for plan in plans:
        one = able[plan.source]
        if text := limit_warning(plan.source, plan.policy, plan.ways, one.capabilities, one.limit):
            log.warning("%s", text, extra={EVENT_CODE: "broker-limit-acts-first"})
    nack = any(plan.ways.option == "nack" and plan.ways.postpone is None for plan in plans)
    limits = {plan.source: able[plan.source].limit for plan in plans}
    if text := unknown(limits, nack=nack):
        log.warning("%s", text, extra={EVENT_CODE: "broker-limit-unknown"})
    if nack and (text := unknown_delays(limits)):
        log.warning("%s", text, extra={EVENT_CODE: "broker-delay-unknown"})


def warn_of_order(plans: Iterable[SourcePlan], *, crash_safe: bool) -> None:
    """Log what is lost at the end of this process if order by key has no limbo to remember it.

    There is one line for each such source.
    """
    for plan in plans:
        ways = plan.ways
        if not plan.ordered or ways.limbo:
            continue
        hold = max(ways.hold_max, ways.hold_in_line)
        if plan.policy.longest_delay > hold or ways.option == "schedule":
            why = f"a delay of more than {hold:g} s" if ways.option != "schedule" else "every delay"
        else:
            why = "a delay for which half of the prefetch window has no room"
        losses = [f"{why} is waited out by a copy at the broker, and its key does not wait for that any longer"]
        if not crash_safe:
            losses.insert(0, "a message that is being retried keeps its place and loses its count")
        log.warning(
            "%s: when this process ends, order by key has no limbo to remember it: %s. Give limbo=, with delay='auto'",
            plan.source,
            ", and ".join(losses),
        )


def check_targets(asking: BrokerQueries, plans: Mapping[Destination, SourcePlan], *, declare: bool) -> None:
    """Check that every destination of a dead letter exists, or make it. Raises ConfigError, DestinationMissing."""
    check_together(plans)

    def ask(target: Destination, answer: Callable[[tuple[Verdict, str]], None]) -> None:
        asking.adapter.check(target, lambda verdict, why: answer((verdict, why)), declare=declare)

    found = asking.each(targets_of(plans.values()), ask, "check the dead-letter targets")
    for target, (verdict, why) in found.items():
        if verdict != "ok":
            raise target_refused(target, why, asking.adapter.broker)
