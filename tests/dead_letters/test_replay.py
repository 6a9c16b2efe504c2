# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests replays on the memory broker: how dead letters are read, what a replay carries, and that no fault loses one."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

from redeliver_mw import App, Delivery, Destination, RedeliveryPolicy
from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.dead_letters import Replay, ReplayReport, letter_of
from redeliver_mw.errors import ConfigError, DestinationMissing, NotCopyable, RedeliverError
from redeliver_mw.memory import MemoryAdapter
from redeliver_mw.message import Death
from redeliver_mw.redelivery.copies import replay_copy
from redeliver_mw.testing import ManualClock, MemoryBroker, TestApp, make_delivery

DLQ = Destination("DLQ.orders")
PERSONALITIES = ["rabbitmq", "rabbitmq-classic", "activemq", "artemis"]
RABBITMQ = Capabilities(
    dialect="r",
    broker_kind="rabbitmq",
    subscription_address="{subscription}",
    strip=frozenset({"x-death", "x-delivery-count"}),
    strip_prefixes=("x-first-death-",),
    death_marks={"x-first-death-queue": "{name}"},
)
ACTIVEMQ = Capabilities(
    dialect="a",
    broker_kind="activemq",
    queue_address="/queue/{name}",
    topic_address="/topic/{name}",
    subscription_address="/queue/private.{name}.{subscription}",
)
ARTEMIS = Capabilities(dialect="p", broker_kind="artemis")
OURS = {
    "redeliver_reason": "exhausted",
    "redeliver_failures": "3",
    "redeliver_failures_for": "orders",
    "redeliver_original_destination": "orders",
    "redeliver_original_kind": "queue",
    "redeliver_original_message_id": "m0",
    "redeliver_original_exchange": "shop",
    "redeliver_lineage": "L",
    "redeliver_copy_id": "c1",
    "redeliver_hop": "2",
    "redeliver_generation": "1",
    "redeliver_error_type": "ValueError",
    "redeliver_error_message": "no such lamp",
    "redeliver_last_failed_at": "2026-01-01T00:00:01.500000Z",
    "redeliver_host": "h",
    "redeliver_app": "shop",
    "redeliver_state": '{"page": "3"}',
    "original-destination": "orders",
    "x-first-death-queue": "orders",
}


def letter(headers: dict[str, Any], body: bytes = b"\x00\xff", **more: Any) -> Delivery:
    return make_delivery(body, headers, destination=DLQ, **more)


class DeadLettered:
    """Reads a delivery as if the broker's own marks told of this death."""

    def __init__(self, delivery: Delivery, death: Death) -> None:
        self._reader, self._death = delivery.reader, death

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def death(self, native: Any, /) -> Death:
        return self._death


def dead_lettered(headers: dict[str, Any], source: Destination, reason: str = "rejected", **more: Any) -> Delivery:
    delivery = letter(headers, **more)
    delivery.reader = DeadLettered(delivery, Death(source, reason))
    return delivery


# -- reading a letter -------------------------------------------------------------------------------


def test_a_letter_of_ours_says_where_it_came_from_and_why() -> None:
    found = letter_of(letter(OURS, message_id="m9"), RABBITMQ)
    assert (found.id, found.source, found.evidence, found.problem) == ("c1", Destination("orders"), "ours", "")
    assert (found.reason, found.failures, found.generation) == ("exhausted", 3, 1)
    assert (found.error_type, found.error_message) == ("ValueError", "no such lamp")
    assert (found.since, found.original_message_id, found.body_bytes) == (1767225601.5, "m0", 2)


def test_a_letter_that_a_broker_made_says_what_the_broker_says() -> None:
    found = letter_of(dead_lettered({"tenant": "a"}, Destination("orders"), message_id="m1"), RABBITMQ)
    assert (found.id, found.source, found.evidence) == ("m1", Destination("orders"), "broker")
    assert (found.reason, found.failures, found.problem) == ("rejected", 0, "")


def test_our_reason_counts_for_more_than_the_brokers_marks() -> None:
    found = letter_of(dead_lettered(OURS, DLQ, "expired"), RABBITMQ)
    assert (found.source, found.evidence, found.reason) == (Destination("orders"), "ours", "exhausted")


