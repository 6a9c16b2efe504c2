# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Defines what requests and answers hold, and makes answers of what the store returns. Pure.

Texts of other programs are redacted here. Times are seconds since 1970 with their fraction, since a dead letter's time
comes from other programs and may lie outside of every calendar. The annotations are the source of the OpenAPI document.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, Literal

from ..dead_letters.shown import body_of, headers_shown, history_as_json
from ..operations import Group, Operation, Page, Selection, ShownLetter, StoredLetter
from ..operations.audit import AuditEntry, AuditOutcome
from ..operations.became import BecameCounts, Fate, ReplayedLetter
from ..operations.control import ControlResult, ControlWish, ProcessReport, Subject
from ..operations.filters.parser import parse_since
from ..operations.import_ import Imported
from ..operations.notes import Note
from ..operations.operation import OperationState, now_us
from ..operations.redirects import Redirect
from ..operations.replay_plan import ReplayPreview
from ..operations.selection import GroupKey, LetterState
from ..operations.tokens import ApiToken, Role
from ..redaction import MARK, redact
from ..redelivery.copies import HISTORY
from ..redelivery.headers import PREFIX, read_history
from .permissions import ALLOWED
from .problems import ApiError
from .shapes import Limits

MOST_LETTERS: Final = 1000  # of a page
SHOWN_BYTES: Final = 1024 * 1024  # of a body; the whole of it has a route of its own
ANY_GROUP: Final = "none"

Id = Annotated[str, Limits(least=1, most=200)]
Name = Annotated[str, Limits(least=1, most=2000)]
Where = Annotated[str, Limits(about="A filter in the language of --where")]
Seconds = Annotated[float, Limits(about="Seconds since 1970, UTC")]
Count = Annotated[int, Limits(least=0)]


