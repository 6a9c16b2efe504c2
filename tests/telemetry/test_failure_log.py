# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the log of failed attempts: its lines, its bounds, and that it changes nothing else."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, RetryAfter
from redeliver_mw.clock import Moment
from redeliver_mw.errors import ConfigError
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.redelivery.commands import RecordAttempt
from redeliver_mw.telemetry import failure_log
from redeliver_mw.telemetry.failure_log import FailureLog
from redeliver_mw.testing import ManualClock, TestApp
from tests.dropin.memory_driver import Consumer, Message

NAME = "redeliver_mw.failures"


class Kept(logging.Handler):
    """Keeps records, and may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.error: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.error is not None:
            raise self.error
        self.records.append(record)

    def lines(self, level: int = logging.WARNING) -> list[str]:
        """Return the lines of this level or above that are no summaries."""
        return [r.getMessage() for r in self.records if r.levelno >= level and not hasattr(r, "left_out")]

    def summaries(self) -> list[int]:
        return [vars(r)["left_out"] for r in self.records if hasattr(r, "left_out")]

    def tracebacks(self) -> list[str]:
        return [r.exc_text for r in self.records if r.exc_text]


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger, handler = logging.getLogger(NAME), Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def attempt_of(error: Exception, *, dead: bool = False) -> RecordAttempt:
    """Return what the interceptor tells of an attempt that failed with `error`."""
    seen: list[RecordAttempt] = []
    app = App("memory://", policy=RedeliveryPolicy(dead_after=1 if dead else 3, backoff=4.0), log_failures=False)

    @app.handler("orders")
    def fails(delivery: Delivery) -> None:
        raise type(error)(*error.args)

    with TestApp(app) as test:
        assert app._engine is not None
        assert app._engine.runner is not None
        app._engine.runner._executor._failures = Catching(seen)
        test.send("orders", b"x", message_id="17")
    return seen[0]


class Catching(FailureLog):
    def __init__(self, seen: list[RecordAttempt]) -> None:
        super().__init__(ManualClock())
        self._seen = seen

    def attempt(self, c: RecordAttempt, later: Any = None) -> None:
        self._seen.append(c)


class Timer:
    """Holds the timers of a driver, which are fired by hand."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Any]] = []

    def __call__(self, seconds: float, fn: Any) -> None:
        self.waiting.append((seconds, fn))

    def fire(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, fn in waiting:
            fn()


# -- lines ----------------------------------------------------------------------------------------


def test_a_line_has_source_message_id_failures_outcome_delay_and_error(kept: Kept) -> None:
    FailureLog(ManualClock()).attempt(attempt_of(ValueError("no stock")))
    assert kept.lines() == ["queue:orders: message 17 failed, F=1: redelivered after 4 s (hold): ValueError: no stock"]
    (record,) = kept.records
    assert record.levelname == "WARNING"
    fields = {name: vars(record).get(name) for name in failure_log.FIELDS}
    assert fields.pop("fingerprint")
    assert fields == {
        "source": "queue:orders",
        "message_id": "17",
        "failures": 1,
        "outcome": "redelivered",
        "reason": None,
        "delay": 4.0,
        "mechanism": "hold",
        "targets": None,
        "error_type": "ValueError",
        "error": "no stock",
        "left_out": None,
    }


def test_a_dead_letter_is_an_error(kept: Kept) -> None:
    FailureLog(ManualClock()).attempt(attempt_of(ValueError("no stock"), dead=True))
    assert kept.lines(logging.ERROR) == [
        "queue:orders: message 17 failed, F=1: dead-lettered to queue:DLQ.orders (exhausted): ValueError: no stock"
    ]


@pytest.mark.parametrize("outcome", ["discarded", "kept", "released"])
def test_a_failed_attempt_of_any_other_outcome_is_a_warning(kept: Kept, outcome: Any) -> None:
    FailureLog(ManualClock()).attempt(replace(attempt_of(ValueError("no")), outcome=outcome))
    assert [record.levelname for record in kept.records] == ["WARNING"]


@pytest.mark.parametrize("how", [{"outcome": "accepted", "reason": "ignored"}, {"reason": "breaker"}])
def test_an_attempt_that_is_no_failure_of_the_message_is_for_debugging(kept: Kept, how: dict[str, Any]) -> None:
    FailureLog(ManualClock()).attempt(replace(attempt_of(ValueError("no")), **how))
    assert kept.records == []  # the level is WARNING, unless a program asks for more
    logging.getLogger(NAME).setLevel(logging.DEBUG)
    try:
        FailureLog(ManualClock()).attempt(replace(attempt_of(ValueError("no")), **how))
    finally:
        logging.getLogger(NAME).setLevel(logging.NOTSET)
    assert [record.levelname for record in kept.records] == ["DEBUG"]


def test_a_success_is_not_logged(kept: Kept) -> None:
    FailureLog(ManualClock()).attempt(replace(attempt_of(ValueError("no")), outcome="accepted", failure=None))
    assert kept.records == []


def test_an_error_cannot_begin_another_line_and_shows_no_secret(kept: Kept) -> None:
    error = ValueError("password=hunter2\n2026-01-01 ERROR all is lost \x1b[2J" + "x" * 5000)
    FailureLog(ManualClock()).attempt(attempt_of(error))
    (line,) = kept.lines()
    assert line.isprintable()
    assert len(line) < 1200
    assert "password=***" in line
    assert "hunter2" not in line + "".join(kept.tracebacks())


def test_what_an_error_says_cannot_steer_a_terminal_neither_in_the_line_nor_in_the_traceback(kept: Kept) -> None:
    kind = type("Bad\x1b[2J", (Exception,), {})
    FailureLog(ManualClock()).attempt(attempt_of(kind("\x1b]0;owned\x07 \x9b2J \u202e\r")))
    (line,), (traceback,) = kept.lines(), kept.tracebacks()
    assert line.isprintable()
    assert all(row.isprintable() for row in traceback.split("\n"))
    assert "Bad\\x1b[2J: \\x1b]0;owned\\x07 \\x9b2J \\u202e\\r" in traceback


def test_a_plain_formatter_writes_the_traceback_below_the_line() -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    logging.getLogger(NAME).addHandler(handler)
    try:
        FailureLog(ManualClock()).attempt(attempt_of(ValueError("no stock")))
    finally:
        logging.getLogger(NAME).removeHandler(handler)
    line, second, *_, last = text.getvalue().splitlines()
    assert line.startswith("queue:orders: message 17 failed")
    assert (second, last) == ("Traceback (most recent call last):", "ValueError: no stock")


# -- bounds ---------------------------------------------------------------------------------------


def test_of_one_fingerprint_ten_lines_a_second_are_written_then_the_number_left_out(kept: Kept) -> None:
    clock = ManualClock()
    log, attempt = FailureLog(clock), attempt_of(ValueError("no"))
    for _ in range(100):
        log.attempt(attempt)
    assert (len(kept.lines()), kept.summaries()) == (10, [])
    clock.advance(0.999)
    log.attempt(attempt)
    assert (len(kept.lines()), kept.summaries()) == (10, [])
    clock.advance(0.001)
    log.attempt(attempt)
    assert (len(kept.lines()), kept.summaries()) == (11, [91])
    assert hasattr(kept.records[-2], "left_out")  # it stands before the next second's first line
    text = kept.records[-2].getMessage()
    assert text.startswith("91 more failures with ValueError (fingerprint ")
    assert text.endswith(") were left out of the log within one second")


def test_the_summary_comes_when_the_second_is_over_also_if_nothing_fails_any_more(kept: Kept) -> None:
    clock, timer = ManualClock(), Timer()
    log, attempt = FailureLog(clock), attempt_of(ValueError("no"))
    for _ in range(100):
        log.attempt(attempt, timer)
    assert [seconds for seconds, _ in timer.waiting] == [1.0]  # one timer
    clock.advance(1.0)
    timer.fire()
    assert (kept.summaries(), timer.waiting) == ([90], [])


def test_a_timer_that_never_comes_is_replaced(kept: Kept) -> None:
    clock, timer = ManualClock(), Timer()
    log, attempt = FailureLog(clock), attempt_of(ValueError("no"))
    for _ in range(3):
        for _ in range(12):
            log.attempt(attempt, timer)
        clock.advance(2.0)
    assert len(timer.waiting) == 3
    assert kept.summaries() == [2, 2]


def test_a_stop_writes_the_summary_and_nothing_is_counted_twice(kept: Kept) -> None:
    log, attempt = FailureLog(ManualClock()), attempt_of(ValueError("no"))
    for _ in range(15):
        log.attempt(attempt)
    log.flush()
    for _ in range(3):
        log.attempt(attempt)
    log.flush()
    log.flush()
    assert (len(kept.lines()), kept.summaries()) == (10, [5, 3])


def test_a_storm_of_one_failure_hides_neither_another_nor_its_own_dead_letters(kept: Kept) -> None:
    log, attempt = FailureLog(ManualClock()), attempt_of(ValueError("no"))
    for _ in range(100):
        log.attempt(attempt)
    for _ in range(100):
        log.attempt(attempt_of(KeyError("other"))) if len(kept.lines()) < 11 else None
        log.attempt(replace(attempt, outcome="dead_lettered"))
    assert len(kept.lines(logging.ERROR)) == 10
    assert len([line for line in kept.lines() if "KeyError" in line]) == 1


def test_the_traceback_comes_with_the_first_line_and_then_at_most_once_a_minute(kept: Kept) -> None:
    clock = ManualClock()
    log, attempt = FailureLog(clock), attempt_of(ValueError("no"))
    assert attempt.failure is not None
    for _ in range(3):
        log.attempt(attempt)
    assert kept.tracebacks() == [attempt.failure.text.rstrip("\n")]
    clock.advance(59.9)
    log.attempt(attempt)
    log.attempt(replace(attempt, outcome="dead_lettered"))
    assert len(kept.tracebacks()) == 1
    clock.advance(0.1)
    log.attempt(attempt)
    assert len(kept.tracebacks()) == 2


def test_memory_is_bounded_and_a_forgotten_second_still_gets_its_summary(kept: Kept) -> None:
    log, attempt = FailureLog(ManualClock()), attempt_of(ValueError("no"))
    assert attempt.failure is not None
    for _ in range(11):
        log.attempt(attempt)
    for number in range(3000):
        log.attempt(replace(attempt, failure=replace(attempt.failure, fingerprint=f"{number:016x}")))
    assert len(log._seconds) == len(log._traced) == 1000
    log.flush()
    assert kept.summaries() == [1]


def test_several_threads_write_ten_lines_and_count_the_rest(kept: Kept) -> None:
    log, attempt = FailureLog(ManualClock()), attempt_of(ValueError("no"))
    threads = [threading.Thread(target=lambda: [log.attempt(attempt) for _ in range(500)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush()
    assert (len(kept.lines()), sum(kept.summaries())) == (10, 1990)


class CountingClock(ManualClock):
    readings = 0

    def now(self) -> Moment:
        self.readings += 1
        return super().now()


def test_an_attempt_that_is_left_out_makes_no_text(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    log, attempt = FailureLog(ManualClock()), attempt_of(ValueError("no"))
    for _ in range(11):
        log.attempt(attempt)

    def text(*_: object) -> None:
        raise AssertionError("text is made of an attempt that is left out")

    monkeypatch.setattr(failure_log, "_line", text)
    for _ in range(100):
        log._attempt(attempt, logging.WARNING, None)
    assert len(kept.lines()) == 10


# -- it changes nothing else ----------------------------------------------------------------------


def failing_app(error: Exception, **options: Any) -> TestApp:
    app = App("memory://", policy=RedeliveryPolicy(dead_after=2, backoff=1.0), **options)

    @app.handler("orders")
    def fails(delivery: Delivery) -> None:
        raise type(error)(*error.args)

    return TestApp(app)


def test_an_app_logs_each_attempt_and_the_dead_letter(kept: Kept) -> None:
    with failing_app(ValueError("no stock")) as test:
        test.send("orders", b"x", message_id="17")
        test.advance(2.0)
    assert kept.lines() == [
        "queue:orders: message 17 failed, F=1: redelivered after 1 s (hold): ValueError: no stock",
        "queue:orders: message 17 failed, F=2: dead-lettered to queue:DLQ.orders (exhausted): ValueError: no stock",
    ]
    assert [text.splitlines()[-1] for text in kept.tracebacks()] == ["ValueError: no stock"]


def test_an_app_writes_the_summary_a_second_later_and_the_last_one_when_it_stops(kept: Kept) -> None:
    with failing_app(ValueError("no stock")) as test:
        for number in range(15):
            test.send("orders", b"x", message_id=str(number))
        test.advance(0.5)
        assert kept.summaries() == []
        test.advance(0.6)
        assert kept.summaries() == [5]
    assert sum(kept.summaries()) == 10  # five of the second attempts, which were dead letters


def test_an_app_without_the_log_writes_nothing(kept: Kept) -> None:
    with failing_app(ValueError("no stock"), log_failures=False) as test:
        test.send("orders", b"x")
        test.advance(2.0)
        assert len(test.dead_letters("orders")) == 1
    assert kept.records == []


@pytest.mark.parametrize("error", [RuntimeError("the disk is full"), RecursionError()])
def test_a_logging_handler_that_fails_changes_nothing(kept: Kept, error: Exception) -> None:
    kept.error = error
    with failing_app(ValueError("no stock")) as test:
        for number in range(15):
            test.send("orders", b"x", message_id=str(number))
        test.advance(2.0)
        assert len(test.dead_letters("orders")) == 15
        assert test.depth("orders") == 0


def test_a_message_that_is_handled_costs_no_reading_of_the_clock_and_no_line(kept: Kept) -> None:
    log = FailureLog(clock := CountingClock())
    app = App("memory://")

    @app.handler("orders")
    def handle(delivery: Delivery) -> None:
        if delivery.text == "later" and not delivery.failures:
            raise RetryAfter(1.0)

    with TestApp(app) as test:
        assert app._engine is not None
        assert app._engine.runner is not None
        app._engine.runner._executor._failures = log
        test.send("orders", b"x")
        assert clock.readings == 0
        test.send("orders", b"later")
        test.advance(2.0)
    assert clock.readings == 1  # the failure's; the success after it is none
    assert len(kept.lines()) == 1


def test_an_opening_breaker_is_an_error_and_the_message_that_it_tries_no_warning(
    caplog: pytest.LogCaptureFixture, kept: Kept
) -> None:
    breaker = Breaker(min_calls=2, window=4, open_for=30.0)
    with failing_app(OSError("away"), breaker=breaker) as test:
        for number in range(5):
            test.send("orders", b"x", message_id=str(number))
        test.advance(31.0)
    said = [record.levelname for record in caplog.records if "the breaker is open" in record.getMessage()]
    assert said[0] == "ERROR"
    assert len(kept.lines()) == 2


@pytest.mark.parametrize("wrong", ["no", 0, None])
def test_log_failures_is_true_or_false(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"log_failures=.* is neither True nor False"):
        App("memory://", log_failures=wrong)
    with pytest.raises(ConfigError, match="log_failures="):
        Consumer(lambda message: None, log_failures=wrong)


def test_a_configuration_file_may_turn_it_off(tmp_path: Any, kept: Kept) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text('[tool.redeliver.app]\nurl = "memory://"\nlog_failures = false\n')
    assert App.from_config(file)._settings.log_failures is False


# -- drop-ins -------------------------------------------------------------------------------------


def raises(message: Message) -> None:
    raise ValueError("no stock")


def test_a_drop_in_logs_each_attempt_and_the_dead_letter(kept: Kept) -> None:
    consumer = Consumer(raises, policy=RedeliveryPolicy(dead_after=2, backoff=1.0))
    consumer.put("17")
    consumer.clock.advance(2.0)
    assert kept.lines() == [
        "queue:orders: message 17 failed, F=1: redelivered after 1 s (hold): ValueError: no stock",
        "queue:orders: message 17 failed, F=2: dead-lettered to queue:DLQ.orders (exhausted): ValueError: no stock",
    ]


def test_a_drop_in_without_the_log_writes_nothing(kept: Kept) -> None:
    consumer = Consumer(raises, policy=RedeliveryPolicy(dead_after=1), log_failures=False)
    consumer.put("17")
    assert (consumer.dead(), kept.records) == ([("17", "exhausted")], [])


def test_a_drop_in_writes_the_summary_when_its_connection_is_lost(kept: Kept) -> None:
    consumer = Consumer(raises, policy=RedeliveryPolicy(dead_after=1))
    consumer.put(*map(str, range(15)))
    assert (len(kept.lines()), kept.summaries()) == (10, [])
    consumer.memory.cut()
    consumer.clock.run_until_idle()
    assert kept.summaries() == [5]


def test_a_logging_handler_that_fails_changes_nothing_in_a_drop_in(kept: Kept) -> None:
    kept.error = RuntimeError("the disk is full")
    consumer = Consumer(raises, policy=RedeliveryPolicy(dead_after=1))
    consumer.put(*map(str, range(15)))
    assert (len(consumer.dead()), consumer.left()) == (15, 0)
