# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Controls running Apps through the store: operators write wishes, and each process of an App reports what it does.

A wish is about one source of an App. It holds until another one takes its place, also for processes that start later.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, and_, delete, insert, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ..errors import ConfigError
from ..message import Destination
from ..redaction import clean
from .audit import CONTROL, AuditEntry, add_audit, log_audit, write_audit
from .operation import is_gone, now_us, person
from .store import Store
from .tables import app_processes, controls

Subject = Literal["consumption", "breaker"]
PauseWish = Literal["pause", "resume"]
BreakerWish = Literal["open", "close", "auto"]
ProcessState = Literal["running", "stopped", "silent"]
BREAKER_WISHES: Final[tuple[BreakerWish, ...]] = ("open", "close", "auto")
SILENT_US: Final = 30_000_000  # after so long without a report a process is silent
KEPT_US: Final = 86_400_000_000  # for how long the row of a process that reports no more is kept
KNOWN: Final = 20  # names in an error


class ControlWish(NamedTuple):
    """Says what an operator wants of a source."""

    source: str
    subject: Subject
    wish: PauseWish | BreakerWish
    who: str
    at_us: int


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Says what a process does with a source. Empty texts: nothing is in the way; the source has no breaker.

    `forced`: an operator keeps the breaker in its state.
    """

    source: str
    consuming: bool
    why: str = ""
    breaker: str = ""
    forced: bool = False
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """Describes one process of an App, as it reported last. Times are microseconds since 1970, UTC."""

    process_id: str
    app: str
    host: str
    pid: int
    broker: str
    started_us: int
    seen_us: int
    state: ProcessState
    sources: Sequence[SourceReport]


@dataclass(frozen=True, slots=True)
class ControlResult:
    """Says what was asked for, of which sources, and how many running processes have these."""

    app: str
    subject: Subject
    wish: PauseWish | BreakerWish
    sources: Sequence[str]
    running: int


# -- operators --------------------------------------------------------------------------------------


def control_source(
    store: Store, app: str, wish: PauseWish, source: str | Destination, *, who: str = ""
) -> ControlResult:
    """Ask an App to pause a source, or to resume it.

    Raises ConfigError for an App or a source that has never reported, and StoreError.
    """
    return _ask(store, app, "consumption", wish, source, who)


def control_breaker(
    store: Store, app: str, wish: BreakerWish, source: str | Destination | None = None, *, who: str = ""
) -> ControlResult:
    """Ask an App to keep breakers open or closed, or to leave them to the results of the handlers again.

    `source`: None means all sources that have a breaker. Raises ConfigError for an App or a source that has never
    reported, or a source without a breaker, and StoreError.
    """
    return _ask(store, app, "breaker", wish, source, who)


def app_status(store: Store, app: str, *, at_us: int | None = None) -> list[ProcessReport]:
    """Return the processes of an App, the latest start first. Raises ConfigError for an unknown App, and StoreError."""
    with store.reading() as connection:
        found = _reports(connection, clean(app))
        if not found:
            raise _unknown_app(connection, store, app)
    now = now_us() if at_us is None else at_us
    return [_as_seen(one, now) for one in found]


def known_apps(store: Store) -> list[str]:
    """Return the names of the Apps that have reported. Raises StoreError."""
    with store.reading() as connection:
        return _apps(connection)


def last_wishes(store: Store, app: str) -> list[ControlWish]:
    """Return the wishes that hold for an App. Raises StoreError."""
    columns = controls.c
    asked = select(columns.source, columns.subject, columns.wish, columns.who, columns.at_us)
    with store.reading() as connection:
        return list(map(ControlWish._make, connection.execute(asked.where(columns.app == app))))


# -- the processes of an App ------------------------------------------------------------------------


def report_process(connection: Connection, report: ProcessReport) -> None:
    """Write what a process reports, within a transaction."""
    row = {**asdict(report), "sources": json.dumps([asdict(one) for one in report.sources])}
    mine = app_processes.c.process_id == report.process_id
    if not connection.execute(update(app_processes).where(mine).values(row)).rowcount:
        _forget_gone(connection, report)
        connection.execute(insert(app_processes).values(row))


def _forget_gone(connection: Connection, report: ProcessReport) -> None:
    """Delete the rows of processes of the same App that have stopped or died here, or have been silent for a day."""
    columns = app_processes.c
    beside = and_(columns.app == report.app, columns.host == report.host, columns.state == "running")
    asked = select(columns.process_id, columns.pid).where(beside)
    died = [one.process_id for one in connection.execute(asked) if is_gone(one.pid)]
    gone = or_(columns.state == "stopped", columns.seen_us < report.seen_us - KEPT_US, columns.process_id.in_(died))
    connection.execute(delete(app_processes).where(and_(columns.app == report.app, gone)))


# -- rows -------------------------------------------------------------------------------------------


def _ask(
    store: Store,
    app: str,
    subject: Subject,
    wish: PauseWish | BreakerWish,
    source: str | Destination | None,
    who: str,
) -> ControlResult:
    who, app = clean(who) or person(), clean(app)
    what = f"{CONTROL}{wish}" if subject == "consumption" else f"{CONTROL}breaker-{wish}"
    of = "" if source is None else f" source={source}"
    entry = AuditEntry(who=who, what=what, outcome="success", filter=f"app={app}{of}")
    try:
        named = None if source is None else clean(str(Destination.parse(source)))
        with store.writing() as connection:
            reports = _reports(connection, app)
            if not reports:
                raise _unknown_app(connection, store, app)
            sources = _sources(store, app, reports, named, breakers=subject == "breaker")
            at = now_us()
            wishes = [ControlWish(one, subject, wish, who, at) for one in sources]
            connection.execute(_upsert(connection), [{"app": app, **one._asdict()} for one in wishes])
            add_audit(connection, entry)
    except ConfigError as error:
        denied = AuditEntry(who=who, what=what, outcome="denied", filter=entry.filter, why=error.what)
        write_audit(store, denied)
        raise
    log_audit(entry)
    running = [one for one in reports if _as_seen(one, at).state == "running"]
    having = [one for one in running if any(report.source in sources for report in one.sources)]
    return ControlResult(app, subject, wish, sources, len(having))


def _upsert(connection: Connection) -> Any:
    insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(controls)
    keys = [column.name for column in controls.primary_key]
    others = {column.name: insert.excluded[column.name] for column in controls.columns if column.name not in keys}
    return insert.on_conflict_do_update(index_elements=keys, set_=others)


def _sources(
    store: Store, app: str, reports: Sequence[ProcessReport], named: str | None, *, breakers: bool
) -> list[str]:
    """Return the sources that are meant. Raises ConfigError if one is unknown, or has no breaker."""
    latest: dict[str, SourceReport] = {}
    for report in reversed(reports):
        latest |= {one.source: one for one in report.sources}
    if named is not None and named not in latest:
        raise ConfigError(
            f"{app} has no source {named}",
            where=store.where,
            cure=f"Name one of {_listed(sorted(latest))}",
            code="control-source",
        )
    wanted = sorted(latest) if named is None else [named]
    if not breakers:
        return wanted
    found = [one for one in wanted if latest[one].breaker]
    if not found:
        raise ConfigError(
            f"{named or 'no source'} of {app} has {'no' if named else 'a'} breaker",
            where=store.where,
            cure="Pause the source instead, or give the App a breaker: App(breaker=True)",
            code="control-no-breaker",
        )
    return found


def _unknown_app(connection: Connection, store: Store, app: str) -> ConfigError:
    apps = _apps(connection)
    known = f"Name one of {_listed(apps)}, or start" if apps else "Start"
    return ConfigError(
        f"no App of the name {app!r} has reported to this store",
        where=store.where,
        cure=f"{known} the App with App(operations=URL)",
        code="control-app",
    )


def _apps(connection: Connection) -> list[str]:
    apps = connection.execute(select(app_processes.c.app).distinct()).scalars()
    return sorted(str(app) for app in apps)


def _reports(connection: Connection, app: str) -> list[ProcessReport]:
    columns = app_processes.c
    asked = select(app_processes).where(columns.app == app).order_by(columns.started_us.desc(), columns.process_id)
    return [_report(dict(row)) for row in connection.execute(asked).mappings()]


def _report(row: dict[str, Any]) -> ProcessReport:
    return ProcessReport(**{**row, "sources": [SourceReport(**one) for one in json.loads(row["sources"])]})


def _as_seen(report: ProcessReport, now: int) -> ProcessReport:
    """Return the report as `silent` if it is too old."""
    if report.state != "running" or now - report.seen_us <= SILENT_US:
        return report
    return replace(report, state="silent")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - KNOWN} more" if len(names) > KNOWN else ""
    return ", ".join(names[:KNOWN]) + more
