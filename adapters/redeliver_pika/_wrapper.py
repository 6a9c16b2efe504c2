# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""`redelivering`: the drop-in wrapper for pika callbacks.

::

    channel.basic_consume("orders", redelivering(on_message, policy=p))

The callback stays as it is. When it returns, its message is acked; when it raises, the message comes back as the
policy says, and after the last failure lies in the dead-letter queue. Works on `BlockingConnection`,
`SelectConnection` and `AsyncioConnection` (there also with coroutine functions), inside the user's own loop: no
thread, no sleep, heart-beats go on.

What a user should know:

- The callback's own `basic_ack`, `basic_nack` and `basic_reject` are captured: ack = success, requeue = failure,
  reject without requeue = `Reject`. They count once; when it acks and then raises, the ack counts and the exception
  is logged.
- `KeyboardInterrupt` and `SystemExit` leave the message unsettled and end the program, as they would by hand.
- Copies go out on a channel of our own on the same connection. In a memory alarm the broker blocks that connection
  whole, acks included; `publisher=` names a companion connection for the copies. When a copy is not answered
  within 30 s the shared connection is closed.
- pika decodes header values itself, and not exactly (1.75 becomes 1): copies carry what it decoded, unless the
  user's connection class has `ExactFrames` in front.
- A channel that is consumed with this wrapper has its `basic_ack`, `basic_nack`, `basic_reject` and `close` taken over.
- What cannot be right is a ConfigError out of the first callback: the message is unsettled, nothing was begun.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType
from typing import Any, Literal, overload

from redeliver_mw.capabilities import Capabilities
from redeliver_mw.copies import Signature
from redeliver_mw.decorator import is_async, policy_on
from redeliver_mw.delay import Option, ways_of
from redeliver_mw.errors import ConfigError
from redeliver_mw.interceptor import Plan
from redeliver_mw.message import Destination
from redeliver_mw.policy import PolicyMap, RedeliveryPolicy, policy_of
from redeliver_mw.ports import Journal
from redeliver_mw.recording import Recorder
from redeliver_mw.registry import parse_url
from redeliver_pika._caller import Caller
from redeliver_pika._post import Companion, Shared
from redeliver_pika._seat import Seat

log = logging.getLogger("redeliver_mw.pika")

AnyPolicy = str | Path | RedeliveryPolicy | PolicyMap
Callback = Callable[..., Any]  # (channel, method, properties, body)
WhenSettled = Literal["return", "callback"]


class Redelivering:
    """A wrapped callback. Give it to `basic_consume`; several queues, channels and connections may share it."""

    hands_class: type[Caller] = Caller

    def __init__(
        self, callback: Callback, policy: AnyPolicy | None, queue: str | None, delay: Option,
        journal: str | os.PathLike[str] | Journal | None, app_name: str | None, settle: WhenSettled, hold_max: int,
        publisher: str | None,
    ) -> None:  # fmt: skip
        self.callback = self.__wrapped__ = callback
        self.__name__: str = getattr(callback, "__name__", type(callback).__name__)
        self.__doc__ = getattr(callback, "__doc__", None)
        meant = policy_of(policy) if policy is not None else policy_on(callback)
        self._policy = RedeliveryPolicy() if meant is None else meant
        self._queue = None if queue is None else Destination.parse(queue)
        self._delay, self._hold_max = delay, hold_max
        self.settle = settle
        self.is_async = is_async(callback)
        self.app_name = app_name or Path(sys.argv[0] or "python").stem
        self.host, self.run_id = socket.gethostname(), uuid.uuid4().hex[:16]
        self.companion = None if publisher is None else _companion(publisher)
        self.recorder = Recorder(_journal(journal), [])
        self._last: dict[tuple[str, int], Caller] = {}  # of a broker and thread: it goes on after a reconnect

    def __call__(self, *args: Any) -> None:
        *bound, channel, method, properties, body = args
        seat = Seat.of(channel)
        if method.consumer_tag in getattr(seat.raw, "_consumers_with_noack", ()):
            self._pass_through(args, method.consumer_tag)
        else:
            self._hands(channel).message(seat, tuple(bound), method, properties, body)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """As a function is: `@redelivering(...)` may stand above a method."""
        return self if instance is None else MethodType(self, instance)

    def __repr__(self) -> str:
        return f"<redelivering {self.callback!r}>"

    def _hands(self, channel: Any) -> Caller:
        shared = Shared.of(channel.connection)
        hands: Caller | None = shared.hands.get(self)
        if hands is None:
            key = (shared.broker, threading.get_ident())
            hands = self._last.get(key)
            if hands is not None and hands.over:
                hands.move_to(shared)
            else:
                hands = self._last[key] = self.hands_class(self, shared)
            shared.hands[self] = hands
        return hands

    def _pass_through(self, args: tuple[Any, ...], consumer_tag: str) -> None:
        """auto_ack: the broker forgot the message when it sent it. Refusing it would lose it."""
        if consumer_tag not in _told:
            _told.add(consumer_tag)
            log.error("auto_ack=True gives messages away before they are handled: none can be redelivered")
        self.callback(*args)

    # -- what hands ask ---------------------------------------------------------------------------

    def source_of(self, seat: Seat, method: Any) -> Destination:
        """The queue. ConfigError when it is not known: nothing is done with the message, which stays unsettled."""
        if self._queue is not None:
            return self._queue
        found = seat.sources.get(method.consumer_tag)
        if found is None:
            if method.exchange:
                raise ConfigError(
                    f"a message came through the exchange {method.exchange!r}, and the driver does not say its queue",
                    where=repr(self), cure='Name it: redelivering(..., queue="orders")',
                )  # fmt: skip
            found = seat.sources[method.consumer_tag] = Destination(method.routing_key)
        return found

    def plan(self, source: Destination, capabilities: Capabilities) -> Plan:
        """ConfigError or PolicyError for a policy that cannot be had here."""
        policy = self._policy.resolve(source.name, source.kind)
        ways = ways_of(
            source, capabilities, option=self._delay, prefetch=2 * self._hold_max, longest=policy.longest_delay,
            ack_timeout=capabilities.ack_timeout,
        )  # fmt: skip
        for target in policy.targets:
            if target.resolve(source) == source:
                raise ConfigError(
                    f"its dead letters would go to {source}, where they come from",
                    where=str(source), cure="Give the policy another dead_letter target",
                )  # fmt: skip
        return Plan(source, policy, ways, Signature(source, self.app_name, self.host, policy.text, policy.version))


