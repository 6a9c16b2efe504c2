# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Reads over HTTP, on each kind of database, as each role: without secrets and without escape sequences."""

from __future__ import annotations

from typing import Any

import pytest

from redeliver_mw.operations import Selection, Store
from redeliver_mw.operations.operation import plan_operation
from tests.api.serving import Served
from tests.operations.taking import DLQ, put
from tests.pipeline.letters import DIED_US, letter


def ids(page: Any) -> list[str]:
    return sorted(one["id"] for one in page["letters"])


def test_letters_come_in_pages_filtered_and_sorted(api: Served) -> None:
    first = api.get("/letters", params={"limit": 2})
    rest = api.get("/letters", params={"limit": 2, "cursor": first["next_cursor"]})
    assert (len(first["letters"]), rest["next_cursor"]) == (2, None)
    assert sorted(ids(first) + ids(rest)) == ["copy-0", "copy-1", "odd"]
    assert ids(api.get("/letters", params={"where": "header.tenant = acme"})) == ["copy-0"]
    assert ids(api.get("/letters", params={"state": "archived"})) == []
    assert ids(api.get("/letters", params={"state": "any", "queue": DLQ.short})) == ["copy-0", "copy-1", "odd"]
    assert ids(api.get("/letters", params={"since": "2026-11-29"})) == ["copy-0", "copy-1", "odd"]
    assert ids(api.get("/letters", params={"since": "2026-11-30"})) == []
    assert ids(api.get("/letters", params={"group_by": "error", "group": "KeyError"})) == ["copy-1"]
    assert ids(api.get("/letters", params={"group_by": "app"})) == ["copy-0", "copy-1", "odd"]
    sizes = [one["bytes"] for one in api.get("/letters", params={"sort": "bytes"})["letters"]]
    assert sizes == [2, 6, 34]


def test_the_fault_of_a_filter_is_marked_on_lines_of_its_own(api: Served) -> None:
    answer = api.client().get("/letters", params={"where": "failures = many"})
    found = answer.json()
    assert (answer.status_code, found["code"], found["where"]) == (400, "filter-syntax", "query where: column 12")
    assert found["cure"].split("\n")[1:] == ["  failures = many", "             ^"]


def test_groups_and_counts(api: Served) -> None:
    found = api.get("/groups", params={"by": "error"})
    assert {one["key"]: one["letters"] for one in found["groups"]} == {"ValueError": 2, "KeyError": 1}
    assert found["by"] == "error"
    assert api.get("/counts") == {"waiting": 3, "replaying": 0, "replayed": 0, "archived": 0, "discarded": 0}


def test_a_letter_has_its_headers_history_and_body_without_secrets(api: Served) -> None:
    found = api.get("/letters/copy-0", "reader")
    assert (found["id"], found["state"], found["died_s"]) == ("copy-0", "waiting", DIED_US / 1e6)
    assert found["error_message"] == "no such lamp, password=***"
    assert (found["headers"]["token"], found["headers"]["tenant"]) == ("***", "acme")
    assert (found["body"], found["body_encoding"]) == ('{"lamp": 1, "password": "***"}', "utf-8")
    assert found["history"] == [
        {"at_s": 1767225600.0, "fingerprint": "0123456789abcdef", "host": "shop-1", "delay_s": 1.5}
    ]


def test_a_body_that_is_not_utf_8_is_shown_in_hex_and_served_byte_for_byte(api: Served) -> None:
    found = api.get("/letters/copy-1")
    assert (found["body"], found["body_encoding"], found["body_cut"]) == ("00 ff", "hex", False)
    exact = api.client().get("/letters/copy-1/body")
    assert (exact.content, exact.headers["content-type"]) == (b"\x00\xff", "application/octet-stream")
    assert exact.headers["content-disposition"] == "attachment"


def test_a_viewer_sees_no_body_and_of_foreign_headers_only_the_names(api: Served) -> None:
    found = api.get("/letters/copy-0", "viewer")
    assert (found["body"], found["body_encoding"], found["decoded"]) == (None, None, None)
    assert (found["headers"]["tenant"], found["headers"]["redeliver_failures"]) == ("***", "3")


