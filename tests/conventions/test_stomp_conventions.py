# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A stomp.py consumer keeps its guarantees when it is wrapped, on a real ActiveMQ; and its failures are redelivered.

In the ack mode `auto` returning is success. In `client` and `client-individual` the code's own ACK and NACK settle,
whenever they come and from whichever thread; returning alone settles nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import stomp

from redeliver_mw import RedeliveryPolicy, current_delivery
from redeliver_mw.errors import ConfigError
from redeliver_mw.journal import Journal, read_segments
from redeliver_stomp import redelivering
from tests.adapters.stomp.dropins import connect, new_name, put
from tests.adapters.stomp.plain import Plain, Seen
from tests.brokers import Broker
from tests.conventions.stomp_consumers import (
    SHAPES,
    WRAPS,
    AcksFromThread,
    Consumer,
    Diary,
    Login,
    NacksFailures,
    WorksInTransaction,
    Wrap,
    plain,
    wrapped,
)
from tests.faults.proxy import Proxy

pytestmark = pytest.mark.broker

REPOSITORY = Path(__file__).resolve().parents[2]
SHORT = RedeliveryPolicy(dead_after=3, backoff=0.2)
LONG = RedeliveryPolicy(dead_after=3, backoff=8.0)  # what fails is held until the test is over
MOMENT = 0.4  # seconds in which what must not happen would have happened
BOTH_WAYS = pytest.mark.parametrize("how", WRAPS)
BOTH_VERSIONS = pytest.mark.parametrize("kind", [stomp.Connection11, stomp.Connection12], ids=["1.1", "1.2"])
Act = Callable[["Asked", Any], object]


class Asked(Consumer):
    """Does with each message what a test asks for, and keeps the frames: a test's own thread settles them later."""

    def __init__(self, *args: Any, act: Act = lambda *_: None, mode: str = "client-individual", **options: Any) -> None:
        super().__init__(*args, **options)
        self.ack_mode = mode
        self.frames: dict[str, Any] = {}
        self.act = act

    def on_message(self, frame: Any) -> None:
        self.frames[frame.body] = frame
        self.diary.write("got", frame.body)
        try:
            self.act(self, frame)
        finally:
            self.diary.write("returned", frame.body)

    def count(self, body: str) -> str:
        """Return the delivery count that the code saw last."""
        return str(self.frames[body].headers["JMSXDeliveryCount"])


@pytest.fixture
def proxy(activemq63: Broker) -> Iterator[Proxy]:
    """Yield a way to the broker that can be cut."""
    found = Proxy(activemq63.host, activemq63.port)
    yield found
    found.close()


def login(broker: Broker, port: int = 0) -> Login:
    return Login(broker.host, port or broker.port, broker.user, broker.password)


@contextlib.contextmanager
def running(
    broker: Broker,
    queue: str,
    shape: type[Consumer] = Asked,
    *,
    wrap: Wrap = wrapped,
    work: Any = lambda _: None,
    kind: Any = stomp.Connection12,
    port: int = 0,
    **more: Any,
) -> Iterator[Any]:
    """Yield a consumer of this shape, wrapped or plain, from its SUBSCRIBE until it has disconnected."""
    conn = connect(broker, port=port, kind=kind)
    consumer = shape(conn, login(broker, port), queue, work, Diary(), **more)
    conn.set_listener("", wrap(consumer, conn))
    consumer.connect_and_subscribe()
    try:
        yield consumer
    finally:
        consumer.stop()


def wrapping(**options: Any) -> Wrap:
    """Return the changed line with these options."""
    return lambda listener, conn: redelivering(listener, conn, **{"policy": SHORT, **options})


def bodies(broker: Broker, queue: str, least: int = 0) -> list[str]:
    """Take what lies in a queue, and return the bodies in order of their text."""
    return sorted(seen.body.decode() for seen in taken(broker, queue, least))


def taken(broker: Broker, queue: str, least: int = 0) -> list[Seen]:
    """Take what lies in a queue: at least so many, and what follows them within half a moment."""
    witness = Plain(broker)
    found: list[Seen] = []
    witness.say("SUBSCRIBE", {"id": "w", "destination": f"/queue/{queue}", "ack": "client-individual"})
    while (frame := witness.wait(5.0 if len(found) < least else MOMENT / 2)) is not None:
        found.append(frame)
        witness.say("ACK", {"id": frame.headers["ack"]})
    witness.close()
    return found


def until_left(broker: Broker, queue: str, *left: str) -> None:
    """Wait until a queue has these messages alone, also in flight: a callback returns before its message is settled."""
    until(lambda: browsed(broker, queue) == list(left), within=20.0)


def browsed(broker: Broker, queue: str) -> list[str]:
    """Return the bodies of all messages of a queue, those in flight included."""
    witness = Plain(broker)
    witness.say("SUBSCRIBE", {"id": "b", "destination": f"/queue/{queue}", "ack": "auto", "browser": "true"})
    found = []
    while (frame := witness.wait(20.0)) is not None and frame.headers.get("browser") != "end":
        found.append(frame.body.decode())
    assert frame is not None, "the broker has not said that these are all"
    witness.close()
    return found


