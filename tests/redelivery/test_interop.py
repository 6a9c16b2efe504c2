# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what the five systems read from messages and write on them; the numbers are those of their manuals."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.memory import StoredMessage
from redeliver_mw.memory.reader import MemoryReader
from redeliver_mw.policy import Expiry, PolicyMap, Target, load_policies
from redeliver_mw.redelivery.copies import STATE_BYTES
from redeliver_mw.testing import TestApp

HANDLING, COUNT = "_JMSJCA_RedeliveryHandling", "_JMSJCA_RedeliveryCount"
FIRST_DATA, SECOND_DATA = "_JMSJCA_UserRollbackData", "_JMSJCA_UserRollbackData2"
STOP = "_JMSJCA_StopMessageDelivery"
DATE = "atg.dms.patchbay.MessageLimbo.DELIVERY_DATE"
LIMIT = "JMS_BEA_RedeliveryLimit"


class Failing:
    """Always fails, and notes what its run saw and when."""

    def __init__(self, test: TestApp | None = None) -> None:
        self.test = test
        self.times: list[float] = []
        self.seen: list[dict[str, Any]] = []

    def __call__(self, delivery: Delivery) -> None:
        if self.test is not None:
            self.times.append(round(self.test.clock.now().mono, 3))
        self.seen.append({name: value for name, value in delivery.headers.items() if name.startswith("_JMSJCA_")})
        self.act(delivery)
        raise ValueError("no")

    act: Callable[[Delivery], object] = staticmethod(lambda delivery: None)


def letters_of(
    policy: str | RedeliveryPolicy | PolicyMap,
    failing: Failing,
    *,
    headers: dict[str, Any] | None = None,
    seconds: float = 100.0,
    source: str = "orders",
    **properties: Any,
) -> list[StoredMessage]:
    """Return the dead letters of one message that `failing` got."""
    app = App("memory://", policy=policy, allow_hot_loop=True)  # as WebLogic's default is
    app.handler(source)(failing)
    with TestApp(app) as failing.test:
        began = failing.test.clock.now().mono
        failing.test.send(source, b"one", headers, **properties)
        failing.test.advance(seconds)
        failing.times = [round(time - began, 3) for time in failing.times]
        return failing.test.dead_letters(source)


