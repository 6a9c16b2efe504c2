# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes maps of policies to write, and compares the decisions of two maps."""

from __future__ import annotations

from hypothesis import strategies as st

from redeliver_mw.message import Destination, DestinationKind
from redeliver_mw.policy import Backoff, DeadLetter, Expiry, Keep, PolicyMap, Redeliver, RedeliveryPolicy, Target
from redeliver_mw.policy.activemq_delays import ActiveMQDelays
from redeliver_mw.policy.artemis_delays import ArtemisDelays
from redeliver_mw.policy.destinations import MapEntry

KINDS: tuple[DestinationKind, ...] = ("queue", "topic")
NAMES = ["A", "B", "A.B", "B.A", "A.B.C", "A.C", "C", "A.A.A.A", "DLQ"]

backoffs = st.one_of(
    st.integers(0, 5000).map(lambda delay: Backoff.constant(delay / 1000)),
    st.builds(
        ArtemisDelays,
        st.integers(1, 3000),
        st.sampled_from([1.0, 0.5, 1.5, 2.0]),
        st.integers(0, 9000),
        st.sampled_from([0.0, 0.25]),
    ),
    st.builds(Backoff.exponential, st.sampled_from([0.5, 1.0]), st.just(2.0), st.sampled_from([None, 5.0, 60.0])),
    st.builds(ActiveMQDelays, st.integers(0, 9), st.integers(0, 9), st.sampled_from([None, 2.0]), st.none()),
    st.just(Backoff.listed([1, 5, 2])),
)
targets = st.sampled_from(
    ["queue:DLQ", "queue:DLQ.$", "topic:dead", "same:$.x", "queue:$", None, ["queue:a", "queue:b"]]
)
expiries = st.sampled_from(
    [
        Expiry(),
        Expiry("discard"),
        Expiry("log", log="%header%,id"),
        Expiry("redirect", Target("queue", "DLQ")),
        Expiry("redirect", Target("queue", "DLQ"), time_to_live=60.0),
    ]
)
policies = st.builds(
    RedeliveryPolicy,
    st.sampled_from([1, 2, 7, None]),
    backoffs,
    targets,
    st.sampled_from(["dead-letter", "discard", "keep"]),
    expiry=expiries,
    fatal=st.sampled_from([None, None, ValueError]),
)


@st.composite
def maps(draw: st.DrawFn, patterns: list[str]) -> PolicyMap:
    """Draw up to four entries of these patterns, best match, as ActiveMQ writes them."""
    keys = st.tuples(st.sampled_from(patterns), st.sampled_from([None, "queue", "topic"]))
    chosen = draw(st.lists(keys, max_size=4, unique=True))
    return PolicyMap([MapEntry(pattern, kind, draw(policies)) for pattern, kind in chosen], draw(policies))


def difference(ours: PolicyMap, theirs: PolicyMap) -> str:
    """Return the first decision that differs, of any name and kind and of F up to 100; return "" if none does."""
    for name in NAMES:
        for kind in KINDS:
            one, other = ours.resolve(name, kind), theirs.resolve(name, kind)
            source = Destination(name, kind)
            told = [*(_told(one, source, count) for count in range(1, 101)), _expired(one, source)]
            again = [*(_told(other, source, count) for count in range(1, 101)), _expired(other, source)]
            for count, (left, right) in enumerate(zip(told, again, strict=True), 1):
                if left != right:
                    return f"{source}, F = {count}: {left} and {right}"
    return ""


def _told(policy: RedeliveryPolicy, source: Destination, count: int) -> tuple[object, ...]:
    decision = policy.decide(count)
    if isinstance(decision, Redeliver | Keep):  # what is kept is delayed and comes again
        return "rest", round(decision.base, 6), round(decision.low, 6), round(decision.high, 6)
    if isinstance(decision, DeadLetter):
        return ("dead", *(str(target.resolve(source)) for target in decision.targets))
    return (type(decision).__name__,)


def _expired(policy: RedeliveryPolicy, source: Destination) -> tuple[object, ...]:
    decision = policy.expired()
    if isinstance(decision, DeadLetter):
        where = [str(target.resolve(source)) for target in decision.targets]
        return ("redirected", *where, policy.expiry.time_to_live, policy.expiry.priority)
    return ("dropped", policy.expiry.log if policy.expiry.action == "log" else None)
