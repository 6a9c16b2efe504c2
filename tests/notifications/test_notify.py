# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests Apps and drop-in wrappers that notify: of what, when, and that no message is affected by it."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject
from redeliver_mw.cli.main import run
from redeliver_mw.errors import ConfigError
from redeliver_mw.flow.breaker import Breaker
from redeliver_mw.memory import register_broker
from redeliver_mw.notifications import Notification, Notify, sender, sink, targets
from redeliver_mw.notifications.sender import MOST_WAITING, NotificationSender
from redeliver_mw.notifications.targets import NotifyFunction, Webhook
from redeliver_mw.testing import Faults, MemoryBroker, TestApp
from tests.cli.test_run_processes import eventually
from tests.dropin.memory_driver import Consumer, Message
from tests.notifications.receiver import SECRET, Receiver, is_signed, receiving

POLICY = RedeliveryPolicy(2, 1.0)
TEN_MINUTES = 600.0


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


def handle(delivery: Delivery) -> None:
    """Do as the body says."""
    if delivery.text == "refused":
        raise Reject("not here")
    if delivery.text == "other":
        raise KeyError("another bug")
    if delivery.text != "fine":
        raise ConnectionError(f"no database, password=geheim\nbody {delivery.text}")


def notifying(notify: Any, **options: Any) -> TestApp:
    """Return a started App on a broker in memory, whose clock is moved by hand."""
    faults = options.pop("faults", None)
    made = App("memory://", app_name="shop", notify=notify, log_failures=False, **({"policy": POLICY} | options))
    made.handler("orders")(handle)
    made.handler("bills")(handle)
    return TestApp(made, faults=faults).start()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.name == "redeliver_mw.notifications"]


# -- what is notified ---------------------------------------------------------------------------------


def test_an_outage_of_two_sources_is_one_notification_and_its_end_another() -> None:
    got: list[Notification] = []
    with notifying(got.append) as test:
        for n in range(50):
            test.send("orders", f"a secret of customer {n}")
            test.send("bills", "b")
        test.advance(60)
        (begun,) = got
        assert begun.type == "dead-letter"
        assert begun.text.startswith(
            "shop: queue:bills, queue:orders: 100 dead letters; ConnectionError: no database, "
        )
        assert begun.data["failures"] == 100  # those before the first dead letter were of a failure that is not new yet
        (error,) = begun.data["errors"]
        assert (error["message"], error["new"]) == ("no database, password=***", False)
        assert "customer" not in str(begun.payload())
        for _ in range(20):
            test.send("orders", "c")
            test.advance(60)
        test.advance(400)
    assert [one.type for one in got] == ["dead-letter", "recovered"]
    assert got[1].data["dead_letters"] == 120
    assert got[1].data["outage_id"] == begun.data["outage_id"]
    assert got[1].id != begun.id


def test_without_a_store_nothing_is_new_in_the_first_ten_minutes() -> None:
    got: list[Notification] = []
    with notifying(got.append, policy=RedeliveryPolicy(9, 3600.0)) as test:
        test.send("orders", "a")
        test.advance(TEN_MINUTES)
        test.send("orders", "b")  # seen before
        test.advance(60)
        assert got == []
        test.send("orders", "other")
        test.send("bills", "other")
        test.advance(60)
    (begun,) = got
    assert (begun.type, begun.data["new_failures"]) == ("new-failure", 1)  # its fingerprint is one, in two sources
    assert begun.data["scope"] == "process"


def test_an_open_breaker_and_its_end_are_notified() -> None:
    got: list[Notification] = []
    breaker = Breaker(min_calls=3, open_for=30)
    with notifying(got.append, breaker=breaker, policy=RedeliveryPolicy(99, 1.0)) as test:
        for _ in range(3):
            test.send("orders", "a")
        test.advance(10)
        (begun,) = got
        assert begun.type == "breaker-open"
        assert "the breaker is open; " in begun.text
        assert begun.data["sources"][0]["why"]
        test.advance(3600)  # it is tried, and opens again, all the time
        assert len(got) == 1


def test_a_breaker_that_closes_ends_its_outage() -> None:
    got: list[Notification] = []
    fails = [True]
    app = App("memory://", policy=RedeliveryPolicy(99, 1.0), notify=got.append, breaker=Breaker(min_calls=3))

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        if fails[0]:
            raise ConnectionError("away")

    with TestApp(app) as test:
        for _ in range(3):
            test.send("orders", "a")
        test.advance(100)
        fails[0] = False
        test.advance(1000)
        assert [one.type for one in got] == ["breaker-open", "recovered"]