def errors(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the library's messages of level ERROR that have all these words in them."""
    return _logged(caplog, logging.ERROR, words)


def warnings(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """Return the library's messages of level WARNING or above that have all these words in them."""
    return _logged(caplog, logging.WARNING, words)


def _logged(caplog: pytest.LogCaptureFixture, level: int, words: tuple[str, ...]) -> list[str]:
    ours = [r for r in caplog.records if r.name.startswith("redeliver_mw") and r.levelno >= level]
    return [text for text in (r.getMessage() for r in ours) if all(word in text for word in words)]


def until(done: Callable[[], Any], within: float = 5.0) -> None:
    """Wait for something that no diary tells of."""
    pause, waited = threading.Event(), 0.0
    while not done():
        assert waited < within, "it took too long"
        pause.wait(0.02)
        waited += 0.02


# -- kill -9 in the middle of work ---------------------------------------------------------------------------

UNSETTLED = {  # shape: the message whose work never ends, and what the code has not settled by then
    "AcksAfterWork": ("5", "56789"),
    "AcksEveryFifth": ("7", "56789"),
    "AcksFromThread": ("5", "56789"),
    "LeavesSomeUnacked": ("8", "135789"),
    "NacksFailures": ("5", "56789"),
    "WorksInTransaction": ("5", "56789"),
    "AcksBatchInTransaction": ("7", "56789"),
}


def killed_at(broker: Broker, shape: str, how: str, queue: str, stops_at: str) -> None:
    """Run a consumer as a program, and kill it once its work on `stops_at` has begun and can go no further."""
    address = f"{broker.host} {broker.port} {broker.user} {broker.password}"
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.conventions.stomp_consumers", shape, how, queue, stops_at],
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "BROKER": address, "PYTHONPATH": os.pathsep.join([".", "adapters"])},
    )
    limit = threading.Timer(30, program.kill)
    limit.start()
    with program:
        assert program.stdout is not None
        awaited = {f"works on {stops_at}\n"}
        if shape == "AcksFromThread":  # its `on_message` goes on, and has returned for all but the last one
            awaited.add("got 9\n")
        for line in program.stdout:
            awaited.discard(line)
            if not awaited:
                break
        assert not awaited, "it ended before its work had begun"
        put(broker, queue, "x")  # what the wrapper still has to send goes out, at the latest when it reads a frame
        threading.Event().wait(MOMENT / 2)
        program.send_signal(signal.SIGKILL)
    limit.cancel()


@BOTH_WAYS
@pytest.mark.parametrize("shape", UNSETTLED)
def test_after_a_kill_in_the_middle_of_work_nothing_is_lost_that_the_code_had_not_settled(
    shape: str, how: str, activemq63: Broker
) -> None:
    queue, (stops_at, unsettled) = new_name(), UNSETTLED[shape]
    put(activemq63, queue, *"0123456789")
    killed_at(activemq63, shape, how, queue, stops_at)
    assert set(unsettled) <= set(bodies(activemq63, queue, len(unsettled)))
    committed = "01234" if "Transaction" in shape else ""
    assert bodies(activemq63, f"{queue}.results", len(committed)) == list(committed)
    assert bodies(activemq63, f"DLQ.{queue}") == []


def test_after_a_kill_a_wrapped_consumer_in_the_mode_auto_has_lost_nothing_that_it_had_not_finished(
    activemq63: Broker,
) -> None:
    """The broker forgets what it has sent to a plain one."""
    queue = new_name()
    put(activemq63, queue, *"0123456789")
    killed_at(activemq63, "Consumer", "wrapped", queue, "5")
    assert set("56789") <= set(bodies(activemq63, queue, 5))


# -- what settles --------------------------------------------------------------------------------------------


@BOTH_WAYS
@BOTH_VERSIONS
def test_returning_alone_settles_nothing_in_the_mode_client_individual(how: str, kind: Any, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=WRAPS[how], kind=kind) as consumer:
        assert consumer.diary.has("returned", "b")
        consumer.ack(consumer.frames["b"])
    assert bodies(activemq63, queue, 1) == ["a"]


@BOTH_WAYS
def test_returning_alone_settles_nothing_in_the_mode_client(how: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=WRAPS[how], mode="client") as consumer:
        assert consumer.diary.has("returned", "b")
    assert bodies(activemq63, queue, 2) == ["a", "b"]


@pytest.mark.parametrize("options", [{}, {"settle": None}], ids=["not given", "None"])
def test_returning_is_success_in_the_mode_auto(options: dict[str, Any], activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=wrapping(**options), mode="auto") as consumer:
        assert consumer.diary.has("returned", "b")
        until_left(activemq63, queue)
    assert bodies(activemq63, queue) == []


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_settle_return_makes_returning_success_in_every_mode(mode: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=wrapping(settle="return"), mode=mode) as consumer:
        assert consumer.diary.has("returned", "b")
        until_left(activemq63, queue)
    assert bodies(activemq63, queue) == []


def test_settle_callback_makes_the_codes_own_ack_decide_in_the_mode_auto(activemq63: Broker) -> None:
    """The wrapper has made the subscription's mode `client-individual`, so that there is an ack header to use."""
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=wrapping(settle="callback"), mode="auto") as consumer:
        assert consumer.diary.has("returned", "b")
        consumer.ack(consumer.frames["b"])
    assert bodies(activemq63, queue, 1) == ["a"]


