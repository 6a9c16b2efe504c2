# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests who is let in, and with which requests: tokens, roles on every route, hosts, content types and sizes."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from redeliver_mw.api.permissions import ALLOWED, may
from redeliver_mw.api.routes import ROUTES, ApiRoute
from redeliver_mw.operations import Store
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.operation import now_us
from redeliver_mw.operations.tokens import ROLES, Role, add_token, revoke_token, tokens
from tests.api.serving import Served

UNSAFE = "/operations/nothing/pause"


def path_of(route: ApiRoute) -> str:
    return route.path.replace("{id}", "nothing").replace("{app}", "nothing")


def asked(api: Served, role: Role | None, route: ApiRoute, **more: Any) -> Any:
    body = {} if route.method == "GET" else {"json": {}}
    return api.client(role).request(route.method, path_of(route), **body, **more)


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert (found["status"], found["code"]) == (status, code)
    assert "Traceback" not in answer.text
    assert 'File "' not in answer.text
    return found


# -- roles and routes -------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: f"{one.method} {one.path}")
def test_a_route_is_open_to_the_roles_that_have_its_permission_and_to_nobody_else(
    shared: Served, route: ApiRoute
) -> None:
    for role in ROLES:
        answer = asked(shared, role, route)
        if may(role, route.permission):
            assert answer.status_code not in (401, 403), (role, answer.text)
            assert answer.status_code < 500
        else:
            problem(answer, 403, "api-permission")
    problem(asked(shared, None, route), 401, "api-token-missing")


def test_each_role_may_do_all_that_the_one_before_it_may() -> None:
    assert [ALLOWED[one] < ALLOWED[other] for one, other in pairwise(ROLES)] == [True] * 3
    assert "letters:read" not in ALLOWED["viewer"]
    assert not {"letters:replay", "letters:archive", "letters:note"} - ALLOWED["operator"]
    assert {"letters:edit", "letters:discard", "apps:control"} <= ALLOWED["admin"] - ALLOWED["operator"]


def test_a_path_that_no_table_names_is_hidden_from_strangers_and_not_found_by_others(shared: Served) -> None:
    problem(shared.client(None).get("/nothing"), 401, "api-token-missing")
    problem(shared.client("admin").get("/nothing"), 404, "api-route")
    problem(shared.client("admin").get("/../../etc/passwd"), 404, "api-route")
    wrong = shared.client("admin").put("/letters", json={})
    problem(wrong, 405, "api-method")
    assert wrong.headers["allow"] == "GET"


def test_a_denial_of_a_known_token_is_audited(shared: Served) -> None:
    shared.client("viewer").get("/letters/copy-0/body")
    with Store(shared.store_url) as store:
        entry = last_entries(store, 1)[0]
    assert (entry.who, entry.what, entry.outcome) == ("api:viewer", "body", "denied")
    assert "letters:exact" in entry.why
    assert shared.get("/audit", "reader", params={"limit": 1})["entries"][0]["who"] == "api:viewer"


# -- tokens -----------------------------------------------------------------------------------------


@pytest.fixture
def made(shared: Served) -> Iterator[tuple[Store, str]]:
    """Yield a store, and a token that only one test has."""
    with Store(shared.store_url) as store:
        token, text = add_token(store, "short", "reader", expires_s=3600, who="a test")
        yield store, text
        with store.writing() as connection:
            connection.execute(tokens.delete().where(tokens.c.token_id == token.token_id))


def with_header(api: Served, value: str) -> Any:
    return api.client(None).get("/me", headers={"Authorization": value})


def test_wrong_expired_and_revoked_tokens_are_refused(shared: Served, made: tuple[Store, str]) -> None:
    store, text = made
    assert with_header(shared, f"Bearer {text}").json()["name"] == "short"
    assert with_header(shared, f"bearer  {text}").status_code == 200
    flipped = text[:-1] + ("A" if text[-1] != "A" else "B")
    wrong = ("Bearer", "Bearer x", f"Basic {text}", text, f"Bearer {flipped}", f"Bearer {text} {text}")
    for value in (*wrong, f"Bearer {text}{text}"):
        answer = with_header(shared, value)
        problem(answer, 401, "api-token-wrong")
        assert answer.headers["www-authenticate"] == "Bearer"
    with store.writing() as connection:
        connection.execute(tokens.update().where(tokens.c.name == "short").values(expires_us=now_us()))
    problem(with_header(shared, f"Bearer {text}"), 401, "api-token-expired")
    with store.writing() as connection:
        connection.execute(tokens.update().where(tokens.c.name == "short").values(expires_us=now_us() + 10**9))
    revoke_token(store, "short")
    problem(with_header(shared, f"Bearer {text}"), 401, "api-token-wrong")
    entry = last_entries(store, 1)[0]
    assert (entry.who, entry.outcome) == ("api:short (revoked)", "denied")


def test_the_store_holds_no_token(shared: Served, made: tuple[Store, str]) -> None:
    store, text = made
    with store.reading() as connection:
        rows = connection.execute(tokens.select()).all()
    secret = text.split("_", 2)[2]  # the secret itself may have one
    assert secret not in str(rows)
    assert text not in str(rows)


def test_two_authorizations_are_none(shared: Served) -> None:
    text = f"Bearer {shared.tokens['admin']}"
    answer = shared.client(None).get("/me", headers=[("Authorization", text), ("Authorization", text)])
    problem(answer, 401, "api-token-wrong")


