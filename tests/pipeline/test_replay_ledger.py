# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Tests the ledger of a replay: what it says after a cut anywhere, what it refuses, and how it meets a full disk."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redeliver_mw.dead_letters.sending.batch_publisher import BatchAnswer
from redeliver_mw.pipeline import LakeError
from redeliver_mw.pipeline.replaying.ledger import (
    FOLDER,
    WHYS,
    BucketAttempt,
    LedgerRecord,
    ReplayProgress,
    as_ranges,
    line_of,
    positions_in,
    read,
    tries,
)
from tests.disks import fill, small_disk_at

PLAN = "0123456789abcdef"
POSITIONS = st.sets(st.integers(0, 10**6), max_size=200)


def wrote(folder: Path, *batches: tuple[set[int], BatchAnswer | None], run: str = "r1") -> Path:
    """Write the ledger of a try with these batches, and return its path; an answer that is None never came."""
    one = BucketAttempt(str(folder), PLAN, 0, run)
    for intended, answer in batches:
        one.intend(intended)
        if answer is not None:
            one.answer(answer)
    one.close()
    return max((folder / FOLDER).glob(f"bucket-00000.{run}-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)


def told(folder: Path) -> LedgerRecord:
    return read(tries(str(folder)).get(0, ()), PLAN)


@given(POSITIONS)
def test_positions_are_the_same_after_they_were_written(positions: set[int]) -> None:
    assert positions_in(as_ranges(positions)) == positions


def test_positions_that_follow_each_other_are_one_range() -> None:
    assert as_ranges([3, 0, 1, 2, 7, 9, 8]) == "0-3,7-9"
    assert as_ranges([]) == ""


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "1,,2", "1 2", "-1", "٣"])
def test_text_that_is_no_positions_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no positions|ends before"):
        positions_in(text)


def test_what_every_try_says_is_put_together(tmp_path: Path) -> None:
    wrote(tmp_path, ({0, 1, 2}, BatchAnswer({0}, {1: "full"}, unsent={2})), ({3, 4}, None))
    assert told(tmp_path) == LedgerRecord({0}, {1: "full"}, {3, 4}, _fresh={3, 4})

    again = BucketAttempt(str(tmp_path), PLAN, 0, "r2")
    assert again.before.confirmed == {0}
    again.intend({1, 2, 3})
    again.answer(BatchAnswer({1, 2}, {}, silent={3}))
    again.close()

    found = told(tmp_path)
    assert (found.confirmed, found.refused, found.doubt) == ({0, 1, 2}, {}, {3, 4})


def test_the_wait_between_two_phases_of_a_run_is_no_part_of_its_rate(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    second, at = 1_000_000, 1_764_000_000_000_000

    def batch(bucket: int, intended_s: float, answered_s: float, positions: str) -> None:
        said = [
            {"intent": positions, "at_us": at + round(intended_s * second)},
            {"done": positions, "at_us": at + round(answered_s * second)},
        ]
        with (tmp_path / FOLDER / f"bucket-{bucket:05d}.r1-abc.jsonl").open("ab") as file:
            file.write(b"".join(map(line_of, said)))

    progress = ReplayProgress(str(tmp_path), "r1")
    progress.begin_phase()
    assert progress.seconds == 0.0
    batch(0, 0, 2, "0-9")
    batch(1, 1, 3, "0-9")
    progress.begin_phase()  # a canary of 20 was waited for from second 3 to second 60
    assert (progress.confirmed, progress.seconds) == (20, 3.0)
    batch(0, 60, 64, "10-49")
    progress.look()
    assert (progress.confirmed, progress.seconds) == (60, 7.0)


def test_a_letter_that_was_in_doubt_stays_so_until_the_broker_answers(tmp_path: Path) -> None:
    wrote(tmp_path, ({5}, None))
    wrote(tmp_path, ({5, 6}, BatchAnswer(unsent={5, 6})), run="r2")
    assert told(tmp_path).doubt == {5}  # 6 was never given to the broker


def test_reasons_are_cut_and_only_so_many_are_kept_apart(tmp_path: Path) -> None:
    refused = {n: f"reason {n} " + "ä\n" * 1000 for n in range(WHYS + 5)}
    path = wrote(tmp_path, (set(refused), BatchAnswer(refused=refused)))
    found = told(tmp_path).refused
    assert set(found) == set(refused)
    assert len(set(found.values())) == WHYS + 1
    assert path.stat().st_size < 10_000


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[set[int], BatchAnswer]]:
    """Draw the batches of one try, each of letters of its own, with any answers."""
    batches = []
    for number in range(draw(st.integers(1, 5))):
        mine = {number * 100 + n for n in draw(st.sets(st.integers(0, 99), min_size=1, max_size=20))}
        words = {position: draw(st.sampled_from(["ok", "no", "unsent", "silent"])) for position in mine}
        said = {word: {p for p, w in words.items() if w == word} for word in ("ok", "no", "unsent", "silent")}
        batches.append(
            (mine, BatchAnswer(said["ok"], dict.fromkeys(said["no"], "full"), said["unsent"], said["silent"]))
        )
    return batches


