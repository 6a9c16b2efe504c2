# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Operates over HTTP, on each kind of database: plans with an exact count, runs, follows, pauses, and audits."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from redeliver_mw.api.app import Api
from redeliver_mw.api.retention import remove_bodies
from redeliver_mw.operations import Store, page
from redeliver_mw.operations.operation import take_operation
from redeliver_mw.operations.selection import Selection
from redeliver_mw.operations.tokens import revoke_token
from tests.api.serving import Served, served
from tests.operations.taking import packed, put
from tests.pipeline.letters import letter


def plan(api: Served, kind: str, role: Any = "admin", status: int = 201, **more: Any) -> Any:
    return api.post("/operations", {"kind": kind, "selection": {}, **more}, role, status)


def run(api: Served, operation: Any, role: Any = "admin") -> Any:
    """Run an operation, and return it when it is over."""
    api.post(f"/operations/{operation['id']}/run", {}, role, 202)
    until = time.monotonic() + 20
    while time.monotonic() < until:
        found = api.get(f"/operations/{operation['id']}")
        if found["state"] not in ("planned", "running"):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def states(api: Served) -> dict[str, int]:
    return {name: number for name, number in api.get("/counts").items() if number}


def test_letters_are_archived_and_restored_with_the_count_that_was_planned(api: Served) -> None:
    planned = plan(api, "archive", "operator", selection={"where": "error = KeyError"}, expected=1)
    assert (planned["total"], planned["state"], planned["who"]) == (1, "planned", "api:operator")
    done = run(api, planned, "operator")
    assert (done["state"], done["done"], done["failed"]) == ("done", 1, 0)
    assert states(api) == {"waiting": 2, "archived": 1}
    over = api.post(f"/operations/{planned['id']}/run", {}, "operator", 409)
    assert over["code"] == "operation-over"
    assert run(api, plan(api, "restore", "operator"), "operator")["done"] == 1
    assert states(api) == {"waiting": 3}

    def actions() -> list[tuple[object, ...]]:
        return [(one["who"], one["what"], one["outcome"], one["letters"]) for one in api.get("/audit")["entries"]]

    assert actions()[:1] == [("api:operator", "restore", "success", 1)]
    assert ("api:operator", "archive", "success", 1) in actions()


def test_a_plan_that_means_another_number_than_expected_is_refused(api: Served) -> None:
    refused = plan(api, "archive", expected=2, status=409)
    assert refused["code"] == "api-count-changed"
    assert "3 letters" in refused["detail"]
    assert [one["state"] for one in api.get("/operations?kind=archive")["operations"]] == ["cancelled"]


def test_a_discarded_letter_stays_in_the_store_and_can_be_restored(api: Served) -> None:
    before = [one.body for one in _exact(api)]
    denied = plan(api, "discard", "operator", 403)
    assert denied["code"] == "api-permission"
    assert run(api, plan(api, "discard"))["done"] == 3
    assert states(api) == {"discarded": 3}
    assert [one.body for one in _exact(api)] == before
    assert run(api, plan(api, "restore", "operator"), "operator")["done"] == 3
    assert states(api) == {"waiting": 3}
    denials = [one for one in api.get("/audit")["entries"] if one["outcome"] == "denied"]
    assert [(one["who"], one["what"]) for one in denials] == [("api:operator", "plan")]


def _exact(api: Served) -> Any:
    with Store(api.store_url) as store:
        return packed(store)


@pytest.mark.parametrize("kind", ["replay", "archive", "restore", "discard", "expire"])
def test_reading_roles_plan_and_end_nothing(api: Served, kind: str) -> None:
    more = {"expire": {"older_than_s": 1}} if kind == "expire" else {}
    planned = plan(api, kind, **more)
    for role in ("viewer", "reader"):
        assert plan(api, kind, role, 403, **more)["code"] == "api-permission"
        for what in ("run", "resume", "pause", "cancel"):
            assert api.post(f"/operations/{planned['id']}/{what}", {}, role, 403)["code"] == "api-permission"
    assert api.get(f"/operations/{planned['id']}")["state"] == "planned"


def test_an_edit_needs_more_than_a_replay_and_a_letter_that_is_as_it_was_read(api: Served) -> None:
    found = api.get("/letters/copy-0")
    edit = {"id": "copy-0", "digest": found["digest"], "body": "mended"}
    given = {"selection": {"ids": ["copy-0"]}, "replay": {"edit": edit}}
    assert plan(api, "replay", "operator", 403, **given)["code"] == "api-permission"
    planned = plan(api, "replay", **given)
    assert planned["total"] == 1
    assert "mended" not in api.client().get(f"/operations/{planned['id']}").text
    assert api.post(f"/operations/{planned['id']}/run", {}, "operator", 403)["code"] == "api-permission"
    stale = given | {"replay": {"edit": edit | {"digest": "0" * 64}}}
    assert plan(api, "replay", status=409, **stale)["code"] == "letter-changed"
    others = given | {"selection": {"ids": ["copy-0", "copy-1"]}}
    assert plan(api, "replay", status=400, **others)["code"] == "api-request"


