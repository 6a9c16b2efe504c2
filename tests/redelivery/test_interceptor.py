# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests inputs and their commands: the rules, one history each. `test_interceptor_walk.py` has all orders of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.adapter.protocol import Verdict
from redeliver_mw.clock import Moment
from redeliver_mw.errors import NotCopyable, Reject, RetryAfter
from redeliver_mw.failure import describe
from redeliver_mw.message import Delivery, Destination, Outgoing, Past
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.redelivery.commands import (
    Arrived,
    CancelTimer,
    Command,
    CopyAnswered,
    GenerationLost,
    HandlerFailed,
    HandlerSucceeded,
    Log,
    NotRun,
    PauseSource,
    PublishAndSettle,
    PublishCopy,
    RecordAttempt,
    ResumeSource,
    RunHandler,
    Settle,
    SettleWritten,
    StartTimer,
    StopRequested,
    TimerFired,
    TransactionAnswered,
)
from redeliver_mw.redelivery.copies import Provenance
from redeliver_mw.redelivery.delays import DelayOptions, ScheduleWait
from redeliver_mw.redelivery.headers import iso
from redeliver_mw.redelivery.identity import digest, ledger_key, message_key, twin_key
from redeliver_mw.redelivery.interceptor import Interceptor
from redeliver_mw.redelivery.ledger import LedgerEntry, MemoryLedger
from redeliver_mw.redelivery.plan import SourcePlan
from redeliver_mw.testing import make_delivery

SOURCE, DLQ, AUDIT = Destination("orders"), Destination("DLQ.orders"), Destination("audit")
LADDER = ScheduleRange((1.0, 2.0, 4.0, 8.0, 16.0, 32.0))
HOLD = DelayOptions("hold", 50, 10.0, None, 10.0)
AUTO = DelayOptions("auto", 50, 10.0, LADDER, 60.0)
NACK = DelayOptions("nack", 50, 10.0, None, 10.0)


class Core:
    """Holds an interceptor, a clock turned by hand, and the commands of the last input."""

    def __init__(
        self,
        policy: RedeliveryPolicy | None = None,
        ways: DelayOptions = HOLD,
        ledger: MemoryLedger | None = None,
        schedule_wait: ScheduleWait | None = None,
        **broker: Any,
    ) -> None:
        policy = policy or RedeliveryPolicy(3, 5.0, ["queue:DLQ.$", "queue:audit"])
        plan = SourcePlan(SOURCE, policy, ways, Provenance(SOURCE, "shop", "host", policy.text, policy.version))
        self.ledger = MemoryLedger() if ledger is None else ledger  # an empty one is false
        capabilities = Capabilities(dialect="test", broker_kind="test", **broker)
        self.interceptor = Interceptor({SOURCE: plan}, {SOURCE: self.ledger}, capabilities, "run", schedule_wait)
        self.mono, self.wall = 100.0, 1_767_323_045.0
        self.said: list[Command] = []

    @property
    def at(self) -> Moment:
        return Moment(self.mono, self.wall)

    @property
    def kept(self) -> int:
        """Return how many deliveries are held or stranded."""
        budget = self.interceptor.budget_of(SOURCE)
        return len(budget.held) + len(budget.apart)

    def feed(self, x: Any) -> Sequence[Command]:
        self.said = list(self.interceptor.feed(x))
        return self.said

    def sleep(self, seconds: float) -> None:
        self.mono += seconds
        self.wall += seconds

    def fail(self, d: Delivery, error: BaseException | None = None, **more: Any) -> Sequence[Command]:
        error = error or ValueError("no")
        return self.feed(HandlerFailed(d, error, describe(error), self.at, 0.5, **more))

    def arrive(self, d: Delivery) -> Sequence[Command]:
        return self.feed(Arrived(d, self.at))

    def due(self, wait: StartTimer) -> Sequence[Command]:
        self.sleep(wait.seconds)
        return self.feed(TimerFired(wait.token, self.at))

    def answer(self, store: PublishCopy, word: str = "ok", why: str = "") -> Sequence[Command]:
        return self.feed(CopyAnswered(store.token, store.out.copy_id, cast(Verdict, word), why or word, self.at))

    def of(self, kind: type[Any]) -> list[Any]:
        return [c for c in self.said if isinstance(c, kind)]

    def the(self, kind: type[Any]) -> Any:
        (one,) = self.of(kind)
        return one


def delivery(
    name: str = "m1",
    body: bytes = b"x",
    generation: int = 1,
    redelivered: bool = False,
    headers: dict[str, Any] | None = None,
    **more: Any,
) -> Delivery:
    d = make_delivery(body, headers, message_id=name or None, **more)
    d.generation, d.redelivered = generation, redelivered
    return d


def copied(failures: int) -> dict[str, str]:
    """Return the headers of a first copy, for this source."""
    return {
        "redeliver_failures": str(failures),
        "redeliver_failures_for": "orders",
        "redeliver_lineage": "L",
        "redeliver_hop": "1",
    }


def arrival_of(out: Outgoing, **more: Any) -> Delivery:
    return delivery(out.properties.message_id, out.body, headers=dict(out.headers), **more)


def again(d: Delivery, **more: Any) -> Delivery:
    """Return the broker's redelivery of a delivery, in the next generation."""
    return delivery(d.message_id or "", d.body, d.generation + 1, True, dict(d.headers), **more)


# -- failing, resting, dying ---------------------------------------------------------------------


def test_a_failure_is_held_run_again_with_its_count_and_accepted_when_it_succeeds() -> None:
    core, d = Core(), delivery()
    core.fail(d)
    assert core.the(StartTimer).seconds == 5.0
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery is d
    assert (d.failures, d.delivery_count) == (1, 2)
    core.feed(HandlerSucceeded(d, core.at))
    assert core.the(Settle).settlement == "accepted"
    assert core.the(RecordAttempt).outcome == "accepted"
    assert core.feed(SettleWritten(1)) == []
    assert core.kept == core.interceptor.waiting_for_answers == 0


def test_a_dead_letter_is_settled_only_after_every_target_has_confirmed() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"])), delivery()
    core.fail(d)
    first, second = core.of(PublishCopy)
    assert [first.out.target, second.out.target] == [DLQ, AUDIT]
    assert core.of(Settle) == []
    assert not any(isinstance(c, Settle) for c in core.answer(second))
    core.answer(first)
    assert core.the(Settle).settlement == "accepted"
    assert core.the(RecordAttempt).outcome == "dead_lettered"


def test_only_the_targets_not_yet_confirmed_are_tried_again_and_ever_more_slowly() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"])), delivery()
    core.fail(d)
    good, bad = core.of(PublishCopy)
    core.answer(good)
    waits, halts = [], []
    for _ in range(9):
        core.answer(bad, "refused")
        waits.append(core.the(StartTimer).seconds)
        halts += core.of(PauseSource)
        core.due(core.the(StartTimer))
        assert core.the(PublishCopy).out.copy_id == bad.out.copy_id
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert len(halts) == 1, "logged once"
    assert halts[0].loud
    assert "audit" in halts[0].reason
    assert "DLQ" not in halts[0].reason
    core.answer(bad)
    assert core.the(Settle).settlement == "accepted"
    assert core.the(ResumeSource).source == SOURCE


def test_after_a_crash_between_two_confirms_only_the_missing_copy_is_sent_and_no_handler_runs() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"])), delivery()
    core.fail(d)
    good, missing = core.of(PublishCopy)
    core.answer(good)
    core.feed(GenerationLost(1))
    core.answer(missing, "refused")
    core.arrive(again(d))
    assert core.the(PublishCopy).out.copy_id == missing.out.copy_id
    assert core.of(RunHandler) == []
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).delivery.generation == 2


