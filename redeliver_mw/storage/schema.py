# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines the tables of the limbo, and how a database gets them.

Tables that begin with `dms_` have the names and columns that Patch Bay documents for its own limbo, so that knowledge
of repairing that one applies here; texts have no width here. What these tables lack is in tables that begin with
`redeliver_limbo_`.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import BigInteger, Column, Connection, Double, Index, Integer, MetaData, SmallInteger, Table, Text

from ..errors import ConfigError, LimboError
from .table_set import BytesColumn, DatabaseErrors, TableSet

VERSION = 4


metadata = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite's own row id only with this type

# -- as documented ------------------------------------------------------------------------------------

# There is one line for each part of this limbo: a running program parks in a part of its own.
parts = Table(
    "dms_limbo",
    metadata,
    Column("limbo_name", Text, primary_key=True),
    Column("limbo_id", BigInteger, nullable=False, unique=True),
)

messages = Table(
    "dms_limbo_msg",
    metadata,
    Column("msg_id", _ID, primary_key=True, autoincrement=False),
    Column("limbo_id", BigInteger, nullable=False),
    Column("delivery_date", BigInteger, nullable=False),  # milliseconds since 1970; not before this time
    Column("delivery_count", SmallInteger, nullable=False),  # 1 at first, one more for each publish that failed
    Column("msg_src_name", Text, nullable=False),  # the app that parked the message
    Column("port_name", Text, nullable=False),  # the destination: `queue:orders`, `topic:prices::audit`
    Column("msg_class", Text, nullable=False),
    Column("msg_class_type", SmallInteger, nullable=False),
    Column("jms_type", Text),
    Column("jms_expiration", BigInteger),  # milliseconds since 1970
    Column("jms_correlationid", Text),
    # With the count in the index, messages that were given up are skipped without reading the table.
    Index("dms_limbo_msg_due", "limbo_id", "delivery_date", "delivery_count"),
)

bodies = Table(
    "dms_limbo_body",
    metadata,
    Column("msg_id", _ID, primary_key=True, autoincrement=False),
    Column("msg_body", BytesColumn),
)

reply_tos = Table(
    "dms_limbo_replyto",
    metadata,
    Column("msg_id", _ID, primary_key=True, autoincrement=False),
    Column("jms_replyto", BytesColumn),  # UTF-8
)

props = Table(
    "dms_limbo_props",
    metadata,
    Column("msg_id", BigInteger, primary_key=True, autoincrement=False),
    Column("prop_name", Text, primary_key=True),
    Column("prop_value", Text),
    sqlite_with_rowid=False,
)

ptypes = Table(
    "dms_limbo_ptypes",
    metadata,
    Column("msg_id", BigInteger, primary_key=True, autoincrement=False),
    Column("prop_name", Text, primary_key=True),
    Column("prop_type", SmallInteger, nullable=False),  # `rows.TYPES`
    sqlite_with_rowid=False,
)

# For retry copies only; a message that is merely sent later has no line here. This table is for human readers: the
# message that is sent is composed from the other tables.
delays = Table(
    "dms_limbo_delay",
    metadata,
    Column("msg_id", _ID, primary_key=True, autoincrement=False),
    Column("delay", BigInteger, nullable=False),  # milliseconds
    Column("max_attempts", SmallInteger, nullable=False),  # 0: the policy never gives up
    Column("failure_port", Text, nullable=False),  # the dead-letter target; empty: none
    Column("jms_timestamp", BigInteger),
    Column("jms_deliverymode", SmallInteger),
    Column("jms_priority", SmallInteger),
    Column("jms_messageid", Text),
    Column("jms_redelivered", SmallInteger),
    Column("jms_destination", Text),
)

# -- our own ------------------------------------------------------------------------------------------

versions = Table("redeliver_limbo_version", metadata, Column("version", Integer, nullable=False))