class TestJmsjca:
    def test_the_handler_reads_how_often_the_message_failed(self) -> None:
        failing = Failing()
        letters_of("1:100; 3:move(queue:dead)", failing)
        assert [seen[COUNT] for seen in failing.seen] == [0, 1, 2]

    def test_a_string_that_the_handler_sets_is_that_messages_policy_from_then_on(self) -> None:
        failing = Failing()

        def act(delivery: Delivery) -> None:
            if delivery.failures == 1:
                delivery.headers[HANDLING] = "1:100; 2:700; 4:move(queue:dead)"

        failing.act = act
        (letter,) = letters_of("1:250; 9:move(queue:dead)", failing)
        assert failing.times == [0.0, 0.25, 0.95, 1.65]  # after failures 2 and 3 as `2:700` says
        assert letter.headers["redeliver_failures"] == "4"
        assert letter.headers["redeliver_policy"] == "1:100; 2:700; 4:move(queue:dead)"

    def test_another_message_keeps_the_apps_policy(self) -> None:
        app, times = App("memory://", policy="1:1000; 2:move(queue:dead)"), {b"a": 0, b"b": 0}

        @app.handler("orders")
        def on_order(delivery: Delivery) -> None:
            times[delivery.body] += 1
            if delivery.body == b"a":
                delivery.headers[HANDLING] = "5:delete"
            raise ValueError("no")

        with TestApp(app) as test:
            test.send("orders", b"a")
            test.send("orders", b"b")
            test.advance(100.0)
            assert [letter.body for letter in test.dead_letters("orders")] == [b"b"]
        assert times == {b"a": 5, b"b": 2}

    def test_a_string_that_is_none_is_logged_and_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        failing = Failing()
        failing.act = lambda delivery: delivery.headers.update({HANDLING: "soon"})
        (letter,) = letters_of("2:move(queue:dead)", failing)
        assert len(failing.seen) == 2
        assert letter.headers["redeliver_policy"] == "2:move(queue:dead)"
        assert "'soon' is no redelivery string" in caplog.text

    def test_what_the_handler_keeps_is_there_at_its_next_run_and_on_the_moved_message(self) -> None:
        failing = Failing()

        def act(delivery: Delivery) -> None:
            delivery.headers.setdefault(FIRST_DATA, "half done")
            delivery.headers[SECOND_DATA] = str(delivery.failures)

        failing.act = act
        (letter,) = letters_of("1:20000; 3:move(queue:dead)", failing)  # a retry copy carries it
        assert failing.seen == [
            {COUNT: 0},
            {COUNT: 1, FIRST_DATA: "half done", SECOND_DATA: "0"},
            {COUNT: 2, FIRST_DATA: "half done", SECOND_DATA: "1"},
        ]
        for start in ("_JMSJCA_", "JMS_Sun_JMSJCA_"):
            assert letter.headers[f"{start}UserRollbackData"] == "half done"
            assert letter.headers[f"{start}UserRollbackData2"] == "2"

    def test_a_moved_message_says_where_it_comes_from_in_both_spellings(self) -> None:
        (letter,) = letters_of(
            "2:move(queue:dead)",
            Failing(),
            headers={"mine": "kept"},
            message_id="m-1",
            correlation_id="c-1",
            timestamp_us=1_700_000_000_123_000,
        )
        words = {
            "RedeliveryCount": "2",
            "OriginalDestinationName": "orders",
            "OriginalDestinationType": "javax.jms.Queue",
            "OriginalTimestamp": "1700000000123",
            "OriginalJMSMessageID": "m-1",
            "OriginalJMSCorrelationID": "c-1",
            "ExceptionClass": "ValueError",
            "ExceptionMessage": "no",
        }
        for start in ("_JMSJCA_", "JMS_Sun_JMSJCA_"):
            found = {n.removeprefix(start): v for n, v in letter.headers.items() if n.startswith(start)}
            assert "raise ValueError" in found.pop("ExceptionStackTrace")
            assert found == words
        assert letter.headers["mine"] == "kept"

    def test_a_trace_without_end_is_cut_and_the_message_moved(self) -> None:
        failing = Failing()

        def act(delivery: Delivery) -> None:
            raise ValueError("x" * 200_000)

        failing.act = act
        (letter,) = letters_of("1:move(queue:dead)", failing)
        assert len(letter.headers["_JMSJCA_ExceptionMessage"].encode()) <= 2048
        assert sum(len(name) + len(str(value)) for name, value in letter.headers.items()) < 30_000

    def test_a_handler_can_stop_the_delivery_of_messages(self, caplog: pytest.LogCaptureFixture) -> None:
        app, done = App("memory://", policy="3:delete"), []

        @app.handler("orders")
        def on_order(delivery: Delivery) -> None:
            done.append(delivery.body)
            delivery.headers[STOP] = True

        with TestApp(app) as test:
            for n in range(3):
                test.send("orders", b"%d" % n)
            assert done == [b"0"]  # handled, and the last one
            assert app.health()["sources"]["queue:orders"]["paused"] is True
            assert "paused" in caplog.text
            app.resume("orders")
            assert done == [b"0", b"1"]

    def test_properties_set_by_the_sender_are_not_taken_for_the_handlers_and_stay_on_the_message(self) -> None:
        failing = Failing()
        sent = {HANDLING: "1:delete", FIRST_DATA: "the sender's", STOP: "true"}
        (letter,) = letters_of("2:move(queue:dead)", failing, headers=sent)
        assert [set(seen) for seen in failing.seen] == [{COUNT}, {COUNT}]
        assert {name: letter.headers[name] for name in sent} == sent

    def test_in_another_language_they_are_headers_like_others(self) -> None:
        failing = Failing()
        failing.act = lambda delivery: delivery.headers.update({HANDLING: "1:delete"})
        (letter,) = letters_of(RedeliveryPolicy(2, 0.0, "queue:dead"), failing)
        assert failing.seen[0] == {}
        assert "_JMSJCA_RedeliveryCount" not in letter.headers

    def test_a_replayed_message_has_left_them_behind(self) -> None:
        app, failing = App("memory://", policy="2:move(queue:dead)"), Failing()
        app.handler("orders")(failing)
        with TestApp(app) as failing.test:
            failing.test.send("orders", b"one", {"mine": "kept"})
            failing.test.advance(1.0)
            failing.test.replay("orders")
            failing.test.advance(1.0)
            assert [seen[COUNT] for seen in failing.seen] == [0, 1, 0, 1]
            (letter,) = failing.test.dead_letters("orders")
            assert letter.headers["_JMSJCA_RedeliveryCount"] == "2"
            assert letter.headers["mine"] == "kept"

    def test_more_than_fits_is_left_out_newest_first(self) -> None:
        failing = Failing()
        failing.act = lambda delivery: delivery.headers.update({FIRST_DATA: "a" * 100, SECOND_DATA: "b" * STATE_BYTES})
        letters_of("1:20000; 2:move(queue:dead)", failing)
        assert FIRST_DATA in failing.seen[1]
        assert SECOND_DATA not in failing.seen[1]