def test_a_late_answer_after_the_loss_finishes_the_ledger() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$")), delivery()
    core.fail(d)
    store = core.the(PublishCopy)
    core.feed(GenerationLost(1))
    assert core.of(Settle) == []
    core.answer(store)
    assert core.of(Settle) == []
    assert core.the(RecordAttempt).outcome == "dead_lettered"
    core.arrive(again(d))
    assert core.the(Settle).settlement == "accepted"
    assert core.of(RunHandler) == core.of(PublishCopy) == []


def test_a_copy_that_is_out_on_a_living_link_is_awaited_and_its_end_recorded_once() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$")), delivery()
    core.fail(d)
    first = core.the(PublishCopy)
    for generation in (1, 2):  # it is lost twice meanwhile
        core.feed(GenerationLost(generation))
        core.arrive(d := again(d))
        assert core.of(PublishCopy) == core.of(Settle) == []
    core.answer(first)
    assert (core.the(Settle).settlement, core.the(Settle).delivery.generation) == ("accepted", 3)
    assert [record.outcome for record in core.of(RecordAttempt)] == ["dead_lettered"]


def test_a_copy_that_was_awaited_and_refused_is_sent_again_by_who_waited() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$")), delivery()
    core.fail(d)
    first = core.the(PublishCopy)
    core.feed(GenerationLost(1))
    core.arrive(again(d))
    core.answer(first, "refused")
    core.due(core.the(StartTimer))
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).delivery.generation == 2


def test_a_held_message_is_dead_lettered_when_its_lost_run_was_the_last_allowed() -> None:
    """On Artemis what comes back after a cut is not marked, and is run beside the run that was lost."""
    core, d = Core(RedeliveryPolicy(2, 5.0, "queue:DLQ.$")), delivery()
    core.feed(GenerationLost(1, [d]))
    second = delivery("m1", generation=2)
    core.arrive(second)
    core.fail(second)
    core.fail(d)
    assert core.the(PublishCopy).out.settles is second
    assert core.the(PublishCopy).out.headers["redeliver_failures"] == "2"


def held_beside_a_lost_run(policy: RedeliveryPolicy) -> tuple[Core, Delivery]:
    """Return a core that holds a second delivery, and the first delivery, whose handler still runs."""
    core, d = Core(policy), delivery()
    core.feed(GenerationLost(1, [d]))
    second = delivery("m1", generation=2)
    core.arrive(second)
    core.fail(second)
    core.the(StartTimer)
    return core, d


def test_what_is_held_here_is_discarded_when_a_lost_run_of_it_was_its_last() -> None:
    core, d = held_beside_a_lost_run(RedeliveryPolicy(2, 5.0, on_dead="discard"))
    core.fail(d)
    assert (core.the(Settle).settlement, core.the(Settle).delivery.generation) == ("accepted", 2)
    assert [record.outcome for record in core.of(RecordAttempt)] == ["discarded"]


@pytest.mark.parametrize("error", [None, KeyError("k")], ids=["handled", "ignored"])
def test_what_is_held_here_is_run_again_although_a_lost_run_was_a_success_for_it_may_be_another_message(
    error: KeyError | None,
) -> None:
    core, d = held_beside_a_lost_run(RedeliveryPolicy(3, 5.0, "queue:DLQ.$", ignore=KeyError))
    core.feed(HandlerSucceeded(d, core.at)) if error is None else core.fail(d, error)
    assert core.of(Settle) == core.of(CancelTimer) == []


def test_reject_is_dead_lettered_at_once_and_ignored_errors_are_accepted() -> None:
    core = Core(RedeliveryPolicy(3, 5.0, "queue:DLQ.$", ignore=KeyError))
    core.fail(delivery("a"), Reject("no such customer"))
    assert core.the(PublishCopy).out.headers["redeliver_reason"] == "rejected"
    core.fail(delivery("b"), KeyError("k"))
    assert core.the(Settle).settlement == "accepted"
    assert core.of(PublishCopy) == []


def test_an_undecodable_message_is_dead_lettered_at_once_unless_retry_on_names_the_error() -> None:
    core = Core(RedeliveryPolicy(3, 5.0, "queue:DLQ.$"))
    core.fail(delivery(), undecodable=True)
    assert core.the(PublishCopy).out.headers["redeliver_reason"] == "undecodable"
    assert core.the(PublishCopy).out.headers["redeliver_failures"] == "1"
    named = Core(RedeliveryPolicy(3, 5.0, "queue:DLQ.$", retry_on=ValueError))
    named.fail(delivery(), undecodable=True)
    assert named.the(StartTimer).seconds == 5.0


def test_a_policy_that_discards_settles_without_a_copy() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, on_dead="discard"))
    core.fail(delivery())
    assert core.the(Settle).settlement == "accepted"
    assert core.the(RecordAttempt).outcome == "discarded"
    assert core.of(PublishCopy) == []


def test_a_policy_that_keeps_messages_delays_them_for_ever() -> None:
    core, d = Core(RedeliveryPolicy(2, 5.0, None)), delivery()
    for n in range(1, 6):
        core.fail(d)
        assert core.the(StartTimer).seconds == 5.0
        assert core.the(RecordAttempt).outcome == ("redelivered" if n == 1 else "kept")
        core.due(core.the(StartTimer))
        assert d.failures == n


def test_retry_after_without_count_delays_and_leaves_the_count_as_it_is() -> None:
    core, d = Core(), delivery()
    core.fail(d)
    core.due(core.the(StartTimer))
    for _ in range(5):
        core.fail(d, RetryAfter(2.0, count=False))
        wait = core.the(StartTimer)
        core.due(wait)
        assert core.the(RunHandler).delivery.failures == 1
    core.fail(d, RetryAfter(7.0))
    assert core.the(StartTimer).seconds == 7.0
    assert d.past.failures == 2


# -- the count, and who a message is (own-count) -----------------------------------------------------


def test_the_count_and_the_delay_outlive_the_connection() -> None:
    core, d = Core(), delivery()
    core.fail(d)
    core.feed(GenerationLost(1))
    core.sleep(2.0)
    core.arrive(again(d))
    assert core.the(StartTimer).seconds == pytest.approx(3.0)
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery.failures == 1


def test_a_redelivery_waits_for_the_handler_that_still_runs_and_takes_its_result() -> None:
    core, d = Core(), delivery()
    core.feed(GenerationLost(1, [d]))
    heir = again(d)
    assert core.arrive(heir) == []
    core.feed(HandlerSucceeded(d, core.at))
    assert core.the(Settle).delivery is heir
    assert core.interceptor._deliveries.by_token.keys() == {core.the(Settle).token}


def test_a_redelivery_takes_the_failure_of_the_handler_that_still_ran() -> None:
    core, d = Core(), delivery()
    core.feed(GenerationLost(1, [d]))
    heir = again(d)
    core.arrive(heir)
    core.fail(d)
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery is heir
    assert heir.failures == 1


def test_a_redelivery_is_run_when_the_run_it_waits_for_will_not_come() -> None:
    core, d = Core(), delivery()
    core.feed(GenerationLost(1, [d]))
    heir = again(d)
    core.arrive(heir)
    core.feed(NotRun(d, core.at))
    assert core.the(RunHandler).delivery is heir


def test_a_handler_that_succeeds_after_the_loss_is_not_run_again() -> None:
    core, d = Core(), delivery()
    core.feed(GenerationLost(1, [d]))
    core.feed(HandlerSucceeded(d, core.at))
    assert core.of(Settle) == []
    assert core.the(RecordAttempt).outcome == "accepted"
    core.arrive(again(d))
    assert core.the(Settle).settlement == "accepted"