# The holder of a part. `token` increases with every new holder, `beat` with every sign of life of this holder. A part
# whose token and beat have not changed for `lease_s` seconds, on the watcher's own monotonic clock, belongs to a dead
# holder.
owners = Table(
    "redeliver_limbo_owner",
    metadata,
    Column("limbo_id", BigInteger, primary_key=True, autoincrement=False),
    Column("app", Text, nullable=False),
    Column("broker", Text, nullable=False),  # only an app with the same broker may publish messages of this part
    Column("holder", Text, nullable=False),  # host and process, for people; empty: released
    Column("token", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("beat_us", BigInteger, nullable=False),  # wall time of the last beat, for people
    Column("lease_s", Double, nullable=False),
    Column("retry", SmallInteger, nullable=False),  # a message is tried while its `delivery_count` is at most this
    Column("next_id", BigInteger, nullable=False),  # of the next message that is parked in this part
)

parked = Table(
    "redeliver_limbo_msg",
    metadata,
    Column("msg_id", _ID, primary_key=True, autoincrement=False),
    Column("copy_id", Text),
    Column("lineage", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("hop", Integer, nullable=False),
    Column("failures", Integer, nullable=False),  # F
    Column("source", Text, nullable=False),  # the source: `queue:orders`; empty: not known
    Column("reason", Text, nullable=False),  # of a dead letter; empty: a retry, or sent later
    Column("parked_us", BigInteger, nullable=False),
    Column("body_bytes", BigInteger, nullable=False),
    Column("publishes", Integer, nullable=False),  # failed publishes, in all; no repair resets this
    Column("last_error", Text),
    Column("marks", BytesColumn, nullable=False),  # JSON: our own headers, which are all texts
    Column("exact", BytesColumn, nullable=False),  # JSON of `header_values`: what the documented columns cannot hold
    Column("wire", BytesColumn),  # an adapter's own image of the original, if the adapter gave one
    Index("redeliver_limbo_msg_copy", "copy_id"),
)

# Knowledge about messages whose original is still at a broker. `run`: the program that handles the message, or handled
# it last; `mark`: how the message runs, as in `crash_safety.isolation`. A line without failures and mark is of no use
# and may be removed.
ledger = Table(
    "redeliver_limbo_ledger",
    metadata,
    Column("broker", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("message", Text, primary_key=True),  # key, generation and hop
    Column("run", Text, nullable=False),
    Column("mark", SmallInteger, nullable=False),
    Column("changed_us", BigInteger, nullable=False),  # the line with the oldest change is removed first
    Column("failures", Integer, nullable=False),  # F
    Column("done", SmallInteger, nullable=False),  # 1: only the settlement is missing
    Column("not_before_us", BigInteger),
    Column("first_failed_us", BigInteger),
    Column("last_failed_us", BigInteger),
    Column("last_error", Text),
    Column("digest", BytesColumn),
    Column("rest", BytesColumn),  # JSON of the rest of the ledger's entry: read by programs only
    sqlite_with_rowid=False,
)

# Messages without history that went to their handlers together: a line for each batch, which costs little. The line is
# removed when all of them have ended. A message's own line, if there is one, holds more.
batches = Table(
    "redeliver_limbo_batch",
    metadata,
    Column("run", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("broker", Text, nullable=False),
    Column("source", Text, nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("messages", Text, nullable=False),  # as in the ledger, separated by spaces
    sqlite_with_rowid=False,
)

# Programs that keep a ledger here. `beat` increases with every sign of life.
runs = Table(
    "redeliver_limbo_run",
    metadata,
    Column("run", Text, primary_key=True),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("born", Text, nullable=False),  # tells a process from a later one with the same number; empty: not known
    Column("beat", BigInteger, nullable=False),
    Column("beat_us", BigInteger, nullable=False),  # wall time, for people
)

# Messages that a handler has handled, or is handling: `idempotency`.
handled = Table(
    "redeliver_limbo_handled",
    metadata,
    Column("source", Text, primary_key=True),
    Column("message", Text, primary_key=True),  # its key
    Column("claim", Text, nullable=False),  # of the run that handles the message; empty: it was handled
    Column("expires_us", BigInteger, nullable=False),  # from this time on the line counts as missing
    Index("redeliver_limbo_handled_expires", "expires_us"),
    sqlite_with_rowid=False,
)

# Places of messages that are kept in order, by key. A line is written with the copy that is parked, and removed when
# the message was handled. A line without a copy keeps its key waiting for a minute and a half, once.
places = Table(
    "redeliver_limbo_place",
    metadata,
    Column("app", Text, primary_key=True),
    Column("broker", Text, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("order_key", Text, primary_key=True),  # a digest of the key
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # within a key the lower number comes first
    Column("message", Text, nullable=False),  # the message key under which the message comes again
    Column("kind", SmallInteger, nullable=False),  # `order_places.PlaceKind`
    Column("due_us", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

OF_A_MESSAGE = (bodies, reply_tos, props, ptypes, delays, parked, messages)


def _add_ledger(connection: Connection) -> None:
    metadata.create_all(connection, tables=[ledger, batches, runs])


def _add_handled(connection: Connection) -> None:
    metadata.create_all(connection, tables=[handled])


def _add_places(connection: Connection) -> None:
    metadata.create_all(connection, tables=[places])


LIMBO = TableSet(
    name="limbo",
    metadata=metadata,
    versions=versions,
    version=VERSION,
    upgrades={1: _add_ledger, 2: _add_handled, 3: _add_places},
    errors=DatabaseErrors(
        url=partial(ConfigError, code="limbo-url"),
        file_missing=partial(LimboError, code="limbo-file-missing"),
        not_reachable=partial(LimboError, code="limbo-not-reachable"),
        not_writable=partial(LimboError, code="limbo-not-writable"),
        locked=partial(LimboError, code="limbo-locked"),
        disk=partial(LimboError, code="limbo-disk"),
        damaged=partial(LimboError, code="limbo-damaged"),
        refuses=partial(LimboError, code="limbo-refuses"),
        closed=partial(LimboError, code="limbo-closed"),
        tables=partial(ConfigError, code="limbo-tables"),
    ),
    strangers=": Patch Bay's own",
    cure_missing="Name the file that the app has as limbo=",
    cure_no_tables="Name the URL that the app has as limbo=",
    cure_older="Start the app with this redeliver-mw once: that upgrades them",
)
