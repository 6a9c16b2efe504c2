# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs all checks against one broker, and puts their findings in order."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..adapter.capabilities import BrokerLimit, Capabilities, Trust
from ..adapter.inspection import Inspection, InspectionRequest, QueueFacts
from ..adapter.protocol import Adapter, SupportsInspection
from ..adapter.registry import BrokerUrl, adapter_for, parse_url
from ..clock import Clock, SystemClock
from ..dead_letters import BrokerClient
from ..errors import BrokerError, ConfigError, DestinationMissing
from ..message import Destination
from ..policy import PolicyMap, RedeliveryPolicy
from .broker import check_connections, check_facts, check_version
from .clocks import check_broker_clock
from .destinations import check_policy_targets, check_source, check_target, check_topic
from .finding import Finding, not_known
from .instrumentation import check_instrumentation
from .limits import check_source_limits, check_target_limit
from .permissions import check_credentials, check_permissions
from .tls import check_tls

PORTS = {"pika": (5672, 5671), "proton": (5672, 5671), "stomp": (61613, 61614)}  # of each driver, without and with TLS
NO_POLICY = "limits, holds and dead-letter targets are not compared with a policy: none was given"
NO_DESTINATION = "no source was given, so nothing of a queue is looked at"


@dataclass(frozen=True, slots=True, kw_only=True)
class Examination:
    """Names what is examined. `policies` is None if no policy was given."""

    url: BrokerUrl
    sources: tuple[Destination, ...]
    policies: PolicyMap | RedeliveryPolicy | None
    probe: bool
    limbo: str | None
    clock: Clock
    mark: str

    def policy_of(self, source: Destination) -> RedeliveryPolicy | None:
        """Return the policy for a source; None if there is none."""
        return None if self.policies is None else self.policies.resolve(source.name, source.kind)

    @property
    def targets(self) -> tuple[Destination, ...]:
        """Return every destination of a dead letter, without the sources."""
        named = (target.resolve(one) for one in self.sources if (p := self.policy_of(one)) for target in p.places)
        return tuple(dict.fromkeys(target for target in (*named, *self._fixed()) if target not in self.sources))

    def _fixed(self) -> Iterator[Destination]:
        """Yield the targets of the default policy that do not depend on the source, if no source is named."""
        if self.sources or self.policies is None:
            return
        default = self.policies.default if isinstance(self.policies, PolicyMap) else self.policies
        for target in default.places:
            if "$" not in target.template and target.kind != "same":
                yield Destination(target.template, target.kind)

    @property
    def delays(self) -> bool:
        """Return whether copies may be delayed at the broker."""
        return any(policy is None or policy.longest_delay > 0 for policy in map(self.policy_of, self.sources))


def examine(
    url: str,
    *,
    policies: PolicyMap | RedeliveryPolicy | None = None,
    sources: Iterable[Destination] = (),
    probe: bool = True,
    limbo: str | None = None,
    clock: Clock | None = None,
) -> list[Finding]:
    """Return what is found about a broker, in the order in which to read it.

    `sources` are the queues that are consumed. Without `probe` nothing is sent or made. `limbo`: the URL of a limbo to
    be checked as well. Raises ConfigError for an invalid URL, BrokerError for a broker that cannot be reached or a
    source that does not exist.
    """
    examination = Examination(
        url=parse_url(url),
        sources=tuple(dict.fromkeys(sources)),
        policies=policies,
        probe=probe,
        limbo=limbo,
        clock=clock or SystemClock(),
        mark=secrets.token_hex(8),
    )
    if examination.url.dialect == "memory":
        raise ConfigError(
            "a memory broker lives in one process, and this is another",
            where="memory://",
            cure="Name a broker that runs by itself",
            code="memory-broker-elsewhere",
        )
    of_limbo = (
        [] if limbo is None else _at_the_limbo(limbo, examination.clock)
    )  # refuses what is no URL, before all else
    adapter = adapter_for(examination.url)
    with BrokerClient(adapter) as client:
        found = list(_at_the_broker(examination, adapter, client))
    found += check_tls(examination.url, _port(examination.url), examination.clock.now().wall)
    if probe:
        found.append(check_credentials(examination.url, examination.mark))
    else:
        found.append(not_known("credentials", "user and password", "--no-probe"))
    return [*found, *of_limbo]