@pytest.mark.parametrize("mode", ["auto", "client", "client-individual"])
def test_an_exception_is_a_failure_in_every_mode(mode: str, activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        raise ValueError("no")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act, mode=mode) as consumer:
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert len(consumer.diary.about("got")) == 3
    assert letter.headers["redeliver_error_type"].endswith("ValueError")
    assert bodies(activemq63, queue) == []


@BOTH_WAYS
def test_an_ack_from_another_thread_settles_before_a_disconnect_that_follows_it(how: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a")
    with running(activemq63, queue, wrap=WRAPS[how]) as consumer:
        assert consumer.diary.has("returned", "a")
        consumer.ack(consumer.frames["a"])
    assert bodies(activemq63, queue) == []


@BOTH_WAYS
def test_an_ack_from_another_thread_does_not_wait_for_a_callback_that_runs(how: str, activemq63: Broker) -> None:
    go_on = threading.Event()

    def act(consumer: Asked, frame: Any) -> None:
        if frame.body == "b":
            assert go_on.wait(10)

    queue = new_name()
    put(activemq63, queue, "a", "b", "c")
    with running(activemq63, queue, wrap=WRAPS[how], act=act) as consumer:
        assert consumer.diary.has("got", "b")
        consumer.ack(consumer.frames["a"])
        consumer.connects_again = False
        consumer.conn.transport.disconnect_socket()  # as good as a kill, with the callback still in its work
        assert bodies(activemq63, queue, 2) == ["b", "c"]
        go_on.set()


def test_an_ack_from_another_thread_counts_when_the_callback_raises_after_it(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        worker = threading.Thread(target=consumer.ack, args=(frame,))
        worker.start()
        worker.join(10)
        raise ValueError("after the ack")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act) as consumer:
        assert consumer.diary.has("returned", "m")
        until(lambda: errors(caplog, "raised after that"))
        assert consumer.diary.about("error") == []
    assert consumer.diary.about("got") == ["m"]
    assert bodies(activemq63, queue) == bodies(activemq63, f"DLQ.{queue}") == []


def test_each_message_is_settled_once_when_acks_nacks_and_exceptions_race(activemq63: Broker, journal: Counted) -> None:
    """The first of them counts: an ACK ends the message, and after anything else it comes again."""
    with ThreadPoolExecutor(4) as workers:

        def act(consumer: Asked, frame: Any) -> None:
            kind = int(frame.body) % 3 if int(frame.headers["JMSXDeliveryCount"]) < 4 else 0
            workers.submit(consumer.ack, frame)
            if kind:
                workers.submit(consumer.nack, frame)
            if kind == 2:
                raise ValueError("no")

        queue, many = new_name(), [str(number) for number in range(300)]
        put(activemq63, queue, *many)
        policy = RedeliveryPolicy(dead_after=10, backoff=0.05)
        with running(activemq63, queue, wrap=wrapping(policy=policy, journal=journal), act=act) as consumer:
            until(lambda: set(consumer.diary.about("got")) == set(many), 30.0)
            until(lambda: not vars(consumer.conn)["_redeliver_scope"].open_runs(), 30.0)
            assert consumer.diary.about("error") == []
    attempts = journal.outcomes(300)
    assert [outcome for outcome, _ in attempts].count("accepted") == 300
    assert len(attempts) == len(consumer.diary.about("got"))
    assert bodies(activemq63, queue) == bodies(activemq63, f"DLQ.{queue}") == []


@BOTH_WAYS
def test_with_a_window_of_one_the_next_message_comes_when_the_code_has_settled(how: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=WRAPS[how], headers={"activemq.prefetchSize": "1"}) as consumer:
        assert consumer.diary.has("returned", "a")
        assert not consumer.diary.has("got", "b", within=MOMENT)
        consumer.ack(consumer.frames["a"])
        assert consumer.diary.has("returned", "b")
    assert bodies(activemq63, queue, 1) == ["b"]


@BOTH_VERSIONS
def test_a_nack_that_comes_after_the_callback_is_a_failure_that_is_retried(kind: Any, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, kind=kind) as consumer:
        for times in (1, 2, 3):
            assert consumer.diary.has("returned", "m", times=times)
            assert consumer.count("m") == str(times)
            consumer.nack(consumer.frames["m"])
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert letter.headers["redeliver_failures"] == "3"
    assert bodies(activemq63, queue) == []


def test_a_worker_thread_that_nacks_gets_the_message_again_and_its_error_is_in_the_dead_letter(
    activemq63: Broker,
) -> None:
    def work(body: str) -> None:
        if body == "dies":
            raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "dies", "lives")
    with running(activemq63, queue, AcksFromThread, work=work) as consumer:
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert consumer.diary.about("nacked") == ["dies"] * 3
    assert letter.headers["redeliver_error_type"].endswith("LookupError")
    assert letter.headers["redeliver_error_message"] == "no such customer"
    assert bodies(activemq63, queue) == []


