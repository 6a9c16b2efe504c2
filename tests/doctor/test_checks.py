# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the checks that need no broker, the page that lists all findings, and `redeliver doctor` with bad input."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.adapter import BrokerLimit, Trust
from redeliver_mw.adapter.inspection import ClockReading, QueueFacts, Setting
from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.cli.main import run
from redeliver_mw.clock import SystemClock
from redeliver_mw.doctor import CHECKS, FindingStatus
from redeliver_mw.doctor.clocks import check_broker_clock
from redeliver_mw.doctor.destinations import check_source
from redeliver_mw.doctor.instrumentation import check_instrumentation
from redeliver_mw.doctor.limbo import check_limbo
from redeliver_mw.doctor.limits import check_source_limits
from redeliver_mw.doctor.tls import check_tls, is_loopback
from redeliver_mw.limbo import LimboAdmin
from redeliver_mw.message import Destination
from redeliver_mw.policy import RedeliveryPolicy
from redeliver_mw.storage.database import Database
from redeliver_pika.capabilities import capabilities
from tests.doctor.findings import AheadClock, check_form, problems, the

PAGE = (Path(__file__).parents[2] / "docs/doctor.md").read_text().partition("\n## The findings\n")[2]
Capture = pytest.CaptureFixture[str]
OK, WARNING, WRONG, NOT_KNOWN = FindingStatus
SOURCE = Destination("orders")
RABBITMQ = capabilities("4.3.6", 131072, exact_headers=True)


# -- the page -----------------------------------------------------------------------------------------


def test_the_page_lists_every_check_and_every_problem_once_under_its_check() -> None:
    rows = re.findall(r"^\| (?:\*([a-z-]+)\*|`([a-z-]+)`) \|", PAGE, re.MULTILINE)
    listed: dict[str, list[str]] = {}
    for check, problem in rows:
        if check:
            assert check not in listed
            listed[check] = []
        else:
            listed[list(listed)[-1]].append(problem)
    assert {check: tuple(found) for check, found in listed.items()} == CHECKS


def test_each_problem_has_a_cure_on_the_page() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == sum(map(len, CHECKS.values()))
    assert all(meaning and cure for _, meaning, cure in rows)


# -- limbo --------------------------------------------------------------------------------------------


def test_a_limbo_of_this_release_with_an_equal_clock_is_ok(url: str) -> None:
    database = Database(url)
    database.open()
    database.close()
    found = list(check_limbo(url, SystemClock()))
    check_form(found)
    assert [(one.id, one.status) for one in found] == [("limbo", OK), ("limbo-clock", OK)]


def test_a_limbo_with_another_clock_is_found(url: str) -> None:
    database = Database(url)
    database.open()
    database.close()
    one = the(check_limbo(url, AheadClock(-3600.0)), "limbo-clock-skew")
    assert one.status is WRONG
    assert "3600 s ahead" in one.reason


def test_a_limbo_that_is_missing_is_found_and_not_made(file: Path) -> None:
    one = the(check_limbo(f"sqlite:///{file}", SystemClock()), "limbo-not-reachable")
    assert one.status is WRONG
    assert "Name the file" in one.cure
    assert not file.exists()


def test_a_limbo_of_another_release_is_found_and_left_alone(file: Path) -> None:
    database = Database(f"sqlite:///{file}")
    database.open()
    database.close()
    for version, cure in ((999, "Upgrade redeliver-mw here"), (1, "Start the app with this redeliver-mw once")):
        with sqlite3.connect(file) as raw:
            raw.execute("UPDATE redeliver_limbo_version SET version = ?", (version,))
        raw.close()
        one = the(check_limbo(f"sqlite:///{file}", SystemClock()), "limbo-other-release")
        assert one.status is WRONG
        assert cure in one.cure


def test_a_file_that_is_no_database_is_found(file: Path) -> None:
    file.write_text("a shopping list, which is long enough to be read as the head of a database" * 20)
    assert the(check_limbo(f"sqlite:///{file}", SystemClock()), "limbo-not-usable").status is WRONG


def test_a_database_that_is_away_is_found() -> None:
    with socket.socket() as bound:  # bound and not listening: refused
        bound.bind(("127.0.0.1", 0))
        url = f"postgresql://someone:secret@127.0.0.1:{bound.getsockname()[1]}/limbo"
        one = the(check_limbo(url, SystemClock()), "limbo-not-reachable")
    assert one.status is WRONG
    assert "secret" not in f"{one.subject} {one.reason}"


