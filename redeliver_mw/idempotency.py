# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Remembers handled messages for a time, so that a message delivered twice is handled once.

This holds as far as a database can tell.

There is a line for each message: *claimed* while its handler runs, *handled* from then on, until the line expires. A
claim that expires belongs to a dead program, or to a handler that took longer than `lease`.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
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

from .callables import check_plain, check_run, is_async
from .clock import Clock, SystemClock
from .errors import ConfigError, RedeliverError, RetryAfter
from .message import Delivery, RunOutbox
from .redelivery import identity
from .redelivery.headers import read_history_headers
from .redelivery.outbox import ClosedOutbox
from .storage.database import Database
from .storage.header_values import is_plain
from .storage.schema import handled

log = logging.getLogger("redeliver_mw.limbo")

HANDLED = ""  # takes the place of a claim's name
BUSY_REST = 5.0  # seconds, at most, until a message that another handler is handling is tried again
PRUNE_EVERY = 200  # messages between two removals of expired lines
PRUNED = 500  # lines at most, in each removal
NOT_HERE = ClosedOutbox(
    "Delivery.send within a block of Idempotency: a crash between mark and sending would mean that nobody sends it",
    "Send after the block, whatever it has found",
)
F = TypeVar("F", bound=Callable[..., Any])


class Idempotency:
    """Remembers for `ttl` seconds which messages have been handled. Thread-safe.

    `url` is that of a limbo, which is made when it is missing; without a URL only `first` works, in tables of your own
    database (`create_table`). `key` returns the text that identifies a delivery; None means its message key, which
    stays the same over retries, dead letters and replays. `scope` separates messages that have nothing to do with each
    other; None means the source. `lease`: seconds that the longest run of a handler takes.
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
        """Take the options; the database is opened at its first use.

        `ttl` and `lease` are seconds above 0. Raises ConfigError for any other value, for a URL that is no database,
        and for a `key` that is no plain function.
        """
        if key is not None:
            check_plain(key, "key", where="Idempotency")
        self._ttl, self._lease = _seconds("ttl", ttl), _seconds("lease", lease)
        self._key, self._scope = key, scope
        self._clock = clock or SystemClock()
        self._db = None if url is None else Database(url)
        self._opening = threading.Lock()
        self._is_open = False
        self._since_pruned = itertools.count(1)

    def __call__(self, delivery: Delivery, /) -> IdempotentBlock:
        """Return a block for `with once(delivery) as fresh:` or `async with`.

        `fresh` is True if the message is to be handled.

        Leaving the block marks the message as handled; an exception does not. Raises RetryAfter, not counted as a
        failure, while another handler has the message; ConfigError for a message without any id; LimboError if the
        database is unavailable.
        """
        return IdempotentBlock(self, delivery)

    def guard(self, handler: F, /) -> F:
        """Return the handler, plain or async, wrapped to be called only with messages that are to be handled.

        Used as a decorator, it is placed below `@app.handler`.
        """
        if is_async(handler):

            @functools.wraps(handler)
            async def guarded_async(*arguments: Any) -> None:
                async with self(arguments[-1]) as fresh:
                    if fresh:
                        await handler(*arguments)

            return cast("F", guarded_async)  # it has the signature of the wrapped handler

        @functools.wraps(handler)
        def guarded(*arguments: Any) -> None:
            with self(arguments[-1]) as fresh:
                if fresh:
                    check_run(handler(*arguments))

        return cast("F", guarded)

    def first(self, delivery: Delivery, connection: Connection, /) -> bool:
        """Mark the message as handled within your own transaction; return True the first time.

        The mark and the answer are valid only if the transaction is committed.

        While another transaction marks the same message, PostgreSQL waits here for the end of that transaction.
        `connection` is a SQLAlchemy connection to SQLite or PostgreSQL, in a database that has the table
        (`create_table`).
        """
        won = self._take(connection, self._place(delivery), HANDLED, self._ttl)
        if next(self._since_pruned) % PRUNE_EVERY == 0:
            self._prune(connection)
        return won

    @staticmethod
    def create_table(connection: Connection, /) -> None:
        """Make the table in your own database, unless it exists."""
        handled.create(connection, checkfirst=True)

    def forget(self, delivery: Delivery, /) -> None:
        """Forget a message, so that it is handled again when it is delivered again."""
        with self._database().writing() as connection:
            connection.execute(delete(handled).where(_is(self._place(delivery))))

    def close(self) -> None:
        """Disconnect. The next use connects again."""
        with self._opening:
            self._is_open = False
            if self._db is not None:
                self._db.close()

    # -- claims -----------------------------------------------------------------------------------

    def _claim(self, delivery: Delivery, claim: str) -> bool:
        """Claim the message; return False if it was handled already."""
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
        """Mark the message as handled. A database error is only logged: it is no reason to handle the message again."""
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
        """Write the line, unless there is one that has not expired."""
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
        """Remove expired lines, found by index; lines that another program has locked are skipped."""
        keys = (handled.c.source, handled.c.message)
        old = select(*keys).where(handled.c.expires_us <= self._clock.now().us)
        old = old.order_by(handled.c.expires_us).limit(PRUNED).with_for_update(skip_locked=True)
        connection.execute(delete(handled).where(tuple_(*keys).in_(old)))

    def _place(self, delivery: Delivery) -> tuple[str, str]:
        scope = str(delivery.destination) if self._scope is None else self._scope
        if self._key is not None:
            key = self._key(delivery)
            if not isinstance(key, str) or not key:
                raise ConfigError(
                    f"key= made {key!r} of it",
                    where=repr(delivery),
                    cure="Let it answer a text",
                    code="idempotency-key",
                )
            return _kept(scope), _kept(key)
        past = delivery.past if delivery.known else read_history_headers(delivery)
        found = identity.message_key(delivery, past)
        if found is None:
            raise ConfigError(
                "it has no id that it could be known by",
                where=repr(delivery),
                cure="Let its producer set a message id, or give Idempotency a key=",
                code="idempotency-key",
            )
        return _kept(scope), _kept(found)

    def _database(self) -> Database:
        if self._db is None:
            raise ConfigError(
                "Idempotency has no database",
                cure='Give it one: Idempotency("sqlite:///limbo.db"); or use `first`',
                code="limbo-required",
            )
        with self._opening:
            if not self._is_open:
                self._db.open()
                self._is_open = True
        return self._db


class IdempotentBlock:
    """Manages the context of one handler run, plain or async; entering returns whether the message is to be handled."""

    def __init__(self, once: Idempotency, delivery: Delivery) -> None:
        """Wrap one run of the handler of `delivery`. Made by `Idempotency`."""
        self._once, self._delivery = once, delivery
        self._claim = uuid.uuid4().hex[:16]
        self._fresh = False
        self._outbox: RunOutbox | None = None

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
    """Return text in a form that every database accepts."""
    return text if is_plain(text) else hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def _is(place: tuple[str, str]) -> Any:
    return (handled.c.source == place[0]) & (handled.c.message == place[1])


def _dialect(connection: Connection) -> Any:
    name = connection.dialect.name
    if name not in ("sqlite", "postgresql"):
        raise ConfigError(f"Idempotency cannot be kept in {name}", cure="Use SQLite or PostgreSQL", code="limbo-url")
    return postgresql if name == "postgresql" else sqlite


def _seconds(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(
            f"{name}={value!r} is no number of seconds above 0", cure=f"Give {name} seconds", code="option-value"
        )
    return float(value)
