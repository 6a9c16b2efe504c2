# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Serves the routes as an ASGI application, and refuses every request that is not allowed.

A request goes through these in order: the name of the host, the number and the size of the headers, a token in the URL,
the token, the route, the permission of the route, the content type, the size and the form of the body. Whatever the
store does blocks, so it is done on threads.
"""

from __future__ import annotations

import logging
import re
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import orjson
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar
from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from ..adapter.registry import parse_url
from ..dead_letters.edits.letter import Transform
from ..errors import ConfigError, RedeliverError
from ..operations import Store
from ..operations.audit import AuditEntry, write_audit
from ..operations.operation import now_us
from ..operations.tokens import TOKEN, ApiToken, token_of
from ..redaction import redact, visible
from .answers import values_of
from .connections import KEPT, Connections
from .events import MEDIA_TYPE as EVENTS
from .events import events
from .lines import AT_ONCE as LINES_AT_ONCE
from .lines import MEDIA_TYPE as LINES
from .lines import LineStream
from .openapi import document_of
from .permissions import may
from .problems import HEADERS, ApiError, as_json, problem_response
from .retention import Retention
from .routes import PREFIX_OF_ALL, ROUTES, ApiRoute, Call, Decoder, forbidden, who
from .runs import Runs
from .shapes import read_json, read_query

log = logging.getLogger("redeliver_mw.api")

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
MAX_BODY: Final = 1024 * 1024  # bytes of a request
MAX_UPLOAD: Final = 256 * 1024 * 1024  # bytes of an import
MOST_HEADERS: Final = 100
HEADER_BYTES: Final = 32 * 1024
MOST_STREAMS: Final = 100
CLOSE_S: Final = 20.0  # seconds that operations have to end in good order
_MOST_STRANGERS: Final = 60  # denials without a valid token that are audited in a minute
_IN_MEMORY: Final = 1024 * 1024  # bytes of an import that are not on a disk
_SECRET_NAMES: Final = frozenset(
    {"token", "access_token", "api_key", "apikey", "auth", "authorization", "bearer", "password", "secret"}
)
_HOST: Final = re.compile(r"(?P<bare>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(:[0-9]{1,5})?", re.ASCII)
_limiter: RunVar[CapacityLimiter] = RunVar("redeliver_mw_api")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Holds what an application was made with."""

    transforms: Mapping[str, Transform] = field(default_factory=dict)
    decoders: Mapping[str, Decoder] = field(default_factory=dict)
    brokers: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] = LOOPBACK
    max_body: int = MAX_BODY
    max_upload: int = MAX_UPLOAD
    keep_bodies: float | None = None


def create_app(
    store: Store | str,
    *,
    transforms: Mapping[str, Transform] | None = None,
    decoders: Mapping[str, Decoder] | None = None,
    brokers: Mapping[str, str] | str | None = None,
    hosts: Sequence[str] = LOOPBACK,
    max_body: int = MAX_BODY,
    max_upload: int = MAX_UPLOAD,
    keep_bodies: float | None = None,
) -> Api:
    """Return an ASGI application that serves the operations on a store under `/api/v1`.

    - `store`: the store, or its URL. The application opens connections of its own to it.
    - `transforms`: functions that change letters before they are sent back, by the names by which requests ask for
      them.
    - `decoders`: functions that show bodies, by the names by which requests ask for them. Each is given the bytes of a
      body, and returns what JSON can express.
    - `brokers`: the URLs of the brokers that letters are collected from and sent back to, by the names by which
      requests ask for them; or one URL. Without any, nothing can be collected or replayed.
    - `hosts`: the names under which clients may reach it, without a port; `*` as the only one: any, if whatever stands
      before the application checks the name.
    - `max_body`, `max_upload`: bytes of a request, and of an import, at most.
    - `keep_bodies`: seconds after which the bodies of letters that were replayed, archived or discarded are removed.

    Raises ConfigError or MissingExtra for a URL that cannot be a store's or a broker's.
    """
    if isinstance(hosts, str) or not hosts:
        raise ConfigError(
            f"{hosts!r} is no list of hosts", where="hosts", cure="Write hosts=['dead.example']", code="option-value"
        )
    if keep_bodies is not None and not keep_bodies >= 1:
        raise ConfigError(
            f"{keep_bodies} s is no time to keep bodies for",
            where="keep_bodies",
            cure="Write seconds, from 1 on",
            code="option-value",
        )
    known = {"broker": brokers} if isinstance(brokers, str) else dict(brokers or {})
    for one in known.values():
        parse_url(one)
    settings = ApiSettings(
        transforms=dict(transforms or {}),
        decoders=dict(decoders or {}),
        brokers=known,
        hosts=tuple(one.lower().strip("[]") for one in hosts),
        max_body=max_body,
        max_upload=max_upload,
        keep_bodies=keep_bodies,
    )
    return Api(Store(store, create=False) if isinstance(store, str) else store, settings)


