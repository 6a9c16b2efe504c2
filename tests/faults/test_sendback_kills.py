# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests `redeliver dead replay` as a process that is interrupted or killed: every message stays somewhere."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.brokers.skips import only_if
from tests.cli.running import Running, redeliver
from tests.faults.letters import bodies_in, declare, put_dead_letters
from tests.faults.load import until

pytestmark = pytest.mark.broker

BODIES = [b"letter %04d" % n for n in range(600)]
UNCONFIRMED = 50


@pytest.mark.slow
@pytest.mark.parametrize("progress", [1, 150, 400])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
def test_a_replay_that_is_ended_by_force_loses_nothing(
    every_broker: Broker, how: signal.Signals, progress: int, tmp_path: Path
) -> None:
    source = f"sendback.{how.name}.{progress}".lower()
    dlq = f"dlq.{source}"
    declare(every_broker, source, dlq)
    with connect(every_broker.url) as session:
        put_dead_letters(session, dlq, source, BODIES)
        with Running(tmp_path, "dead", "replay", every_broker.url, dlq, "--json") as process:
            until(lambda: session.depth(source) >= progress, 30, "the replay makes no progress")
            process.signal(how)
            code = process.wait()
    assert code in ((130, 0) if how == signal.SIGINT else (-signal.SIGKILL, 0)), process.err  # 0: it was faster
    done = redeliver(tmp_path, "dead", "replay", every_broker.url, dlq, "--json")
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)["replayed"]
    back, left = bodies_in(every_broker, source), bodies_in(every_broker, dlq)
    assert (set(back), left.total()) == (set(BODIES), 0)
    twice = back.total() - len(BODIES)
    if code == 130:
        told = json.loads(process.out)
        assert told["interrupted"] or told["replayed"] == len(BODIES)  # it was told when all was done
        assert (told["replayed"] + again, twice) == (len(BODIES), 0)
    # In flight, confirmed and not settled yet, or settled in words that a busy broker had not read when the socket
    # was reset: of those it says nothing. In one transaction there is nothing between the two.
    assert twice <= (UNCONFIRMED * 4 if every_broker.kind == "rabbitmq" else 0)
    print(f"\n{every_broker.describe()}: {how.name} at {progress}: {again} were left, {twice} are there twice")


@pytest.mark.slow
def test_a_broker_that_is_killed_under_a_replay_loses_nothing(every_broker: Broker, tmp_path: Path) -> None:
    only_if(every_broker.can_restart, "kill")
    source, dlq = "sendback.broker", "dlq.sendback.broker"
    declare(every_broker, source, dlq)
    with connect(every_broker.url) as session:
        put_dead_letters(session, dlq, source, BODIES)
        process = Running(tmp_path, "dead", "replay", every_broker.url, dlq, "--json")
        until(lambda: session.depth(source) >= 50, 30, "the replay makes no progress")
    every_broker.kill()
    every_broker.start()
    with process:
        process.wait(120)
    assert "Traceback" not in process.err
    done = redeliver(tmp_path, "dead", "replay", every_broker.url, dlq, "--json")
    assert done.returncode == 0, done.stderr
    back, left = bodies_in(every_broker, source), bodies_in(every_broker, dlq)
    assert (set(back), left.total()) == (set(BODIES), 0)
    said = " ".join(process.err.split())
    print(f"\n{every_broker.describe()}: {back.total() - len(BODIES)} are there twice; {said}")
