# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out how a RabbitMQ and some of its queues are set up, for `redeliver doctor`. Blocks, on the caller's thread.

Settings come from the management's HTTP API, permissions from AMQP. No message of a queue is touched: to learn whether
this user may consume a queue, it is consumed with an argument of a wrong type, which the broker refuses after it has
looked at the permission (observed on RabbitMQ 3.10.8 and 4.3.6). The queues of a probe are exclusive, so they end with
the connection, however that ends.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import pika
from pika import exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.channel import Channel

from redeliver_mw.adapter.capabilities import BrokerLimit
from redeliver_mw.adapter.inspection import (
    PROBE_PREFIX,
    BrokerFact,
    ClockReading,
    Inspection,
    InspectionRequest,
    OwnDeadLetters,
    Permission,
    QueueFacts,
    Setting,
)
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.message import Destination
from redeliver_pika.capabilities import RETRIES_FROM, queue_of, version_of
from redeliver_pika.connection import parameters
from redeliver_pika.management import TIMEOUTS_FROM, Management, limit_in, refusal
from redeliver_pika.messages import TOPIC_EXCHANGE
from redeliver_pika.queue_settings import (
    QueuePolicies,
    QueueSettings,
    idle_retry,
    idle_strategy,
    length_of,
    retry_delay,
    settings_of,
    vanishing,
)
from redeliver_pika.retry_ladder import MARKER_ARGUMENTS

BLOCKED_PATIENCE = 2.0  # seconds for which a probe may be blocked: an alarm blocks it at once
STEPS = 50  # queues that are followed at most along the broker's own dead-lettering
UNTOLD = "AMQP does not tell it"
ADD_MANAGEMENT = "Add management=http://HOST:15672 to the broker's URL"
LET_ASK = (
    "Give this user the tag monitoring and permissions in the virtual host, or name another user who has them: "
    "management=http://USER:PASSWORD@HOST:15672"
)
FAILURES = (exceptions.AMQPError, AMQPConnectorException, OSError)


class _Unread(Exception):
    """Reports why the management tells nothing."""


class _Route(NamedTuple):
    """Tells which queues a queue's own dead letters go to, and why they are lost if they are."""

    queues: frozenset[str]
    lost: str = ""
    known: bool = True


