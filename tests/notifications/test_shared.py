# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests processes that share a store: all send one notification, also while some die, or the store is away."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.notifications import Notification, Notify
from redeliver_mw.session import connect
from redeliver_mw.testing import TestApp
from tests.brokers import Broker
from tests.cli.running import Running, environment
from tests.faults.letters import declare
from tests.notifications.receiver import SECRET, receiving


def handle(delivery: Delivery) -> None:
    if delivery.text == "refused":
        raise Reject("not here")
    if delivery.text != "fine":
        raise type(delivery.text, (Exception,), {})("a bug")


@contextmanager
def process(url: str, got: list[Notification], **options: Any) -> Iterator[TestApp]:
    """Yield a process of an App, as far as its notifications are concerned.

    Each process has a connection to the store.
    """
    notify = Notify(got.append, quiet=20.0)
    app = App("memory://", app_name="shop", operations=url, notify=notify, log_failures=False, **options)
    app.handler("orders")(handle)
    with TestApp(app) as test:
        yield test


def test_processes_that_share_a_store_send_one_notification_of_an_outage_and_one_of_its_end(url: str) -> None:
    got: list[Notification] = []
    with process(url, got) as first, process(url, got) as second, process(url, got) as third:
        tests = (first, second, third)
        for test in tests:
            for _ in range(10):
                test.send("orders", "refused")
        for test in tests:
            test.advance(5)
        (begun,) = got
        assert (begun.type, begun.data["scope"]) == ("dead-letter", "store")
        for _ in range(10):
            for test in tests:
                test.advance(3)
    assert [one.type for one in got] == ["dead-letter", "recovered"]
    assert (got[1].data["dead_letters"], got[1].data["new_failures"]) == (30, 1)
    assert "one process" not in got[1].text


def test_a_failure_is_new_once_for_all_processes_and_starts(url: str) -> None:
    got: list[Notification] = []
    slow = RedeliveryPolicy(99, 7200.0)
    with process(url, got, policy=slow) as first, process(url, got, policy=slow) as second:
        first.send("orders", "OneBug")
        first.advance(5)
        assert [one.type for one in got] == ["new-failure"]  # also within the first ten minutes
        second.advance(25)
        assert [one.type for one in got] == ["new-failure", "recovered"]
        second.send("orders", "OneBug")
        second.advance(25)
    with process(url, got, policy=slow) as third:
        third.send("orders", "OneBug")
        third.advance(25)
        assert len(got) == 2
        third.send("orders", "AnotherBug")
        third.advance(5)
        assert [one.type for one in got[2:]] == ["new-failure"]
        assert got[2].data["errors"][0]["type"] == "AnotherBug"


def test_an_outage_outlives_a_restart(url: str) -> None:
    got: list[Notification] = []
    for _ in range(3):  # an App that is restarted all the time does not notify each time
        with process(url, got) as test:
            test.send("orders", "refused")
            test.advance(5)
    assert [one.type for one in got] == ["dead-letter"]


def test_while_the_store_is_away_each_process_notifies_by_itself_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, gone = tmp_path / "store.db", tmp_path / "gone.db"
    got: list[Notification] = []
    url = f"sqlite:///{file}"
    with process(url, got) as first, process(url, got) as second:
        tests = (first, second)
        for test in tests:
            test.advance(5)
        file.rename(gone)
        for test in tests:
            test.send("orders", "refused")
            test.advance(5)
        assert [(one.type, one.data["scope"]) for one in got] == [("dead-letter", "store-away")] * 2
        assert got[0].text.endswith("; this is of one process, because the store is away")
        gone.rename(file)
        for _ in range(15):
            for test in tests:
                test.advance(3)
        assert [one.type for one in got[2:]] == ["recovered"]
        assert (got[2].data["scope"], got[2].data["dead_letters"]) == ("store", 2)
    texts = [line.getMessage() for line in caplog.records if line.name == "redeliver_mw.notifications"]
    assert sum("this process notifies by itself" in text for text in texts) == 2
    assert sum("its processes notify together again" in text for text in texts) == 2
    assert len(texts) == 4