class Api:
    """Is the ASGI application. Make it with `create_app`; call `close` at the end where nothing runs its lifespan."""

    def __init__(self, store: Store, settings: ApiSettings) -> None:
        """Serve a store with these settings. Nothing is opened before the first request."""
        self.settings = settings
        self.connections = Connections(store)
        self.runs = Runs(self.connections.open)
        self.document = document_of(ROUTES)
        self.ending = False
        self._routes = [
            (one, Route(PREFIX_OF_ALL + one.path, _nothing, methods=[one.method], name=one.name)) for one in ROUTES
        ]
        self._streams, self._exports = 0, 0
        self._retention = Retention(self.connections.open, settings.keep_bodies)
        self._strangers = _Strangers()

    @property
    def transforms(self) -> Mapping[str, Transform]:
        """Return the transforms by name."""
        return self.settings.transforms

    @property
    def decoders(self) -> Mapping[str, Decoder]:
        """Return the decoders by name."""
        return self.settings.decoders

    @property
    def brokers(self) -> Mapping[str, str]:
        """Return the URLs of the brokers by name."""
        return self.settings.brokers

    def end_streams(self) -> None:
        """Let streams of events end soon: a server that ends waits for them."""
        self.ending = True

    def close(self, timeout: float = CLOSE_S) -> None:
        """End what runs after the batch in hand, so that it can go on later, and close the connections. Blocks."""
        self.end_streams()
        self._retention.close(timeout)
        if not self.runs.close(timeout):
            log.warning(
                "an operation has not ended within %g s; it can be taken over once this process is gone", timeout
            )
        self.connections.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as ASGI asks for."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["type"] == "http":
            self._retention.start()
            await self._http(Request(scope, receive), scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message: Message = await receive()
            if message["type"] == "lifespan.startup":
                self._retention.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await to_thread.run_sync(self.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _http(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.monotonic()
        seen = _Seen()
        try:
            response = await self._respond(request, seen)
        except ClientDisconnect:
            return
        except Exception as error:
            response = problem_response(error)
        log.info(
            "%s %s %d, %s, %.1f ms",
            request.method if request.method.isalpha() else "?",
            PREFIX_OF_ALL + seen.route.path if seen.route else "(no route)",
            response.status_code,
            seen.name,
            (time.monotonic() - began) * 1000,
        )
        try:
            await response(scope, receive, send)
        except ClientDisconnect:
            return

    async def _respond(self, request: Request, seen: _Seen) -> Response:
        self._check_host(request)
        _check_headers(request)
        route, path, allowed = self._match(request)
        seen.route = route
        action = route.name if route else "request"
        _check_url(request)
        token = await self._authenticate(request, action)
        seen.name = who(token)
        if route is None:
            raise _no_route(allowed, request.method)
        if not may(token.role, route.permission):
            await self._in_thread(partial(self._denied, token, route, forbidden(route.permission)))
        query = read_query(route.query, QueryParams(request.scope["query_string"]).multi_items())
        body = await self._body(request, route) if route.method != "GET" else None
        handle = partial(self._handle, route, token, path, query, body, request.scope.get("root_path", ""))
        if route.media == EVENTS:
            return await self._stream(handle, request, action)
        try:
            answer = await self._in_thread(handle)
        finally:
            if isinstance(body, tempfile.SpooledTemporaryFile):
                body.close()
        if isinstance(answer, LineStream):
            return self._lines_of(answer)
        if route.answer is None:
            headers = {**HEADERS, "Content-Disposition": "attachment"}
            return Response(answer, route.status, headers, route.media)
        return Response(as_json(values_of(answer)), route.status, HEADERS, route.media)

    # -- gates --------------------------------------------------------------------------------------

    def _check_host(self, request: Request) -> None:
        if self.settings.hosts == ("*",):
            return
        given = request.headers.getlist("host")
        found = _HOST.fullmatch(given[0]) if len(given) == 1 else None
        if found is None or found["bare"].lower().strip("[]") not in self.settings.hosts:
            raise ApiError(
                421,
                "this server is not meant by this name",
                where="header Host",
                cure="Use a name that the server was told: create_app(hosts=…), or redeliver api --host NAME",
                code="api-host",
            )

    def _match(self, request: Request) -> tuple[ApiRoute | None, dict[str, str], list[str]]:
        """Return the route and what its path names; without a route, the methods that the path has."""
        allowed: list[str] = []
        for route, matcher in self._routes:
            match, child = matcher.matches(request.scope)
            if match is Match.FULL and (request.method == route.method or route.answer is not None):
                return route, {name: _checked(name, one) for name, one in child["path_params"].items()}, []
            if match is not Match.NONE:
                allowed.append(route.method)
        return None, {}, sorted(set(allowed))

    async def _authenticate(self, request: Request, action: str) -> ApiToken:
        given = request.headers.getlist("authorization")
        scheme, _, text = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        text = text.strip(" ")
        if scheme.lower() != "bearer" or TOKEN.fullmatch(text) is None:
            cure = "Send the header Authorization with the word Bearer, a blank and the token"
            error = (
                _unauthorized("this is no token of this server", cure, code="api-token-wrong")
                if given
                else _unauthorized("there is no token", cure, code="api-token-missing")
            )
            await self._in_thread(partial(self._stranger, request, action, "", error))
        return await self._in_thread(partial(self._known, request, action, text))

    def _known(self, request: Request, action: str, text: str) -> ApiToken:
        with self.connections.lend() as store:
            token = token_of(store, text)
        state = "wrong" if token is None else token.state(now_us())
        if token is not None and state == "valid":
            return token
        if state == "expired":
            error = _unauthorized(
                "this token has expired", "Make a new one with `redeliver api token add`", code="api-token-expired"
            )
        else:  # whether a token was revoked or never was there is not the client's affair
            error = _unauthorized(
                "this is no token of this server", "Make one with `redeliver api token add`", code="api-token-wrong"
            )
        self._stranger(request, action, "" if token is None else f"{who(token)} ({state})", error)
        raise error

    def _stranger(self, request: Request, action: str, name: str, error: ApiError) -> None:
        """Audit a denial without a valid token, unless there were too many lately, and raise it."""
        client = request.client.host if request.client else "unknown"
        if (more := self._strangers.count()) is not None:
            why = f"{error.what}, from {client}" + (f"; {more} denials before it were not written" if more else "")
            self._audit(AuditEntry(who=name or "unknown", what=action, outcome="denied", why=why))
        raise error

    def _denied(self, token: ApiToken, route: ApiRoute, error: ApiError) -> None:
        """Audit a denial, and raise it."""
        self._audit(AuditEntry(who=who(token), what=route.name, outcome="denied", why=error.what))
        raise error

    def _audit(self, entry: AuditEntry) -> None:
        try:
            with self.connections.lend() as store:
                write_audit(store, entry)
        except RedeliverError as error:  # the client is denied all the same
            log.warning("the audit cannot be written: %s", error)

    # -- bodies -------------------------------------------------------------------------------------

    async def _body(self, request: Request, route: ApiRoute) -> Any:
        """Return what the body describes; of an upload, a file that is not on any path, which the caller closes."""
        kind, _, more = request.headers.get("content-type", "").partition(";")
        wanted = LINES if route.upload else "application/json"
        if kind.strip().lower() != wanted or (more.strip() and more.strip().lower() != "charset=utf-8"):
            raise ApiError(
                415,
                f"it is not {wanted}",
                where="header Content-Type",
                cure=f"Send Content-Type: {wanted}, also with an empty body",
                code="api-content-type",
            )
        if route.upload:
            return await self._upload(request)
        raw = b"".join([part async for part in _parts(request, self.settings.max_body)])
        try:
            value = orjson.loads(raw or b"{}")
        except orjson.JSONDecodeError as error:
            raise ApiError(400, f"it is no JSON: {error}", where="body", cure="Send JSON", code="api-request") from None
        return read_json(route.body or dict, value)

    async def _upload(self, request: Request) -> Any:
        file = await self._in_thread(partial(tempfile.SpooledTemporaryFile, _IN_MEMORY))
        try:
            async for part in _parts(request, self.settings.max_upload):
                await self._in_thread(partial(file.write, part))
            await self._in_thread(partial(file.seek, 0))
        except BaseException:
            file.close()
            raise
        return file

    # -- handlers -----------------------------------------------------------------------------------

    def _handle(self, route: ApiRoute, token: ApiToken, path: dict[str, str], query: Any, body: Any, root: str) -> Any:
        with self.connections.lend() as store:
            call = Call(server=self, store=store, token=token, path=path, query=query, body=body, root=root)
            try:
                return route.handler(call)
            except ApiError as error:
                if error.status != 403:
                    raise
                denied = error
        self._denied(token, route, denied)
        return None

    async def _stream(self, handle: Callable[[], Any], request: Request, action: str) -> Response:
        first = values_of(await self._in_thread(handle))
        if self._streams >= MOST_STREAMS or self.ending:
            raise _busy("this server ends" if self.ending else "too many streams are open")

        async def look() -> dict[str, Any]:
            await self._authenticate(request, action)  # it may have been revoked
            found: dict[str, Any] = values_of(await self._in_thread(handle))
            return found

        async def counted() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                async for one in events(look, first, lambda: self.ending):
                    yield one
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), 200, {**HEADERS, "X-Accel-Buffering": "no"}, EVENTS)

    def _lines_of(self, answer: LineStream) -> Response:
        if self._exports >= LINES_AT_ONCE or self.ending:
            raise _busy("this server ends" if self.ending else "others export letters now")

        async def counted() -> AsyncIterator[bytes]:
            self._exports += 1
            try:
                async for line in answer.lines(self.connections.open, self._in_thread):
                    yield line
            finally:
                self._exports -= 1

        headers = {**HEADERS, "Content-Disposition": 'attachment; filename="letters.jsonl"'}
        return StreamingResponse(counted(), 200, headers, LINES)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        try:
            limiter = _limiter.get()
        except LookupError:
            limiter = CapacityLimiter(KEPT)
            _limiter.set(limiter)
        return await to_thread.run_sync(work, limiter=limiter)


class _Seen:
    """Holds what the log says of a request."""

    def __init__(self) -> None:
        self.route: ApiRoute | None = None
        self.name = "unknown"


class _Strangers:
    """Bounds how many denials without a valid token are written in a minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minute, self._written, self._left_out = 0, 0, 0

    def count(self) -> int | None:
        """Return how many were left out before this one, which is to be written; None: leave it out as well."""
        minute = int(time.monotonic() // 60)
        with self._lock:
            if minute != self._minute:
                self._minute, self._written = minute, 0
            if self._written >= _MOST_STRANGERS:
                self._left_out += 1
                return None
            self._written += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


async def _nothing(_: Request) -> Response:
    """Stand in the routes that are used to match paths only."""
    return Response()


async def _parts(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yield the body of a request. Raises ApiError as soon as it is too large."""
    too_large = ApiError(
        413, f"it is larger than {most} bytes", where="body", cure="Send less at a time", code="api-too-large"
    )
    length = request.headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length[:20]) > most:
        raise too_large
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise too_large
        yield part