def test_an_original_destination_alone_makes_no_letter() -> None:
    healthy = {"original-destination": "/topic/VirtualTopic.T"}
    delivery = letter(healthy)
    delivery.reader = DeadLettered(delivery, None)  # no marks
    found = letter_of(delivery, ACTIVEMQ)
    assert (found.evidence, found.source) == ("", None)
    assert found.problem == "no dead letter: no original destination"


@pytest.mark.parametrize(
    ("headers", "capabilities", "source"),
    [
        ({"redeliver_failures_for": "prices::audit"}, ARTEMIS, Destination("prices", "topic", "audit")),
        ({"original-destination": "prices::audit"}, ARTEMIS, Destination("prices", "topic", "audit")),
        ({"original-destination": "audit"}, RABBITMQ, Destination("prices", "topic", "audit")),
        ({"original-destination": "/queue/private.prices.audit"}, ACTIVEMQ, Destination("prices", "topic", "audit")),
        ({"original-destination": "/queue/Consumer.A.T"}, ACTIVEMQ, Destination("Consumer.A.T")),
    ],
)
def test_a_letter_of_a_subscription_goes_back_to_that_subscription(
    headers: dict[str, str], capabilities: Capabilities, source: Destination
) -> None:
    topic = {
        "redeliver_reason": "fatal",
        "redeliver_original_destination": "prices",
        "redeliver_original_kind": "topic",
    }
    assert letter_of(letter(topic | headers), capabilities).source == source


@pytest.mark.parametrize(
    ("address", "capabilities"), [("prices", RABBITMQ), ("prices", ARTEMIS), ("/topic/prices", ACTIVEMQ), ("", ARTEMIS)]
)
def test_a_letter_never_goes_to_a_topic_where_others_would_get_it_again(
    address: str, capabilities: Capabilities
) -> None:
    headers = {
        "redeliver_reason": "fatal",
        "redeliver_original_destination": "prices",
        "redeliver_original_kind": "topic",
        "original-destination": address,
    }
    assert "all of them would get it again" in letter_of(letter(headers), capabilities).problem


def test_the_address_alone_names_the_source_of_a_letter_of_ours_that_says_no_more() -> None:
    headers = {"redeliver_reason": "fatal", "original-destination": "/queue/orders"}
    assert letter_of(letter(headers), ACTIVEMQ).source == Destination("orders")


def test_a_letter_of_the_very_queue_is_not_sent_round_in_a_circle() -> None:
    assert letter_of(dead_lettered({}, DLQ), RABBITMQ).problem == "it was consumed from this very queue"


def test_letters_without_any_id_are_known_by_what_they_are() -> None:
    one = letter_of(dead_lettered({"a": 1}, Destination("orders")), RABBITMQ)
    same = letter_of(dead_lettered({"a": 1, "x-delivery-count": 3}, Destination("orders")), RABBITMQ)
    other = letter_of(dead_lettered({"a": 1}, Destination("orders"), body=b"other"), RABBITMQ)
    assert one.id == same.id != other.id
    assert len(one.id) == 32


@pytest.mark.parametrize("value", ["x", "-3", "9" * 5000, 7.5, None, b"\xff", ["1"]])
def test_what_a_stranger_writes_into_our_headers_does_no_harm(value: Any) -> None:
    names = ("failures", "generation", "last_failed_at", "original_kind", "error_type", "replay_id")
    headers = {"redeliver_reason": "exhausted", "redeliver_original_destination": "orders"}
    found = letter_of(letter(headers | {f"redeliver_{name}": value for name in names}), RABBITMQ)
    assert found.failures == 0
    assert found.since is None


# -- what goes back ---------------------------------------------------------------------------------