class RabbitInspector:
    """Inspects one broker, once."""

    def __init__(self, url: BrokerUrl, management: Management | None, version: str, request: InspectionRequest) -> None:
        self._url, self._management, self._version, self._request = url, management, version, request
        self._policies = QueuePolicies()
        self._read: dict[str, Any] = {}  # what the management has answered already, by path
        self._skew: ClockReading | None = None
        self._why = "" if management is not None else UNTOLD
        self._why_cure = ADD_MANAGEMENT

    def inspect(self) -> Inspection:
        """Return all that this user can see."""
        wanted = list(dict.fromkeys((*self._request.sources, *self._request.targets)))
        alarm = BrokerFact("alarm", None, self._why, ADD_MANAGEMENT)
        if self._management is not None:
            try:
                self._prepare()
                alarm = self._alarm()
            except _Unread as unread:
                self._why, self._why_cure = str(unread), LET_ASK
                alarm = BrokerFact("alarm", None, self._why, LET_ASK)
        queues = {one: self._facts(one) for one in wanted if queue_of(one) and not _is_bare_topic(one)}
        if any(facts.exists is None for facts in queues.values()):
            queues = self._looked_up(queues)
        permissions, blocked = self._permissions(queues, stopped=alarm.good is False)
        if blocked:
            alarm = BrokerFact("alarm", False, blocked, ALARM_CHANGE)
        return Inspection(
            queues=queues,
            facts=(alarm,),
            permissions=permissions,
            sends_with=(Channel.basic_publish,),
            clock=self._skew,
            clock_why=f"{self._why}; the management would" if self._management is None else self._why,
        )

    # -- the management ---------------------------------------------------------------------------

    def _get(self, *names: str) -> Any:
        """Return what the management tells, None for a 404. Raises _Unread."""
        path = "/".join(names)
        if path not in self._read:
            assert self._management is not None
            before = self._request.clock.now()
            try:
                answer = self._management.read(*names)
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error) or type(error).__name__
                raise _Unread(f"{self._management.where} cannot be used: {why}") from None
            self._skew = self._skew or _reading(answer.date, before.wall, self._request.clock.now().wall)
            if answer.status not in (200, 404):
                raise _Unread(f"{self._management.where}: {refusal(answer.status)}")
            self._read[path] = answer.value
        return self._read[path]

    def _prepare(self) -> None:
        """Read the policies, if this user may: others see a policy at its queue only, some seconds later."""
        if self._get("whoami") is None:
            assert self._management is not None
            raise _Unread(f"{self._management.where} is no management of RabbitMQ")
        try:
            self._policies = QueuePolicies(self._get("policies", "%"), self._get("operator-policies", "%"))
        except _Unread:
            self._policies = QueuePolicies()

    def _alarm(self) -> BrokerFact:
        try:
            nodes = self._get("nodes") or []
        except _Unread as unread:
            return BrokerFact("alarm", None, str(unread), "Give this user the tag monitoring")
        kinds = {"mem_alarm": "memory", "disk_free_alarm": "disk space"}
        raised = [
            f"{node.get('name')} has too little {what}"
            for node in nodes
            for key, what in kinds.items()
            if node.get(key)
        ]
        if raised:
            return BrokerFact("alarm", False, f"{'; '.join(raised)}: the broker takes no copy", ALARM_CHANGE)
        return BrokerFact("alarm", True, "no node has an alarm for memory or disk space")

    # -- queues -----------------------------------------------------------------------------------

    def _facts(self, destination: Destination) -> QueueFacts:
        if self._why:
            return QueueFacts(destination=destination, exists=None, why=self._why, why_cure=self._why_cure)
        name = queue_of(destination)
        try:
            queue = self._get("queues", "%", name)
            if queue is None:
                return QueueFacts(destination=destination, exists=False)
            settings = settings_of(queue, self._policies)
            if not settings.gathered:
                why = f"{name!r} is new, and the management does not show its policies yet"
                return QueueFacts(destination=destination, why=why, why_cure="Run the doctor again in ten seconds")
            return self._told(destination, settings)
        except _Unread as unread:
            return QueueFacts(destination=destination, exists=None, why=str(unread), why_cure=LET_ASK)

    def _looked_up(self, queues: dict[Destination, QueueFacts]) -> dict[Destination, QueueFacts]:
        """Return the facts with what AMQP tells of each queue: whether it exists."""
        found = dict(queues)
        try:
            with self._connected() as connection:
                for destination, facts in queues.items():
                    exists = _exists(connection, queue_of(destination))
                    if facts.exists is None and exists is not None:
                        why = (facts.why, facts.why_cure) if exists else ("", "")
                        found[destination] = replace(facts, exists=exists, why=why[0], why_cure=why[1])
        except FAILURES:
            pass  # the permissions, which are asked for next, say why
        return found

    def _told(self, destination: Destination, settings: QueueSettings) -> QueueFacts:
        name, number = settings.name, version_of(self._version)
        route = self._route(settings)
        timeout = settings.least("consumer-timeout", 1000.0) if number >= TIMEOUTS_FROM else None
        spelled = settings.first("dead-letter-exchange")
        own = None
        if spelled is not None:
            key = settings.first("dead-letter-routing-key")
            way = ", ".join(filter(None, (spelled[1], key[1] if key else "")))
            own = OwnDeadLetters(way, route.lost, spelled[2], route.known, idle_strategy(settings))
        at = settings.first("delivery-limit")
        return QueueFacts(
            destination=destination,
            type=settings.type,
            durable=None
            if settings.queue.get("durable")
            else Setting(0.0, "durable false", f"Delete {name!r} and declare it anew, durable"),
            vanishes=vanishing(settings),
            length=length_of(settings),
            ttl=settings.least("message-ttl", 1000.0),
            expires_to="" if own is None or own.lost else own.spelled,
            own_dead_letters=own,
            onward=self._onward(settings),
            limit=self._limit(settings),
            limit_change=at[2]
            if at is not None
            else f"Set a policy for {name!r}: delivery-limit N, or -1 for none (from 4.0 on)",
            ack_timeout=timeout,
            ack_timeout_why="" if timeout is not None else NO_TIMEOUT,
            returned_after=retry_delay(settings) if number >= RETRIES_FROM else None,
            idle_delay=idle_retry(settings) if number >= RETRIES_FROM else None,
        )

    def _limit(self, settings: QueueSettings) -> BrokerLimit:
        """Return the delivery limit as the policies are now; what the management has gathered may be older."""
        queue = dict(settings.queue)
        if self._policies.policies is not None:
            if queue.get("effective_policy_definition") != settings.definition:
                queue.pop("delivery_limit", None)
            queue["effective_policy_definition"] = dict(settings.definition)
        return limit_in(queue, self._version)

    def _onward(self, start: QueueSettings) -> tuple[str, ...]:
        """Return every queue that the broker's own dead-lettering leads to, step by step, the nearest first."""
        found: dict[str, None] = {}
        waiting = [start]
        while waiting and len(found) < STEPS:
            for name in sorted(self._route(waiting.pop(0)).queues):
                if name not in found:
                    found[name] = None
                    queue = self._get("queues", "%", name)
                    if queue is not None:
                        waiting.append(settings_of(queue, self._policies))
        return tuple(found)

    def _route(self, settings: QueueSettings) -> _Route:
        exchange, key = (settings.first(f"dead-letter-{what}") for what in ("exchange", "routing-key"))
        if exchange is None:
            return _Route(frozenset())
        name = str(exchange[0])
        if name == "":
            to = str(key[0]) if key is not None else settings.name
            if key is None:
                lost = (
                    "without a routing key a message goes to its own queue again, and the broker drops it in that cycle"
                )
                return _Route(frozenset({to}), lost)
            if self._get("queues", "%", to) is None:
                return _Route(frozenset(), f"the queue {to!r} does not exist")
            return _Route(frozenset({to}))
        found = self._get("exchanges", "%", name)
        if found is None:
            return _Route(frozenset(), f"the exchange {name!r} does not exist")
        queues = frozenset(self._bound(name, str(found.get("type")), None if key is None else str(key[0])))
        if not queues:
            with_key = f" with the key {str(key[0])!r}" if key is not None else ""
            return _Route(queues, f"no queue is bound to the exchange {name!r}{with_key}")
        return _Route(queues, known=found.get("type") in ("direct", "fanout", "topic"))

    def _bound(self, exchange: str, kind: str, key: str | None, depth: int = 5) -> Iterator[str]:
        """Yield the queues that an exchange routes a message with this key to; None: any key."""
        for binding in self._get("exchanges", "%", exchange, "bindings", "source") or []:
            if key is not None and not _routes(kind, str(binding.get("routing_key")), key):
                continue
            to = str(binding.get("destination"))
            if binding.get("destination_type") == "queue":
                yield to
            elif depth > 0:
                further = self._get("exchanges", "%", to)
                yield from self._bound(to, str((further or {}).get("type")), key, depth - 1)

    # -- permissions ------------------------------------------------------------------------------

    def _permissions(
        self, queues: dict[Destination, QueueFacts], *, stopped: bool
    ) -> tuple[tuple[Permission, ...], str]:
        """Return the permissions, and why the broker takes no message if it does not."""
        places = self._places(queues)
        if not self._request.probe:
            return tuple(Permission(verb, where, None, "--no-probe") for verb, where, *_ in places), ""
        found: list[Permission] = []
        try:
            with self._connected() as connection:
                for verb, where, *how in places:
                    if verb == "publish" and stopped:
                        found.append(Permission(verb, where, None, "the broker takes no message just now"))
                        continue
                    found.append(self._tried(connection, verb, where, *how))
        except exceptions.ConnectionBlockedTimeout:
            rest = [Permission(verb, where, None, BLOCKED) for verb, where, *_ in places[len(found) :]]
            return (*found, *rest), BLOCKED
        except FAILURES as error:
            why = f"no further connection: {_short(error)}"
            found += [Permission(verb, where, None, why) for verb, where, *_ in places[len(found) :]]
        return tuple(found), ""

    def _places(self, queues: dict[Destination, QueueFacts]) -> list[Any]:
        """Return each verb that redeliver-mw will use, with its place and the call that tries it."""
        sources = [one for one in self._request.sources if queues.get(one) is None or queues[one].exists is not False]
        places: list[Any] = [("consume", f"the queue {queue_of(one)!r}", _consume, queue_of(one)) for one in sources]
        places.append(("publish", "the default exchange", _publish, self._probe_queue()))
        if any(_is_bare_topic(one) for one in self._request.targets):
            places.append(("publish", f"the exchange {TOPIC_EXCHANGE!r}", _publish_to_topic, self._probe_queue()))
        if self._request.delays:
            for one in sources:
                rungs = f"redeliver.retry.{queue_of(one)}."
                places.append(
                    ("declare", f"queues named {rungs}*", _declare, f"{rungs}{self._request.mark}", queue_of(one))
                )
        return places

    def _probe_queue(self) -> str:
        return f"{PROBE_PREFIX}{self._request.mark}"

    def _tried(self, connection: Any, verb: Any, where: str, call: Any, *names: str) -> Permission:
        channel = connection.channel()
        try:
            call(channel, *names)
        except exceptions.ChannelClosedByBroker as closed:
            if closed.reply_code == 403:
                return Permission(verb, where, False, closed.reply_text, _permission_change(verb, names))
            if verb == "consume" and closed.reply_code == 406:
                return Permission(verb, where, True)
            return Permission(verb, where, None, closed.reply_text)
        else:
            return Permission(verb, where, True)
        finally:
            if channel.is_open:
                channel.close()

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        each = parameters(self._url, "doctor")
        for one in each:
            one.blocked_connection_timeout = BLOCKED_PATIENCE
        connection = pika.BlockingConnection(each)
        try:
            yield connection
        finally:
            if connection.is_open:
                connection.close()