def test_a_last_failure_after_the_loss_is_a_dead_letter_at_the_redelivery() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$")), delivery()
    core.feed(GenerationLost(1, [d]))
    assert [c for c in core.fail(d) if isinstance(c, PublishCopy | Settle)] == []
    core.arrive(again(d))
    assert core.of(RunHandler) == []
    assert core.the(PublishCopy).out.headers["redeliver_failures"] == "1"
    assert core.the(PublishCopy).out.headers["redeliver_error_type"] == "ValueError"


@pytest.mark.parametrize(
    "policy", [RedeliveryPolicy(1, 5.0, on_dead="discard"), RedeliveryPolicy(3, 5.0, ignore=ValueError)]
)
def test_a_verdict_of_nothing_to_send_after_the_loss_settles_the_redelivery(policy: RedeliveryPolicy) -> None:
    core, d = Core(policy), delivery()
    core.feed(GenerationLost(1, [d]))
    core.fail(d)
    core.arrive(again(d))
    assert core.of(RunHandler) == []
    assert core.the(Settle).settlement == "accepted"


def test_a_strangers_dead_letter_lives_again_from_zero() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$"))
    core.fail(delivery())
    letter = core.the(PublishCopy).out
    back = arrival_of(letter)
    core.arrive(back)
    assert core.the(RunHandler).delivery.failures == 0
    core.fail(back)
    second = core.the(PublishCopy).out
    assert second.headers["redeliver_generation"] == "1"
    assert second.copy_id != letter.copy_id


def test_two_forwarded_messages_with_one_lineage_both_run_and_their_copies_differ() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$"))
    ours = copied(0)
    one, two = delivery("m1", b"one", headers=ours), delivery("m1", b"two", headers=ours)
    for d in (one, two):
        core.arrive(d)
        assert core.the(RunHandler).delivery is d
    ids = set()
    for d in (one, two):
        core.fail(d)
        ids.add(core.the(PublishCopy).out.copy_id)
    assert len(ids) == 2
    core.feed(GenerationLost(1))


@pytest.mark.parametrize("second_id", ["m1", "m2"], ids=["an id of ours", "an id of the broker's"])
def test_a_copy_that_was_sent_twice_stays_one_message_and_both_attempts_are_recorded(second_id: str) -> None:
    """Limbo may publish a row twice; what a drain or Artemis knows them by are lineage and copy id."""
    core = Core(RedeliveryPolicy(2, 5.0, "queue:DLQ.$"))
    ours = copied(1)
    one, two = (delivery(each, b"one", headers=ours) for each in ("m1", second_id))
    core.arrive(one)
    core.arrive(two)
    core.fail(one)
    letter = core.the(PublishCopy)
    core.fail(two)
    assert core.of(PublishCopy) == [], "it is that letter, whose answer is still to come"
    assert letter.out.headers["redeliver_lineage"] == "L"
    core.answer(letter)
    assert {settle.delivery for settle in core.of(Settle)} == {one, two}
    assert [record.outcome for record in core.of(RecordAttempt)] == ["dead_lettered", "dead_lettered"]


def test_a_forwarded_message_runs_although_its_twin_is_done() -> None:
    core = Core()
    ours = copied(1)
    one, two = delivery("m1", b"one", headers=ours), delivery("m1", b"two", headers=ours)
    core.arrive(one)
    core.feed(HandlerSucceeded(one, core.at))
    core.feed(SettleWritten(core.the(Settle).token))
    core.arrive(two)
    assert core.the(RunHandler).delivery is two
    duplicate = delivery("m1", b"one", headers=ours)
    core.arrive(duplicate)
    assert core.the(Settle).delivery is duplicate, "the very same copy, and done"


def test_a_producers_duplicate_id_is_a_message_of_its_own() -> None:
    core, one, two = Core(), delivery("same"), delivery("same")
    core.fail(one)
    core.fail(two)
    assert (one.past.failures, two.past.failures) == (1, 1)
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery is two


def test_a_message_without_an_id_that_waited_to_be_run_again_keeps_its_count_when_its_generation_is_lost() -> None:
    core, d = Core(), delivery("")
    core.fail(d)
    core.due(core.the(StartTimer))
    assert d.failures == 1
    core.feed(GenerationLost(1))
    core.arrive(delivery("", generation=2, redelivered=True))
    assert core.the(RunHandler).delivery.failures == 1


def test_an_unmarked_twin_of_a_finished_message_is_run_and_its_dead_letter_is_sent() -> None:
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$")), delivery()
    core.feed(GenerationLost(1, [d]))
    core.feed(HandlerSucceeded(d, core.at))
    twin = delivery(generation=2)
    core.fail(twin)
    assert core.of(Settle) == []
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).delivery is twin


def test_a_brokers_own_count_counts_for_nothing() -> None:
    core = Core()
    core.arrive(delivery(redelivered=True, headers={"x-delivery-count": 9, "JMSXDeliveryCount": 9}))
    assert core.the(RunHandler).delivery.failures == 0


def test_a_settle_that_was_lost_is_given_again_without_the_handler() -> None:
    core, d = Core(), delivery()
    core.fail(d)
    core.due(core.the(StartTimer))
    core.feed(HandlerSucceeded(d, core.at))
    core.feed(GenerationLost(1))
    assert core.feed(SettleWritten(1)) == []
    core.arrive(again(d))
    assert core.the(Settle).delivery.generation == 2
    assert core.of(RunHandler) == []


# -- waiting (no-head-of-line-blocking) -----------------------------------------------------------------------------


def budget_of(n: int, schedule: ScheduleRange | None = LADDER) -> DelayOptions:
    return DelayOptions("auto", n, 10.0, schedule, 10.0)


def test_the_one_due_last_leaves_by_copy_when_the_budget_is_full() -> None:
    core = Core(RedeliveryPolicy(None, 0.0), budget_of(2))
    late, soon, newest = delivery("late"), delivery("soon"), delivery("newest")
    core.fail(late, RetryAfter(9.0))
    core.fail(soon, RetryAfter(3.0))
    core.fail(newest, RetryAfter(4.0))
    assert core.the(PublishCopy).out.origin is late
    assert core.the(PublishCopy).after == 8.0
    assert core.the(StartTimer).seconds == 4.0
    assert core.kept == 2
    assert core.of(PauseSource) == []


def test_one_that_would_itself_be_due_last_leaves_itself() -> None:
    core = Core(RedeliveryPolicy(None, 0.0), budget_of(1))
    core.fail(delivery("soon"), RetryAfter(3.0))
    last = delivery("last")
    core.fail(last, RetryAfter(6.0))
    assert core.the(PublishCopy).out.origin is last
    assert core.the(PublishCopy).after == 4.0


def test_the_source_pauses_quietly_when_nothing_can_leave_until_the_first_is_due() -> None:
    core = Core(RedeliveryPolicy(None, 0.0), budget_of(1, schedule=None))
    core.fail(delivery("a"), RetryAfter(3.0))
    first = core.the(StartTimer)
    core.fail(delivery("b"), RetryAfter(6.0))
    assert not core.the(PauseSource).loud
    core.due(first)
    kinds = [type(c) for c in core.said]
    assert kinds.index(ResumeSource) < kinds.index(RunHandler), "its handler must not find the source paused"


def test_a_longer_delay_takes_hop_after_hop_until_the_remainder_is_held() -> None:
    core, d = Core(RedeliveryPolicy(3, 28.5, "queue:DLQ.$"), AUTO), delivery()
    core.fail(d)
    hops = []
    while stores := core.of(PublishCopy):
        hops.append(stores[0].after)
        core.answer(stores[0])
        assert core.the(Settle).settlement == "accepted"
        core.sleep(hops[-1])
        core.arrive(d := arrival_of(stores[0].out))
    assert hops == [16.0, 8.0]
    assert core.the(StartTimer).seconds == pytest.approx(4.5)
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery.failures == 1
    assert d.headers["redeliver_hop"] == "2"