def test_a_nack_inside_except_carries_the_exception_into_the_dead_letter(activemq63: Broker) -> None:
    def work(_body: str) -> None:
        raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, NacksFailures, work=work):
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert letter.headers["redeliver_error_type"].endswith("LookupError")
    assert letter.headers["redeliver_error_message"] == "no such customer"
    assert letter.headers["redeliver_failures"] == "3"


def test_a_nack_outside_except_does_not_borrow_an_exception_that_was_handled_before(activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        with contextlib.suppress(LookupError):
            raise LookupError("was handled")
        consumer.nack(frame)

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act):
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert "LookupError" not in letter.headers["redeliver_error_type"]


def test_a_message_that_the_code_leaves_unacked_is_not_redelivered_before_it_is_the_brokers_again(
    activemq63: Broker, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, port=proxy.port) as consumer:
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
        proxy.cut()
        assert consumer.diary.has("got", "m", times=2)
        assert consumer.count("m") == "1"  # it was no failure
    assert bodies(activemq63, queue, 1) == ["m"]
    assert warnings(caplog) == []


# -- cumulative acks -----------------------------------------------------------------------------------------


@BOTH_WAYS
@BOTH_VERSIONS
def test_an_ack_in_the_mode_client_covers_what_came_before_it_and_nothing_after(
    how: str, kind: Any, activemq63: Broker
) -> None:
    queue = new_name()
    put(activemq63, queue, *"abcde")
    with running(activemq63, queue, wrap=WRAPS[how], kind=kind, mode="client") as consumer:
        assert consumer.diary.has("returned", "e")
        consumer.ack(consumer.frames["c"], receipt="acked c")
        assert consumer.diary.has("receipt", "acked c")
    assert bodies(activemq63, queue, 2) == ["d", "e"]


@BOTH_WAYS
def test_an_ack_in_the_mode_client_covers_its_own_subscription_alone(how: str, activemq63: Broker) -> None:
    one, other = new_name(), new_name()
    put(activemq63, one, "a", "b")
    put(activemq63, other, "x", "y")
    with running(activemq63, one, wrap=WRAPS[how], mode="client") as consumer:
        assert consumer.diary.has("returned", "b")
        consumer.subscribe("2", other)
        assert consumer.diary.has("returned", "y")
        consumer.ack(consumer.frames["y"])
    assert bodies(activemq63, one, 2) == ["a", "b"]
    assert bodies(activemq63, other) == []


def test_an_ack_in_the_mode_client_does_not_cover_a_message_that_waits_for_its_redelivery(activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        if frame.body == "b":
            raise ValueError("no")
        if frame.body == "e":
            consumer.ack(frame)

    queue = new_name()
    put(activemq63, queue, *"abcde")
    with running(activemq63, queue, wrap=wrapping(policy=LONG), act=act, mode="client") as consumer:
        assert consumer.diary.has("returned", "e")
        until_left(activemq63, queue, "b")
    assert bodies(activemq63, queue, 1) == ["b"]


def test_a_redelivered_message_is_covered_by_the_ack_of_one_that_the_code_got_after_it(activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        if frame.body == "a" and consumer.count("a") == "1":
            raise ValueError("no")
        if frame.body == "last":
            consumer.ack(frame)

    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, act=act, mode="client") as consumer:
        assert consumer.diary.has("returned", "a", times=2)
        put(activemq63, queue, "last")
        assert consumer.diary.has("returned", "last")
        until_left(activemq63, queue)
    assert consumer.diary.about("got") == ["a", "b", "a", "last"]
    assert bodies(activemq63, queue) == bodies(activemq63, f"DLQ.{queue}") == []


def test_a_nack_in_the_mode_client_is_the_failure_of_one_message(activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, *"abc")
    with running(activemq63, queue, mode="client") as consumer:
        assert consumer.diary.has("returned", "c")
        consumer.nack(consumer.frames["b"])
        assert consumer.diary.has("got", "b", times=2)
        assert consumer.count("b") == "2"
        assert (consumer.count("a"), consumer.count("c")) == ("1", "1")
    assert bodies(activemq63, queue, 3) == ["a", "b", "c"]


# -- reconnects ----------------------------------------------------------------------------------------------


@BOTH_WAYS
def test_a_consumer_that_connects_again_gets_what_it_had_not_acked(how: str, activemq63: Broker, proxy: Proxy) -> None:
    go_on = threading.Event()

    def work(_body: str) -> None:
        assert go_on.wait(10)

    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, AcksFromThread, wrap=WRAPS[how], work=work, port=proxy.port) as consumer:
        assert consumer.diary.has("got", "b")
        proxy.cut()
        assert consumer.diary.has("got", "b", times=2)
        go_on.set()
        assert consumer.diary.has("acked", "b", times=2)
    assert bodies(activemq63, queue) == []


def test_an_ack_that_comes_after_a_reconnect_is_logged_as_an_error_and_not_sent(
    activemq63: Broker, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, port=proxy.port) as consumer:
        assert consumer.diary.has("returned", "m")
        late = consumer.frames["m"]
        proxy.cut()
        assert consumer.diary.has("returned", "m", times=2)
        consumer.ack(late)
        until(lambda: errors(caplog))
        assert consumer.diary.about("error") == []  # the broker has seen nothing of it
    assert bodies(activemq63, queue, 1) == ["m"]
    (said,) = errors(caplog)
    assert queue in said