def test_a_source_that_is_paused_for_a_person_is_notified() -> None:
    got: list[Notification] = []
    faults = Faults()
    with notifying(got.append, faults=faults) as test:
        faults.refuse("queue:DLQ.orders", times=None)
        test.send("orders", "refused")
        test.advance(20)
        (begun,) = got
        assert (begun.type, begun.data["pauses"]) == ("source-paused", 1)
        assert "DLQ.orders" in begun.data["sources"][0]["why"]


def test_a_message_that_is_handled_at_once_does_not_reach_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[Notification] = []
    with notifying(got.append) as test:
        assert test.app._engine is not None
        hook = test.app._engine._telemetry
        assert (hook.handled, hook.run_begins, hook.run_ended, hook.settled) == (None, None, None, None)
        for _ in range(100):
            test.send("orders", "fine")
        test.advance(1000)
    assert got == []


def test_an_outage_that_has_just_begun_is_notified_at_the_stop() -> None:
    got: list[Notification] = []
    with notifying(got.append) as test:
        test.send("orders", "refused")
        assert got == []
    assert [one.type for one in got] == ["dead-letter"]


def test_a_storm_of_failures_of_different_kinds_needs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "MOST_COUNTS", 50)
    got: list[Notification] = []
    app = App("memory://", policy=RedeliveryPolicy(1), notify=got.append, log_failures=False)

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        raise type(f"Bug{delivery.text}", (Exception,), {})("x" * 10_000)

    test = TestApp(app).start()
    notifier = app._notifier
    assert notifier is not None
    for n in range(200):
        test.broker.send(next(iter(app.sources)), str(n).encode(), {})
    monkeypatch.setattr(notifier, "run_once", lambda: 1.0)  # the notifier hangs
    test.clock.run_until_idle()
    assert len(notifier.sink._failures) == 51
    monkeypatch.undo()
    test.advance(10)
    assert got[0].data["dead_letters"] == 200
    assert len(got[0].body()) < 20_000
    test.stop()


# -- webhooks ------------------------------------------------------------------------------------------


def test_a_webhook_gets_signed_json(receiver: Receiver) -> None:
    with notifying(receiver.url, notify_secret=SECRET) as test:
        test.send("orders", "refused")
        test.advance(5)
        (begun,) = receiver.until(1)
        test.advance(400)
        assert receiver.until(2)[1]["type"] == "recovered"
    assert begun.keys() == {"id", "type", "timestamp", "text", "data"}
    assert receiver.tries == [one["id"] for one in receiver.got]


def test_the_signature_is_that_of_the_published_example_and_of_any_text() -> None:
    # The example of the specification of Standard Webhooks.
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    found = Webhook("https://hooks.example/x", secret).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", body, 1614265330)
    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    now = int(time.time())
    for secret in ("geheim", SECRET):
        headers = Webhook("http://hooks.example/x", secret).headers("id", body, now)
        assert is_signed(secret, headers, body)
        assert not is_signed(secret, headers, body + b" ")
        assert not is_signed("another", headers, body)