class YoungLadder:
    """Has rungs that cannot be used for so many seconds yet."""

    left = 3.0

    def wait(self, _source: Destination, _seconds: float) -> float:
        return self.left


def test_while_the_ladder_is_young_what_fails_is_held_until_then_and_nothing_pauses() -> None:
    ladder = YoungLadder()
    core = Core(RedeliveryPolicy(None, 60.0), budget_of(1), schedule_wait=ladder.wait)
    holds = []
    for name in ("a", "b"):
        core.fail(delivery(name))
        assert core.of(PublishCopy) == core.of(PauseSource) == []
        holds.append(core.the(StartTimer))
    assert [hold.seconds for hold in holds] == [3.0, 3.0]
    ladder.left = 0.0
    core.due(holds[0])
    assert core.the(PublishCopy).after == 32.0


def test_while_the_ladder_is_young_a_short_delay_is_held_to_its_end() -> None:
    core = Core(RedeliveryPolicy(None, 5.0), budget_of(1), schedule_wait=YoungLadder().wait)
    core.fail(delivery("a"))
    assert core.the(StartTimer).seconds == 5.0


def test_while_the_ladder_is_young_what_cannot_be_held_is_parked_if_there_is_a_limbo() -> None:
    ways = replace(AUTO, limbo=True)
    core = Core(RedeliveryPolicy(None, 20.0), ways, schedule_wait=YoungLadder().wait)
    core.fail(delivery("a"))
    assert core.the(PublishCopy).due_us == core.at.us + 20_000_000


def test_stopping_while_the_ladder_is_young_sends_nothing_up_it() -> None:
    core = Core(RedeliveryPolicy(None, 20.0), AUTO, schedule_wait=YoungLadder().wait)
    core.fail(delivery("a"))
    core.feed(StopRequested(core.at))
    assert core.the(PublishCopy).after == 0.0


@pytest.mark.parametrize("step", [-86_400.0, -3.0, 0.0])
def test_a_wall_clock_that_is_set_back_never_makes_a_delay_longer_than_its_step(step: float) -> None:
    core = Core(RedeliveryPolicy(3, 28.5, "queue:DLQ.$"), AUTO)
    core.fail(delivery())
    store, slept = core.the(PublishCopy), 0.0
    core.answer(store)
    core.wall += step
    core.sleep(store.after)
    core.arrive(arrival_of(store.out))
    while not core.of(RunHandler):
        if waits := core.of(StartTimer):
            slept += waits[0].seconds
            core.due(waits[0])
        else:
            store = core.the(PublishCopy)
            core.answer(store)
            slept += store.after
            core.sleep(store.after)
            core.arrive(arrival_of(store.out))
    assert slept <= 28.5 + 1e-6


def test_a_wall_clock_that_is_set_back_cuts_no_delay_short_when_the_message_comes_twice_after_that() -> None:
    core = Core(RedeliveryPolicy(5, 0.0, "queue:DLQ.$"), replace(HOLD, longest=0.0))  # the policy has no delay
    core.fail(nameless(), RetryAfter(2.0))
    core.feed(GenerationLost(1))
    core.wall -= 3600.0
    core.arrive(nameless(2, True))
    assert core.the(StartTimer).seconds == pytest.approx(2.0)
    core.sleep(0.5)
    core.feed(GenerationLost(2))
    core.arrive(nameless(3, True))
    assert core.the(StartTimer).seconds == pytest.approx(1.5)


def test_what_cannot_be_copied_for_a_retry_is_run_again_here() -> None:
    core = Core(RedeliveryPolicy(3, 25.0, "queue:DLQ.$"), AUTO, header_bytes=100)
    d = delivery()
    core.fail(d)
    waits = []
    while not core.of(RunHandler):
        assert core.of(PublishCopy) == []
        waits.append(core.the(StartTimer).seconds)
        core.due(core.the(StartTimer))
    assert waits == [10.0, 10.0, 5.0]


# -- what cannot be copied ---------------------------------------------------------------------------

ONCE = RedeliveryPolicy(1, 5.0, "queue:DLQ.$")


def tight(policy: RedeliveryPolicy = ONCE, **ways: Any) -> Core:
    """Return a core for a broker on which no header fits, with a window that has room for two such messages."""
    honours = frozenset({"accepted", "released"})
    given = replace(HOLD, **({"apart": 2, "apart_beyond": 2} | ways))
    return Core(policy, given, header_bytes=100, honours=honours)


def test_a_dead_letter_that_cannot_be_copied_stays_unsettled_is_named_once_and_pauses_nothing() -> None:
    core, d = tight(), delivery("a")
    core.fail(d)
    assert core.of(PauseSource) == core.of(Settle) == core.of(StartTimer) == core.of(PublishCopy) == []
    said = core.the(Log)
    assert said.level == "error"
    assert all(word in said.text for word in ("queue:orders", "'a'", "bytes", "takes 100", "limbo"))
    assert core.the(RecordAttempt).outcome == "kept"
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1
    core.feed(GenerationLost(1))
    assert len(core.interceptor.budget_of(SOURCE).apart) == 0
    core.arrive(again(d))
    assert core.of(RunHandler) == [], "its verdict stands"
    assert core.of(Log) == core.of(RecordAttempt) == core.of(PauseSource) == []
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1


def test_one_more_than_there_is_room_for_pauses_the_source_until_one_leaves() -> None:
    core = tight()
    for name in "ab":
        core.fail(delivery(name))
        assert core.of(PauseSource) == []
    core.fail(delivery("c", generation=2))
    assert core.the(PauseSource).loud
    assert "cannot be copied" in core.the(PauseSource).reason
    core.feed(GenerationLost(2))
    core.the(ResumeSource)


def test_in_a_window_of_one_it_pauses_its_source_and_is_run_again_after_a_loss_as_before() -> None:
    core, d = tight(apart=0, apart_beyond=0, budget=1), delivery()
    core.fail(d)
    assert core.the(PauseSource).loud
    core.feed(GenerationLost(1))
    core.the(ResumeSource)


def test_it_is_given_back_alone_before_the_ack_timeout_and_its_verdict_stands() -> None:
    core, d = tight(keep_at_most=900.0), delivery()
    core.fail(d, ran=100.0)
    assert core.the(StartTimer).seconds == 800.0, "counted from when its handler began"
    core.due(core.the(StartTimer))
    assert core.the(Settle).settlement == "released"
    core.feed(SettleWritten(core.the(Settle).token))
    assert len(core.interceptor.budget_of(SOURCE).apart) == 0
    core.arrive(delivery(redelivered=True))
    assert core.of(RunHandler) == core.of(Settle) == core.of(Log) == []
    assert core.the(StartTimer).seconds == 900.0
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1


@pytest.mark.parametrize("early", [0.0, 2e-13, 9e-7])
def test_a_delayed_one_is_given_back_also_by_a_timer_that_is_a_grain_early(early: float) -> None:
    """A timer for what is left would fire at once, and again and again while the clock stands still."""
    core = tight(RedeliveryPolicy(100, 25.0), option="auto", schedule=LADDER, keep_at_most=18.0)
    core.fail(delivery())
    core.due(core.the(StartTimer))
    wait = core.the(StartTimer)
    assert wait.seconds == 8.0
    core.sleep(8.0 - early)
    core.feed(TimerFired(wait.token, core.at))
    assert core.of(StartTimer) == []
    assert core.the(Settle).settlement == "released"


