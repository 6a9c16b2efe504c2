# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests order by key over graceful stops, kills and parking.

The consumers are in processes of their own, on real brokers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, take
from tests.faults.load import channel_on, kill, until

pytestmark = pytest.mark.broker

SOURCE, DEAD = "order.stops", "order.stops.dead"
PATIENCE = 180.0
QUORUM = {"x-queue-type": "quorum"}
QUEUES: dict[str, dict[str, Any]] = {
    "classic": {},
    "quorum": QUORUM,
    "quorum with a limit": QUORUM | {"x-delivery-limit": 1000},
}
PLACES = [
    "activemq518",
    "activemq63",
    "artemis244",
    *(f"{version} {kind}" for version in ("rabbitmq310", "rabbitmq43") for kind in QUEUES),
]


class Attempt(NamedTuple):
    """Holds one line of a consumer's log."""

    what: str
    text: str
    count: int

    @property
    def key(self) -> str:
        return self.text.split(":")[0]

    @property
    def number(self) -> int:
        return int(self.text.split(":")[1])


class Place:
    """Holds a source and a dead-letter queue on a broker, and consumers of the source."""

    def __init__(self, broker: Broker, kind: str, folder: Path) -> None:
        self.broker, self.url, self._log, self._broken = broker, broker.url, folder / "log", folder / "broken"
        self._limbo = f"sqlite:///{folder / 'limbo.db'}"
        self._children: list[subprocess.Popen[bytes]] = []
        if kind:
            declare(broker, DEAD)
            with channel_on(broker) as channel:
                channel.queue_delete(SOURCE)
                channel.queue_declare(SOURCE, durable=True, arguments=QUEUES[kind])
        else:
            declare(broker, SOURCE, DEAD)

    def publish(self, keys: list[str], each: int, failures: int, *, ids: bool = True) -> None:
        """Publish messages of each key, of which the first one fails so often."""
        with connect(self.broker.url) as session:
            for n in range(each):
                for key in keys:
                    text = f"{key}:{n}:{0 if n else failures}"
                    properties = {"message_id": f"id-{text}"} if ids else {}
                    session.publish(SOURCE, text.encode(), {"customer": key}, **properties)

    def consume(self, rest: float, *, limbo: bool = False, crash_safe: bool = False, **more: Any) -> Any:
        app = {"limbo": self._limbo} if limbo else {}
        app |= {"crash_safe": True} if crash_safe else {}
        given = {"url": self.url, "queue": SOURCE, "dead": DEAD, "log": str(self._log), "rest": rest}
        command = [sys.executable, "-m", "tests.faults.order_consumer", json.dumps(given | {"app": app} | more)]
        with self._log.with_suffix(".err").open("ab") as errors:
            child = subprocess.Popen(command, stderr=errors, start_new_session=True)
        self._children.append(child)
        return child

    def break_it(self) -> None:
        self._broken.touch()

    def mend(self) -> None:
        self._broken.unlink()

    def attempts(self, what: str) -> list[Attempt]:
        text = self._log.read_text() if self._log.exists() else ""
        found = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [Attempt(w, message, int(count)) for w, message, count in found if w == what]

    def failed(self) -> int:
        return len({one.text for one in self.attempts("failed")})

    def handled(self) -> dict[str, list[int]]:
        """Return the messages of each key, in the order in which each was handled first."""
        handled: dict[str, list[int]] = {}
        for one in dict.fromkeys((one.key, one.number) for one in self.attempts("done")):
            handled.setdefault(one[0], []).append(one[1])
        return handled

    def wait_for_all(self, keys: list[str], each: int) -> None:
        until(lambda: sum(map(len, self.handled().values())) >= len(keys) * each, PATIENCE, "they are not all handled")

    def errors(self) -> str:
        return self._log.with_suffix(".err").read_text()

    def close(self) -> None:
        for child in self._children:
            kill(child)
        take(self.broker, SOURCE)


def end(child: subprocess.Popen[bytes], how: signal.Signals) -> None:
    os.killpg(child.pid, how)
    child.wait(30)


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name, _, kind = request.param.partition(" ")
    found = Place(request.getfixturevalue(name), kind, tmp_path)
    yield found
    found.close()


