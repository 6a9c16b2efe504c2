# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests several processes of one App on a real broker, some of them killed.

That is counts, parked messages, order and the journal.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from redeliver_mw.journal import read_segments
from redeliver_mw.message import Delivery
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.running import Running
from tests.faults.letters import declare, take
from tests.faults.several import DEAD, ORDERED, PRICES, SHARED

pytestmark = pytest.mark.broker

PATIENCE = 90.0
CRASH_SAFE = "limbo='sqlite:///limbo.db', crash_safe=True"


class Run(NamedTuple):
    """Holds a line of `runs`."""

    what: str
    text: str
    count: int
    pid: int


def runs(folder: Path) -> list[Run]:
    file = folder / "runs"
    text = file.read_text() if file.exists() else ""
    lines = (line.split() for line in text[: text.rfind("\n") + 1].splitlines())
    return [Run(what, text, int(count), int(pid)) for what, text, count, pid in lines]


def done(folder: Path) -> set[str]:
    return {run.text for run in runs(folder) if run.what == "done"}


def until(what: Callable[[], bool], running: Running, why: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline, f"{why}\n{running.err}"
        time.sleep(0.05)  # between two looks at other processes


def living(running: Running) -> dict[int, int]:
    """Return the pid of each process that was up last, by number."""
    found = re.findall(r"consuming .*pid=(\d+) process=(\d)", running.err)
    return {int(number): int(pid) for pid, number in found}


def publish(broker: Broker, source: str, texts: list[str]) -> None:
    with connect(broker.url) as session:
        for text in texts:
            session.publish(source, text.encode(), {"customer": text.split(":")[1][0]}, message_id=f"{source}-{text}")


def several(folder: Path, broker: Broker, options: str = "", count: int = 3) -> Running:
    (folder / "shop.py").write_text(f"from tests.faults.several import made\napp = made({options})\n")
    return Running(folder, "run", "shop:app", "--processes", str(count), extra={"REDELIVER_URL": broker.url})


def counts_of(letters: list[Delivery]) -> dict[str, str]:
    return {letter.text: letter.headers["redeliver_failures"] for letter in letters}


@pytest.fixture
def broker(rabbitmq43: Broker) -> Broker:
    declare(rabbitmq43, SHARED, DEAD, *ORDERED)
    return rabbitmq43


@pytest.fixture
def each(every_broker: Broker) -> Broker:
    declare(every_broker, SHARED, DEAD, *ORDERED)
    return every_broker


def test_only_the_message_that_kills_processes_is_dead_lettered_whichever_process_it_kills(
    each: Broker, tmp_path: Path
) -> None:
    fine, failing = [f"fine:{n}" for n in range(120)], [f"failing:{n}" for n in range(12)]
    mixed = [*fine, *failing]
    random.Random(9).shuffle(mixed)
    publish(each, SHARED, mixed)
    with connect(each.url) as session:
        session.publish(SHARED, b"poison", message_id="m-poison")
        with several(tmp_path, each, CRASH_SAFE) as running:
            until(
                lambda: (
                    session.depth(DEAD) >= 13
                    and done(tmp_path) == {*fine}
                    and {letter.text for letter in session.browse(DEAD, 100)} == {*failing, "poison"}
                ),
                running,
                "it does not come to an end",
            )
            running.signal()
            assert running.wait(30) == 0, running.err
    letters = take(each, DEAD)
    assert counts_of(letters) == dict.fromkeys((*failing, "poison"), "3")
    reasons = {letter.text: letter.headers["redeliver_reason"] for letter in letters}
    assert reasons == dict.fromkeys(failing, "exhausted") | {"poison": "crashed"}
    killed = len([run for run in runs(tmp_path) if run.text == "poison"])
    assert len(letters) <= 13 + 4 * killed  # a kill between a confirm and its settle sends it twice
    assert {run.count for run in runs(tmp_path) if run.text in fine} == {1}  # nobody else was counted anything
    assert len({run.pid for run in runs(tmp_path) if run.text == "poison"}) >= 4  # once suspected, three times counted
    assert take(each, SHARED) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_of_processes_lose_nothing_and_no_count_is_too_low(broker: Broker, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    fine, failing = [f"fine:{n}" for n in range(600)], [f"failing:{n}" for n in range(60)]
    mixed = [*fine, *failing]
    dice.shuffle(mixed)
    kills = 0
    with connect(broker.url) as session, several(tmp_path, broker, CRASH_SAFE) as running:
        until(lambda: len(living(running)) == 3, running, "they are not all up")
        publish(broker, SHARED, mixed)
        for _ in range(4):
            at = dice.randrange(100, 600)
            until(lambda least=at: len(runs(tmp_path)) > least, running, "too little happens")
            kills += kill(living(running)[dice.randrange(1, 4)])
            time.sleep(dice.random())
        until(lambda: session.depth(DEAD) >= 60 and done(tmp_path) == {*fine}, running, "it does not come to an end")
        until(lambda: session.depth(SHARED) == 0, running, "something is left")
        running.signal()
        assert running.wait(30) == 0, running.err
    assert kills >= 2
    letters = take(broker, DEAD)
    assert counts_of(letters) == dict.fromkeys(failing, "3")
    assert 60 <= len(letters) <= 60 + 4 * kills  # a kill between a confirm and its settle sends it twice
    assert take(broker, SHARED) == []
    begun = defaultdict[str, list[int]](list)
    for run in runs(tmp_path):
        if run.what == "begin":
            begun[run.text].append(run.count)
    for text in failing:  # a run that was killed is repeated under the same count; none is left out, none goes back
        assert set(begun[text]) == {1, 2, 3}
        assert begun[text] == sorted(begun[text])
        assert len(begun[text]) <= 3 + kills


def kill(pid: int) -> int:
    """Kill a process, and return 1 if it was still there to be killed, else 0."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


def segments_of(folder: Path, pid: int) -> list[str]:
    """Return the names of the segments that a process writes, or has written."""
    return [path.name for path in (folder / "journal").iterdir() if f"-{pid}-" in path.name]


def test_every_attempt_is_in_the_journal_of_its_process_and_none_takes_a_living_ones_segment(
    broker: Broker, tmp_path: Path
) -> None:
    fine = [f"fine:{n}" for n in range(300)]
    with several(tmp_path, broker) as running:
        until(lambda: len(living(running)) == 3, running, "they are not all up")
        publish(broker, SHARED, fine[:150])
        until(lambda: done(tmp_path) == {*fine[:150]}, running, "they are not all handled")
        killed = living(running)[2]
        until(lambda: segments_of(tmp_path, killed) != [], running, "it has not written anything")
        os.kill(killed, signal.SIGKILL)  # who follows closes what that one left open, and no other
        until(lambda: running.err.count("consuming") == 4, running, "it is not started again")
        publish(broker, SHARED, fine[150:])
        until(lambda: done(tmp_path) == {*fine}, running, "they are not all handled")
        running.signal()
        assert running.wait(30) == 0, running.err
    segments = [path.name for path in (tmp_path / "journal").iterdir()]
    assert [name for name in segments if name.startswith("_")] == []
    assert len({name.split("-")[-2] for name in segments}) == 4  # host, pid, run
    written = Counter(record.outcome for record in read_segments(tmp_path / "journal"))
    assert 270 <= written["accepted"] <= 300  # the killed one's last 0.2 seconds may be missing
    assert "closed" not in running.err


def test_without_crash_safe_a_killed_process_forgets_failures_that_are_on_no_copy(
    broker: Broker, tmp_path: Path
) -> None:
    """What was held there begins again at 1 elsewhere, as documented, and nothing is lost."""
    publish(broker, SHARED, ["failing:0"])
    with connect(broker.url) as session, several(tmp_path, broker, "rest=2.0") as running:
        until(lambda: [run.count for run in runs(tmp_path)] == [1, 2], running, "it has not failed twice")
        holder = runs(tmp_path)[-1].pid
        os.kill(holder, signal.SIGKILL)
        until(lambda: session.depth(DEAD) == 1, running, "it is not dead")
        running.signal()
        assert running.wait(30) == 0, running.err
    assert [run.count for run in runs(tmp_path)] == [1, 2, 1, 2, 3]
    assert [run.pid == holder for run in runs(tmp_path)] == [True, True, False, False, False]
    assert counts_of(take(broker, DEAD)) == {"failing:0": "3"}


def test_what_a_killed_process_has_parked_is_published_by_another_and_once(broker: Broker, tmp_path: Path) -> None:
    failing = [f"failing:{n}" for n in range(30)]
    options = "rest=6.0, limbo='sqlite:///limbo.db', delay='park'"
    with connect(broker.url) as session, several(tmp_path, broker, options) as running:
        until(lambda: len(living(running)) == 3, running, "they are not all up")
        publish(broker, SHARED, failing)
        until(lambda: len(runs(tmp_path)) == 30 and session.depth(SHARED) == 0, running, "they are not parked")
        parked = Counter(run.pid for run in runs(tmp_path))
        assert len(parked) == 3
        time.sleep(1.0)  # so that the database has them: that cannot be seen from here
        os.kill(living(running)[1], signal.SIGKILL)
        until(lambda: session.depth(DEAD) == 30, running, "they are not all dead")
        running.signal()
        assert running.wait(30) == 0, running.err
    begun = Counter((run.text, run.count) for run in runs(tmp_path))
    assert begun == {(text, count): 1 for text in failing for count in (1, 2, 3)}
    assert counts_of(take(broker, DEAD)) == dict.fromkeys(failing, "3")


def publish_ordered(broker: Broker, texts: list[str], which: slice) -> None:
    for source in ORDERED:
        publish(broker, source, [f"{text}:{source}" for text in texts][which])


def test_messages_of_a_key_are_handled_in_order_whichever_process_has_their_source(
    each: Broker, tmp_path: Path
) -> None:
    keys, many = "abcdef", 80
    texts = [f"fine:{key}{n}" for n in range(many) for key in keys]
    free = [f"fine:x{n}" for n in range(100)]
    with several(tmp_path, each, "ordered=True") as running:
        until(lambda: len(living(running)) == 3, running, "they are not all up")
        publish(each, SHARED, free)
        half = len(texts) // 2
        publish_ordered(each, texts, slice(0, half))
        owner = next(run.pid for run in runs(tmp_path) if run.text.endswith(ORDERED[0]))
        os.kill(owner, signal.SIGKILL)
        publish_ordered(each, texts, slice(half, None))
        wanted = {f"{text}:{source}" for text in texts for source in ORDERED} | {*free}
        until(lambda: done(tmp_path) == wanted, running, "they are not all handled")
        assert running.err.count("consuming") == 4
        running.signal()
        assert running.wait(30) == 0, running.err
    for source in ORDERED:
        of_source = [run for run in runs(tmp_path) if run.text.endswith(source)]
        for key in keys:
            first = list(dict.fromkeys(run.text for run in of_source if run.text.startswith(f"fine:{key}")))
            assert first == [f"fine:{key}{n}:{source}" for n in range(many)]
        owners = list(dict.fromkeys(run.pid for run in of_source))
        assert len(owners) == 1 + (owner in owners)
        changes = sum(one.pid != other.pid for one, other in pairwise(of_source))
        assert changes == len(owners) - 1  # one after the other
    assert owner in {run.pid for run in runs(tmp_path) if run.text.endswith(ORDERED[0])}
    assert len({run.pid for run in runs(tmp_path) if run.text in free}) >= 3


def test_a_durable_subscription_is_every_processs_or_on_activemq_one_processs(each: Broker, tmp_path: Path) -> None:
    texts = [f"fine:{n}" for n in range(60)]
    wanted = 1 if each.kind == "activemq" else 3
    with several(tmp_path, each, "subscription=True") as running:
        until(lambda: len(living(running)) == wanted, running, "they are not all up")
        publish(each, f"topic:{PRICES}", texts)
        until(lambda: done(tmp_path) == {*texts}, running, "they are not all handled")
        running.signal()
        assert running.wait(30) == 0, running.err
    assert Counter(run.text for run in runs(tmp_path) if run.what == "done") == Counter(texts)
    assert len({run.pid for run in runs(tmp_path)}) == wanted
    assert ("1 of 3 processes" in running.err) == (wanted == 1)
