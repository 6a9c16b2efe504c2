# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests when a connection is opened, opened again, and given up, by a driver and timers that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from redeliver_mw.adapter.kit import tls_errors
from redeliver_mw.adapter.kit.reconnect import AFTER_A_LOSS, Reconnector
from redeliver_mw.adapter.kit.tls_errors import TlsFailed, WrongPort
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import BrokerUnavailable, ConfigError, CredentialsRefused, RedeliverError
from tests.adapter.kit.hand_driven import HandDrivenTimers

LOG = logging.getLogger("redeliver_mw.test")


class Refused(ConnectionError):
    """Says that the broker refused a password."""


class Driver:
    """Notes each attempt; the test says what comes of it."""

    def __init__(self, hosts: str = "h", *, gives_up: bool = True) -> None:
        self.timers = HandDrivenTimers()
        self.attempts: list[tuple[str, int]] = []
        self.downs: list[str] = []
        self.given_up: list[RedeliverError] = []
        self.broken_file = False
        self.reconnector = Reconnector(
            parse_url(f"rabbitmq://{hosts}/"),
            "consume",
            LOG,
            usual_port=5672,
            call_later=self.timers.call_later,
            connect=self._connect,
            down=lambda error: self.downs.append(str(error)),
            meaning=self._meaning,
            failed=self.given_up.append if gives_up else None,
        )

    def _connect(self) -> None:
        if self.broken_file:
            raise ConfigError("no such file")
        self.attempts.append(self.reconnector.host)

    def _meaning(self, error: BaseException) -> RedeliverError:
        if isinstance(error, Refused):
            return CredentialsRefused("refused", cure="Check both")
        if isinstance(error, WrongPort):
            return TlsFailed(error.problem.reason)
        return BrokerUnavailable(f"no broker answers there ({error})")

    def fail(self, error: Exception | None = None) -> None:
        self.reconnector.ended(error or ConnectionError("connection refused"), was_open=False)