def test_the_clock_of_a_database_is_read_as_the_admin_writes_it(file: Path) -> None:
    url = f"sqlite:///{file}"
    Database(url).open()
    with LimboAdmin(url):
        pass
    database = Database(url)
    database.open(create=False)
    assert abs(database.wall_time() - SystemClock().now().wall) < 1
    database.close()


# -- TLS ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "problem", "cure"),
    [
        ("rabbitmq://mq.example.org/", "tls-off", "Write tls=1"),
        ("artemis://192.0.2.7/", "tls-off", "Write tls=1"),
        ("activemq://mq.example.org?tls=1&verify=0", "tls-not-verified", "ca=FILE"),
        ("rabbitmq://localhost/?management=http://mq.example.org:15672", "tls-management-off", "https://"),
    ],
)
def test_what_is_readable_on_the_network_is_found(url: str, problem: str, cure: str) -> None:
    found = list(check_tls(parse_url(url), 1, 0.0))
    check_form(found)
    assert list(problems(found)) == [problem]
    assert cure in the(found, problem).cure


@pytest.mark.parametrize(
    "url", ["rabbitmq://localhost/", "artemis://[::1]/", "rabbitmq://127.0.0.9/?management=http://localhost"]
)
def test_on_this_machine_alone_tls_may_be_off(url: str) -> None:
    assert problems(check_tls(parse_url(url), 1, 0.0)) == {}


def test_a_handshake_that_fails_is_not_known() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        [one] = check_tls(parse_url("rabbitmq://127.0.0.1/?tls=1"), bound.getsockname()[1], 0.0)
    assert (one.id, one.status) == ("tls", NOT_KNOWN)


def test_a_name_is_not_taken_for_this_machine() -> None:
    assert not is_loopback("localhost.example.org")


# -- clocks and instrumentation -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ahead", "within", "status"),
    [(0.0, 0.1, OK), (1.9, 0.0, OK), (2.4, 0.5, OK), (2.6, 0.5, WARNING), (-29.0, 0.0, WARNING), (-31.0, 0.5, WRONG)],
)
def test_clocks_are_compared_as_exactly_as_they_were_read(ahead: float, within: float, status: FindingStatus) -> None:
    assert check_broker_clock(ClockReading(ahead, within), "", "mq").status is status


def test_a_clock_that_was_not_read_is_not_known() -> None:
    one = check_broker_clock(None, "AMQP does not tell it", "mq")
    assert (one.id, one.status, one.reason) == ("clock", NOT_KNOWN, "AMQP does not tell it")


def basic_publish(*_: object) -> None:
    """Do nothing. A test puts this function in the place of a driver's."""


def test_a_function_that_has_replaced_the_drivers_own_is_found_and_a_wrapper_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from functools import wraps

    from pika.channel import Channel

    own: Any = Channel.basic_publish
    assert check_instrumentation("pika", (own,)).status is OK

    @wraps(own)
    def wrapper(*given: object, **named: object) -> object:
        return own(*given, **named)

    monkeypatch.setattr(Channel, "basic_publish", wrapper)
    assert check_instrumentation("pika", (Channel.basic_publish,)).status is OK
    monkeypatch.setattr(Channel, "basic_publish", basic_publish)
    one = check_instrumentation("pika", (Channel.basic_publish,))
    check_form([one])
    assert (one.id, one.status) == ("instrumentation-changes-copies", WARNING)
    assert "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS" in one.cure


# -- limits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "returns", "dead_letter_to", "found"),
    [
        (RedeliveryPolicy(8, 1.0), None, "", ("delivery-limit", OK)),
        (RedeliveryPolicy(8, 1.0), 9, "x", ("delivery-limit", OK)),
        (RedeliveryPolicy(8, 1.0), 8, "x", ("delivery-limit-below-policy", WARNING)),
        (RedeliveryPolicy(8, 1.0), 8, "", ("delivery-limit-below-policy", WRONG)),
        (RedeliveryPolicy(8, 1.0), 9, "", ("delivery-limit-deletes", WARNING)),
        (RedeliveryPolicy(8, 1.0, None, "keep"), 1000, "x", ("delivery-limit-below-policy", WARNING)),
        (
            RedeliveryPolicy(3, 1.0, arms={"more": (0.1, {"dead_after": 9})}),
            9,
            "x",
            ("delivery-limit-below-policy", WARNING),
        ),
        (None, 9, "x", ("delivery-limit", OK)),
    ],
)
def test_a_limit_is_compared_with_the_most_failures_of_any_arm(
    policy: RedeliveryPolicy | None, returns: int | None, dead_letter_to: str, found: tuple[str, FindingStatus]
) -> None:
    limit = BrokerLimit(returns=returns, dead_letter_to=dead_letter_to, spelled="the limit")
    first = next(check_source_limits(SOURCE, policy, RABBITMQ, limit, None))
    check_form([first])
    assert (first.id, first.status) == found


