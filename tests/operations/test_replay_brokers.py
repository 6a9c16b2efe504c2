# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Dead letters sent back from the store to real brokers: each once, where it came from, whatever goes wrong."""

from __future__ import annotations

import pytest

from redeliver_mw.operations import Selection, Store
from redeliver_mw.operations.replay import run_replay
from redeliver_mw.operations.replay_plan import plan_replay, preview_of
from tests.brokers import Broker
from tests.operations.filling import arrived, fill

pytestmark = pytest.mark.broker

THREE = ["rabbitmq43", "artemis244", "activemq63"]


@pytest.fixture(params=THREE)
def each(request: pytest.FixtureRequest) -> Broker:
    """One of each kind."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def source(request: pytest.FixtureRequest) -> str:
    """A queue that no other test has."""
    return f"orders.{abs(hash(request.node.nodeid)):x}"


def test_letters_go_back_to_their_source_once_and_in_order(each: Broker, source: str, file_store: Store) -> None:
    bodies = [b"\x00\xff%04d" % n for n in range(300)]
    fill(each, file_store, source, bodies)
    operation = plan_replay(file_store, Selection())
    preview = preview_of(file_store, operation.operation_id)
    assert (operation.total, preview.letters, preview.going) == (300, 300, 300)
    assert [(one.source, one.target) for one in preview.routes] == [(f"queue:{source}", source)]
    seen: list[tuple[int, int]] = []
    done = run_replay(
        file_store, operation.operation_id, each.url, progress=lambda *how_far: seen.append(how_far), who="ann@host"
    )
    assert done.whole, done
    assert (done.sent, done.left, done.in_doubt, done.stopped) == (300, 0, 0, "")
    assert seen[-1] == (300, 300)
    found = arrived(each, source)
    assert [one.body for one in found] == bodies
    assert {one.headers["redeliver_replay_id"] for one in found} == {operation.operation_id}
    assert {one.headers["redeliver_generation"] for one in found} == {"1"}
    assert found[7].headers["redeliver_lineage"] == f"dlq.{source}-7"
