# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what can be a handler: others are refused at once, and its lines have run when its message is settled."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from redeliver_mw import App, Delivery, RedeliveryPolicy, Reject, RetryAfter, current_delivery, redeliver
from redeliver_mw.errors import ConfigError, PolicyError
from redeliver_mw.idempotency import Idempotency
from redeliver_mw.memory import MemoryBroker, register_broker
from redeliver_mw.message import Destination
from redeliver_mw.testing import TestApp

ONCE = RedeliveryPolicy(1, 1.0, "queue:dead")
Handler = Callable[[Delivery], Any]


def generator(delivery: Delivery) -> Iterator[int]:
    yield 1


async def async_generator(delivery: Delivery) -> AsyncIterator[int]:
    yield 1


class GeneratorCall:
    def __call__(self, delivery: Delivery) -> Iterator[int]:
        yield 1


class Service:
    def on_order(self, delivery: Delivery) -> None: ...


def no_arguments() -> None: ...


def two_arguments(body: bytes, delivery: Delivery) -> None: ...


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (None, "None is no function"),
        ("on_order", "'on_order' is no function"),
        (generator, "is a generator function"),
        (async_generator, "is a generator function"),
        (functools.partial(generator), "is a generator function"),
        (GeneratorCall(), "is a generator function"),
        (no_arguments, "cannot be called with one argument, the delivery"),
        (two_arguments, "cannot be called with one argument, the delivery"),
        (Service.on_order, "cannot be called with one argument, the delivery"),
        (Service, "cannot be called with one argument, the delivery"),
        (lambda *, delivery: None, "cannot be called with one argument, the delivery"),
    ],
)
def test_what_cannot_be_a_handler_is_refused_when_it_is_registered(handler: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        App("memory://").handler("orders")(handler)
    assert refused.value.where == "queue:orders"
    assert refused.value.code == "handler-not-usable"


def test_with_decode_a_handler_takes_two_arguments_and_of_a_batch_one() -> None:
    app = App("memory://")
    app.handler("a", decode=bytes.decode)(two_arguments)
    app.handler("b", decode=bytes.decode, batch=2)(lambda batch: None)
    with pytest.raises(ConfigError, match="two arguments, the decoded body and the delivery"):
        app.handler("c", decode=bytes.decode)(lambda delivery: None)
    with pytest.raises(ConfigError, match="one argument, the list of deliveries"):
        app.handler("d", batch=2)(two_arguments)


def add_argument(fn: Callable[..., Any]) -> Handler:
    """Pass a further argument, as a decorator of a framework does; Python shows the signature of `fn`."""

    @functools.wraps(fn)
    def inner(delivery: Delivery) -> Any:
        return fn(b"given", delivery)

    return inner


@pytest.mark.parametrize(
    "handler",
    [
        add_argument(two_arguments),
        functools.partial(two_arguments, b"given"),
        Service().on_order,
        print,
        list.append.__get__([]),
        Mock(),
        lambda delivery, option=None: None,
        lambda *arguments: None,
    ],
)
def test_what_can_be_called_with_a_delivery_is_a_handler(handler: Any) -> None:
    app = App("memory://", policy=ONCE)
    app.handler("orders")(handler)
    with TestApp(app) as broker:
        broker.send("orders", b"one")
        assert broker.dead_letters("orders") == []


async def to_the_end(delivery: Delivery) -> None:
    await asyncio.sleep(0)
    delivery.state["ran"] = "yes"
    if delivery.body == b"bad":
        raise ValueError("bad body")


async def in_hand(delivery: Delivery) -> None:
    await asyncio.sleep(0)
    if current_delivery() is not delivery:
        raise ValueError("another one is in hand")


def returns_coroutine(delivery: Delivery) -> Awaitable[None]:
    return to_the_end(delivery)


@functools.wraps(to_the_end)
def wraps_and_returns(delivery: Delivery) -> Awaitable[None]:
    return to_the_end(delivery)


@functools.wraps(to_the_end)
def wraps_and_runs(delivery: Delivery) -> None:
    asyncio.run(to_the_end(delivery))


ASYNC = [to_the_end, returns_coroutine, wraps_and_returns, wraps_and_runs, AsyncMock(wraps=to_the_end)]
NAMES = ["coroutine function", "returns a coroutine", "wraps and returns", "wraps and runs", "mock"]


@pytest.mark.parametrize("handler", ASYNC, ids=NAMES)
@pytest.mark.parametrize("batch", [None, 1])
def test_a_coroutine_runs_to_its_end_before_its_message_is_settled(handler: Handler, batch: int | None) -> None:
    """A coroutine is found however it is hidden. In a real run the App has threads and a loop."""
    name = f"coroutines-{NAMES[ASYNC.index(handler)]}-{batch}".replace(" ", "-")
    broker, seen = MemoryBroker("rabbitmq", name=name, makes_queues=True), []
    register_broker(name, broker)
    app = App(f"memory://{name}", policy=ONCE)
    ended = threading.Event()

    @app.on_attempt
    def note(record: Any) -> None:
        seen.append((record.outcome, record.error_message))
        if len(seen) == 2:
            ended.set()

    app.handler("orders", batch=batch)(handler if batch is None else lambda deliveries: handler(deliveries[0]))
    with app:
        for body in (b"good", b"bad"):
            broker.send(Destination("orders"), body)
        assert ended.wait(20)
    assert sorted(seen) == [("accepted", None), ("dead_lettered", "bad body")]


@pytest.mark.parametrize("handler", ASYNC, ids=NAMES)
def test_a_hand_driven_test_runs_coroutines_too(handler: Handler) -> None:
    app = App("memory://", policy=ONCE)
    app.handler("orders")(handler)
    with TestApp(app) as broker:
        broker.send("orders", b"bad")
        (letter,) = broker.dead_letters("orders")
    assert letter.headers["redeliver_error_message"] == "bad body"
    assert letter.headers["redeliver_state"] == '{"ran": "yes"}'


# The one that is left out runs a loop on the thread that calls it, where the test's runs.
@pytest.mark.parametrize("handler", [one for one in ASYNC if one is not wraps_and_runs])
def test_so_does_one_that_is_a_coroutine_itself(handler: Handler) -> None:
    """A loop runs on the thread of the test, as with pytest-asyncio."""

    async def test() -> list[dict[str, Any]]:
        app = App("memory://", policy=ONCE)
        app.handler("orders")(handler)
        with TestApp(app) as broker:
            broker.send("orders", b"bad")
            broker.send("orders", b"good")
            return [letter.headers for letter in broker.dead_letters("orders")]

    (headers,) = asyncio.run(test())
    assert headers["redeliver_error_message"] == "bad body"


def test_a_returned_coroutine_knows_its_delivery() -> None:
    broker, outcomes, ended = MemoryBroker("rabbitmq", name="in-hand", makes_queues=True), [], threading.Event()
    register_broker("in-hand", broker)
    app = App("memory://in-hand", policy=ONCE)

    @app.on_attempt
    def note(record: Any) -> None:
        outcomes.append((record.outcome, record.error_message))
        ended.set()

    app.handler("orders")(lambda delivery: in_hand(delivery))
    with app:
        broker.send(Destination("orders"), b"one")
        assert ended.wait(20)
    assert outcomes == [("accepted", None)]


@pytest.mark.parametrize("make", [generator, async_generator])
def test_a_generator_that_a_handler_returns_is_a_failure(make: Handler) -> None:
    app = App("memory://", policy=ONCE)
    app.handler("orders")(lambda delivery: make(delivery))
    with TestApp(app) as broker:
        broker.send("orders", b"one")
        (letter,) = broker.dead_letters("orders")
    assert letter.headers["redeliver_error_type"] == "TypeError"
    assert "it returned a generator" in letter.headers["redeliver_error_message"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_end_of_the_process_in_a_returned_coroutine_is_a_failure_and_others_go_on(
    error: type[BaseException],
) -> None:
    name = f"ended-{error.__name__}"
    broker, outcomes = MemoryBroker("rabbitmq", name=name, makes_queues=True), []
    register_broker(name, broker)
    app, ended = App(f"memory://{name}", policy=ONCE), threading.Event()

    async def handle(delivery: Delivery) -> None:
        if delivery.body == b"bad":
            raise error

    @app.on_attempt
    def note(record: Any) -> None:
        outcomes.append(record.outcome)
        if len(outcomes) == 2:
            ended.set()

    app.handler("orders")(lambda delivery: handle(delivery))
    with app:
        for body in (b"bad", b"good"):
            broker.send(Destination("orders"), body)
        assert ended.wait(20)
    assert sorted(outcomes) == ["accepted", "dead_lettered"]


@pytest.mark.parametrize("batch", [None, 1])
def test_a_stop_cancels_a_returned_coroutine_and_leaves_its_message_to_the_broker(batch: int | None) -> None:
    name = f"cancelled-{batch}"
    broker, begun = MemoryBroker("rabbitmq", name=name, makes_queues=True), threading.Event()
    register_broker(name, broker)
    cancelled = threading.Event()
    app = App(f"memory://{name}", policy=ONCE)

    async def never_ends(_: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    app.handler("orders", batch=batch)(lambda given: never_ends(given))
    app.start()
    broker.send(Destination("orders"), b"one")
    assert begun.wait(20)
    report = app.stop(0.0)
    assert cancelled.wait(20)
    assert report.unsettled == 1
    assert broker.depth(Destination("orders")) == 1
    assert broker.depth(Destination("dead")) == 0


REFUSES: dict[str, Callable[[Any], object]] = {
    "decode": lambda function: App("memory://").handler("orders", decode=function)(two_arguments),
    "key": lambda function: App("memory://").handler("orders", key=function),
    "on_attempt": lambda function: App("memory://").on_attempt(function),
    "retry_on": lambda function: RedeliveryPolicy(retry_on=function),
    "key of idempotency": lambda function: Idempotency(key=function),
}


@pytest.mark.parametrize("option", REFUSES)
@pytest.mark.parametrize("function", [to_the_end, async_generator, generator], ids=["async", "async-yield", "yield"])
def test_a_function_of_which_a_call_runs_nothing_is_refused_as_an_argument(option: str, function: Any) -> None:
    with pytest.raises((ConfigError, PolicyError)):
        REFUSES[option](function)


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize(
    ("word", "reason", "failures"), [(Reject("not ours"), "rejected", "1"), (RetryAfter(1.0), "exhausted", "2")]
)
def test_a_decoder_is_taken_at_its_word(batch: int | None, word: Exception, reason: str, failures: str) -> None:
    def decode(body: bytes) -> bytes:
        if body == b"bad":
            raise word
        return body

    app, handled = App("memory://", policy=RedeliveryPolicy(2, 1.0, "queue:dead")), []
    take = handled.append if batch else (lambda body, delivery: handled.append(body))
    app.handler("orders", decode=decode, batch=batch)(take)
    with TestApp(app) as broker:
        for body in (b"bad", b"good"):
            broker.send("orders", body)
        broker.advance(5)
        (letter,) = broker.dead_letters("orders")
    assert (letter.headers["redeliver_reason"], letter.headers["redeliver_failures"]) == (reason, failures)
    assert len(handled) == 1


BOUND: ContextVar[str] = ContextVar("bound", default="nothing")


def bind(delivery: Delivery) -> None:
    delivery.state["seen"] = BOUND.get()
    BOUND.set(delivery.text)
    if delivery.text == "bad":
        raise ValueError("bad body")


async def bind_async(delivery: Delivery) -> None:
    await asyncio.sleep(0)
    bind(delivery)


def bind_batch(deliveries: Sequence[Delivery]) -> None:
    bind(deliveries[0])


class Uncomparable:
    """Is compared as an array of numpy is: the answer is no bool."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("ambiguous")


@pytest.mark.parametrize("handler", [bind, bind_async, lambda delivery: bind_async(delivery), bind_batch])
@pytest.mark.parametrize("inline", [True, False], ids=["by hand", "with threads"])
def test_what_a_handler_binds_in_its_context_is_gone_with_the_next_message(
    handler: Any, inline: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The line of a failure is written in the context of its handler."""
    name = f"bound-{handler.__name__}-{inline}".replace("<lambda>", "lambda")
    logged: list[str] = []
    caplog.handler.addFilter(lambda record: logged.append(BOUND.get()) or True)
    app, handled = App(f"memory://{name}", policy=RedeliveryPolicy(2, 0.0, "queue:dead")), threading.Event()
    app.handler("orders", batch=1 if handler is bind_batch else None)(handler)
    app.on_attempt(lambda record: handled.set() if record.outcome == "dead_lettered" else None)
    broker = MemoryBroker("rabbitmq", name=name, makes_queues=True)
    register_broker(name, broker)
    bodies = (b"one", b"two", b"bad")
    if inline:
        with TestApp(app) as test:
            for body in bodies:
                test.send("orders", body)
            test.advance(1)
            letters = test.dead_letters("orders")
    else:
        for body in bodies:
            broker.send(Destination("orders"), body)
        with app:
            assert handled.wait(20)
        letters = broker.peek("dead")
    assert [letter.headers["redeliver_state"] for letter in letters] == ['{"seen": "nothing"}']
    assert BOUND.get() == "nothing"
    if handler in (bind, bind_batch) or (handler is bind_async and not inline):  # others run in a copy of it
        assert "bad" in logged


def test_a_value_that_cannot_be_compared_stops_no_worker() -> None:
    array: ContextVar[Uncomparable] = ContextVar("array")
    array.set(Uncomparable())
    broker, handled = MemoryBroker("rabbitmq", name="uncomparable", makes_queues=True), []
    register_broker("uncomparable", broker)
    app, done = App("memory://uncomparable"), threading.Event()

    @app.handler("orders")
    async def handle(delivery: Delivery) -> None:
        array.set(Uncomparable())
        handled.append(delivery.text)
        if len(handled) == 3:
            done.set()

    for body in (b"1", b"2", b"3"):
        broker.send(Destination("orders"), body)
    with app:
        assert done.wait(20)
    assert handled == ["1", "2", "3"]


def test_a_guarded_handler_that_returns_a_coroutine_is_a_failure_and_not_marked(tmp_path: Any) -> None:
    once = Idempotency(f"sqlite:///{tmp_path}/done.db")
    app = App("memory://", policy=RedeliveryPolicy(2, 1.0, "queue:dead"))
    app.handler("orders")(once.guard(returns_coroutine))
    with TestApp(app) as broker:
        broker.send("orders", b"one", message_id="m1")
        broker.advance(2)
        (letter,) = broker.dead_letters("orders")
    assert letter.headers["redeliver_failures"] == "2"
    assert "it returned a coroutine" in letter.headers["redeliver_error_message"]


def test_a_marked_handler_stays_marked() -> None:
    """A mark on the coroutine function inside is the policy of a plain function around it."""
    marked = redeliver(ONCE)(to_the_end)

    @functools.wraps(marked)
    def around(delivery: Delivery) -> Awaitable[None]:
        return marked(delivery)

    app = App("memory://")
    app.handler("orders")(around)
    with TestApp(app) as broker:
        broker.send("orders", b"bad")
        assert len(broker.dead_letters("orders")) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2.5}, "workers=2.5 is no whole number from 1"),
        ({"workers": "4"}, "workers='4' is no whole number from 1"),
        ({"workers": True}, "workers=True is no whole number from 1"),
        ({"prefetch": 1.5}, "prefetch=1.5 is no whole number from 1"),
        ({"prefetch": 10**30}, "prefetch=1000"),
        ({"decode": 5}, "decode=5 is no function"),
    ],
)
def test_a_handlers_options_are_checked_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        App("memory://").handler("orders", **options)(lambda *arguments: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 2.5}, "workers=2.5 is no whole number"),
        ({"prefetch": float("inf")}, "prefetch=inf is no whole number"),
        ({"journal": 5}, "journal=5 is no folder"),
        ({"limbo": b"postgresql://u:hidden@h/d"}, "limbo is no text, but of the type bytes"),
        ({"operations": 5}, "operations is no text, but of the type int"),
        ({"app_name": 5}, "app_name is no text, but of the type int"),
        ({"url": b"rabbitmq://u:hidden@h/"}, "a value of the type bytes is no broker URL"),
    ],
)
def test_an_apps_options_of_another_type_are_refused_and_no_secret_is_shown(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        App(**({"url": "memory://"} | options))
    assert "hidden" not in str(refused.value)