def test_a_store_that_was_made_anew_is_used_at_once(tmp_path: Path) -> None:
    got: list[Notification] = []
    file = tmp_path / "store.db"
    with process(f"sqlite:///{file}", got) as first:
        first.advance(2)
        for made in tmp_path.glob("store.db*"):
            made.unlink()
        with process(f"sqlite:///{file}", got):
            first.advance(100)
            first.send("orders", "refused")
            first.advance(5)
    assert [(one.type, one.data["scope"]) for one in got] == [("dead-letter", "store")]


def test_an_open_breaker_of_one_process_is_one_outage_of_all(url: str) -> None:
    got: list[Notification] = []
    options = {"breaker": Breaker(min_calls=2), "policy": RedeliveryPolicy(99, 1.0)}
    with process(url, got, **options) as first, process(url, got, **options) as second:
        for test in (first, second):
            for _ in range(2):
                test.send("orders", "OneBug")
        for _ in range(20):
            first.advance(5)
            second.advance(5)
        assert [one.type for one in got] == ["new-failure"]
        assert (got[0].data["breakers_opened"], got[0].data["kinds"]) == (2, ["new-failure", "breaker-open"])


SHOP = """
import signal, sys, time
from redeliver_mw import App, Reject, connect
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.notifications import Notify

register_broker("here", MemoryBroker())
app = App("memory://here", operations={store!r}, notify=Notify({url!r}, quiet=3.0, gather=1.0), declare="all",
          app_name="shop", log_failures=False)

@app.handler("orders")
def on_order(delivery):
    raise Reject("no")

with app, connect("memory://here") as session:
    print("started", flush=True)
    for line in sys.stdin:
        session.publish("orders", line.encode())
"""
"""Is a process with a broker of its own: each line of its input is a message that is dead-lettered."""


def test_two_processes_and_one_store(tmp_path: Path) -> None:
    with receiving() as receiver:
        store = f"sqlite:///{tmp_path}/store.db"
        text = SHOP.format(store=store, url=receiver.url)
        made = [
            subprocess.Popen(
                [sys.executable, "-c", text],
                env=environment(tmp_path, {"REDELIVER_NOTIFY_SECRET": SECRET}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        try:
            for one in made:
                assert one.stdout is not None
                assert one.stdout.readline() == "started\n"
            for _ in range(20):
                for one in made:
                    assert one.stdin is not None
                    one.stdin.write("a\n")
                    one.stdin.flush()
            (begun,) = receiver.until(1)
            assert begun["data"]["scope"] == "store"
            killed, other = made
            killed.send_signal(signal.SIGKILL)
            (_, over) = receiver.until(2)
            assert (over["type"], over["data"]["dead_letters"]) == ("recovered", 40)
            assert over["data"]["outage_id"] == begun["data"]["outage_id"]
            assert other.stdin is not None
            other.stdin.close()
            assert other.wait(30) == 0
        finally:
            for one in made:
                one.kill()
                one.wait()
                for stream in (one.stdin, one.stdout):
                    if stream is not None and not stream.closed:
                        stream.close()
    assert receiver.types == ["dead-letter", "recovered"]


RUN = """
from redeliver_mw import App, Reject

app = App({broker!r}, operations={store!r}, log_failures=False)

@app.handler("notified.orders")
def on_order(delivery):
    raise Reject("no")
"""


def test_the_webhook_of_the_command_line_is_that_of_all_processes_and_in_no_process_list(
    rabbitmq43: Broker, tmp_path: Path
) -> None:
    declare(rabbitmq43, "notified.orders")
    (tmp_path / "shop.py").write_text(RUN.format(broker=rabbitmq43.url, store=f"sqlite:///{tmp_path}/store.db"))
    words = ("run", "shop:app", "--processes", "2", "--notify", "env:HOOK")
    with receiving() as receiver:
        extra = {"REDELIVER_NOTIFY_SECRET": SECRET, "HOOK": receiver.url}
        with Running(tmp_path, *words, extra=extra) as running, connect(rabbitmq43.url) as session:
            for _ in range(20):
                session.publish("notified.orders", b"a")
            (begun,) = receiver.until(1, 90)
            assert (begun["data"]["app"], begun["data"]["scope"]) == ("shop", "store"), running.err
            listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
            assert "redeliver_mw.cli.child" in listed
            assert receiver.url not in listed
            running.signal()
            assert running.wait() == 0
    assert receiver.types == ["dead-letter"]
