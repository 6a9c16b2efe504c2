# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs `redeliver doctor` against ActiveMQ, which is only probed: what a probe shows is found, and no more is known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.adapter.registry import parse_url
from redeliver_mw.cli.main import run
from redeliver_mw.clock import Moment
from redeliver_mw.doctor import FindingStatus, examine
from redeliver_mw.policy import RedeliveryPolicy
from tests.brokers import Broker, BrokerMissing, broker
from tests.brokers._process import free_ports
from tests.brokers.skips import not_to_be_had
from tests.doctor.findings import POLICY, AheadClock, examined, problems, the, unique, unknown
from tests.tls.certificates import STORE_PASSWORD, Authority

WARNING, WRONG = FindingStatus.WARNING, FindingStatus.WRONG
# A message has an end and is not persistent, whatever its producer says, and none is delayed.
CHANGING = (
    '<timeStampingBrokerPlugin zeroExpirationOverride="90000" ttlCeiling="90000"/>'
    '<forcePersistencyModeBrokerPlugin persistenceFlag="false"/>'
)
PLAIN_USERS = {"nocreate": "readers,writers", "noread": "makers,writers", "nowrite": "makers,readers"}
USERS = "".join(
    f'<authenticationUser username="{name}" password="secret" groups="{groups}"/>'
    for name, groups in PLAIN_USERS.items()
)
RESTRICTING = """<authorizationPlugin><map><authorizationMap>
  <authorizationEntries>
    <authorizationEntry queue="&gt;" read="all" write="all" admin="all"/>
    <authorizationEntry topic="&gt;" read="all,makers,readers" write="all,makers,readers" admin="all,makers,readers"/>
  </authorizationEntries>
  <tempDestinationAuthorizationEntry><tempDestinationAuthorizationEntry
    read="all,readers" write="all,writers" admin="all,makers"/></tempDestinationAuthorizationEntry>
</authorizationMap></map></authorizationPlugin>"""


class WrongActiveMQ:
    """Runs an ActiveMQ that is set up wrongly and has more ports.

    The ports are for small frames, for a single connection, and for TLS.
    """

    def __init__(self, folder: Path) -> None:
        self.small, self.single, self.tls = free_ports(3)
        self.authority = Authority(folder)
        store = self.authority.give("server", days=3).store()
        keys = f'keyStore="file:{store}" keyStoreType="PKCS12" keyStorePassword="{STORE_PASSWORD}"'
        ports = {
            "small": f"stomp://127.0.0.1:{self.small}?wireFormat.maxDataLength=20000&amp;wireFormat.maxFrameSize=20000",
            "single": f"stomp://127.0.0.1:{self.single}?maximumConnections=1",
            "tls": f"stomp+ssl://127.0.0.1:{self.tls}",
        }
        self.broker = broker(
            "activemq",
            version="6.3",
            scheduler=False,
            plugins=CHANGING + RESTRICTING,
            users=USERS,
            tls=f"<sslContext><sslContext {keys}/></sslContext>",
            connectors="".join(f'<transportConnector name="{name}" uri="{uri}"/>' for name, uri in ports.items()),
        )

    def url(self, user: str = "", port: int = 0, options: str = "") -> str:
        who = f"{user}:secret" if user else f"{self.broker.user}:{self.broker.password}"
        return f"activemq://{who}@127.0.0.1:{port or self.broker.port}{options}"


@pytest.fixture(scope="module")
def wrongly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WrongActiveMQ]:
    try:
        made = WrongActiveMQ(tmp_path_factory.mktemp("certificates"))
    except BrokerMissing as missing:
        not_to_be_had(missing)
    yield made
    made.broker.stop()


def test_a_right_broker_has_no_problem(activemq: Broker) -> None:
    found = examined(activemq.url, unique("right"))
    assert problems(found) == {}
    assert the(found, "scheduler").reason.startswith("on: a delayed message came back")
    seen = {one.id for one in found if one.status is FindingStatus.OK}
    assert {"alarm", "copy-expiry", "copy-persistence", "frame-size", "clock", "credentials", "connections"} <= seen


def test_what_only_a_users_queue_would_show_is_not_known(activemq: Broker) -> None:
    found = examined(activemq.url, unique("orders"))
    assert unknown(found) == {"source", "dead-letter-target", "permission", "persistence"}
    assert "makes one at its first use" in the(found, "source").reason
    assert "activemq.xml" in the(found, "dead-letter-target").cure


def test_the_settings_that_act_on_every_message_are_found(wrongly: WrongActiveMQ) -> None:
    found = examined(wrongly.url(), unique("orders"))
    expected = {"scheduler-off", "copies-expire", "copies-not-persistent", "delay-not-possible"}
    assert problems(found).keys() == expected
    assert 'schedulerSupport="true"' in the(found, "scheduler-off").cure
    assert "after 90 s" in the(found, "copies-expire").reason
    assert "timeStampingBrokerPlugin" in the(found, "copies-expire").cure
    assert "forcePersistencyModeBrokerPlugin" in the(found, "copies-not-persistent").cure
    assert all(the(found, problem).status is WRONG for problem in expected - {"delay-not-possible"})