@pytest.mark.parametrize(
    ("longest", "timeout", "found"),
    [
        (60.0, 10.0, "consumer-timeout-below-hold"),  # a hold is ten seconds at most
        (60.0, 39.0, "consumer-timeout-short"),
        (60.0, 40.0, "consumer-timeout"),
        (2.0, 10.0, "consumer-timeout"),
    ],
)
def test_a_consumer_timeout_is_compared_with_the_longest_hold(longest: float, timeout: float, found: str) -> None:
    facts = QueueFacts(destination=SOURCE, ack_timeout=Setting(timeout, "t", "Change t"), limit=BrokerLimit())
    checked = list(check_source_limits(SOURCE, RedeliveryPolicy(3, longest), RABBITMQ, BrokerLimit(), facts))
    check_form(checked)
    assert [one.id for one in checked if one.id.startswith("consumer-timeout")] == [found]


def test_of_a_queue_whose_settings_are_not_all_known_only_problems_are_told() -> None:
    facts = QueueFacts(destination=SOURCE, why="its policies are not told", ttl=Setting(5.0, "ttl 5", "Change it"))
    found = list(check_source(facts))
    assert [one.id for one in found] == ["source", "queue-settings", "source-ttl"]
    limited = check_source_limits(SOURCE, None, RABBITMQ, BrokerLimit(trust=Trust.UNKNOWN, why="untold"), facts)
    assert [(one.id, one.status) for one in limited] == [("delivery-limit", NOT_KNOWN)]


# -- bad input ----------------------------------------------------------------------------------------


def refused(capsys: Capture, code: int, *words: str) -> str:
    capsys.readouterr()
    assert run(["doctor", *words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_a_memory_broker_is_refused(capsys: Capture) -> None:
    assert "[memory-broker-elsewhere]" in refused(capsys, 2, "memory://")


def test_a_policy_file_that_is_missing_is_refused_before_anything_is_connected(capsys: Capture) -> None:
    err = refused(capsys, 2, "rabbitmq://127.0.0.1:1/", "--policy", "no/such/policy.toml")
    assert "no/such/policy.toml" in err


def test_a_policy_that_cannot_be_read_is_refused(capsys: Capture) -> None:
    refused(capsys, 2, "rabbitmq://127.0.0.1:1/", "--policy", "3:fast")


def test_a_destination_that_cannot_be_one_is_refused(capsys: Capture) -> None:
    assert "[destination-name]" in refused(capsys, 2, "rabbitmq://127.0.0.1:1/", "--destination", " ")


def test_a_limbo_that_is_no_database_url_is_refused(capsys: Capture) -> None:
    assert "[limbo-url]" in refused(capsys, 2, "rabbitmq://127.0.0.1:1/", "--limbo", "mysql://x/y")


def test_a_scheme_that_nobody_knows_and_a_variable_that_is_not_set(capsys: Capture) -> None:
    assert "[broker-url-syntax]" in refused(capsys, 2, "kafka://127.0.0.1/")
    assert "[url-missing]" in refused(capsys, 2, "env:NO_SUCH_VARIABLE_HERE")


@pytest.mark.parametrize("scheme", ["rabbitmq", "activemq", "artemis", "rabbitmq+proton"])
def test_a_broker_that_is_away_is_one_line(capsys: Capture, scheme: str) -> None:
    with socket.socket() as bound:  # bound and not listening: refused
        bound.bind(("127.0.0.1", 0))
        err = refused(capsys, 1, f"{scheme}://me:secret@127.0.0.1:{bound.getsockname()[1]}/")
    assert "[broker-unavailable]" in err
    assert "secret" not in err


def test_json_has_the_fields_of_a_finding(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from redeliver_mw import doctor
    from redeliver_mw.doctor.finding import ok, wrong

    found = [ok("tls", "mq", "on"), wrong("target-ttl", "queue:dlq", "it expires", "Take it away")]
    monkeypatch.setattr(doctor, "examine", lambda *_given, **_named: found)
    assert run(["doctor", "rabbitmq://127.0.0.1/", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == [
        {"id": "tls", "status": "ok", "subject": "mq", "reason": "on", "cure": ""},
        {
            "id": "target-ttl",
            "status": "wrong",
            "subject": "queue:dlq",
            "reason": "it expires",
            "cure": "Take it away",
        },
    ]
    found.pop()
    assert run(["doctor", "rabbitmq://127.0.0.1/"]) == 0
    assert "1 ok" in capsys.readouterr().out
