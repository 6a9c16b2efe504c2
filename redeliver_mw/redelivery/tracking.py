# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The stories of one connection, and what the ledger knows of their messages. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ..adapter.capabilities import Capabilities, Mechanism
from ..clock import Moment
from ..failure import Failure
from ..message import Delivery, Destination, Outgoing, Past
from ..policy import RedeliveryPolicy
from ..redelivery.ledger import Ledger
from . import interop
from . import ledger as redelivery_ledger
from .commands import RecordAttempt
from .copies import Provenance, Transfer
from .delays import DelayOptions
from .states import State

NO_PAST = Past()  # read only
NO_COPIES: Mapping[str, Outgoing] = MappingProxyType({})
NO_REFUSALS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """What the interceptor knows of one source."""

    source: Destination
    policy: RedeliveryPolicy
    ways: DelayOptions
    signature: Provenance
    ordered: bool = False  # messages wait for their turn, and are to be told of others'
    _in_arms: dict[str, SourcePlan] = field(default_factory=dict, init=False, compare=False, repr=False)  # as asked for

    def for_message(self, delivery: Delivery, past: Past, key: str) -> SourcePlan:
        """The plan of the message with that key: under a policy that it brings along, else in the arm that it has."""
        alone = self.policy.alone
        own = interop.own_policy(alone, delivery, past.state)
        if own is not alone:
            return self._under(own, policy_version=own.version, arm=None, propensity=None)
        if not self.policy.arms:
            return self
        name, propensity, policy = self.policy.of(key)
        if (plan := self._in_arms.get(name)) is None:
            plan = self._in_arms[name] = self._under(policy, arm=name, propensity=propensity)
        return plan

    def _under(self, policy: RedeliveryPolicy, **signed: Any) -> SourcePlan:
        return replace(self, policy=policy, signature=replace(self.signature, policy_text=policy.text, **signed))


@dataclass(slots=True, eq=False)
class TrackedDelivery:
    """One delivery with a past. Seconds on the monotonic clock, except where `_us` says otherwise."""

    token: int
    delivery: Delivery
    plan: SourcePlan
    past: Past
    state: State
    lineage: str
    key: str | None  # in the ledger; None for a message that shares its id with a live one
    entry: redelivery_ledger.LedgerEntry | None
    nameless: bool = False  # without an id: its redelivery claims its count, and nothing else of it
    expected: bool = False  # it was the broker's again before, and is back
    how: Mechanism = "hold"
    due: float = 0.0  # when its rest is over
    seconds: float = 0.0  # of this hold, or at the broker
    marks: Mapping[str, str] | None = None  # that it is given back with
    move: Transfer | None = None
    outs: Mapping[str, Outgoing] = field(default_factory=lambda: NO_COPIES)  # copy id -> copy
    wave: frozenset[str] = frozenset()  # sent, at the last try
    open: frozenset[str] = frozenset()  # sent, not answered
    confirmed: frozenset[str] = frozenset()
    tries: int = 0
    why: str = ""  # the last refusal
    refusals: Mapping[str, str] = field(default_factory=lambda: NO_REFUSALS)  # copy id -> its own last refusal
    doubt: bool = False  # a copy was not answered: it may be there
    copyable: bool = True
    whole: bool = True  # a limbo can keep it
    letter: bool = False  # its dead letter, of which no copy can be made, is on its way into limbo
    since: float = 0.0  # when it was seen first
    failure: Failure | None = None
    draft: RecordAttempt | None = None  # of an attempt that is not over yet