# -- the code's own transactions -----------------------------------------------------------------------------


class Counted:
    """Keeps a journal in a folder, and counts what it is given."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._journal = folder, Journal(folder)
        self.appended = 0

    def append(self, record: Any, /) -> None:
        self._journal.append(record)
        self.appended += 1

    def close(self, timeout: float = 5.0) -> None:
        self._journal.close(timeout)

    def outcomes(self, least: int) -> list[tuple[str, int]]:
        """Wait for so many attempts and close the journal; return the outcome and delivery count of each attempt."""
        until(lambda: self.appended >= least)
        self.close()
        return [(record.outcome, record.delivery_count) for record in read_segments(self._folder)]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Counted]:
    found = Counted(tmp_path / "journal")
    yield found
    found.close()


def begun(consumer: Asked, body: str) -> str:
    """Begin a transaction, send a result in it, and ack the message in it."""
    transaction: str = consumer.conn.begin()
    consumer.conn.send(f"/queue/{consumer.queue}.results", body, transaction=transaction)
    consumer.ack(consumer.frames[body], transaction=transaction)
    return transaction


@BOTH_WAYS
def test_a_commit_settles_the_messages_that_were_acked_in_its_transaction(how: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, WorksInTransaction, wrap=WRAPS[how]) as consumer:
        assert consumer.diary.has("acked", "b")
        assert bodies(activemq63, f"{queue}.results", 2) == ["a", "b"]
    assert bodies(activemq63, queue) == []


@BOTH_VERSIONS
def test_the_attempt_of_a_message_is_a_success_when_the_commit_is_answered(
    kind: Any, activemq63: Broker, journal: Counted
) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        if consumer.count("m") == "1":
            raise ValueError("no")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=wrapping(journal=journal), act=act, kind=kind) as consumer:
        assert consumer.diary.has("returned", "m", times=2)
        transaction = begun(consumer, "m")
        assert bodies(activemq63, f"{queue}.results") == []
        consumer.conn.commit(transaction, receipt="committed")
        assert consumer.diary.has("receipt", "committed")
    assert journal.outcomes(2) == [("redelivered", 1), ("accepted", 2)]
    assert bodies(activemq63, f"{queue}.results", 1) == ["m"]
    assert bodies(activemq63, queue) == bodies(activemq63, f"DLQ.{queue}") == []


def test_a_commit_without_a_receipt_of_the_users_counts_and_shows_none(activemq63: Broker, journal: Counted) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=wrapping(journal=journal)) as consumer:
        assert consumer.diary.has("returned", "m")
        consumer.conn.commit(begun(consumer, "m"))
        assert bodies(activemq63, f"{queue}.results", 1) == ["m"]
    assert consumer.diary.about("receipt") == ["bye"]
    assert journal.outcomes(1) == [("accepted", 1)]


def test_a_message_whose_commit_is_not_answered_is_no_success_and_comes_again(
    activemq63: Broker, proxy: Proxy, journal: Counted
) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=wrapping(journal=journal), port=proxy.port) as consumer:
        assert consumer.diary.has("returned", "m")
        transaction = begun(consumer, "m")
        proxy.stall("up")  # the COMMIT does not arrive
        consumer.conn.commit(transaction)
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
        proxy.cut()
        proxy.resume()
        assert consumer.diary.has("returned", "m", times=2)
        assert consumer.count("m") == "1"
        consumer.ack(consumer.frames["m"])
    assert journal.outcomes(1) == [("accepted", 1)]
    assert bodies(activemq63, queue) == bodies(activemq63, f"{queue}.results") == []


@BOTH_WAYS
@BOTH_VERSIONS
def test_after_an_abort_the_message_can_be_acked_again(how: str, kind: Any, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=WRAPS[how], kind=kind) as consumer:
        assert consumer.diary.has("returned", "b")
        consumer.conn.abort(begun(consumer, "a"))
        consumer.ack(consumer.frames["a"], receipt="acked")
        assert consumer.diary.has("receipt", "acked")
        consumer.conn.commit(begun(consumer, "b"), receipt="committed")
        assert consumer.diary.has("receipt", "committed")
    assert bodies(activemq63, queue) == []
    assert bodies(activemq63, f"{queue}.results", 1) == ["b"]


@BOTH_WAYS
def test_after_an_abort_and_silence_the_message_stays_at_the_broker(how: str, activemq63: Broker) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=WRAPS[how]) as consumer:
        assert consumer.diary.has("returned", "m")
        consumer.conn.abort(begun(consumer, "m"))
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
    assert bodies(activemq63, queue, 1) == ["m"]
    assert bodies(activemq63, f"{queue}.results") == []


def test_an_abort_and_a_nack_are_one_failure_and_the_dead_letter_has_its_error(activemq63: Broker) -> None:
    def work(_body: str) -> None:
        raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, WorksInTransaction, work=work) as consumer:
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert consumer.diary.about("nacked") == ["m"] * 3
    assert letter.headers["redeliver_failures"] == "3"
    assert letter.headers["redeliver_error_type"].endswith("LookupError")
    assert bodies(activemq63, queue) == bodies(activemq63, f"{queue}.results") == []


def test_an_abort_and_an_exception_are_one_failure(activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        transaction = begun(consumer, frame.body)
        consumer.conn.abort(transaction)
        raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act) as consumer:
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
    assert len(consumer.diary.about("got")) == 3
    assert letter.headers["redeliver_failures"] == "3"
    assert bodies(activemq63, queue) == bodies(activemq63, f"{queue}.results") == []


def test_a_dead_letter_goes_out_beside_the_codes_open_transaction_and_does_not_end_it(activemq63: Broker) -> None:
    def act(_consumer: Asked, frame: Any) -> None:
        if frame.body == "dies":
            raise ValueError("no")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=wrapping(policy=RedeliveryPolicy(dead_after=1)), act=act) as consumer:
        assert consumer.diary.has("returned", "m")
        transaction = begun(consumer, "m")
        put(activemq63, queue, "dies")
        assert bodies(activemq63, f"DLQ.{queue}", 1) == ["dies"]
        assert bodies(activemq63, f"{queue}.results") == []
        consumer.conn.abort(transaction)
        consumer.ack(consumer.frames["m"], receipt="acked")
        assert consumer.diary.has("receipt", "acked")
    assert bodies(activemq63, queue) == bodies(activemq63, f"{queue}.results") == []


@BOTH_WAYS
def test_an_ack_in_a_transaction_in_the_mode_client_covers_what_came_before_it_once_committed(
    how: str, activemq63: Broker
) -> None:
    queue = new_name()
    put(activemq63, queue, *"abcde")
    with running(activemq63, queue, wrap=WRAPS[how], mode="client") as consumer:
        assert consumer.diary.has("returned", "e")
        consumer.conn.abort(begun(consumer, "d"))
        consumer.conn.commit(begun(consumer, "c"), receipt="committed")
        assert consumer.diary.has("receipt", "committed")
    assert bodies(activemq63, queue, 2) == ["d", "e"]


def test_a_nack_in_a_transaction_is_refused_and_is_no_failure_of_the_message(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """ActiveMQ takes none: `Poison ack cannot be transacted`."""
    refused: list[ConfigError] = []

    def act(consumer: Asked, frame: Any) -> None:
        transaction = consumer.conn.begin()
        try:
            consumer.nack(frame, transaction=transaction)
        except ConfigError as error:
            refused.append(error)
            consumer.conn.abort(transaction)
            consumer.nack(frame)  # as the except: block of a callback does, which would count the ConfigError

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act) as consumer:
        assert consumer.diary.has("returned", "m")
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
        assert consumer.diary.about("error") == []
    assert "without transaction=" in refused[0].cure
    assert bodies(activemq63, queue, 1) == ["m"]
    assert len(errors(caplog, "stays unsettled")) == 1


def test_an_exception_after_an_ack_in_its_own_transaction_aborts_that_and_is_a_failure(activemq63: Broker) -> None:
    """Without the wrapper, too, the exception ends the connection and the transaction with it."""

    def act(consumer: Asked, frame: Any) -> None:
        begun(consumer, frame.body)
        raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, act=act) as consumer:
        (letter,) = taken(activemq63, f"DLQ.{queue}", 1)
        assert consumer.diary.about("error") == []
    assert len(consumer.diary.about("got")) == 3
    assert letter.headers["redeliver_failures"] == "3"
    assert letter.headers["redeliver_error_type"].endswith("LookupError")
    assert bodies(activemq63, queue) == bodies(activemq63, f"{queue}.results") == []


def test_a_transaction_that_was_aborted_because_its_callback_raised_cannot_be_committed(activemq63: Broker) -> None:
    names: list[str] = []

    def act(consumer: Asked, frame: Any) -> None:
        names.append(begun(consumer, frame.body))
        raise LookupError("no such customer")

    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, wrap=wrapping(policy=LONG), act=act) as consumer:
        assert consumer.diary.has("returned", "b")
        until(lambda: all(run.in_hand is False for run in vars(consumer.conn)["_redeliver_scope"].open_runs()))
        with pytest.raises(ConfigError, match="aborted"):
            consumer.conn.commit(names[0])
        consumer.conn.abort(names[1], receipt="aborted")
        assert consumer.diary.has("receipt", "aborted")
        assert consumer.diary.about("error") == []
    assert bodies(activemq63, queue, 2) == ["a", "b"]
    assert bodies(activemq63, f"{queue}.results") == []


@pytest.mark.parametrize("end", ["commit", "abort", "cut"])
def test_an_exception_after_an_ack_in_a_transaction_begun_elsewhere_counts_unless_that_is_committed(
    end: str, activemq63: Broker, proxy: Proxy
) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        if consumer.count("m") == "1":
            consumer.ack(frame, transaction="batch")
            raise LookupError("no such customer")

    queue = new_name()
    with running(activemq63, queue, act=act, port=proxy.port) as consumer:
        consumer.conn.begin("batch")
        put(activemq63, queue, "m")
        assert consumer.diary.has("returned", "m")
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
        if end == "cut":
            proxy.cut()
        else:
            getattr(consumer.conn, end)("batch")
        assert consumer.diary.has("returned", "m", times=2, within=MOMENT if end == "commit" else 5.0) == (
            end != "commit"
        )
        assert consumer.count("m") == ("1" if end == "commit" else "2")
    assert bodies(activemq63, queue, end != "commit") == ([] if end == "commit" else ["m"])


def test_a_refused_ack_in_a_transaction_settles_nothing_and_its_commit_the_others(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The COMMIT of one transaction makes ActiveMQ forget what was acked in another, which is then aborted."""
    queue = new_name()
    put(activemq63, queue, "a", "b", "c")
    with running(activemq63, queue) as consumer:
        assert consumer.diary.has("returned", "c")
        first = begun(consumer, "a")
        consumer.conn.commit(begun(consumer, "b"))
        consumer.conn.abort(first)
        second = begun(consumer, "a")
        consumer.ack(consumer.frames["c"], transaction=second, receipt="acked c")
        consumer.conn.commit(second, receipt="committed")
        assert consumer.diary.has("receipt", "committed")
        assert consumer.diary.about("receipt") == ["acked c", "committed"]
        until(lambda: errors(caplog))
    (said,) = errors(caplog)
    assert queue in said
    assert second in said
    (shown,) = consumer.diary.about("error")
    assert "Unexpected ACK" in shown
    assert bodies(activemq63, queue, 1) == ["a"]


