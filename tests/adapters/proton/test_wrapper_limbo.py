# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in with a limbo, on Artemis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import proton
import pytest

from tests.adapters.proton.dropins import Consumer, Queues, drive, unsettled
from tests.brokers import Broker
from tests.dropin.parking import Kept, letters, parking

PROPERTIES = {f"h{n:02d}": "x" * 4000 for n in range(33)}  # more than a copy may have with ours
OTHERS = [f"other {n}" for n in range(10)]


def test_a_parked_message_comes_back_and_is_dead_lettered_after_its_last_failure(
    artemis244: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, q = Kept(), Queues(artemis244)

    def fail(event: Any) -> None:
        if event.message.body != "heals" or len(consumer.counts["heals"]) == 1:
            raise ConnectionError("down")

    consumer = Consumer(artemis244, q.name, fail)
    properties = {"n": proton.int32(1), "price": 1.75}
    q.put("heals", "dies", properties=properties, correlation_id="c")
    with parking(tmp_path, artemis244.url, journal, monkeypatch) as options:
        drive(consumer, lambda: len(journal.records) == 5 and not unsettled(consumer), **options)
    assert consumer.counts == {"heals": [1, 2], "dies": [1, 2, 3]}
    assert sorted(map(str, journal.ways)) == ["None", "None", "park", "park", "park"]
    [letter] = q.dead()
    assert (letter.body, letter.properties["redeliver_failures"]) == ("dies", "3")
    assert {name: letter.properties[name] for name in properties} == properties
    assert isinstance(letter.properties["n"], proton.int32)
    assert q.left() == []


@pytest.mark.parametrize("with_limbo", [False, True])
def test_a_message_that_cannot_be_copied_stays_or_becomes_a_dead_letter_in_the_limbo_and_others_go_on(
    artemis244: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_limbo: bool
) -> None:
    journal, q = Kept(), Queues(artemis244)

    def act(event: Any) -> None:
        if event.message.body == "big":
            raise ConnectionError("down")

    consumer = Consumer(artemis244, q.name, act)
    q.put("big", properties=PROPERTIES)
    q.put(*OTHERS)
    with parking(tmp_path, artemis244.url, journal, monkeypatch) as options:
        if not with_limbo:
            options = {"policy": options["policy"], "journal": journal}
        drive(consumer, lambda: len(journal.records) == 3 + len(OTHERS), **options)
    assert consumer.counts == {"big": [1, 2, 3]} | {body: [1] for body in OTHERS}
    if not with_limbo:
        assert q.left() == ["big"]
        return
    [letter] = letters(tmp_path)
    assert (letter.reason, {name: letter.out.headers[name] for name in PROPERTIES}) == ("exhausted", PROPERTIES)
    assert q.left() == []
