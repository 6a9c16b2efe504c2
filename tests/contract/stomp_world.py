# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Runs a real ActiveMQ as the contract uses it: STOMP over a plain socket, a proxy in front, its statistics."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

from redeliver_mw.adapter.capabilities import Capabilities
from redeliver_mw.testing.contract import Raw
from redeliver_stomp.capabilities import capabilities
from tests.adapters.stomp.plain import Plain, Seen, Statistics
from tests.brokers import BrokerMissing
from tests.brokers.activemq import ActiveMQ
from tests.brokers.skips import not_to_be_had
from tests.contract.broker_world import BrokerWorld
from tests.faults.proxy import Proxy

REFUSING = "contract.refusing."  # what such queues are called, so that the broker's configuration knows them
FILLER = b"filler" + b"x" * 6000  # one is more than such a queue may hold
POLICY = (
    f'<policyEntry queue="{REFUSING}&gt;" memoryLimit="4 kb"><pendingQueuePolicy><vmQueueCursor/></pendingQueuePolicy>'
    "</policyEntry>"
)
PROPERTIES = {
    "correlation_id": "correlation-id",
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "reply_to": "reply-to",
    "type": "type",
    "priority": "priority",
}
OF_THE_FRAME = {
    "destination",
    "message-id",
    "subscription",
    "ack",
    "content-length",
    "persistent",
    "redelivered",
    "expires",
    "timestamp",
    *PROPERTIES.values(),
}


class ContractBroker(ActiveMQ):
    """Runs an ActiveMQ that refuses with an ERROR what it has no room for, and tells how full its queues are.

    The broker sends no advisories: while it sends one, on whatever thread, it looks away from the limits for the whole
    connection that caused it, and a full queue takes one message in some thirty (seen under load on 5.18.3).
    """

    def __init__(self, version: str, *, scheduler: bool = True) -> None:
        super().__init__(version, scheduler=scheduler, policy_entries=POLICY, plugins="<statisticsBrokerPlugin/>")
        configuration = self.data / "activemq.xml"
        told = configuration.read_text()
        for wanted, instead in (
            (r"<systemUsage>\s*<systemUsage>", '<systemUsage><systemUsage sendFailIfNoSpace="true">'),
            (r"<broker ", '<broker advisorySupport="false" '),
        ):
            told, times = re.subn(wanted, instead, told)
            assert times == 1
        configuration.write_text(told)


@contextlib.contextmanager
def running(version: str, **options: Any) -> Iterator[ContractBroker]:
    """Yield a broker for some tests; skip them where none can be had, except in CI."""
    try:
        broker = ContractBroker(version, **options)
    except BrokerMissing as missing:
        not_to_be_had(missing)
    with broker:
        broker.start()
        yield broker


class Site:
    """Holds a broker and the proxy before it, for all tests of a module."""

    def __init__(self, broker: ContractBroker) -> None:
        self.broker = broker
        self.proxy = Proxy(broker.host, broker.port, roles=("(publish)", "(consume)"))

    def close(self) -> None:
        self.proxy.close()


