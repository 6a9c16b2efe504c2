# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the OpenAPI 3.1 document from the table of routes. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from http import HTTPStatus
from importlib.metadata import version
from typing import Annotated, Any, Final

from .lines import MEDIA_TYPE as LINES
from .permissions import least_role
from .problems import MEDIA_TYPE, Problem
from .routes import PREFIX_OF_ALL, ApiRoute
from .shapes import Limits, Schema, hints_of, schema_of

# What any request may be answered with: wrong input, a wrong token, no permission, another Host, too many headers, and
# a server or a store that cannot do it now.
ALWAYS: Final = (400, 401, 403, 421, 431, 503)
WITH_BODY: Final = (413, 415)
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_Id = Annotated[str, Limits(least=1, most=200)]


def document_of(routes: Sequence[ApiRoute]) -> Mapping[str, Any]:
    """Return the document."""
    schemas: dict[str, Schema] = {}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(PREFIX_OF_ALL + route.path, {})[route.method.lower()] = _operation(route, schemas)
    schema_of(Problem, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "redeliver-mw",
            "version": version("redeliver-mw"),
            "description": "Dead letters in a store, and the operations on them. Each route names its permission.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def statuses_of(route: ApiRoute) -> list[int]:
    """Return the statuses of problems that a route may answer with."""
    more = WITH_BODY if route.method != "GET" else ()
    return sorted({*ALWAYS, *more, *route.also})


def _operation(route: ApiRoute, schemas: dict[str, Schema]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.about,
        "description": f"Needs the permission {route.permission}, which the role {least_role(route.permission)} has.",
        "parameters": [
            *(
                {"name": name, "in": "path", "required": True, "schema": schema_of(_Id, schemas)}
                for name in _IN_PATH.findall(route.path)
            ),
            *_query(route, schemas),
        ],
        "responses": {
            str(route.status): _answer(route, schemas),
            **{str(status): _problem(status) for status in statuses_of(route)},
        },
        "x-permission": route.permission,
    }
    if route.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of(route.body, schemas)}},
        }
    if route.upload:
        found["requestBody"] = {"required": True, "content": {LINES: {"schema": {"type": "string"}}}}
    return found


def _query(route: ApiRoute, schemas: dict[str, Schema]) -> list[dict[str, Any]]:
    hints = hints_of(route.query)
    found = []
    for field in fields(route.query):
        schema = schema_of(hints[field.name], schemas)
        required = field.default is MISSING and field.default_factory is MISSING
        if "anyOf" in schema:  # a query has no null
            schema = {**schema["anyOf"][0], **{name: one for name, one in schema.items() if name != "anyOf"}}
        if isinstance(schema.get("type"), list):
            schema["type"] = schema["type"][0]
        if not required and field.default is not MISSING and field.default not in (None, ""):
            schema["default"] = field.default
        about = schema.pop("description", "")
        found.append(
            {
                "name": field.name,
                "in": "query",
                "required": required,
                **({"description": about} if about else {}),
                "schema": schema,
            }
        )
    return found


def _answer(route: ApiRoute, schemas: dict[str, Schema]) -> dict[str, Any]:
    if route.answer is not None:
        schema = schema_of(route.answer, schemas)
    else:
        schema = {"type": "string"} if route.media.startswith("text/") else {}
    return {"description": HTTPStatus(route.status).phrase, "content": {route.media: {"schema": schema}}}


def _problem(status: int) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
