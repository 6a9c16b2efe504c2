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
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import Delivery, connect
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.errors import ERROR_CODE, EVENT_CODE
from redeliver_mw.message import Destination
from redeliver_mw.operations import audit
from redeliver_mw.telemetry import failure_log
from redeliver_mw.telemetry.log_events import EVENTS, FIELDS, UNNAMED, fields_of, types_of, written
from tests.brokers import Broker
from tests.cli.running import Running
from tests.faults.proxy import Proxy
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


def test_fields_of_a_record_are_its_arguments_and_a_delivery_also_names_its_source() -> None:
    log = logging.getLogger("redeliver_mw")

    def record(text: str, *args: object, **extra: object) -> logging.LogRecord:
        return log.makeRecord(log.name, logging.WARNING, __file__, 0, text, args, None, extra=extra)

    orders = Destination("orders")
    opened = record("%s: the breaker is open for %g s: %s", orders, 2.5, ValueError("away"))
    assert fields_of(opened) == {EVENT_CODE: "breaker-open", "source": "queue:orders", "seconds": 2.5, "reason": "away"}
    unread: Any = None
    delivery = Delivery(orders, 1, 7, False, unread, unread)
    late = record("%r: a settlement by the code is dropped: %s", delivery, "it is lost")
    assert fields_of(late) == {
        EVENT_CODE: "settlement-dropped",
        "source": "queue:orders",
        "delivery": repr(delivery),
        "reason": "it is lost",
    }
    named = record("%s", "the broker refuses", **{EVENT_CODE: "source-refused", ERROR_CODE: "access-refused"})
    assert fields_of(named) == {EVENT_CODE: "source-refused", ERROR_CODE: "access-refused"}
    assert fields_of(record("another program's line %s", 1)) == {}


SHOP = """
from pathlib import Path
from redeliver_mw import App, RedeliveryPolicy, Reject
from redeliver_mw.flow.breaker import Breaker

app = App({url!r}, declare="all", breaker=Breaker(min_calls=3, window=3, open_for=0.3, max_open_for=0.3),
          policy=RedeliveryPolicy(dead_after=3, backoff=0.1))

@app.handler({queue!r}, workers=1)
def on_order(delivery):
    if delivery.text == "wrong":
        raise Reject("no such product, password=hunter2")
    if Path("away").exists():
        raise ConnectionError("the shop's database is away")
    print("handled", delivery.text)
"""
CHECKED = {"string": str, "number": (int, float), "list of strings": list}


@pytest.mark.broker
def test_the_lines_of_redeliver_run_on_a_real_broker_have_the_documented_events_and_fields(
    rabbitmq43: Broker, tmp_path: Path
) -> None:
    (host, port), queue = parse_url(rabbitmq43.url).hosts[0], f"log-events-{uuid.uuid4().hex[:8]}"
    assert port is not None
    with closing(Proxy(host, port)) as proxy, connect(rabbitmq43.url) as session:
        url = rabbitmq43.url.replace(f"{host}:{port}", f"127.0.0.1:{proxy.port}")
        (tmp_path / "shop.py").write_text(SHOP.format(url=url, queue=queue))
        with Running(tmp_path, "run", "shop:app", "--log-format", "json") as running:
            assert running.saw("consuming-started")
            (tmp_path / "away").touch()
            for text in ("wrong", "one", "two", "three"):
                session.publish(queue, text)
            assert running.saw("breaker-open")
            (tmp_path / "away").unlink()
            assert running.saw("(?s)(handled.*){3}")
            assert running.saw("breaker-closed")
            proxy.cut()
            assert running.saw("(?s)(connection-restored.*){2}")
            session.publish(queue, "last")
            assert running.saw("handled last")
            running.signal()
            assert running.wait() == 0
    lines = [json.loads(line) for line in running.err.splitlines()]
    assert all(line["source"] == f"queue:{queue}" for line in lines if line[EVENT_CODE].startswith("breaker"))
    for line in lines:
        event = BY_CODE[line[EVENT_CODE]]
        assert EVERY_LINE <= line.keys() <= EVERY_LINE | AT_TIMES | set(event.names), line
        assert line["level"].upper() in event.level
        assert line["logger"] in event.loggers
        for name in line.keys() & FIELDS.keys():
            assert isinstance(line[name], CHECKED[FIELDS[name][0]]), (name, line)
    found = {line[EVENT_CODE] for line in lines}
    failed = {"attempt-failed", "message-dead-lettered", "breaker-open", "breaker-closed"}
    assert found >= failed | {"consuming-started", "connection-lost", "connection-restored", "consuming-stopped"}
    assert "hunter2" not in running.err
    (tmp_path / "run.log").write_text(running.err)
    _check_queries(tmp_path / "run.log", queue)


def _check_queries(log: Path, queue: str) -> None:
    """Run the page's queries for jq, if jq is here."""
    letters, loud, away = re.findall(r"```jq\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    if shutil.which("jq") is None:
        return
    assert _jq(letters, log) == [[f"queue:{queue}", "Reject", "rejected"]]
    assert {"message-dead-lettered", "breaker-open"} <= {code for _, code, _ in _jq(loud, log)}
    assert {role for _, _, role, _ in _jq(away, log)} == {"consume", "publish"}


def _jq(query: str, log: Path) -> list[list[str]]:
    done = subprocess.run(["jq", "-r", query, log], capture_output=True, text=True, check=True, timeout=60)
    return [line.split("\t") for line in done.stdout.splitlines()]


def test_the_queries_name_events_and_fields_of_the_table() -> None:
    queries = re.findall(r"```(?:jq|logql)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    codes = {code for query in queries for code in re.findall(r'event_code ?==? ?"([^"]+)"', query)}
    assert len(queries) == 6
    assert codes <= BY_CODE.keys()
    fields = {name for query in queries for name in re.findall(r"[ \[{]\.(\w+)", query)}
    fields |= {
        name for query in queries for names in re.findall(r"by \(([^)]+)\)", query) for name in names.split(", ")
    }
    assert fields <= FIELDS.keys() | EVERY_LINE
