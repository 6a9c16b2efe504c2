# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Wraps the user's connection, and what its container lends: timers, a way in from other threads, an end.

All on the container's thread, `hop` excepted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import proton
from proton.reactor import ApplicationEvent, EventInjector

from redeliver_mw.adapter.kit.ledger_scope import scope_of_hosts
from redeliver_mw.message import Delivery
from redeliver_proton.dropin.code_transactions import CodeTransaction, TransactionWatch, is_coordinator
from redeliver_proton.dropin.copies import LinkCopyPublisher
from redeliver_proton.dropin.link import LinkScope

log = logging.getLogger("redeliver_mw.proton")

_HOP = "redeliver_hop"


class ContainerTimer:
    """Calls `fn` once, never early: the container counts from when its turn began, and in wall time."""

    def __init__(self, user_connection: ProtonUserConnection, seconds: float, fn: Callable[[], object]) -> None:
        self._user_connection, self._fn = user_connection, fn
        self._due = time.monotonic() + seconds
        self._start()

    def _start(self) -> None:
        container = self._user_connection.container
        container.mark()
        self._task = container.schedule(max(0.0, self._due - time.monotonic()), self)

    def on_timer_task(self, _event: Any) -> None:
        if time.monotonic() < self._due:
            self._start()
        else:
            self._user_connection.timers.discard(self)
            self._fn()

    def cancel(self) -> None:
        self._user_connection.timers.discard(self)
        self._task.cancel()


class ProtonUserConnection:
    """Follows one connection of the user's through its reconnects. Is also the loop of what sends on it."""

    def __init__(self, watch: ConnectionWatch, connection: proton.Connection) -> None:
        self.watch, self.container, self.connection = watch, watch.container, connection
        self.scopes: dict[Any, LinkScope] = {}  # by link
        self.transactions: dict[bytes, CodeTransaction] = {}  # of the code's own, by their ids
        self.runners: dict[Any, Any] = {}  # by the handler they belong to
        self.timers: set[ContainerTimer] = set()
        self.is_open = True
        self.finished = False  # it will not come back
        self.publisher = LinkCopyPublisher(self)

    @property
    def broker(self) -> str:
        """Return the broker's place, as `ProtonAdapter.broker` does."""
        url = next(iter(self._urls()), None)
        return str(self.connection.hostname) if url is None else f"{url.host or 'localhost'}:{int(url.port or 5672)}"

    @property
    def ledger_scope(self) -> str:
        """Return the same scope as `ProtonAdapter.ledger_scope`: App and drop-in share the ledger of a source."""
        hosts = [(url.host or "localhost", int(url.port or 5672)) for url in self._urls()]  # a port may print as `amqp`
        return scope_of_hosts(hosts) or self.broker

    def _urls(self) -> list[proton.Url]:
        """Return the URLs that the container may connect to, in its order."""
        addresses = getattr(getattr(self.connection, "_overrides", None), "address", None)
        urls = addresses.values if addresses is not None else [getattr(self.connection, "url", None)]
        return [url for url in urls if url is not None]

    def scope_of(self, generation: int) -> LinkScope | None:
        """Return the link of a generation that is not over."""
        return next((scope for scope in self.scopes.values() if scope.lives(generation)), None)

    def settled(self, delivery: Delivery) -> None:
        """Forget a settled delivery: its copies are not tried again."""
        self.publisher.salts.settled(delivery)

    # -- the loop ---------------------------------------------------------------------------------

    @staticmethod
    def time() -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def later(self, seconds: float, fn: Callable[[], object]) -> None:
        if self.is_open:
            self.call_later(seconds, fn)

    def call_later(self, seconds: float, fn: Callable[[], object]) -> ContainerTimer:
        timer = ContainerTimer(self, seconds, fn)
        self.timers.add(timer)
        return timer

    def call(self, fn: Callable[[], object]) -> None:
        self.later(0.0, fn)

    def hop(self, fn: Callable[[], None]) -> None:
        """Call `fn` on the container's thread, from any thread; right here if the container has ended."""
        if self.finished or not self.watch.inject(fn):
            fn()

    # -- losses -----------------------------------------------------------------------------------

    def cut(self, error: BaseException) -> None:
        """Close the socket without a goodbye, as the container does after a failure of it; it may reconnect."""
        log.error("the connection is closed, and the broker has its unsettled messages again: %s", error)
        transport = self.connection.transport
        if transport is not None:
            selectable = getattr(transport, "_selectable", None)
            transport.close_head()
            transport.close_tail()
            if selectable is not None:
                selectable.terminate()
                selectable._transport = transport._selectable = None
                selectable.update()
        self.down(error)

    def down(self, error: BaseException) -> None:
        """End what a lost or closed connection has: no generation outlives it, no timer keeps the container running."""
        if not self.is_open:
            return
        self.is_open = False
        for transaction in self.transactions.values():
            transaction.lost()
        self.transactions.clear()
        for scope in list(self.scopes.values()):
            scope.lost()
        self.publisher.down(error)
        for timer in list(self.timers):
            timer.cancel()
        _ = self.container.timer_deadline  # forgets those that are cancelled
        for runner in self.runners.values():
            runner.begin_anew()

    def link_down(self, link: Any) -> None:
        """Note a closed link. Accepts that wait for their commit are written: the driver does so before it detaches."""
        scope = self.scopes.pop(link, None)
        if scope is not None:
            for transaction in self.transactions.values():
                transaction.closing(scope)
            scope.lost()


