# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the journal against real files, real processes, real kills and a disk that is really full."""

from __future__ import annotations

import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from redeliver_mw.errors import ConfigError
from redeliver_mw.journal import Journal, read_segments
from redeliver_mw.journal.records import FIELDS, AttemptRecord, to_line
from redeliver_mw.journal.segments import recover
from tests.disks import fill, small_disk_at

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills, forks and locks of POSIX")


def make(number: int = 0, **changes: Any) -> AttemptRecord:
    values: dict[str, Any] = {
        "ts_us": 1_790_000_000_000_000,
        "app": "shop",
        "host": "web-1",
        "broker": "memory",
        "broker_kind": "memory",
        "destination": "orders",
        "destination_kind": "queue",
        "message_key": f"k{number}",
        "generation": 0,
        "delivery_count": 1,
        "broker_redelivered": False,
        "outcome": "accepted",
        "policy": "3:1000",
        "policy_version": "abcd",
        "handler_us": 1200,
        "queue_us": 10,
        "first_attempt_us": 1_790_000_000_000_000,
        "attempts_total": number,
        "payload_bytes": 17,
    }
    return AttemptRecord(**{**values, **changes})


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def opened(directory: Path, **options: Any) -> Iterator[Journal]:
    journal = Journal(directory, **{"flush_interval": 0.01, **options})
    try:
        yield journal
    finally:
        journal.close()


def numbers(directory: Path) -> list[int]:
    return [record.attempts_total for record in read_segments(directory)]