def test_without_an_id_it_is_not_run_again_either_however_often_it_is_given_back() -> None:
    core = tight(keep_at_most=900.0)
    core.fail(delivery(""))
    for _ in range(10):
        core.due(core.the(StartTimer))
        core.feed(SettleWritten(core.the(Settle).token))
        core.arrive(delivery("", redelivered=True))
        assert core.of(RunHandler) == core.of(Log) == core.of(RecordAttempt) == []
        assert len(core.interceptor.budget_of(SOURCE).apart) == 1


def test_a_long_delay_of_an_uncopyable_message_is_spent_over_several_deliveries() -> None:
    policy = RedeliveryPolicy(3, 25.0, "queue:DLQ.$")
    core = tight(policy, option="auto", schedule=LADDER, keep_at_most=18.0)
    core.fail(delivery())
    waits: list[float] = []
    while not core.of(RunHandler):
        assert core.of(PublishCopy) == core.of(PauseSource) == []
        if core.of(Settle):
            assert core.the(Settle).settlement == "released"
            core.feed(SettleWritten(core.the(Settle).token))
            waits.append(0.0)
            core.arrive(delivery(redelivered=True))
        else:
            waits.append(core.the(StartTimer).seconds)
            core.due(core.the(StartTimer))
    assert waits == [10.0, 8.0, 0.0, 7.0]
    assert core.the(RunHandler).delivery.failures == 1


@pytest.mark.parametrize("ways", [HOLD, replace(HOLD, schedule=LADDER), replace(HOLD, limbo=True)])
def test_short_holds_that_would_together_outlast_the_ack_timeout_end_in_a_copy(ways: DelayOptions) -> None:
    """Each hold is short, and the broker counts from the delivery: 5 + 5 + 5 s fit into 18 s, and a fourth does not."""
    core, d = Core(RedeliveryPolicy(100, 5.0), replace(ways, keep_at_most=18.0)), delivery()
    core.fail(d)
    holds = 0
    while core.of(StartTimer):
        core.due(core.the(StartTimer))
        holds += 1
        assert core.of(RunHandler)
        core.fail(d)
    assert holds == 3
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).settlement == "accepted"


def test_a_message_in_front_of_its_key_is_held_on_because_its_copy_would_be_behind_it() -> None:
    core, d = Core(RedeliveryPolicy(100, 5.0), replace(HOLD, keep_at_most=18.0)), delivery()
    d.in_line = True
    core.fail(d)
    for _ in range(10):
        core.due(core.the(StartTimer))
        core.fail(d)
    assert core.of(PublishCopy) == []


def test_what_the_broker_does_not_take_back_is_kept() -> None:
    core = Core(ONCE, replace(HOLD, apart=1, apart_beyond=1, keep_at_most=10.0), header_bytes=100)
    core.fail(delivery())
    assert core.of(StartTimer) == []
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1


def test_a_retry_that_cannot_be_copied_takes_no_place_of_the_hold_budget() -> None:
    policy = RedeliveryPolicy(None, 20.0)
    core = tight(policy, option="auto", schedule=LADDER, budget=1)
    core.fail(delivery("a"))
    core.the(StartTimer)
    assert len(core.interceptor.budget_of(SOURCE).held) == 0
    core.fail(delivery("b"))
    core.the(StartTimer)
    assert core.of(PauseSource) == []
    core.fail(delivery("c", generation=2))
    assert not core.the(PauseSource).loud, "it passes by itself"
    core.feed(GenerationLost(2))
    core.the(ResumeSource)


def test_what_is_held_and_turns_out_to_have_no_copy_leaves_its_place_to_one_that_is_due_sooner() -> None:
    policy = RedeliveryPolicy(None, [9.0, 9.0])
    core = tight(policy, option="auto", schedule=LADDER, budget=1)
    core.fail(delivery("a"))
    core.sleep(1.0)
    core.feed(HandlerFailed(delivery("b"), RetryAfter(0.0), describe(RetryAfter(0.0)), core.at, 0.5))
    core.fail(delivery("c"), RetryAfter(0.0))
    assert core.of(PauseSource) == []
    assert len(core.interceptor.budget_of(SOURCE).apart) <= 2


def letters(**ways: Any) -> Core:
    return tight(limbo=True, letters=True, **ways)


def test_with_a_limbo_its_dead_letter_is_kept_there_whole_and_only_then_is_it_accepted() -> None:
    core = letters()
    d = delivery("a", b"body", headers={"big": "x" * 5000, "n": 7})
    core.fail(d)
    store = core.the(PublishCopy)
    assert (store.due_us, store.out.target, store.out.body) == (0, SOURCE, b"body")
    assert {name: store.out.headers[name] for name in ("big", "n")} == {"big": "x" * 5000, "n": 7}
    assert store.out.headers["redeliver_reason"] == "exhausted"
    assert "takes 100" in store.out.headers["redeliver_uncopyable"]
    assert core.of(Settle) == core.of(PauseSource) == []
    assert core.the(Log).level == "warning"
    core.answer(store)
    assert core.the(Settle).settlement == "accepted"
    assert core.the(RecordAttempt).outcome == "dead_lettered"
    assert core.the(RecordAttempt).targets == ()


def test_a_letter_whose_answer_was_lost_is_sent_again_under_its_id() -> None:
    core, d = letters(), delivery("a")
    core.fail(d)
    first = core.the(PublishCopy)
    core.feed(GenerationLost(1))
    core.answer(first, "refused")
    core.sleep(7.0)
    core.arrive(again(d))
    assert core.the(PublishCopy).out.copy_id == first.out.copy_id
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).settlement == "accepted"


def test_a_message_that_becomes_a_letter_again_is_another_letter() -> None:
    core, ids = letters(), []
    for _ in range(2):
        core.fail(delivery("a"))
        ids.append(core.the(PublishCopy).out.copy_id)
        core.answer(core.the(PublishCopy))
        core.feed(SettleWritten(core.the(Settle).token))
        core.sleep(1.0)
    assert ids[0] != ids[1]


def test_a_letter_that_the_limbo_can_never_keep_leaves_its_message_unsettled() -> None:
    core = letters()
    core.fail(delivery("a"))
    core.answer(core.the(PublishCopy), "unfit", "a header is nested too deep")
    assert core.of(Settle) == core.of(PauseSource) == core.of(PublishCopy) == []
    assert "nested too deep" in core.the(Log).text
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1


def test_a_limbo_that_is_away_pauses_the_source_after_three_tries_as_for_others() -> None:
    core = letters()
    core.fail(delivery("a"))
    for _ in range(3):
        assert core.of(PauseSource) == []
        core.answer(core.the(PublishCopy), "refused", "it is locked")
        if core.of(PauseSource):
            break
        core.due(core.the(StartTimer))
    assert core.the(PauseSource).reason == "limbo takes no copy: it is locked"
    core.due(core.the(StartTimer))
    core.answer(core.the(PublishCopy))
    core.the(ResumeSource)
    assert core.the(Settle).settlement == "accepted"


def test_a_dead_letter_that_the_broker_can_never_take_goes_into_the_limbo_for_that_target() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"]), replace(HOLD, apart=2, letters=True))
    core.fail(delivery("a"))
    first, second = core.of(PublishCopy)
    core.answer(first)
    core.answer(second, "unfit", "its header frame is too large")
    (letter,) = core.of(PublishCopy)
    assert letter.out.headers["redeliver_uncopyable"] == "its header frame is too large"
    assert letter.due_us is not None
    core.answer(letter)
    assert core.the(Settle).settlement == "accepted"
    assert core.the(RecordAttempt).targets == (DLQ,)


