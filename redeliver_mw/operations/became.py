# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps what became of the messages that a replay has sent: recovered, failed again, in flight, or unknown.

A message that a replay sends carries the replay's id, which is the id of its operation, and a lineage, which its retry
copies and dead letters have, too. `collect` stores a dead letter with both: the message has *failed again*. An App that
is linked to the store writes that a message has *recovered*. Until one of them is known the message is *in flight*, and
after the time that its policy may take, *unknown*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, func, literal, or_, select, update

from .operation import find_operation, now_us
from .store import Store
from .tables import letters, operation_letters

Became = Literal["recovered", "failed again"]
Fate = Literal["recovered", "failed again", "in flight", "unknown", ""]
RECOVERED: Final[Became] = "recovered"
FAILED_AGAIN: Final[Became] = "failed again"
SETTLES_WITHIN: Final = 86_400.0  # seconds, unless the operation says otherwise
LINEAGE_CHARS: Final = 64  # every reader of our headers uses so many characters
_CHUNK: Final = 500


class KnownEnd(NamedTuple):
    """Says what became of one message that a replay has sent, and when this was seen, in microseconds since 1970."""

    replay_id: str
    lineage: str
    became: Became
    at_us: int


@dataclass(frozen=True, slots=True)
class BecameCounts:
    """Counts the messages that a replay has sent by what became of them."""

    recovered: int = 0
    failed_again: int = 0
    in_flight: int = 0
    unknown: int = 0

    @property
    def sent(self) -> int:
        """Return the number of messages that were sent, as far as the broker has confirmed them."""
        return self.recovered + self.failed_again + self.in_flight + self.unknown


class ReplayedLetter(NamedTuple):
    """Describes one letter of a replay.

    `outcome` is that of the operation (None: none so far); `became` is empty for a letter that was not sent.
    """

    position: int
    letter_id: int
    dl_id: str
    source: str | None
    outcome: str | None
    why: str
    became: Fate
    became_us: int | None


def mark_recovered(connection: Connection, replay_id: str, lineage: str, at_us: int) -> None:
    """Note that a handler has handled a message that a replay sent. Other replays' ids are ignored."""
    mark(connection, [KnownEnd(replay_id, lineage, RECOVERED, at_us)])


