# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Compares our reading of `address-settings` with what Artemis makes of the same file: delays, ends and precedence.

A broker is started with a `broker.xml`, and that file, whole, is what our reader reads.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest

from redeliver_mw.policy import DeadLetter, Discard, PolicyMap, Redeliver, RedeliveryPolicy
from redeliver_mw.policy.formats.artemis import reader
from tests.brokers import BrokerMissing, broker
from tests.brokers.skips import not_to_be_had
from tests.contract.proton_world import Witness
from tests.differential.failing import Life, Plan, lives

pytestmark = pytest.mark.broker

Resting = tuple[PolicyMap, dict[str, list[Life]]]


def setting(match: str, **fields: object) -> str:
    names = {name.replace("_", "-"): value for name, value in fields.items()}
    body = "".join(f"<{name}>{value}</{name}>" for name, value in names.items())
    return f'<address-setting match="{match}">{body}</address-setting>'


# --- delays and ends

ENDLESS = 13  # deliveries after which an endless message is let go: more than the ten that Artemis gives unasked
ELSEWHERE = "rest.elsewhere"
DEAD = {"DLQ", ELSEWHERE}
RESTS: dict[str, dict[str, object]] = {
    "rest.constant": {"redelivery_delay": 120, "max_delivery_attempts": 5},
    "rest.doubling": {
        "redelivery_delay": 60,
        "redelivery_delay_multiplier": 2,
        "max_redelivery_delay": 5000,
        "max_delivery_attempts": 5,
    },
    "rest.capped": {
        "redelivery_delay": 80,
        "redelivery_delay_multiplier": 3,
        "max_redelivery_delay": 300,
        "max_delivery_attempts": 5,
    },
    "rest.fraction": {"redelivery_delay": 90, "redelivery_delay_multiplier": 1.5, "max_delivery_attempts": 5},
    "rest.shrinking": {"redelivery_delay": 200, "redelivery_delay_multiplier": 0.5, "max_delivery_attempts": 5},
    "rest.tenfold": {"redelivery_delay": 25, "redelivery_delay_multiplier": 4, "max_delivery_attempts": 6},
    "rest.cut": {"redelivery_delay": 150, "max_redelivery_delay": 60, "max_delivery_attempts": 4},
    "rest.minus": {"redelivery_delay": 150, "max_redelivery_delay": -1, "max_delivery_attempts": 4},
    "rest.once": {"redelivery_delay": 100, "max_delivery_attempts": 1, "dead_letter_address": ELSEWHERE},
    "rest.endless": {"redelivery_delay": 50, "max_delivery_attempts": -1},
    "rest.zero": {"redelivery_delay": 40, "max_delivery_attempts": 0},
    "rest.dropped": {"redelivery_delay": 70, "max_delivery_attempts": 3, "dead_letter_address": ""},
    "rest.unsaid": {},
}
JITTERED: dict[str, dict[str, object]] = {
    "rest.jitter": {"redelivery_delay": 200, "redelivery_collision_avoidance_factor": 0.5, "max_delivery_attempts": 9},
    "rest.narrow": {
        "redelivery_delay": 60,
        "redelivery_delay_multiplier": 2,
        "max_redelivery_delay": 220,
        "redelivery_collision_avoidance_factor": 0.25,
        "max_delivery_attempts": 6,
    },
}
PLANS = {
    "rest.endless": Plan(accept=ENDLESS),
    "rest.zero": Plan(accept=ENDLESS),
    "rest.dropped": Plan(forget=3),
}
MESSAGES, MORE = 5, 8  # to each address; and so many times again at most
EARLY, LATE = 0.002, 0.030  # seconds: Artemis reckons in whole milliseconds; what the issue allows
LIMIT = 30.0

# --- precedence