def test_a_refused_commit_is_neither_success_nor_failure_and_the_code_sees_its_error(
    activemq63: Broker, caplog: pytest.LogCaptureFixture, journal: Counted
) -> None:
    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, wrap=wrapping(journal=journal)) as consumer:
        assert consumer.diary.has("returned", "m")
        consumer.ack(consumer.frames["m"], transaction="never begun")
        consumer.conn.commit("never begun", receipt="committed")
        until(lambda: len(consumer.diary.about("error")) == 2)
        until(lambda: errors(caplog))
        assert not consumer.diary.has("got", "m", times=2, within=MOMENT)
        consumer.ack(consumer.frames["m"], receipt="acked")
        assert consumer.diary.has("receipt", "acked")
    assert journal.outcomes(1) == [("accepted", 1)]
    assert bodies(activemq63, queue) == []


def test_what_a_callback_sends_goes_out_with_the_transaction_that_settles_its_message(activemq63: Broker) -> None:
    def act(consumer: Asked, frame: Any) -> None:
        current_delivery().send(f"{consumer.queue}.next", f"of {frame.body}")

    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, act=act) as consumer:
        assert consumer.diary.has("returned", "b")
        consumer.conn.abort(begun(consumer, "a"))
        first = begun(consumer, "a")
        assert bodies(activemq63, f"{queue}.next") == []
        consumer.conn.commit(first, receipt="committed")
        assert consumer.diary.has("receipt", "committed")
        assert bodies(activemq63, f"{queue}.next", 1) == ["of a"]
        consumer.ack(consumer.frames["b"])
        assert bodies(activemq63, f"{queue}.next", 1) == ["of b"]
    assert bodies(activemq63, queue) == []