def test_a_replay_names_what_the_server_was_given_and_nothing_else(api: Served) -> None:
    assert plan(api, "replay", status=400, replay={"transform": "os:system"})["code"] == "api-name"
    planned = plan(api, "replay", "operator", replay={"rate": 5, "canary": "1", "stop_at": "10%"})
    preview = api.get(f"/operations/{planned['id']}/preview", "viewer")
    assert [(one["to"], one["letters"]) for one in preview["routes"]] == [("orders", 3)]
    for body in ({}, {"broker": "amqp://evil.example"}):
        refused = api.post(f"/operations/{planned['id']}/run", body, "operator", 400)
        assert refused["code"] == "api-name"
    assert api.get(f"/operations/{planned['id']}")["state"] == "planned"


def test_a_broker_that_is_away_is_the_answer_and_the_replay_can_go_on(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('away')}/store.db"
    with served(url, brokers="rabbitmq://guest:hunter2@127.0.0.1:1/") as api:
        planned = plan(api, "replay", "operator", replay={"other_broker": True})
        answer = api.client("operator").post(f"/operations/{planned['id']}/run", json={})
        assert "hunter2" not in answer.text
        if answer.status_code == 202:  # the driver has tried for longer than a request waits
            until = time.monotonic() + 60
            while api.get(f"/operations/{planned['id']}")["runs_here"] and time.monotonic() < until:
                time.sleep(0.1)
        else:
            assert (answer.status_code, answer.json()["code"]) == (502, "broker-unavailable")
        found = api.get(f"/operations/{planned['id']}")
        assert (found["state"], found["done"], found["runs_here"]) == ("paused", 0, False)
        assert "hunter2" not in found["why"]
        assert states(api) == {"waiting": 3}


def test_an_operation_that_runs_elsewhere_is_not_run_here(api: Served) -> None:
    planned = plan(api, "archive")
    with Store(api.store_url) as store:
        take_operation(store, planned["id"])
    assert api.post(f"/operations/{planned['id']}/run", {}, status=409)["code"] == "operation-running"


def test_an_operation_that_was_paused_is_not_lost_and_can_be_cancelled(api: Served) -> None:
    planned = plan(api, "archive")
    assert api.post(f"/operations/{planned['id']}/pause", {})["state"] == "paused"
    assert run(api, planned)["state"] == "done"
    other = plan(api, "restore")
    assert api.post(f"/operations/{other['id']}/cancel", {})["state"] == "cancelled"
    entries = [(one["what"], one["operation_id"]) for one in api.get("/audit?limit=3")["entries"]]
    assert entries == [("cancel", other["id"]), ("archive", planned["id"]), ("pause", planned["id"])]
    assert api.post(f"/operations/{other['id']}/resume", {}, status=409)["code"] == "operation-over"


# -- events -----------------------------------------------------------------------------------------


def events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_events_follow_an_operation_to_its_end(api: Served) -> None:
    planned = plan(api, "archive")
    with api.client("viewer").stream("GET", f"/operations/{planned['id']}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        seen = events(stream.iter_lines())
        assert next(seen)[1]["state"] == "planned"
        run(api, planned)
        rest = list(seen)
    assert rest[-1][0] == "end"
    assert (rest[-1][1]["state"], rest[-1][1]["done"]) == ("done", 3)


def test_a_stream_ends_with_its_token_and_with_the_server(tmp_path_factory: pytest.TempPathFactory) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('streams')}/store.db"
    with served(url) as api:
        planned = plan(api, "archive")
        path = f"/operations/{planned['id']}/events"
        with api.client("viewer").stream("GET", path) as stream:
            seen = events(stream.iter_lines())
            next(seen)
            with Store(url) as store:
                revoke_token(store, "viewer")
            assert [(name, one["code"]) for name, one in seen] == [("problem", "api-token-wrong")]
        with api.client("reader").stream("GET", path) as stream:
            seen = events(stream.iter_lines())
            next(seen)
            ending = threading.Timer(0.2, api.app.end_streams)
            ending.start()
            assert list(seen) == []


# -- the end of the server --------------------------------------------------------------------------


