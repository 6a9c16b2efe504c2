# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Plans a replay from the store: freezes its letters, and says where each of them will go and which stay.

A letter goes to its source, or where the source's redirect leads, or to the one destination that the plan names.
Redirects are looked up when the replay runs, so that one that is added later has its effect on a plan that waits.
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, and_, func, or_, select, update

from ..dead_letters.edits.letter import Value, checked_target
from ..dead_letters.letter import NO_LETTER
from ..dead_letters.packed import Edits
from ..dead_letters.sending.limits import STOP_AT, ShareOrCount, Size, canary_of, check_rate, check_wait, share_of
from ..errors import ConfigError, StoreError
from ..message import Destination
from ..redaction import redact
from .became import SETTLES_WITHIN
from .operation import Operation, find_operation, has_died, plan_operation, read_operation
from .selection import LetterState, Selection
from .store import Store
from .tables import letters, operation_letters, operations, redirects

KIND: Final = "replay"
BATCH: Final = 500
WAIT: Final = 60.0
_MOST_AT_ONCE: Final = 10_000
_REPLAYABLE: Final[tuple[LetterState, ...]] = ("waiting", "replayed", "archived")
VERY_QUEUE: Final = "it lay in this very queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreReplayOptions:
    """Holds how a replay from the store is to be run. Raises ConfigError for what cannot be meant.

    - `rate`: messages per second (None: no limit).
    - `canary`: a number of letters, or a share as text, `1%`, that goes first; its end is awaited for `wait` seconds.
    - `stop_at`: the replay stops when a larger share of what it has sent has failed again.
    - `batch`: at most so many letters are in doubt when the process dies.
    - `settles_within`: seconds after which a message whose end is not known counts as *unknown*; it should be the
      longest total time of the policy.
    - `transform`: the name of the function that changes letters; the function itself is given to `run_replay`.
    - `other_broker`: also letters that were collected from another broker of the same kind, as after a move.
    """

    rate: float | None = None
    canary: Size | None = None
    stop_at: ShareOrCount = STOP_AT
    wait: float = WAIT
    batch: int = BATCH
    settles_within: float = SETTLES_WITHIN
    transform: str = ""
    other_broker: bool = False

    def __post_init__(self) -> None:
        check_rate(self.rate)
        check_wait(self.wait)
        self.canary_of(1)
        _ = self.share
        if not 0 < self.settles_within < math.inf:
            raise ConfigError(
                f"{self.settles_within} is no time to wait",
                where="settles_within",
                cure="Give seconds, above 0",
                code="option-value",
            )
        if not 1 <= self.batch <= _MOST_AT_ONCE:
            raise ConfigError(
                f"{self.batch} letters are no batch",
                where="batch",
                cure=f"Give a number from 1 to {_MOST_AT_ONCE}",
                code="option-value",
            )

    @property
    def share(self) -> float:
        """Return `stop_at` as a number from 0 to 1."""
        return share_of(self.stop_at)

    def canary_of(self, number: int) -> int | None:
        """Return how many of so many letters are the canary; None without one."""
        return canary_of(self.canary, number)

    def as_json(self) -> dict[str, Any]:
        """Return the options as they are kept with an operation."""
        given = asdict(self)
        return {**given, "settles_within_s": given.pop("settles_within"), "wait_s": given.pop("wait")}

    @classmethod
    def of(cls, operation: Operation) -> StoreReplayOptions:
        """Return the options that an operation was planned with."""
        kept = operation.options
        names = ("rate", "canary", "stop_at", "batch", "transform", "other_broker")
        known = {name: kept[name] for name in names if name in kept}
        times = {"settles_within": kept.get("settles_within_s", SETTLES_WITHIN), "wait": kept.get("wait_s", WAIT)}
        return cls(**known, **times)