@pytest.fixture(params=["activemq63", "artemis244", "rabbitmq43 classic", "rabbitmq43 quorum"])
def one_of_each(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name, _, kind = request.param.partition(" ")
    found = Place(request.getfixturevalue(name), kind, tmp_path)
    yield found
    found.close()


TWENTY, EACH = [f"k{n}" for n in range(20)], 6
IN_ORDER = {key: list(range(EACH)) for key in TWENTY}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_twenty_keys_with_held_messages_in_front_are_in_order_after_an_end(place: Place, how: signal.Signals) -> None:
    place.break_it()
    place.publish(TWENTY, EACH, 1)
    child = place.consume(2.0)
    until(lambda: place.failed() == 20, PATIENCE, "they do not fail")
    end(child, how)
    place.mend()
    place.consume(0.2)
    place.wait_for_all(TWENTY, EACH)
    assert place.handled() == IN_ORDER


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_delays_that_others_wait_out_in_copies_at_the_broker_keep_the_order_too(
    one_of_each: Place, how: signal.Signals
) -> None:
    place = one_of_each
    place.break_it()
    place.publish(TWENTY, EACH, 1)
    child = place.consume(14.0)
    until(lambda: place.failed() == 20, PATIENCE, "they do not fail")
    end(child, how)
    place.mend()
    place.consume(0.2)
    place.wait_for_all(TWENTY, EACH)
    assert place.handled() == IN_ORDER


@pytest.mark.parametrize("keeps", ["limbo", "crash_safe"])
def test_with_a_limbo_a_stop_keeps_order_and_count(one_of_each: Place, keeps: str) -> None:
    place = one_of_each
    place.break_it()
    place.publish(TWENTY, EACH, 1)
    child = place.consume(1.0, limbo=True, crash_safe=keeps == "crash_safe")
    until(lambda: place.failed() == 20, PATIENCE, "they do not fail")
    end(child, signal.SIGTERM)
    last = {one.text: one.count for one in place.attempts("failed")}
    place.mend()
    place.consume(1.0, limbo=True, crash_safe=keeps == "crash_safe")
    place.wait_for_all(TWENTY, EACH)
    assert place.handled() == IN_ORDER
    counts = {one.text: one.count for one in place.attempts("done") if one.number == 0}
    assert all(counts[text] > last[text] for text in last)


def test_rabbitmq_gives_back_to_the_front_over_amqp_10_too(rabbitmq43: Broker, tmp_path: Path) -> None:
    place = Place(rabbitmq43, "quorum", tmp_path)
    place.url = rabbitmq43.url.replace("rabbitmq://", "rabbitmq+proton://", 1)
    try:
        place.break_it()
        place.publish(TWENTY, EACH, 1)
        child = place.consume(2.0)
        until(lambda: place.failed() == 20, PATIENCE, "they do not fail")
        end(child, signal.SIGTERM)
        place.mend()
        place.consume(0.2)
        place.wait_for_all(TWENTY, EACH)
    finally:
        place.close()
    assert place.handled() == IN_ORDER


THREE, MANY = ["a", "b", "c"], 30


@pytest.mark.parametrize("keys", [["a"], THREE], ids=["one key", "three keys"])
def test_what_is_parked_of_a_key_comes_back_in_its_order(one_of_each: Place, keys: list[str]) -> None:
    place = one_of_each
    place.publish(keys, MANY, 3)
    child = place.consume(1.0, limbo=True, order={"max_waiting": 5, "overflow": "park"})
    place.wait_for_all(keys, MANY)
    assert "they are parked" in place.errors()
    assert place.handled() == {key: list(range(MANY)) for key in keys}
    end(child, signal.SIGTERM)
    assert take(place.broker, DEAD) == []


@pytest.mark.parametrize(
    "how", [signal.SIGTERM, pytest.param(signal.SIGKILL, marks=pytest.mark.long)], ids=["stop", "kill"]
)
@pytest.mark.parametrize("prefetch", [400, 24], ids=["all at once", "a small window"])
def test_what_is_parked_comes_back_after_an_end_in_the_middle_and_after_a_stop_in_its_order(
    one_of_each: Place, how: signal.Signals, prefetch: int
) -> None:
    place = one_of_each
    place.break_it()
    place.publish(THREE, MANY, 1)
    child = place.consume(1.0, limbo=True, order={"max_waiting": 5, "overflow": "park"}, prefetch=prefetch)
    until(lambda: "they are parked" in place.errors(), PATIENCE, "nothing is parked")
    until(lambda: len(place.attempts("failed")) > 6, PATIENCE, "they do not fail")
    end(child, how)
    place.mend()
    child = place.consume(1.0, limbo=True, order={"max_waiting": 5, "overflow": "park"}, prefetch=prefetch)
    until(lambda: len(place.attempts("done")) > 30, PATIENCE, "they are not handled")
    end(child, how)
    place.consume(1.0, limbo=True, order={"max_waiting": 5, "overflow": "park"}, prefetch=prefetch)
    place.wait_for_all(THREE, MANY)
    assert place.handled() == {key: list(range(MANY)) for key in THREE}


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stop", "kill"])
def test_messages_without_an_id_come_back_to_their_places_when_others_of_their_key_are_parked(
    one_of_each: Place, how: signal.Signals
) -> None:
    place = one_of_each
    place.break_it()
    place.publish(THREE, MANY, 1, ids=False)
    child = place.consume(1.0, limbo=True, order={"most": 5, "then": "park"})
    until(lambda: "they are parked" in place.errors(), PATIENCE, "nothing is parked")
    until(lambda: len(place.attempts("failed")) > 6, PATIENCE, "they do not fail")
    end(child, how)
    place.mend()
    place.consume(1.0, limbo=True, order={"most": 5, "then": "park"})
    place.wait_for_all(THREE, MANY)
    assert place.handled() == {key: list(range(MANY)) for key in THREE}