class ConnectionWatch(proton.Handler):
    """Hears of every end in one container, whichever handler an event is for."""

    def __init__(self, container: Any) -> None:
        self.container = container
        self._user_connections: dict[Any, ProtonUserConnection] = {}
        self._injector: EventInjector | None = None
        self._guard = threading.Lock()
        self._following = False

    @classmethod
    def of(cls, container: Any) -> ConnectionWatch:
        """Return the one of a container."""
        watch: ConnectionWatch | None = vars(container).get("_redeliver_watch")
        if watch is None:
            watch = container._redeliver_watch = cls(container)
            container.global_handler.add(watch)
        return watch

    @classmethod
    def user_connection_of(cls, event: Any) -> ProtonUserConnection:
        """Return the connection of an event."""
        return cls.of(event.container).user_connection(event.connection)

    def user_connection(self, connection: Any) -> ProtonUserConnection:
        """Return a connection as it is known here. Where it has a link for transactions by now, that is watched."""
        found = self._user_connections.get(connection)
        if found is None:
            found = self._user_connections[connection] = ProtonUserConnection(self, connection)
            link = connection.link_head(0)
            while link is not None:
                self._watch_transactions(link, found)
                link = link.next(0)
        return found

    def on_link_local_open(self, event: Any) -> None:
        """Watch the link that the code's first declaration of a transaction opens; its answer comes later."""
        if is_coordinator(event.link):
            self._watch_transactions(event.link, self.user_connection(event.connection))

    @staticmethod
    def _watch_transactions(link: Any, user_connection: ProtonUserConnection) -> None:
        if is_coordinator(link):
            link.handler = TransactionWatch(link.handler, user_connection)

    def on_delivery(self, event: Any) -> None:
        """Note the end of an event: the driver comes here last, and from within `take_following`, too."""
        incoming = vars(event).get("redeliver_ours")
        if incoming is not None and not self._following:
            self._following = True
            try:
                incoming.take_following(event)
            finally:
                self._following = False

    # -- from other threads -----------------------------------------------------------------------

    def listen(self) -> None:
        """Make `inject` work. It keeps the container running until the last connection is closed."""
        with self._guard:
            if self._injector is None:
                self._injector = EventInjector()
                self.container.selectable(self._injector)

    def inject(self, fn: Callable[[], None]) -> bool:
        with self._guard:
            if self._injector is None:
                return False
            self._injector.trigger(ApplicationEvent(_HOP, subject=fn))
            return True

    def on_redeliver_hop(self, event: Any) -> None:
        event.subject()

    # -- ends -------------------------------------------------------------------------------------

    def on_connection_remote_open(self, event: Any) -> None:
        user_connection = self._user_connections.get(event.connection)
        if user_connection is not None:
            user_connection.is_open = True

    def on_transport_error(self, event: Any) -> None:
        self._down(event)

    def on_transport_tail_closed(self, event: Any) -> None:
        self._down(event)

    def on_transport_closed(self, event: Any) -> None:
        """Note a closed transport: by now the container has begun to reconnect, or has given it up."""
        self._down(event)
        connection = event.connection
        if connection is None:
            return
        connector = getattr(connection, "_overrides", None)
        if not connection.state & proton.Endpoint.LOCAL_ACTIVE or getattr(connector, "connection", None) is None:
            self._finish(connection)

    def on_connection_local_close(self, event: Any) -> None:
        self._down(event)

    def on_connection_remote_close(self, event: Any) -> None:
        self._down(event)

    def on_link_local_close(self, event: Any) -> None:
        user_connection = self._user_connections.get(event.connection)
        if user_connection is not None:
            user_connection.link_down(event.link)

    on_link_remote_close = on_link_local_detach = on_link_remote_detach = on_link_local_close

    def on_session_local_close(self, event: Any) -> None:
        user_connection = self._user_connections.get(event.connection)
        for link in (
            [link for link in user_connection.scopes if link.session == event.session]
            if user_connection is not None
            else ()
        ):
            assert user_connection is not None
            user_connection.link_down(link)

    on_session_remote_close = on_session_local_close

    def _down(self, event: Any) -> None:
        user_connection = self._user_connections.get(event.connection)
        if user_connection is not None:
            condition = event.transport.condition if event.transport is not None else None
            user_connection.down(ConnectionError(str(condition or "closed")))

    def _finish(self, connection: Any) -> None:
        user_connection = self._user_connections.pop(connection, None)
        if user_connection is not None:
            user_connection.finished = True
        with self._guard:
            if not self._user_connections and self._injector is not None:
                self._injector.close()
                self._injector = None
