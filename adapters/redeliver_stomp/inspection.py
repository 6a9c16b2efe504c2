# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out what an ActiveMQ does with messages, for `redeliver doctor`. Blocks, on the caller's thread.

STOMP tells no setting of a broker or a queue, so messages are sent to a temporary queue, which ends with its
connection. A queue with a name cannot be looked at: ActiveMQ makes a queue at its first use, and nothing in STOMP
deletes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from redeliver_mw.adapter.inspection import (
    PROBE_PREFIX,
    BrokerFact,
    ClockReading,
    Inspection,
    InspectionRequest,
    Permission,
    QueueFacts,
)
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Destination
from redeliver_stomp.consumer_connection import ConsumerConnection
from redeliver_stomp.frames import RawFrame, encode
from redeliver_stomp.loop import StompLoop

PATIENCE = 5.0  # seconds for each answer
FRAME_BYTES = 256_000  # of the largest frame that is tried: the headers of a copy may be as long
UNTOLD = "ActiveMQ tells nothing of a queue over STOMP, and makes one at its first use"
LOOK = "Look at its policyEntry and at the plugins in activemq.xml"
NO_PROBE = "--no-probe"


class _Lost(Exception):
    """Reports that the connection was closed instead of an answer."""


class _Silent(Exception):
    """Reports that there was no answer in time."""


