# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses

import pytest

from redeliver_mw.adapter.capabilities import Capabilities, ScheduleRange
from redeliver_mw.message import Destination


@pytest.mark.parametrize(("rest", "hop"), [(0.9, 0.0), (1.0, 1.0), (1.9, 1.0), (3.0, 2.0), (100.0, 4.0)])
def test_a_ladder_takes_the_largest_rung_not_above_the_delay(rest: float, hop: float) -> None:
    assert ScheduleRange((1.0, 2.0, 4.0)).hop(rest) == hop


@pytest.mark.parametrize(("rest", "hop"), [(0.9, 0.0), (1.0, 1.0), (1.9, 1.9), (3600.0, 3600.0)])
def test_a_broker_that_takes_any_delay_takes_all_of_it_from_its_smallest_on(rest: float, hop: float) -> None:
    assert ScheduleRange(smallest=1.0).hop(rest) == hop


def test_a_destination_is_spelled_as_a_plain_client_of_the_broker_would() -> None:
    stomp = Capabilities(dialect="s", broker_kind="a", queue_address="/queue/{name}", topic_address="/topic/{name}")
    assert stomp.address(Destination("orders")) == "/queue/orders"
    assert stomp.address(Destination("prices", "topic")) == "/topic/prices"
    assert Capabilities(dialect="p", broker_kind="r").address(Destination("a{name}b")) == "a{name}b"


def test_an_undeclared_capability_has_the_careful_answer() -> None:
    unknown = Capabilities(dialect="x", broker_kind="x")
    assert unknown.honours == {"accepted"}
    assert not any((unknown.released_uncounted, unknown.cumulative, unknown.atomic_move, unknown.depth))
    assert unknown.schedule is None
    assert unknown.browse == "none"


def test_capabilities_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Capabilities(dialect="x", broker_kind="x").cumulative = True