WORK = """<weblogic-jms><queue name="orders"><delivery-failure-params>{}
<error-destination>dead</error-destination></delivery-failure-params></queue><queue name="dead"/></weblogic-jms>"""


class TestWebLogic:
    @pytest.mark.parametrize(("limit", "runs"), [(0, 1), (1, 2), (4, 5), ("2", 3)])
    def test_w4_the_senders_limit_holds_where_the_destination_sets_none(self, limit: object, runs: int) -> None:
        failing = Failing()
        (letter,) = letters_of(WORK.format(""), failing, headers={LIMIT: limit})
        assert len(failing.seen) == runs
        assert letter.headers["redeliver_failures"] == str(runs)

    def test_the_destinations_limit_stands_over_the_senders(self) -> None:
        failing = Failing()
        letters_of(WORK.format("<redelivery-limit>2</redelivery-limit>"), failing, headers={LIMIT: 7})
        assert len(failing.seen) == 3

    @pytest.mark.parametrize("limit", ["soon", "", None, 1.5, True, "9" * 30])
    def test_what_is_no_number_is_no_limit(self, limit: object) -> None:
        app, failing = App("memory://", policy=WORK.format(""), allow_hot_loop=True), Failing()
        app.handler("orders")(failing)
        with TestApp(app) as test:

            def act(delivery: Delivery) -> None:
                if delivery.failures == 9:
                    app.pause("orders")  # else it would go on for ever and at once

            failing.act = act
            test.send("orders", b"one", {LIMIT: limit})
            assert len(failing.seen) == 10
            assert test.dead_letters("orders") == []

    def test_an_expired_message_is_logged_as_the_policy_says(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "redeliver_mw")
        policy = RedeliveryPolicy(9, 5.0, "queue:dead", expiry=Expiry("log", log="JMSPriority, foo ,%none%"))
        assert self.expired(policy, foo="bar", password="hush") == []
        (line,) = [r.getMessage() for r in caplog.records if "expired" in r.getMessage() and r.name == "redeliver_mw"]
        assert line == "queue:orders: an expired message is dropped: JMSMessageID=m-1, JMSPriority=3, foo=bar"

    def test_all_properties_are_logged_without_secrets(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "redeliver_mw")
        policy = RedeliveryPolicy(9, 5.0, "queue:dead", expiry=Expiry("log", log="%Header%,%PROPERTIES%"))
        self.expired(policy, foo="bar", password="hush")
        (line,) = [r.getMessage() for r in caplog.records if "expired" in r.getMessage() and r.name == "redeliver_mw"]
        for part in ("JMSMessageID=m-1", "JMSDestination=queue:orders", "JMSPriority=3", "foo=bar", "password=***"):
            assert part in line
        assert "hush" not in line

    @pytest.mark.parametrize("lives", [None, 30.0])
    def test_a_redirected_message_keeps_everything_and_lives_as_long_as_the_policy_says(
        self, lives: float | None
    ) -> None:
        policy = RedeliveryPolicy(9, 5.0, expiry=Expiry("redirect", Target("queue", "late"), time_to_live=lives))
        (letter,) = self.expired(policy, foo="bar")
        assert (letter.body, letter.headers["foo"], letter.headers["redeliver_reason"]) == (b"one", "bar", "expired")
        assert letter.properties.priority == 3
        left = letter.properties.expires_at_us
        assert left is None if lives is None else left == self.at_us + 5_000_000 + 30_000_000

    @pytest.mark.parametrize("priority", [0, 9])
    def test_a_redirected_message_gets_the_priority_of_its_new_destination(self, priority: int) -> None:
        late = f"<delivery-params-overrides><priority>{priority}</priority></delivery-params-overrides>"
        module = f"""<weblogic-jms><queue name="orders">
          <delivery-params-overrides><redelivery-delay>5000</redelivery-delay></delivery-params-overrides>
          <delivery-failure-params><redelivery-limit>9</redelivery-limit><error-destination>late</error-destination>
          <expiration-policy>Redirect</expiration-policy></delivery-failure-params></queue>
          <queue name="late">{late}</queue></weblogic-jms>"""
        (letter,) = self.expired(load_policies(module).resolve("orders"))
        assert letter.properties.priority == priority

    def test_the_log_line_has_what_weblogic_knows_of_a_message(self, caplog: pytest.LogCaptureFixture) -> None:
        names = "JMSXDeliveryCount,JMSDeliveryTime,JMSRedeliveryLimit,JMSDeliveryMode"
        with caplog.at_level(logging.INFO, "redeliver_mw"):
            self.expired(RedeliveryPolicy(9, 5.0, expiry=Expiry("log", log=names)), JMS_BEA_DeliveryTime=1700000000000)
        (line,) = [record.getMessage() for record in caplog.records if "an expired message" in record.getMessage()]
        # it has failed once and comes for the second time; nine failures are eight redeliveries
        assert line.endswith(
            "JMSMessageID=m-1, JMSXDeliveryCount=2, JMSDeliveryTime=1700000000000, JMSRedeliveryLimit=8, "
            "JMSDeliveryMode=NON_PERSISTENT"
        )

    def test_the_log_line_of_all_headers_has_the_delivery_mode_and_the_limit(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, "redeliver_mw"):
            self.expired(RedeliveryPolicy(None, 5.0, expiry=Expiry("log", log="%header%")))
        (line,) = [record.getMessage() for record in caplog.records if "an expired message" in record.getMessage()]
        assert "JMSRedeliveryLimit=-1" in line
        assert f"JMSDeliveryTime={self.at_us // 1000 - 1000}" in line  # when it was sent
        assert "JMSDeliveryMode=NON_PERSISTENT" in line

    def expired(self, policy: RedeliveryPolicy, **headers: Any) -> list[StoredMessage]:
        """Return the messages in *late* and *dead* after one has failed and was delayed by five seconds.

        The message had two seconds to live.
        """
        app, failing = App("memory://", policy=policy), Failing()
        app.handler("orders")(failing)
        with TestApp(app) as failing.test:
            now = self.at_us = failing.test.clock.now().us
            given = {"priority": 3, "timestamp_us": now - 1_000_000, "persistent": False}
            failing.test.send("orders", b"one", headers, message_id="m-1", expires_at_us=now + 2_000_000, **given)
            failing.test.advance(6.0)
            assert len(failing.seen) == 1
            return [*failing.test.broker.peek("late"), *failing.test.broker.peek("dead")]