def names(directory: Path, pattern: str) -> list[str]:
    return sorted(path.name for path in directory.glob(pattern))


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a Python process that knows `make` and `Journal`, and whose stdin and stdout are pipes."""
    head = "import os, sys\nfrom redeliver_mw.journal import Journal\nfrom tests.journal.test_journal import make\n"
    command = [sys.executable, "-c", head + program, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def ended(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


# Writing


def test_what_is_appended_is_read_back_in_order_with_ids_of_one_run(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        for number in range(1000):
            journal.append(make(number))
    records = list(read_segments(tmp_path))
    assert [record.attempts_total for record in records] == list(range(1000))
    assert len({record.record_id for record in records}) == 1000
    assert len({record.record_id.partition("-")[0] for record in records}) == 1
    assert journal.dropped == 0


def test_a_record_a_row_a_function_and_a_batch_are_all_taken(tmp_path: Path) -> None:
    row = tuple(getattr(make(2), name) for name in FIELDS)
    with opened(tmp_path) as journal:
        journal.append(make(1))
        journal.append(row)
        journal.append((make, 3))
        journal.append(lambda: [make(4), (make, 5)])
        journal.append(lambda: None)
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


def test_records_are_made_and_written_off_the_appending_thread(tmp_path: Path) -> None:
    seen: list[int] = []

    def build() -> AttemptRecord:
        seen.append(threading.get_ident())
        return make()

    with opened(tmp_path) as journal:
        journal.append(build)
        assert journal.flush()
    assert seen
    assert threading.get_ident() not in seen


def test_while_it_is_written_a_segment_has_a_name_that_spark_passes_over(tmp_path: Path) -> None:
    with opened(tmp_path, host="web-1.example") as journal:
        journal.append(make(1))
        assert journal.flush()
        (name,) = os.listdir(tmp_path)
        assert name.startswith(f"_seg-web-1.example-{os.getpid()}-")
        assert name.endswith(".jsonl.open")
        assert (tmp_path / name).read_bytes().endswith(b"}\n")
        assert numbers(tmp_path) == []
    assert os.listdir(tmp_path) == [name.removeprefix("_").removesuffix(".open")]


def test_a_hosts_name_cannot_lead_out_of_the_directory(tmp_path: Path) -> None:
    with opened(tmp_path / "j", host="../../x y") as journal:
        journal.append(make(1))
    assert numbers(tmp_path / "j") == [1]
    assert os.listdir(tmp_path) == ["j"]


def test_every_record_reaches_the_file_without_being_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path, flush_interval=0.02) as journal:
        for number in range(1, 4):
            journal.append(make(number))
            deadline = time.monotonic() + 10
            while sum(path.read_bytes().count(b"\n") for path in tmp_path.iterdir()) < number:
                assert time.monotonic() < deadline
                threading.Event().wait(0.01)


def test_segments_rotate_by_size_at_whole_lines(tmp_path: Path) -> None:
    line = len(to_line(make(10, record_id="0123456789ab-10")))
    with opened(tmp_path, max_bytes=10 * line) as journal:
        for number in range(100):
            journal.append(make(number))
    paths = list(tmp_path.glob("seg-*.jsonl"))
    assert 10 <= len(paths) <= 12
    assert all(path.stat().st_size <= 10 * line for path in paths)
    assert numbers(tmp_path) == list(range(100))


def test_a_line_longer_than_a_segment_has_one_of_its_own(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=1000) as journal:
        journal.append(make(1))
        journal.append(make(2, error_text="x" * 5000, outcome="redelivered"))
        journal.append(make(3))
    assert numbers(tmp_path) == [1, 2, 3]
    assert len(names(tmp_path, "seg-*")) == 3


def test_a_segment_is_closed_at_its_age_by_the_injected_clock(tmp_path: Path) -> None:
    clock = HandClock()
    with opened(tmp_path, max_age=60.0, clock=clock) as journal:
        journal.append(make(1))
        assert journal.flush()
        clock.now += 59.9
        journal.append(make(2))
        assert journal.flush()
        assert names(tmp_path, "seg-*") == []
        clock.now += 0.1
        journal.append(make(3))
        assert journal.flush()
        journal.flush()  # the turn that wrote the third has ended
        assert numbers(tmp_path) == [1, 2, 3]


def test_an_idle_segment_is_closed_at_its_age_too(tmp_path: Path) -> None:
    with opened(tmp_path, max_age=0.05) as journal:
        journal.append(make(1))
        deadline = time.monotonic() + 10
        while numbers(tmp_path) != [1]:
            assert time.monotonic() < deadline
            threading.Event().wait(0.01)


def test_a_journal_without_records_makes_neither_file_nor_thread(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with opened(tmp_path):
        assert not set(threading.enumerate()) - before
    assert os.listdir(tmp_path) == []


def test_closing_twice_is_closing_once_and_later_records_count_as_dropped(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.append(make(1))
    journal.close()
    journal.close()
    journal.append(make(2))
    assert numbers(tmp_path) == [1]
    assert journal.dropped == 1


def test_a_program_that_never_closes_its_journal_finds_it_closed(tmp_path: Path) -> None:
    process = child("journal = Journal(sys.argv[1])\njournal.append(make(7))\n", tmp_path)
    with ended(process):
        assert process.wait(30) == 0
    assert numbers(tmp_path) == [7]


def test_surrogates_and_an_exception_text_of_200_kb_are_one_line_each(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        journal.append(make(1, error_message="\udcff", outcome="redelivered"))
        journal.append(make(2, error_text="line\n" * 40_000, outcome="redelivered"))
        journal.append(make(3))
    records = list(read_segments(tmp_path))
    assert [record.attempts_total for record in records] == [1, 2, 3]
    assert records[0].error_message == "\\udcff"
    assert records[1].error_text == "line\n" * 40_000


def test_a_record_that_cannot_be_made_or_written_is_lost_alone_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as journal:
        journal.append(make(1))
        for bad in (lambda: 1 / 0, (1, 2, 3), object(), make(0, app=object())):
            journal.append(bad)
        journal.append(make(2))
    assert numbers(tmp_path) == [1, 2]
    assert journal.dropped == 4
    assert [record.name for record in caplog.records] == ["redeliver_mw.journal"]


def test_a_log_handler_that_raises_does_not_stop_the_journal(tmp_path: Path) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no log today")

    logger, handler = logging.getLogger("redeliver_mw.journal"), Broken()
    logger.addHandler(handler)
    try:
        with opened(tmp_path) as journal:
            journal.append(lambda: 1 / 0)
            assert journal.flush()
            journal.append(make(1))
            assert journal.flush()
    finally:
        logger.removeHandler(handler)
    assert numbers(tmp_path) == [1]


def test_no_more_than_the_bound_waits_and_the_rest_is_counted(tmp_path: Path) -> None:
    gate, entered = threading.Event(), threading.Event()

    def slow() -> AttemptRecord:
        entered.set()
        gate.wait(30)
        return make(0)

    with opened(tmp_path, max_waiting=10) as journal:
        journal.append(slow)
        assert entered.wait(10)
        for number in range(1, 26):
            journal.append(make(number))
        assert journal.dropped == 15
        gate.set()
    assert numbers(tmp_path) == list(range(11))


def test_many_threads_lose_nothing(tmp_path: Path) -> None:
    def append_from(journal: Journal, start: int) -> None:
        for number in range(start, start + 2000):
            journal.append((make, number))

    with opened(tmp_path) as journal:
        starts = range(0, 8000, 2000)
        threads = [threading.Thread(target=append_from, args=(journal, start)) for start in starts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers(tmp_path)) == list(range(8000))


@pytest.mark.parametrize("fsync", ["never", "rotate", "always"])
def test_every_way_to_sync_writes_the_same(tmp_path: Path, fsync: str) -> None:
    with opened(tmp_path, fsync=fsync) as journal:
        journal.append(make(1))
    assert numbers(tmp_path) == [1]


def test_a_directory_that_cannot_be_made_is_refused_with_the_cure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError) as refused:
            Journal(place)
        assert str(place) in str(refused.value)
        assert refused.value.cure


@pytest.mark.parametrize(
    "options",
    [{"max_bytes": 0}, {"max_age": 0}, {"max_waiting": 0}, {"flush_interval": -1}, {"fsync": "often"}],
)
def test_an_option_without_sense_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Journal(tmp_path, **options)


# Recovery

WRITER = """
journal = Journal(sys.argv[1], flush_interval=0.0, max_bytes=20_000, fsync="never")
print("ready", flush=True)
number = 0
while True:
    journal.append(make(number, error_text="x" * (number % 977), outcome="redelivered"))
    number += 1
    if number % 50 == 0:
        journal.flush()
        print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_writer_killed_at_any_moment_leaves_whole_lines_up_to_its_last_flush(tmp_path: Path, seed: int) -> None:
    process = child(WRITER, tmp_path)
    with ended(process):
        assert says(process) == "ready"
        flushed = 0
        for _ in range(random.Random(seed).randrange(1, 25)):
            flushed = int(says(process))
        process.kill()
        process.wait(30)
        Journal(tmp_path).close()
    assert names(tmp_path, "_seg-*") == []
    found = numbers(tmp_path)  # a half or mixed line would be a ValueError here
    assert found == list(range(len(found)))
    assert len(found) >= flushed