def test_many_threads_commit_transactions_while_dead_letters_go_out_beside_them(
    activemq63: Broker, journal: Counted
) -> None:
    def work(consumer: Asked, body: str) -> None:
        consumer.conn.commit(begun(consumer, body))

    with ThreadPoolExecutor(4) as workers:

        def act(consumer: Asked, frame: Any) -> None:
            if int(frame.body) % 4 == 0:
                raise ValueError("no")
            workers.submit(work, consumer, frame.body)

        queue, many = new_name(), [str(number) for number in range(200)]
        put(activemq63, queue, *many)
        policy = RedeliveryPolicy(dead_after=2, backoff=0.05)
        with running(activemq63, queue, wrap=wrapping(policy=policy, journal=journal), act=act) as consumer:
            until(lambda: set(consumer.diary.about("got")) == set(many), 30.0)
            until(lambda: not vars(consumer.conn)["_redeliver_scope"].open_runs(), 30.0)
            assert consumer.diary.about("error") == []
            assert consumer.diary.about("receipt") == []
    outcomes = [outcome for outcome, _ in journal.outcomes(250)]
    assert sorted(set(outcomes)) == ["accepted", "dead_lettered", "redelivered"]
    assert [outcomes.count(each) for each in ("accepted", "dead_lettered", "redelivered")] == [150, 50, 50]
    assert sorted(bodies(activemq63, f"{queue}.results", 150), key=int) == [b for b in many if int(b) % 4]
    assert sorted(bodies(activemq63, f"DLQ.{queue}", 50), key=int) == [b for b in many if int(b) % 4 == 0]
    assert bodies(activemq63, queue) == []


def test_a_transaction_is_nothing_to_warn_of(activemq63: Broker, caplog: pytest.LogCaptureFixture) -> None:
    queue = new_name()
    put(activemq63, queue, "a", "b")
    with running(activemq63, queue, WorksInTransaction):
        assert bodies(activemq63, f"{queue}.results", 2) == ["a", "b"]
    assert warnings(caplog) == []


# -- what cannot be kept is said -----------------------------------------------------------------------------