@pytest.mark.parametrize("path", ["/letters", "/groups"])
def test_a_viewer_cannot_ask_for_a_header_with_a_filter(api: Served, path: str) -> None:
    where = {"where": 'failures > 1 and (app = x or not header.tenant = "acme")'}
    refused = api.client("viewer").get(path, params=where)
    assert (refused.status_code, refused.json()["code"]) == (403, "api-permission")
    assert api.get(path, "reader", params=where)
    assert api.get(path, "viewer", params={"where": "header.redeliver_failures = 3 and failures > 1"})


def test_escape_sequences_leave_the_server_escaped(api: Served) -> None:
    raw = api.client().get("/letters/odd").content
    assert raw.isascii()
    assert not any(byte < 32 for byte in raw)
    assert api.get("/letters/odd")["headers"]["x\x1b[2J"] == "y\x1b[2J\u202e\x9b"


def test_a_large_body_is_cut_where_it_is_shown_and_whole_where_it_is_fetched(api: Served) -> None:
    body = "ä".encode() * 2_000_000
    with Store(api.store_url) as store:
        put(store, letter(b"x" + body, copy_id="large"))
    found = api.get("/letters/large")
    assert (found["body_cut"], found["body_encoding"], found["bytes"]) == (True, "utf-8", 4_000_001)
    assert len(found["body"].encode()) == 1024 * 1024 - 1  # whole characters
    assert api.client().get("/letters/large/body").content == b"x" + body


def test_a_letter_with_ten_thousand_headers_is_shown(api: Served) -> None:
    with Store(api.store_url) as store:
        put(store, letter(b"x", {f"h{n}": "v" for n in range(10_000)}, copy_id="many"))
    assert len(api.get("/letters/many")["headers"]) == 1000


def test_a_decoder_is_taken_by_the_name_that_the_server_gave_it(api: Served) -> None:
    assert api.get("/letters/copy-0", params={"decoder": "upper"})["decoded"].startswith('{"LAMP"')
    for name, status, code in (
        ("os:system", 400, "api-name"),
        ("failing", 422, "api-decoder"),
    ):
        refused = api.client().get("/letters/copy-0", params={"decoder": name})
        assert (refused.status_code, refused.json()["code"]) == (status, code)
    assert "upper" in api.client().get("/letters/copy-0", params={"decoder": "x"}).json()["cure"]
    assert api.client("viewer").get("/letters/copy-0", params={"decoder": "upper"}).status_code == 403


def test_a_letter_is_meant_by_its_whole_id(api: Served) -> None:
    for path in ("/letters/copy", "/letters/od", "/letters/nothing", "/letters/odd~2/body"):
        missing = api.client().get(path)
        assert (missing.status_code, missing.json()["code"]) == (404, "letter-not-found")


def test_operations_of_whomever_are_listed_and_shown(api: Served) -> None:
    with Store(api.store_url) as store:
        planned = plan_operation(store, "replay", Selection(), options={"rate": 5, "token": "hunter2"}, who="anna")
    [found] = api.get("/operations", "viewer", params={"kind": "replay"})["operations"]
    assert (found["id"], found["who"], found["state"], found["total"]) == (
        planned.operation_id,
        "anna",
        "planned",
        3,
    )
    assert found["options"] == {"rate": 5, "token": "***"}
    shown = api.get(f"/operations/{planned.operation_id}", "viewer")
    assert shown["became"] == {"recovered": 0, "failed_again": 0, "in_flight": 0, "unknown": 0}
    letters = api.get(f"/operations/{planned.operation_id}/letters", "viewer", params={"limit": 2})
    assert ([one["outcome"] for one in letters["letters"]], letters["next_after"]) == ([None, None], 2)
    assert len(api.get(f"/operations/{planned.operation_id}/letters?after=2")["letters"]) == 1
    assert api.client().get(f"/operations/{planned.operation_id[:-1]}").status_code == 404


def test_the_client_learns_what_its_token_may_do(api: Served) -> None:
    found = api.get("/me", "operator")
    assert (found["name"], found["role"]) == ("operator", "operator")
    assert "letters:replay" in found["permissions"]
    assert "letters:edit" not in found["permissions"]