def test_a_retry_copy_that_the_broker_can_never_take_is_held_here_for_the_rest_of_its_delay() -> None:
    core = Core(RedeliveryPolicy(3, 25.0, "queue:DLQ.$"), replace(AUTO, apart=2, apart_beyond=2))
    core.fail(delivery("a"))
    core.answer(core.the(PublishCopy), "unfit", "its header frame is too large")
    waits = []
    while not core.of(RunHandler):
        assert core.of(PublishCopy) == core.of(PauseSource) == []
        waits.append(core.the(StartTimer).seconds)
        core.due(core.the(StartTimer))
    assert waits == [0.0, 10.0, 10.0, 5.0]
    assert core.the(RunHandler).delivery.failures == 1


def test_a_message_whose_content_never_came_is_not_kept_in_the_limbo() -> None:
    core, d = letters(), delivery("a")

    class Contentless(type(d.reader)):
        def headers_bytes(self, native: Any, /) -> int:
            raise NotCopyable("an AMQP map reaches STOMP without its content", whole=False)

    d.reader = Contentless()
    core.fail(d)
    assert core.of(PublishCopy) == core.of(Settle) == []
    assert len(core.interceptor.budget_of(SOURCE).apart) == 1


def test_two_missing_targets_are_named_each_with_its_own_reason() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"]))
    core.fail(delivery())
    for _ in range(3):
        first, second = core.of(PublishCopy)
        core.answer(first, "refused", "there is no such queue")
        core.answer(second, "refused", "it is full")
        if core.of(PauseSource):
            break
        core.due(core.the(StartTimer))
    reason = core.the(PauseSource).reason
    assert reason == "queue:DLQ.orders takes no copy: there is no such queue; queue:audit takes no copy: it is full"


def test_a_target_that_has_its_copy_is_not_named_beside_one_that_is_missing() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"]))
    core.fail(delivery())
    first, second = core.of(PublishCopy)
    core.answer(first, "refused", "it is full")
    core.answer(second, "refused", "there is no such queue")
    core.due(core.the(StartTimer))
    first, second = core.of(PublishCopy)
    core.answer(first)
    core.answer(second, "refused", "there is no such queue")
    core.due(core.the(StartTimer))
    core.answer(core.the(PublishCopy), "silent", "no answer")
    assert core.the(PauseSource).reason == "queue:audit takes no copy: no answer"


def test_a_nack_gives_the_message_back_uncounted_after_its_delay() -> None:
    core, d = Core(ways=NACK), delivery()
    core.fail(d)
    core.due(core.the(StartTimer))
    assert core.the(Settle).settlement == "released"
    core.feed(SettleWritten(core.the(Settle).token))
    core.arrive(delivery(redelivered=True))
    assert core.the(RunHandler).delivery.failures == 1


def test_a_copy_that_is_tried_again_waits_only_for_the_rest_of_its_delay() -> None:
    core = Core(RedeliveryPolicy(3, 32.0, "queue:DLQ.$"), AUTO)
    core.fail(delivery())
    assert core.the(PublishCopy).after == 32.0
    core.answer(core.the(PublishCopy), "refused")
    core.due(core.the(StartTimer))
    assert core.the(PublishCopy).after == 16.0


# -- expiry and arrival -----------------------------------------------------------------------------


def test_a_message_that_expires_while_it_is_held_goes_where_the_policy_says() -> None:
    core = Core(RedeliveryPolicy(3, 5.0, "queue:DLQ.$"))
    core.fail(delivery(expires_at_us=core.at.us + 3_000_000))
    core.due(core.the(StartTimer))
    assert core.of(RunHandler) == []
    assert core.the(PublishCopy).out.headers["redeliver_reason"] == "expired"


def test_the_expiry_of_the_original_travels_on_its_copies_and_is_enforced() -> None:
    core = Core(RedeliveryPolicy(3, 20.0, "queue:DLQ.$"), AUTO)
    expires = core.at.us + 10_000_000
    core.fail(delivery(expires_at_us=expires))
    out = core.the(PublishCopy).out
    assert out.headers["redeliver_expires_at"] == iso(expires)
    assert out.properties.expires_at_us is None
    core.sleep(16.0)
    core.arrive(arrival_of(out))
    assert core.the(PublishCopy).out.headers["redeliver_reason"] == "expired"
    assert core.the(PublishCopy).out.headers["redeliver_error_type"] == "ValueError"


@pytest.mark.parametrize(("act", "runs"), [("arrival", False), ("failure", True)])
def test_a_limit_reached_elsewhere_ends_a_message_on_arrival_only_where_the_policy_says_so(
    act: Any, runs: bool
) -> None:
    core = Core(RedeliveryPolicy(2, 5.0, "queue:DLQ.$", act=act))
    core.arrive(
        delivery(headers={"redeliver_failures": "2", "redeliver_failures_for": "orders", "redeliver_lineage": "L"})
    )
    assert bool(core.of(RunHandler)) is runs
    assert bool(core.of(PublishCopy)) is not runs


# -- losses and stopping --------------------------------------------------------------------------


def test_nothing_is_settled_in_a_lost_generation() -> None:
    core, d = Core(), delivery()
    core.fail(d)
    wait = core.the(StartTimer)
    core.feed(GenerationLost(1))
    assert core.due(wait) == []


def test_stopping_sends_what_is_held_on_as_a_stamped_copy() -> None:
    core, d = Core(ways=AUTO), delivery()
    core.fail(d)
    core.sleep(1.0)
    core.feed(StopRequested(core.at))
    store = core.the(PublishCopy)
    assert (store.out.target, store.after) == (SOURCE, 4.0)
    assert store.out.headers["redeliver_failures"] == "1"
    assert "redeliver_reason" not in store.out.headers
    core.answer(store)
    assert core.the(Settle).settlement == "accepted"


def test_a_run_that_a_stop_cancels_keeps_its_count_on_a_retry_copy_that_is_no_dead_letter() -> None:
    core, d = Core(ways=AUTO), delivery()
    core.fail(d)
    core.due(core.the(StartTimer))
    core.feed(StopRequested(core.at))
    core.feed(NotRun(d, core.at))
    headers = core.the(PublishCopy).out.headers
    assert headers["redeliver_failures"] == "1"
    assert "redeliver_not_before" in headers
    assert not {"redeliver_reason", "original-destination"} & headers.keys()


def test_a_failure_while_stopping_leaves_an_uncopyable_message_unsettled_and_its_count_in_the_ledger() -> None:
    core, d = Core(ways=AUTO, header_bytes=100), delivery()
    core.feed(StopRequested(core.at))
    core.fail(d)
    assert core.of(PublishCopy) == core.of(Settle) == core.of(StartTimer) == []
    assert core.the(RecordAttempt).mechanism is None
    assert d.past.failures == 1


def test_an_early_copy_that_a_stop_sends_on_carries_the_error_that_only_the_ledger_knew() -> None:
    core, d = Core(ways=AUTO), delivery()
    core.fail(d)
    core.feed(GenerationLost(1))
    core.arrive(again(d))
    core.feed(StopRequested(core.at))
    assert core.the(PublishCopy).out.headers["redeliver_error_type"] == "ValueError"
    assert core.the(PublishCopy).out.headers["redeliver_error_message"] == "no"


# -- copies and settle as one --------------------------------------------------------------------


def atomic(policy: RedeliveryPolicy | None = None, **more: Any) -> Core:
    return Core(policy or RedeliveryPolicy(1, 5.0, ["queue:DLQ.$", "queue:audit"]), atomic_move=True, **more)


def moved(core: Core, verdict: Any) -> Sequence[Command]:
    return core.feed(TransactionAnswered(core.the(PublishAndSettle).token, verdict, "why", core.at))


