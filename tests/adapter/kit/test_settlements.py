# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Settlements reach the adapter's thread in few wake-ups; those of a lost generation are dropped."""

from __future__ import annotations

from redeliver_mw.adapter.capabilities import Settlement
from redeliver_mw.adapter.kit.settlements import SettlementQueue
from redeliver_mw.message import Delivery
from redeliver_mw.testing import make_delivery


class Source:
    """Decides settlements of generation 1, and of no other."""

    def __init__(self) -> None:
        self.decided: list[tuple[Delivery, Settlement]] = []
        self.writes = 0

    def decide(self, delivery: Delivery, settlement: Settlement) -> Source | None:
        if delivery.generation != 1:
            return None
        self.decided.append((delivery, settlement))
        return self

    def write(self) -> None:
        self.writes += 1


def lost() -> Delivery:
    delivery = make_delivery(b"x")
    delivery.generation = 0
    return delivery


def present() -> Delivery:
    delivery = make_delivery(b"x")
    delivery.generation = 1
    return delivery


def test_all_settlements_until_now_are_one_wake_up_and_one_write() -> None:
    source, woken = Source(), []
    settlements: SettlementQueue[Settlement] = SettlementQueue(source.decide, lambda: woken.append(1))
    for _ in range(3):
        settlements.add([(present(), "accepted")], None)
    assert (len(woken), source.writes) == (1, 0)
    settlements.write()
    assert (len(source.decided), source.writes) == (3, 1)
    settlements.add([(present(), "released")], None)
    assert len(woken) == 2


def test_written_is_called_after_the_write_and_not_for_lost_settlements_alone() -> None:
    source, told = Source(), []
    settlements: SettlementQueue[Settlement] = SettlementQueue(source.decide, lambda: None)
    settlements.add([(lost(), "accepted"), (present(), "accepted")], lambda: told.append(source.writes))
    settlements.add([(lost(), "accepted")], lambda: told.append("lost"))
    settlements.write()
    assert told == [1]
