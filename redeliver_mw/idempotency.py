# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Handled messages, remembered for a time: what is delivered twice is handled once, as far as a database can tell.

A line for each message: *claimed* while its handler runs, *handled* from then on, until it expires. A claim that
expires is a dead program's, or that of a handler which took longer than `lease`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import itertools
import logging
import math
import threading
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from sqlalchemy import Connection, delete, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from .clock import Clock, SystemClock
from .errors import ConfigError, RedeliverError, RetryAfter
from .message import Delivery
from .redelivery import identity
from .redelivery.headers import read_history_headers
from .redelivery.outbox import ClosedOutbox
from .storage.database import Database
from .storage.header_values import is_plain
from .storage.schema import handled

log = logging.getLogger("redeliver_mw.limbo")

HANDLED = ""  # instead of the name of a claim
BUSY_REST = 5.0  # seconds, at most, until a message is tried again that another handler has just now
PRUNE_EVERY = 200  # messages between two looks for what has expired
PRUNED = 500  # lines at most, at each of these
NOT_HERE = ClosedOutbox(
    "Delivery.send within a block of Idempotency: a crash between mark and sending would mean that nobody sends it",
    "Send after the block, whatever it has found",
)
F = TypeVar("F", bound=Callable[..., Any])


class Idempotency:
    """Which messages have been handled, for `ttl` seconds.

    `url` is that of a limbo, which is made when it is missing; without one only `first` works, in tables of your own
    database (`create_table`). `key` makes of a delivery the text that it is known by: none is its message key, which
    stays the same over retries, dead letters and replays. `scope` keeps those apart that have nothing to do with each
    other: none is the source. `lease`: seconds that the longest run of a handler takes. Any thread.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        ttl: float = 86400.0,
        key: Callable[[Delivery], str] | None = None,
        scope: str | None = None,
        lease: float = 60.0,
        clock: Clock | None = None,
    ) -> None:
        self._ttl, self._lease = _seconds("ttl", ttl), _seconds("lease", lease)
        self._key, self._scope = key, scope
        self._clock = clock or SystemClock()
        self._db = None if url is None else Database(url)
        self._opening = threading.Lock()
        self._is_open = False
        self._since_pruned = itertools.count(1)

    def __call__(self, delivery: Delivery, /) -> IdempotentBlock:
        """`with once(delivery) as fresh:` (or `async with`): whether it is to be handled.

        Leaving the block marks it as handled; an exception does not. RetryAfter, uncounted, while another handler has
        it. ConfigError for a message without any id; LimboError where the database cannot be had.
        """
        return IdempotentBlock(self, delivery)

    def guard(self, handler: F, /) -> F:
        """The handler, plain or async, called only with messages that are to be handled. Below `@app.handler`."""
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):

            @functools.wraps(handler)
            async def guarded_async(*arguments: Any) -> None:
                async with self(arguments[-1]) as fresh:
                    if fresh:
                        await handler(*arguments)

            return cast("F", guarded_async)  # it has the signature of what it wraps

        @functools.wraps(handler)
        def guarded(*arguments: Any) -> None:
            with self(arguments[-1]) as fresh:
                if fresh:
                    handler(*arguments)

        return cast("F", guarded)

    def first(self, delivery: Delivery, connection: Connection, /) -> bool:
        """Mark it as handled within your own transaction: True the first time, and only if that is committed.

        While another transaction marks the same one, PostgreSQL waits for its end here. `connection` is a SQLAlchemy
        one to SQLite or PostgreSQL, in a database that has the table (`create_table`).
        """
        won = self._take(connection, self._place(delivery), HANDLED, self._ttl)
        if next(self._since_pruned) % PRUNE_EVERY == 0:
            self._prune(connection)
        return won

    @staticmethod
    def create_table(connection: Connection, /) -> None:
        """Make the table in your own database, unless it is there."""
        handled.create(connection, checkfirst=True)

    def forget(self, delivery: Delivery, /) -> None:
        """It is to be handled again when it comes again."""
        with self._database().writing() as connection:
            connection.execute(delete(handled).where(_is(self._place(delivery))))

    def close(self) -> None:
        """Disconnect; it is connected again when it is used again."""
        with self._opening:
            self._is_open = False
            if self._db is not None:
                self._db.close()

    # -- claims -----------------------------------------------------------------------------------

    def _claim(self, delivery: Delivery, claim: str) -> bool:
        """Whether it is ours to handle; False: it was handled."""
        place = self._place(delivery)
        with self._database().writing() as connection:
            if self._take(connection, place, claim, self._lease):
                return True
            row = connection.execute(select(handled).where(_is(place))).first()
        if row is not None and row.claim == HANDLED:
            return False
        rest = BUSY_REST if row is None else row.expires_us / 1e6 - self._clock.now().wall
        raise RetryAfter(min(max(rest, 0.1), BUSY_REST), count=False)

    def _mark(self, delivery: Delivery, claim: str) -> None:
        """It was handled. That this cannot be written is no reason to handle it again."""
        expires_us = self._clock.now().us + round(self._ttl * 1e6)
        ours = _is(self._place(delivery)) & (handled.c.claim == claim)
        try:
            with self._database().writing() as connection:
                marked = connection.execute(handled.update().where(ours).values(claim=HANDLED, expires_us=expires_us))
                if next(self._since_pruned) % PRUNE_EVERY == 0:
                    self._prune(connection)
            if not marked.rowcount:
                log.warning("%r took longer than its lease of %g s: another may have had it", delivery, self._lease)
        except RedeliverError as error:
            log.warning(
                "%r was handled, and that cannot be marked: if it comes again it is handled again. %s", delivery, error
            )

    def _let_go(self, delivery: Delivery, claim: str) -> None:
        ours = _is(self._place(delivery)) & (handled.c.claim == claim)
        try:
            with self._database().writing() as connection:
                connection.execute(delete(handled).where(ours))
        except RedeliverError as error:
            log.warning("%r is claimed for %g s yet: %s", delivery, self._lease, error)

    def _take(self, connection: Connection, place: tuple[str, str], claim: str, seconds: float) -> bool:
        """Write the line, unless one is there that has not expired."""
        now_us = self._clock.now().us
        line = {"source": place[0], "message": place[1], "claim": claim, "expires_us": now_us + round(seconds * 1e6)}
        insert = _dialect(connection).insert(handled).values(line)
        taking = insert.on_conflict_do_update(
            index_elements=[handled.c.source, handled.c.message],
            set_={"claim": insert.excluded.claim, "expires_us": insert.excluded.expires_us},
            where=handled.c.expires_us <= now_us,
        )
        return connection.execute(taking.returning(handled.c.source)).first() is not None

    def _prune(self, connection: Connection) -> None:
        """What has expired, by index; lines that others are at are left to them."""
        keys = (handled.c.source, handled.c.message)
        old = select(*keys).where(handled.c.expires_us <= self._clock.now().us)
        old = old.order_by(handled.c.expires_us).limit(PRUNED).with_for_update(skip_locked=True)
        connection.execute(delete(handled).where(tuple_(*keys).in_(old)))

    def _place(self, delivery: Delivery) -> tuple[str, str]:
        scope = str(delivery.destination) if self._scope is None else self._scope
        if self._key is not None:
            key = self._key(delivery)
            if not isinstance(key, str) or not key:
                raise ConfigError(f"key= made {key!r} of it", where=repr(delivery), cure="Let it answer a text")
            return _kept(scope), _kept(key)
        past = delivery.past if delivery.known else read_history_headers(delivery)
        found = identity.message_key(delivery, past)
        if found is None:
            raise ConfigError(
                "it has no id that it could be known by",
                where=repr(delivery),
                cure="Let its producer set a message id, or give Idempotency a key=",
            )
        return _kept(scope), _kept(found)

    def _database(self) -> Database:
        if self._db is None:
            raise ConfigError(
                "Idempotency has no database", cure='Give it one: Idempotency("sqlite:///limbo.db"); or use `first`'
            )
        with self._opening:
            if not self._is_open:
                self._db.open()
                self._is_open = True
        return self._db


class IdempotentBlock:
    """One run of a handler, as a context manager, plain or async; answers whether the message is to be handled."""

    def __init__(self, once: Idempotency, delivery: Delivery) -> None:
        self._once, self._delivery = once, delivery
        self._claim = uuid.uuid4().hex[:16]
        self._fresh = False
        self._outbox: Any = None

    def __enter__(self) -> bool:
        self._fresh = self._once._claim(self._delivery, self._claim)
        if self._fresh and self._delivery.outbox is not None:
            self._outbox, self._delivery.outbox = self._delivery.outbox, NOT_HERE
        return self._fresh

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._fresh:
            return
        if self._delivery.outbox is NOT_HERE:
            self._delivery.outbox = self._outbox
        if error is None:
            self._once._mark(self._delivery, self._claim)
        else:
            self._once._let_go(self._delivery, self._claim)

    async def __aenter__(self) -> bool:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def _kept(text: str) -> str:
    """As every database takes it."""
    return text if is_plain(text) else hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _is(place: tuple[str, str]) -> Any:
    return (handled.c.source == place[0]) & (handled.c.message == place[1])


def _dialect(connection: Connection) -> Any:
    name = connection.dialect.name
    if name not in ("sqlite", "postgresql"):
        raise ConfigError(f"Idempotency cannot be kept in {name}", cure="Use SQLite or PostgreSQL")
    return postgresql if name == "postgresql" else sqlite


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{name}={value!r} is no number of seconds above 0", cure=f"Give {name} seconds")
    return float(value)
