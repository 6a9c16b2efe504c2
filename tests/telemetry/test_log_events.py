# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Every line of the log has an event code, its fields are the documented ones, and the documented queries find it."""

from __future__ import annotations

import json
import logging
import re
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import Delivery, connect
from redeliver_mw.cli.logs import LogFormat, show_logs
from redeliver_mw.errors import EVENT_CODE
from redeliver_mw.memory import MemoryBroker
from redeliver_mw.operations import audit
from redeliver_mw.telemetry import failure_log
from redeliver_mw.telemetry.log_events import EVENTS, FIELDS, UNNAMED, fields_of, types_of, written
from tests.brokers import Broker
from tests.cli.running import Running
from tests.telemetry.log_calls import ROOT, LogCall, calls_of, log_calls

PAGE = ROOT / "docs" / "log-events.md"
BY_CODE = {event.code: event for event in EVENTS}
BY_TEXT = {text: event for event in EVENTS for text in event.texts}
EVERY_LINE = {"event", EVENT_CODE, "level", "logger", "timestamp"}
AT_TIMES = {"exception", "error_code", "process", "pid"}

# Calls that log what others have told them: where the texts and the codes of these come from.
HANDED_ON = {
    "redeliver_mw/dropin/bounded_log.py": "the calls of `_late.error`",
    "redeliver_mw/dropin/command_executor.py": "the interceptor's commands `Log`",
    "redeliver_mw/runtime/command_executor.py": "the interceptor's commands `Log`",
    "redeliver_mw/flow/sequencer.py": "the calls of `_say_once`",
}
CODES_HANDED_ON = re.compile(r'(?:\bLog\("(?:info|warning|error)", .*?|_say_once\([\w.]+), "([a-z-]+)"')


def undocumented(call: LogCall) -> str:
    """Return what the table of events does not say of a call; empty if the call is documented, or for debugging."""
    if call.level == "DEBUG":
        return ""
    if call.event and call.event != "…":
        events = [BY_CODE.get(call.event)]
    elif call.file in HANDED_ON and (call.event == "…" or not call.texts):
        return ""
    elif not call.texts:
        return f"{call.where}: the text is known at run time only, and the call names no event"
    else:
        events = [BY_TEXT.get(text) for text in call.texts]
    for event in events:
        if event is None:
            return f"{call.where}: not in redeliver_mw/telemetry/log_events.toml"
        if call.level and call.level not in event.level.split(", "):
            return f"{call.where}: {event.code} is written as {call.level}"
        if call.logger and call.logger not in event.loggers:
            return f"{call.where}: {event.code} is written to {call.logger}"
    return ""


def test_every_call_of_a_logger_writes_an_event_of_the_table() -> None:
    calls = list(log_calls())
    assert len(calls) > 150
    assert list(filter(None, map(undocumented, calls))) == []


@pytest.mark.parametrize(
    "text",
    [
        'log.warning("nobody has written this down: %s", why)',
        "log.warning(what)",
        'log.warning("stopped before it was started")',
        'log.error("%s", error, extra={EVENT_CODE: "no-such-event"})',
    ],
)
def test_a_call_that_the_table_does_not_know_is_found(text: str) -> None:
    source = f'import logging\nlog = logging.getLogger("redeliver_mw")\n\n\ndef f(why, what, error):\n    {text}\n'
    [call] = calls_of("redeliver_mw/new.py", source)
    assert undocumented(call).startswith("redeliver_mw/new.py:6: ")


def test_the_table_has_no_event_that_nothing_writes() -> None:
    calls = [call for call in log_calls() if call.level != "DEBUG"]
    texts = {text for call in calls for text in call.texts}
    codes = {call.event for call in calls} | {"attempt-failed", "message-dead-lettered", "failures-left-out"}
    for file in [*(ROOT / "redeliver_mw").rglob("*.py")]:
        codes |= set(CODES_HANDED_ON.findall(file.read_text("utf-8")))
    assert [text for text in BY_TEXT if text not in texts] == []
    assert [event.code for event in EVENTS if not event.texts and event.code not in codes] == []


def test_codes_are_unique_and_each_argument_has_a_documented_name_of_its_type() -> None:
    assert len(BY_CODE) == len(EVENTS)
    assert [code for code in BY_CODE if not re.fullmatch(r"[a-z]+(-[a-z]+)*", code)] == []
    for event in EVENTS:
        assert set(event.names) <= FIELDS.keys(), event.code
        for text, names in event.texts.items():
            kinds = types_of(text)
            assert len(kinds) == len(names), text
            wrong = [n for n, kind in zip(names, kinds, strict=True) if n != UNNAMED and FIELDS[n][0] != kind]
            assert wrong == [], text
    assert FIELDS.keys() == {name for event in EVENTS for name in event.names}
    assert not FIELDS.keys() & (EVERY_LINE | AT_TIMES)


def test_the_table_has_the_fields_of_failed_attempts_and_of_the_audit() -> None:
    failed = ("attempt-failed", "message-dead-lettered", "failures-left-out")
    assert {name for code in failed for name in BY_CODE[code].names} == set(failure_log.FIELDS)
    assert set(BY_CODE["audit"].names) == set(audit.FIELDS)


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text("utf-8")
    assert page == written(page), "run: python -m redeliver_mw.telemetry.log_events --write docs/log-events.md"


def test_fields_of_a_record_are_its_arguments() -> None:
    broker = MemoryBroker("rabbitmq")
    broker.declare("orders")
    text = "a handler has had %r for %.0f s, half of the broker's ack timeout: it stays unsettled, and "
    text += "a redelivery of it here waits for this run"
    delivery: Any = object.__new__(Delivery)
    log = logging.getLogger("redeliver_mw")
    made = log.makeRecord(log.name, logging.WARNING, __file__, 0, "%s: the breaker is open for %g s: %s", (1, 2.5, 3), None)
    assert text in BY_TEXT
    assert delivery is not None
    assert fields_of(made) == {"event_code": "breaker-open", "source": "1", "seconds": 2.5, "reason": "3"}
