# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Provides `World`: what the contract needs of a broker, independent of the adapter under test."""

from __future__ import annotations

import itertools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...adapter.capabilities import Capabilities
from ...app import App
from ...journal.records import AttemptRecord
from ...policy import RedeliveryPolicy
from ...runtime.runner import StopReport
from .handlers import Handler

Ability = Literal["kill", "threads", "network", "credentials", "alarm"]
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Raw:
    """Holds a message as a plain client of the broker sees it. `props` are the standard properties that it has."""

    body: bytes
    headers: Mapping[str, Any]
    props: Mapping[str, Any]
    redelivered: bool


@dataclass(slots=True)
class Consumer:
    """Is a started App with one handler that remembers its runs."""

    app: App
    handler: Handler
    records: list[AttemptRecord] = field(default_factory=list)  # only with `records=True`

    @property
    def counts(self) -> list[int]:
        """Return the delivery counts that the handler saw, in order."""
        return [run.count for run in self.handler.runs]

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies that the handler saw, in order."""
        return [run.body for run in self.handler.runs]

    @property
    def paused(self) -> str | None:
        """Return why its source is paused, or None."""
        (source,) = self.app.health()["sources"].values()
        why: str | None = source["why_paused"]
        return why

    @property
    def uncopyable(self) -> int:
        """Return how many messages stay unsettled in it because no exact copy of them can be made."""
        (source,) = self.app.health()["sources"].values()
        return int(source["uncopyable"])

    def stop(self, timeout: float = 5.0) -> StopReport:
        """Stop the app, and return its report."""
        return self.app.stop(timeout)


class World(ABC):
    """Is a real broker, or one in memory, as the tests of the contract use it. For one test at a time.

    The methods bypass the adapter under test: they use a raw client of the broker, its admin tools, or a proxy in front
    of it. Only `url`, and with it every App, uses the adapter. Times are in seconds.
    """

    tick: ClassVar[float] = 0.25  # the usual delay of policies under test
    patience: ClassVar[float] = 15.0  # default timeout of `wait_until`
    start_limit: ClassVar[float] = 30.0  # within which an App must know that it cannot start
    abilities: frozenset[Ability] = frozenset()
    keeps_message_ids: bool = True  # a producer's own message ids; ActiveMQ gives every message a new id
    # After these events the broker marks returned messages as redelivered. Without the mark, a message whose settlement
    # is already decided is not recognised.
    marks: frozenset[Literal["cut", "kill"]] = frozenset({"cut", "kill"})
    makes_on_use: bool = False  # a missing queue is made at its first use, so none is ever missing
    user: str = ""  # the user of a raw client, as the broker reports it; empty: messages carry no user id

    def __init__(self) -> None:
        """Begin without Apps. A harness that overrides this calls it first."""
        self._apps: list[App] = []

    # -- for every harness to implement -----------------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str:
        """Return the URL of the broker for an App, with a user and a password that are right."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return what the adapter declares for this broker."""

    @property
    @abstractmethod
    def foreign_headers(self) -> Mapping[str, Any]:
        """Return one header of each type that this dialect has."""

    @abstractmethod
    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        """Make a durable queue that no other test uses, and return its name.

        `refusing`: it refuses messages until `relent`.

        `lasting`: the queue survives a kill of the broker although it is new. Without `declare` only the name is
        returned.
        """

    @abstractmethod
    def send(
        self,
        queue: str,
        body: bytes,
        headers: Mapping[str, Any] | None = None,
        *,
        lifetime: float | None = None,
        **properties: Any,
    ) -> None:
        """Send as a producer would: durable, confirmed. `properties` as in `Properties`."""

    @abstractmethod
    def take_all(self, queue: str) -> list[Raw]:
        """Remove all messages that wait in the queue, and return them."""

    @abstractmethod
    def depth(self, queue: str) -> int:
        """Return the number of messages that wait in the queue, without those in flight."""

    @abstractmethod
    def exists(self, queue: str) -> bool:
        """Return whether the broker has the queue."""

    @abstractmethod
    def declare(self, queue: str) -> None:
        """Make the queue, again after a `delete`."""

    @abstractmethod
    def delete(self, queue: str) -> None:
        """Delete the queue with all messages in it."""

    @abstractmethod
    def relent(self, queue: str) -> None:
        """Let a refusing queue accept messages from now on."""

    @abstractmethod
    def cut_connections(self) -> None:
        """Lose every connection of our Apps, without closing them."""

    @abstractmethod
    def lose_next_settle(self) -> None:
        """Lose the next settlement that an App writes: its connections are cut instead."""

    @abstractmethod
    def silence(self) -> None:
        """Make the broker neither deliver nor answer any publish of an App until `unsilence`."""

    @abstractmethod
    def unsilence(self) -> None:
        """Deliver and answer publishes again."""

    @abstractmethod
    def now(self) -> float:
        """Return the monotonic clock of handlers and timers."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""

    @abstractmethod
    def wait_until(self, true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let time pass until `true()`; return False after `timeout` seconds."""

    # -- for harnesses that declare the ability ---------------------------------------------------------------

    def kill_broker(self) -> None:
        """Kill the broker as with kill -9 ("kill")."""
        raise NotImplementedError

    def restart_broker(self) -> None:
        """Start the broker again after `kill_broker` ("kill"), and wait until it can be used."""
        raise NotImplementedError

    def raise_alarm(self) -> None:
        """Make the broker refuse messages for lack of memory ("alarm")."""
        raise NotImplementedError

    def lift_alarm(self) -> None:
        """Let the broker accept messages again ("alarm")."""
        raise NotImplementedError

    def other_url(self, *, password: str | None = None, hosts: Sequence[str | None] = ()) -> str:
        """Return `url` with another password ("credentials") or other hosts ("network"); None: the right one."""
        raise NotImplementedError

    def dead_host(self) -> str:
        """Return a `host:port` where nobody answers ("network")."""
        raise NotImplementedError

    def seasoned_queue(self, longest: float) -> str:
        """Return a queue whose helper queues for delays up to `longest` seconds are old enough to be trusted."""
        return self.new_queue()

    # -- apps ------------------------------------------------------------------------------------------------

    def app(self, **options: Any) -> App:
        """Return an App on this broker, not started."""
        url = options.pop("url", None) or self.url
        usual: dict[str, Any] = {"app_name": "contract", "stop_timeout": 5.0}
        return App(url, **(usual | options))

    def start(self, app: App) -> None:
        """Start an App in the way that this world needs."""
        app.start()

    def started(self, app: App) -> App:
        """Start an App that is stopped with the world."""
        self._apps.append(app)
        self.start(app)
        return app

    def consume(
        self,
        queue: str,
        handler: Handler | Callable[..., Any] | None = None,
        policy: RedeliveryPolicy | str | None = None,
        *,
        records: bool = False,
        decode: Callable[[bytes], Any] | None = None,
        **options: Any,
    ) -> Consumer:
        """Start an App with one handler, by default one that succeeds."""
        app = self.app(**options)
        own = handler if isinstance(handler, Handler) else Handler(self.now, handler)
        consumer = Consumer(app, own)
        fn: Callable[..., Any] = own if decode is None else own.decoded
        app.handler(queue, policy=policy, decode=decode)(fn)
        if records:
            app.on_attempt(consumer.records.append)
        self.started(app)
        return consumer

    def close(self) -> None:
        """Stop everything that was started."""
        for app in self._apps:
            if app.health()["started"]:
                app.stop(0.5)

    # -- names -----------------------------------------------------------------------------------------------

    def new_name(self) -> str:
        """Return a name that no other test and no other run uses."""
        return f"contract.{os.getpid():x}.{os.urandom(3).hex()}.{next(_numbers)}"
