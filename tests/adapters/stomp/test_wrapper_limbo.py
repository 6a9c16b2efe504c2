# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the drop-in with a limbo, on ActiveMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.stomp.dropins import Listener, consuming, left, new_name, put, settled, until
from tests.brokers import Broker
from tests.dropin.parking import Kept, letters, parking

HEADERS = {f"h{n:02d}": "x" * 9840 for n in range(26)}  # more than a copy may have with ours
OTHERS = [f"other {n}" for n in range(10)]


def test_a_parked_message_comes_back_and_is_dead_lettered_after_its_last_failure(
    activemq63: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, name = Kept(), new_name()

    def fail(listener: Listener, frame: Any) -> None:
        if frame.body != "heals" or listener.attempts("heals") == 1:
            raise ConnectionError("down")

    listener = Listener(fail)
    put(activemq63, name, "heals", "dies", headers={"n": "1"})
    with parking(tmp_path, activemq63.url, journal, monkeypatch) as options:
        with consuming(activemq63, f"/queue/{name}", listener, **options) as conn:
            until(lambda: len(journal.records) == 5 and settled(conn))
        assert listener.counts == {"heals": ["1", "2"], "dies": ["1", "2", "3"]}
        assert sorted(map(str, journal.ways)) == ["None", "None", "park", "park", "park"]
        [letter] = left(activemq63, f"DLQ.{name}", 1)
        assert (letter.body, letter.headers["redeliver_failures"], letter.headers["n"]) == (b"dies", "3", "1")
        assert left(activemq63, name) == []


@pytest.mark.parametrize("with_limbo", [False, True])
def test_a_message_that_cannot_be_copied_stays_or_becomes_a_dead_letter_in_the_limbo_and_others_go_on(
    activemq63: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_limbo: bool
) -> None:
    journal, name = Kept(), new_name()

    def act(_listener: Listener, frame: Any) -> None:
        if frame.body == "big":
            raise ConnectionError("down")

    listener = Listener(act)
    put(activemq63, name, "big", headers=HEADERS)
    put(activemq63, name, *OTHERS)
    with parking(tmp_path, activemq63.url, journal, monkeypatch) as options:
        if not with_limbo:
            options = {"policy": options["policy"], "journal": journal}
        with consuming(activemq63, f"/queue/{name}", listener, **options):
            until(lambda: len(journal.records) == 3 + len(OTHERS))
        assert listener.counts == {"big": ["1", "2", "3"]} | {body: ["1"] for body in OTHERS}
        if not with_limbo:
            assert [message.body for message in left(activemq63, name, 1)] == [b"big"]
            return
        [letter] = letters(tmp_path)
        assert (letter.out.body, letter.reason) == (b"big", "exhausted")
        assert {name: letter.out.headers[name] for name in HEADERS} == HEADERS
        assert left(activemq63, name) == []