def orphan(directory: Path, content: bytes, host: str = "here", pid: int = 4_000_000) -> Path:
    """Write the segment that a dead process leaves, and return its path. No pid goes as high as this one."""
    path = directory / f"_seg-{host}-{pid}-0123456789ab.000001.jsonl.open"
    path.write_bytes(content)
    return path


def whole(*found: int) -> bytes:
    return b"".join(to_line(make(number, record_id=f"r-{number}")) for number in found)


def test_half_a_line_is_put_aside_and_the_whole_ones_become_readable(tmp_path: Path) -> None:
    path = orphan(tmp_path, whole(1, 2) + whole(3)[:40])
    (mended,) = recover(tmp_path, "here")
    assert mended.read_bytes() == whole(1, 2)
    assert mended.name == path.name.removeprefix("_").removesuffix(".open")
    assert (tmp_path / f"_torn-{mended.name}").read_bytes() == whole(3)[:40]
    assert not path.exists()
    assert recover(tmp_path, "here") == []


def test_a_torn_line_longer_than_a_block_is_found_whole(tmp_path: Path) -> None:
    orphan(tmp_path, whole(1) + b"x" * 200_000)
    recover(tmp_path, "here")
    assert numbers(tmp_path) == [1]
    (torn,) = tmp_path.glob("_torn-*")
    assert torn.read_bytes() == b"x" * 200_000


