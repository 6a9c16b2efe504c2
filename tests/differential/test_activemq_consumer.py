# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares an App on STOMP with ActiveMQ's own JMS client: one policy, the same failures; counts, delays and ends.

The client gets the policy by a connection's URL, and the App reads it from the same URL. A message fails as often as
its text says, and is then handled; some fail more often than the policy bears. The client reckons a delay from the one
that its consumer had before, for whichever message: so each of its messages has a consumer to itself.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from redeliver_mw.policy import RedeliveryPolicy, load_policies
from tests.adapters.stomp.plain import Plain
from tests.brokers import BrokerMissing
from tests.brokers._process import free_ports
from tests.brokers.activemq import VERSIONS, ActiveMQ
from tests.brokers.skips import not_to_be_had
from tests.differential.failing import APART, Life
from tests.differential.harness import Failing, compiled
from tests.differential.ours import Task, app_of

pytestmark = pytest.mark.broker

ALIKE = 4  # messages that fail equally often: of several the least late tells the delay
EARLY, LATE = 0.002, 0.05  # seconds: both clocks are cut to milliseconds; this machine is busy
LIMIT = 60.0
DEAD = "ActiveMQ.DLQ"
POLICIES = {
    "constant": "initialRedeliveryDelay=90&redeliveryDelay=90&maximumRedeliveries=3",
    "first": "initialRedeliveryDelay=300&redeliveryDelay=40&maximumRedeliveries=3",
    "doubling": "initialRedeliveryDelay=60&useExponentialBackOff=true&backOffMultiplier=2&maximumRedeliveries=4",
    "fraction": "initialRedeliveryDelay=75&useExponentialBackOff=true&backOffMultiplier=1.5&maximumRedeliveries=4",
    "capped": "initialRedeliveryDelay=50&useExponentialBackOff=true&backOffMultiplier=3&maximumRedeliveryDelay=200"
    "&maximumRedeliveries=4",
    "at-once": "initialRedeliveryDelay=0&redeliveryDelay=120&maximumRedeliveries=2",
    "never": "maximumRedeliveries=0",
    "endless": "initialRedeliveryDelay=20&redeliveryDelay=20&maximumRedeliveries=-1",
}
MOST = 12  # failures of a message that no limit ends


class Pair(NamedTuple):
    policy: RedeliveryPolicy
    failures: Mapping[str, int]  # by number, as all that follow
    theirs: Mapping[str, Life]
    ours: Mapping[str, Life]


class Served(ActiveMQ):
    """Serves a port for its own client, too."""

    def __init__(self, version: str) -> None:
        super().__init__(version)
        self.client_url = f"tcp://127.0.0.1:{free_ports(1)[0]}"
        configuration = self.data / "activemq.xml"
        connector = f'<transportConnector name="own" uri="{self.client_url}"/></transportConnectors>'
        configuration.write_text(configuration.read_text().replace("</transportConnectors>", connector))


@pytest.fixture(scope="module", params=VERSIONS)
def pairs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Pair]]:
    """Yield what became of each policy's messages, with ActiveMQ's client and with an App."""
    try:
        served = Served(request.param)
        program = compiled("Failing", request.param, tmp_path_factory.mktemp("classes"))
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with served:
        served.start()
        made = {name: _pair(name, _url(served, name)) for name in POLICIES}
        _run(served, program, made)
        yield made


def _url(served: Served, name: str) -> str:
    words = "&".join(f"jms.redeliveryPolicy.{word}" for word in POLICIES[name].split("&"))
    return f"{served.client_url}?{words}"


def _pair(name: str, url: str) -> Pair:
    policy = load_policies(url).default
    limit = policy.dead_after or MOST
    often = sorted({0, 1, limit - 1, limit, limit + 3} if policy.dead_after else {0, 1, MOST})
    failures = {f"{name}.{often}.{one}": often for often, one in itertools.product(often, range(ALIKE))}
    return Pair(policy, failures, *({number: Life() for number in failures} for _ in range(2)))


def _run(served: Served, program: list[str], pairs: Mapping[str, Pair]) -> None:
    lives = {
        f"{side}.{number}": life
        for pair in pairs.values()
        for side, lives in (("theirs", pair.theirs), ("ours", pair.ours))
        for number, life in lives.items()
    }
    queues = {f"theirs.{number}": _url(served, name) for name, pair in pairs.items() for number in pair.failures}
    tasks = {
        f"ours.{name}": Task(pair.policy, {f"ours.{number}": life for number, life in pair.ours.items()})
        for name, pair in pairs.items()
    }
    plain, letters = Plain(served), Plain(served)
    letters.say("SUBSCRIBE", {"destination": f"/queue/{DEAD}", "id": "letters", "ack": "auto"})
    url = f"activemq://{served.user}:{served.password}@{served.host}:{served.port}"
    with Failing(program, served.user, served.password, queues, lives), app_of(url, tasks):
        for name, pair in pairs.items():
            for number, often in pair.failures.items():
                for queue, side in ((f"theirs.{number}", "theirs"), (f"ours.{name}", "ours")):
                    text = {"content-length": None}  # else it is bytes for the client
                    assert plain.send(f"/queue/{queue}", f"{side}.{number} {often}".encode(), text) == ""
                    time.sleep(APART)
        _await_ends(letters, pairs, lives)
    plain.close()
    letters.close()


def _await_ends(letters: Plain, pairs: Mapping[str, Pair], lives: Mapping[str, Life]) -> None:
    often = {number: times for pair in pairs.values() for number, times in pair.failures.items()}
    end = time.monotonic() + LIMIT
    while open_ := [
        number
        for number, life in lives.items()
        if not life.dead_in and life.deliveries <= often[number.partition(".")[2]]
    ]:
        assert time.monotonic() < end, f"without an end: {sorted(open_)}"
        if (letter := letters.wait(0.1)) is not None:
            lives[letter.body.decode().split()[0]].dead_in = DEAD


@pytest.mark.parametrize("name", POLICIES)
def test_each_message_is_counted_alike_and_ends_alike(pairs: dict[str, Pair], name: str) -> None:
    pair = pairs[name]
    theirs, ours = (
        {number: (life.counts, life.dead_in) for number, life in lives.items()} for lives in (pair.theirs, pair.ours)
    )
    assert ours == theirs
    for number, (counts, dead_in) in theirs.items():  # and both as the seed says: one more than redeliveries
        limit = pair.policy.dead_after or MOST + 1
        assert counts == list(range(1, min(pair.failures[number] + 1, limit) + 1))
        assert dead_in == (DEAD if pair.failures[number] >= limit else "")


@pytest.mark.parametrize("name", POLICIES)
def test_each_message_rests_as_long_after_each_failure(pairs: dict[str, Pair], name: str) -> None:
    pair = pairs[name]
    for failure, (theirs, ours) in enumerate(zip(_rests(pair.theirs), _rests(pair.ours), strict=True), 1):
        told = pair.policy.backoff.span(failure).base
        assert told - EARLY <= min(theirs) < told + LATE, (failure, told, theirs)
        assert told - EARLY <= min(ours) < told + LATE, (failure, told, ours)


def _rests(lives: Mapping[str, Life]) -> Iterator[list[float]]:
    """Yield how long messages rested after each failure, from the first on."""
    for place in itertools.count():
        rests = [life.rests[place] for life in lives.values() if len(life.rests) > place]
        if not rests:
            return
        yield rests
