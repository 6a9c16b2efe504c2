# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests which letters a replay means, where they would go, and what cannot be asked for. No broker is needed."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sqlalchemy import insert

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.message import Destination
from redeliver_mw.operations import Selection, Store, find_operation, show
from redeliver_mw.operations.operation import begin_operation
from redeliver_mw.operations.replay_letters import own_lineage
from redeliver_mw.operations.replay_plan import (
    VERY_QUEUE,
    LetterEdit,
    Routes,
    StoreReplayOptions,
    check_digest,
    find_replay,
    plan_replay,
    preview_of,
)
from redeliver_mw.operations.tables import redirects
from tests.operations.taking import DLQ, put
from tests.pipeline.letters import letter


@pytest.fixture
def filled(store: Store) -> Store:
    """Return a store with six letters.

    Three letters are of orders, one is of bills, one is of a source that nobody knows, and one was consumed from its
    own queue.
    """
    own = {"redeliver_original_destination": "bills", "redeliver_failures_for": "bills"}
    put(
        store,
        *(letter(b"%d" % n, copy_id=f"copy-{n}") for n in range(3)),
        letter(b"bill", own, copy_id="bill"),
        letter(b"stranger", message_id="m"),
        letter(b"self", {"redeliver_original_destination": DLQ.name}, copy_id="self"),
    )
    return store


def redirected(store: Store, **pairs: str) -> None:
    with store.writing() as connection:
        for old, new in pairs.items():
            connection.execute(insert(redirects).values(old=old, new=new, who="ann", at_us=1))


def test_a_preview_counts_letters_by_source_and_by_problem(filled: Store) -> None:
    operation = plan_replay(filled, Selection(), who="ann@host")
    assert (operation.kind, operation.state, operation.total, operation.who) == ("replay", "planned", 6, "ann@host")
    preview = preview_of(filled, operation.operation_id[:-1])
    assert [(one.source, one.target, one.letters) for one in preview.routes] == [
        ("queue:orders", "orders", 3),
        ("queue:bills", "bills", 1),
    ]
    assert sorted((one.why, one.letters) for one in preview.stay) == [
        ("it was consumed from this very queue", 1),
        ("no dead letter: no original destination", 1),
    ]
    assert (preview.letters, preview.going, preview.in_doubt, preview.doubtful_elsewhere) == (6, 4, 0, 0)
    assert preview.brokers == ("host:5672/",)


def test_a_named_target_takes_letters_whose_source_nobody_knows(filled: Store) -> None:
    preview = preview_of(filled, plan_replay(filled, Selection(), to="elsewhere").operation_id)
    assert (preview.going, preview.stay) == (6, ())
    assert {one.target for one in preview.routes} == {"elsewhere"}
    into_itself = preview_of(filled, plan_replay(filled, Selection(), to=DLQ.name).operation_id)
    assert [(one.why, one.letters) for one in into_itself.stay] == [(VERY_QUEUE, 6)]


def test_redirects_are_looked_up_when_the_preview_is_asked_for_and_are_followed(filled: Store) -> None:
    operation = plan_replay(filled, Selection(where='source = "queue:orders"'))
    redirected(filled, orders="new.orders")
    [route] = preview_of(filled, operation.operation_id).routes
    assert (route.source, route.target, route.redirected, route.letters) == ("queue:orders", "new.orders", True, 3)
    redirected(filled, **{"queue:new.orders": "queue:newest"})
    assert preview_of(filled, operation.operation_id).routes[0].target == "newest"
    redirected(filled, newest=DLQ.name)
    assert [one.why for one in preview_of(filled, operation.operation_id).stay] == [VERY_QUEUE]


def test_redirects_that_lead_in_a_circle_end(filled: Store) -> None:
    routes = Routes({"queue:a": "queue:b", "queue:b": "queue:a"})
    assert routes.target("queue:a", "dlq", "") == (Destination("b"), "")
    assert not routes.is_redirected(None)


def test_a_redirect_to_all_subscriptions_of_a_topic_leads_nowhere(store: Store) -> None:
    found, why = Routes({"queue:a": "topic:t"}).target("queue:a", "dlq", "")
    assert found is None
    assert "names no subscription" in why


def test_the_letters_are_frozen(filled: Store) -> None:
    operation = plan_replay(filled, Selection(), most=2)
    put(filled, letter(b"late", copy_id="late"))
    assert preview_of(filled, operation.operation_id).letters == 2


@pytest.mark.parametrize("state", ["discarded", "replaying"])
def test_letters_in_these_states_cannot_be_replayed(store: Store, state: Any) -> None:
    with pytest.raises(ConfigError, match=state):
        plan_replay(store, Selection(state=state))


@pytest.mark.parametrize("to", ["", "topic:t", "queue:"])
def test_a_target_that_cannot_be_meant_is_refused(store: Store, to: str) -> None:
    with pytest.raises(ConfigError):
        plan_replay(store, Selection(), to=to)


@pytest.mark.parametrize(
    "given",
    [
        {"rate": 0},
        {"rate": math.nan},
        {"canary": 0},
        {"canary": "none of it"},
        {"stop_at": "120%"},
        {"wait": -1},
        {"batch": 0},
        {"settles_within": 0},
        {"settles_within": math.inf},
    ],
)
def test_options_that_cannot_be_meant_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        StoreReplayOptions(**given)
    assert caught.value.where == next(iter(given))


def test_options_are_kept_with_the_operation(store: Store) -> None:
    options = StoreReplayOptions(rate=5, canary="1%", wait=7, settles_within=60, transform="a:b", other_broker=True)
    operation = plan_replay(store, Selection(), options=options)
    assert StoreReplayOptions.of(operation) == options
    assert operation.options["settles_within_s"] == 60


def test_an_edit_is_kept_with_the_operation_and_is_for_the_letter_as_it_was_seen(filled: Store) -> None:
    digest = show(filled, "copy-0").letter.digest
    edit = LetterEdit("copy-0", digest, b"\xff", {"x": 1, "tenant": None})
    operation = plan_replay(filled, Selection(ids=["copy-0"]), edit=edit)
    assert LetterEdit.of(operation) == edit
    assert LetterEdit.of(plan_replay(filled, Selection())) is None
    for wrong in (LetterEdit("copy-0", "0" * 64), LetterEdit("copy-9", digest)):
        with pytest.raises(StoreError, match="nothing was sent") as caught:
            plan_replay(filled, Selection(ids=[wrong.dl_id]), edit=wrong)
        assert caught.value.code == "letter-changed"
    with filled.reading() as connection:
        check_digest(connection, filled, edit)


def test_only_a_replay_can_be_resumed(store: Store) -> None:
    other = begin_operation(store, "collect", filter_="", options={}, total=0)
    with pytest.raises(ConfigError, match="is no replay: collect"):
        find_replay(store, other)
    with pytest.raises(StoreError):
        find_replay(store, "2020")
    assert find_operation(store, other).kind == "collect"


def test_the_lineage_of_a_letter_that_nothing_identifies_fits_into_its_header() -> None:
    assert own_lineage("a" * 64) == "a" * 64
    assert len(own_lineage("a" * 65)) == 32
    assert own_lineage("a" * 65) != own_lineage("a" * 66)