def test_an_orphan_without_a_whole_line_makes_no_segment(tmp_path: Path) -> None:
    orphan(tmp_path, b"")
    orphan(tmp_path, b'{"v":1', pid=4_000_001)
    assert recover(tmp_path, "here") == []
    assert names(tmp_path, "*") == ["_torn-seg-here-4000001-0123456789ab.000001.jsonl"]


def test_recovery_touches_no_file_that_a_link_leads_to(tmp_path: Path) -> None:
    foreign, kept = tmp_path / "foreign.txt", tmp_path / "kept.txt"
    foreign.write_bytes(b"one line\nhalf a line")
    kept.write_bytes(b"kept")
    folder = tmp_path / "journal"
    folder.mkdir()
    linked = folder / "_seg-here-4000000-0123456789ab.000001.jsonl.open"
    linked.symlink_to(foreign)
    orphan(folder, whole(1) + b'{"v":1', pid=4_000_001)
    (folder / "_torn-seg-here-4000001-0123456789ab.000001.jsonl").symlink_to(kept)
    assert [path.name for path in recover(folder, "here")] == ["seg-here-4000001-0123456789ab.000001.jsonl"]
    assert foreign.read_bytes() == b"one line\nhalf a line"
    assert kept.read_bytes() == b"kept"
    assert linked.is_symlink()
    assert (folder / "_torn-seg-here-4000001-0123456789ab.000001.jsonl").read_bytes() == b'{"v":1'


@pytest.mark.timeout(10)
def test_a_pipe_that_is_called_like_a_segment_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.mkfifo(tmp_path / "_seg-here-4000000-0123456789ab.000001.jsonl.open")
    os.mkfifo(tmp_path / "seg-here-4000000-0123456789ab.000002.jsonl")
    assert recover(tmp_path, "here") == []
    assert list(read_segments(tmp_path)) == []
    assert "is no regular file" in caplog.text
    assert "is no file, and is passed over" in caplog.text


def test_a_segment_of_another_host_is_left_alone(tmp_path: Path) -> None:
    path = orphan(tmp_path, whole(1), host="there")
    assert recover(tmp_path, "here") == []
    assert path.exists()


def test_a_pid_used_again_does_not_keep_an_orphan_open(tmp_path: Path) -> None:
    path = orphan(tmp_path, whole(1), pid=os.getpid())
    assert recover(tmp_path, "here")
    assert not path.exists()


def test_two_processes_share_a_directory_and_a_starting_third_takes_from_neither(tmp_path: Path) -> None:
    program = """
journal = Journal(sys.argv[1], host="here")
for number in range(500):
    journal.append(make(int(sys.argv[2]) + number))
journal.flush()
print("written", flush=True)
sys.stdin.readline()
journal.append(make(int(sys.argv[2]) + 500))
journal.close()
print(journal.dropped, flush=True)
"""
    one, two = child(program, tmp_path, 0), child(program, tmp_path, 1000)
    with ended(one, two):
        assert [says(one), says(two)] == ["written", "written"]
        with opened(tmp_path, host="here") as third:
            third.append(make(5000))
        assert numbers(tmp_path) == [5000]
        assert len(names(tmp_path, "_seg-*.open")) == 2
        for process in (one, two):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [says(one), says(two)] == ["0", "0"]
    assert sorted(numbers(tmp_path)) == [*range(501), *range(1000, 1501), 5000]


