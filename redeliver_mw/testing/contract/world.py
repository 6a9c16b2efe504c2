# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`World`: what the contract needs of a broker, not through the adapter under test."""

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
    """A message as a plain client of the broker sees it. `props` are the standard ones that it has."""

    body: bytes
    headers: Mapping[str, Any]
    props: Mapping[str, Any]
    redelivered: bool


@dataclass(slots=True)
class Consumer:
    """A started App with one handler that remembers its runs."""

    app: App
    handler: Handler
    records: list[AttemptRecord] = field(default_factory=list)  # only with `records=True`

    @property
    def counts(self) -> list[int]:
        """The delivery counts that the handler saw, in order."""
        return [run.count for run in self.handler.runs]

    @property
    def bodies(self) -> list[bytes]:
        return [run.body for run in self.handler.runs]

    @property
    def paused(self) -> str | None:
        """Why its source is paused; None when it is not."""
        (source,) = self.app.health()["sources"].values()
        why: str | None = source["why_paused"]
        return why

    @property
    def uncopyable(self) -> int:
        """Messages that stay unsettled in it since no exact copy of them can be made."""
        (source,) = self.app.health()["sources"].values()
        return int(source["uncopyable"])

    def stop(self, timeout: float = 5.0) -> StopReport:
        return self.app.stop(timeout)


class World(ABC):
    """A real broker, or one in memory, as the tests of the contract use it. For one test at a time.

    What is done here goes past the adapter under test: by a raw client of the broker's, by its admin tools, by
    a proxy in front of it. Only `url`, and with it every App, is the adapter's. Times are seconds.
    """

    tick: ClassVar[float] = 0.25  # the usual delay of policies under test
    patience: ClassVar[float] = 15.0  # how long `wait_until` waits, unless told otherwise
    start_limit: ClassVar[float] = 15.0  # in which an App must know that it cannot start
    abilities: frozenset[Ability] = frozenset()
    keeps_message_ids: bool = True  # a producer's own; ActiveMQ gives every message one of its own
    # After what the broker marks what comes back as redelivered; without the mark a settled-at-once is never taken.
    marks: frozenset[Literal["cut", "kill"]] = frozenset({"cut", "kill"})
    makes_on_use: bool = False  # a queue that nobody made is made at its first use, so that none is ever missing
    user: str = ""  # whom the broker knows a raw client as; empty: messages carry no user id

    def __init__(self) -> None:
        self._apps: list[App] = []

    # -- to be given -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the adapter declares for this broker."""

    @property
    @abstractmethod
    def foreign_headers(self) -> Mapping[str, Any]:
        """One header of each type that this dialect knows."""

    @abstractmethod
    def new_queue(self, *, refusing: bool = False, lasting: bool = False, declare: bool = True) -> str:
        """A durable queue that no other test uses. `refusing`: it takes no message until `relent`.

        `lasting`: it survives a kill of the broker although it is new. Without `declare` only its name.
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
        """As a producer would: durable, confirmed. `properties` as in `Properties`."""

    @abstractmethod
    def take_all(self, queue: str) -> list[Raw]:
        """Everything that waits there, removed."""

    @abstractmethod
    def depth(self, queue: str) -> int:
        """Messages that wait there; those in flight do not."""

    @abstractmethod
    def exists(self, queue: str) -> bool: ...

    @abstractmethod
    def declare(self, queue: str) -> None:
        """Make it, again after a `delete`."""

    @abstractmethod
    def delete(self, queue: str) -> None: ...

    @abstractmethod
    def relent(self, queue: str) -> None:
        """A refusing queue takes messages from now on."""

    @abstractmethod
    def cut_connections(self) -> None:
        """Every connection of our Apps is lost, without a goodbye."""

    @abstractmethod
    def lose_next_settle(self) -> None:
        """The next settle that an App writes does not arrive: its connections are cut instead."""

    @abstractmethod
    def silence(self) -> None:
        """No publish of an App is answered, nor arrives, until `unsilence`."""

    @abstractmethod
    def unsilence(self) -> None: ...

    @abstractmethod
    def now(self) -> float:
        """The monotonic clock of handlers and timers."""

    @abstractmethod
    def advance(self, seconds: float) -> None:
        """Let this time pass."""

    @abstractmethod
    def wait_until(self, true: Callable[[], bool], timeout: float | None = None) -> bool:
        """Let time pass until `true()`; False when `timeout` seconds did not bring it about."""

    # -- to be given where the abilities say so --------------------------------------------------------------

    def kill_broker(self) -> None:
        """As by kill -9 ("kill")."""
        raise NotImplementedError

    def restart_broker(self) -> None:
        raise NotImplementedError

    def raise_alarm(self) -> None:
        """The broker has no memory left and takes no message ("alarm")."""
        raise NotImplementedError

    def lift_alarm(self) -> None:
        raise NotImplementedError

    def other_url(self, *, password: str | None = None, hosts: Sequence[str | None] = ()) -> str:
        """`url` with another password ("credentials"), or other hosts ("network"); None: the right one."""
        raise NotImplementedError

    def dead_host(self) -> str:
        """`host:port` where nobody answers ("network")."""
        raise NotImplementedError

    def seasoned_queue(self, longest: float) -> str:
        """A queue whose helpers for delays up to `longest` seconds are old enough to be trusted."""
        return self.new_queue()

    # -- apps ------------------------------------------------------------------------------------------------

    def app(self, **options: Any) -> App:
        """An App on this broker, not started."""
        url = options.pop("url", None) or self.url
        usual: dict[str, Any] = {"app_name": "contract", "stop_timeout": 5.0}
        return App(url, **(usual | options))

    def start(self, app: App) -> None:
        """Start an App as this world needs it."""
        app.start()

    def started(self, app: App) -> App:
        """Start it; it is stopped with the world."""
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
        """Start an App with one handler (none: one that succeeds)."""
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
        """Stop what was started."""
        for app in self._apps:
            if app.health()["started"]:
                app.stop(0.5)

    # -- names -----------------------------------------------------------------------------------------------

    def new_name(self) -> str:
        return f"contract.{os.getpid():x}.{os.urandom(3).hex()}.{next(_numbers)}"