def test_a_webhook_that_answers_500_is_logged_once_and_gets_all_when_it_works(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(sender, "LONGEST_PAUSE", 0.05)
    receiver.answer = 500
    handled: list[str] = []
    with notifying(receiver.url, notify_secret=SECRET) as test:
        test.app.on_attempt(lambda record: handled.append(record.outcome))
        test.send("orders", "refused")
        test.advance(400)
        assert eventually(lambda: len(receiver.tries) >= 5)
        test.send("orders", "fine")
        assert (receiver.got, len(test.dead_letters("orders"))) == ([], 1)
        receiver.answer = 200
        assert [one["type"] for one in receiver.until(2)] == ["dead-letter", "recovered"]
        assert eventually(lambda: len(warnings(caplog)) == 2)
    begun, over = warnings(caplog)
    place = receiver.url.removesuffix("/hooks/a-token")
    assert begun == (
        "a notification did not arrive, and is tried again for 10 min; messages are not affected: "
        f"{place}: it answers 500 [notify-failed]"
    )
    assert over == f"{place}: notifications arrive again"
    assert len(set(receiver.tries)) == 2  # each try has the id of its notification


@pytest.mark.parametrize("answer", [301, 302, 307, 404])
def test_only_2xx_counts_as_arrived(receiver: Receiver, answer: int) -> None:
    receiver.answer = answer
    hook = Webhook(receiver.url, SECRET)
    with pytest.raises(Exception, match=f"it answers {answer} "):
        hook.send(Notification("i", "recovered", "t", "x", {}))
    assert len(receiver.tries) == 1


def test_a_webhook_that_never_answers_holds_up_nothing(
    receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "TIMEOUT", 1.0)  # for each of 70 messages, if they waited
    monkeypatch.setattr("redeliver_mw.notifications.notifier.PATIENCE", 0.3)
    receiver.silent.set()
    begun = time.monotonic()
    with notifying(receiver.url, notify_secret=SECRET) as test:
        for n in range(MOST_WAITING + 20):
            test.send(("orders", "bills")[n % 2], "refused")
            test.advance(1000)
        assert len(test.dead_letters("orders")) + len(test.dead_letters("bills")) == MOST_WAITING + 20
        assert test.app._notifier is not None
        assert len(test.app._notifier._sender._waiting) <= MOST_WAITING
        assert eventually(lambda: any("it does not answer within" in text for text in warnings(caplog)))
    assert time.monotonic() - begun < 35
    texts = warnings(caplog)
    assert len(texts) == 3, texts
    for part in ("it does not answer within", "the oldest are dropped"):  # of two threads, either may be first
        assert sum(part in text for text in texts[:2]) == 1
    assert texts[2].endswith("notifications could not be sent before the end")


def test_a_host_that_does_not_exist_is_an_error_without_the_path() -> None:
    hook = Webhook("http://127.0.0.1:1/hooks/a-token", SECRET)
    with pytest.raises(
        Exception, match=r"^http://127\.0\.0\.1:1: it cannot be reached: .*\[notify-failed\]$"
    ) as failed:
        hook.send(Notification("i", "recovered", "t", "x", {}))
    assert "a-token" not in str(failed.value)


# -- functions ------------------------------------------------------------------------------------------


def test_a_function_that_raises_is_logged_once_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def notify(notification: Notification) -> None:
        calls.append(notification.type)
        raise OSError("no mail")

    with notifying(notify) as test:
        for _ in range(3):
            test.send("orders", "refused")
            test.advance(400)
        assert len(test.dead_letters("orders")) == 3
    assert calls == ["dead-letter", "recovered"] * 3
    # The thread of another test's webhook may still be ending.
    (line,) = [line for line in warnings(caplog) if not line.startswith("a notification did not arrive")]
    assert line.endswith("notify failed; it is called again for the next notification")


def test_a_function_that_never_returns_holds_up_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "SLOW", 0.1)
    over, called = threading.Event(), threading.Event()

    def notify(notification: Notification) -> None:
        called.set()
        over.wait(30)

    name = "blocking-function"
    register_broker(name, MemoryBroker())
    app = App(f"memory://{name}", policy=POLICY, notify=Notify(notify, quiet=0.1, gather=0.0), declare="all")
    handled = threading.Event()

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        if delivery.text == "last":
            handled.set()
        else:
            raise Reject("no")

    monkeypatch.setattr("redeliver_mw.notifications.notifier.PATIENCE", 0.2)
    monkeypatch.setattr("redeliver_mw.notifications.notifier.LOOK_EVERY", 0.2)
    from redeliver_mw import connect

    with app, connect(f"memory://{name}") as session:
        session.publish("orders", b"first")
        assert called.wait(10)
        session.publish("orders", b"last")
        assert handled.wait(10)
        assert eventually(lambda: any("has not returned" in text for text in warnings(caplog)))
    over.set()
    assert sum("has not returned" in text for text in warnings(caplog)) == 1


def test_an_idle_notifier_sleeps() -> None:
    got: list[Notification] = []
    with notifying(got.append) as test:
        notifier = test.app._notifier
        assert notifier is not None
        assert notifier.run_once() is None


# -- what is refused ---------------------------------------------------------------------------------------