def test_a_wrong_password_is_one_line(wrongly: WrongActiveMQ, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", wrongly.url("noread").replace("secret", "wrong")]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "[credentials-refused]" in err


def test_short_delays_need_no_scheduler(wrongly: WrongActiveMQ) -> None:
    found = examined(wrongly.url(), unique("orders"), RedeliveryPolicy(3, 1.0, "queue:dlq.$"))
    assert "delay-not-possible" not in problems(found)


@pytest.mark.parametrize(
    ("user", "verb", "cure"),
    [("nocreate", "declare", "admin"), ("noread", "consume", "read"), ("nowrite", "publish", "write")],
)
def test_a_missing_permission_is_found(wrongly: WrongActiveMQ, user: str, verb: str, cure: str) -> None:
    found = examined(wrongly.url(user), unique("orders"))
    one = the(found, "permission-missing")
    assert one.status is WRONG
    assert one.subject.startswith(f"{verb} ")
    assert "whether the scheduler is on cannot be seen" in one.reason
    assert f"{cure} in the tempDestinationAuthorizationEntry" in one.cure
    assert {"copy-expiry", "copy-persistence", "clock"} <= unknown(found)
    assert "scheduler-off" not in problems(found)  # nobody has seen that


def test_a_port_for_small_frames_is_found(wrongly: WrongActiveMQ) -> None:
    one = the(examined(wrongly.url(port=wrongly.small)), "frame-size-small")
    assert one.status is WARNING
    assert "Raise wireFormat.maxFrameSize" in one.cure


def test_too_few_connections_are_found(wrongly: WrongActiveMQ) -> None:
    one = the(examined(wrongly.url(port=wrongly.single), probe=False), "connections-limited")
    assert one.status is WRONG
    assert "at least two connections" in one.cure


def test_a_certificate_that_ends_soon_is_found(wrongly: WrongActiveMQ) -> None:
    url = wrongly.url(port=wrongly.tls, options=f"?tls=1&ca={wrongly.authority.cert}")
    one = the(examined(url, probe=False), "tls-certificate-expires")
    assert one.status is WARNING
    assert "Renew it" in one.cure
    assert "for 3 more days" in one.reason
    early = examined(url, probe=False, clock=AheadClock(-60 * 86_400.0))
    assert "valid for 63 more days" in the(early, "tls").reason


def test_a_broker_that_is_not_verified_is_found(wrongly: WrongActiveMQ) -> None:
    one = the(examined(wrongly.url(port=wrongly.tls, options="?tls=1&verify=0"), probe=False), "tls-not-verified")
    assert one.status is WARNING
    assert "ca=FILE" in one.cure


def test_clocks_that_differ_are_found(activemq: Broker) -> None:
    one = the(examined(activemq.url, clock=AheadClock(-60.0)), "clock-skew")
    assert one.status is WRONG
    assert "ahead of ours" in one.reason
    assert "NTP" in one.cure


def test_a_topic_may_lose_dead_letters(activemq: Broker) -> None:
    one = the(examined(activemq.url, unique("x"), RedeliveryPolicy(3, 1.0, "topic:dead")), "dead-letter-target-topic")
    assert one.status is WARNING
    assert "durable consumer" in one.cure


def test_no_probe_sends_nothing_and_says_what_stays_unknown(activemq: Broker) -> None:
    found = examined(activemq.url, unique("orders"), probe=False)
    assert problems(found) == {}
    assert {"copy-expiry", "copy-persistence", "frame-size", "clock", "credentials", "alarm"} <= unknown(found)
    assert the(found, "scheduler").status is FindingStatus.OK  # each connection of ours asks that


class InterruptingClock:
    """Raises KeyboardInterrupt, as Ctrl-C does, as soon as the probe of a broker reads it."""

    def __init__(self) -> None:
        self.readings = 0

    def now(self) -> Moment:
        self.readings += 1
        raise KeyboardInterrupt


def test_a_probe_leaves_nothing_behind_also_after_an_interrupt(activemq63: Broker) -> None:
    """Its queue is temporary: what is left would be an open connection, which shows as a thread of the broker's."""
    b: Any = activemq63
    examined(b.url)
    before = _connections(b)
    clock = InterruptingClock()
    with pytest.raises(KeyboardInterrupt):
        examine(b.url, policies=POLICY, clock=clock)
    assert clock.readings == 1
    until = time.monotonic() + 10
    while _connections(b) > before:
        assert time.monotonic() < until, "a connection of the probe is still open"


def _connections(one: Broker) -> int:
    """Return the number of established connections at the broker's port, as the kernel lists them."""
    port = f":{parse_url(one.url).hosts[0][1]:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for row in rows if row[1].endswith(port) and row[3] == "01")
