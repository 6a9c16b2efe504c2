# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dead letters of a real broker are collected over HTTP: begun, followed, paused, resumed and cancelled."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redeliver_mw.api.runs import AT_ONCE, LASTING_AT_ONCE
from redeliver_mw.session import connect
from tests.api.serving import Served, served
from tests.api.test_operations import events
from tests.brokers import Broker
from tests.dead_letters.many_letters import depth, publish_letters
from tests.faults.letters import declare

NOWHERE = "rabbitmq://guest:hunter2@127.0.0.1:1"


@pytest.fixture
def dlq(request: pytest.FixtureRequest) -> str:
    """Return the name of a queue that no other test has."""
    return f"dlq.{abs(hash(request.node.nodeid)):x}"


@pytest.fixture(
    params=[
        "rabbitmq43",
        pytest.param("artemis244", marks=pytest.mark.long),
        pytest.param("activemq63", marks=pytest.mark.long),
    ]
)
def each(request: pytest.FixtureRequest) -> Broker:
    """Return a broker of each kind in turn."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def at_broker(each: Broker, tmp_path: Any) -> Iterator[Served]:
    """Yield a server that knows the broker as `main`, and as `away` a broker that cannot be reached."""
    brokers = {"main": each.url, "away": NOWHERE}
    with served(f"sqlite:///{tmp_path}/store.db", brokers=brokers) as one:
        yield one


def until(api: Served, operation: Any, seen: Callable[[Any], bool]) -> Any:
    """Return the operation as soon as it is as it is to be."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = api.get(f"/operations/{operation['id']}")
        if seen(found):
            return found
        time.sleep(0.05)
    raise AssertionError(found)


def has_ended(operation: Any) -> bool:
    return operation["state"] not in ("planned", "running") and not operation["runs_here"]


@pytest.mark.broker
def test_letters_of_a_named_broker_are_collected_and_the_operation_says_how_many(
    each: Broker, at_broker: Served, dlq: str
) -> None:
    publish_letters(each, dlq, 30)
    begun = at_broker.post("/collect", {"queues": [dlq], "broker": "main", "limit": 10}, "operator", 202)
    assert (begun["kind"], begun["who"], begun["filter"]) == ("collect", "api:operator", dlq)
    assert begun["options"] == {"queues": [dlq], "limit": 10, "follow": False, "broker": "main"}
    done = until(at_broker, begun, has_ended)
    assert (done["state"], done["total"], done["done"], done["failed"]) == ("done", 10, 10, 0)
    assert depth(each, dlq) == 20
    assert at_broker.get("/counts")["waiting"] == 3 + 10
    assert at_broker.post(f"/operations/{begun['id']}/resume", {}, "operator", 409)["code"] == "operation-over"
    [entry] = [one for one in at_broker.get("/audit")["entries"] if one["what"] == "collect" and one["letters"]]
    assert (entry["who"], entry["outcome"], entry["letters"]) == ("api:operator", "success", 10)
    rest = at_broker.post("/collect", {"queues": [dlq], "broker": "main"}, "operator", 202)
    assert until(at_broker, rest, has_ended)["done"] == 20
    assert depth(each, dlq) == 0


@pytest.mark.broker
def test_a_collect_without_an_end_is_followed_paused_resumed_and_cancelled(
    each: Broker, at_broker: Served, dlq: str
) -> None:
    publish_letters(each, dlq, 10)
    asked = {"queues": [dlq], "broker": "main", "follow": True}
    begun = at_broker.post("/collect", asked, "operator", 202)
    steps = f"/operations/{begun['id']}"
    with at_broker.client("viewer").stream("GET", f"{steps}/events") as stream, connect(each.url) as session:
        seen = events(stream.iter_lines())
        assert any(now["done"] == 10 for _, now in seen)
        session.publish(dlq, b"late")
        assert any(now["done"] == 11 for _, now in seen)
        at_broker.post(f"{steps}/pause", {}, "operator")
        assert any(now["state"] == "paused" for _, now in seen)
        until(at_broker, begun, has_ended)
        session.publish(dlq, b"while it is paused")
        assert depth(each, dlq) == 1
        assert at_broker.post(f"{steps}/resume", {"broker": "away"}, "operator", 400)["code"] == "api-name"
        at_broker.post(f"{steps}/resume", {}, "operator", 202)
        assert any(now["done"] == 12 for _, now in seen)
        at_broker.post(f"{steps}/cancel", {}, "operator")
        assert [name for name, _ in seen][-1] == "end"
    ended = until(at_broker, begun, has_ended)
    assert (ended["state"], ended["done"], ended["why"]) == ("cancelled", 12, "")
    assert depth(each, dlq) == 0