_told: set[str] = set()  # consumers with auto_ack that were warned of


@overload
def redelivering(
    callback: None = None, *, policy: AnyPolicy | None = None, queue: str | None = None, delay: Option = "auto",
    journal: str | os.PathLike[str] | Journal | None = None, limbo: object = None, crash_safe: bool = False,
    app_name: str | None = None, settle: WhenSettled = "return", hold_max: int = 20, publisher: str | None = None,
) -> Callable[[Callback], Redelivering]: ...  # fmt: skip
@overload
def redelivering(
    callback: Callback, *, policy: AnyPolicy | None = None, queue: str | None = None, delay: Option = "auto",
    journal: str | os.PathLike[str] | Journal | None = None, limbo: object = None, crash_safe: bool = False,
    app_name: str | None = None, settle: WhenSettled = "return", hold_max: int = 20, publisher: str | None = None,
) -> Redelivering: ...  # fmt: skip
def redelivering(
    callback: Callback | None = None, *, policy: AnyPolicy | None = None, queue: str | None = None,
    delay: Option = "auto", journal: str | os.PathLike[str] | Journal | None = None, limbo: object = None,
    crash_safe: bool = False, app_name: str | None = None, settle: WhenSettled = "return", hold_max: int = 20,
    publisher: str | None = None,
) -> Any:  # fmt: skip
    """Wrap a callback of pika's, `(channel, method, properties, body)`, for `basic_consume`; or decorate it.

    - `policy`: any policy text, a RedeliveryPolicy or PolicyMap; else the callback's `@redeliver` mark, else
      the default policy.
    - `queue`: the queue that is consumed; needed only when messages come through an exchange.
    - `delay`: `auto`, `hold` or `schedule`.
    - `journal`: a folder, or a Journal, for an AttemptRecord of each attempt.
    - `settle`: with `callback`, returning is not success; the callback's own ack, later and also from
      `add_callback_threadsafe`, is. Silence is nothing.
    - `hold_max`: deliveries (>= 1) that may be held here at once, each for ten seconds at most.
    - `publisher`: a URL for a companion connection on which copies go out.

    ConfigError for what cannot be; PolicyError for a policy that cannot be read.
    """
    for name, value in (("limbo", limbo), ("crash_safe", crash_safe)):
        if value:
            raise ConfigError(f"{name} is not built yet", cure=f"Leave {name} out")
    _check(delay, settle, hold_max)
    if callback is None:
        return partial(
            redelivering, policy=policy, queue=queue, delay=delay, journal=journal, app_name=app_name, settle=settle,
            hold_max=hold_max, publisher=publisher,
        )  # fmt: skip
    if not callable(callback):
        raise ConfigError(f"{callback!r:.200} is no callback", cure="Give a function of pika's four arguments")
    return Redelivering(callback, policy, queue, delay, journal, app_name, settle, hold_max, publisher)


def _check(delay: str, settle: str, hold_max: int) -> None:
    if delay not in ("auto", "hold", "schedule"):
        why = {"nack": "needs to have the queue for itself, which a wrapper cannot see", "park": "is not built yet"}
        raise ConfigError(f"delay={delay!r} {why.get(delay, 'is unknown')}", cure="Choose auto, hold or schedule")
    if settle not in ("return", "callback"):
        raise ConfigError(f"settle={settle!r} is unknown", cure='Choose "return" or "callback"')
    if isinstance(hold_max, bool) or not isinstance(hold_max, int) or hold_max < 1:
        raise ConfigError(f"hold_max={hold_max!r} is no number of deliveries", cure="Give 1 or more")


def _journal(journal: str | os.PathLike[str] | Journal | None) -> Journal | None:
    if isinstance(journal, str | os.PathLike):
        from redeliver_mw.journal import Journal as FileJournal

        return FileJournal(journal)
    return journal


def _companion(publisher: str) -> Companion:
    url = parse_url(publisher)
    if url.dialect != "rabbitmq+pika":
        raise ConfigError("publisher= is no RabbitMQ", where=url.text, cure="Give a rabbitmq:// URL")
    return Companion(url)
