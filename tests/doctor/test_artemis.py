# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `redeliver doctor` against Artemis: each wrong setting is found with its cure, and a right broker has none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.doctor import FindingStatus
from redeliver_mw.policy import RedeliveryPolicy
from tests.brokers import Broker, BrokerMissing, broker
from tests.brokers._process import free_ports
from tests.brokers.skips import not_to_be_had
from tests.doctor.findings import AheadClock, examined, problems, the, unique, unknown

WARNING, WRONG = FindingStatus.WARNING, FindingStatus.WRONG

# Each is the address-setting of a match, and the problem of a queue under it.
SETTINGS = {
    "drop": "<address-full-policy>DROP</address-full-policy><max-size-bytes>100000</max-size-bytes>",
    "fail": "<address-full-policy>FAIL</address-full-policy><max-size-bytes>100000</max-size-bytes>",
    "block": "<address-full-policy>BLOCK</address-full-policy><max-size-messages>10</max-size-messages>",
    "nodla": "<dead-letter-address></dead-letter-address><max-delivery-attempts>3</max-delivery-attempts>",
    "few": "<max-delivery-attempts>3</max-delivery-attempts>",
    "unbound": "<dead-letter-address>NOWHERE</dead-letter-address><max-delivery-attempts>50</max-delivery-attempts>",
    "delayed": "<redelivery-delay>500</redelivery-delay>",
    "expiring": "<expiry-delay>5000</expiry-delay>",
    "mayexpire": "<max-expiry-delay>7000</max-expiry-delay><expiry-address></expiry-address>",
    "back": "<expiry-delay>5000</expiry-delay><expiry-address>returned</expiry-address>",
    "deadback": "<dead-letter-address>returned</dead-letter-address>",
}
ADDRESS_SETTINGS = "".join(
    f'<address-setting match="{name}.#">{setting}</address-setting>' for name, setting in SETTINGS.items()
)


@pytest.fixture(scope="module")
def narrow_port() -> int:
    """Return the port of an acceptor for a single connection."""
    [port] = free_ports(1)
    return port


@pytest.fixture(scope="module")
def artemis_set_up(narrow_port: int) -> Iterator[Broker]:
    """Yield an Artemis with an acceptor for a single connection, and with all of ADDRESS_SETTINGS."""
    acceptor = f'<acceptor name="one">tcp://127.0.0.1:{narrow_port}?protocols=AMQP;connectionsAllowed=1</acceptor>'
    try:
        made = broker("artemis", version="2.44", address_settings=ADDRESS_SETTINGS, acceptors=acceptor)
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with made:
        queue(made, "returned")
        yield made


@pytest.fixture(scope="module")
def careless() -> Iterator[Broker]:
    """Yield an Artemis that keeps nothing on disk and lets everybody in."""
    core = "<persistence-enabled>false</persistence-enabled>"
    core += "<journal-sync-non-transactional>false</journal-sync-non-transactional>"
    try:
        made = broker("artemis", version="2.44", core=core, allow_anonymous=True)
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with made:
        yield made


def queue(one: Broker, name: str, **more: Any) -> str:
    wanted = {"name": name, "address": name, "routing-type": "ANYCAST", "durable": True, "auto-delete": False}
    one.ctl("broker", "createQueue", json.dumps(wanted | more), "true")
    return name


def to(target: str) -> RedeliveryPolicy:
    return RedeliveryPolicy(8, [1.0, 20.0], f"queue:{target}")


# Of a target: its name or match, the arguments of its queue, the problem, how bad it is, and what the cure names.
WRONG_TARGETS = {
    "it drops": ("drop", {}, "length-limit-drops", WRONG, "Set address-full-policy to PAGE"),
    "it fails": ("fail", {}, "length-limit-refuses", WARNING, "Set address-full-policy to PAGE"),
    "it blocks": ("block", {}, "length-limit-refuses", WARNING, "Set address-full-policy to PAGE"),
    "it is a ring": ("ring", {"ring-size": 5}, "length-limit-drops", WRONG, "without ring-size"),
    "it has a filter": ("filter", {"filter-string": "a = 1"}, "copies-lost", WRONG, "without a filter"),
    "it is for others": (
        "others",
        {"filter-string": "_AMQ_ORIG_ADDRESS = 'another'"},
        "copies-lost",
        WRONG,
        "without a filter",
    ),
    "it is a topic": ("topic", {"routing-type": "MULTICAST"}, "copies-lost", WRONG, "Write topic:"),
    "it is not durable": ("mortal", {"durable": False}, "queue-not-durable", WRONG, "durable"),
    "it is purged": (
        "purged",
        {"purge-on-no-consumers": True},
        "queue-vanishes",
        WRONG,
        "without purge-on-no-consumers",
    ),
    "letters expire": ("expiring", {}, "target-ttl", WRONG, "Change expiry-delay in the address-setting"),
    "letters are deleted": ("mayexpire", {}, "target-ttl", WRONG, "Change max-expiry-delay"),
    "letters come back": ("deadback", {}, "dead-letters-come-back", WRONG, "change dead-letter-address"),
}