def test_a_dead_letter_and_its_settlement_are_one_transaction_which_ends_the_tracking() -> None:
    core, d = atomic(), delivery()
    core.fail(d)
    transact = core.the(PublishAndSettle)
    assert (transact.delivery, [out.target for out, _ in transact.outs]) == (d, [DLQ, AUDIT])
    assert not core.of(PublishCopy)
    moved(core, "ok")
    assert not core.of(Settle)
    assert core.the(RecordAttempt).outcome == "dead_lettered"
    core.arrive(again(d))
    assert core.the(Settle).settlement == "accepted"  # it was settled: its twin is not run


@pytest.mark.parametrize(("word", "runs"), [("refused", 1), ("silent", 0)])
def test_a_retry_that_its_full_source_refuses_is_run_here_when_its_delay_is_over(word: str, runs: int) -> None:
    core = Core(RedeliveryPolicy(9, 40.0), AUTO)
    d = make_delivery(b"a", message_id="m1")
    core.fail(d)
    tries, waited = 0, 0.0
    while waited < 40.0:
        [store] = core.of(PublishCopy)
        core.answer(store, word)
        tries += 1
        [wait] = core.of(StartTimer)
        waited += wait.seconds
        core.due(wait)
    assert tries >= 3
    assert len(core.of(RunHandler)) == runs  # after silence a copy may be there: it is sent again
    assert len(core.of(PublishCopy)) == 1 - runs
    if runs:
        assert [c.source for c in core.of(ResumeSource)] == [SOURCE]
        assert [(c.outcome, c.mechanism) for c in core.of(RecordAttempt)] == [("redelivered", "hold")]
        assert d.failures == 1


def test_a_refused_transaction_leaves_the_delivery_ours_and_is_not_tried_as_one_again() -> None:
    core, d = atomic(), delivery()
    core.fail(d)
    moved(core, "refused")
    core.due(core.the(StartTimer))
    assert [store.out.target for store in core.of(PublishCopy)] == [DLQ, AUDIT]
    assert not core.of(PublishAndSettle)


def test_an_abandoned_transaction_is_gone_on_with_when_its_message_is_back_marked_or_not() -> None:
    for marked in (True, False):
        core, d = atomic(), delivery()
        core.fail(d)
        moved(core, "abandoned")
        assert not core.said[:-1]
        back = again(d)
        back.redelivered = marked
        core.arrive(back)
        assert [store.out.target for store in core.of(PublishCopy)] == [DLQ, AUDIT]
        assert not core.of(RunHandler)


def test_a_transaction_that_was_lost_with_its_link_is_tried_as_one_again_but_only_once() -> None:
    """Otherwise, after a kill between the copy and its settle, both would live on, each to a dead letter of its own."""
    core, d = atomic(), delivery()
    core.fail(d)
    moved(core, "lost")
    core.arrive(again(d))
    assert [out.target for out, _ in core.the(PublishAndSettle).outs] == [DLQ, AUDIT]
    assert not core.of(PublishCopy)
    moved(core, "lost")
    core.arrive(again(again(d)))
    assert [store.out.target for store in core.of(PublishCopy)] == [DLQ, AUDIT]  # it may be what the link dies of
    assert not core.of(PublishAndSettle)


def test_a_lost_link_says_nothing_against_its_target() -> None:
    core, first, second = atomic(), delivery("a"), delivery("b")
    core.fail(first)
    moved(core, "lost")
    core.fail(second)
    assert len(core.of(PublishAndSettle)) == 1


def test_a_target_that_failed_a_transaction_shares_none_until_it_has_confirmed() -> None:
    core, first, second, third = atomic(), delivery("a"), delivery("b"), delivery("c")
    core.fail(first)
    moved(core, "refused")
    core.fail(second)
    stores = core.of(PublishCopy)
    assert len(stores) == 2
    assert not core.of(PublishAndSettle)
    for store in stores:
        core.answer(store)
    core.fail(third)
    assert core.of(PublishAndSettle)


def test_a_message_without_any_id_takes_no_part_in_a_transaction_whose_abort_would_cost_its_count() -> None:
    core = atomic()
    core.fail(delivery(""))
    assert len(core.of(PublishCopy)) == 2
    assert not core.of(PublishAndSettle)


@pytest.mark.parametrize("together", [True, False])
def test_a_scheduled_copy_is_in_the_transaction_only_where_the_broker_allows_it(together: bool) -> None:
    core = atomic(RedeliveryPolicy(3, 20.0, "queue:DLQ.$"), ways=AUTO, atomic_schedule=together)
    core.fail(delivery())
    assert bool(core.of(PublishAndSettle)) == together
    assert bool(core.of(PublishCopy)) != together


def test_a_message_that_went_back_is_awaited_only_where_the_broker_may_not_mark_it() -> None:
    for marks in (True, False):
        core, d = Core(marks_returns=marks), delivery()
        core.fail(d)
        core.feed(GenerationLost(1))
        back = again(d)
        back.redelivered = False
        assert core.interceptor.awaits(back) != marks
        assert not core.interceptor.awaits(delivery("another", generation=2))
        core.arrive(back)
        assert back.failures == 1
        assert not core.interceptor.awaits(again(back))  # it is here


# -- what another process has left -----------------------------------------------------------------


def crashed(core: Core, d: Delivery, failures: int = 0) -> Delivery:
    """Write a message into the ledger as one that a process died of, and return its delivery, marked as redelivered."""
    key = message_key(d, Past())
    assert key is not None
    entry = LedgerEntry(key, Past(failures=failures), digest(d), crashed=True)
    core.ledger.open(ledger_key(key, Past()), entry)
    d.redelivered = True
    return d


def test_a_crash_is_a_failure_like_any_other_and_the_handler_runs_again_only_after_the_delay() -> None:
    core = Core()
    d = crashed(core, delivery())
    core.arrive(d)
    assert (core.the(StartTimer).seconds, core.of(RunHandler), d.past.failures) == (5.0, [], 1)
    told = core.the(RecordAttempt)
    assert (told.outcome, told.reason, told.failure.type) == ("redelivered", "crashed", "ProcessDied")
    core.due(core.the(StartTimer))
    assert core.the(RunHandler).delivery.delivery_count == 2


def test_a_crash_is_counted_once() -> None:
    core = Core()
    d = crashed(core, delivery())
    core.arrive(d)
    core.feed(GenerationLost(1))
    back = again(d)
    core.arrive(back)
    assert back.past.failures == 1


def test_the_last_crash_that_a_policy_allows_leads_to_a_dead_letter_that_says_so() -> None:
    core = Core()
    core.arrive(crashed(core, delivery(), failures=2))
    letters = core.of(PublishCopy)
    assert [store.out.target for store in letters] == [DLQ, AUDIT]
    headers = letters[0].out.headers
    assert (headers["redeliver_reason"], headers["redeliver_failures"]) == ("crashed", "3")
    for letter in letters:
        core.answer(letter)
    assert core.the(RecordAttempt).reason == "crashed"
    assert core.the(Settle).settlement == "accepted"


# -- messages without an id ------------------------------------------------------------------------

LONG = RedeliveryPolicy(9, 5.0, "queue:DLQ.$")


def nameless(generation: int = 1, redelivered: bool = False, body: bytes = b"x", **headers: Any) -> Delivery:
    return delivery("", body, generation, redelivered, headers)


def failed_and_lost(core: Core, *failures: int) -> None:
    """Let each message without an id fail as often as its number says, and then lose their generation."""
    for times in failures:
        d = nameless()
        core.fail(d)
        for _ in range(times - 1):
            core.due(core.the(StartTimer))
            core.fail(d)
    core.feed(GenerationLost(1))