class ProbeConnection:
    """Is a connection of its own, on the adapter's loop, whose answers are waited for."""

    def __init__(self, loop: StompLoop, url: BrokerUrl) -> None:
        self._open: Future[Any] = Future()
        self._waiting: set[Future[Any]] = {self._open}
        self._loop = loop
        self._connection = ConsumerConnection(
            loop,
            url,
            "doctor",
            up=lambda _connection, _headers: self._give(self._open, ""),
            down=lambda _connection, error: self._lost(error),
            failed=self._lost,
            patience=lambda: PATIENCE,
        )

    def __enter__(self) -> Self:
        self._loop.call(self._connection.link.open)
        try:
            self._wait(self._open)
        except BaseException:
            self._cut()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cut()

    def _cut(self) -> None:
        """Close it; the broker deletes its temporary queues then."""
        self._loop.call(lambda: self._connection.link.cut(ConnectionAbortedError("the probe is over")))

    def request(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> str:
        """Send a frame, and return what the broker's ERROR says; empty for a RECEIPT. Raises _Lost, _Silent."""
        answered = self._expected()
        self._loop.call(
            lambda: self._connection.request(
                command, list(headers.items()), lambda answer: self._give(answered, answer), body
            )
        )
        return str(self._wait(answered))

    def first_of(self, subscription: str) -> Future[Any]:
        """Return the future of the first message of a subscription."""
        came = self._expected()
        self._loop.call(lambda: self._connection.route(subscription, lambda frame: self._give(came, frame)))
        return came

    def take(self, came: Future[Any]) -> RawFrame:
        """Return the message, once it is here. Raises _Lost, _Silent."""
        frame: RawFrame = self._wait(came)
        return frame

    def _expected(self) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.add(future)
        return future

    def _give(self, future: Future[Any], value: object) -> None:
        with suppress(InvalidStateError):
            future.set_result(value)

    def _lost(self, error: BaseException) -> None:
        for future in list(self._waiting):
            with suppress(InvalidStateError):
                future.set_exception(_Lost(str(error) or type(error).__name__))

    def _wait(self, future: Future[Any]) -> Any:
        try:
            return future.result(PATIENCE)
        except TimeoutError:
            raise _Silent(f"no answer within {PATIENCE:g} s") from None
        finally:
            self._waiting.discard(future)


class ActiveMQInspector:
    """Inspects one broker, once."""

    def __init__(self, loop: StompLoop, url: BrokerUrl, *, schedules: bool, request: InspectionRequest) -> None:
        self._loop, self._url, self._request = loop, url, request
        self._schedules = schedules
        self._facts: list[BrokerFact] = []
        self._permissions: list[Permission] = []
        self._clock: ClockReading | None = None
        self._why = NO_PROBE
        self._queue = f"/temp-queue/{PROBE_PREFIX}{request.mark}"

    def inspect(self) -> Inspection:
        """Return all that a probe shows, and what stays unknown."""
        wanted = dict.fromkeys((*self._request.sources, *self._request.targets))
        if self._request.probe:
            self._why = ""
            try:
                with ProbeConnection(self._loop, self._url) as probe:
                    self._probe(probe)
                if not self._why:
                    self._try_a_large_frame()
            except (_Lost, _Silent) as error:
                self._why = self._why or f"the probe's connection: {error}"
        self._unknown()
        queues = {one: _untold(one) for one in wanted if one.kind == "queue"}
        named = [self._named(one, source=one in self._request.sources) for one in queues]
        return Inspection(
            queues=queues,
            facts=tuple(self._facts),
            permissions=(*self._permissions, *named),
            clock=self._clock,
            clock_why=self._why or "no message of the probe came",
            sends_with=(encode,),
        )

    # -- probing ----------------------------------------------------------------------------------

    def _probe(self, probe: ProbeConnection) -> None:
        """Subscribe, send one message, and look at what came of it."""
        came = probe.first_of("probe")
        subscribed = probe.request("SUBSCRIBE", {"id": "probe", "destination": self._queue, "ack": "auto"})
        if subscribed:
            verb: Literal["declare", "consume"] = "declare" if "create" in subscribed else "consume"
            self._refused(verb, "temporary queues", subscribed)
            return
        self._permissions.append(Permission("consume", "from temporary queues", True))
        before = self._request.clock.now().wall
        try:
            answer = probe.request("SEND", {"destination": self._queue, "persistent": "true", "content-length": "0"})
        except _Silent as silent:
            why = f"the broker does not confirm a message ({silent}): its store or memory may be full"
            self._facts.append(BrokerFact("alarm", False, why, "Look at systemUsage and its limits in activemq.xml"))
            self._why = why
            return
        after = self._request.clock.now().wall
        self._facts.append(BrokerFact("alarm", True, "the broker confirms messages"))
        if answer:
            self._refused("publish", "temporary queues", answer)
            return
        self._permissions.append(Permission("publish", "to temporary queues", True))
        frame = probe.take(came)
        self._clock = _reading(frame, before, after)
        self._facts += [_expiry(frame), _persistence(frame), self._scheduler()]

    def _try_a_large_frame(self) -> None:
        """Send a large frame on a connection of its own: a frame that is too large ends its connection."""
        change = "Raise wireFormat.maxFrameSize of the transportConnector for STOMP in activemq.xml"
        kilobytes = FRAME_BYTES // 1000
        try:
            with ProbeConnection(self._loop, self._url) as probe:
                headers = {"destination": self._queue, "content-length": str(FRAME_BYTES), "persistent": "false"}
                answer = probe.request("SEND", headers, b"x" * FRAME_BYTES)
        except _Lost as lost:
            answer = str(lost)
        except _Silent as silent:
            self._facts.append(BrokerFact("frame-size", None, str(silent), change))
            return
        if answer:
            why = f"the broker takes no frame of {kilobytes} kB, and the headers of a copy may be as long ({answer})"
            self._facts.append(BrokerFact("frame-size", False, why, change))
        else:
            self._facts.append(BrokerFact("frame-size", True, f"a frame of {kilobytes} kB is taken"))

    def _scheduler(self) -> BrokerFact:
        if self._schedules:
            return BrokerFact("scheduler", True, "on: a delayed message came back as a job of the scheduler")
        why = "off: a delayed message was delivered at once, so that longer delays are not possible without a limbo"
        return BrokerFact("scheduler", False, why, 'Set schedulerSupport="true" on the broker element in activemq.xml')

    def _refused(self, verb: Literal["declare", "consume", "publish"], where: str, answer: str) -> None:
        acl = {"declare": "admin", "consume": "read", "publish": "write"}[verb]
        change = f"Give a group of this user {acl} in the tempDestinationAuthorizationEntry of the authorizationPlugin"
        loss = "whether the scheduler is on cannot be seen, so that an App takes it as off"
        self._permissions.append(Permission(verb, where, False, answer, change, loss))
        self._why = f"this user may not {verb} {where}, and without that nothing is probed"

    # -- what stays unknown -----------------------------------------------------------------------

    def _unknown(self) -> None:
        seen = {fact.name for fact in self._facts}
        if "scheduler" not in seen and (self._schedules or not self._why or not self._request.probe):
            self._facts.append(self._scheduler())
            seen.add("scheduler")
        for name in ("scheduler", "alarm", "copy-expiry", "copy-persistence", "frame-size"):
            if name not in seen:
                self._facts.append(BrokerFact(name, None, self._why))
        stated = "STOMP does not say whether the broker keeps messages on disk"
        change = 'See to it that activemq.xml has a persistenceAdapter, and no persistent="false"'
        self._facts.append(BrokerFact("persistence", None, stated, change))

    def _named(self, destination: Destination, *, source: bool) -> Permission:
        verb: Literal["consume", "publish"] = "consume" if source else "publish"
        where = f"{'from' if source else 'to'} {destination}"
        return Permission(verb, where, None, UNTOLD, "Look at the authorizationEntry for it in activemq.xml")


def _untold(destination: Destination) -> QueueFacts:
    return QueueFacts(destination=destination, exists=None, why=UNTOLD, why_cure=LOOK)


def _expiry(frame: RawFrame) -> BrokerFact:
    """Return whether the broker has given an end to a message that was sent without one."""
    expires, timestamp = (_number(frame.headers.get(name, "")) for name in ("expires", "timestamp"))
    if not expires:
        return BrokerFact("copy-expiry", True, "the broker gives messages no time to live")
    lives = f", after {(expires - timestamp) / 1000:g} s" if timestamp else ""
    why = f"the broker gives each message a time to live{lives}: copies and dead letters expire"
    change = "Take zeroExpirationOverride of the timeStampingBrokerPlugin away in activemq.xml"
    return BrokerFact("copy-expiry", False, why, change)


def _persistence(frame: RawFrame) -> BrokerFact:
    if frame.headers.get("persistent") == "true":
        return BrokerFact("copy-persistence", True, "a persistent message stays persistent")
    why = "the broker makes persistent messages non-persistent: copies and dead letters are gone after a restart"
    change = "Take the forcePersistencyModeBrokerPlugin away in activemq.xml"
    return BrokerFact("copy-persistence", False, why, change)


def _reading(frame: RawFrame, before: float, after: float) -> ClockReading | None:
    """Return the broker's clock as it was when it took the message, which had no time."""
    stated = _number(frame.headers.get("timestamp", ""))
    return ClockReading(stated / 1000 - (before + after) / 2, (after - before) / 2 + 0.001) if stated else None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def inspect(loop: StompLoop, url: BrokerUrl, *, schedules: bool, request: InspectionRequest) -> Inspection:
    """Return what this ActiveMQ shows. Blocks."""
    return ActiveMQInspector(loop, url, schedules=schedules, request=request).inspect()