@pytest.fixture(autouse=True)
def _ports_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer at once that nothing is known of a port."""

    def begin(_check: object, _host: str, _port: int, answer: Callable[[WrongPort | None], None]) -> None:
        answer(None)

    monkeypatch.setattr(tls_errors.WrongPortCheck, "begin", begin)


def test_a_lost_connection_is_reported_and_opened_again_soon() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.opened()
    driver.reconnector.ended(ConnectionError("reset"), was_open=True)
    assert driver.downs == ["reset"]
    assert driver.attempts == [("h", 5672)]
    driver.timers.advance(AFTER_A_LOSS)
    assert driver.attempts == [("h", 5672)] * 2
    assert driver.reconnector.state.report().state == "connecting"


def test_the_pause_grows_with_each_connection_that_is_lost_early_and_a_lasting_one_ends_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    driver = Driver()
    driver.reconnector.open()
    for shortest, longest in ((0.0, 0.05), (0.15, 0.25), (0.25, 0.45), (0.45, 0.85), (0.85, 1.65), (1.65, 3.25)):
        driver.reconnector.opened()
        now += 9.0
        driver.reconnector.ended(ConnectionError("a session error"), was_open=True)
        before = len(driver.attempts)
        driver.timers.advance(shortest - 0.001)
        assert len(driver.attempts) == before
        driver.timers.advance(longest - shortest + 0.002)
        assert len(driver.attempts) == before + 1
    for _ in range(10):
        driver.reconnector.opened()
        driver.reconnector.ended(ConnectionError("a session error"), was_open=True)
        driver.timers.advance(5.06)
    assert len(driver.attempts) == 17
    driver.reconnector.opened()
    now += 10.0
    driver.reconnector.ended(ConnectionError("reset"), was_open=True)
    driver.timers.advance(AFTER_A_LOSS)
    assert len(driver.attempts) == 18


def test_hosts_are_tried_in_turn_and_a_first_connect_is_given_up_after_three_rounds() -> None:
    driver = Driver("a,b:1")
    driver.reconnector.open()
    for _ in range(6):
        assert driver.given_up == []
        driver.fail()
        driver.timers.advance(5.1)
    assert driver.attempts == [("a", 5672), ("b", 1)] * 3
    assert [type(error) for error in driver.given_up] == [BrokerUnavailable]
    assert driver.timers.waiting == 0
    assert driver.downs == []


def test_a_connection_that_was_up_once_is_tried_for_ever() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.opened()
    driver.reconnector.ended(ConnectionError("reset"), was_open=True)
    for _ in range(20):
        driver.timers.advance(5.1)
        driver.fail(Refused())  # as while a broker starts: its users are not there yet
    assert len(driver.attempts) == 21
    assert driver.given_up == []


def test_without_anybody_to_tell_a_first_connect_is_tried_for_ever() -> None:
    driver = Driver(gives_up=False)
    driver.reconnector.open()
    for _ in range(20):
        driver.fail()
        driver.timers.advance(5.1)
    assert len(driver.attempts) == 21


def test_a_refused_password_ends_a_first_connect_at_once() -> None:
    driver = Driver("a,b")
    driver.reconnector.open()
    driver.fail(Refused())
    assert [type(error) for error in driver.given_up] == [CredentialsRefused]
    assert driver.timers.waiting == 0


def test_a_file_that_cannot_be_read_ends_a_first_connect_and_only_delays_a_later_one() -> None:
    first, later = Driver(), Driver()
    first.broken_file = True
    first.reconnector.open()
    assert [type(error) for error in first.given_up] == [ConfigError]
    later.reconnector.open()
    later.reconnector.opened()
    later.broken_file = True
    later.reconnector.ended(ConnectionError("reset"), was_open=True)
    later.timers.advance(AFTER_A_LOSS)
    later.broken_file = False
    later.timers.advance(5.1)
    assert later.given_up == []
    assert len(later.attempts) == 2


def test_the_reason_of_a_port_that_is_the_wrong_one_takes_the_place_of_the_errors_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = WrongPort(tls_errors.PLAIN_AT_TLS_PORT)
    monkeypatch.setattr(tls_errors.WrongPortCheck, "begin", lambda check, host, port, answer: answer(wrong))
    driver = Driver()
    driver.reconnector.open()
    driver.fail()
    assert [error.what for error in driver.given_up] == [tls_errors.PLAIN_AT_TLS_PORT.reason]


def test_an_answer_about_the_port_that_comes_after_the_close_opens_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[None], None]] = []
    monkeypatch.setattr(tls_errors.WrongPortCheck, "begin", lambda check, host, port, answer: asked.append(answer))
    driver = Driver()
    driver.reconnector.open()
    driver.fail()
    driver.reconnector.close()
    asked[0](None)
    driver.timers.advance(60.0)
    assert len(driver.attempts) == 1
    assert driver.given_up == []
    assert driver.reconnector.state.report().state == "closed"


def test_only_the_port_of_a_first_connect_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[None], None]] = []
    monkeypatch.setattr(tls_errors.WrongPortCheck, "begin", lambda check, host, port, answer: asked.append(answer))
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.opened()
    driver.reconnector.ended(ConnectionError("reset"), was_open=True)
    driver.timers.advance(AFTER_A_LOSS)
    driver.fail()
    assert asked == []


def test_after_a_success_the_hosts_are_tried_from_the_first_again() -> None:
    driver = Driver("a,b")
    driver.reconnector.open()
    driver.fail()
    driver.timers.advance(5.1)
    driver.reconnector.opened()
    driver.reconnector.ended(ConnectionError("reset"), was_open=True)
    driver.timers.advance(AFTER_A_LOSS)
    assert [host for host, _ in driver.attempts] == ["a", "b", "a"]


def test_an_attempt_that_is_asked_for_takes_the_place_of_the_one_that_waits() -> None:
    driver = Driver("a,b,c")
    driver.reconnector.open()
    driver.fail()
    driver.reconnector.open()
    assert len(driver.attempts) == 2
    driver.fail(Refused())
    driver.timers.advance(5.1)
    assert (len(driver.attempts), len(driver.given_up)) == (2, 1)


def test_after_close_nothing_is_opened_and_the_end_is_reported_without_an_error() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.opened()
    driver.reconnector.close()
    driver.reconnector.ended(ConnectionError("we are closing"), was_open=True)
    driver.timers.advance(60.0)
    driver.reconnector.open()
    assert len(driver.attempts) == 1
    assert driver.downs == ["we are closing"]
    report = driver.reconnector.state.report()
    assert (report.state, report.last_error) == ("closed", "")


def test_an_attempt_that_waits_is_not_made_after_a_close() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.fail()
    driver.reconnector.close()
    driver.timers.advance(60.0)
    assert len(driver.attempts) == 1


def test_an_attempt_that_was_closed_while_it_went_on_is_reported_as_the_end() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.close()
    driver.fail()
    assert driver.downs == ["connection refused"]
    assert driver.given_up == []


def test_a_second_open_does_nothing_while_the_first_goes_on() -> None:
    driver = Driver()
    driver.reconnector.open()
    driver.reconnector.open()
    driver.reconnector.opened()
    driver.reconnector.open()
    assert len(driver.attempts) == 1
    assert driver.reconnector.state.report().state == "connected"