def test_a_replay_of_ours_raises_the_generation_and_carries_no_past() -> None:
    given = letter(OURS | {"tenant": "a", "ratio": 1.75}, message_id="m0", user_id="guest", ttl_us=5, priority=4)
    out = replay_copy(given, Destination("orders"), RABBITMQ, replay_id="r1", lineage="unused")
    assert (out.target, out.body) == (Destination("orders"), b"\x00\xff")
    assert out.headers == {
        "tenant": "a",
        "ratio": 1.75,
        "redeliver_original_destination": "orders",
        "redeliver_original_kind": "queue",
        "redeliver_original_message_id": "m0",
        "redeliver_original_exchange": "shop",
        "redeliver_lineage": "L",
        "redeliver_copy_id": out.copy_id,
        "redeliver_hop": "3",
        "redeliver_generation": "2",
        "redeliver_replay_id": "r1",
    }
    assert (out.properties.user_id, out.properties.ttl_us, out.properties.priority) == (None, None, 4)
    again = replay_copy(given, Destination("orders"), RABBITMQ, replay_id="r2", lineage="unused")
    assert again.copy_id == out.copy_id != "c1"


def test_a_replayed_letter_of_the_brokers_own_begins_without_history() -> None:
    given = dead_lettered({"tenant": "a", "x-death": [{"queue": "orders"}]}, Destination("orders"), message_id="m1")
    out = replay_copy(given, Destination("orders"), RABBITMQ, replay_id="r1", lineage="unused")
    lineage = out.headers["redeliver_lineage"]
    assert lineage != "unused"
    assert out.headers == {
        "tenant": "a",
        "redeliver_original_destination": "orders",
        "redeliver_original_kind": "queue",
        "redeliver_original_message_id": "m1",
        "redeliver_lineage": lineage,
        "redeliver_copy_id": out.copy_id,
        "redeliver_hop": "1",
        "redeliver_generation": "1",
        "redeliver_replay_id": "r1",
    }


def test_a_letter_with_nothing_to_be_known_by_gets_a_lineage_of_its_own() -> None:
    out = replay_copy(
        dead_lettered({}, Destination("orders")), Destination("orders"), RABBITMQ, replay_id="r", lineage="new"
    )
    assert out.headers["redeliver_lineage"] == "new"


def test_a_letter_whose_headers_leave_no_room_is_not_sent() -> None:
    small = Capabilities(dialect="s", broker_kind="s", header_bytes=600)
    with pytest.raises(NotCopyable):
        replay_copy(letter(OURS | {"big": "x" * 400}), Destination("orders"), small, replay_id="r", lineage="l")


# -- the round trip ---------------------------------------------------------------------------------


def shop(seen: list[tuple[int, int, str | None]], **options: Any) -> App:
    app = App("memory://", policy=RedeliveryPolicy(dead_after=2, backoff=1.0, **options))

    @app.handler("orders")
    def on_order(delivery: Delivery) -> None:
        seen.append((delivery.failures, delivery.past.generation, delivery.past.replay_id))
        raise ValueError("no such lamp")

    return app


@pytest.mark.parametrize("personality", PERSONALITIES)
def test_a_replayed_message_starts_at_no_failures_one_generation_later(personality: str) -> None:
    seen: list[tuple[int, int, str | None]] = []
    with TestApp(shop(seen), personality=personality) as test:
        test.send("orders", b"one lamp", {"tenant": "a"}, message_id="m1")
        test.advance(5)
        (first,) = test.dead_letters("orders")
        report = test.replay("orders")
        assert (report.count("replayed"), report.whole) == (1, True)
        test.advance(5)
        (second,) = test.dead_letters("orders")
    assert seen == [(0, 0, None), (1, 0, None), (0, 1, report.replay_id), (1, 1, report.replay_id)]
    assert second.body == b"one lamp"
    assert second.headers["tenant"] == "a"
    assert second.headers["redeliver_replay_id"] == report.replay_id
    assert (second.headers["redeliver_generation"], second.headers["redeliver_failures"]) == ("1", "2")
    assert second.headers["redeliver_lineage"] == first.headers["redeliver_lineage"]
    assert second.headers["redeliver_copy_id"] != first.headers["redeliver_copy_id"]


