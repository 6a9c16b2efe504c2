# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The drop-in with a limbo, on ActiveMQ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.stomp.dropins import Listener, consuming, left, new_name, put, settled, until
from tests.brokers import Broker
from tests.dropin.parking import Kept, parking


def test_what_waits_in_the_limbo_comes_back_and_dies_after_its_last_failure(
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