@pytest.mark.parametrize("setting", WRONG_TARGETS)
def test_a_wrong_target_is_found_with_its_cure(artemis_set_up: Broker, setting: str) -> None:
    match, arguments, problem, status, cure = WRONG_TARGETS[setting]
    target = queue(artemis_set_up, f"{match}.{unique('target')}", **arguments)
    found = examined(artemis_set_up.url, "returned", to(target))
    one = the(found, problem)
    assert (one.subject, one.status) == (f"queue:{target}", status)
    assert cure in one.cure
    assert problems(found).keys() == {problem}


def test_letters_that_expire_into_their_source_are_found(artemis_set_up: Broker) -> None:
    target = queue(artemis_set_up, f"back.{unique('target')}")
    found = examined(artemis_set_up.url, "returned", to(target))
    assert problems(found) == {"target-ttl": f"queue:{target}", "dead-letters-come-back": f"queue:{target}"}


def test_a_disabled_target_is_found(artemis_set_up: Broker) -> None:
    target = queue(artemis_set_up, unique("disabled"))
    artemis_set_up.ctl(f"queue.{target}", "disable()")
    one = the(examined(artemis_set_up.url, "returned", to(target)), "copies-lost")
    assert "disabled" in one.reason
    assert f"enable of queue.{target}" in one.cure


def test_a_missing_target_is_found_and_not_made(artemis_set_up: Broker) -> None:
    target = unique("missing")
    found = examined(artemis_set_up.url, "returned", to(target))
    assert problems(found) == {"dead-letter-target-missing": f"queue:{target}"}
    assert target not in artemis_set_up.ctl("broker", "getQueueNames()")


