# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document says what the server does: schemathesis sends what the document allows, and what it does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from redeliver_mw.api.openapi import document_of, statuses_of
from redeliver_mw.api.problems import Problem
from redeliver_mw.api.routes import PREFIX_OF_ALL, ROUTES
from redeliver_mw.api.shapes import hints_of
from tests.api.serving import Served, served


@pytest.fixture(scope="module")
def document(shared: Served) -> Any:
    return shared.get("/openapi.json")


def test_the_document_has_each_route_with_its_permission_and_nothing_else(document: Any) -> None:
    listed = {
        (method.upper(), path): operation["x-permission"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert listed == {(one.method, PREFIX_OF_ALL + one.path): one.permission for one in ROUTES}
    assert document["openapi"] == "3.1.0"
    assert document["security"] == [{"token": []}]


def test_the_names_of_routes_are_unique() -> None:
    assert len({one.name for one in ROUTES}) == len(ROUTES)


def test_each_answer_and_each_problem_has_its_schema(document: Any) -> None:
    assert set(document["components"]["schemas"]["Problem"]["required"]) == set(hints_of(Problem))
    for route in ROUTES:
        answers = document["paths"][PREFIX_OF_ALL + route.path][route.method.lower()]["responses"]
        assert set(answers) == {str(route.status), *map(str, statuses_of(route))}
        if dataclasses.is_dataclass(route.answer):
            name = route.answer.__name__
            schema = document["components"]["schemas"][name]
            assert set(schema["properties"]) == {one.name for one in dataclasses.fields(route.answer)}
            assert schema["additionalProperties"] is False


def test_the_document_is_made_of_the_table_alone(document: Any) -> None:
    assert {name: one for name, one in document.items() if name != "servers"} == document_of(ROUTES)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def fuzzed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('fuzzed')}/store.db"
    else:
        url = request.getfixturevalue("postgres").new_database()
    with served(url) as one:
        yield one


@schemathesis.serializer("application/x-ndjson")
def lines_of(_: Any, value: Any) -> bytes:
    """Return what stands for lines of JSON in a request."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def fuzz(api: Served, examples: int, seed: int) -> int:
    """Send each route so many valid and invalid requests, and return how many were sent."""
    schema = schemathesis.openapi.from_dict(api.get("/openapi.json"))
    headers = {"Authorization": f"Bearer {api.tokens['admin']}"}
    sent = 0

    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith("/events"):
            continue  # an operation that is not over has no end of its events
        modes = [schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE]
        if operation.path.endswith("/import"):
            modes.pop()  # any bytes are a valid upload, whose wrong lines are reported
        for mode in modes:

            @settings(
                max_examples=examples,
                database=None,
                deadline=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
                derandomize=not seed,
            )
            @given(case=operation.as_strategy(generation_mode=mode))
            def check(case: Any) -> None:
                nonlocal sent
                # What has no value is not sent, so that an invalid request may turn into a valid one.
                assume(not any(value in ([], {}, None) for value in (case.query or {}).values()))
                sent += 1
                # JSON Schema cannot say which texts are filters, times, cursors or orders: others are refused.
                case.call_and_validate(base_url=api.url, headers=headers, excluded_checks=[positive_data_acceptance])

            check()
    return sent


def test_no_request_that_schemathesis_finds_ends_in_a_server_error(fuzzed: Served) -> None:
    assert fuzz(fuzzed, 4, 0) > 100


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_no_request_of_many_ends_in_a_server_error(fuzzed: Served) -> None:
    assert fuzz(fuzzed, 100, 1) > 2000