def subscribed_before_it_was_wrapped(
    broker: Broker, queue: str, mode: str, port: int = 0, kind: Any = stomp.Connection12
) -> Asked:
    conn = connect(broker, port=port, kind=kind)
    consumer = Asked(conn, login(broker, port), queue, None, Diary(), mode=mode)
    conn.set_listener("", consumer)
    consumer.connect_and_subscribe()
    conn.set_listener("", wrapped(consumer, conn))
    return consumer


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_a_listener_wrapped_after_subscribe_is_an_error_at_its_first_message_and_settles_nothing(
    mode: str, activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_name()
    consumer = subscribed_before_it_was_wrapped(activemq63, queue, mode)
    put(activemq63, queue, "a", "b")
    until(lambda: errors(caplog))
    consumer.stop()
    assert bodies(activemq63, queue, 2) == ["a", "b"]
    assert consumer.diary.about("got") == []
    (said,) = errors(caplog)
    assert queue in said
    assert "subscribe" in said


def test_a_listener_wrapped_after_subscribe_in_the_mode_auto_gets_its_messages_and_is_an_error(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The broker has forgotten them already: nobody else could handle them."""
    queue = new_name()
    consumer = subscribed_before_it_was_wrapped(activemq63, queue, "auto")
    put(activemq63, queue, "a", "b")
    assert consumer.diary.has("returned", "b")
    consumer.stop()
    (said,) = errors(caplog)
    assert queue in said
    assert "subscribe" in said


def test_with_stomp_1_1_a_listener_wrapped_after_subscribe_gets_its_messages_and_is_an_error(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Its frames do not tell the modes apart, and in the mode `auto` the broker has forgotten the message."""
    queue = new_name()
    consumer = subscribed_before_it_was_wrapped(activemq63, queue, "client-individual", kind=stomp.Connection11)
    put(activemq63, queue, "a", "b")
    assert consumer.diary.has("returned", "b")
    consumer.ack(consumer.frames["b"], receipt="acked")
    assert consumer.diary.has("receipt", "acked")
    consumer.stop()
    assert bodies(activemq63, queue, 1) == ["a"]
    (said,) = errors(caplog)
    assert queue in said


def test_a_listener_wrapped_after_subscribe_has_its_policy_from_the_next_connection_on(
    activemq63: Broker, proxy: Proxy
) -> None:
    def act(_consumer: Asked, _frame: Any) -> None:
        raise ValueError("no")

    queue = new_name()
    consumer = subscribed_before_it_was_wrapped(activemq63, queue, "client-individual", proxy.port)
    consumer.act = act
    proxy.cut()
    assert consumer.diary.has("subscribed", times=2)
    put(activemq63, queue, "m")
    assert bodies(activemq63, f"DLQ.{queue}", 1) == ["m"]
    consumer.stop()


def test_a_bare_subscription_beside_a_wrapped_one_is_an_error_and_no_cumulative_ack_reaches_it(
    activemq63: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    bare, mine = new_name(), new_name()
    consumer = subscribed_before_it_was_wrapped(activemq63, bare, "client")
    consumer.subscribe("2", mine)
    put(activemq63, bare, "x", "y")
    until(lambda: errors(caplog))
    put(activemq63, mine, "a", "b")
    assert consumer.diary.has("returned", "b")
    consumer.ack(consumer.frames["b"], receipt="acked")
    assert consumer.diary.has("receipt", "acked")
    consumer.stop()
    assert bodies(activemq63, bare, 2) == ["x", "y"]
    assert bodies(activemq63, mine) == []
    assert len(errors(caplog)) == 1


def test_a_subscription_to_an_address_without_a_prefix_has_the_policy_too(activemq63: Broker) -> None:
    """ActiveMQ takes such a name for a queue's."""

    class Unprefixed(Asked):
        def subscribe(self, subscription: str = "1", queue: str = "") -> None:
            self.conn.subscribe(queue or self.queue, id=subscription, ack=self.ack_mode)

    def act(consumer: Asked, frame: Any) -> None:
        if frame.headers.get("JMSXDeliveryCount") != "2":
            raise ValueError("no")
        consumer.ack(frame)

    queue = new_name()
    put(activemq63, queue, "m")
    with running(activemq63, queue, Unprefixed, act=act) as consumer:
        assert consumer.diary.has("acked", "m")
    assert consumer.count("m") == "2"
    assert bodies(activemq63, queue) == []


@pytest.mark.parametrize("settle", ["ack", "", 0, True], ids=repr)
def test_an_unknown_settle_is_refused(settle: Any) -> None:
    with pytest.raises(ConfigError, match="settle=") as refused:
        redelivering(Asked(None, None, "q", None, Diary()), stomp.Connection12(), settle=settle)
    assert '"callback"' in refused.value.cure


def test_a_listener_that_is_wrapped_twice_is_refused() -> None:
    conn = stomp.Connection12()
    once = redelivering(Asked(conn, None, "q", None, Diary()), conn)
    with pytest.raises(ConfigError):
        redelivering(once, conn)


def test_every_shape_is_killed_in_the_middle_of_its_work() -> None:
    assert {*UNSETTLED, "Consumer"} == set(SHAPES)
    assert {"plain": plain, "wrapped": wrapped} == WRAPS
