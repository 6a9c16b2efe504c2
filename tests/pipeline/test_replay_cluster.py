# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests drain, plan and replay on a cluster: consumers and publishers are executors in processes of their own."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.faults.letters import declare, put_dead_letters
from tests.pipeline.replays import body_of, ledger_lines, numbers_in
from tests.pipeline.test_cluster import python, submit, wheel

__all__ = ["python", "wheel"]  # fixtures

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow]

LETTERS = 300
SOURCE, DLQ = "cluster.orders", "dlq.cluster.orders"

JOB = """
import json, os, sys

from redeliver_mw.pipeline import drain, plan, replay, session

if __name__ == "__main__":
    lake, folder, url = sys.argv[1:]
    with open(url) as file:
        url = file.read()
    spark = session()
    drained = drain(spark, url, "dlq.cluster.orders", lake)
    planned = plan(spark, lake, folder)
    done = replay(spark, folder, url, execute=True, canary=20, wait=0, batch=50)
    told = {name: spark.conf.get(f"spark.{name}") for name in ("master", "app.id")}
    print("ANSWER" + json.dumps({
        **told, "driver": os.getpid(), "drained": drained.letters, "planned": planned.letters,
        "replayed": done.replayed, "publishers": done.publishers, "stopped": done.stopped,
    }))
    spark.stop()
"""


@pytest.mark.timeout(900)
def test_dead_letters_are_drained_and_sent_back_by_executors(
    rabbitmq43: Broker, wheel: Path, python: Path, tmp_path: Path
) -> None:
    declare(rabbitmq43, SOURCE, DLQ)
    with connect(rabbitmq43.url) as session:
        put_dead_letters(session, DLQ, SOURCE, [body_of(number) for number in range(LETTERS)])
    package, job, url = tmp_path / f"{wheel.stem}.zip", tmp_path / "job.py", tmp_path / "url"
    shutil.copy(wheel, package)
    job.write_text(JOB)
    url.write_text(rabbitmq43.url)

    answer = submit(package, python, job, tmp_path / "lake", tmp_path / "plan", url)

    counted = [answer[name] for name in ("drained", "planned", "replayed", "publishers", "stopped")]
    assert counted == [LETTERS, LETTERS, LETTERS, 2, ""]
    pids = {line["pid"] for line in ledger_lines(tmp_path / "plan") if "ledger" in line}
    assert len(pids) >= 2
    assert answer["driver"] not in pids
    assert numbers_in(rabbitmq43.url, SOURCE) == Counter(range(LETTERS))