def test_a_redelivered_message_without_an_id_takes_over_the_count_of_an_identical_one() -> None:
    core = Core(LONG)
    failed_and_lost(core, 2)
    core.sleep(5.0)
    d = nameless(2, True)
    core.arrive(d)
    assert core.the(RunHandler).delivery.delivery_count == 3
    assert len(d.past.history) == 2


def test_each_count_is_taken_over_once_and_the_highest_first() -> None:
    core = Core(LONG)
    failed_and_lost(core, 1, 3, 2)
    core.sleep(5.0)
    counts = []
    for _ in range(4):
        core.arrive(nameless(2, True))
        counts.append(core.the(RunHandler).delivery.delivery_count)
    assert counts == [4, 3, 2, 1]


def test_a_fresh_message_without_an_id_begins_at_one_and_clears_no_count() -> None:
    core = Core(LONG)
    failed_and_lost(core, 2)
    core.sleep(5.0)
    core.arrive(nameless(2))
    assert core.the(RunHandler).delivery.delivery_count == 1
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == 3


@pytest.mark.parametrize("other", [{"body": b"y"}, {"tenant": "b"}], ids=["body", "header"])
def test_a_message_that_differs_takes_over_nothing(other: dict[str, Any]) -> None:
    core = Core(LONG)
    failed_and_lost(core, 2)
    core.sleep(5.0)
    core.arrive(nameless(2, True, **other))
    assert core.the(RunHandler).delivery.delivery_count == 1


def test_a_header_that_the_broker_changes_makes_no_difference() -> None:
    core = Core(LONG, strip=frozenset({"x-delivery-count"}), strip_prefixes=("x-opt-",))
    core.fail(nameless())
    core.feed(GenerationLost(1))
    core.sleep(5.0)
    core.arrive(nameless(2, True, **{"x-delivery-count": 1, "x-opt-new": "a"}))
    assert core.the(RunHandler).delivery.delivery_count == 2


def test_a_count_whose_delivery_lives_is_not_taken_over() -> None:
    core = Core(LONG)
    core.fail(nameless())  # it is held, in generation 1
    core.sleep(1.0)
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == 1


def test_a_decision_is_not_taken_over_so_the_message_runs_again() -> None:
    core = Core(RedeliveryPolicy(1, 5.0, "queue:DLQ.$"))
    core.fail(nameless())
    core.answer(core.the(PublishCopy))  # the dead letter is confirmed, and the settle may be lost
    core.feed(GenerationLost(1))
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == 1


@pytest.mark.parametrize(("answer", "count"), [("refused", 2), ("silent", 1), ("ok", 1)])
def test_the_count_is_taken_over_where_no_retry_copy_can_be_anywhere(answer: str, count: int) -> None:
    core = Core(LONG, ways=DelayOptions("schedule", 50, 10.0, LADDER, 10.0))
    core.fail(nameless())
    core.answer(core.the(PublishCopy), answer)
    core.feed(GenerationLost(1))
    core.sleep(5.0)
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == count


def test_the_rest_of_a_delay_is_taken_over_with_the_count() -> None:
    core = Core(LONG)
    core.fail(nameless())
    core.feed(GenerationLost(1))
    core.sleep(2.0)
    core.arrive(nameless(2, True))
    assert core.of(RunHandler) == []
    assert core.the(StartTimer).seconds == pytest.approx(3.0)


@pytest.mark.parametrize(("seconds", "count"), [(70.0, 2), (71.0, 1)])
def test_an_unclaimed_count_expires_after_the_longest_delay_and_the_ack_timeout(seconds: float, count: int) -> None:
    core = Core(LONG, ack_timeout=60.0)  # HOLD: the longest delay is 10 s
    core.fail(nameless())
    core.feed(GenerationLost(1))
    core.sleep(seconds)
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == count


def test_no_count_is_lost_when_the_wall_clock_is_set_forward() -> None:
    core = Core(LONG, ack_timeout=60.0)
    core.fail(nameless())
    core.feed(GenerationLost(1))
    core.sleep(5.0)
    core.wall += 3600.0
    core.arrive(nameless(2, True))
    assert core.the(RunHandler).delivery.delivery_count == 2


@pytest.mark.parametrize(("seconds", "count"), [(70.0, 2), (71.0, 1)])
def test_a_count_of_an_earlier_process_expires_by_the_wall_clock(seconds: float, count: int) -> None:
    core, d = Core(LONG, ack_timeout=60.0), nameless(1, True)
    twin = twin_key(d, core.interceptor._deliveries.capabilities)
    past = Past(failures=1, last_failed_us=core.at.us)
    core.ledger.open(f"{twin}/0/0", LedgerEntry(twin, past, digest(d)))
    core.mono = 0.0  # of another machine
    core.wall += seconds
    core.arrive(d)
    assert core.the(RunHandler).delivery.delivery_count == count


def test_where_returns_are_not_marked_an_identical_message_takes_over_what_went_back() -> None:
    """Which of two identical messages has the count makes no difference: together they are tried as often."""
    core = Core(LONG, marks_returns=False)
    core.fail(nameless())
    core.feed(GenerationLost(1))
    core.sleep(5.0)
    back = nameless(2)
    assert core.interceptor.awaits(back)
    core.arrive(back)
    assert core.the(RunHandler).delivery.delivery_count == 2
    assert not core.interceptor.awaits(nameless(2))


def test_a_message_without_an_id_that_a_process_died_of_counts_that_crash() -> None:
    core, d = Core(LONG), nameless(1, True)
    twin = twin_key(d, core.interceptor._deliveries.capabilities)
    core.ledger.open(f"{twin}/0/0", LedgerEntry(twin, Past(), digest(d), crashed=True))
    core.arrive(d)
    assert d.past.failures == 1
    assert core.the(RecordAttempt).reason == "crashed"


def stored_ledger() -> MemoryLedger:
    """Return a ledger that notes for a database which entries have changed."""
    ledger = MemoryLedger()
    ledger.changed = {}
    return ledger


def test_the_ledger_hears_that_a_message_is_over_when_its_settle_is_written_and_not_before() -> None:
    ledger = stored_ledger()
    core, d = Core(RedeliveryPolicy(1, 5.0, "queue:audit"), ledger=ledger), delivery()
    core.fail(d)
    core.answer(core.the(PublishCopy))
    assert core.the(Settle).settlement == "accepted"
    assert ledger.changed is not None
    assert list(ledger.changed.values()) == [False]
    core.feed(SettleWritten(core.the(Settle).token))
    assert list(ledger.changed.values()) == [True]


def test_the_ledger_keeps_what_was_given_back() -> None:
    ledger = stored_ledger()
    core, d = Core(ways=NACK, ledger=ledger), delivery()
    core.fail(d)
    core.due(core.the(StartTimer))
    assert core.the(Settle).settlement == "released"
    core.feed(SettleWritten(core.the(Settle).token))
    assert ledger.changed is not None
    assert list(ledger.changed.values()) == [False]


def test_an_uncounted_failure_is_delayed_and_recorded_with_its_reason() -> None:
    core, d = Core(RedeliveryPolicy(2, 5.0)), delivery()
    core.fail(d)
    for _ in range(3):
        core.due(core.the(StartTimer))
        assert core.the(RunHandler).delivery.failures == 1
        core.fail(d, counted=False)
        record = core.the(RecordAttempt)
        told = (record.outcome, record.reason, record.past.failures, record.delay)
        assert told == ("redelivered", "breaker", 1, 5.0)
    core.due(core.the(StartTimer))
    core.fail(d)
    assert {store.out.headers["redeliver_failures"] for store in core.of(PublishCopy)} == {"2"}
