# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps redirects: where letters are sent whose source has moved.

A redirect may lead to a source that is redirected itself. A chain of them never comes back to where it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from ..errors import ConfigError, StoreError
from ..message import Destination
from ..redaction import clean
from .audit import AuditEntry, add_audit, audit_refusals, log_audit
from .operation import now_us, person
from .store import Store
from .tables import counters, redirects

REDIRECT: Final = "redirect"


class Redirect(NamedTuple):
    """Says that what was consumed from `old` is sent to `new`; both as `queue:orders`."""

    old: str
    new: str
    who: str
    at_us: int


_REDIRECTS: Final = select(*(redirects.c[name] for name in Redirect._fields)).order_by(redirects.c.old)


def add_redirect(store: Store, old: str, new: str, *, who: str = "") -> Redirect:
    """Send letters whose source is `old` to `new` from now on; an earlier redirect of `old` is replaced.

    Raises ConfigError for names that are no queue and no subscription, and for a redirect that would lead back to
    `old`, and StoreError.
    """
    person_ = clean(who) or person()
    with audit_refusals(store, who=who, what=REDIRECT, filter_=f"{old} to {new}"):
        row = Redirect(_source(old, "OLD"), _source(new, "NEW"), person_, now_us())
        entry = AuditEntry(who=person_, what=REDIRECT, outcome="success", filter=f"{row.old} to {row.new}")
        with store.writing() as connection:
            _wait_for_others(connection)
            table = _table(connection) | {row.old: row.new}
            chain = [row.old]
            while (following := table.get(chain[-1])) is not None:
                chain.append(following)
                if following == row.old:
                    raise ConfigError(
                        f"this leads in a circle: {' to '.join(chain)}",
                        where="NEW",
                        cure="Name another target, or remove one of these redirects first",
                        code="redirect-circle",
                    )
            connection.execute(delete(redirects).where(redirects.c.old == row.old))
            connection.execute(insert(redirects).values(row._asdict()))
            add_audit(connection, entry)
    log_audit(entry)
    return row


def remove_redirect(store: Store, old: str, *, who: str = "") -> None:
    """Remove the redirect of a source. Raises ConfigError for a name that is no source, StoreError if there is none."""
    person_ = clean(who) or person()
    with audit_refusals(store, who=who, what="redirect-remove", filter_=old):
        name = _source(old, "OLD")
        entry = AuditEntry(who=person_, what="redirect-remove", outcome="success", filter=name)
        with store.writing() as connection:
            if not connection.execute(delete(redirects).where(redirects.c.old == name)).rowcount:
                raise StoreError(
                    f"{name} is not redirected",
                    where=store.where,
                    cure="Look at `redeliver dead redirect list`",
                    code="redirect-missing",
                )
            add_audit(connection, entry)
    log_audit(entry)


def all_redirects(store: Store) -> list[Redirect]:
    """Return all redirects, sorted by their old names. Raises StoreError."""
    with store.reading() as connection:
        return list(map(Redirect._make, connection.execute(_REDIRECTS)))


def redirected(source: str, table: Mapping[str, str]) -> str:
    """Return where a source's letters are sent: the end of its chain of redirects, or the source itself."""
    passed = {source}
    while (following := table.get(source)) is not None and following not in passed:
        passed.add(following)
        source = following
    return source


def redirect_table(store: Store) -> dict[str, str]:
    """Return the new source of each old one, for `redirected`. Raises StoreError."""
    with store.reading() as connection:
        return _table(connection)


def _table(connection: Connection) -> dict[str, str]:
    return {row.old: row.new for row in connection.execute(select(redirects.c.old, redirects.c.new))}


def _wait_for_others(connection: Connection) -> None:
    """Wait until nobody else writes redirects: two of them together could lead in a circle."""
    connection.execute(update(counters).values(next_letter_id=counters.c.next_letter_id))


def _source(text: str, where: str) -> str:
    found = Destination.parse(text)
    if found.kind == "topic" and not found.subscription:
        raise ConfigError(
            f"{found} names no subscription",
            where=where,
            cure="Write topic:NAME::SUBSCRIPTION, or the name of a queue",
            code="destination-kind",
        )
    return str(found)
