# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Letters are archived, restored, discarded and expired: each by one operation, and nothing is lost."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.operations import (
    Operation,
    Selection,
    Store,
    cancel_operation,
    counts,
    find_operation,
    pause_operation,
    show,
)
from redeliver_mw.operations.archive import plan_archive, plan_restore, run_archive, run_restore
from redeliver_mw.operations.audit import last_entries
from redeliver_mw.operations.discard import plan_discard, run_discard
from redeliver_mw.operations.expire import plan_expire, run_expire
from redeliver_mw.operations.notes import note_letter
from redeliver_mw.operations.operation import now_us, take_operation
from redeliver_mw.operations.outcomes import outcome_counts, outcomes_of
from redeliver_mw.operations.selection import LetterState
from redeliver_mw.operations.tables import bodies, headers, letters, operations
from tests.operations.taking import ids, put
from tests.pipeline.letters import letter

NUMBER = 450  # more than two batches
ALL = Selection()


def filled(store: Store, number: int = NUMBER) -> None:
    put(store, *(letter(b"%d" % n, {"n": str(n % 3)}, copy_id=f"copy-{n:04d}") for n in range(number)))


def set_state(store: Store, state: str, *names: str, changed_us: int | None = None) -> None:
    at = {} if changed_us is None else {"changed_us": changed_us}
    with store.writing() as connection:
        connection.execute(letters.update().where(letters.c.dl_id.in_(names)).values(state=state, **at))


