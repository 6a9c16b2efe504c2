# SPDX-FileCopyrightText: 2026 The redeliver-mw authors
# SPDX-License-Identifier: Apache-2.0
"""Operations freeze their letters, are run by one process at a time, and can be paused, cancelled and taken over."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from redeliver_mw.errors import ConfigError, StoreError
from redeliver_mw.operations import (
    Operation,
    Selection,
    Store,
    cancel_operation,
    find_operation,
    last_operations,
    pause_operation,
)
from redeliver_mw.operations.archive import plan_archive, run_archive
from redeliver_mw.operations.audit import (
    AuditEntry,
    change_operation,
    end_operation,
    end_run,
    last_entries,
    write_audit,
)
from redeliver_mw.operations.import_ import import_letters
from redeliver_mw.operations.operation import (
    LetterResult,
    claim_letters,
    now_us,
    pending_letters,
    plan_operation,
    record_results,
    take_operation,
)
from redeliver_mw.operations.tables import operations
from tests.operations.taking import put
from tests.pipeline.letters import letter


def filled(store: Store, number: int = 10) -> None:
    put(store, *(letter(b"%d" % n, {"n": str(n % 2)}, copy_id=f"copy-{n:02d}") for n in range(number)))


def planned(store: Store, **wanted: Any) -> Operation:
    return plan_operation(store, "replay", Selection(**wanted), options={"rate": 5})


def test_an_operation_means_the_letters_that_were_there_when_it_was_planned(store: Store) -> None:
    filled(store)
    operation = planned(store, where='header.n = "1"')
    put(store, letter(b"late", {"n": "1"}, copy_id="late"))
    assert (operation.state, operation.total, operation.options) == ("planned", 5, {"rate": 5})
    assert len(pending_letters(store, operation.operation_id, 100)) == 5
    assert planned(store, where='header.n = "1"').total == 6


def test_letters_are_in_the_order_of_their_deaths_and_at_most_so_many(store: Store) -> None:
    filled(store)
    everything = [one.letter_id for one in pending_letters(store, planned(store).operation_id, 100)]
    some = plan_operation(store, "replay", Selection(), options={}, most=3)
    assert [one.letter_id for one in pending_letters(store, some.operation_id, 100)] == everything[:3]
    assert [one.position for one in pending_letters(store, some.operation_id, 100)] == [1, 2, 3]


def test_what_came_of_letters_is_counted_and_a_later_result_counts_in_place_of_an_earlier_one(store: Store) -> None:
    filled(store)
    operation = take_operation(store, planned(store).operation_id)
    with store.writing() as connection:
        words = ("done", "failed", "skipped", "in doubt")
        record_results(connection, operation, [LetterResult(n, word) for n, word in enumerate(words, start=1)])
    found = find_operation(store, operation.operation_id)
    assert (found.done, found.failed, found.skipped) == (1, 2, 1)
    assert [one.position for one in pending_letters(store, operation.operation_id, 100)] == list(range(5, 11))
    with store.writing() as connection:
        record_results(connection, operation, [LetterResult(4, "done"), LetterResult(1, "done")])
    found = find_operation(store, operation.operation_id)
    assert (found.done, found.failed, found.skipped) == (2, 1, 1)


def test_a_letter_that_two_operations_want_is_claimed_by_one(store: Store) -> None:
    filled(store, 4)
    numbers = [one.letter_id for one in pending_letters(store, planned(store).operation_id, 100)]
    with store.writing() as connection:
        first = claim_letters(connection, numbers[:3], ["waiting"], "replaying", now_us())
        second = claim_letters(connection, numbers, ["waiting"], "archived", now_us())
    assert (first, second) == (set(numbers[:3]), {numbers[3]})


def test_one_process_at_a_time_runs_an_operation(store: Store) -> None:
    filled(store)
    operation = take_operation(store, planned(store).operation_id)
    with pytest.raises(StoreError, match=f"runs on .*, in process {os.getpid()}") as caught:
        take_operation(store, operation.operation_id)
    assert caught.value.code == "operation-running"


def test_an_operation_is_taken_over_from_a_process_that_is_gone_which_then_writes_nothing(store: Store) -> None:
    filled(store)
    lost = take_operation(store, planned(store).operation_id)
    with store.writing() as connection:
        connection.execute(operations.update().values(pid=2**22 + 1))
    taken = take_operation(store, lost.operation_id)
    assert taken.pid == os.getpid()
    with pytest.raises(StoreError) as caught, store.writing() as connection:
        record_results(connection, lost, [LetterResult(1, "done")])
    assert caught.value.code == "operation-running"
    assert find_operation(store, lost.operation_id).done == 0


def test_a_process_on_another_host_counts_as_gone_after_a_minute_of_silence(store: Store) -> None:
    filled(store)
    operation = take_operation(store, planned(store).operation_id)
    for silent, free in ((59, False), (61, True)):
        with store.writing() as connection:
            connection.execute(operations.update().values(host="elsewhere", seen_us=now_us() - silent * 1_000_000))
        if free:
            assert take_operation(store, operation.operation_id).host != "elsewhere"
        else:
            with pytest.raises(StoreError, match="runs on elsewhere"):
                take_operation(store, operation.operation_id)


def test_a_paused_operation_goes_on_and_a_cancelled_one_does_not(store: Store) -> None:
    filled(store)
    operation = take_operation(store, planned(store).operation_id)
    assert pause_operation(store, operation.operation_id).state == "paused"
    assert take_operation(store, operation.operation_id).state == "running"
    assert cancel_operation(store, operation.operation_id).state == "cancelled"
    for change in (take_operation, pause_operation, cancel_operation):
        with pytest.raises(StoreError) as caught:
            change(store, operation.operation_id)
        assert caught.value.code == "operation-over"


@pytest.mark.parametrize("change", [pause_operation, cancel_operation])
def test_the_end_of_a_run_does_not_undo_what_somebody_else_has_just_said(
    store: Store, change: Callable[[Store, str], Operation]
) -> None:
    filled(store)
    operation = take_operation(store, planned(store).operation_id)
    said = change(store, operation.operation_id).state
    end_run(store, operation, "done")
    assert find_operation(store, operation.operation_id).state == said


def test_the_end_of_a_run_that_another_process_has_taken_over_changes_nothing(store: Store) -> None:
    filled(store)
    lost = take_operation(store, planned(store).operation_id)
    with store.writing() as connection:
        connection.execute(operations.update().values(pid=2**22 + 1))
    taken = take_operation(store, lost.operation_id)
    end_run(store, lost, "paused", "interrupted")
    assert find_operation(store, lost.operation_id).state == "running"
    end_run(store, taken, "done")
    assert find_operation(store, lost.operation_id).state == "done"


def test_an_operation_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    operation = planned(store)
    assert find_operation(store, operation.operation_id[:-2]) == operation
    planned(store)
    with pytest.raises(ConfigError, match="several operations"):
        find_operation(store, operation.operation_id[:6])
    for unknown in ("", "19991231-", "%"):
        with pytest.raises(StoreError, match="no such operation"):
            find_operation(store, unknown)
    end_operation(store, operation.operation_id, "done")
    assert len(last_operations(store, kind="replay")) == 2
    assert last_operations(store, kind="collect") == []


def test_the_audit_has_a_row_and_a_line_without_secrets(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    entry = AuditEntry(
        who="ada", what="replay", outcome="denied", filter="queue=x", why="token=abcdef0123456789", count=3
    )
    write_audit(store, entry)
    [found] = last_entries(store)
    assert dataclasses.replace(found, at_us=0) == entry
    [line] = caplog.records
    assert (line.name, line.levelname) == ("redeliver_mw.audit", "WARNING")
    assert line.__dict__["user.name"] == "ada"
    assert line.__dict__["event.outcome"] == "failure"
    assert "abcdef0123456789" not in line.getMessage()


def archive(store: Store) -> Operation:
    return run_archive(store, plan_archive(store, Selection()).operation_id)


def import_nothing(store: Store) -> Operation:
    return find_operation(store, import_letters(store, BytesIO()).operation)


def end(store: Store) -> Operation:
    return end_run(store, take_operation(store, planned(store).operation_id), "done")


def cancel(store: Store) -> Operation:
    return change_operation(store, planned(store).operation_id, "cancel", who="ada")


@pytest.mark.parametrize("run", [archive, import_nothing, end, cancel])
def test_an_operation_has_not_ended_without_its_row_in_the_audit(
    run: Callable[[Store], Operation], store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "redeliver_mw.audit")
    filled(store, 3)
    with store.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE redeliver_store_audit RENAME TO away")
    with pytest.raises(StoreError):
        run(store)
    [left, _] = last_operations(store)  # the other one put the letters there
    assert (left.state, left.ended_us) == ("planned" if run is cancel else "running", None)
    assert [one for one in caplog.records if one.__dict__["event.outcome"] == "success"] == []
    with store.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE away RENAME TO redeliver_store_audit")
    done = run(store)
    [entry] = last_entries(store)
    assert done.ended_us is not None
    assert (entry.operation_id, entry.outcome) == (done.operation_id, "success")
    [line] = [one for one in caplog.records if one.__dict__["event.outcome"] == "success"]
    assert line.__dict__["redeliver.operation_id"] == done.operation_id


def test_a_run_that_another_process_has_taken_over_leaves_the_row_in_the_audit_to_that_one(store: Store) -> None:
    filled(store)
    lost = take_operation(store, planned(store).operation_id)
    with store.writing() as connection:
        connection.execute(operations.update().values(pid=2**22 + 1))
    taken = take_operation(store, lost.operation_id)
    end_run(store, lost, "failed", "it was lost")
    assert last_entries(store) == []
    end_run(store, taken, "done")
    assert [entry.outcome for entry in last_entries(store)] == ["success"]
