# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the outages that processes share: which of several writers is first, and which failures are known."""

from __future__ import annotations

import threading

from redeliver_mw.operations import Store
from redeliver_mw.operations.shared_outages import SharedOutages
from tests.operations.taking import put
from tests.pipeline.letters import letter


def test_a_failure_that_a_letter_of_the_store_has_is_not_new(url: str) -> None:
    with Store(url) as store:
        put(store, letter(b"a", {"redeliver_error_fingerprint": "0123456789abcdef"}))
    shared = SharedOutages(url, "shop")
    assert shared.known({"0123456789abcdef", "fedcba9876543210"}) == {"0123456789abcdef"}
    shared.close()


def test_only_one_of_several_writers_is_first(url: str) -> None:
    first, second = SharedOutages(url, "shop"), SharedOutages(url, "shop")
    assert first.read() == second.read() == (0, "")
    assert first.write(0, "one", {"f1"}, 1)
    assert not second.write(0, "two", {"f2"}, 2)
    assert second.read() == (1, "one")
    assert second.write(1, "two", {"f2"}, 3)
    assert not first.write(1, "three", {"f3"}, 4)
    assert first.known({"f1", "f2", "f3"}) == {"f1", "f2"}
    other = SharedOutages(url, "another")
    assert other.read() == (0, "")
    for one in (first, second, other):
        one.close()


def test_many_writers_lose_nothing(url: str) -> None:
    counts = []

    def count() -> None:
        shared, done = SharedOutages(url, "shop"), 0
        while done < 10:
            version, text = shared.read()
            done += shared.write(version, str(int(text or 0) + 1), (), 0)
        shared.close()
        counts.append(done)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [10] * 4
    shared = SharedOutages(url, "shop")
    assert shared.read()[1] == "40"
    shared.close()
