# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Lists the routes: for each its handler, the permission that it needs, and what goes in and comes out.

This table is the only one. The server answers by it, the OpenAPI document is made of it, and the tests of permissions
go through it. Handlers run on threads, one connection to the store each.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from ..operations import (
    Operation,
    ShownLetter,
    Store,
    cancel_operation,
    counts,
    find_operation,
    groups,
    last_operations,
    page,
    show,
)
from ..operations.audit import change_operation, last_entries
from ..operations.became import became_of, replayed_letters
from ..operations.collect import KIND as COLLECT
from ..operations.collect import plan_collect
from ..operations.control import app_status, control_breaker, control_source, known_apps, last_wishes
from ..operations.export import export
from ..operations.filters.fields import HeaderField
from ..operations.filters.model import Comparison, Conjunction, Disjunction, Filter, Membership, Negation, Presence
from ..operations.filters.parser import parse_filter
from ..operations.import_ import import_letters
from ..operations.notes import note_group, note_letter, notes_about
from ..operations.operation import require_open
from ..operations.redirects import add_redirect, all_redirects, remove_redirect
from ..operations.replay_plan import preview_of
from ..operations.sorting import Sort
from ..operations.tokens import ApiToken
from ..redelivery.headers import PREFIX
from .answers import (
    AppList,
    AppStatus,
    AuditList,
    AuditParameters,
    BreakerWished,
    Client,
    CollectWished,
    Controlled,
    Counts,
    GroupList,
    GroupParameters,
    ImportDone,
    LetterFilter,
    LetterInFull,
    LetterPage,
    LetterParameters,
    NoParameters,
    NoteList,
    NoteListed,
    NotesParameters,
    NoteWritten,
    Nothing,
    OperationInFull,
    OperationLetters,
    OperationLettersParameters,
    OperationList,
    OperationPlanned,
    OperationsParameters,
    PageParameters,
    Previewed,
    RedirectList,
    RedirectListed,
    RedirectNamed,
    RedirectWished,
    RunWished,
    SourceNamed,
    audit_of,
    client_of,
    control_of,
    groups_of,
    import_of,
    letter_of_store,
    letters_of_operation,
    note_of,
    operation_in_full,
    operation_of,
    page_of,
    preview_shown,
    processes_of,
    redirect_of,
    selection_of,
    selection_of_query,
)
from .kinds import Prepare, Resources, RunSignals, broker_named, kind_of
from .lines import LineStream
from .permissions import Permission, least_role, may
from .problems import ApiError
from .runs import Runs

PREFIX_OF_ALL: Final = "/api/v1"
Media = Literal["application/json", "application/octet-stream", "application/x-ndjson", "text/event-stream"]
Decoder = Callable[[bytes], object]
"""Is given a body, and returns what JSON can express."""


class ApiServer(Resources, Protocol):
    """Is what handlers know of the server."""

    @property
    def decoders(self) -> Mapping[str, Decoder]:
        """Return the decoders by name."""

    @property
    def runs(self) -> Runs:
        """Return the operations that run here."""

    @property
    def document(self) -> Mapping[str, Any]:
        """Return the OpenAPI document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Holds one request that was allowed and read."""

    server: ApiServer
    store: Store
    token: ApiToken
    path: Mapping[str, str]
    query: Any
    body: Any
    root: str = ""  # the path at which the application is mounted

    @property
    def who(self) -> str:
        """Return who operations and the audit name."""
        return who(self.token)

    def need(self, permission: Permission) -> None:
        """Raise ApiError if the token's role has not this permission."""
        if not may(self.token.role, permission):
            raise forbidden(permission)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoute:
    """Describes one route. `answer` None: bytes of the type `media`. `also`: statuses of its own problems."""

    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    name: str
    permission: Permission
    about: str
    handler: Callable[[Call], Any]
    query: type[Any] = NoParameters
    body: type[Any] | None = None
    answer: Any = None
    status: int = 200
    media: Media = "application/json"
    upload: bool = False
    also: Sequence[int] = ()


def who(token: ApiToken) -> str:
    """Return who operations and the audit name for a token."""
    return f"api:{token.name}"


def forbidden(permission: Permission) -> ApiError:
    """Return the error for a role without a permission."""
    return ApiError(
        403,
        f"the role of this token has not the permission {permission}",
        cure=f"Use a token with the role {least_role(permission)}",
        code="api-permission",
    )


# -- reading ----------------------------------------------------------------------------------------


def _document(call: Call) -> Mapping[str, Any]:
    return {**call.server.document, "servers": [{"url": call.root or "/"}]}