def test_a_missing_source_is_one_line_and_not_made(artemis_set_up: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    name = unique("missing")
    assert run(["doctor", artemis_set_up.url, "--destination", name]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "[destination-missing]" in err
    assert name not in artemis_set_up.ctl("broker", "getQueueNames()")


def test_a_filter_for_dead_letters_of_the_source_takes_them(artemis_set_up: Broker) -> None:
    name = unique("filtered")
    queue(artemis_set_up, name, **{"filter-string": "_AMQ_ORIG_ADDRESS = 'returned'"})
    found = examined(artemis_set_up.url, "returned", RedeliveryPolicy(8, 1.0, f"queue:{name}"))
    assert problems(found) == {}


# Of a source: its match, the problem, how bad it is, what the cure names, and what comes with it.
WRONG_SOURCES = {
    "the broker deletes before the policy": (
        "nodla",
        "delivery-limit-below-policy",
        WRONG,
        "Raise the limit above 8",
        (),
    ),
    "the broker dead-letters before the policy": (
        "few",
        "delivery-limit-below-policy",
        WARNING,
        "Change max-delivery-attempts in the address-setting",
        (),
    ),
    "its dead letters are lost": (
        "unbound",
        "broker-dead-letters-lost",
        WRONG,
        "Make a queue of 'NOWHERE'",
        ("delivery-limit-deletes",),
    ),
    "the broker delays": ("delayed", "broker-delays-returns", WARNING, "Change redelivery-delay", ()),
    "messages expire": ("expiring", "source-ttl", WARNING, "Change expiry-delay", ()),
    "it drops": ("drop", "length-limit-drops", WRONG, "Set address-full-policy to PAGE", ()),
}


@pytest.mark.parametrize("setting", WRONG_SOURCES)
def test_a_wrong_source_is_found_with_its_cure(artemis_set_up: Broker, setting: str) -> None:
    match, problem, status, cure, beside = WRONG_SOURCES[setting]
    source = queue(artemis_set_up, f"{match}.{unique('source')}")
    found = examined(artemis_set_up.url, source, to("returned"))
    one = the(found, problem)
    assert (one.subject, one.status) == (f"queue:{source}", status)
    assert cure in one.cure
    assert problems(found).keys() == {problem, *beside}


def test_a_right_broker_has_no_problem_and_all_is_known(artemis_set_up: Broker) -> None:
    source = queue(artemis_set_up, unique("right"))
    target = queue(artemis_set_up, f"dlq.{source}")
    found = examined(artemis_set_up.url, source)
    assert problems(found) == {}
    assert unknown(found) == set()
    assert {one.subject for one in found if one.id == "dead-letter-target"} == {f"queue:{target}"}


def test_the_brokers_own_dead_letter_queue_is_a_right_target(artemis_set_up: Broker) -> None:
    assert problems(examined(artemis_set_up.url, "returned", to("DLQ"))) == {}


def test_a_broker_that_keeps_nothing_and_lets_everybody_in_is_found(careless: Broker) -> None:
    found = examined(careless.url)
    assert the(found, "persistence-off").status is WRONG
    assert "persistence-enabled" in the(found, "persistence-off").cure
    assert "journal-sync-non-transactional" in the(found, "journal-sync-off").cure
    assert "anonymous" in the(found, "credentials-not-checked").cure


def test_too_few_connections_are_found(artemis_set_up: Broker, narrow_port: int) -> None:
    narrow = artemis_set_up.url.replace(str(artemis_set_up.port), str(narrow_port))
    one = the(examined(narrow, probe=False), "connections-limited")
    assert one.status is WRONG
    assert "at least two connections" in one.cure


def test_clocks_that_differ_are_found(artemis_set_up: Broker) -> None:
    one = the(examined(artemis_set_up.url, clock=AheadClock(-60.0)), "clock-skew")
    assert one.status is WRONG
    assert "ahead of ours" in one.reason
    assert "NTP" in one.cure


@pytest.fixture(scope="module")
def limited(artemis_set_up: Any) -> str:
    """Return the URL of a user who may do everything, but not everywhere."""
    one = artemis_set_up
    folder = one.data
    with (folder / "users.properties").open("a") as users, (folder / "roles.properties").open("a") as roles:
        users.write("limited=secret\nblind=secret\n")
        roles.write("some=limited\nblind=blind\n")
    everyone, mine = "all,some,blind", "all"

    def allow(match: str, send: str, consume: str, manage: str) -> None:
        rest = (everyone,) * 4
        one.ctl("broker", "addSecuritySettings", match, send, consume, *rest, manage, everyone, everyone, everyone)

    allow("#", everyone, everyone, "all,some")
    allow("nosend.#", mine, everyone, "all,some")
    allow("noconsume.#", everyone, mine, "all,some")
    return one.url.replace(f"{one.user}:{one.password}", "limited:secret")


@pytest.mark.parametrize(
    ("source", "target", "subject", "cure"),
    [
        ("noconsume", "dlq", "consume from queue:noconsume.", "the permission consume for 'noconsume."),
        ("nosend", "dlq", "publish to queue:nosend.", "the permission send for 'nosend."),
        ("right", "nosend", "publish to queue:nosend.", "the permission send for 'nosend."),
    ],
)
def test_a_missing_permission_is_found(
    artemis_set_up: Broker, limited: str, source: str, target: str, subject: str, cure: str
) -> None:
    source, target = (queue(artemis_set_up, f"{match}.{unique('q')}") for match in (source, target))
    found = examined(limited, source, to(target))
    one = the(found, "permission-missing")
    assert one.status is WRONG
    assert one.subject.startswith(subject)
    assert cure in one.cure
    assert problems(found).keys() == {"permission-missing"}


def test_a_user_who_may_not_ask_the_management_learns_that_settings_are_not_known(
    artemis_set_up: Broker, limited: str
) -> None:
    source = queue(artemis_set_up, f"drop.{unique('q')}")
    found = examined(limited.replace("limited:", "blind:"), source, to("returned"))
    one = the(found, "permission-missing")
    assert (one.subject, one.status) == ("manage activemq.management", WARNING)
    assert "the permission manage" in one.cure
    assert problems(found).keys() == {"permission-missing"}
    assert {"source", "dead-letter-target", "persistence", "delivery-limit", "clock"} <= unknown(found)
