# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Finds out over AMQP 1.0 how some queues of a RabbitMQ are set up, for `redeliver doctor`. Blocks.

The management over AMQP tells the arguments of a queue and no policy, so that the absence of a setting is not known.
Permissions are tried by attaching links without credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import proton

from redeliver_mw.adapter.inspection import (
    BrokerFact,
    Inspection,
    InspectionRequest,
    LengthLimit,
    Permission,
    QueueFacts,
    Setting,
)
from redeliver_mw.errors import BrokerError
from redeliver_mw.message import Destination
from redeliver_proton.broker_limits import rabbit_limit
from redeliver_proton.brokers.rabbitmq.capabilities import queue_of
from redeliver_proton.brokers.rabbitmq.management import RabbitManagement
from redeliver_proton.questions import LoopQuestions

UNTOLD = "AMQP tells the arguments of a queue, and no policy"
ASK_PIKA = "Run the doctor with rabbitmq://…?management=http://HOST:15672, which reads policies too"


def inspect(questions: LoopQuestions, request: InspectionRequest) -> Inspection:
    """Return what this RabbitMQ shows over AMQP 1.0. Blocks."""
    management: RabbitManagement = questions.wait(
        lambda answer: answer(RabbitManagement(questions.loop, questions.connection))
    )
    wanted = [one for one in dict.fromkeys((*request.sources, *request.targets)) if queue_of(one)]
    queues = {one: _facts(questions, management, one) for one in wanted}
    permissions = []
    for one, facts in queues.items():
        verbs: list[tuple[Any, Any]] = [("consume", "receiver")] if one in request.sources else [("publish", "sender")]
        permissions += [_tried(questions, request, verb, role, one, facts) for verb, role in verbs]
    return Inspection(
        queues=queues,
        facts=(
            BrokerFact("scheduler", True, "4.3 delays what is given back to a quorum queue"),
            BrokerFact("alarm", None, UNTOLD, ASK_PIKA),
        ),
        permissions=tuple(permissions),
        clock_why="AMQP does not tell it; the management would",
        sends_with=(proton.Sender.stream,),
    )


def _facts(questions: LoopQuestions, management: RabbitManagement, destination: Destination) -> QueueFacts:
    path = f"/queues/{quote(queue_of(destination), safe='')}"
    status, body = questions.wait(lambda answer: management.ask("GET", path, lambda *found: answer(found)))
    if status == 404:
        return QueueFacts(destination=destination, exists=False)
    if status != 200:
        why = body.what if isinstance(body, BrokerError) else f"the broker answers {status}"
        return QueueFacts(destination=destination, exists=None, why=why, why_cure=ASK_PIKA)
    arguments: Mapping[str, Any] = body.get("arguments") or {}
    name = str(body.get("name"))
    anew = f"delete {name!r} and declare it anew"
    return QueueFacts(
        destination=destination,
        why=UNTOLD,
        why_cure=ASK_PIKA,
        type=str(body.get("type")),
        durable=None
        if body.get("durable")
        else Setting(0.0, "durable false", f"Delete {name!r} and declare it anew, durable"),
        vanishes=_vanishing(body, arguments, anew),
        length=_length(arguments, anew),
        ttl=_milliseconds(arguments, "x-message-ttl", anew),
        limit=rabbit_limit(body),
        limit_change=f"x-delivery-limit is an argument of the queue, which cannot be changed: {anew}",
        ack_timeout=_milliseconds(arguments, "x-consumer-timeout", anew),
    )


def _tried(
    questions: LoopQuestions, request: InspectionRequest, verb: Any, role: Any, one: Destination, facts: QueueFacts
) -> Permission:
    where = f"{'to' if verb == 'publish' else 'from'} {one}"
    if not request.probe:
        return Permission(verb, where, None, "--no-probe")
    if not facts.exists:
        return Permission(verb, where, None, "not tried: the queue does not exist")
    answer = questions.refused(role, f"/queues/{quote(queue_of(one), safe='')}")
    kind, what = ("write", "amq.default") if verb == "publish" else ("read", queue_of(one))
    change = f"Let the expression {kind} of this user's permissions match {what} (rabbitmqctl set_permissions)"
    return Permission(verb, where, not answer, answer, change if answer else "")


def _vanishing(body: Mapping[str, Any], arguments: Mapping[str, Any], anew: str) -> Setting | None:
    for mark in ("auto_delete", "exclusive"):
        if body.get(mark):
            return Setting(0.0, mark.replace("_", "-"), f"{anew[0].upper()}{anew[1:]}, not {mark.replace('_', '-')}")
    return _milliseconds(arguments, "x-expires", anew)


def _length(arguments: Mapping[str, Any], anew: str) -> LengthLimit | None:
    limits = [f"{name} {arguments[name]}" for name in ("x-max-length", "x-max-length-bytes") if name in arguments]
    if not limits:
        return None
    overflow = arguments.get("x-overflow", "drop-head")
    change = f"x-max-length is an argument of the queue, which cannot be changed: {anew}"
    return LengthLimit("drops" if overflow == "drop-head" else "refuses", f"{', '.join(limits)}; {overflow}", change)


def _milliseconds(arguments: Mapping[str, Any], name: str, anew: str) -> Setting | None:
    value = arguments.get(name)
    if not isinstance(value, int):
        return None
    change = f"{name} is an argument of the queue, which cannot be changed: {anew}"
    return Setting(value / 1000, f"{name} {value}", change)