@pytest.mark.parametrize(
    "path",
    ["/letters?token={}", "/letters?access_token={}", "/letters?where=id%3D{}", "/letters?Api-Key=x", "/letters/{}"],
)
def test_a_token_in_a_url_is_refused_and_not_logged(
    shared: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    token = shared.tokens["admin"]
    with caplog.at_level(logging.DEBUG):
        answer = shared.client("admin").get(path.format(token))
    assert "revoke it" in problem(answer, 400, "api-token-in-url")["cure"]
    assert token not in answer.text
    # The client logs what it sends, and pytest gives the log of uvicorn, which is off, a handler.
    said = [one for one in caplog.records if not one.name.startswith(("http", "uvicorn.access"))]
    assert said
    assert [one for one in said if token in one.getMessage()] == []
    with Store(shared.store_url) as store:
        assert token not in str(last_entries(store))


def test_strangers_cannot_fill_the_audit(shared: Served) -> None:
    with Store(shared.store_url) as store:
        before = len(last_entries(store, 10_000))
        for _ in range(150):
            shared.client(None).get("/me")
        assert len(last_entries(store, 10_000)) - before <= 121  # sixty a minute, in two minutes at most


# -- requests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1", "a b"]
)
def test_a_host_that_the_server_was_not_told_is_refused(shared: Served, host: str) -> None:
    problem(shared.client("admin").get("/me", headers={"Host": host}), 421, "api-host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8600", "127.0.0.1:1", "[::1]:8600"])
def test_the_names_of_the_loopback_are_accepted(shared: Served, host: str) -> None:
    assert shared.client("admin").get("/me", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "application/jsonx"]
)
def test_an_unsafe_method_needs_json(shared: Served, kind: str) -> None:
    answer = shared.client("admin").post(UNSAFE, content=b"{}", headers={"Content-Type": kind})
    problem(answer, 415, "api-content-type")


@pytest.mark.parametrize(
    "body",
    [b"{", b"nul", b"[]", b'{"x": 1}', b'{"\xff": 1}', b'"' + b"\\ud800" + b'"', b"[" * 100_000, b"NaN"],
)
def test_a_body_that_is_not_the_json_that_is_asked_for_is_refused(shared: Served, body: bytes) -> None:
    answer = shared.client("admin").post(UNSAFE, content=body, headers={"Content-Type": "application/json"})
    problem(answer, 400, "api-request")


def test_a_body_that_is_too_large_is_refused_with_and_without_its_length(shared: Served) -> None:
    kind = {"Content-Type": "application/json"}
    body = b'"' + b"x" * (1024 * 1024) + b'"'
    problem(shared.client("admin").post(UNSAFE, content=body, headers=kind), 413, "api-too-large")
    parts = (body[at : at + 65536] for at in range(0, len(body), 65536))
    problem(shared.client("admin").post(UNSAFE, content=parts, headers=kind), 413, "api-too-large")


def test_many_headers_are_refused(shared: Served) -> None:
    many = {f"x-{n}": "y" for n in range(200)}
    problem(shared.client("admin").get("/me", headers=many), 431, "api-headers")
    problem(shared.client("admin").get("/me", headers={"x": "y" * 40_000}), 431, "api-headers")
    host, port = shared.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:  # ten thousand are more than the server reads
        lines = "".join(f"x-{n}: y\r\n" for n in range(10_000))
        line.sendall(f"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        assert line.recv(1000).startswith(b"HTTP/1.1 4")
    assert shared.get("/me")["name"] == "admin"


@pytest.mark.parametrize(
    ("path", "where"),
    [
        ("/letters?limit=0", "query limit"),
        ("/letters?limit=1001", "query limit"),
        ("/letters?limit=1e3", "query limit"),
        ("/letters?limit=1&limit=2", "query limit"),
        ("/letters?state=lost", "query state"),
        ("/letters?nothing=1", "query"),
        ("/letters?queue=%00", "query queue"),
        ("/letters?group=x", "query group"),
        ("/letters?group_by=day&group=monday", "day"),
        ("/letters?cursor=x", "cursor"),
        ("/letters?sort=weight", "query sort"),
        ("/letters?since=monday", "query since"),
        ("/letters?where=failures+%3E", "query where"),
        ("/letters?cursor=" + "x" * 300, "query cursor"),
        ("/groups?by=colour", "query by"),
        ("/letters/%00", "path id"),
    ],
)
def test_a_wrong_parameter_is_named_with_the_cure(shared: Served, path: str, where: str) -> None:
    answer = shared.client("admin").get(path)
    assert answer.status_code == 400, answer.text
    found = answer.json()
    assert found["where"].startswith(where)
    assert found["cure"]


def test_no_answer_allows_another_site_anything(shared: Served) -> None:
    foreign = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answers = [
        shared.client("admin").get("/letters", headers=foreign),
        shared.client("admin").options("/letters", headers=foreign),
        shared.client(None).options("/letters", headers=foreign),
    ]
    for answer in answers:
        assert [name for name in answer.headers if name.startswith("access-control")] == []
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers or "redeliver" not in answer.headers["server"]
    problem(answers[1], 405, "api-method")


def test_a_head_request_has_the_status_and_no_body(shared: Served) -> None:
    answer = shared.client("admin").head("/counts")
    assert (answer.status_code, answer.content) == (200, b"")
    assert shared.client("admin").head("/operations/nothing/events").status_code == 405