def test_an_operation_that_runs_at_the_end_of_the_server_can_go_on(url: str) -> None:
    with Store(url) as store:
        put(store, *(letter(b"%d" % n, copy_id=f"many-{n:04d}") for n in range(2000)))
    with served(url) as api:
        planned = plan(api, "archive")
        api.post(f"/operations/{planned['id']}/run", {}, status=202)
        tokens = api.tokens
    with Store(url) as store:
        waiting = len(page(store, Selection(state="waiting"), limit=5000).letters)
        archived = len(page(store, Selection(state="archived"), limit=5000).letters)
    assert waiting + archived == 2003
    with served(url, tokens) as api:
        found = api.get(f"/operations/{planned['id']}")
        assert (found["state"], found["done"]) == ("done" if waiting == 0 else "paused", archived)
        if waiting:
            assert run(api, planned)["done"] == 2003


# -- notes, redirects, files ------------------------------------------------------------------------


def test_notes_are_written_on_letters_and_groups(api: Served) -> None:
    api.post("/notes", {"letter": "copy-1", "text": "the shelf is empty"}, "operator", 201)
    api.post("/notes", {"group": {"by": "error", "value": "KeyError"}, "text": "known"}, "operator", 201)
    found = api.get("/notes", "viewer", params={"letter": "copy-1"})["notes"]
    assert [(one["target"], one["text"], one["who"]) for one in found] == [
        ("letter", "the shelf is empty", "api:operator"),
        ("error", "known", "api:operator"),
    ]
    assert api.post("/notes", {"text": "x"}, status=400)["code"] == "api-request"
    assert api.post("/notes", {"letter": "nothing", "text": "x"}, status=404)["code"] == "letter-not-found"


def test_redirects_are_added_listed_and_removed(api: Served) -> None:
    assert api.post("/redirects", {"old": "orders", "new": "orders2"}, status=201)["new"] == "queue:orders2"
    assert [one["old"] for one in api.get("/redirects", "viewer")["redirects"]] == ["queue:orders"]
    assert api.post("/redirects", {"old": "orders2", "new": "orders"}, status=400)["code"] == "redirect-circle"
    assert api.post("/redirects/remove", {"old": "orders"})["redirects"] == []
    assert api.post("/redirects/remove", {"old": "orders"}, status=404)["code"] == "redirect-missing"


def test_what_is_exported_is_imported_byte_for_byte(api: Served, tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = api.client().get("/export").content
    assert len(lines.splitlines()) == 3
    assert api.client().get("/export", params={"where": "error = KeyError"}).content.count(b"\n") == 1
    other = f"sqlite:///{tmp_path_factory.mktemp('other')}/store.db"
    with served(other) as there:
        run(there, plan(there, "discard"))
        kind = {"Content-Type": "application/x-ndjson"}
        again = there.client().post("/import", content=lines + b"no letter\n", headers=kind).json()
        assert (again["added"], again["again"], again["wrong"]) == (0, 3, 1)
        assert len(again["errors"]) == 1
        one = there.client().post("/import", content=lines, headers={"Content-Type": "application/json"})
        assert (one.status_code, one.json()["code"]) == (415, "api-content-type")
        assert [one.body for one in _exact(there)] == [one.body for one in _exact(api)]


def test_an_import_that_is_too_large_stores_nothing(tmp_path_factory: pytest.TempPathFactory) -> None:
    with served(f"sqlite:///{tmp_path_factory.mktemp('large')}/store.db", max_upload=1000) as api:
        kind = {"Content-Type": "application/x-ndjson"}
        refused = api.client().post("/import", content=b"x" * 1001, headers=kind)
        assert (refused.status_code, refused.json()["code"]) == (413, "api-too-large")
        assert [one["kind"] for one in api.get("/operations")["operations"]] == ["collect"]


def test_bodies_are_removed_when_they_were_kept_for_long_enough(api: Served) -> None:
    run(api, plan(api, "archive", selection={"ids": ["copy-1"]}))
    with Store(api.store_url) as store:
        remove_bodies(store, 3600, threading.Event())
        assert api.client().get("/letters/copy-1/body").content == b"\x00\xff"
        time.sleep(1.1)
        remove_bodies(store, 1, threading.Event())
    assert api.client().get("/letters/copy-1/body").json()["code"] == "api-body-removed"
    found = api.get("/letters/copy-1")
    assert (found["body"], found["body_removed"], found["headers"]["tenant"]) == (None, True, "zenith")
    assert api.get("/letters/copy-0")["body_removed"] is False
    assert [one["who"] for one in api.get("/operations?kind=expire")["operations"]] == ["api:retention"]


def test_a_store_that_is_away_is_the_answer_and_no_traceback(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("gone")
    with served(f"sqlite:///{folder}/store.db") as api:
        assert isinstance(api.app, Api)
        assert api.get("/counts")
        (folder / "store.db").rename(folder / "elsewhere.db")
        answer = api.client().get("/counts")
        assert (answer.status_code, answer.json()["code"]) == (503, "store-file-missing")
        assert str(folder) not in answer.text
        (folder / "elsewhere.db").rename(folder / "store.db")
        assert states(api) == {"waiting": 3}
