# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""The simulated quarter's journal is a real one and holds the troubles it was made with, and the report finds them."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.failure import fingerprint
from redeliver_mw.journal.records import AttemptRecord
from redeliver_mw.journal.segments import read_segments

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "examples" / "quarter"
PARTS = ("day", "shop", "trouble")


@pytest.fixture(scope="module")
def parts() -> Iterator[dict[str, Any]]:
    """Yield the example's own modules, found as a script finds them."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        yield {name: importlib.import_module(name) for name in PARTS}
    finally:
        sys.path.remove(str(EXAMPLE))
        for name in PARTS:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def outage(parts: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> list[AttemptRecord]:
    """Return the records of July 14, some 1400 attempts, when the warehouse was down from 13:05 for 42 minutes."""
    return attempts(parts, day=13, messages=700, folder=tmp_path_factory.mktemp("outage"))


def attempts(parts: dict[str, Any], *, day: int, messages: int, folder: Path, seed: int = 1) -> list[AttemptRecord]:
    told = parts["day"].run(parts["day"].Day(day, 0, messages, seed), folder)
    found = list(read_segments(folder))
    assert Counter((record.destination, record.outcome) for record in found) == told
    return found


def run(out: Path, *arguments: str, warnings: str = "error") -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (REPOSITORY, REPOSITORY / "adapters")))
    argv = [sys.executable, str(EXAMPLE / "main.py"), "--out", str(out), *arguments]
    env = os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": warnings}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=800, check=False)


@pytest.mark.slow
def test_the_example_prints_what_it_says_it_prints_and_writes_every_attempt(tmp_path: Path) -> None:
    done = run(tmp_path / "quarter", "--attempts", "3000", "--journal-only", "--processes", "2")
    assert (done.returncode, done.stdout) == (0, (EXAMPLE / "expected_output.txt").read_text()), done.stderr
    assert "WarehouseBusy" not in done.stderr  # simulated failures are in the journal, and not in a log
    records = list(read_segments(tmp_path / "quarter" / "journal"))
    assert 3000 <= len(records) <= 3300
    assert len({record.record_id for record in records}) == len(records)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_small_quarter_goes_all_the_way_to_a_report_that_finds_what_went_wrong(tmp_path: Path) -> None:
    done = run(tmp_path / "quarter", "--attempts", "50000", "--processes", "2", warnings="default")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"The report: {tmp_path / 'quarter' / 'report.html'}\n")
    page = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", (tmp_path / "quarter" / "report.html").read_text()))
    for queue, error in (("payments", "CardDeclined"), ("mails", "MailboxUnknown"), ("invoices", "KeyError")):
        # with at least 73 messages none of which healed; fewer would not be enough to say so
        assert re.search(f"Stop retrying failure [0-9]+ in {queue} : {error}: ", page), queue
    for queue in ("orders", "payments", "mails"):
        assert re.search(f"{queue} : ((change the|keep the|try another) policy|not known)", page), queue


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters").write_text("dear all")
    done = run(tmp_path, "--attempts", "10", "--journal-only")
    assert done.returncode == 2
    assert "holds something else" in done.stderr
    assert (tmp_path / "letters").read_text() == "dear all"


def test_the_same_seed_gives_the_same_attempts_at_the_same_instants(parts: dict[str, Any], tmp_path: Path) -> None:
    def seen(folder: str, seed: int) -> list[tuple[object, ...]]:
        found = attempts(parts, day=3, messages=60, folder=tmp_path / folder, seed=seed)
        return [(r.ts_us, r.message_key, r.destination, r.outcome, r.error_type, r.delay_us) for r in found]

    once = seen("one", 5)
    assert once == seen("two", 5)
    assert once != seen("three", 6)


def test_a_day_lies_on_its_own_date(parts: dict[str, Any], outage: list[AttemptRecord]) -> None:
    begin = parts["trouble"].FIRST_DAY.timestamp() + 13 * 86_400  # July 14
    starts = [record.first_attempt_us / 1e6 - begin for record in outage]
    assert min(starts) >= 0
    assert max(starts) < 86_400 + 3600  # what is sent at midnight may wait for a busy consumer


def test_the_records_are_those_of_the_real_middleware(outage: list[AttemptRecord]) -> None:
    failed = [record for record in outage if record.error_type]
    assert all(
        record.error_fingerprint == fingerprint(str(record.error_type), list(record.error_frames or ()))
        for record in failed
    )
    busy = next(record for record in failed if record.error_type == "WarehouseBusy")
    assert busy.error_frames == ["shop:Shop.on_order", "shop:Services.reserve"]
    histories = defaultdict(list)
    for record in outage:
        histories[record.message_key, record.generation].append(record)
    for history in histories.values():
        assert [record.delivery_count for record in history] == list(range(1, len(history) + 1))
        for before, after in pairwise(history):
            assert before.outcome == "redelivered"
            assert before.delay_us is not None
            assert after.ts_us >= before.ts_us + before.delay_us  # never early


def test_a_marketplace_hands_over_orders_by_the_quarter_of_an_hour(parts: dict[str, Any]) -> None:
    sent = parts["day"].Day(3, 0, 6000, 1).sent()
    orders = [message.at % 900 == 0 for message in sent if message.queue == "orders"]
    assert abs(sum(orders) - 0.3 * len(orders)) < 80  # some 1940 orders: four standard deviations
    assert not any(message.at % 900 == 0 for message in sent if message.queue == "mails")


def test_during_an_outage_all_calls_fail_and_its_dead_letters_are_sent_back(
    parts: dict[str, Any], outage: list[AttemptRecord]
) -> None:
    [span] = [
        span
        for span in parts["trouble"].OUTAGES["warehouse"]
        if span.begin < outage[-1].ts_us / 1e6 < span.end + 86_400
    ]
    orders = [record for record in outage if record.destination == "orders"]
    down = [r for r in orders if span.begin + 1 < (r.ts_us - r.handler_us) / 1e6 < span.end - 1]
    assert len(down) > 50
    assert {record.error_type for record in down} == {"WarehouseDown"}
    dead = {record.message_key for record in down if record.outcome == "dead_lettered"}
    back = {record.message_key for record in orders if record.generation == 1}
    assert len(dead) > 10
    assert dead <= back


def test_a_body_of_the_new_format_fails_every_time_and_one_of_the_old_does_not(
    parts: dict[str, Any], tmp_path: Path
) -> None:
    found = attempts(parts, day=51, messages=400, folder=tmp_path)  # August 21
    invoices = [record for record in found if record.destination == "invoices"]
    broken = {record.message_key for record in invoices if record.error_type == "KeyError"}
    ends = Counter((r.outcome, r.message_key in broken) for r in invoices if r.outcome != "redelivered")
    assert ends["dead_lettered", True] == len(broken) > 3
    assert ends["accepted", True] == 0
    assert ends["accepted", False] > 10


def test_a_used_up_quota_is_waited_out_to_the_minute(parts: dict[str, Any], tmp_path: Path) -> None:
    found = attempts(parts, day=73, messages=300, folder=tmp_path)  # September 12, a sale
    limited = [r for r in found if r.destination == "payments" and r.error_type == "RetryAfter"]
    assert len(limited) > 5
    first = [r for r in limited if r.delivery_count == 1 and r.outcome == "redelivered"]
    again = {(r.message_key, r.delivery_count): r.ts_us - r.handler_us for r in found}
    for record in first:
        assert (again[record.message_key, 2] // 1_000_000) % 60 <= 20  # the quota is there


def test_some_orders_wait_longer_so_that_the_journal_can_tell_more(outage: list[AttemptRecord]) -> None:
    arms = Counter(record.policy_arm for record in outage if record.destination == "orders")
    assert set(arms) == {"main", "patient"}
    assert {record.propensity for record in outage if record.policy_arm == "patient"} == {0.05}
    assert {record.policy_arm for record in outage if record.destination == "mails"} == {None}
