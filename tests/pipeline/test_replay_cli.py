# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests what `redeliver pipeline replay` prints, its exit codes, and letters that were only looked at."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from redeliver_mw.cli.main import run
from redeliver_mw.pipeline import Lake, drain, plan
from redeliver_mw.session import connect
from tests.brokers import Broker
from tests.cli.running import Running
from tests.faults.letters import declare
from tests.faults.load import until
from tests.pipeline.replays import body_of, ledger_lines, make_plan, numbers_in, taken, template

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.broker, pytest.mark.spark]
Capture = pytest.CaptureFixture[str]


def said(capsys: Capture, *words: str | Path, code: int = 0) -> tuple[str, str]:
    assert run(["pipeline", "replay", *map(str, words)]) == code, capsys.readouterr().err
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def test_without_execute_it_tells_what_there_is_and_sends_nothing(
    rabbitmq43: Broker, lake: Lake, tmp_path: Path, capsys: Capture
) -> None:
    names = ("rp.cli", "dlq.rp.cli")
    made = make_plan(lake, tmp_path / "plan", rabbitmq43.url, template(rabbitmq43, *names), *names, 40)
    out, err = said(capsys, tmp_path / "plan", rabbitmq43.url)
    assert [line.split() for line in out.splitlines() if "left" in line] == [["40", "left", "queue:rp.cli"]]
    assert out.endswith(f"0 of 40 replayed, replay id {made.plan_id}\n")
    assert err == "note: nothing was sent; say --execute to send them\n"
    assert numbers_in(rabbitmq43.url, names[0]) == Counter()


def test_with_execute_it_sends_all_and_once(
    rabbitmq43: Broker, spark: SparkSession, lake: Lake, tmp_path: Path, capsys: Capture
) -> None:
    names = ("rp.cli", "dlq.rp.cli")
    make_plan(lake, tmp_path / "plan", rabbitmq43.url, template(rabbitmq43, *names), *names, 40)
    words = (tmp_path / "plan", rabbitmq43.url, "--execute", "--canary", "10", "--wait", "0", "--json")
    done = json.loads(said(capsys, *words)[0])
    assert (done["replayed"], done["sent"], done["stopped"], done["in_doubt"]) == (40, 40, "", 0)
    assert done["canary"] | {"waited_s": 0} == {
        "letters": 10,
        "died": 0,
        "decided": None,
        "verdict": "passed",
        "waited_s": 0,
    }
    assert json.loads((tmp_path / "plan" / "report.json").read_text()) == done
    again = json.loads(said(capsys, *words)[0])
    assert (again["replayed"], again["sent"]) == (40, 0)
    assert numbers_in(rabbitmq43.url, names[0]) == Counter(range(40))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--canary", "none"], "'none' is no canary"),
        (["--stop-at", "20"], "'20' is no share"),
        (["--rate", "0"], "0.0 messages a second"),
        (["--publishers", "0"], "0 publishers"),
    ],
)
def test_what_cannot_be_meant_is_reported_before_anything_is_looked_at(
    options: list[str], what: str, tmp_path: Path, capsys: Capture
) -> None:
    _, err = said(capsys, tmp_path / "nowhere", "rabbitmq://guest:secret@127.0.0.1:1", *options, code=2)
    assert what in err
    assert "secret" not in err


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_ctrl_c_ends_it_in_good_order(rabbitmq43: Broker, lake: Lake, tmp_path: Path) -> None:
    names, folder = ("rp.cli", "dlq.rp.cli"), tmp_path / "plan"
    make_plan(lake, folder, rabbitmq43.url, template(rabbitmq43, *names), *names, 3000)
    words = ("pipeline", "replay", str(folder), rabbitmq43.url, "--execute", "--rate", "100", "--master", "local[2]")
    with Running(tmp_path, *words, "--json") as process:
        until(lambda: any("done" in line for line in ledger_lines(folder)), 200, "no progress")
        process.signal(signal.SIGINT)
        assert process.wait(120) == 130, process.err
    done = json.loads(process.out)
    assert (done["interrupted"], done["in_doubt"], done["stopped"]) == (True, 0, "interrupted")
    assert "Traceback" not in process.err
    there = numbers_in(rabbitmq43.url, names[0])
    assert there.total() == len(there) == done["replayed"] < 3000


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_speculative_execution_is_refused(rabbitmq43: Broker, lake: Lake, tmp_path: Path) -> None:
    names, folder = ("rp.cli", "dlq.rp.cli"), tmp_path / "plan"
    make_plan(lake, folder, rabbitmq43.url, template(rabbitmq43, *names), *names, 3)
    words = ("pipeline", "replay", str(folder), rabbitmq43.url, "--execute", "--conf", "spark.speculation=true")
    with Running(tmp_path, *words) as process:
        assert process.wait(200) == 2
    assert "speculative execution would send letters twice" in process.err
    assert not (folder / "ledger").exists()


@pytest.mark.parametrize("name", ["activemq63"])
def test_letters_that_were_only_looked_at_come_off_their_queue_when_they_are_sent_and_no_others(
    name: str, request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> None:
    broker: Broker = request.getfixturevalue(name)
    source, dlq = "rp.peek", "dlq.rp.peek"
    declare(broker, source, dlq)
    headers = {
        "redeliver_reason": "exhausted",
        "redeliver_failures": "3",
        "redeliver_failures_for": source,
        "redeliver_original_destination": source,
        "redeliver_original_kind": "queue",
        "redeliver_generation": "0",
    }
    with connect(broker.url) as session:
        for number in range(30):
            own = {"redeliver_copy_id": f"{number:032x}", "redeliver_lineage": f"line-{number}", "redeliver_hop": "1"}
            session.publish(dlq, body_of(number), headers | own)
        assert drain(spark, broker.url, dlq, tmp_path / "lake", peek=True).letters == 30
        assert session.depth(dlq) == 30
        made = plan(spark, tmp_path / "lake", tmp_path / "plan", where="dl_id >= '" + "0" * 30 + "0a'")
        assert made.letters == 20
        # One more that is like one of them, but for its id.
        session.publish(dlq, body_of(15), headers | {"redeliver_copy_id": "f" * 32, "redeliver_lineage": "other"})
    assert run(["pipeline", "replay", str(tmp_path / "plan"), broker.url, "--execute"]) == 0
    assert numbers_in(broker.url, source) == Counter(range(10, 30))
    left = {(one.headers["redeliver_copy_id"], one.body) for one in taken(broker.url, dlq)}
    assert left == {(f"{n:032x}", body_of(n)) for n in range(10)} | {("f" * 32, body_of(15))}