@pytest.mark.parametrize("personality", PERSONALITIES)
def test_a_message_that_is_dead_lettered_again_at_once_is_not_replayed_by_the_same_replay(personality: str) -> None:
    seen: list[tuple[int, int, str | None]] = []
    app = shop(seen, fatal=ValueError)
    with TestApp(app, personality=personality) as test:
        for n in range(120):
            test.send("orders", b"%d" % n, message_id=str(n))
        report = test.replay("orders")
        assert (len(seen), report.count("replayed"), report.whole) == (240, 120, True)
        again = [message.body for message in test.dead_letters("orders")]
    assert Counter(again) == Counter(b"%d" % n for n in range(120))


def test_a_limit_leaves_the_others_where_they_are() -> None:
    with TestApp(shop([])) as test:
        for n in range(5):
            test.send("orders", b"%d" % n, message_id=str(n))
        test.advance(5)
        report = test.replay("orders", limit=2)
        assert (report.count("replayed"), len(test.dead_letters("orders")), test.depth("orders")) == (2, 3, 0)


# -- a broker by hand -------------------------------------------------------------------------------


class Bench:
    """Holds a memory broker with letters in DLQ.orders, and runs replays on it."""

    def __init__(self, personality: str = "rabbitmq") -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(personality, clock=self.clock)
        self.capabilities = self.broker.capabilities
        for name in ("orders", "DLQ.orders"):
            self.broker.declare(name)

    def put_dead_letters(self, *bodies: bytes, **headers: str) -> None:
        for body in bodies:
            own = OURS | {"redeliver_copy_id": f"copy-{body.decode()}", "redeliver_lineage": body.decode()} | headers
            self.broker.send(DLQ, body, {n: v for n, v in own.items() if not n.startswith("x-")})

    def replay(self, **options: Any) -> ReplayReport:
        options.setdefault("drive", lambda: self.clock.advance(0.2))
        return Replay(MemoryAdapter(self.broker, publish_timeout=5.0), DLQ, **options).run()

    def bodies(self, queue: str | Destination) -> list[bytes]:
        return sorted(message.body for message in self.broker.peek(queue))

    @property
    def places(self) -> Counter[bytes]:
        """Return in how many places each message is."""
        return Counter(place.message.body for place in self.broker.everything())


@pytest.fixture(params=PERSONALITIES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


MANY = [b"%03d" % n for n in range(130)]


def test_all_letters_go_back(bench: Bench) -> None:
    bench.put_dead_letters(*MANY)
    told: list[str] = []
    report = bench.replay(tell=lambda outcome: told.append(outcome.fate))
    assert (report.count("replayed"), report.whole, told) == (130, True, ["replayed"] * 130)
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == (MANY, [])


def test_an_empty_queue_is_replayed_at_once(bench: Bench) -> None:
    report = bench.replay()
    assert (report.outcomes, report.whole) == ([], True)


def test_a_queue_that_is_not_there_is_named(bench: Bench) -> None:
    replay = Replay(MemoryAdapter(bench.broker), Destination("DLQ.order"), drive=bench.clock.run_until_idle)
    with pytest.raises(DestinationMissing, match=r"there is no queue:DLQ\.order.*Check its name"):
        replay.run()


def test_a_stranger_among_the_letters_is_skipped_and_stays(bench: Bench) -> None:
    bench.put_dead_letters(b"a")
    bench.broker.send(DLQ, b"stranger", {"who": "knows"})
    bench.put_dead_letters(b"b")
    report = bench.replay()
    assert (report.count("replayed"), report.count("skipped"), report.whole) == (2, 1, False)
    (skipped,) = [outcome for outcome in report.outcomes if outcome.fate == "skipped"]
    assert skipped.why == "no dead letter: no original destination"
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([b"a", b"b"], [b"stranger"])


def test_one_letter_by_its_id_or_by_how_that_begins(bench: Bench) -> None:
    bench.put_dead_letters(b"abc", b"abd", b"xyz")
    assert bench.replay(only="copy-abd").count("replayed") == 1
    assert bench.replay(only="copy-x").count("replayed") == 1
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([b"abd", b"xyz"], [b"abc"])


def test_an_id_that_no_letter_has_or_several_begin_with_sends_nothing(bench: Bench) -> None:
    bench.put_dead_letters(b"abc", b"abd")
    for only, why in (("nobody", "no such letter among the first 2: 'nobody'"), ("copy-ab", "begins the ids of 2")):
        with pytest.raises(RedeliverError, match=why):
            bench.replay(only=only)
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([], [b"abc", b"abd"])


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="limit of 0"):
        Bench().replay(limit=0)