PATTERNS = [
    "*",
    "sh*",
    "s*",
    "shop",
    "shop.*",
    "*.orders",
    "sh*.orders",
    "shop.or*",
    "*.*",
    "shop.orders",
    "*.*.*",
    "*.*.eu",
    "*.orders.*",
    "*.orders.eu",
    "shop.*.eu",
    "shop.*.*",
    "shop.orders.*",
    "shop.orders.eu",
    "*.#",
    "shop.#",
    "*.orders.#",
    "shop.*.#",
    "shop.orders.#",
    "shop.*.eu.#",
    "shop.orders.eu.#",
    "bank.#",
    "bank.*.*.z.#",
    "bank.*.orders.#",
    "bank.pay*",
    "depot#",
    "de*.#",
    "eu.$.#",
    ".#",
    "kiosk.#",
    "kiosk.*",
    "fqqn::q",
]
FIELDS: dict[str, tuple[str, Any]] = {  # by Artemis' names in JSON: ours, and a value of the n-th pattern's own
    "redeliveryDelay": ("redelivery-delay", lambda n: 100 + n),
    "maxRedeliveryDelay": ("max-redelivery-delay", lambda n: 1000 + n),
    "redeliveryMultiplier": ("redelivery-delay-multiplier", lambda n: 1 + n / 8),
    "redeliveryCollisionAvoidanceFactor": ("redelivery-collision-avoidance-factor", lambda n: n / 64),
    "maxDeliveryAttempts": ("max-delivery-attempts", lambda n: n - 1),
    "deadLetterAddress": ("dead-letter-address", lambda n: f"dead.{n}" if n % 4 else ""),
    "expiryAddress": ("expiry-address", lambda n: f"expired.{n}" if n % 5 else ""),
    "autoCreateDeadLetterResources": ("auto-create-dead-letter-resources", lambda n: n % 2 == 0),
    "autoCreateExpiryResources": ("auto-create-expiry-resources", lambda n: n % 3 == 0),
    "deadLetterQueuePrefix": ("dead-letter-queue-prefix", lambda n: f"D{n}."),
    "deadLetterQueueSuffix": ("dead-letter-queue-suffix", lambda n: f".d{n}"),
    "expiryQueuePrefix": ("expiry-queue-prefix", lambda n: f"E{n}."),
    "expiryQueueSuffix": ("expiry-queue-suffix", lambda n: f".e{n}"),
}
WORDS = ("shop", "orders", "eu")
NAMES = [
    *(".".join(words) for size in (1, 2, 3) for words in itertools.product(WORDS, repeat=size)),
    "shop.orders.eu.now",
    "shop.bank.eu.now",
    "shop.x.y.z",
    "x.orders.eu.now",
    "a.b.c.d.e",
    "shipping",
    "stop",
    "shipping.orders",
    "shopping",
    "shop.order",
    "shop.ordersx",
    "bank",
    "bank.pay",
    "bank.payments",
    "bank.x.y",
    "bank.x.orders",
    "bank.x.y.z",
    "bank.x.orders.eu",
    "depot",
    "depot.x.y",
    "depotx",
    "depotx.y",
    "eu.$",
    "eu.$.x",
    "kiosk",
    "kiosk.",
    "kiosk..",
    "kiosk.a",
    "fqqn",
    "fqqn::q",
    "fqqn::other",
    "shop::eu",
    "shop.orders::eu.now",
    "nobody's",
    ".x",
    "with space.orders",
    "DLQ",
]


def patterned() -> str:
    """Return settings in which every pattern sets some fields, written in no order."""
    dice, settings = random.Random(5), []
    for n, pattern in enumerate(PATTERNS, 1):
        chosen = dice.sample(sorted(FIELDS), dice.randint(3, 7))
        said = {FIELDS[name][0]: FIELDS[name][1](n) for name in chosen}
        settings.append(setting(pattern, **{name: _spelled(value) for name, value in said.items()}))
    dice.shuffle(settings)
    # stands there before, in what the broker is always given: Artemis ignores a second one with the same match
    return "".join([*settings, setting("#", max_delivery_attempts=3, dead_letter_address="never")])


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the broker


@contextmanager
def started(settings: str) -> Iterator[Any]:
    """Run an Artemis of our own, with these settings behind those that it always has, and yield it."""
    try:
        found = broker("artemis", version="2.44", address_settings=settings)
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with found:
        yield found


def read(own: Any) -> PolicyMap:
    return reader.read((own.data / "broker.xml").read_text())