@pytest.mark.broker
def test_a_limit_holds_for_all_runs_of_a_collect_together(rabbitmq43: Broker, dlq: str, tmp_path: Any) -> None:
    declare(rabbitmq43, dlq)
    url, brokers = f"sqlite:///{tmp_path}/store.db", {"main": rabbitmq43.url}
    with served(url, brokers=brokers) as api:
        begun = api.post("/collect", {"queues": [dlq], "limit": 5}, status=202)  # there is one broker
        assert until(api, begun, has_ended)["state"] == "done"
        publish_letters(rabbitmq43, dlq, 30)
        begun = api.post("/collect", {"queues": [dlq], "follow": True}, status=202)
        until(api, begun, lambda now: now["done"] == 30)
        tokens = api.tokens
    with served(url, tokens, brokers=brokers) as api:  # the end of a server has paused it
        found = api.get(f"/operations/{begun['id']}")
        assert (found["state"], found["runs_here"]) == ("paused", False)
        api.post(f"/operations/{begun['id']}/cancel", {})


@pytest.mark.broker
@pytest.mark.usefixtures("patient")
def test_what_a_request_names_wrongly_is_refused_and_nothing_is_collected(
    rabbitmq43: Broker, dlq: str, tmp_path: Any
) -> None:
    publish_letters(rabbitmq43, dlq, 3)
    with served(f"sqlite:///{tmp_path}/store.db", brokers={"main": rabbitmq43.url, "away": NOWHERE}) as api:
        missing = {"queues": [dlq, "no.such.queue"], "broker": "main"}
        for asked, status, code in (
            ({"queues": [dlq]}, 400, "api-name"),  # there are two brokers
            ({"queues": [dlq], "broker": "other"}, 400, "api-name"),
            ({"queues": [dlq], "broker": rabbitmq43.url}, 400, "api-name"),  # a URL is no name
            ({"queues": [], "broker": "main"}, 400, "api-request"),
            ({"queues": ["topic:t"], "broker": "main"}, 400, "destination-kind"),
            ({"queues": [dlq], "broker": "main", "limit": 5, "follow": True}, 400, "option-value"),
            (missing, 404, "destination-missing"),
            ({"queues": [dlq], "broker": "away"}, 502, "broker-unavailable"),
        ):
            answer = api.client("operator").post("/collect", json=asked)
            assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
            assert "hunter2" not in answer.text
        assert api.client("reader").post("/collect", json=missing).status_code == 403
        for failed in api.get("/operations?kind=collect&limit=2")["operations"]:
            assert (failed["state"], failed["done"]) == ("failed", 0)
            assert failed["why"]
            assert "hunter2" not in failed["why"]
        assert depth(rabbitmq43, dlq) == 3


@pytest.mark.broker
def test_collects_without_an_end_leave_room_for_other_operations(rabbitmq43: Broker, dlq: str, tmp_path: Any) -> None:
    declare(rabbitmq43, dlq)
    with served(f"sqlite:///{tmp_path}/store.db", brokers={"main": rabbitmq43.url}) as api:
        asked = {"queues": [dlq], "follow": True}
        for _ in range(LASTING_AT_ONCE):
            api.post("/collect", asked, status=202)
        assert api.post("/collect", asked, status=503)["code"] == "api-busy"
        [refused] = [one for one in api.get("/operations")["operations"] if one["state"] == "cancelled"]
        assert refused["done"] == 0
        for _ in range(AT_ONCE):
            planned = api.post("/operations", {"kind": "archive", "selection": {}}, status=201)
            api.post(f"/operations/{planned['id']}/run", {}, status=202)