def test_a_topic_is_no_dead_letter_queue() -> None:
    with pytest.raises(ConfigError, match="is no queue"):
        Replay(MemoryAdapter(Bench().broker), Destination("dead", "topic"))


def test_what_is_on_its_way_unconfirmed_is_bounded(bench: Bench) -> None:
    bench.put_dead_letters(*MANY)
    bench.broker.faults.silence("orders", times=None, stored=False)
    report = bench.replay()
    assert report.count("refused") == 50
    assert report.rest == "the broker does not answer"
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([], MANY)


def test_a_full_source_refuses_and_the_letters_stay() -> None:
    bench = Bench()
    broker = MemoryBroker("rabbitmq", clock=bench.clock)
    broker.declare("orders", max_length=2, refuse=True)
    bench.broker = broker
    bench.put_dead_letters(b"a", b"b", b"c")
    report = bench.replay()
    assert [outcome.fate for outcome in report.outcomes] == ["replayed", "replayed", "refused"]
    assert report.outcomes[2].why == "queue:orders did not take it: queue:orders is full"
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([b"a", b"b"], [b"c"])


def test_a_source_that_is_gone_refuses_and_the_letters_stay(bench: Bench) -> None:
    bench.put_dead_letters(b"a", b"b")
    bench.broker.faults.missing("orders")
    report = bench.replay()
    assert (report.count("refused"), report.whole) == (2, False)
    assert bench.bodies(DLQ) == [b"a", b"b"]


