# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""A fault of ours is logged with its traceback, which tells no secret of the error that it met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from redeliver_mw.redelivery.commands import CommandHandler
from redeliver_mw.redelivery.dispatcher import EventDispatcher


def decide(_: object) -> Sequence[Any]:
    try:
        raise ValueError("password=hunter2 \x1b[2J")
    except ValueError:
        return [1 // 0]


def test_a_fault_is_logged_without_secrets_and_escapes(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = EventDispatcher(decide, Mock(spec=CommandHandler))
    event: Any = "event"
    dispatcher.feed(event)
    assert "a fault while str was dealt with" in caplog.text
    assert "ZeroDivisionError: " in caplog.text
    assert "password=***" in caplog.text
    assert "hunter2" not in caplog.text
    assert "\x1b" not in caplog.text