def archived(store: Store, **given: Any) -> Operation:
    return run_archive(store, plan_archive(store, Selection(**given)).operation_id)


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the letters of a file of discarded letters; its first line names the operation."""
    first, *others = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert list(first) == ["redeliver_discard"]
    return others


def test_letters_are_archived_and_restored_and_the_audit_says_who(store: Store) -> None:
    filled(store)
    told: list[tuple[int, int]] = []
    plan = plan_archive(store, Selection(where='header.n = "1"'), who="ada@shop")
    assert (plan.state, plan.total) == ("planned", 150)
    done = run_archive(store, plan.operation_id, progress=lambda *both: told.append(both), who="bob@shop")
    assert (done.state, done.done, done.failed, done.skipped) == ("done", 150, 0, 0)
    assert counts(store) == {"waiting": 300, "archived": 150}
    assert (told[0], told[-1]) == ((0, 150), (150, 150))
    [entry] = last_entries(store)
    assert (entry.who, entry.what, entry.outcome, entry.count) == ("bob@shop", "archive", "success", 150)
    assert entry.operation_id == done.operation_id
    back = run_restore(store, plan_restore(store, Selection(state=None)).operation_id)
    assert (back.total, back.done) == (150, 150)
    assert counts(store) == {"waiting": 450}


def test_an_operation_on_states_that_it_cannot_change_is_refused(store: Store) -> None:
    refused: list[tuple[Callable[[Store, Selection], Operation], LetterState]] = [
        (plan_archive, "discarded"),
        (plan_restore, "waiting"),
        (plan_discard, "replaying"),
    ]
    for plan, state in refused:
        with pytest.raises(ConfigError, match=f"cannot be done with letters that are {state}"):
            plan(store, Selection(state=state))


def test_discarded_letters_are_in_a_file_for_its_owner_alone_and_stay_in_the_store(
    store: Store, tmp_path: Path
) -> None:
    filled(store)
    file = tmp_path / "gone.jsonl"
    done = run_discard(store, plan_discard(store, ALL, file=file).operation_id)
    assert (done.state, done.done) == ("done", NUMBER)
    assert counts(store) == {"discarded": NUMBER}
    assert sorted(line["dl_id"] for line in lines(file)) == [f"copy-{n:04d}" for n in range(NUMBER)]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert show(store, "copy-0042").packed.body == b"42"


def test_large_letters_are_discarded_in_smaller_batches(
    file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redeliver_mw.operations.discard.BATCH_BYTES", 1000)
    sizes = [400, 400, 400, 5000, 5000, 1]
    put(file_store, *(letter(b"x" * size, copy_id=f"copy-{n}") for n, size in enumerate(sizes)))
    told: list[int] = []
    plan = plan_discard(file_store, ALL, file=tmp_path / "gone.jsonl")
    run_discard(file_store, plan.operation_id, progress=lambda done, _: told.append(done))
    assert told == [0, 2, 3, 4, 5, 6]


def test_without_a_file_letters_are_discarded_in_the_store_alone(store: Store) -> None:
    filled(store, 3)
    assert run_discard(store, plan_discard(store, ALL).operation_id).done == 3
    assert counts(store) == {"discarded": 3}


class FailingDisk:
    """Fails each write after some."""

    def __init__(self, good: int) -> None:
        self.left = good

    def __call__(self, handle: int, data: Any) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return REAL_WRITE(handle, data)


REAL_WRITE = os.write


def test_a_full_disk_discards_nothing_that_is_not_in_the_file_and_the_operation_goes_on(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    file = tmp_path / "gone.jsonl"
    plan = plan_discard(store, ALL, file=file)
    with monkeypatch.context() as broken:
        broken.setattr("redeliver_mw.operations.letter_files.os.write", FailingDisk(250))
        with pytest.raises(StoreError) as caught:
            run_discard(store, plan.operation_id)
    assert caught.value.code == "letter-file"
    assert counts(store) == {"discarded": 200, "waiting": 250}
    failed = find_operation(store, plan.operation_id)
    assert (failed.state, failed.done) == ("failed", 200)
    assert "No space left" in failed.why
    with file.open("ab") as end:
        end.write(b'{"redeliver_letter": 1, "dl')  # half a line
    done = run_discard(store, plan.operation_id)
    assert (done.state, done.done) == ("done", NUMBER)
    assert {line["dl_id"] for line in lines(file)} == {f"copy-{n:04d}" for n in range(NUMBER)}


def test_a_file_is_never_written_over(store: Store, tmp_path: Path) -> None:
    filled(store, 2)
    file = tmp_path / "gone.jsonl"
    plan = plan_discard(store, ALL, file=file)
    file.write_text("mine")
    with pytest.raises(ConfigError, match="it is there already"):
        run_discard(store, plan.operation_id)
    with pytest.raises(ConfigError, match="it is there already"):
        plan_discard(store, ALL, file=file)
    with pytest.raises(ConfigError, match="it is there already"):
        run_discard(store, plan.operation_id)  # also when it is tried again
    assert file.read_text() == "mine"
    assert counts(store) == {"waiting": 2}


def test_an_operation_never_goes_on_in_the_file_of_another_one(store: Store, tmp_path: Path) -> None:
    filled(store, 2)
    file = tmp_path / "gone.jsonl"
    first = plan_discard(store, Selection(ids=["copy-0000"]), file=file)
    second = plan_discard(store, Selection(ids=["copy-0001"]), file=file)
    run_discard(store, first.operation_id)
    for _ in range(2):
        with pytest.raises(ConfigError, match="it is there already"):
            run_discard(store, second.operation_id)
    assert [line["dl_id"] for line in lines(file)] == ["copy-0000"]
    file.rename(tmp_path / "away.jsonl")
    assert run_discard(store, second.operation_id).done == 1
    assert [line["dl_id"] for line in lines(file)] == ["copy-0001"]


def test_who_may_not_run_an_operation_does_not_touch_its_file(store: Store, tmp_path: Path) -> None:
    filled(store)
    file = tmp_path / "gone.jsonl"
    plan = plan_discard(store, ALL, file=file)

    def tell(done: int, total: int) -> None:
        if done:
            with file.open("ab") as end:
                end.write(b"half a line")  # of the batch in hand
            size = file.stat().st_size
            with pytest.raises(StoreError, match="runs on"):
                run_discard(store, plan.operation_id)
            assert file.stat().st_size == size
            os.truncate(file, size - len(b"half a line"))

    assert run_discard(store, plan.operation_id, progress=tell).done == NUMBER
    assert len(lines(file)) == NUMBER


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("../out.jsonl", "leads out of its folder"),
        ("a/../../out", "leads out of its folder"),
        ("", "no name of a file"),
        ("x\x1b[2J", "no name of a file"),
        ("x\0y", "no name of a file"),
        ("folder/", "no name of a file"),
        ("nowhere/x", "no such folder"),
        ("link", "there already"),
    ],
)
def test_names_of_files_that_are_not_acceptable(
    name: str, what: str, file_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=what) as caught:
        plan_discard(file_store, ALL, file=name)
    assert caught.value.code == "letter-file-name"
    assert "\x1b" not in str(caught.value)


def test_an_operation_that_is_stopped_is_paused_between_batches_and_goes_on(store: Store) -> None:
    filled(store)
    stop = threading.Event()

    def tell(done: int, total: int) -> None:
        if done:
            stop.set()

    plan = plan_archive(store, ALL)
    paused = run_archive(store, plan.operation_id, stop=stop, progress=tell)
    assert (paused.state, paused.done, paused.why) == ("paused", 200, "it was interrupted")
    assert counts(store) == {"archived": 200, "waiting": 250}
    assert run_archive(store, plan.operation_id).done == NUMBER
    assert [entry.outcome for entry in last_entries(store)] == ["success", "failure"]


@pytest.mark.parametrize(("ask", "state"), [(pause_operation, "paused"), (cancel_operation, "cancelled")])
def test_an_operation_that_somebody_else_ends_stops_after_its_batch(
    ask: Callable[[Store, str], Operation], state: str, store: Store
) -> None:
    filled(store)
    plan = plan_archive(store, ALL)

    def tell(done: int, total: int) -> None:
        if done == 200:
            ask(store, plan.operation_id)

    done = run_archive(store, plan.operation_id, progress=tell)
    assert done.state == state
    assert done.done in (200, 400)
    assert counts(store)["archived"] == done.done


def test_of_two_operators_at_the_same_letter_one_gets_it_and_the_other_is_told(store: Store) -> None:
    filled(store, 4)
    first = plan_archive(store, Selection(ids=["copy-0000", "copy-0001"]))
    second = plan_discard(store, ALL)
    run_archive(store, first.operation_id)
    set_state(store, "replaying", "copy-0002")
    done = run_discard(store, second.operation_id)
    assert (done.done, done.skipped) == (3, 1)  # an archived letter may be discarded
    assert outcome_counts(store, second.operation_id) == Counter(
        {("done", "", ""): 3, ("skipped", "it is replaying now", ""): 1}
    )
    third = plan_restore(store, Selection(state=None))
    run_archive(store, plan_archive(store, ALL).operation_id)
    assert third.total == 3
    set_state(store, "replayed", "copy-0000")
    assert run_restore(store, third.operation_id).skipped == 1


def test_an_operation_that_runs_elsewhere_or_is_another_one_is_refused_and_the_refusal_audited(store: Store) -> None:
    filled(store, 2)
    plan = plan_archive(store, ALL)
    with pytest.raises(ConfigError) as wrong:
        run_restore(store, plan.operation_id)
    assert wrong.value.code == "operation-kind"
    take_operation(store, plan.operation_id)
    with pytest.raises(StoreError) as runs:
        run_archive(store, plan.operation_id)
    assert runs.value.code == "operation-running"
    assert [(one.what, one.outcome) for one in last_entries(store)] == [("archive", "denied"), ("restore", "denied")]
    assert counts(store) == {"waiting": 2}


def test_a_run_that_lost_its_operation_changes_nothing_more(store: Store) -> None:
    filled(store)
    plan = plan_archive(store, ALL)

    def tell(done: int, total: int) -> None:
        if done == 200:  # another process takes it over
            with store.writing() as connection:
                connection.execute(operations.update().values(run="other", state="running"))

    with pytest.raises(StoreError, match="another process has taken over"):
        run_archive(store, plan.operation_id, progress=tell)
    found = find_operation(store, plan.operation_id)
    assert (found.run, found.state, found.done) == ("other", "running", 200)
    assert counts(store) == {"archived": 200, "waiting": 250}


# -- expire -----------------------------------------------------------------------------------------


DAY = 86_400
OLD = now_us() - 40 * DAY * 1_000_000


def rows_left(store: Store) -> list[int]:
    with store.reading() as connection:
        return [
            connection.execute(select(func.count()).select_from(one)).scalar_one() for one in (letters, bodies, headers)
        ]


def test_old_letters_that_are_over_are_removed_with_all_that_belongs_to_them(store: Store) -> None:
    filled(store, 8)
    each = rows_left(store)[2] // 8
    set_state(store, "archived", "copy-0000", "copy-0001", changed_us=OLD)
    set_state(store, "discarded", "copy-0002", changed_us=OLD)
    set_state(store, "replayed", "copy-0003", changed_us=OLD)
    set_state(store, "replaying", "copy-0004", changed_us=OLD)
    set_state(store, "waiting", "copy-0005", changed_us=OLD)
    set_state(store, "archived", "copy-0006")
    note_letter(store, "copy-0001", "old")
    note_letter(store, "copy-0006", "young")
    plan = plan_expire(store, 30 * DAY)
    assert plan.total == 4
    set_state(store, "waiting", "copy-0000")  # somebody restores it meanwhile
    done = run_expire(store, plan.operation_id)
    assert (done.done, done.skipped) == (3, 1)
    assert rows_left(store) == [5, 5, 5 * each]
    assert counts(store) == {"waiting": 3, "replaying": 1, "archived": 1}
    gone = [(one.dl_id, one.outcome) for one in outcomes_of(store, plan.operation_id)]
    assert sorted(gone, key=str) == [("copy-0000", "skipped"), (None, "done"), (None, "done"), (None, "done")]


def test_a_letter_without_its_body_is_shown_and_cannot_be_restored(store: Store) -> None:
    filled(store, 3)
    set_state(store, "archived", "copy-0000", "copy-0001", changed_us=OLD)
    plan = plan_expire(store, 30 * DAY, only_bodies=True)
    assert run_expire(store, plan.operation_id).done == 2
    assert plan_expire(store, 30 * DAY, only_bodies=True).total == 0
    found = show(store, "copy-0000")
    assert (found.whole, found.packed.body, found.headers["n"]) == (False, b"", "0")
    restore = plan_restore(store, Selection(state=None))
    done = run_restore(store, restore.operation_id)
    assert (done.done, done.skipped) == (0, 2)
    assert {one.why for one in outcomes_of(store, restore.operation_id)} == {"its body was removed from the store"}


def test_letters_that_wait_are_removed_only_if_that_is_said_and_confirmed(store: Store) -> None:
    filled(store, 2)
    set_state(store, "waiting", "copy-0000", changed_us=OLD)
    assert plan_expire(store, 30 * DAY).total == 0
    with pytest.raises(ConfigError, match="not removed unless that is confirmed"):
        plan_expire(store, 30 * DAY, Selection(state="waiting"))
    plan = plan_expire(store, 30 * DAY, Selection(state="waiting"), waiting=True)
    assert (plan.total, run_expire(store, plan.operation_id).done) == (1, 1)
    assert ids(store) == ["copy-0001"]
    with pytest.raises(ConfigError, match="cannot be done with letters that are replaying"):
        plan_expire(store, 30 * DAY, Selection(state="replaying"))
