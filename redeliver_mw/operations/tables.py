# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the tables of the store: dead letters that left their queues, and the operations of people on them.

All names begin with `redeliver_store_`, so that a store and a limbo may share a database. Times are microseconds since
1970, UTC. Texts from other programs are cleaned (`redaction.clean`) and not redacted: the store holds what the letter
holds, and whatever is shown is redacted where it is shown.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    insert,
)
from sqlalchemy.dialects import postgresql

from ..errors import ConfigError, StoreError
from ..storage.table_set import BytesColumn, DatabaseErrors, TableSet

metadata = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite's own row id only with this type
_JSON = JSON().with_variant(postgresql.JSONB(), "postgresql")
_PLAIN = Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")  # ordered by bytes, as in SQLite

versions = Table("redeliver_store_version", metadata, Column("version", Integer, nullable=False))

# There is one line. Whoever stores letters takes their numbers here first, and so stores alone until the commit.
counters = Table("redeliver_store_counter", metadata, Column("next_letter_id", BigInteger, nullable=False))

letters = Table(
    "redeliver_store_letter",
    metadata,
    Column("letter_id", _ID, primary_key=True, autoincrement=False),  # from `counters`
    Column("dl_id", _PLAIN, nullable=False),  # the id that people see: `base_id`, and ~2, ~3, … if it is taken
    Column("base_id", _PLAIN, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("broker", Text, nullable=False),
    Column("queue", Text, nullable=False),  # where the letter lay: `Destination.short`
    Column("dialect", Text, nullable=False),
    Column("source", Text),  # the queue or subscription it was consumed from, as `queue:orders`; NULL: not known
    Column("problem", Text, nullable=False),  # why it cannot be sent back; empty when it can
    Column("reason", Text, nullable=False),
    Column("error_type", Text),
    Column("error_message", Text),
    Column("fingerprint", Text),
    Column("app", Text),
    Column("failures", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("replay_id", Text),
    Column("message_key", Text),
    Column("message_id", Text),
    Column("content_type", Text),
    Column("died_us", BigInteger, nullable=False),  # the last failure or the broker's time; else when it was collected
    Column("collected_us", BigInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # waiting, replaying, replayed, archived, discarded
    Column("body_bytes", BigInteger, nullable=False),
    Column("digest", Text, nullable=False),  # `letters.digest_of`: an edit names the digest that it was made for
    # How a letter is recognised that comes a second time: `recognition`.
    Column("same", Text, nullable=False),
    Column("known_by", Text, nullable=False),
    Column("batch_id", Text),
    Column("again_of", BigInteger),
    Index("redeliver_store_letter_state", "state", "died_us", "letter_id"),
    Index("redeliver_store_letter_fingerprint", "state", "fingerprint"),
    Index("redeliver_store_letter_source", "state", "source"),
    Index("redeliver_store_letter_base", "base_id", "ordinal", unique=True),
)

for _name, _column in (("batch", letters.c.batch_id), ("again", letters.c.again_of)):  # most letters have neither
    _there = _column.is_not(None)
    Index(f"redeliver_store_letter_{_name}", _column, sqlite_where=_there, postgresql_where=_there)

bodies = Table(
    "redeliver_store_body",
    metadata,
    Column("letter_id", _ID, primary_key=True, autoincrement=False),
    Column("redelivered", SmallInteger, nullable=False),
    Column("head", BytesColumn, nullable=False),  # all but the body, exactly: `dead_letters.packed`
    Column("body", BytesColumn, nullable=False),
)

# Headers as texts, for filters and for people. The exact ones are in `head`. A row and an entry in an index for each
# header would be the larger part of what it costs to store a letter. So the two dozen that redeliver-mw itself writes
# on a dead letter are together in one row of `own_headers`, which filters read without an index; what people look for
# among them has a column above.
_OWN: Final = re.compile(r"redeliver_[a-z0-9_]{1,100}")


def is_own_header(name: str) -> bool:
    """Return whether a header of this name is kept in `own_headers`, and not in `headers`."""
    return _OWN.fullmatch(name) is not None


own_headers = Table(
    "redeliver_store_own_header",
    metadata,
    Column("letter_id", _ID, primary_key=True, autoincrement=False),
    Column("texts", _JSON, nullable=False),  # by name; a text has at most 1000 characters
    Column("numbers", _JSON, nullable=False),  # by name, of those whose value is a finite number
)

headers = Table(
    "redeliver_store_header",
    metadata,
    Column("letter_id", BigInteger, primary_key=True, autoincrement=False),
    Column("name", _PLAIN, primary_key=True),  # at most 255 characters
    Column("text", _PLAIN, nullable=False),  # at most 1000 characters
    Column("number", Double),  # if the value is a finite number
    Index("redeliver_store_header_text", "name", "text"),
    sqlite_with_rowid=False,
)

# All tables that hold a part of a letter; the letter itself is the last.
PARTS: Final = (headers, own_headers, bodies, letters)

# Batches whose letters may still be in their queue, because it is not known whether the broker has processed their
# settlement. A line is removed as soon as it is known.
batches = Table(
    "redeliver_store_batch",
    metadata,
    Column("batch_id", Text, primary_key=True),
    Column("operation_id", Text, nullable=False),
    Column("broker", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("origin", Text, nullable=False),  # the subscription that brought the batch
    Column("stored_us", BigInteger, nullable=False),
)

operations = Table(
    "redeliver_store_operation",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("state", Text, nullable=False),  # planned, running, paused, cancelled, done, failed
    Column("filter", Text, nullable=False),
    Column("options", Text, nullable=False),  # JSON
    Column("total", Integer, nullable=False),
    Column("done", Integer, nullable=False),
    Column("failed", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("why", Text, nullable=False),
    # The process that runs it. `run` is new for each process that takes the operation; whoever has another one has lost
    # it. `seen_us` is when the process last wrote.
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("run", Text, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Index("redeliver_store_operation_began", "began_us"),
)

operation_letters = Table(
    "redeliver_store_operation_letter",
    metadata,
    Column("operation_id", Text, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("letter_id", BigInteger, nullable=False),
    Column("outcome", Text),  # NULL: not yet; else done, failed, skipped, in doubt
    Column("why", Text),
    Column("changed_us", BigInteger, nullable=False),
    Column("became", Text),  # of a replayed letter: recovered, failed again; NULL: not known so far
    Column("became_us", BigInteger),
    Column("lineage", _PLAIN),  # of the copy that a replay has sent, or is about to send; at most 64 characters
    Index("redeliver_store_operation_letter_letter", "letter_id"),
    sqlite_with_rowid=False,
)

Index(
    "redeliver_store_operation_letter_lineage",
    operation_letters.c.operation_id,
    operation_letters.c.lineage,
    sqlite_where=operation_letters.c.lineage.is_not(None),
    postgresql_where=operation_letters.c.lineage.is_not(None),
)

notes = Table(
    "redeliver_store_note",
    metadata,
    Column("note_id", _ID, primary_key=True, autoincrement=True),
    Column("target_kind", Text, nullable=False),
    Column("target_value", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Index("redeliver_store_note_target", "target_kind", "target_value"),
)

redirects = Table(
    "redeliver_store_redirect",
    metadata,
    Column("old", Text, primary_key=True),
    Column("new", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

audits = Table(
    "redeliver_store_audit",
    metadata,
    Column("audit_id", _ID, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("what", Text, nullable=False),
    Column("operation_id", Text),
    Column("filter", Text, nullable=False),
    Column("count", Integer),  # letters; NULL: not known
    Column("outcome", Text, nullable=False),  # success, failure, denied
    Column("why", Text, nullable=False),
    Index("redeliver_store_audit_at", "at_us"),
)

# What an operator wants of one source of an App, until the next row takes its place.
controls = Table(
    "redeliver_store_control",
    metadata,
    Column("app", Text, primary_key=True),
    Column("source", Text, primary_key=True),  # as `queue:orders`
    Column("subject", Text, primary_key=True),  # consumption, breaker
    Column("wish", Text, nullable=False),  # pause, resume; open, close, auto
    Column("who", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)

# What each process of an App reports: one row for each start.
app_processes = Table(
    "redeliver_store_process",
    metadata,
    Column("process_id", Text, primary_key=True),
    Column("app", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("broker", Text, nullable=False),
    Column("started_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("state", Text, nullable=False),  # running, stopped
    Column("sources", Text, nullable=False),  # JSON: a list of `control.SourceReport`
    Index("redeliver_store_process_app", "app"),
)


def _fill(connection: Connection) -> None:
    connection.execute(insert(counters).values(next_letter_id=1))


STORE = TableSet(
    name="store",
    metadata=metadata,
    versions=versions,
    version=1,
    upgrades={},
    fill=_fill,
    errors=DatabaseErrors(
        url=partial(ConfigError, code="store-url"),
        file_missing=partial(StoreError, code="store-file-missing"),
        not_reachable=partial(StoreError, code="store-not-reachable"),
        not_writable=partial(StoreError, code="store-not-writable"),
        locked=partial(StoreError, code="store-locked"),
        disk=partial(StoreError, code="store-disk"),
        damaged=partial(StoreError, code="store-damaged"),
        refuses=partial(StoreError, code="store-refuses"),
        closed=partial(StoreError, code="store-closed"),
        tables=partial(ConfigError, code="store-tables"),
    ),
    cure_missing="Name the store with --store, or fill it first with `redeliver dead collect`",
    cure_no_tables="Name the store with --store, or fill it first with `redeliver dead collect`",
    cure_older="Run `redeliver dead collect` of this redeliver-mw once: that upgrades them",
)