@given(histories(), st.data())
def test_a_ledger_that_is_cut_anywhere_never_forgets_what_may_be_sent(
    batches: list[tuple[set[int], BatchAnswer]], data: st.DataObject
) -> None:
    """A process dies at any byte, with or without reserved room behind: whole batches count, one is in doubt."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = wrote(folder, *batches)
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut] + bytes(data.draw(st.sampled_from([0, 1, 4096]))))
        found = told(folder)
    lines = whole[:cut].count(b"\n") - 1  # without the first, which says whose it is
    answered, begun = max(0, lines // 2), max(0, (lines + 1) // 2)
    confirmed = {p for _, answer in batches[:answered] for p in answer.confirmed}
    doubt = {p for _, answer in batches[:answered] for p in answer.silent}
    assert found.confirmed == confirmed
    assert found.doubt == doubt | {p for mine, _ in batches[answered:begun] for p in mine}


@given(histories(), st.data())
def test_a_byte_that_was_changed_before_the_last_line_is_one_clear_error(
    batches: list[tuple[set[int], BatchAnswer]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = wrote(folder, *batches)
        content = bytearray(path.read_bytes())
        at = data.draw(st.integers(0, content.rstrip(b"\n").rfind(b"\n") - 1))
        content[at] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        with pytest.raises(LakeError, match=r"line \d+ is damaged") as caught:
            told(folder)
    assert caught.value.where == str(path)


def test_the_last_line_may_have_lost_its_beginning_in_a_power_cut(tmp_path: Path) -> None:
    path = wrote(tmp_path, ({0, 1}, BatchAnswer({0, 1})))
    *kept, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(kept) + b"\0" * (len(last) - 5) + last[-5:])
    assert told(tmp_path).doubt == {0, 1}


def test_a_ledger_of_another_plan_is_refused(tmp_path: Path) -> None:
    path = wrote(tmp_path, ({0}, BatchAnswer({0})))
    with pytest.raises(LakeError, match="another plan"):
        read([str(path)], "f" * 16)


def test_two_processes_cannot_be_at_one_bucket(tmp_path: Path) -> None:
    first = BucketAttempt(str(tmp_path), PLAN, 0, "r1")
    with pytest.raises(LakeError, match="another process sends these letters"):
        BucketAttempt(str(tmp_path), PLAN, 0, "r2", patience=0.1)
    first.close()
    BucketAttempt(str(tmp_path), PLAN, 0, "r2").close()


def test_a_try_that_sends_nothing_leaves_no_file(tmp_path: Path) -> None:
    BucketAttempt(str(tmp_path), PLAN, 0, "r1").close()
    assert tries(str(tmp_path)) == {}


def test_on_a_full_disk_nothing_may_be_sent_and_what_was_sent_can_be_written_down(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "64k") as disk:
        one = BucketAttempt(str(disk), PLAN, 0, "r1")
        one.intend({0, 1})
        with pytest.raises(OSError, match="No space left"):
            fill(disk / "others")
        one.answer(BatchAnswer({0}, {1: "x" * 500}))  # its room was reserved
        with pytest.raises(OSError, match="No space left") as caught:
            one.intend(range(2, 50_000))
        assert caught.value.errno == errno.ENOSPC
        found = told(disk)
        one.close()
    assert found.confirmed >= {0}
    assert found.refused.keys() == {1}
    assert found.doubt == set()  # what was not to be sent is in no doubt


def test_the_room_that_was_reserved_is_given_back(tmp_path: Path) -> None:
    path = wrote(tmp_path, ({0}, BatchAnswer({0})))
    assert b"\0" not in path.read_bytes()
    assert os.stat(path).st_blocks * 512 <= 8192