# -- requests ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class NoParameters:
    """Has no parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Means the dead letters for which every condition that is given holds; without any, those that wait."""

    state: Annotated[
        Literal["waiting", "replaying", "replayed", "archived", "discarded", "any"], Limits(about="Their state")
    ] = "waiting"
    queue: Annotated[Name | None, Limits(about="The dead-letter queue that they lay in")] = None
    where: Where = ""
    since: Annotated[
        str | None,
        Limits(about="Died so long ago or later, as in 2h, or at this time or later, as in 2026-11-25", most=100),
    ] = None
    group_by: Annotated[GroupKey | None, Limits(about="What the group is made by; with `group`")] = None
    group: Annotated[Name | None, Limits(about="The key of a group; left out: letters without a key")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParameters(LetterFilter):
    """Asks for one page of dead letters."""

    sort: Annotated[
        str, Limits(about="died, collected, failures, bytes or source; a - before it: the greatest first", most=100)
    ] = "-died"
    limit: Annotated[int, Limits(about="Letters of the page", least=1, most=MOST_LETTERS)] = 100
    cursor: Annotated[str | None, Limits(about="`next_cursor` of the page before", most=200)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupParameters(LetterFilter):
    """Asks for groups of dead letters, the largest first."""

    by: Annotated[GroupKey, Limits(about="What the letters of a group have in common")] = "fingerprint"
    limit: Annotated[int, Limits(about="At most so many groups", least=1, most=MOST_LETTERS)] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterParameters:
    """Asks for one dead letter."""

    decoder: Annotated[str | None, Limits(about="The name of a decoder of the server", least=1, most=100)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsParameters:
    """Asks for the last operations, the newest first."""

    kind: Annotated[str | None, Limits(about="Of this kind only", least=1, most=100)] = None
    limit: Annotated[int, Limits(about="At most so many", least=1, most=MOST_LETTERS)] = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLettersParameters:
    """Asks for letters of an operation, in their order."""

    limit: Annotated[int, Limits(about="At most so many", least=1, most=MOST_LETTERS)] = 100
    after: Annotated[int, Limits(about="After this position", least=0, most=2**31 - 1)] = 0
    became: Annotated[
        Literal["recovered", "failed again", "in flight", "unknown"] | None, Limits(about="Of which this became")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditParameters:
    """Asks for the last entries of the audit, the newest first."""

    limit: Annotated[int, Limits(about="At most so many", least=1, most=MOST_LETTERS)] = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChosen:
    """Means the dead letters of one group; `value` null: those without a key."""

    by: GroupKey
    value: Annotated[str | None, Limits(most=2000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersChosen:
    """Means the dead letters for which every condition that is given holds.

    Without a state these are letters that wait; for a restore and an expire, letters in the states that it can be done
    with. An empty list of ids is refused: whoever has chosen nothing does not mean all.
    """

    state: Literal["waiting", "replaying", "replayed", "archived", "discarded", "any"] | None = None
    queue: Name | None = None
    ids: Annotated[Sequence[Id] | None, Limits(about="Ids of dead letters, whole", least=1, most=1000)] = None
    group: GroupChosen | None = None
    where: Where = ""
    since: Annotated[
        str | None, Limits(about="Died so long ago or later, as in 2h, or at this time or later", most=100)
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EditWished:
    """Changes one letter before it is sent. `digest` is that of the letter that was read: another one is refused.

    The body is a text, or bytes in base64; without both it stays. Headers that are null are removed.
    """

    id: Id
    digest: Annotated[str, Limits(least=1, most=200)]
    body: Annotated[str | None, Limits(most=2**30)] = None
    body_base64: Annotated[str | None, Limits(most=2**30)] = None
    headers: Annotated[Mapping[str, str | None], Limits(most=1000)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWished:
    """Says how a replay is to be run. `transform` is the name of one of the server's.

    `canary` and `stop_at` are numbers or shares, as `5` and `20%`.
    """

    to: Name | None = None
    rate: Annotated[float | None, Limits(about="Messages a second", least=0, most=10**9)] = None
    canary: Annotated[str | None, Limits(most=20)] = None
    stop_at: Annotated[str, Limits(most=20)] = "20%"
    wait_s: Annotated[float, Limits(about="How long the canary is waited for", least=0, most=10**6)] = 60.0
    settles_within_s: Annotated[
        float, Limits(about="After this time a message whose end is not known counts as unknown", least=0, most=10**9)
    ] = 86_400.0
    transform: Annotated[str | None, Limits(least=1, most=100)] = None
    other_broker: Annotated[bool, Limits(about="Also letters that were collected at another address")] = False
    edit: EditWished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireWished:
    """Says which letters are removed: those that came into their state so long ago, or only their bodies."""

    older_than_s: Annotated[float, Limits(least=1, most=10**10)]
    only_bodies: bool = False
    waiting: Annotated[bool, Limits(about="Confirms that letters that wait are meant; their state is named")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationPlanned:
    """Freezes dead letters for an operation. If they are not as many as expected, nothing is planned."""

    kind: Literal["replay", "archive", "restore", "discard", "expire"]
    selection: LettersChosen
    most: Annotated[int | None, Limits(about="Of a replay: at most so many, the oldest", least=1, most=10**9)] = None
    expected: Annotated[int | None, Limits(about="How many letters they have to be", least=0, most=10**9)] = None
    replay: ReplayWished | None = None
    expire: ExpireWished | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectWished:
    """Moves dead letters from their queues into the store. Needs the name of a broker if the server has several.

    Without `follow` these are the letters that the queues hold now; with it, also those that come later.
    """

    queues: Annotated[Sequence[Name], Limits(about="Names of dead-letter queues", least=1, most=100)]
    broker: Annotated[str | None, Limits(about="The name of a broker of the server", least=1, most=100)] = None
    limit: Annotated[int | None, Limits(about="At most so many letters in all", least=1, most=10**9)] = None
    follow: Annotated[bool, Limits(about="Go on until it is paused or cancelled; without a limit")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunWished:
    """Runs an operation, or goes on with one.

    A replay, and a collect that was begun elsewhere, need the name of a broker if the server has several.
    """

    broker: Annotated[str | None, Limits(least=1, most=100)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteWritten:
    """Writes a note on one letter or on one group."""

    text: Annotated[str, Limits(least=1)]
    letter: Id | None = None
    group: GroupChosen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotesParameters:
    """Asks for the notes on a letter and on the groups that it belongs to."""

    letter: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectWished:
    """Sends letters whose source is `old` to `new`."""

    old: Name
    new: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectNamed:
    """Names a redirect by its old source."""

    old: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNamed:
    """Names a source of an App."""

    source: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerWished:
    """Says what to do with breakers of an App; without a source, with all that it has."""

    wish: Literal["open", "close", "auto"]
    source: Name | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """Is an empty JSON object."""


# -- answers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Describes the token of the request."""

    name: str
    role: Role
    permissions: Sequence[str]
    expires_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterListed:
    """Describes a dead letter without its headers and its body. Secrets in texts are hidden."""

    id: str
    state: LetterState
    broker: str
    queue: str
    source: Annotated[str | None, Limits(about="The queue or subscription that it was consumed from")]
    problem: Annotated[str | None, Limits(about="Why it cannot be sent back")]
    reason: str | None
    failures: int
    error_type: str | None
    error_message: str | None
    fingerprint: str | None
    app: str | None
    died_s: Seconds
    collected_s: Seconds
    changed_s: Seconds
    message_key: str | None
    message_id: str | None
    content_type: str | None
    generation: int
    replay_id: str | None
    bytes: Annotated[int, Limits(about="The length of the body")]
    digest: Annotated[str, Limits(about="Tells whether the letter is still as somebody has seen it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """Holds dead letters, and where the next page begins; null on the last page."""

    letters: Sequence[LetterListed]
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListed:
    """Sums up dead letters that have `key` in common; null: they have none."""

    key: str | None
    letters: int
    first_s: Seconds
    last_s: Seconds
    error_type: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupList:
    """Holds groups of dead letters, the largest first."""

    by: GroupKey
    groups: Sequence[GroupListed]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Holds the number of dead letters in each state."""

    waiting: Count
    replaying: Count
    replayed: Count
    archived: Count
    discarded: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptListed:
    """Describes one failed attempt."""

    at_s: Seconds
    fingerprint: str
    host: str
    delay_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterInFull(LetterListed):
    """Describes a dead letter with its headers, its last attempts and its body.

    A role without the permission letters:read gets no body, and of other programs' headers only the names.
    """

    headers: Mapping[str, Any]
    history: Sequence[AttemptListed]
    body: Annotated[
        str | None,
        Limits(about="Its beginning, with secrets hidden; null without the permission, or if it was removed"),
    ]
    body_encoding: Literal["utf-8", "hex"] | None
    body_cut: Annotated[bool, Limits(about="There is more of it")]
    body_removed: Annotated[bool, Limits(about="The letter is kept without its body")]
    decoded: Annotated[Any, Limits(about="What the decoder returned, as JSON")]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationListed:
    """Describes an operation. `total` letters were frozen when it was planned, or found when a collect began."""

    id: str
    kind: str
    who: str
    began_s: Seconds
    ended_s: float | None
    state: OperationState
    filter: str
    options: Mapping[str, Any]
    total: Count
    done: Count
    failed: Count
    skipped: Count
    why: str
    host: str
    runs_here: Annotated[bool, Limits(about="This server runs it")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Became:
    """Counts the messages that a replay has sent by what became of them."""

    recovered: Count
    failed_again: Count
    in_flight: Count
    unknown: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationInFull(OperationListed):
    """Describes an operation, and what became of the messages that it has sent; null unless it is a replay."""

    became: Became | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLetter:
    """Says what came of one letter of an operation: its outcome, and what became of its message once it was sent."""

    position: int
    id: str
    source: str | None
    outcome: str | None
    why: str
    became: Fate
    became_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLetters:
    """Holds letters of an operation in their order; `next_after` is null if there are no more."""

    letters: Sequence[OperationLetter]
    next_after: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationList:
    """Holds operations, the newest first."""

    operations: Sequence[OperationListed]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditListed:
    """Says who did what, to how many letters (null: not known), and with which outcome."""

    at_s: Seconds
    who: str
    what: str
    outcome: AuditOutcome
    operation_id: str | None
    filter: str
    letters: int | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditList:
    """Holds entries of the audit, the newest first."""

    entries: Sequence[AuditListed]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlace:
    """Says how many letters go from a source to a destination."""

    source: str | None
    to: str
    letters: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStay:
    """Says why letters will not be sent."""

    why: str
    letters: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Previewed:
    """Says what a run of a replay would do now.

    `in_doubt` letters were sent by it without an answer, `doubtful_elsewhere` by another one: these may arrive twice.
    """

    letters: Count
    routes: Sequence[ReplayPlace]
    stay: Sequence[ReplayStay]
    brokers: Sequence[str]
    in_doubt: Count
    doubtful_elsewhere: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteListed:
    """Holds a note on a letter or on a group."""

    target: Annotated[str, Limits(about="letter, or what the group is made by")]
    value: Annotated[str, Limits(about="The id of the letter, or the key of the group")]
    text: str
    who: str
    at_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteList:
    """Holds notes, the oldest first."""

    notes: Sequence[NoteListed]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectListed:
    """Says that letters whose source is `old` are sent to `new`."""

    old: str
    new: str
    who: str
    at_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RedirectList:
    """Holds all redirects."""

    redirects: Sequence[RedirectListed]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportDone:
    """Sums up an import. `again` letters were in the store; `wrong` lines were left out, and `errors` says why."""

    operation: str
    added: Count
    again: Count
    completed: Count
    renamed: Count
    wrong: Count
    errors: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppSource:
    """Says what a process of an App does with a source. Empty texts: nothing is in the way; there is no breaker."""

    source: str
    consuming: bool
    why: str
    breaker: str
    forced: bool
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AppProcess:
    """Describes one process of an App, as it reported last."""

    id: str
    host: str
    pid: int
    broker: str
    state: Literal["running", "stopped", "silent"]
    started_s: Seconds
    seen_s: Seconds
    sources: Sequence[AppSource]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppWish:
    """Says what an operator wants of a source."""

    source: str
    subject: Subject
    wish: str
    who: str
    at_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """Describes an App: its processes, and the wishes that hold."""

    name: str
    processes: Sequence[AppProcess]
    wishes: Sequence[AppWish]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppList:
    """Holds the names of the Apps that have reported to the store."""

    apps: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controlled:
    """Says what was asked for, of which sources, and how many running processes have these."""

    app: str
    subject: Subject
    wish: str
    sources: Sequence[str]
    running: Count


# -- from requests ----------------------------------------------------------------------------------


def selection_of_query(asked: LetterFilter) -> Selection:
    """Return the selection that the query of a URL means. Raises ApiError, ConfigError."""
    if asked.group is not None and asked.group_by is None:
        raise ApiError(
            400, "it needs group_by", where="query group", cure="Say what the group is made by", code="api-request"
        )
    group = None if asked.group_by is None else (asked.group_by, asked.group)
    return Selection(
        state=None if asked.state == "any" else asked.state,
        queue=asked.queue,
        group=group,
        where=asked.where,
        since_us=_since(asked.since, "query since"),
    )


def selection_of(chosen: LettersChosen, usual: LetterState | None) -> Selection:
    """Return the selection that a body means; `usual` is the state of one that names none. Raises ConfigError."""
    return Selection(
        state=usual if chosen.state is None else None if chosen.state == "any" else chosen.state,
        queue=chosen.queue,
        ids=tuple(dict.fromkeys(chosen.ids or ())),
        group=None if chosen.group is None else (chosen.group.by, chosen.group.value),
        where=chosen.where,
        since_us=_since(chosen.since, "body selection since"),
    )


def _since(text: str | None, where: str) -> int | None:
    return None if text is None else parse_since(text, now_us(), where)


# -- from the store ---------------------------------------------------------------------------------


def client_of(token: ApiToken) -> Client:
    """Return what a client may know of its token."""
    return Client(
        name=token.name,
        role=token.role,
        permissions=sorted(ALLOWED[token.role]),
        expires_s=token.expires_us / 1e6,
    )


def page_of(found: Page) -> LetterPage:
    """Return a page of letters."""
    return LetterPage(letters=[LetterListed(**_letter(one)) for one in found.letters], next_cursor=found.next_cursor)


def groups_of(by: GroupKey, found: Sequence[Group]) -> GroupList:
    """Return groups of letters."""
    listed = [
        GroupListed(
            key=None if one.key is None else redact(one.key),
            letters=one.letters,
            first_s=one.first_us / 1e6,
            last_s=one.last_us / 1e6,
            error_type=_shown(one.error_type),
        )
        for one in found
    ]
    return GroupList(by=by, groups=listed)


def letter_of_store(found: ShownLetter, *, readable: bool, decode: Callable[[bytes], object] | None) -> LetterInFull:
    """Return a letter in full, or what somebody may see who may not read it. Raises ApiError if `decode` fails."""
    headers = headers_shown(found.headers)
    attempts = history_as_json(read_history(found.headers.get(HISTORY, "")))
    body = found.packed.body
    shown = _beginning(body)
    has_body = readable and found.whole
    return LetterInFull(
        **_letter(found.letter),
        headers=headers if readable else {name: _without(name, value) for name, value in headers.items()},
        history=[AttemptListed(**one) for one in attempts],
        body=shown["body"] if has_body else None,
        body_encoding=shown["body_encoding"] if has_body else None,
        body_cut=len(body) > SHOWN_BYTES,
        body_removed=not found.whole,
        decoded=None if decode is None or not has_body else _decoded(decode, body),
    )


def operation_of(found: Operation, *, runs_here: bool = False) -> OperationListed:
    """Return an operation."""
    return OperationListed(**_operation(found, runs_here))


def operation_in_full(found: Operation, became: BecameCounts | None, *, runs_here: bool = False) -> OperationInFull:
    """Return an operation, and what became of the messages that it has sent."""
    counted = None
    if became is not None:
        counted = Became(
            recovered=became.recovered,
            failed_again=became.failed_again,
            in_flight=became.in_flight,
            unknown=became.unknown,
        )
    return OperationInFull(**_operation(found, runs_here), became=counted)


def letters_of_operation(found: Sequence[ReplayedLetter], limit: int) -> OperationLetters:
    """Return letters of an operation, of which `limit` were asked for."""
    listed = [
        OperationLetter(
            position=one.position,
            id=one.dl_id,
            source=_shown(one.source),
            outcome=one.outcome,
            why=redact(one.why),
            became=one.became,
            became_s=None if one.became_us is None else one.became_us / 1e6,
        )
        for one in found
    ]
    return OperationLetters(letters=listed, next_after=listed[-1].position if len(listed) == limit else None)


def _operation(found: Operation, runs_here: bool) -> dict[str, Any]:
    return {
        "id": found.operation_id,
        "kind": found.kind,
        "who": redact(found.who),
        "began_s": found.began_us / 1e6,
        "ended_s": None if found.ended_us is None else found.ended_us / 1e6,
        "state": found.state,
        "filter": redact(found.filter),
        "options": _options(found.options),
        "total": found.total,
        "done": found.done,
        "failed": found.failed,
        "skipped": found.skipped,
        "why": redact(found.why),
        "host": redact(found.host),
        "runs_here": runs_here,
    }


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an operation; of an edit only which letter it is of, since it holds a body."""
    edit = options.get("edit")
    kept = dict(options) | ({"edit": {"id": edit.get("dl_id")}} if isinstance(edit, Mapping) else {})
    return headers_shown(kept)


def processes_of(name: str, found: Sequence[ProcessReport], wishes: Sequence[ControlWish]) -> AppStatus:
    """Return the processes of an App, and what operators want of it."""
    processes = [
        AppProcess(
            id=one.process_id,
            host=redact(one.host),
            pid=one.pid,
            broker=redact(one.broker),
            state=one.state,
            started_s=one.started_us / 1e6,
            seen_s=one.seen_us / 1e6,
            sources=[
                AppSource(
                    source=redact(source.source),
                    consuming=source.consuming,
                    why=redact(source.why),
                    breaker=source.breaker,
                    forced=source.forced,
                    waiting=source.waiting,
                )
                for source in one.sources
            ],
        )
        for one in found
    ]
    wanted = [
        AppWish(
            source=redact(one.source), subject=one.subject, wish=one.wish, who=redact(one.who), at_s=one.at_us / 1e6
        )
        for one in wishes
    ]
    return AppStatus(name=name, processes=processes, wishes=wanted)


def control_of(done: ControlResult) -> Controlled:
    """Return what was asked of an App."""
    return Controlled(
        app=done.app,
        subject=done.subject,
        wish=done.wish,
        sources=[redact(one) for one in done.sources],
        running=done.running,
    )


def preview_shown(found: ReplayPreview) -> Previewed:
    """Return what a run of a replay would do."""
    return Previewed(
        letters=found.letters,
        routes=[
            ReplayPlace(source=_shown(one.source), to=redact(one.target), letters=one.letters) for one in found.routes
        ],
        stay=[ReplayStay(why=redact(one.why), letters=one.letters) for one in found.stay],
        brokers=[redact(one) for one in found.brokers],
        in_doubt=found.in_doubt,
        doubtful_elsewhere=found.doubtful_elsewhere,
    )


def note_of(found: Note) -> NoteListed:
    """Return a note."""
    return NoteListed(
        target=found.target_kind,
        value=redact(found.target_value),
        text=redact(found.text),
        who=redact(found.who),
        at_s=found.at_us / 1e6,
    )


def redirect_of(found: Redirect) -> RedirectListed:
    """Return a redirect."""
    return RedirectListed(old=redact(found.old), new=redact(found.new), who=redact(found.who), at_s=found.at_us / 1e6)


def import_of(found: Imported) -> ImportDone:
    """Return what an import has done."""
    return ImportDone(
        operation=found.operation,
        added=found.added,
        again=sum(found.again.values()),
        completed=found.completed,
        renamed=found.renamed,
        wrong=found.wrong,
        errors=[redact(one.message) for one in found.errors],
    )


def audit_of(found: Sequence[AuditEntry]) -> AuditList:
    """Return entries of the audit."""
    listed = [
        AuditListed(
            at_s=one.at_us / 1e6,
            who=redact(one.who),
            what=redact(one.what),
            outcome=one.outcome,
            operation_id=one.operation_id,
            filter=redact(one.filter),
            letters=one.count,
            why=redact(one.why),
        )
        for one in found
    ]
    return AuditList(entries=listed)


def values_of(answer: Any) -> Any:
    """Return an answer as JSON values."""
    if is_dataclass(answer):
        return {one.name: values_of(getattr(answer, one.name)) for one in fields(answer)}
    if isinstance(answer, Mapping):
        return {str(name): values_of(value) for name, value in answer.items()}
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return [values_of(one) for one in answer]
    return answer


def _letter(letter: StoredLetter) -> dict[str, Any]:
    return {
        "id": letter.dl_id,
        "state": letter.state,
        "broker": redact(letter.broker),
        "queue": redact(letter.queue),
        "source": _shown(letter.source),
        "problem": _shown(letter.problem),
        "reason": _shown(letter.reason),
        "failures": letter.failures,
        "error_type": _shown(letter.error_type),
        "error_message": _shown(letter.error_message),
        "fingerprint": _shown(letter.fingerprint),
        "app": _shown(letter.app),
        "died_s": letter.died_us / 1e6,
        "collected_s": letter.collected_us / 1e6,
        "changed_s": letter.changed_us / 1e6,
        "message_key": _shown(letter.message_key),
        "message_id": _shown(letter.message_id),
        "content_type": _shown(letter.content_type),
        "generation": letter.generation,
        "replay_id": _shown(letter.replay_id),
        "bytes": letter.body_bytes,
        "digest": letter.digest,
    }


def _shown(text: str | None) -> str | None:
    return redact(text or "") or None


def _without(name: str, value: Any) -> Any:
    """Return the value of a header for somebody who may not read letters: only what redeliver-mw has written."""
    return value if name.startswith(PREFIX) else MARK


def _beginning(body: bytes) -> dict[str, Any]:
    """Return the body as it is shown. A cut between the bytes of one character does not make it binary."""
    if len(body) <= SHOWN_BYTES:
        return body_of(body)
    start = body[:SHOWN_BYTES]
    for left_out in range(4):
        try:
            start[: SHOWN_BYTES - left_out].decode()
        except UnicodeDecodeError:
            continue
        return body_of(start[: SHOWN_BYTES - left_out])
    return body_of(start)


def _decoded(decode: Callable[[bytes], object], body: bytes) -> Any:
    try:
        made = json.loads(json.dumps(decode(body), default=str, allow_nan=False))
    except Exception as error:  # a decoder is somebody else's code
        raise ApiError(
            422,
            f"the decoder cannot read this body: {type(error).__name__}",
            where="query decoder",
            cure="Leave the decoder out, or choose another one",
            code="api-decoder",
        ) from error
    return headers_shown({"decoded": made})["decoded"]