async def _coroutine(notification: Notification) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("notify", "secret", "what"),
    [
        ("hooks.example/x", SECRET, "it is no http or https URL"),
        ("ftp://hooks.example/x", SECRET, "it is no http or https URL"),
        ("http://", SECRET, "it is no http or https URL"),
        ("http://h:port/", SECRET, "it is no URL"),
        ("http://h:99999/", SECRET, "it is no URL"),
        ("http://[::1/", SECRET, "it is no URL"),
        ("http://h/a b", SECRET, "characters that must be percent-encoded"),
        ("http://h/\u00fc", SECRET, "characters that must be percent-encoded"),
        ("http://u:geheim@h/", SECRET, "a user or a password"),
        ("", SECRET, "it is no http or https URL"),
        (17, None, "int is neither a URL nor a function"),
        (Notify(cast(Any, 17)), None, "int is neither a URL nor a function"),
        (_coroutine, None, "a coroutine function would never be awaited"),
        (functools.partial(_coroutine), None, "a coroutine function would never be awaited"),
        ("http://h/", "", "it is empty"),
        ("http://h/", "whsec_", "goes on in base64"),
        ("http://h/", "whsec_geheim!", "goes on in base64"),
        ("http://h/", b"geheim", "it is no text"),
        (print, "geheim", "it signs nothing: a function gets no signature"),
        (None, "geheim", "it signs nothing: there is no notify="),
    ],
)
def test_what_cannot_notify_is_refused(notify: Any, secret: Any, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDELIVER_NOTIFY_SECRET", raising=False)
    for made in (lambda: App("memory://", notify=notify, notify_secret=secret), lambda: _wrapper(notify, secret)):
        with pytest.raises(ConfigError) as refused:
            made()
        assert what in str(refused.value)
        assert refused.value.code in ("notify-target", "notify-secret")
        assert "geheim" not in str(refused.value)


def test_a_webhook_without_a_secret_gets_no_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REDELIVER_NOTIFY_SECRET", raising=False)
    unsigned = Webhook("https://hooks.example/x", None).headers("one", b"{}", 1767225600)
    assert set(unsigned) == {"Content-Type", "User-Agent", "webhook-id", "webhook-timestamp"}
    assert "webhook-signature" in Webhook("https://hooks.example/x", SECRET).headers("one", b"{}", 1767225600)


def _wrapper(notify: Any, secret: Any) -> Consumer:
    return Consumer(lambda message: None, notify=notify, notify_secret=secret)


@pytest.mark.parametrize("times", [{"quiet": -1}, {"quiet": True}, {"gather": 400}, {"quiet": float("nan")}])
def test_times_that_cannot_be_are_refused(times: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="option-value"):
        Notify("http://h/", **times)


def test_the_secret_may_come_from_the_environment(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDELIVER_NOTIFY_SECRET", "from outside")
    receiver.secret = "from outside"
    with notifying(receiver.url) as test:
        test.send("orders", "refused")
        test.advance(5)
        receiver.until(1)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("hooks.example", "error: notify: it is no http or https URL. "),
        ("env:NO_SUCH_HOOK", "error: --notify: the variable 'NO_SUCH_HOOK' is not set. "),
        ("http://hooks .example/", "error: notify: the URL has characters that must be percent-encoded. "),
    ],
)
def test_a_wrong_webhook_of_the_command_line_is_one_error(
    given: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("REDELIVER_NOTIFY_SECRET", raising=False)
    (tmp_path / "notified_shop.py").write_text('from redeliver_mw import App\n\napp = App("memory://")\n')
    monkeypatch.chdir(tmp_path)
    assert run(["run", "notified_shop:app", "--notify", given]) == 2
    assert capsys.readouterr().err.startswith(said)


def test_a_settings_file_names_the_webhook(receiver: Receiver, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text(f'[tool.redeliver.app]\nurl = "memory://"\nnotify = "{receiver.url}"\n')
    app = App.from_config(file, notify_secret=SECRET)
    app.handler("orders")(handle)
    with TestApp(app) as test:
        test.send("orders", "refused")
        test.advance(5)
        receiver.until(1)


# -- the sender, and drop-in wrappers ------------------------------------------------------------------------


def test_a_sender_without_anything_to_send_has_no_thread() -> None:
    before = set(threading.enumerate())
    made = NotificationSender(NotifyFunction(print))
    made.close(1.0)
    assert (set(threading.enumerate()) - before, made.left()) == (set(), 0)


def test_wrappers_with_the_same_target_notify_together() -> None:
    got: list[Notification] = []

    def callback(message: Message) -> None:
        message.nack(requeue=False)

    option = Notify(got.append, quiet=60, gather=0.2)  # the clock of the wrappers' messages is weeks behind
    before = {thread.name for thread in threading.enumerate()}
    consumers = [Consumer(callback, notify=option, app_name="shop") for _ in range(2)]
    assert {thread.name for thread in threading.enumerate()} == before
    for consumer in consumers:
        consumer.put("a")
    assert eventually(lambda: len(got) == 2)
    assert [one.type for one in got] == ["dead-letter", "recovered"]
    assert (got[1].data["app"], got[1].data["dead_letters"]) == ("shop", 2)


def test_nothing_is_logged_while_notifications_arrive(caplog: pytest.LogCaptureFixture) -> None:
    with notifying(lambda notification: None) as test:
        test.send("orders", "refused")
        test.advance(1000)
    assert warnings(caplog) == []
