# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests a pulling loop with a limbo."""

from __future__ import annotations

from pathlib import Path

import pytest

from redeliver_mw import RedeliveryPolicy, connect
from redeliver_mw.errors import ConfigError
from redeliver_mw.limbo import Limbo


def test_what_is_parked_comes_round_in_the_same_loop(tmp_path: Path) -> None:
    url, policy = f"sqlite:///{tmp_path / 'limbo.db'}", RedeliveryPolicy(3, 0.2)
    counts: list[int] = []
    with connect("memory://pulls-from-limbo") as session:
        session.publish("orders", b"one")
        for delivery in session.deliveries("orders", policy=policy, delay="park", limbo=url, timeout=1.0):
            with delivery as message:
                counts.append(message.delivery_count)
                if len(counts) < 3:
                    raise ConnectionError("down")
        assert counts == [1, 2, 3]
        assert session.depth("orders") == 0


def test_a_loop_that_ends_leaves_what_it_parked_to_the_next_program(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'limbo.db'}"
    policy = RedeliveryPolicy(3, 3600.0)
    with connect("memory://leaves-in-limbo") as session:
        session.publish("orders", b"one")
        for delivery in session.deliveries("orders", policy=policy, limbo=url, delay="park", timeout=0.5, app_name="s"):
            with delivery:
                raise ConnectionError("down")
        assert session.depth("orders") == 0
        with Limbo(url, app="s", broker=session.broker) as limbo:
            assert limbo.next_due() is not None


def test_to_park_without_a_limbo_is_refused() -> None:
    with connect("memory://no-limbo") as session, pytest.raises(ConfigError, match="needs a limbo"):
        next(session.deliveries("orders", delay="park"))
