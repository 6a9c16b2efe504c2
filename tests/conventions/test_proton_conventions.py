# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Consumers in the shapes of proton's own examples keep their guarantees when they are wrapped, on a real Artemis."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import Container

from redeliver_mw import RedeliveryPolicy, current_delivery
from redeliver_mw.errors import ConfigError
from redeliver_proton import redelivering
from tests.adapters.proton.dropins import NamelessPeer, Queues
from tests.brokers import Broker
from tests.conventions.proton_consumers import (
    AbortingTxRecv,
    After,
    At,
    ByEvent,
    ByThread,
    ByTimer,
    Consumer,
    EveryFifth,
    LeavesSome,
    OneAtATime,
    QueueBrowser,
    RecurringTimer,
    SelectedRecv,
    Server,
    ServerTx,
    SimpleRecv,
    TxRecv,
    Verb,
)
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

PATIENCE = 60.0  # seconds in which a consumer has to come to its end
TWICE = RedeliveryPolicy(dead_after=2, backoff=0.1)
LATE: list[type[ByTimer]] = [ByTimer, ByEvent, ByThread]


@pytest.fixture
def q(artemis244: Broker) -> Iterator[Queues]:
    found = Queues(artemis244)
    yield found
    found.connection.close()


def at(q: Queues) -> At:
    return At(f"amqp://{q.broker.host}:{q.broker.port}", q.name, q.broker.user, q.broker.password)


def no_work(body: str) -> None:
    """Do nothing, successfully."""


def bad_fails(body: str) -> None:
    if body.startswith("bad"):
        raise ValueError(f"{body} fails")


def emptied(q: Queues, *, dead: int = 0) -> Callable[[], bool]:
    """Return whether nothing is left in the source, and so many messages are in the dead-letter queue."""
    return lambda: q.depth() == 0 and q.depth(q.dlq) == dead


class Until(proton.Handler):
    """Closes a consumer's connection when a test has seen enough, or after `PATIENCE` seconds.

    This is a plain handler: a `MessagingHandler` would give every link of the container credit of its own.
    """

    def __init__(self, consumer: Any, done: Callable[[], bool]) -> None:
        self.consumer, self.done, self.timed_out = consumer, done, False

    def on_reactor_init(self, event: Any) -> None:
        self.until = time.monotonic() + PATIENCE
        event.container.schedule(0.03, self)

    def on_timer_task(self, event: Any) -> None:
        self.timed_out = time.monotonic() > self.until
        if self.timed_out or self.done():
            self.consumer.conn.close()
        elif self.consumer.conn.state & proton.Endpoint.LOCAL_ACTIVE:
            event.container.schedule(0.03, self)


def run(consumer: Consumer, done: Callable[[], bool], *, wrapped: bool = True, **options: Any) -> None:
    """Run a consumer until `done`; fail when that takes too long."""
    until = Until(consumer, done)
    handler = redelivering(consumer, **{"policy": TWICE, **options}) if wrapped else consumer
    Container(handler, until).run()
    assert not until.timed_out, f"not done in {PATIENCE} s: given {consumer.given}, settled {consumer.settled}"


def settle_time() -> Callable[[], bool]:
    """Return a condition that becomes true a moment after it was first asked: for what must *not* happen."""
    began: list[float] = []

    def over() -> bool:
        began.append(time.monotonic())
        return began[-1] - began[0] > 0.4

    return over


def reasons(dead: list[proton.Message]) -> list[tuple[str, str, str]]:
    """Return body, reason and failures of dead letters."""
    found = [(m.body, m.properties["redeliver_reason"], m.properties["redeliver_failures"]) for m in dead]
    return sorted(found)


# -- killed in the middle of work ------------------------------------------------------------------


class Program:
    """Runs a consumer as a process of its own, which can be killed."""

    def __init__(self, name: str, q: Queues, stuck: int, how: str) -> None:
        place = at(q)
        argv = [sys.executable, "-m", "tests.conventions.proton_consumers", name, place.url, q.name, str(stuck), how]
        env = os.environ | {"BROKER_USER": place.user, "BROKER_PASSWORD": place.password}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE)
        self.how = how

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def wait_for(self, bodies: int, patience: float = 15.0) -> None:
        """Return when it works on its message number `bodies`."""
        assert self.process.stdout is not None
        said, until = b"", time.monotonic() + patience
        while said.count(b"\n") < bodies:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, until - time.monotonic()))
            part = os.read(self.process.stdout.fileno(), 4096) if ready else b""
            assert part, f"{self.how}: it has only said {said!r}"
            said += part