def _client(call: Call) -> Client:
    return client_of(call.token)


def _letters(call: Call) -> LetterPage:
    asked: PageParameters = call.query
    check_filter(asked.where, call)
    sort = Sort.parse(asked.sort, "query sort")
    return page_of(page(call.store, selection_of_query(asked), sort=sort, limit=asked.limit, cursor=asked.cursor))


def _groups(call: Call) -> GroupList:
    asked: GroupParameters = call.query
    check_filter(asked.where, call)
    return groups_of(asked.by, groups(call.store, asked.by, selection_of_query(asked), limit=asked.limit))


def _counts(call: Call) -> Counts:
    found = counts(call.store)
    return Counts(
        waiting=found.get("waiting", 0),
        replaying=found.get("replaying", 0),
        replayed=found.get("replayed", 0),
        archived=found.get("archived", 0),
        discarded=found.get("discarded", 0),
    )


def _letter(call: Call) -> LetterInFull:
    decode = None
    if call.query.decoder is not None:
        call.need("letters:read")
        decode = call.server.decoders.get(call.query.decoder)
        if decode is None:
            raise ApiError(
                400,
                "the server has no decoder of this name",
                where="query decoder",
                cure=f"Name one of: {', '.join(sorted(call.server.decoders)) or 'none'}",
                code="api-name",
            )
    readable = may(call.token.role, "letters:read")
    return letter_of_store(_whole(call), readable=readable, decode=decode)


def _body(call: Call) -> bytes:
    found = _whole(call)
    if not found.whole:
        raise ApiError(404, "the body of this letter was removed", cure="Look at its headers", code="api-body-removed")
    return found.packed.body


def _whole(call: Call) -> ShownLetter:
    return _letter_named(call, call.path["id"])


def _letter_named(call: Call, wanted: str) -> ShownLetter:
    """Return the letter with exactly this id: the beginning of an id may mean another letter tomorrow."""
    found = show(call.store, wanted)
    if found.letter.dl_id != wanted:
        raise ApiError(404, "no letter has exactly this id", cure="Write the whole id", code="letter-not-found")
    return found


def _operations(call: Call) -> OperationList:
    found = last_operations(call.store, call.query.limit, call.query.kind)
    runs = call.server.runs
    return OperationList(operations=[operation_of(one, runs_here=runs.runs(one.operation_id)) for one in found])


def _operation(call: Call) -> OperationInFull:
    return _in_full(call, _exact(call))


def _operation_letters(call: Call) -> OperationLetters:
    asked: OperationLettersParameters = call.query
    found = _exact(call)
    listed = replayed_letters(call.store, found.operation_id, limit=asked.limit, after=asked.after, only=asked.became)
    return letters_of_operation(listed, asked.limit)


def _audit(call: Call) -> AuditList:
    return audit_of(last_entries(call.store, call.query.limit))


def check_filter(where: str, call: Call, place: str = "query where") -> None:
    """Refuse a filter over what this role cannot see, which would tell it all the same, piece by piece.

    Raises ApiError, or ConfigError for a filter that does not parse.
    """
    named = _headers_of(parse_filter(where, place)) if where else set()
    if not may(call.token.role, "letters:read") and any(not name.startswith(PREFIX) for name in named):
        raise forbidden("letters:read")


def _headers_of(part: Filter) -> set[str]:
    if isinstance(part, Comparison | Membership | Presence):
        return {part.field.name} if isinstance(part.field, HeaderField) else set()
    if isinstance(part, Negation):
        return _headers_of(part.inner)
    assert isinstance(part, Conjunction | Disjunction)
    return set().union(*map(_headers_of, part.parts))


# -- operations -------------------------------------------------------------------------------------


def _plan(call: Call) -> OperationInFull:
    asked: OperationPlanned = call.body
    kind = kind_of(asked.kind)
    call.need(kind.permission)
    if asked.replay is not None and asked.replay.edit is not None:
        call.need("letters:edit")
    others = {"replay": asked.replay, "expire": asked.expire, "replay or most": asked.most}
    if wrong := [name for name, given in others.items() if given is not None and asked.kind not in name]:
        raise ApiError(
            400,
            f"this is said of a {wrong[0]}, and the kind is {asked.kind}",
            where="body",
            cure="Leave it out",
            code="api-request",
        )
    assert kind.plan is not None
    check_filter(asked.selection.where, call, "body selection where")
    selection = selection_of(asked.selection, kind.state)
    planned = kind.plan(call.server, call.store, selection, asked, call.who)
    if asked.expected is not None and planned.total != asked.expected:
        cancel_operation(call.store, planned.operation_id)
        raise ApiError(
            409,
            f"the selection means {planned.total} letters now, and {asked.expected} were expected; nothing is planned",
            where="body expected",
            cure="Look at the letters again",
            code="api-count-changed",
        )
    return _in_full(call, planned)