def test_two_journals_of_one_process_share_a_directory(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as two:
        one.append(make(1))
        assert one.flush()
        two.append(make(2))
        assert two.flush()
        assert recover(tmp_path, one.host) == []
    assert sorted(numbers(tmp_path)) == [1, 2]


def test_a_forked_child_writes_into_a_file_of_its_own_and_nothing_twice(tmp_path: Path) -> None:
    program = """
journal = Journal(sys.argv[1], flush_interval=5.0)
journal.append(make(1))
journal.flush()
journal.append(make(2))            # waits in the parent while it forks
if os.fork() == 0:
    journal.append(make(3))
    journal.close()
    os._exit(0)
code = os.waitstatus_to_exitcode(os.wait()[1])
journal.append(make(4))
journal.close()
print(code, journal.dropped, flush=True)
"""
    process = child(program, tmp_path)
    with ended(process):
        assert says(process) == "0 0"
    files = [[record.attempts_total for record in one(path)] for path in tmp_path.glob("seg-*")]
    assert sorted(files) == [[1, 2, 4], [3]]
    assert len({record.record_id for record in read_segments(tmp_path)}) == 4


def one(path: Path) -> Iterator[AttemptRecord]:
    return (record for record in read_segments(path.parent) if to_line(record) in path.read_bytes())


# Trouble

FULL = """
import resource
journal = Journal(sys.argv[1], flush_interval=0.01, fsync="never")
journal.append(make(0))
assert journal.flush()
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
for number in range(1, 200):
    journal.append(make(number))
    if number % 20 == 0:
        print(journal.flush(0.05), file=sys.stderr)
assert not journal.flush(0.2)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append(make(200))
assert journal.flush(10)
journal.close()
print(journal.dropped, flush=True)
"""


def test_a_file_that_may_not_grow_is_logged_once_and_recovers_without_loss(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import os, sys\nfrom redeliver_mw.journal import Journal\nfrom tests.journal.test_journal import make\n"
        + FULL,
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["0"]
    assert done.stderr.count("cannot be written") == 1
    assert done.stderr.count("is written again") == 1
    assert numbers(tmp_path) == list(range(201))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk_at(tmp_path / "disk") as place:
        yield place


def test_on_a_full_disk_memory_is_bounded_lost_records_are_counted_and_it_recovers(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ballast = small_disk / "ballast"
    with opened(small_disk / "j", fsync="never") as journal:
        journal.append(make(0))
        assert journal.flush()
        with pytest.raises(OSError, match="No space"):
            fill(ballast)
        for number in range(1, 601):  # 36 MiB of lines for a backlog of 16
            journal.append(make(number, error_text="x" * 60_000, outcome="redelivered"))
        assert not journal.flush(1.0)
        assert 250 < journal.dropped < 450
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        journal.append(make(601))
        assert journal.flush(10)
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]
    found = numbers(small_disk / "j")
    assert found[0] == 0
    assert found[-1] == 601
    assert found == sorted(set(found))
    assert len(found) + journal.dropped == 602


def test_a_directory_taken_away_is_made_again_and_what_was_in_it_is_counted(tmp_path: Path) -> None:
    place = tmp_path / "j"
    with opened(place) as journal:
        journal.append(make(1))
        assert journal.flush()
        shutil.rmtree(place)
        journal.append(make(2))
        assert journal.flush()
    assert numbers(place) == [2]
    assert journal.dropped == 1


def test_a_directory_in_whose_place_is_a_file_recovers_when_the_file_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "j"
    with opened(place) as journal:
        place.rmdir()
        place.write_text("in the way")
        journal.append(make(1))
        journal.append(make(2))
        assert not journal.flush(0.3)
        place.unlink()
        assert journal.flush(10)
    assert numbers(place) == [1, 2]
    assert journal.dropped == 0
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_closing_while_nothing_can_be_written_ends_in_time_and_counts(tmp_path: Path) -> None:
    place = tmp_path / "j"
    journal = Journal(place, flush_interval=0.01)
    place.rmdir()
    place.write_text("in the way")
    for number in range(3):
        journal.append(make(number))
    journal.close(timeout=5.0)
    assert journal.dropped == 3


# Reading


def test_bad_lines_are_reported_with_file_and_offset_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "seg-x-1-ab.000001.jsonl"
    path.write_bytes(whole(1) + b"garbage\n" + whole(2) + b'{"v":1}\n' + whole(3)[:30])
    (tmp_path / "_seg-x-1-ab.000002.jsonl.open").write_bytes(whole(9))
    bad: list[tuple[Path, int, str]] = []
    found = [
        r.attempts_total for r in read_segments(tmp_path, lambda *report: bad.append((*report[:2], str(report[2]))))
    ]
    assert found == [1, 2]
    first = len(whole(1))
    second = first + len(b"garbage\n") + len(whole(2))
    assert [(file, offset) for file, offset, _ in bad] == [(path, first), (path, second), (path, second + 8)]
    assert "'record_id'" in bad[1][2]
    with pytest.raises(ValueError, match=f"byte {first}"):
        list(read_segments(tmp_path))
