# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads what AMQP does not tell of a queue, its limits, from `?management=http://host:15672` of the broker URL.

One GET for each queue, when a source is first looked at. A policy shows there some seconds after it was set: what
such a figure is made of is gathered every five seconds, for a new queue after up to ten.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from redeliver_mw.adapter.capabilities import BrokerLimit, Trust
from redeliver_mw.adapter.registry import BrokerUrl
from redeliver_mw.errors import ConfigError
from redeliver_pika.capabilities import RETRIES_FROM, unread_retry, version_of

TIMEOUT = 5.0  # seconds, for connecting and for each read
ANSWER_BYTES = 1_000_000
PORTS = {"http": 15672, "https": 15671}
DEFAULT_LIMIT = 20  # of a quorum queue, from 4.0 on
TIMEOUTS_FROM = (3, 12)  # versions whose queues may have a consumer timeout of their own
CURE = "Write management=http://host:15672, with user:password@ before the host where they are others"


class ManagementAnswer(NamedTuple):
    """Holds one answer: HTTP's status, the value, and the time of the broker's clock as HTTP spells it."""

    status: int
    value: Any
    date: str


class Management:
    """Asks one management. Any thread; each answer comes on one of its own."""

    def __init__(self, address: str, url: BrokerUrl) -> None:
        """Keep the address and the user's name. Raises ConfigError if `address` is no http or https URL."""
        try:
            parts = urlsplit(address)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in PORTS or not parts.hostname:
            raise ConfigError(
                "management= is no http:// or https:// URL", where=url.text, cure=CURE, code="broker-url-option"
            )
        self._host, self._port = parts.hostname, port or PORTS[parts.scheme]
        self._path = parts.path.rstrip("/")
        self._tls = (url.tls_context() or ssl.create_default_context()) if parts.scheme == "https" else None
        self._vhost = url.path or "/"
        user = url.user if parts.username is None else unquote(parts.username)
        password = url.password if parts.password is None else unquote(parts.password)
        pair = f"{'guest' if user is None else user}:{'guest' if password is None else password}"
        self._authorization = "Basic " + base64.b64encode(pair.encode()).decode()

    @property
    def where(self) -> str:
        return f"the management at {self._host}:{self._port}"

    def limit_of(self, queue: str, version: str, answer: Callable[[BrokerLimit], None]) -> None:
        def ask() -> None:
            try:
                status, text, _ = self._get(f"/api/queues/{quote(self._vhost, safe='')}/{quote(queue, safe='')}")
                found = self._meaning(status, text, version)
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = f"{self.where} cannot be used: {error or type(error).__name__}"
                found = BrokerLimit(trust=Trust.UNKNOWN, why=why, returned_after=unread_retry(version))
            answer(found)

        threading.Thread(target=ask, name="redeliver-pika-management", daemon=True).start()

    def read(self, *names: str) -> ManagementAnswer:
        """Return what `/api/NAME/NAME…` holds; `%` stands for the virtual host. Blocks.

        Raises OSError, HTTPException or ValueError if there is no answer, or none in JSON.
        """
        parts = (self._vhost if name == "%" else name for name in names)
        status, text, date = self._get("/api/" + "/".join(quote(part, safe="") for part in parts))
        return ManagementAnswer(status, json.loads(text) if status == 200 else None, date)

    def _get(self, path: str) -> tuple[int, bytes, str]:
        connection = (
            http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT)
            if self._tls is None
            else http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT, context=self._tls)
        )
        try:
            connection.request("GET", self._path + path, headers={"Authorization": self._authorization})
            response = connection.getresponse()
            return response.status, response.read(ANSWER_BYTES), response.headers.get("Date", "")
        finally:
            connection.close()

    def _meaning(self, status: int, text: bytes, version: str) -> BrokerLimit:
        if status == 404:
            return BrokerLimit()  # it is ours to make, as a classic queue; or there is nothing to consume
        if status != 200:
            why = f"{self.where}: {refusal(status)}"
            return BrokerLimit(trust=Trust.UNKNOWN, why=why, returned_after=unread_retry(version))
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it answers with no queue")
        return limit_in(found, version)