def _run(call: Call) -> OperationInFull:
    asked: RunWished = call.body
    found = _exact(call)
    kind = kind_of(found.kind)
    call.need(kind.permission)
    if found.kind == "replay" and found.options.get("edit") is not None:
        call.need("letters:edit")
    if kind.prepare is None:
        raise ApiError(
            409,
            f"an operation of the kind {found.kind} cannot be run here",
            cure="Run it where it was begun",
            code="api-kind",
        )
    return _started(call, found, kind.prepare, asked.broker)


def _collect(call: Call) -> OperationInFull:
    asked: CollectWished = call.body
    kind, broker = kind_of(COLLECT), broker_named(call.server, asked.broker)
    assert kind.prepare is not None
    planned = plan_collect(
        call.store, asked.queues, limit=asked.limit, follow=asked.follow, broker=broker, who=call.who
    )
    try:
        return _started(call, planned, kind.prepare, broker)
    except ApiError as error:
        if error.code == "api-busy":  # nobody would run it later
            cancel_operation(call.store, planned.operation_id)
        raise


def _started(call: Call, operation: Operation, prepare: Prepare, broker: str | None) -> OperationInFull:
    require_open(operation, call.store)
    run, name = prepare(call.server, operation, broker), call.who

    def work(store: Store, stop: threading.Event, news: Callable[[], None]) -> None:
        run(store, RunSignals(name, stop, lambda done, total: news()))

    call.server.runs.start(operation, work, lasting=bool(operation.options.get("follow")))
    return _in_full(call, find_operation(call.store, operation.operation_id))


def _preview(call: Call) -> Previewed:
    return preview_shown(preview_of(call.store, _exact(call).operation_id))


def _pause(call: Call) -> OperationInFull:
    found = _exact(call)
    call.need(kind_of(found.kind).permission)
    return _in_full(call, change_operation(call.store, found.operation_id, "pause", who=call.who))


def _cancel(call: Call) -> OperationInFull:
    found = _exact(call)
    call.need(kind_of(found.kind).permission)
    return _in_full(call, change_operation(call.store, found.operation_id, "cancel", who=call.who))


def _exact(call: Call) -> Operation:
    wanted = call.path["id"]
    found = find_operation(call.store, wanted)
    if found.operation_id != wanted:
        raise ApiError(404, "no operation has exactly this id", cure="Write the whole id", code="operation-not-found")
    return found


def _in_full(call: Call, operation: Operation) -> OperationInFull:
    became = became_of(call.store, operation.operation_id) if operation.kind == "replay" else None
    return operation_in_full(operation, became, runs_here=call.server.runs.runs(operation.operation_id))


# -- notes, redirects, export and import ------------------------------------------------------------


def _notes(call: Call) -> NoteList:
    found = _letter_named(call, call.query.letter)
    return NoteList(notes=[note_of(one) for one in notes_about(call.store, found.letter)])


def _write_note(call: Call) -> NoteListed:
    asked: NoteWritten = call.body
    if (asked.letter is None) is (asked.group is None):
        raise ApiError(
            400,
            "it has to be about a letter or about a group",
            where="body",
            cure="Name either the letter or the group",
            code="api-request",
        )
    if asked.group is not None:
        return note_of(note_group(call.store, asked.group.by, asked.group.value, asked.text, who=call.who))
    assert asked.letter is not None
    whole = _letter_named(call, asked.letter).letter.dl_id
    return note_of(note_letter(call.store, whole, asked.text, who=call.who))


def _redirects(call: Call) -> RedirectList:
    return RedirectList(redirects=[redirect_of(one) for one in all_redirects(call.store)])


def _add_redirect(call: Call) -> RedirectListed:
    return redirect_of(add_redirect(call.store, call.body.old, call.body.new, who=call.who))


def _remove_redirect(call: Call) -> RedirectList:
    remove_redirect(call.store, call.body.old, who=call.who)
    return _redirects(call)


def _export(call: Call) -> LineStream:
    """Return the lines, which are read once this has returned: what can be refused is refused before."""
    selection = selection_of_query(call.query)
    check_filter(call.query.where, call)
    page(call.store, selection, limit=1)
    name = call.who
    return LineStream(lambda store, write, stop: export(store, write, selection, stop=stop, who=name))