def mark_failed_again(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Note which of these rows of new letters are of messages that a replay sent. Costs nothing if none is."""
    back = [row for row in rows if row["replay_id"] and row["message_key"]]
    if back:
        at = now_us()
        mark(connection, [KnownEnd(row["replay_id"], row["message_key"], FAILED_AGAIN, at) for row in back])


def mark(connection: Connection, ends: Iterable[KnownEnd]) -> None:
    """Write what became of messages. A message that has failed again is not said to have recovered later.

    A replay delivers at least once, so the same message may be handled once and dead-lettered once. Rows are changed in
    the order of their keys, as by every other writer, so that two transactions never wait for each other.
    """
    of: defaultdict[str, dict[str, KnownEnd]] = defaultdict(dict)
    for end in ends:
        lineage = end.lineage[:LINEAGE_CHARS]
        before = of[end.replay_id].get(lineage)
        if before is None or before.became != FAILED_AGAIN:
            of[end.replay_id][lineage] = end
    for replay_id in sorted(of):
        _mark_replay(connection, replay_id, of[replay_id])


def _mark_replay(connection: Connection, replay_id: str, ends: Mapping[str, KnownEnd]) -> None:
    columns = operation_letters.c
    found: list[dict[str, Any]] = []
    lineages = sorted(ends)
    for at in range(0, len(lineages), _CHUNK):
        asked = select(columns.position, columns.lineage, columns.became).where(
            columns.operation_id == replay_id,
            columns.lineage.in_(bindparam("lineages", lineages[at : at + _CHUNK], expanding=True)),
        )
        for position, lineage, before in connection.execute(asked):
            end = ends[lineage]
            if before is None or (before != FAILED_AGAIN and end.became == FAILED_AGAIN):
                found.append({"at": position, "word": end.became, "us": end.at_us})
    if found:
        connection.execute(
            update(operation_letters)
            .where(
                columns.operation_id == replay_id,
                columns.position == bindparam("at"),
                or_(columns.became.is_(None), columns.became != FAILED_AGAIN),
            )
            .values(became=bindparam("word"), became_us=bindparam("us")),
            sorted(found, key=lambda row: int(row["at"])),
        )


# -- questions --------------------------------------------------------------------------------------


def became_of(store: Store, operation_id: str, *, at_us: int | None = None) -> BecameCounts:
    """Return how many messages of a replay have become what. Raises StoreError if there is no such operation.

    `at_us`: as of this time, in microseconds since 1970; None: now.
    """
    operation = find_operation(store, operation_id)
    word = _fate(operation.options, now_us() if at_us is None else at_us).label("word")
    columns = operation_letters.c
    asked = (
        select(word, func.count().label("number")).where(columns.operation_id == operation.operation_id).group_by(word)
    )
    with store.reading() as connection:
        found = {row.word: row.number for row in connection.execute(asked)}
    return BecameCounts(
        found.get(RECOVERED, 0), found.get(FAILED_AGAIN, 0), found.get("in flight", 0), found.get("unknown", 0)
    )


def replayed_letters(
    store: Store, operation_id: str, *, limit: int = 100, after: int = 0, only: Fate | None = None
) -> list[ReplayedLetter]:
    """Return letters of a replay in their order, after a position, with what became of each. Raises StoreError.

    `only`: those of which this became.
    """
    operation = find_operation(store, operation_id)
    columns = operation_letters.c
    word = _fate(operation.options, now_us())
    asked = (
        select(
            columns.position,
            columns.letter_id,
            func.coalesce(letters.c.dl_id, ""),
            letters.c.source,
            columns.outcome,
            func.coalesce(columns.why, ""),
            word,
            columns.became_us,
        )
        .select_from(operation_letters.outerjoin(letters, letters.c.letter_id == columns.letter_id))
        .where(columns.operation_id == operation.operation_id, columns.position > after)
        .order_by(columns.position)
        .limit(limit)
    )
    if only is not None:
        asked = asked.where(word == only)
    with store.reading() as connection:
        return list(map(ReplayedLetter._make, connection.execute(asked)))


def known_ends(connection: Connection, operation_id: str) -> BecameCounts:
    """Return how many messages of a replay have recovered or failed again, as far as it is known."""
    columns = operation_letters.c
    asked = select(columns.became, func.count().label("number")).where(
        columns.operation_id == operation_id, columns.became.is_not(None)
    )
    found = {row.became: row.number for row in connection.execute(asked.group_by(columns.became))}
    return BecameCounts(found.get(RECOVERED, 0), found.get(FAILED_AGAIN, 0))


def ends_of(connection: Connection, operation_id: str, positions: Sequence[int]) -> BecameCounts:
    """Return the counts of these letters of a replay; those without a known end count as in flight."""
    columns = operation_letters.c
    recovered = again = 0
    for at in range(0, len(positions), _CHUNK):
        some: Any = bindparam("positions", list(positions[at : at + _CHUNK]), expanding=True)
        asked = select(columns.became, func.count().label("number")).where(
            columns.operation_id == operation_id, columns.position.in_(some), columns.became.is_not(None)
        )
        for row in connection.execute(asked.group_by(columns.became)):
            recovered += row.number * (row.became == RECOVERED)
            again += row.number * (row.became == FAILED_AGAIN)
    return BecameCounts(recovered, again, len(positions) - recovered - again)


def settles_within(options: Mapping[str, Any]) -> float:
    """Return the seconds after which the end of a message that is not known is not going to be known."""
    given = options.get("settles_within_s")
    return float(given) if isinstance(given, int | float) and given > 0 else SETTLES_WITHIN


def _fate(options: Mapping[str, Any], at_us: int) -> Any:
    columns = operation_letters.c
    sent = or_(columns.outcome == "done", columns.outcome == "in doubt")
    late = columns.changed_us < at_us - round(settles_within(options) * 1e6)
    return case(
        (columns.became.is_not(None), columns.became),
        (and_(sent, late), literal("unknown")),
        (sent, literal("in flight")),
        else_=literal(""),
    )