@dataclass(frozen=True)
class Killed:
    """Says which messages a consumer gets, on which one its work never ends, and which are unsettled then."""

    name: str
    put: tuple[str, ...]
    stuck: int
    unsettled: frozenset[str]
    begun: int = 0  # messages that it begins to work on before it is killed, if not `stuck`


def first(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


FIVE, NINE = first(5), first(9)
KILLED = [
    Killed("simple_recv", FIVE, 3, frozenset("345")),
    Killed("server", FIVE, 3, frozenset("345")),
    Killed("selected_recv", FIVE, 3, frozenset("345")),
    Killed("tx_recv", FIVE, 3, frozenset("12345")),
    Killed("server_tx", FIVE, 1, frozenset("12345")),
    Killed("queue_browser", FIVE, 3, frozenset("12345")),
    Killed("accepts_by_timer", FIVE, 9, frozenset("12345"), begun=5),
    Killed("accepts_by_event", FIVE, 9, frozenset("12345"), begun=5),
    Killed("accepts_by_thread", FIVE, 9, frozenset("12345"), begun=5),
    Killed("accepts_every_fifth", NINE, 99, frozenset("6789"), begun=9),
    Killed("leaves_some", ("leave 1", "2", "leave 3"), 99, frozenset({"leave 1", "leave 3"}), begun=3),
    Killed("one_at_a_time", FIVE, 3, frozenset("345")),
]


@pytest.mark.parametrize("case", KILLED, ids=lambda case: case.name)
def test_a_consumer_killed_in_the_middle_of_work_loses_no_unsettled_message_plain_or_wrapped(
    artemis244: Broker, case: Killed
) -> None:
    sides = {how: Queues(artemis244) for how in ("plain", "wrapped")}
    with ExitStack() as stack:
        for q in sides.values():
            q.put(*case.put, properties={"colour": "green"}, reply_to=q.dlq)
        programs = [stack.enter_context(Program(case.name, q, case.stuck, how)) for how, q in sides.items()]
        for program in programs:
            program.wait_for(case.begun or case.stuck)
        if case.begun:
            time.sleep(0.3)  # what it settled too early has reached the broker by then
    left = {how: set(q.left()) for how, q in sides.items()}
    for q in sides.values():
        q.connection.close()
    assert {how: case.unsettled - found for how, found in left.items()} == {"plain": set(), "wrapped": set()}


# -- settling follows auto_accept ------------------------------------------------------------------


def test_with_auto_accept_returning_is_success(q: Queues) -> None:
    q.put("1", "2", "3")
    consumer = SimpleRecv(at(q), no_work)
    run(consumer, emptied(q))
    assert [consumer.counts(body) for body in "123"] == [[1], [1], [1]]


def test_with_auto_accept_an_exception_is_a_failure(q: Queues) -> None:
    q.put("1", "bad", "2")
    consumer = SimpleRecv(at(q), bad_fails)
    run(consumer, emptied(q, dead=1))
    assert (consumer.counts("1"), consumer.counts("bad"), consumer.counts("2")) == ([1], [1, 2], [1])
    assert reasons(q.dead()) == [("bad", "exhausted", "2")]


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
def test_without_auto_accept_a_path_that_settles_nothing_leaves_its_message_at_the_broker(
    q: Queues, wrapped: bool
) -> None:
    q.put("leave 1", "2", "leave 3", "4")
    consumer = LeavesSome(at(q), no_work)
    over = settle_time()
    run(consumer, lambda: consumer.settled == ["2", "4"] and over(), wrapped=wrapped)
    assert sorted(q.left()) == ["leave 1", "leave 3"]
    assert q.dead() == []


# Not plain by a thread: the bare driver writes such an accept whenever its loop happens to turn.
@pytest.mark.parametrize(
    ("kind", "wrapped"),
    [(kind, wrapped) for kind in LATE for wrapped in (False, True) if wrapped or kind is not ByThread],
)
def test_a_message_accepted_late_is_at_the_broker_until_then_and_gone_after(
    q: Queues, kind: type[ByTimer], wrapped: bool
) -> None:
    q.put("1", "2", "3")
    before: list[int] = []
    consumer = kind(at(q), no_work, after=0.3)

    def done() -> bool:
        if len(consumer.given) == 3 and not consumer.settled:
            before.append(q.depth())
        return len(consumer.settled) == 3 and q.depth() == 0

    run(consumer, done, wrapped=wrapped)
    assert before[-1] == 3
    assert len(consumer.given) == 3
    assert q.dead() == []


def test_accepting_every_fifth_time_settles_five_and_leaves_the_rest(q: Queues) -> None:
    q.put(*NINE)
    consumer = EveryFifth(at(q), no_work)
    over = settle_time()
    run(consumer, lambda: len(consumer.given) == 9 and over())
    assert q.left() == ["6", "7", "8", "9"]


@pytest.mark.parametrize("kind", LATE)
@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_a_late_release_is_a_failure_that_is_retried_and_dead_lettered(
    q: Queues, kind: type[ByTimer], delay: str
) -> None:
    q.put("bad", "good")
    consumer = kind(at(q), no_work, verb_of=lambda body: "release" if body == "bad" else "accept", after=0.05)
    run(consumer, emptied(q, dead=1), delay=delay)
    assert (consumer.counts("bad"), consumer.counts("good")) == ([1, 2], [1])
    assert reasons(q.dead()) == [("bad", "exhausted", "2")]


@pytest.mark.parametrize("kind", LATE)
def test_a_late_reject_dead_letters_at_once(q: Queues, kind: type[ByTimer]) -> None:
    q.put("bad", "good")
    consumer = kind(at(q), no_work, verb_of=lambda body: "reject" if body == "bad" else "accept", after=0.05)
    run(consumer, emptied(q, dead=1))
    assert (consumer.counts("bad"), consumer.counts("good")) == ([1], [1])
    assert reasons(q.dead()) == [("bad", "rejected", "1")]


def test_a_message_released_late_and_accepted_late_the_next_time_is_handled(q: Queues) -> None:
    q.put("1")
    verbs: Iterator[Verb] = iter(["release", "accept"])
    consumer = ByTimer(at(q), no_work, verb_of=lambda body: next(verbs), after=0.05)
    run(consumer, emptied(q))
    assert consumer.counts("1") == [1, 2]
    assert q.dead() == []


def test_without_auto_accept_an_exception_is_a_failure_although_the_code_settles_later(q: Queues) -> None:
    q.put("bad", "good")
    consumer = ByTimer(at(q), bad_fails, after=0.05)
    run(consumer, emptied(q, dead=1))
    assert (consumer.counts("bad"), consumer.counts("good")) == ([1, 2], [1])
    assert reasons(q.dead()) == [("bad", "exhausted", "2")]


def test_settle_return_makes_returning_success_without_auto_accept(q: Queues) -> None:
    q.put("leave 1", "2")
    consumer = LeavesSome(at(q), no_work)
    run(consumer, emptied(q), settle="return")
    assert [consumer.counts(body) for body in ("leave 1", "2")] == [[1], [1]]


def test_settle_callback_makes_returning_nothing_with_auto_accept(q: Queues) -> None:
    q.put("1", "2")
    consumer = SimpleRecv(at(q), no_work)
    over = settle_time()
    run(consumer, lambda: len(consumer.given) == 2 and over(), settle="callback")
    assert q.left() == ["1", "2"]


def test_a_settlement_after_its_receiver_is_closed_is_logged_as_an_error_and_settles_nothing(
    q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing(ByTimer):
        def on_message(self, event: Any) -> None:
            super().on_message(event)
            event.receiver.close()

    q.put("1")
    consumer = Closing(at(q), no_work, after=0.2)
    over = settle_time()
    with caplog.at_level(logging.ERROR, "redeliver_mw"):
        run(consumer, lambda: bool(consumer.settled) and over())
    assert q.left() == ["1"]
    assert [record.levelname for record in caplog.records if record.name.startswith("redeliver_mw")] == ["ERROR"]


# -- the driver's other examples -------------------------------------------------------------------


def test_a_selecting_receiver_gets_its_own_messages_and_dead_letters_those_that_fail(q: Queues) -> None:
    q.put("red", properties={"colour": "red"})
    q.put("1", "bad", properties={"colour": "green"})
    consumer = SelectedRecv(at(q), bad_fails)
    run(consumer, lambda: q.depth() == 1 and q.depth(q.dlq) == 1)
    assert (consumer.counts("1"), consumer.counts("bad"), consumer.counts("red")) == ([1], [1, 2], [])
    assert reasons(q.dead()) == [("bad", "exhausted", "2")]
    assert q.left() == ["red"]


@pytest.mark.parametrize("kind", [Server, ServerTx])
def test_a_server_answers_each_request_and_settles_it(q: Queues, kind: Callable[[At, Any], Any]) -> None:
    q.put("one", "two", reply_to=q.dlq)  # the dead-letter queue takes the answers
    consumer = kind(at(q), no_work)
    run(consumer, emptied(q, dead=2))
    assert sorted(m.body for m in q.dead()) == ["ONE", "TWO"]
    assert [consumer.counts(body) for body in ("one", "two")] == [[1], [1]]
    assert sorted(consumer.settled) == ["one", "two"]


def test_a_server_answers_a_request_that_fails_once_exactly_once(q: Queues) -> None:
    q.put("one", reply_to=q.dlq)
    attempts: list[str] = []

    def work(body: str) -> None:
        attempts.append(body)
        if len(attempts) == 1:
            raise ValueError("not yet")

    consumer = Server(at(q), work)
    run(consumer, emptied(q, dead=1))
    assert consumer.counts("one") == [1, 2]
    assert [m.body for m in q.dead()] == ["ONE"]


def test_a_browser_sees_every_message_and_takes_none(q: Queues) -> None:
    q.put("1", "2", "3")
    consumer = QueueBrowser(at(q), no_work)
    run(consumer, lambda: len(consumer.given) == 3)
    assert [body for body, _ in consumer.given] == ["1", "2", "3"]
    assert q.left() == ["1", "2", "3"]


def test_a_handler_that_only_ticks_ticks_as_often_when_wrapped() -> None:
    ticking = RecurringTimer(3)
    Container(redelivering(ticking, policy=TWICE)).run()
    assert ticking.left == 0


# -- transactions of the code's own ----------------------------------------------------------------


@pytest.mark.parametrize("early", [False, True], ids=["settled after", "settled before discharge"])
def test_a_batch_accepted_in_a_transaction_is_gone_when_that_is_committed(q: Queues, early: bool) -> None:
    q.put(*first(6))
    consumer = TxRecv(at(q), no_work, early=early)
    run(consumer, lambda: consumer.commits == 2 and q.depth() == 0)
    assert consumer.settled == list(first(6))
    assert {count for _, count in consumer.given} == {1}
    assert q.dead() == []


@pytest.mark.parametrize("early", [False, True], ids=["settled after", "settled before discharge"])
def test_messages_of_an_open_transaction_stay_at_the_broker(q: Queues, early: bool) -> None:
    q.put("1", "2")
    consumer = TxRecv(at(q), no_work, early=early)  # a batch of three never becomes full
    over = settle_time()
    run(consumer, lambda: len(consumer.given) == 2 and over())
    assert sorted(q.left()) == ["1", "2"]
    assert (consumer.commits, q.dead()) == (0, [])


@pytest.mark.parametrize("early", [False, True], ids=["settled after", "settled before discharge"])
def test_an_abort_is_one_failure_of_each_message_in_the_transaction(q: Queues, early: bool) -> None:
    q.put("1", "2", "3")
    consumer = AbortingTxRecv(at(q), no_work, times=1, early=early)
    run(consumer, lambda: consumer.commits == 1 and q.depth() == 0)
    assert [consumer.counts(body) for body in "123"] == [[1, 2], [1, 2], [1, 2]]
    assert q.dead() == []


def test_a_message_whose_transactions_are_aborted_is_dead_lettered_after_the_last_failure(q: Queues) -> None:
    q.put("1")
    consumer = AbortingTxRecv(at(q), no_work, times=9, batch=1)
    run(consumer, emptied(q, dead=1))
    assert (consumer.aborts, consumer.commits) == (2, 0)
    assert consumer.counts("1") == [1, 2]
    assert reasons(q.dead()) == [("1", "exhausted", "2")]


def test_a_message_that_fails_after_its_accept_in_a_transaction_is_not_committed_with_the_others(q: Queues) -> None:
    q.put("bad", "1", "2", "3")
    consumer = TxRecv(at(q), bad_fails)
    run(consumer, lambda: consumer.commits == 1 and q.depth() == 0)
    assert consumer.settled == ["1", "2", "3"]
    assert consumer.counts("bad") == [1, 2]
    assert reasons(q.dead()) == [("bad", "exhausted", "2")]


class Refused(TxRecv):
    """Sends to the dead-letter queue what the queue has already: Artemis refuses to commit such a transaction."""

    def __init__(self, place: At, work: Callable[[str], object], known: proton.Message, *, times: int, **how: Any):
        super().__init__(place, work, **how)
        self.known, self.times = known, times
        self.refusals = 0

    def on_start(self, event: Any) -> None:
        super().on_start(event)
        self.sender = event.container.create_sender(self.conn, "DLQ." + self.at.queue)

    def discharge(self) -> None:
        if self.refusals < self.times:
            self.transaction.send(self.sender, self.known)
        self.transaction.commit()

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.refusals += 1
        self.next_batch()


def test_a_commit_that_the_broker_refuses_is_one_failure(q: Queues) -> None:
    known = proton.Message(body="known", durable=True, properties={"_AMQ_DUPL_ID": q.name})
    q.put("known", address=q.dlq, properties={"_AMQ_DUPL_ID": q.name})
    q.put("1")
    consumer = Refused(at(q), no_work, known, times=1, batch=1)
    run(consumer, lambda: consumer.commits == 1 and q.depth() == 0)
    assert consumer.refusals == 1
    assert consumer.counts("1") == [1, 2]
    assert [m.body for m in q.dead()] == ["known"]


def test_a_message_that_is_accepted_at_once_after_a_refused_commit_does_not_cost_the_connection(q: Queues) -> None:
    """Artemis gives a delivery back some time after it has refused the commit, and takes no settlement until then."""
    closed: list[str] = []

    class AcceptsPlainly(Refused):
        def on_message(self, event: Any) -> None:
            if not self.refusals:
                return super().on_message(event)
            self.settled.append(self.take(event))
            return self.accept(event.delivery)

        def on_connection_error(self, event: Any) -> None:
            closed.append(str(event.connection.remote_condition))

    known = proton.Message(body="known", durable=True, properties={"_AMQ_DUPL_ID": q.name})
    q.put("known", address=q.dlq, properties={"_AMQ_DUPL_ID": q.name})
    q.put("1")
    consumer = AcceptsPlainly(at(q), no_work, known, times=1, batch=1)
    policy = RedeliveryPolicy(dead_after=2, backoff=0.0)
    run(consumer, lambda: bool(closed) or q.depth() == 0, policy=policy, delay="hold")
    assert (consumer.counts("1"), consumer.settled, closed) == ([1, 2], ["1"], [])


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_a_message_whose_commit_is_refused_twice_joins_a_third_transaction(q: Queues, delay: str) -> None:
    known = proton.Message(body="known", durable=True, properties={"_AMQ_DUPL_ID": q.name})
    q.put("known", address=q.dlq, properties={"_AMQ_DUPL_ID": q.name})
    q.put("1")
    consumer = Refused(at(q), no_work, known, times=2, batch=1)
    policy = RedeliveryPolicy(dead_after=9, backoff=0.1)
    run(consumer, lambda: consumer.commits == 1 and q.depth() == 0, policy=policy, delay=delay)
    assert (consumer.refusals, consumer.counts("1")) == (2, [1, 2, 3])


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("early", [False, True], ids=["settled after", "settled before discharge"])
def test_the_code_hears_of_its_transactions_as_without_the_wrapper(q: Queues, early: bool, wrapped: bool) -> None:
    heard: list[str] = []

    class Hearing(Refused):
        """Aborts its first transaction, has the second one refused, and commits the third one."""

        def discharge(self) -> None:
            super().discharge() if self.aborts else self.transaction.abort()

        def on_transaction_declared(self, event: Any) -> None:
            heard.append("declared")
            super().on_transaction_declared(event)

        def on_transaction_aborted(self, event: Any) -> None:
            heard.append("aborted")
            super().on_transaction_aborted(event)

        def on_transaction_commit_failed(self, event: Any) -> None:
            heard.append("commit failed")
            super().on_transaction_commit_failed(event)

        def on_transaction_committed(self, event: Any) -> None:
            heard.append("committed")
            assert event.transaction is self.transaction
            super().on_transaction_committed(event)

    known = proton.Message(body="known", durable=True, properties={"_AMQ_DUPL_ID": q.name})
    q.put("known", address=q.dlq, properties={"_AMQ_DUPL_ID": q.name})
    q.put("1", "2")
    # The bare driver releases what it has not settled right after a refused commit, which may cost it the connection.
    refusals = 1 if wrapped or early else 0
    consumer = Hearing(at(q), no_work, known, times=refusals, batch=2, early=early)
    policy = RedeliveryPolicy(dead_after=9, backoff=0.1)
    run(consumer, lambda: consumer.commits == 1 and q.depth() == 0, policy=policy, wrapped=wrapped)
    expected = ["declared", "aborted", *["declared", "commit failed"] * refusals, "declared", "committed"]
    assert heard[: len(expected)] == expected
    assert sorted(body for body, _ in consumer.given) == ["1"] * (2 + refusals) + ["2"] * (2 + refusals)


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "wrapped"])
@pytest.mark.parametrize("later", [0.0, 0.2])
def test_an_accept_whose_receiver_is_closed_before_the_commit_is_in_the_commit(
    q: Queues, later: float, wrapped: bool
) -> None:
    class Closing(TxRecv):
        def discharge(self) -> None:
            self.receiver.close()
            self.container.schedule(later, After(self.transaction.commit))

        def next_batch(self) -> None:
            """Consume nothing more."""

    q.put(*first(5))
    consumer = Closing(at(q), no_work)
    over = settle_time()
    run(consumer, lambda: consumer.commits == 1 and over(), wrapped=wrapped)
    assert q.left() == ["4", "5"]