class StompWorld(BrokerWorld):
    """Serves one test on one broker."""

    abilities = frozenset({"threads", "network", "credentials", "kill"})
    keeps_message_ids = False
    makes_on_use = True
    marks = frozenset({"cut"})

    def __init__(self, site: Site) -> None:
        super().__init__(site.broker, site.proxy)
        self._plain: Plain | None = None
        self._statistics = Statistics(site.broker)

    @property
    def capabilities(self) -> Capabilities:
        return capabilities(self.broker.version, scheduler=True)

    @property
    def foreign_headers(self) -> Mapping[str, Any]:
        """Return headers with all that a text may hold: STOMP has texts only."""
        return {
            "text": "grüße 🐇",
            "empty": "",
            "blanks": "  a b ",
            "colon": "a:b",
            "lines": "a\nb\r\n",
            "slash": "\\n\\c\\",
            "id": "mine",
            "k\\cey": "v",
            "tab": "\t",
        }

    # -- queues and messages ---------------------------------------------------------------------------------

    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        name = self.new_name()
        if refusing:
            name = REFUSING + name
            while not self._open().send(f"/queue/{name}", FILLER):
                pass
        elif declare:
            self.declare(name)
        return name

    def declare(self, queue: str) -> None:
        """Make a queue by a look at it."""
        plain = self._open()
        plain.say("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": "look", "browser": "true", "ack": "auto"})
        plain.say("UNSUBSCRIBE", {"id": "look"})
        plain.frames.clear()

    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        given: dict[str, Any] = dict(headers or {})
        if (us := properties.pop("timestamp_us", None)) is not None:
            given["timestamp"] = us // 1000
        if lifetime is not None:
            given["expires"] = round((time.time() + lifetime) * 1000)
        properties.pop("message_id", None)  # the broker gives its own
        given |= {PROPERTIES[name]: value for name, value in properties.items()}
        if "reply-to" in given:
            given["reply-to"] = f"/queue/{given['reply-to']}"
        assert self._open().send(f"/queue/{queue}", body, given) == ""

    def take_all(self, queue: str) -> list[Raw]:
        plain, found = self._open(), []
        end = self.now() + 5
        while (waiting := self.depth(queue)) > 0 and self.now() < end:
            name = f"take{len(found)}"
            plain.say("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": name, "ack": "auto"})
            came = []
            while len(came) < waiting and (frame := plain.wait(1.0)) is not None:
                came.append(frame)
            plain.say("UNSUBSCRIBE", {"id": name})
            found += [_raw(frame) for frame in [*came, *plain.frames]]
            plain.frames.clear()
        return found

    def depth(self, queue: str) -> int:
        known = self._statistics.size_and_in_flight(queue, 3.0)  # a slow broker is not one that knows nothing
        if known is None:  # a broker that was killed has forgotten its empty queues
            self.declare(queue)
            return 0
        return known[0] - known[1]

    def exists(self, queue: str) -> bool:
        return self._statistics.size_and_in_flight(queue, 0.5) is not None

    def delete(self, queue: str) -> None:
        """Empty a queue: ActiveMQ would make a deleted one again for the next message that is sent to it."""
        self.take_all(queue)

    def relent(self, queue: str) -> None:
        plain = Plain(self.broker)  # the copy that waits for room may come in meanwhile: closing gives it back
        asked = {"destination": f"/queue/{queue}", "id": "relent", "ack": "client-individual"}
        plain.say("SUBSCRIBE", {**asked, "activemq.prefetchSize": 1})
        while (frame := plain.wait(0.5)) is not None and frame.body == FILLER:
            assert plain.say("ACK", {"id": frame.headers["ack"]}) == ""
        plain.close()

    def close(self) -> None:
        super().close()
        self.broker.revive()

    # -- the raw connections ---------------------------------------------------------------------------------

    def _open(self) -> Plain:
        if self._plain is None:
            self._plain = Plain(self.broker)
        return self._plain

    def _drop(self) -> None:
        plain, self._plain = self._plain, None
        if plain is not None:
            plain.close()
        self._statistics.close()


def _raw(frame: Seen) -> Raw:
    """Return a frame as a message: its headers are whatever is not the frame's own."""
    assert frame.command == "MESSAGE", frame
    headers = {name: value for name, value in frame.headers.items() if name not in OF_THE_FRAME}
    props: dict[str, Any] = {p: frame.headers[h] for p, h in PROPERTIES.items() if h in frame.headers}
    if "priority" in props:
        props["priority"] = int(props["priority"])
    if "reply_to" in props:
        props["reply_to"] = props["reply_to"].removeprefix("/queue/")
    if (expires := int(frame.headers.get("expires", "0"))) > 0:
        props["expires_at_us"] = expires * 1000
    return Raw(frame.body, headers, props, frame.headers.get("redelivered") == "true")