def _import(call: Call) -> ImportDone:
    return import_of(import_letters(call.store, call.body, name="an upload", who=call.who))


# -- Apps -------------------------------------------------------------------------------------------


def _apps(call: Call) -> AppList:
    return AppList(apps=known_apps(call.store))


def _app(call: Call) -> AppStatus:
    name = call.path["app"]
    return processes_of(name, app_status(call.store, name), last_wishes(call.store, name))


def _pause_source(call: Call) -> Controlled:
    return control_of(control_source(call.store, call.path["app"], "pause", call.body.source, who=call.who))


def _resume_source(call: Call) -> Controlled:
    return control_of(control_source(call.store, call.path["app"], "resume", call.body.source, who=call.who))


def _set_breaker(call: Call) -> Controlled:
    asked: BreakerWished = call.body
    return control_of(control_breaker(call.store, call.path["app"], asked.wish, asked.source, who=call.who))


ROUTES: Final[tuple[ApiRoute, ...]] = (
    ApiRoute(
        method="GET",
        path="/openapi.json",
        name="document",
        permission="letters:list",
        about="Return this document.",
        handler=_document,
        answer=Mapping[str, Any],
    ),
    ApiRoute(
        method="GET",
        path="/me",
        name="client",
        permission="letters:list",
        about="Return the name, the role and the permissions of the token.",
        handler=_client,
        answer=Client,
    ),
    ApiRoute(
        method="GET",
        path="/letters",
        name="letters",
        permission="letters:list",
        about="Return a page of dead letters.",
        handler=_letters,
        query=PageParameters,
        answer=LetterPage,
    ),
    ApiRoute(
        method="GET",
        path="/groups",
        name="groups",
        permission="letters:list",
        about="Return groups of dead letters, the largest first.",
        handler=_groups,
        query=GroupParameters,
        answer=GroupList,
    ),
    ApiRoute(
        method="GET",
        path="/counts",
        name="counts",
        permission="letters:list",
        about="Return the number of dead letters in each state.",
        handler=_counts,
        answer=Counts,
    ),
    ApiRoute(
        method="GET",
        path="/letters/{id}",
        name="letter",
        permission="letters:list",
        about="Return a dead letter with its headers, its last attempts and its body, as far as the role may see them.",
        handler=_letter,
        query=LetterParameters,
        answer=LetterInFull,
        also=(404, 422),
    ),
    ApiRoute(
        method="GET",
        path="/letters/{id}/body",
        name="body",
        permission="letters:exact",
        about="Return the body of a dead letter, byte for byte and with its secrets.",
        handler=_body,
        media="application/octet-stream",
        also=(404,),
    ),
    ApiRoute(
        method="GET",
        path="/operations",
        name="operations",
        permission="letters:list",
        about="Return the last operations, whoever began them and from where.",
        handler=_operations,
        query=OperationsParameters,
        answer=OperationList,
    ),
    ApiRoute(
        method="GET",
        path="/operations/{id}",
        name="operation",
        permission="letters:list",
        about="Return an operation.",
        handler=_operation,
        answer=OperationInFull,
        also=(404,),
    ),
    ApiRoute(
        method="GET",
        path="/operations/{id}/letters",
        name="operation-letters",
        permission="letters:list",
        about="Return letters of an operation with the outcome of each, and what became of the messages of a replay.",
        handler=_operation_letters,
        query=OperationLettersParameters,
        answer=OperationLetters,
        also=(404,),
    ),
    ApiRoute(
        method="GET",
        path="/operations/{id}/events",
        name="events",
        permission="letters:list",
        about="Send the progress of an operation as server-sent events `progress`, and `end` when it is over.",
        handler=_operation,
        media="text/event-stream",
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/operations",
        name="plan",
        permission="letters:list",
        about="Freeze dead letters for an operation, and return their exact count. Needs the permission of its kind.",
        handler=_plan,
        body=OperationPlanned,
        answer=OperationInFull,
        status=201,
        also=(404, 409),
    ),
    ApiRoute(
        method="POST",
        path="/collect",
        name="collect",
        permission="letters:collect",
        about="Move dead letters from queues of a broker into the store. Returns when there is progress.",
        handler=_collect,
        body=CollectWished,
        answer=OperationInFull,
        status=202,
        also=(404, 502),
    ),
    ApiRoute(
        method="GET",
        path="/operations/{id}/preview",
        name="preview",
        permission="letters:list",
        about="Say what a run of a replay would do now.",
        handler=_preview,
        answer=Previewed,
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/operations/{id}/run",
        name="run",
        permission="letters:list",
        about="Run an operation on the server. Returns when it has made progress. Needs the permission of its kind.",
        handler=_run,
        body=RunWished,
        answer=OperationInFull,
        status=202,
        also=(404, 409, 502),
    ),
    ApiRoute(
        method="POST",
        path="/operations/{id}/resume",
        name="resume",
        permission="letters:list",
        about="Go on with an operation that was paused, or whose process is gone. Needs the permission of its kind.",
        handler=_run,
        body=RunWished,
        answer=OperationInFull,
        status=202,
        also=(404, 409, 502),
    ),
    ApiRoute(
        method="POST",
        path="/operations/{id}/pause",
        name="pause",
        permission="letters:list",
        about="End an operation after the batch in hand; it can go on later. Needs the permission of its kind.",
        handler=_pause,
        body=Nothing,
        answer=OperationInFull,
        also=(404, 409),
    ),
    ApiRoute(
        method="POST",
        path="/operations/{id}/cancel",
        name="cancel",
        permission="letters:list",
        about="End an operation for good after the batch in hand. Needs the permission of its kind.",
        handler=_cancel,
        body=Nothing,
        answer=OperationInFull,
        also=(404, 409),
    ),
    ApiRoute(
        method="GET",
        path="/audit",
        name="audit",
        permission="letters:read",
        about="Return the last entries of the audit: who did what, and who was denied what.",
        handler=_audit,
        query=AuditParameters,
        answer=AuditList,
    ),
    ApiRoute(
        method="GET",
        path="/notes",
        name="notes",
        permission="letters:list",
        about="Return the notes on a letter and on the groups that it belongs to.",
        handler=_notes,
        query=NotesParameters,
        answer=NoteList,
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/notes",
        name="note",
        permission="letters:note",
        about="Write a note on a letter or on a group.",
        handler=_write_note,
        body=NoteWritten,
        answer=NoteListed,
        status=201,
        also=(404,),
    ),
    ApiRoute(
        method="GET",
        path="/redirects",
        name="redirects",
        permission="letters:list",
        about="Return all redirects.",
        handler=_redirects,
        answer=RedirectList,
    ),
    ApiRoute(
        method="POST",
        path="/redirects",
        name="redirect",
        permission="redirects:write",
        about="Send letters of a source elsewhere from now on.",
        handler=_add_redirect,
        body=RedirectWished,
        answer=RedirectListed,
        status=201,
    ),
    ApiRoute(
        method="POST",
        path="/redirects/remove",
        name="redirect-remove",
        permission="redirects:write",
        about="Remove a redirect, and return the others.",
        handler=_remove_redirect,
        body=RedirectNamed,
        answer=RedirectList,
        also=(404,),
    ),
    ApiRoute(
        method="GET",
        path="/export",
        name="export",
        permission="letters:exact",
        about="Return letters byte for byte, one line of JSON each, as `redeliver dead export` writes them.",
        handler=_export,
        query=LetterFilter,
        media="application/x-ndjson",
    ),
    ApiRoute(
        method="POST",
        path="/import",
        name="import",
        permission="letters:import",
        about="Store letters that were exported, one line of JSON each. Wrong lines are left out, and reported.",
        handler=_import,
        upload=True,
        answer=ImportDone,
    ),
    ApiRoute(
        method="GET",
        path="/apps",
        name="apps",
        permission="letters:list",
        about="Return the names of the Apps that have reported to the store.",
        handler=_apps,
        answer=AppList,
    ),
    ApiRoute(
        method="GET",
        path="/apps/{app}",
        name="app",
        permission="letters:list",
        about="Return the processes of an App, and what operators want of it.",
        handler=_app,
        answer=AppStatus,
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/apps/{app}/pause",
        name="pause-source",
        permission="apps:control",
        about="Ask an App to pause a source.",
        handler=_pause_source,
        body=SourceNamed,
        answer=Controlled,
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/apps/{app}/resume",
        name="resume-source",
        permission="apps:control",
        about="Ask an App to resume a source.",
        handler=_resume_source,
        body=SourceNamed,
        answer=Controlled,
        also=(404,),
    ),
    ApiRoute(
        method="POST",
        path="/apps/{app}/breaker",
        name="breaker",
        permission="apps:control",
        about="Ask an App to keep breakers open or closed, or to leave them to the results of the handlers.",
        handler=_set_breaker,
        body=BreakerWished,
        answer=Controlled,
        also=(404, 409),
    ),
)