def _at_the_limbo(url: str, clock: Clock) -> list[Finding]:
    from .limbo import check_limbo  # it brings a database's driver along, for few

    return list(check_limbo(url, clock))


def _port(url: BrokerUrl) -> int:
    usual, with_tls = PORTS.get(url.dialect.partition("+")[2], (0, 0))
    return url.hosts[0][1] or (with_tls if url.flag("tls") else usual)


def _at_the_broker(examination: Examination, adapter: Adapter, client: BrokerClient) -> Iterator[Finding]:
    where = client.broker
    yield check_version(client.capabilities, where)
    yield check_connections(adapter, where)
    seen = _inspected(examination, adapter)
    for source in examination.sources:
        facts = seen.queues.get(source)
        if facts is not None and facts.exists is False:
            raise DestinationMissing(f"there is no {source}", where=where, cure="Declare it, or check its name")
    yield from check_facts(seen.facts, where)
    yield check_broker_clock(seen.clock, seen.clock_why, where)
    yield from check_permissions(seen.permissions, where)
    yield check_instrumentation(examination.url.dialect.partition("+")[2], seen.sends_with)
    if examination.policies is None:
        yield not_known("policy", "the policy", NO_POLICY, "Give one: --policy POLICY")
    if not examination.sources:
        yield not_known("source", "the source", NO_DESTINATION, "Give one: --destination NAME")
    for source in examination.sources:
        yield from _at_source(examination, client, source, seen.queues.get(source))
    for target in examination.targets:
        yield from _at_target(examination, client, target, seen.queues.get(target))


def _inspected(examination: Examination, adapter: Adapter) -> Inspection:
    if not isinstance(adapter, SupportsInspection):
        return Inspection(clock_why="the adapter does not report it")
    request = InspectionRequest(
        sources=examination.sources,
        targets=examination.targets,
        probe=examination.probe,
        mark=examination.mark,
        clock=examination.clock,
        delays=examination.delays,
    )
    return adapter.inspect(request)


def _at_source(
    examination: Examination, client: BrokerClient, source: Destination, facts: QueueFacts | None
) -> Iterator[Finding]:
    policy = examination.policy_of(source)
    if facts is None:
        yield not_known("source", str(source), "the adapter does not report it")
    else:
        yield from check_source(facts)
    if policy is not None:
        yield from check_policy_targets(source, policy)
    limit = _limit(client, source, facts)
    yield from check_source_limits(source, policy, _capabilities(client, source), limit, facts)


def _capabilities(client: BrokerClient, source: Destination) -> Capabilities:
    """Return the capabilities at a source; the general ones if this user may not ask for its own."""
    try:
        return client.capabilities_at(source)
    except BrokerError:
        return client.capabilities


def _limit(client: BrokerClient, queue: Destination, facts: QueueFacts | None) -> BrokerLimit:
    """Return the limit as the inspection has seen it, else as an App reads it at its start."""
    if facts is not None and (facts.limit.trust is not Trust.UNKNOWN or facts.limit.why):
        return facts.limit
    return client.limit(queue) or BrokerLimit(trust=Trust.UNKNOWN, why="the adapter does not report it")


def _at_target(
    examination: Examination, client: BrokerClient, target: Destination, facts: QueueFacts | None
) -> Iterator[Finding]:
    if target.kind == "topic" and not target.subscription:
        sees = client.capabilities.broker_kind != "activemq"
        yield check_topic(target, client.capabilities, client.objection(target) if sees else None)
    elif facts is None:
        objection = client.objection(target)
        yield not_known("dead-letter-target", str(target), objection or "the adapter does not report it")
    else:
        yield from check_target(facts, _sources_of(examination, target), made=", and no message can be dead-lettered")
        yield from check_target_limit(target, facts)


def _sources_of(examination: Examination, target: Destination) -> Sequence[Destination]:
    """Return the sources whose dead letters go to a target."""
    return [
        one
        for one in examination.sources
        if (policy := examination.policy_of(one)) and target in [place.resolve(one) for place in policy.places]
    ]
