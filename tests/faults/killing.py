# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Kills consumer and broker under load, and accounts for every message by its body.

A message may be handled, or dead-lettered, more often than once, when a kill came between the handler's end and the
broker's knowledge of it. There may be no message that is in neither place, no healthy one among the dead letters, no
poisonous one among the handled, and no two different dead letters of one message.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.faults.handling import PREFETCH
from tests.faults.load import all_ended, bodies, kill, lines, start, until
from tests.faults.sites import Letter, Site, site_of

CONSUMER_KILLS, BROKER_KILLS = 5, 2


def lose_nothing(way: str, broker: Broker, kind: str, log: Path) -> None:
    """Play the kills, and look at every message. `log` is the consumer's, and new."""
    only_if(broker.can_restart, "kill")
    site, queue = site_of(broker, kind), f"kills.{way}.{kind}"
    site.prepare(queue, bodies(), mature=True)
    _play(way, site, queue, log)
    handled = Counter(line.body for line in lines(log) if line.what == "done")
    letters = site.drain(f"DLQ.{queue}")
    left = site.drain(queue)
    _check_bodies(handled, Counter(letter.body for letter in letters))
    _check_letters(letters, site, queue)
    print(f"\n{way} on {kind}, {broker.describe()}: {_summary(log, handled, letters, left)}")


def _play(way: str, site: Site, queue: str, log: Path) -> None:
    """Kill the consumer five times and the broker twice, each as soon as there was some progress; then let it end."""
    consumer = start(way, site.broker, queue, log)
    try:
        for n in range(CONSUMER_KILLS):
            _wait_for_progress(log, 45)
            if n in (1, 3):
                site.broker.kill()
                site.broker.start()
                _wait_for_progress(log, 20)
            kill(consumer)
            consumer = start(way, site.broker, queue, log)
        until(lambda: all_ended(site, queue, log), 90, "not every message came to its end")
        # A letter that is there twice counts for two: only an empty source has none left that still comes.
        until(lambda: site.settled(queue), 60, "not every message was settled")
    finally:
        kill(consumer)


def _wait_for_progress(log: Path, runs: int) -> None:
    wanted = len(lines(log)) + runs
    until(lambda: len(lines(log)) >= wanted, 60, "the consumer makes no progress")


def _check_bodies(handled: Counter[str], dead: Counter[str]) -> None:
    poison = {body for body in bodies() if body.startswith("poison")}
    assert set(bodies()) - handled.keys() - dead.keys() == set(), "lost"
    assert handled.keys() & poison == set()
    assert dead.keys() == poison
    # A kill can undo at most what was unsettled at that moment: one prefetch window each.
    assert sum(n - 1 for n in handled.values()) <= PREFETCH * (CONSUMER_KILLS + BROKER_KILLS)


def _check_letters(letters: list[Letter], site: Site, queue: str) -> None:
    copies: dict[str, set[str]] = {}
    for body, headers in letters:
        copies.setdefault(body, set()).add(str(headers["redeliver_copy_id"]))
        assert headers["original-destination"] == site.address(queue)
        assert headers["redeliver_failures"] == "4"
    assert {body for body, ids in copies.items() if len(ids) > 1} == set(), (
        "a second dead letter must be the same copy, sent again"
    )


def _summary(log: Path, handled: Counter[str], letters: list[Letter], left: list[Letter]) -> str:
    dead = Counter(letter.body for letter in letters)
    return (
        f"{len(lines(log))} runs; handled twice: {sum(n > 1 for n in handled.values())}; "
        f"dead-lettered twice: {sum(n > 1 for n in dead.values())}; left as duplicates: {len(left)}"
    )