@pytest.fixture(scope="module")
def resting() -> Iterator[Resting]:
    """Yield our policies, and what became of the messages at each address.

    A busy machine delivers late, now and then, and nothing delivers early: of several messages after the same failure
    the least late one tells the broker's delay. The messages are sent some time apart, so that not all meet the same
    trouble. More of them are sent to the addresses where some delay has been seen too late only; these addresses are
    fewer each time.
    """
    plans = dict.fromkeys((*RESTS, *JITTERED), Plan()) | PLANS
    with started("".join(setting(match, **fields) for match, fields in {**RESTS, **JITTERED}.items())) as own:
        policies = read(own)
        lives(own, plans, DEAD, 1, LIMIT)  # what a fresh Java does for the first time takes its time
        found = lives(own, plans, DEAD, MESSAGES, LIMIT)
        for _ in range(MORE):
            again = {name: plan for name, plan in plans.items() if late(policies.resolve(name), found[name])}
            if not again:
                break
            for address, more in lives(own, again, DEAD, MESSAGES, LIMIT).items():
                found[address] += more
        yield policies, found


@pytest.fixture(scope="module")
def merging() -> Iterator[tuple[PolicyMap, Witness]]:
    with started(patterned()) as own, closing(Witness(own)) as witness:
        yield read(own), witness


@pytest.mark.parametrize("address", [*RESTS, *JITTERED])
def test_a_message_rests_as_long_as_ours_after_each_failure(resting: Resting, address: str) -> None:
    policies, found = resting
    policy = policies.resolve(address)
    assert {len(life.rests) for life in found[address]} == {(policy.dead_after or ENDLESS) - 1}
    for failure, measured in after_each(found[address]):
        decision = policy.decide(failure)
        assert isinstance(decision, Redeliver)
        assert (decision.low < decision.high) <= (address in JITTERED)
        assert decision.low - EARLY <= min(measured), (failure, decision, measured)
    assert not late(policy, found[address])


def late(policy: RedeliveryPolicy, messages: list[Life]) -> list[object]:
    """Return the failures after which all messages came later than the policy says."""
    spans = [(failure, policy.backoff.span(failure), measured) for failure, measured in after_each(messages)]
    return [(failure, span, measured) for failure, span, measured in spans if min(measured) > span.high + LATE]


def after_each(messages: list[Life]) -> Iterator[tuple[int, tuple[float, ...]]]:
    """Return each failure's number, and how long the messages waited after it."""
    return enumerate(zip(*(life.rests for life in messages), strict=True), 1)


def test_the_range_is_used_on_both_sides(resting: Resting) -> None:
    """There are forty draws or more; two in five should be that far below, one in four that far above."""
    policies, found = resting
    base = policies.resolve("rest.jitter").backoff.span(1).base
    rests = [rest for life in found["rest.jitter"] for rest in life.rests]
    assert min(rests) < base - 0.02 < base + 0.02 + LATE < max(rests)


@pytest.mark.parametrize("address", [*RESTS, *JITTERED])
def test_a_message_ends_at_the_delivery_and_in_the_queue_of_our_policy(resting: Resting, address: str) -> None:
    policies, found = resting
    policy = policies.resolve(address)
    limit = policy.dead_after
    assert [life.deliveries for life in found[address]] == [limit or ENDLESS] * len(found[address])
    end = policy.decide(limit or ENDLESS)
    assert isinstance(end, Redeliver if limit is None else DeadLetter | Discard)
    targets = [str(target) for target in end.targets] if isinstance(end, DeadLetter) else []
    dead_in = [[f"queue:{life.dead_in}"] if life.dead_in else [] for life in found[address]]
    assert dead_in == [targets] * len(found[address])


def test_more_than_fifty_names_have_the_fields_that_the_broker_says(merging: tuple[PolicyMap, Witness]) -> None:
    policies, witness = merging
    assert len(set(NAMES)) == len(NAMES) >= 50
    assert not [line for line in policies.warnings if "equal rank" in line]  # which wins there is the broker's chance
    for name in NAMES:
        said = json.loads(witness.ask("broker", "getAddressSettingsAsJSON", name))
        theirs = {ours: said[json_name] for json_name, (ours, _) in FIELDS.items() if json_name in said}
        assert merged(policies, name) == theirs, name
        assert policies.resolve(name) == reader.build(theirs), name


def merged(policies: PolicyMap, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for entry in policies.matching(name):
        assert isinstance(entry.given, Mapping)
        fields = {**entry.given, **fields}
    return fields