ALARM_CHANGE = "Free memory or disk space on the node, or raise its limit; until then copies wait at their producer"
NO_TIMEOUT = (
    "the queue has no timeout of its own, and no API tells consumer_timeout of rabbitmq.conf (30 minutes by default)"
)
BLOCKED = "the broker blocks connections that publish"


def _exists(connection: Any, queue: str) -> bool | None:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except exceptions.ChannelClosedByBroker as closed:
        return False if closed.reply_code == 404 else None
    channel.close()
    return True


def _consume(channel: Any, queue: str) -> None:
    """Ask for messages in a way that the broker refuses, so that none is ever delivered."""
    tag = channel.basic_consume(queue, on_message_callback=lambda *_: None, arguments={"x-priority": "none"})
    channel.basic_cancel(tag)


def _publish(channel: Any, queue: str) -> None:
    channel.queue_declare(queue, exclusive=True)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"", mandatory=True)


def _publish_to_topic(channel: Any, key: str) -> None:
    channel.confirm_delivery()
    with suppress(exceptions.UnroutableError):  # nobody is bound with this key, and the message is given back
        channel.basic_publish(TOPIC_EXCHANGE, key, b"", mandatory=True)


def _declare(channel: Any, queue: str, source: str) -> None:
    """Declare a queue like a rung of the ladder, but exclusive: its dead-letter exchange needs permissions, too."""
    arguments = {**MARKER_ARGUMENTS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": source}
    channel.queue_declare(queue, exclusive=True, arguments=arguments)


def _permission_change(verb: str, names: tuple[str, ...]) -> str:
    kinds = {"consume": "read", "publish": "write", "declare": "configure"}
    what = {"consume": names[0], "publish": "amq.default", "declare": "redeliver.retry.*"}[verb]
    return f"Let the expression {kinds[verb]} of this user's permissions match {what} (rabbitmqctl set_permissions)"


def _is_bare_topic(destination: Destination) -> bool:
    return destination.kind == "topic" and not destination.subscription


def _routes(kind: str, bound: str, key: str) -> bool:
    """Return whether a binding takes a key; any other kind of exchange than these may take it."""
    if kind == "direct":
        return bound == key
    if kind == "topic":
        return _topic_takes(bound.split("."), key.split("."))
    return True


def _topic_takes(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(_topic_takes(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and _topic_takes(pattern[1:], words[1:])


def _reading(date: str, before: float, after: float) -> ClockReading | None:
    """Return the reading of HTTP's date, which has whole seconds and is cut off."""
    try:
        stated = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
    return ClockReading(stated + 0.5 - (before + after) / 2, 0.5 + (after - before) / 2)


def _short(error: BaseException) -> str:
    inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return str(inner) or type(inner).__name__


def inspect(url: BrokerUrl, management: Management | None, version: str, request: InspectionRequest) -> Inspection:
    """Return what this RabbitMQ shows. Blocks."""
    return RabbitInspector(url, management, version, request).inspect()