SINK = """<dynamo-message-system><patch-bay><message-sink><input-port><input-destination>
<destination-name>orders</destination-name><destination-type>Queue</destination-type>
{}</input-destination></input-port>{}</message-sink></patch-bay></dynamo-message-system>"""
THREE = """<redelivery><max-attempts>3</max-attempts><delay>60000</delay>
<failure-output-port>Failed</failure-output-port></redelivery>"""
FAILED = """<redelivery-port><port-name>Failed</port-name><output-destination><destination-name>dead</destination-name>
<destination-type>Queue</destination-type></output-destination></redelivery-port>"""


class TestPatchBay:
    @pytest.mark.parametrize("spelled", [int, str])
    @pytest.mark.parametrize("seconds", [1, 7, 3600])
    def test_p6_a_message_with_a_date_is_handled_then_and_not_before(self, spelled: type, seconds: int) -> None:
        app, times = App("memory://", policy=SINK.format("", ""), allow_hot_loop=True), []
        app.handler("orders")(lambda delivery: times.append(test.clock.now().mono))
        with TestApp(app) as test:
            now = test.clock.now()
            test.send("orders", b"later", {DATE: spelled(now.us // 1000 + seconds * 1000)})
            test.send("orders", b"now")
            assert times == [now.mono]
            test.advance(seconds - 0.1)
            assert len(times) == 1
            test.advance(0.2)
            assert times[1:] == [pytest.approx(now.mono + seconds, abs=0.002)]

    def test_failures_of_a_dated_message_are_delayed_by_the_policy_and_not_by_the_date_again(self) -> None:
        failing = Failing()
        app = App("memory://", policy=SINK.format(THREE, FAILED))
        app.handler("orders")(failing)
        with TestApp(app) as failing.test:
            now = failing.test.clock.now()
            failing.test.send("orders", b"one", {DATE: now.us // 1000 + 5000})
            failing.test.advance(1000.0)
        assert [time - now.mono for time in failing.times] == [pytest.approx(t, abs=0.01) for t in (5, 65, 125)]

    @pytest.mark.parametrize("date", ["soon", "", None, True, 1.5, "1700000000000"])
    def test_a_date_that_is_none_or_past_is_not_waited_for(self, date: object) -> None:
        app, done = App("memory://", policy=SINK.format("", ""), allow_hot_loop=True), []
        app.handler("orders")(lambda delivery: done.append(delivery.body))
        with TestApp(app) as test:
            test.send("orders", b"one", {DATE: date})
            assert done == [b"one"]
            assert test.depth("orders") == 0

    def test_a_stop_leaves_a_message_with_a_date_to_the_broker(self) -> None:
        app, done = App("memory://", policy=SINK.format("", ""), allow_hot_loop=True), []
        app.handler("orders")(lambda delivery: done.append(delivery.body))
        test = TestApp(app).start()
        test.send("orders", b"later", {DATE: test.clock.now().us // 1000 + 3_600_000})
        test.stop()
        assert (done, test.depth("orders")) == ([], 1)

    def test_in_another_language_a_date_is_a_header(self) -> None:
        app, done = App("memory://"), []
        app.handler("orders")(lambda delivery: done.append(delivery.body))
        with TestApp(app) as test:
            test.send("orders", b"one", {DATE: test.clock.now().us // 1000 + 3_600_000})
            assert done == [b"one"]


class Unreadable(MemoryReader):
    """Reads messages whose headers no driver can decode."""

    def headers(self, native: Any, /) -> dict[str, Any]:
        raise ValueError("no table of headers")


@pytest.mark.parametrize("policy", ["2:move(queue:dead)", SINK.format("", "")])
def test_headers_that_cannot_be_read_say_nothing_and_stop_nobody(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redeliver_mw.memory.adapter.MemoryReader", Unreadable)
    app, done = App("memory://", policy=policy, allow_hot_loop=True), []
    app.handler("orders")(lambda delivery: done.append(delivery.body))
    with TestApp(app) as test:
        test.send("orders", b"one")
        test.send("orders", b"two")
        assert done == [b"one", b"two"]
        assert test.depth("orders") == 0


def test_the_attempts_of_a_message_with_its_own_policy_are_recorded_under_that() -> None:
    app = App("memory://", policy=WORK.format(""), allow_hot_loop=True)
    records, failing = list[AttemptRecord](), Failing()
    app.handler("orders")(failing)
    app.on_attempt(records.append)
    with TestApp(app) as test:
        test.send("orders", b"one", {LIMIT: 1})
    (letter_version,) = {record.policy_version for record in records}
    assert letter_version != app._specs[next(iter(app.sources))].policy.resolve("orders").version