@dataclass(frozen=True, slots=True)
class LetterEdit:
    """Holds what a person has changed in one letter, whose contents had this digest when the person saw them.

    `body` is None if it is unchanged; `headers` are to be set, and those with None to be removed.
    """

    dl_id: str
    digest: str
    body: bytes | None = None
    headers: Mapping[str, Value] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the edit as it is kept with an operation until it was sent."""
        body = None if self.body is None else b64encode(self.body).decode()
        return {"dl_id": self.dl_id, "digest": self.digest, "body": body, "headers": dict(self.headers)}

    @classmethod
    def of(cls, operation: Operation) -> LetterEdit | None:
        """Return the edit of an operation; None if it has none."""
        kept = operation.options.get("edit")
        if kept is None:
            return None
        body = None if kept["body"] is None else b64decode(kept["body"])
        return cls(kept["dl_id"], kept["digest"], body, kept["headers"])

    @property
    def edits(self) -> Edits:
        """Return the changes as a copy takes them."""
        return Edits(self.body, self.headers)


def plan_replay(
    store: Store,
    selection: Selection,
    *,
    to: str | None = None,
    options: StoreReplayOptions | None = None,
    edit: LetterEdit | None = None,
    most: int | None = None,
    who: str = "",
) -> Operation:
    """Freeze the letters that a selection means now, the oldest first, as a replay that is planned and not run.

    `to`: all of them go there, and not to their sources. `edit`: the changes to the only letter of the selection.
    Raises ConfigError for letters that cannot be replayed at all, for an edit of a letter that has changed since, for a
    filter that does not parse or a target that cannot be meant; and StoreError.
    """
    if selection.state is not None and selection.state not in _REPLAYABLE:
        raise ConfigError(
            f"letters that are {selection.state} cannot be replayed",
            where="state",
            cure="Restore them first" if selection.state == "discarded" else "Resume the replay that has them",
            code="option-value",
        )
    kept = {
        **(options or StoreReplayOptions()).as_json(),
        "to": None if to is None else _target(to),
        "states": list(_REPLAYABLE if selection.state is None else (selection.state,)),
    }
    if edit is not None:
        kept["edit"] = edit.as_json()
    with store.writing() as connection:
        release_cancelled(connection)
        if edit is not None:
            check_digest(connection, store, edit)
    operation = plan_operation(store, KIND, selection, options=kept, who=who, most=most)
    if edit is not None and operation.total != 1:
        raise changed(store, edit.dl_id, "it does not wait any more")
    return operation


def check_digest(connection: Connection, store: Store, edit: LetterEdit) -> None:
    """Raise StoreError if the letter of an edit is no longer as its editor saw it."""
    found = connection.execute(
        select(letters.c.digest).where(letters.c.base_id == edit.dl_id.partition("~")[0], letters.c.dl_id == edit.dl_id)
    ).scalar_one_or_none()
    if found != edit.digest:
        raise changed(store, edit.dl_id, "it is not there any more" if found is None else "its contents are others now")


def changed(store: Store, dl_id: str, why: str) -> StoreError:
    """Return the error for an edit of a letter that somebody else has changed or taken meanwhile."""
    return StoreError(
        f"letter {dl_id} has changed since it was opened: {why}; nothing was sent",
        where=store.where,
        cure="Look at it again, and edit what is there now",
        code="letter-changed",
    )


def release(connection: Connection, operation_id: str) -> int:
    """Give letters that a cancelled replay has left in doubt back, so that others can have them; return how many.

    Their outcome stays *in doubt*: the broker may have them. Called when no process runs the replay any more.
    """
    columns = operation_letters.c
    mine = and_(columns.operation_id == operation_id, columns.lineage.is_not(None))
    held = select(columns.letter_id).where(mine, or_(columns.outcome.is_(None), columns.outcome == "in doubt"))
    freed = connection.execute(
        update(letters).where(letters.c.state == "replaying", letters.c.letter_id.in_(held)).values(state="waiting")
    ).rowcount
    connection.execute(
        update(operation_letters)
        .where(mine, columns.outcome.is_(None))
        .values(outcome="in doubt", why="its replay was cancelled before the broker's answer")
    )
    return freed


def release_cancelled(connection: Connection) -> None:
    """Release what cancelled replays hold whose processes have died before they could do it themselves."""
    columns = operation_letters.c
    over = select(operations.c.operation_id).where(operations.c.kind == KIND, operations.c.state == "cancelled")
    asked = (
        select(columns.operation_id)
        .join(letters, letters.c.letter_id == columns.letter_id)
        .where(columns.operation_id.in_(over), columns.lineage.is_not(None), letters.c.state == "replaying")
        .where(or_(columns.outcome.is_(None), columns.outcome == "in doubt"))
        .distinct()
    )
    for operation_id in connection.execute(asked).scalars().all():
        if has_died(read_operation(connection, operation_id)):
            release(connection, operation_id)


def _target(to: str) -> str:
    try:
        return checked_target(to)
    except ValueError as error:
        raise ConfigError(
            str(error), where="--to", cure="Name a queue, or topic:NAME::SUBSCRIPTION", code="destination-kind"
        ) from None


# -- where letters go -------------------------------------------------------------------------------


class Routes:
    """Says where letters go: to one destination, or to their sources and where the redirects of these lead."""

    def __init__(self, redirected: Mapping[str, str], to: Destination | None = None) -> None:
        self._redirected, self._to = redirected, to

    @classmethod
    def of(cls, connection: Connection, operation: Operation) -> Routes:
        """Return the routes of an operation, as the redirects are now."""
        to = operation.options.get("to")
        rows = connection.execute(select(redirects.c.old, redirects.c.new))
        found = {_name(old): _name(new) for old, new in rows}
        return cls(found, None if to is None else Destination.parse(to))

    def target(self, source: str | None, queue: str, problem: str) -> tuple[Destination | None, str]:
        """Return where a letter goes; or None, and why it stays."""
        if self._to is not None:
            found = self._to
        elif problem or source is None:
            return None, problem or NO_LETTER
        else:
            try:
                found = Destination.parse(self._follow(source))
            except ConfigError as error:
                return None, error.what
            if found.kind == "topic" and not found.subscription:
                return None, f"{found} names no subscription: all of them would get it again"
        if str(found) == _name(queue):
            return None, VERY_QUEUE
        return found, ""

    def is_redirected(self, source: str | None) -> bool:
        """Return whether a redirect says where letters of this source go."""
        return self._to is None and source is not None and self._follow(source) != source

    def _follow(self, source: str) -> str:
        name, seen = source, {source}
        while (after := self._redirected.get(name)) is not None and after not in seen:
            name = after
            seen.add(name)
        return name


def _name(text: str) -> str:
    try:
        return str(Destination.parse(text))
    except ConfigError:
        return text


# -- the preview ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReplayRoute:
    """Counts letters that go from one source to one target. `redirected`: the source has a redirect."""

    source: str | None
    target: str
    letters: int
    redirected: bool


@dataclass(frozen=True, slots=True)
class LetterProblem:
    """Counts letters that have one problem in common."""

    why: str
    letters: int


@dataclass(frozen=True, slots=True)
class ReplayPreview:
    """Says what a run of a replay would do now. Texts are other programs', and not redacted.

    `letters` have no outcome so far; of these the `routes` say where they go, and `stay` why others do not. `in_doubt`
    of them were sent by this replay already, without an answer, and are sent again as the same copies.
    `doubtful_elsewhere` have been sent by another replay, without an answer: sent again, they may arrive twice.
    """

    operation: Operation
    letters: int
    routes: tuple[ReplayRoute, ...]
    stay: tuple[LetterProblem, ...]
    brokers: tuple[str, ...]
    in_doubt: int
    doubtful_elsewhere: int

    @property
    def going(self) -> int:
        """Return the number of letters that would be sent."""
        return sum(route.letters for route in self.routes)


def preview_of(store: Store, operation_id: str) -> ReplayPreview:
    """Return what a run of a replay would do now. Raises StoreError if there is no such replay."""
    operation = find_replay(store, operation_id)
    mine, their = operation_letters.c, letters.c
    pending = and_(mine.operation_id == operation.operation_id, or_(mine.outcome.is_(None), mine.outcome == "in doubt"))
    states = operation.options.get("states", ["waiting"])
    joined = operation_letters.join(letters, their.letter_id == mine.letter_id)
    doubt = and_(mine.lineage.is_not(None), their.state == "replaying")
    keys = (their.source, their.queue, their.problem, their.broker, their.state, doubt.label("doubt"))
    counted = select(*keys, func.count().label("number")).select_from(joined).where(pending).group_by(*keys)
    with store.reading() as connection:
        routes = Routes.of(connection, operation)
        rows = connection.execute(counted).all()
        elsewhere = _doubtful_elsewhere(connection, operation.operation_id, joined, pending)
    going: Counter[tuple[str | None, str]] = Counter()
    stay: Counter[str] = Counter()
    brokers: Counter[str] = Counter()
    in_doubt = 0
    for row in rows:
        target, why = routes.target(row.source, row.queue, row.problem)
        if not row.doubt and row.state not in states:
            stay[f"it is {row.state}"] += row.number
        elif target is None:
            stay[why] += row.number
        else:
            going[row.source, target.short] += row.number
            brokers[row.broker] += row.number
            in_doubt += row.number * bool(row.doubt)
    return ReplayPreview(
        operation,
        sum(row.number for row in rows),
        tuple(
            ReplayRoute(source, target, number, routes.is_redirected(source))
            for (source, target), number in going.most_common()
        ),
        tuple(LetterProblem(why, number) for why, number in stay.most_common()),
        tuple(sorted(brokers)),
        in_doubt,
        elsewhere,
    )


def find_replay(store: Store, operation_id: str) -> Operation:
    """Return a replay whose id equals this one, or begins with it. Raises ConfigError, StoreError."""
    operation = find_operation(store, operation_id)
    if operation.kind != KIND:
        raise ConfigError(
            f"operation {operation.operation_id} is no replay: {redact(operation.kind)}",
            where=store.where,
            cure="Take the id of a replay from `redeliver dead operations`",
            code="operation-kind",
        )
    return operation


def set_options(connection: Connection, operation: Operation, **values: Any) -> None:
    """Change options of an operation; None removes one."""
    of_it = operations.c.operation_id == operation.operation_id
    kept = json.loads(connection.execute(select(operations.c.options).where(of_it)).scalar_one())
    kept |= values
    left = {name: value for name, value in kept.items() if not (name in values and value is None)}
    connection.execute(update(operations).where(of_it).values(options=json.dumps(left)))


def _doubtful_elsewhere(connection: Connection, operation_id: str, joined: Any, pending: Any) -> int:
    """Return how many of the letters were sent by another replay without an answer."""
    other = operation_letters.alias()
    sent = (
        select(other.c.letter_id)
        .where(
            other.c.letter_id == letters.c.letter_id,
            other.c.operation_id != operation_id,
            other.c.outcome == "in doubt",
        )
        .exists()
    )
    asked = select(func.count()).select_from(joined).where(pending, sent)
    return int(connection.execute(asked).scalar_one())
