# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Turns errors into problem details as RFC 9457 describes them. No answer holds a traceback or a secret."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import Response

from ..errors import BrokerError, ConfigError, NotCopyable, RedeliverError, StoreError
from ..redaction import redact, visible

log = logging.getLogger("redeliver_mw.api")

MEDIA_TYPE: Final = "application/problem+json"
# Every answer: nobody keeps it, and no page of another site shows or runs it.
HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)
_NOT_FOUND: Final = frozenset(
    {"control-app", "control-source", "letter-not-found", "operation-not-found", "redirect-missing"}
)
_CONFLICT: Final = frozenset(
    {"control-no-breaker", "letter-changed", "operation-kind", "operation-over", "operation-running"}
)


class ApiError(RedeliverError):
    """Refuses a request, with the status of the answer and further headers of it."""

    def __init__(
        self,
        status: int,
        what: str,
        *,
        where: str = "",
        cure: str = "",
        code: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Name the status, and what a RedeliverError names."""
        super().__init__(what, where=where, cure=cure, code=code)
        self.status, self.headers = status, dict(headers or {})


@dataclass(frozen=True, slots=True)
class Problem:
    """Describes why a request failed.

    `type` is always about:blank, so `title` says what the status says. `code` names the cause and stays the same from
    release to release; `where` is the part of the request that is wrong, `cure` what to do about it.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    where: str
    cure: str


def problem_of(error: BaseException) -> tuple[Problem, Mapping[str, str]]:
    """Return the problem that an error is for the client, and the headers of the answer.

    An error that is none of the library's is logged with its traceback, under a reference that the answer names.
    """
    if not isinstance(error, RedeliverError):
        reference = secrets.token_hex(4)
        log.error("a request has failed, reference %s", reference, exc_info=error)
        error = ApiError(
            500,
            f"an error of the server, reference {reference}",
            cure="Look for the reference in the log of the server, and report what stands there",
            code="api-failed",
        )
    status = status_of(error)
    # The place of an error of the store or of a broker is an address of the server's, and not the client's affair.
    where = error.where.removeprefix("--") if isinstance(error, ApiError | ConfigError) else ""
    headers = error.headers if isinstance(error, ApiError) else {}
    return problem(status, error.what, where, error.cure, error.code), headers


def status_of(error: RedeliverError) -> int:
    """Return the status of the answer to a request that this error has ended."""
    if isinstance(error, ApiError):
        return error.status
    if error.code in _NOT_FOUND:
        return 404
    if error.code in _CONFLICT:
        return 409
    if isinstance(error, ConfigError):
        # A store that does not fit is no fault of the request.
        return 503 if error.code.startswith("store-") and error.code != "store-cursor" else 400
    if isinstance(error, StoreError):
        return 503
    if isinstance(error, BrokerError):
        return 502
    return 409 if isinstance(error, NotCopyable) else 500


def problem(status: int, what: str, where: str, cure: str, code: str) -> Problem:
    """Return a problem whose texts hold neither secrets nor characters that steer a terminal."""
    # A cure may have lines, such as a filter and a mark below its fault.
    shown = [visible(redact(what)), visible(redact(where)), visible(redact(cure), lines=True)]
    return Problem("about:blank", HTTPStatus(status).phrase, status, shown[0], code, shown[1], shown[2])


def problem_response(error: BaseException) -> Response:
    """Return the answer to a request that an error has ended."""
    found, headers = problem_of(error)
    return Response(
        as_json({name: getattr(found, name) for name in Problem.__dataclass_fields__}),
        found.status,
        {**HEADERS, **headers},
        MEDIA_TYPE,
    )


def as_json(value: Any) -> bytes:
    """Return JSON in ASCII: what could steer a terminal is escaped, and so is what UTF-8 cannot encode."""
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