def refusal(status: int) -> str:
    """Return what a status other than 200 means."""
    refusals = {401: "it refuses this user or password", 403: "this user may not ask it"}
    return refusals.get(status, f"it answers {status}")


def limit_in(queue: Mapping[str, Any], version: str) -> BrokerLimit:
    """Return what a queue, as the management describes it, does with returned messages. Only a quorum queue has limits.

    The management shows a queue's arguments at once, and what its policies come to once it has gathered that.
    """
    if queue.get("type") != "quorum":
        return BrokerLimit()
    arguments, policy = queue.get("arguments") or {}, queue.get("effective_policy_definition")
    gathered = isinstance(policy, dict)
    policy = policy if isinstance(policy, dict) else {}
    limits = _numbers(arguments.get("x-delivery-limit"), policy.get("delivery-limit"))
    number = version_of(version)
    retry = _delayed_retry(arguments, policy) if number >= RETRIES_FROM else 0.0
    if not gathered and not any(limit >= 0 for limit in limits):
        why = f"{queue.get('name')} is new, and its policies are not shown yet"
        return BrokerLimit(trust=Trust.UNKNOWN, why=why, returned_after=retry or unread_retry(version))
    limit = _limit_before_4(limits) if number < (4, 0) else _limit_from_4(limits, queue.get("delivery_limit"))
    timeouts = _numbers(arguments.get("x-consumer-timeout"), policy.get("consumer-timeout"))
    return BrokerLimit(
        returns=None if limit is None else limit + 1,
        dead_letter_to=_dead_letter_to(arguments, policy),
        spelled=_spelled(limits, limit),
        ack_timeout=min(timeouts) / 1000 if timeouts and number >= TIMEOUTS_FROM else None,
        returned_after=retry if gathered else retry or unread_retry(version),
    )


def _delayed_retry(arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> float:
    """Return for how many seconds a nacked message is kept back. It acts on them for two types, and with a minimum."""

    def setting(word: str) -> object:
        return arguments.get(f"x-delayed-retry-{word}", policy.get(f"delayed-retry-{word}"))

    least, most = _numbers(setting("min")), _numbers(setting("max"))
    if setting("type") not in ("all", "returned") or not least:
        return 0.0
    return min([*least, *most]) / 1000


def _limit_before_4(limits: list[int]) -> int | None:
    """Return the smallest limit, or None; a negative one ends a message at its first return (seen on 3.10)."""
    return max(min(limits), 0) if limits else None


def _limit_from_4(limits: list[int], shown: object) -> int | None:
    """Return the limit that the broker shows, if it does; else what an argument and a policy were seen to come to."""
    if shown == "unlimited":
        return None
    if isinstance(shown, int):
        return shown
    limits = limits or [DEFAULT_LIMIT]
    limit = max(limits) if min(limits) < 0 else min(limits)
    return limit if limit >= 0 else None


def _spelled(limits: list[int], limit: int | None) -> str:
    if limit is None:
        return ""
    return f"delivery-limit {limits[0] if len(limits) == 1 else limit}" + ("" if limits else ", the default")


def _dead_letter_to(arguments: Mapping[str, Any], policy: Mapping[str, Any]) -> str:
    """Return where a queue's dead letters go; empty: nowhere. The exchange's bindings are not looked at."""
    exchange = arguments.get("x-dead-letter-exchange", policy.get("dead-letter-exchange"))
    key = arguments.get("x-dead-letter-routing-key", policy.get("dead-letter-routing-key"))
    if exchange is None:
        return ""
    if exchange == "":
        return f"the queue {key!r}" if key else ""
    return f"the exchange {exchange!r}"


def _numbers(*values: object) -> list[int]:
    return [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