def test_a_copy_that_cannot_be_made_is_refused_before_any_send(bench: Bench) -> None:
    size = bench.capabilities.header_bytes - 300
    bench.put_dead_letters(b"a", **{f"big{n}": "x" * 5000 for n in range(size // 5000)}, rest="y" * (size % 5000))
    report = bench.replay()
    assert [outcome.fate for outcome in report.outcomes] == ["refused"]
    assert "its headers need" in report.outcomes[0].why
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == ([], [b"a"])


# -- no fault loses a letter ------------------------------------------------------------------------


@pytest.mark.parametrize("stored", [True, False])
def test_silence_is_not_taken_for_a_yes(bench: Bench, stored: bool) -> None:
    bench.put_dead_letters(b"a", b"b")
    bench.broker.faults.silence("orders", stored=stored)
    report = bench.replay()
    assert set(bench.places) == {b"a", b"b"}
    if not bench.capabilities.atomic_move:  # the copy may be there, and the letter is
        assert report.count("refused") >= 1
        assert b"a" in bench.bodies(DLQ)
    else:
        assert set(bench.places.values()) == {1}
        assert report.count("refused") == stored  # it is gone, and nobody has said where to


def test_a_lost_settle_is_given_again_and_the_copy_not_sent_twice(bench: Bench) -> None:
    bench.put_dead_letters(*MANY)
    bench.broker.faults.drop_settle()
    report = bench.replay()
    assert report.count("replayed") == 130
    assert (bench.bodies("orders"), bench.bodies(DLQ)) == (MANY, [])


@pytest.mark.parametrize("moment", range(1, 14))
def test_a_cut_at_any_moment_loses_nothing_and_the_replay_goes_on(bench: Bench, moment: int) -> None:
    bench.put_dead_letters(*MANY)
    clock, drives = bench.clock, iter(range(1, 10_000))

    def drive() -> None:
        if next(drives) == moment:
            bench.broker.cut()
        for _ in range(3):
            clock.step()
        if not clock.step():
            clock.advance(0.2)

    bench.replay(drive=drive)
    assert set(bench.places) == set(MANY)
    assert bench.bodies(DLQ) == []


@pytest.mark.parametrize("moment", range(1, 60, 4))
@pytest.mark.parametrize("kill", ["process", "broker", "ctrl-c"])
def test_dying_at_any_moment_leaves_every_message_somewhere(bench: Bench, moment: int, kill: str) -> None:
    """With `process` the replay is gone between two steps, and so are its links; the broker sees them cut."""
    bench.put_dead_letters(*MANY)
    clock, drives = bench.clock, iter(range(1, 10_000))
    one: Replay

    class Gone(BaseException):
        pass

    def drive() -> None:
        if next(drives) == moment:
            if kill == "broker":
                bench.broker.kill()
                bench.broker.restart()
            elif kill == "ctrl-c":
                one.stop()
            else:
                bench.broker.cut()
                raise Gone
        for _ in range(2):
            clock.step()
        if not clock.step():
            clock.advance(0.2)

    one = Replay(MemoryAdapter(bench.broker, publish_timeout=5.0), DLQ, drive=drive)
    with contextlib.suppress(Gone):
        one.run()
    clock.run_until_idle()
    places = bench.places
    assert set(places) == set(MANY)
    twice = sum(n - 1 for n in places.values())
    assert twice == 0 if kill == "ctrl-c" else twice <= 50  # only what was unconfirmed or unsettled at that moment
    if kill == "process":
        bench.replay()
        assert (set(bench.bodies("orders")), bench.bodies(DLQ)) == (set(MANY), [])


def test_a_stopped_replay_says_so_and_ends_what_it_began(bench: Bench) -> None:
    bench.put_dead_letters(*MANY)
    one = Replay(MemoryAdapter(bench.broker), DLQ, drive=bench.clock.run_until_idle, tell=lambda _: one.stop())
    report = one.run()
    assert report.interrupted
    assert 1 <= report.count("replayed") <= 50
    assert len(bench.bodies("orders")) == report.count("replayed") == 130 - len(bench.bodies(DLQ))


# -- what a broker dead-lettered itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("personality", "dlq"), [("rabbitmq", "dlx"), ("rabbitmq-classic", "dlx"), ("activemq", ""), ("artemis", "")]
)
def test_a_letter_that_the_broker_dead_lettered_itself_goes_back_to_its_source(personality: str, dlq: str) -> None:
    clock = ManualClock()
    broker = MemoryBroker(personality, clock=clock)
    broker.declare("orders", dead_letter=dlq or None)
    broker.declare("topic:prices", subscription="audit", dead_letter=dlq or None)
    broker.send("orders", b"one", {"tenant": "a"}, message_id="m1")
    link = broker.connect()
    held = link.get("orders")
    assert held is not None
    link.reject(held.tag)
    graveyard = dlq or broker.ways.dead_letters
    found = Replay(MemoryAdapter(broker), Destination(graveyard), drive=clock.run_until_idle).run()
    assert (found.count("replayed"), broker.depth(graveyard)) == (1, 0)
    assert (found.outcomes[0].letter.evidence, found.outcomes[0].letter.source) == ("broker", Destination("orders"))
    (back,) = broker.peek("orders")
    assert (back.body, back.headers["tenant"], back.headers["redeliver_generation"]) == (b"one", "a", "1")
    marks = {"x-death", "x-first-death-queue", "originalExpiration", "original-destination", "_AMQ_ORIG_QUEUE"}
    assert not marks & set(back.headers)


@pytest.mark.parametrize("personality", PERSONALITIES)
def test_a_letter_of_one_subscription_reaches_no_other(personality: str) -> None:
    app = App("memory://", policy=RedeliveryPolicy(dead_after=1, backoff=1.0))
    seen: list[tuple[str, int, int]] = []

    @app.handler("topic:prices", subscription="audit")
    def audit(delivery: Delivery) -> None:
        seen.append(("audit", delivery.failures, delivery.past.generation))
        if delivery.past.generation == 0:
            raise ValueError

    @app.handler("topic:prices", subscription="shop")
    def sell(delivery: Delivery) -> None:
        seen.append(("shop", delivery.failures, delivery.past.generation))

    with TestApp(app, personality=personality) as test:
        test.send("topic:prices", b"one", message_id="m1")
        test.advance(1)
        report = test.replay("topic:prices::audit")
        assert [str(outcome.letter.source) for outcome in report.outcomes] == ["topic:prices::audit"]
        assert report.whole
        test.advance(1)
    assert sorted(seen) == [("audit", 0, 0), ("audit", 0, 1), ("shop", 0, 0)]