def test_an_exception_after_the_commit_leaves_the_message_to_its_transaction(
    q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    class RaisesAfterCommit(TxRecv):
        def on_message(self, event: Any) -> None:
            super().on_message(event)
            raise ValueError("too late")

    q.put("1", "2")
    consumer = RaisesAfterCommit(at(q), no_work, batch=1)
    run(consumer, emptied(q))
    assert consumer.settled == ["1", "2"]
    assert [consumer.counts(body) for body in "12"] == [[1], [1]]
    assert [record.levelname for record in caplog.records if "its transaction" in record.message] == ["ERROR"] * 2


def test_an_abort_inside_an_except_block_carries_the_exception(q: Queues) -> None:
    class AbortsInExcept(TxRecv):
        def on_message(self, event: Any) -> None:
            try:
                super().on_message(event)
            except ValueError:
                self.transaction.abort()

    q.put("bad")
    consumer = AbortsInExcept(at(q), bad_fails, batch=1)
    run(consumer, emptied(q, dead=1))
    (dead,) = q.dead()
    assert (consumer.counts("bad"), dead.properties["redeliver_error_message"]) == ([1, 2], "bad fails")


def test_a_plain_settlement_of_what_has_joined_a_transaction_is_dropped_and_logged(
    q: Queues, caplog: pytest.LogCaptureFixture
) -> None:
    class Releasing(TxRecv):
        def on_message(self, event: Any) -> None:
            body = self.note(event)
            self.transaction.accept(event.delivery)
            self.release(event.delivery)
            self.in_batch.append(body)
            self.transaction.commit()

    q.put("1")
    consumer = Releasing(at(q), no_work, batch=1)
    run(consumer, emptied(q))
    assert (consumer.counts("1"), consumer.settled) == ([1], ["1"])
    assert [record.levelname for record in caplog.records if "dropped" in record.message] == ["ERROR"]


def test_a_connection_that_is_lost_before_the_outcome_is_neither_success_nor_failure(
    artemis244: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    class Lost(TxRecv):
        disconnects = 0

        def discharge(self) -> None:
            proxy.stall("up")
            self.transaction.commit()
            self.container.schedule(0.2, After(proxy.cut))

        def on_disconnected(self, event: Any) -> None:
            self.disconnects += 1

    with closing(Proxy(artemis244.host, artemis244.port)) as proxy:
        q = Queues(artemis244)
        through = At(f"amqp://127.0.0.1:{proxy.port}", q.name, artemis244.user, artemis244.password)
        q.put("1")
        lost = Lost(through, no_work, batch=1)
        run(lost, lambda: lost.disconnects > 0)
        proxy.resume()
        again = TxRecv(through, no_work, batch=1)
        run(again, lambda: again.commits == 1 and q.depth() == 0)
        assert (lost.counts("1"), lost.commits, again.counts("1")) == ([1], 0, [1])
        assert [record for record in caplog.records if record.name == "redeliver_mw.failures"] == []
        q.connection.close()


def test_transactions_go_on_after_a_reconnect(artemis244: Broker) -> None:
    class Reconnecting(TxRecv):
        opened = 0

        def on_start(self, event: Any) -> None:
            self.container = event.container
            login = {"user": self.at.user, "password": self.at.password, "allowed_mechs": "PLAIN"}
            self.conn = event.container.connect(self.at.url, **login)
            self.receiver = event.container.create_receiver(self.conn, self.at.queue)

        def on_connection_opened(self, event: Any) -> None:
            self.opened += 1
            self.next_batch()

        def discharge(self) -> None:
            if self.opened == 1:
                proxy.stall("up")
                self.container.schedule(0.2, After(proxy.cut))
                self.container.schedule(0.3, After(proxy.resume))
            self.transaction.commit()

    with closing(Proxy(artemis244.host, artemis244.port)) as proxy:
        q = Queues(artemis244)
        through = At(f"amqp://127.0.0.1:{proxy.port}", q.name, artemis244.user, artemis244.password)
        q.put("1", "2")
        consumer = Reconnecting(through, bad_fails, batch=1)
        run(consumer, lambda: consumer.commits == 2 and q.depth() == 0)
        assert [consumer.counts(body) for body in "12"] == [[1, 1], [1]]
        assert q.dead() == []
        q.connection.close()


def release_in_a_transaction(consumer: TxRecv, event: Any) -> None:
    consumer.transaction.update(event.delivery, proton.Delivery.RELEASED)


def send_with_the_delivery(consumer: TxRecv, event: Any) -> None:
    consumer.transaction.accept(event.delivery)
    current_delivery().send(consumer.at.queue + ".other", b"2")
    consumer.transaction.commit()


def accept_after_the_abort(consumer: TxRecv, event: Any) -> None:
    consumer.transaction.abort()
    consumer.transaction.accept(event.delivery)


@pytest.mark.parametrize("misuse", [release_in_a_transaction, send_with_the_delivery, accept_after_the_abort])
def test_what_a_transaction_cannot_have_is_a_config_error_and_no_failure_of_the_message(
    q: Queues, misuse: Callable[[TxRecv, Any], None]
) -> None:
    class Misusing(TxRecv):
        def on_message(self, event: Any) -> None:
            self.note(event)
            misuse(self, event)

    q.put("1")
    consumer = Misusing(at(q), no_work)
    ends_with_config_error(consumer)
    assert consumer.counts("1") == [1]
    assert (q.left(), q.dead()) == (["1"], [])


def test_a_transaction_that_was_never_declared_is_a_config_error_and_no_failure_of_the_message(q: Queues) -> None:
    class Unknown(Consumer):
        def on_start(self, event: Any) -> None:
            self.attach(event)

        def on_message(self, event: Any) -> None:
            self.given.append((event.message.body, event.message.properties["JMSXDeliveryCount"]))
            event.delivery.local.data = [b"\x01" * 16, proton.Described(proton.ulong(0x24), [])]
            event.delivery.update(0x34)

    q.put("1")
    consumer = Unknown(at(q), no_work, auto_accept=False)
    ends_with_config_error(consumer)
    assert consumer.counts("1") == [1]
    assert (q.left(), q.dead()) == (["1"], [])


@pytest.mark.parametrize("auto_accept", [True, False])
def test_a_config_error_of_the_codes_own_is_a_failure_like_any_exception(q: Queues, auto_accept: bool) -> None:
    class Misconfigured(SimpleRecv):
        def __init__(self, place: At) -> None:
            Consumer.__init__(self, place, self.fail, auto_accept=auto_accept)

        def fail(self, body: str) -> None:
            raise ConfigError("the database has no name", cure="Give it one")

    q.put("1")
    consumer = Misconfigured(at(q))
    run(consumer, emptied(q, dead=1))
    assert consumer.counts("1") == [1, 2]
    assert reasons(q.dead()) == [("1", "exhausted", "2")]


def ends_with_config_error(consumer: Consumer) -> None:
    """Run a wrapped consumer whose configuration is wrong: `run()` says so, and the broker has the message again."""
    container: Any = Container(redelivering(consumer, policy=TWICE), Until(consumer, lambda: False))
    with pytest.raises(ConfigError):
        container.run()
    container._collector.pop()  # else the event that raised would come again
    consumer.conn.close()
    while container.process():
        pass


# -- a window of the code's own --------------------------------------------------------------------


@pytest.mark.parametrize("delay", ["hold", "schedule"])
def test_credit_after_success_goes_on_after_a_dead_letter(q: Queues, delay: str) -> None:
    q.put("bad 1", "1", "bad 2", "2")
    consumer = OneAtATime(at(q), bad_fails)
    run(consumer, emptied(q, dead=2), delay=delay)
    assert sorted(consumer.settled) == ["1", "2"]
    assert [consumer.counts(body) for body in ("bad 1", "bad 2")] == [[1, 2], [1, 2]]
    assert reasons(q.dead()) == [("bad 1", "exhausted", "2"), ("bad 2", "exhausted", "2")]


def test_with_a_window_of_one_a_healthy_message_waits_at_most_a_second_behind_a_retrying_one(q: Queues) -> None:
    when: dict[str, float] = {}

    def work(body: str) -> None:
        when.setdefault(body, time.monotonic())
        bad_fails(body)

    q.put("bad", "good")
    consumer = OneAtATime(at(q), work)
    run(consumer, lambda: consumer.settled == ["good"], policy=RedeliveryPolicy(dead_after=2, backoff=5.0))
    assert when["good"] - when["bad"] < 1.5


def test_with_a_prefetch_of_one_a_healthy_message_waits_at_most_a_second_behind_a_retrying_one(q: Queues) -> None:
    when: dict[str, float] = {}

    class OneByOne(SimpleRecv):
        def __init__(self, place: At) -> None:
            Consumer.__init__(self, place, self.fail, prefetch=1)

        def fail(self, body: str) -> None:
            when.setdefault(body, time.monotonic())
            bad_fails(body)

    q.put("bad", "good")
    consumer = OneByOne(at(q))
    run(consumer, lambda: consumer.settled == ["good"], policy=RedeliveryPolicy(dead_after=2, backoff=5.0))
    assert when["good"] - when["bad"] < 1.5


def test_credit_after_success_keeps_one_message_in_hand(q: Queues) -> None:
    q.put(*first(6))
    consumer = OneAtATime(at(q), no_work, after=0.03)
    run(consumer, emptied(q))
    assert consumer.settled == list(first(6))
    assert consumer.most_in_hand == 1


def test_credit_that_the_code_gives_after_each_failure_is_not_given_twice(q: Queues) -> None:
    bodies = [f"bad {number}" for number in range(4)] + list(first(4))
    q.put(*bodies)
    consumer = OneAtATime(at(q), bad_fails, after=0.03, always=True)
    run(consumer, emptied(q, dead=4), delay="schedule")
    assert sorted(consumer.settled) == list(first(4))
    assert consumer.most_in_hand == 1


# -- what cannot be right --------------------------------------------------------------------------


def test_an_unknown_settle_is_refused_with_the_cure() -> None:
    with pytest.raises(ConfigError, match="settle") as caught:
        redelivering(MessagingHandler(), policy=TWICE, settle="sometimes")
    assert caught.value.cure


def test_a_handler_that_is_wrapped_twice_is_refused_with_the_cure() -> None:
    once = redelivering(MessagingHandler(), policy=TWICE)
    with pytest.raises(ConfigError, match="already") as caught:
        redelivering(once, policy=TWICE)
    assert caught.value.cure


def test_a_peer_that_does_not_name_its_product_is_refused_before_the_first_message() -> None:
    peer = NamelessPeer()
    listening = Container(peer)
    thread = threading.Thread(target=listening.run, daemon=True)
    thread.start()
    assert peer.listening.wait(5)
    consumer = SimpleRecv(At(f"amqp://127.0.0.1:{peer.port}", "orders"), no_work)
    ends_with_config_error(consumer)
    thread.join(5)
    assert not thread.is_alive()
    assert (consumer.given, peer.outcomes) == ([], [])