class TrackedDeliveries:
    """Opens and closes them, each with its entry in the ledger."""

    def __init__(
        self,
        plans: Mapping[Destination, SourcePlan],
        ledgers: Mapping[Destination, Ledger],
        capabilities: Capabilities,
        run_id: str,
    ) -> None:
        self.plans = plans
        self.capabilities = capabilities
        self._ledgers = ledgers
        self._run_id = run_id
        self._tokens = itertools.count(1)
        self._stories: dict[int, TrackedDelivery] = {}
        self._of: dict[Delivery, TrackedDelivery] = {}

    @property
    def waiting_for_answers(self) -> int:
        """Stories that end by themselves once a broker has answered."""
        return sum(story.state in (State.MOVING, State.SETTLING) for story in list(self._stories.values()))

    def awaits(self, delivery: Delivery) -> bool:
        """Whether a delivery without any mark may be one that went back to the broker. From any thread."""
        back = self._ledgers[delivery.destination].back
        if self.capabilities.marks_returns or not back:
            return False
        key = redelivery_ledger.message_key(delivery, NO_PAST)
        if key is None or key.startswith(redelivery_ledger.TWIN):
            twin = redelivery_ledger.twin_key(delivery, self.capabilities)
            return self._ledgers[delivery.destination].awaits_twin(twin)
        return redelivery_ledger.ledger_key(key, NO_PAST) in back

    def _claim(self, delivery: Delivery, past: Past, at: Moment) -> redelivery_ledger.LedgerEntry | None:
        """Return the entry whose count a redelivered message without an id takes over, if there is one."""
        if not delivery.redelivered and self.capabilities.marks_returns:
            return None
        if redelivery_ledger.message_key(delivery, past) is not None:
            return None
        longest = self.plans[delivery.destination].ways.longest
        timeout_us = round(self.capabilities.ack_timeout * 1e6) if self.capabilities.ack_timeout else 0
        oldest_us = at.us - round(longest * 1e6) - (timeout_us or redelivery_ledger.CLAIM_MARGIN_US)
        ledger = self._ledgers[delivery.destination]
        found: redelivery_ledger.LedgerEntry | None = ledger.claim(
            redelivery_ledger.twin_key(delivery, self.capabilities), oldest_us
        )
        return found

    def _open(
        self,
        delivery: Delivery,
        plan: SourcePlan,
        past: Past,
        state: State,
        claimed: redelivery_ledger.LedgerEntry | None = None,
        since: float = 0.0,
    ) -> TrackedDelivery:
        """A new story, with what the ledger knows of the message, or with the entry that it has claimed."""
        token = next(self._tokens)
        key = redelivery_ledger.message_key(delivery, past)
        nameless = key is None or (key.startswith(redelivery_ledger.TWIN) and not past.lineage)
        if claimed is not None:
            key, past = claimed.lineage, claimed.past
        elif key is None:
            key = f"{redelivery_ledger.twin_key(delivery, self.capabilities)}{self._run_id:.16}{token:016x}"
        if nameless:
            delivery.own_key = key
        known: str | None = redelivery_ledger.ledger_key(key, past)
        expected = known in self._ledgers[delivery.destination].back
        entry, same = self._entry(redelivery_ledger.ledger_key(key, past), key, delivery, past)
        if entry is None:
            known = None
        else:
            past = entry.past
        # What shares its key with another message has a lineage of its own, which keeps their copies apart.
        lineage = key if same else f"{self._run_id}{token:016x}"
        plan = plan.for_message(delivery, past, lineage)
        story = TrackedDelivery(token, delivery, plan, past, state, lineage, known, entry, nameless, expected)
        story.since = since
        if entry is not None:
            entry.story, story.failure = story, entry.failure
        past.expires_at_us = past.expires_at_us or delivery.properties.expires_at_us
        delivery.past, delivery.failures, delivery.known = past, past.failures, True
        self._stories[token] = story
        self._of[delivery] = story
        return story

    def _entry(
        self, known: str, key: str, delivery: Delivery, past: Past
    ) -> tuple[redelivery_ledger.LedgerEntry | None, bool]:
        """The ledger's entry, None when another goes by the same key; and whether it is the same message all the same.

        It is, if it is a copy that was sent twice. A producer's duplicate is a message of its own.
        """
        ledger = self._ledgers[delivery.destination]
        print_ = redelivery_ledger.digest(delivery)
        entry: redelivery_ledger.LedgerEntry = ledger.open(
            known, lambda: redelivery_ledger.LedgerEntry(key, past, print_)
        )
        live = entry.story is not None and entry.story.state not in (State.SETTLED, State.ABANDONED)
        if live or entry.digest != print_:
            return None, bool(past.lineage) and redelivery_ledger.same_body(entry.digest, print_)
        back = known in ledger.back
        if not (delivery.redelivered or past.lineage or back):  # a new message that has a known id
            ledger.forget(known)
            entry = ledger.open(known, lambda: redelivery_ledger.LedgerEntry(key, past, print_))
        ledger.back.discard(known)
        if past.failures > entry.past.failures:
            entry.past = past
        return entry, True

    def _expect(self, story: TrackedDelivery) -> None:
        """It is the broker's again, and may come back without a mark that says so."""
        if story.key is not None and story.entry is not None and not story.entry.done:
            self._ledgers[story.plan.source].back.add(story.key)

    def _end_entry(self, story: TrackedDelivery) -> None:
        if story.entry is not None:
            story.entry.returns = story.move is not None and story.move.outcome == "redelivered"
            story.entry.finish()
            self._ledgers[story.plan.source].back.discard(story.key or "")

    def _save(self, story: TrackedDelivery) -> None:
        """Let the ledger keep what was done, as far as it keeps anything."""
        if story.key is not None and story.entry is not None:
            ledger = self._ledgers[story.plan.source]
            ended = story.state is State.SETTLED and story.entry.done  # what was released is not over
            (ledger.over if ended else ledger.save)(story.key)

    def _close(self, story: TrackedDelivery) -> None:
        self._stories.pop(story.token, None)
        if self._of.get(story.delivery) is story:
            del self._of[story.delivery]
        if story.entry is not None and story.entry.story is story:
            story.entry.story = None
            unsent = not (story.confirmed or story.doubt or story.open)
            if story.nameless and unsent and story.move is not None and story.move.outcome == "redelivered":
                story.entry.verdict = None  # no retry of it is anywhere: its count can be taken over
