# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what is recorded and logged of one connection, by clocks that are set by hand."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from redeliver_mw.adapter.kit.connection_state import MOST_LINES, SAME_AGAIN, ConnectionState
from redeliver_mw.errors import CredentialsRefused

LOG = logging.getLogger("redeliver_mw.test")


class Clock:
    """Tells the seconds as they are set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def made(clock: Clock, **options: Any) -> ConnectionState:
    return ConnectionState("rabbitmq://me@h/", "consume", LOG, monotonic=clock, wall=clock, **options)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_each_change_is_reported_with_its_time_and_the_last_error_stays() -> None:
    clock = Clock()
    state = made(clock)
    assert state.report() == ("consume", "closed", 1000.0, "", 0.0, "", "")
    clock.now = 1001.0
    state.connecting()
    clock.now = 1002.0
    state.failed(CredentialsRefused("refused", cure="Check both"))
    assert state.report() == (
        "consume",
        "connecting",
        1001.0,
        "refused. Check both [credentials-refused]",
        1002.0,
        "",
        "credentials-refused",
    )
    clock.now = 1003.0
    state.connecting()
    clock.now = 1004.0
    state.connected()
    assert state.report() == (
        "consume",
        "connected",
        1004.0,
        "refused. Check both [credentials-refused]",
        1002.0,
        "",
        "credentials-refused",
    )
    clock.now = 1005.0
    state.lost(ConnectionError("reset"))
    assert state.report() == ("consume", "connecting", 1005.0, "reset", 1005.0, "", "")
    state.closed()
    assert state.report().state == "closed"


def test_what_is_blocked_is_free_again_after_a_loss() -> None:
    state = made(Clock())
    state.connected()
    state.block("low on memory")
    assert state.report().blocked == "low on memory"
    state.lost(ConnectionError("reset"))
    assert state.report().blocked == ""


def test_a_reason_is_logged_at_once_and_again_after_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    state = made(clock)
    state.connected()
    state.lost(ConnectionError("reset"))
    for _ in range(100):
        clock.now += SAME_AGAIN / 50
        state.failed(ConnectionError("nobody there"))
    assert said(caplog) == [
        "rabbitmq://me@h/: the connection (consume) was lost: reset",
        "rabbitmq://me@h/: cannot connect (consume): nobody there; trying again",
        "rabbitmq://me@h/: cannot connect (consume): nobody there; trying again",
    ]
    state.connected()
    assert said(caplog)[3:] == ["rabbitmq://me@h/: connected again (consume), after 120.0 s and 101 attempts"]


def test_another_reason_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    state = made(Clock())
    state.failed(ConnectionError("one"))
    state.failed(ConnectionError("two"))
    state.failed(ConnectionError("one"))
    assert [line.split(": ")[2] for line in said(caplog)] == ["one; trying again", "two; trying again"]


def test_a_connection_that_flaps_with_a_new_reason_each_time_is_logged_in_bounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    state = made(clock)
    for n in range(1000):
        clock.now += SAME_AGAIN / 1000
        state.connected()
        state.lost(ConnectionError(f"reset {n}"))
    assert len(said(caplog)) <= 2 * MOST_LINES


def test_that_it_is_connected_again_is_logged_only_where_its_loss_was(caplog: pytest.LogCaptureFixture) -> None:
    state = made(Clock())
    for _ in range(10):
        state.connected()
        state.lost(ConnectionError("reset"))
    assert len(said(caplog)) == 2


def test_a_first_connect_is_reported_by_its_caller_and_later_ones_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    state = made(Clock(), caller_reports_first=True)
    state.failed(ConnectionError("nobody there"))
    assert said(caplog) == []
    state.connected()
    state.failed(ConnectionError("nobody there"))
    assert len(said(caplog)) == 1


def test_no_reason_shows_the_password_or_another_secret(caplog: pytest.LogCaptureFixture) -> None:
    state = made(Clock(), secret="s3same/?")
    state.failed(CredentialsRefused("User 'me' with s3same/? is wrong, token=abcdef\nand more"))
    state.block("not for s3same/?")
    report = state.report()
    for text in (report.last_error, report.blocked, *said(caplog)):
        assert "s3same" not in text
        assert "abcdef" not in text
        assert "\n" not in text