def _check_headers(request: Request) -> None:
    raw = request.scope["headers"]
    if len(raw) > MOST_HEADERS or sum(len(name) + len(value) for name, value in raw) > HEADER_BYTES:
        raise ApiError(
            431,
            f"it has more than {MOST_HEADERS} headers, or more than {HEADER_BYTES} bytes of them",
            cure="Send fewer headers",
            code="api-headers",
        )


def _check_url(request: Request) -> None:
    """Refuse a token in a URL: URLs stand in logs, in histories and in the headers of other requests."""
    pairs = QueryParams(request.scope["query_string"]).multi_items()
    named = any(name.lower().replace("-", "_") in _SECRET_NAMES for name, _ in pairs)
    if named or TOKEN.search(request.scope["path"]) or any(TOKEN.search(f"{name}={text}") for name, text in pairs):
        raise ApiError(
            400,
            "a token in a URL stands in logs and histories, and is not taken",
            where="query",
            cure="Send it in the header Authorization, and revoke it if it was a real one",
            code="api-token-in-url",
        )


def _checked(name: str, value: str) -> str:
    if "\0" in value or len(value) > 200 or any("\ud800" <= one <= "\udfff" for one in value):
        raise ApiError(400, "no id looks like this", where=f"path {name}", cure="Write the id", code="api-request")
    return value


def _no_route(allowed: Sequence[str], method: str) -> ApiError:
    if allowed:
        return ApiError(
            405,
            f"this path has not the method {visible(redact(method[:20]))}",
            cure=f"Use {', '.join(allowed)}",
            code="api-method",
            headers={"Allow": ", ".join(allowed)},
        )
    return ApiError(
        404, "there is no such path", cure=f"See {PREFIX_OF_ALL}/openapi.json for all paths", code="api-route"
    )


def _busy(what: str) -> ApiError:
    return ApiError(503, what, cure="Try again later", code="api-busy", headers={"Retry-After": "5"})


def _unauthorized(what: str, cure: str, *, code: str) -> ApiError:
    return ApiError(
        401, what, where="header Authorization", cure=cure, code=code, headers={"WWW-Authenticate": "Bearer"}
    )
